//! Makes many calls in growing batches, so that an error common to all of them occurs once, not a thousand times. For
//! example, an exhausted quota costs one rejected call per attempt.

use futures::future::join_all;

/// The result of [`slow_start`].
///
/// ```
/// use setpoint::batch::SlowStartResult;
/// let started = SlowStartResult { succeeded: 3, failed: 1, failure: Some("quota") };
/// assert!(started.failure.is_some());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlowStartResult<E> {
    /// The number of calls that succeeded.
    pub succeeded: usize,
    /// The number of calls that failed.
    pub failed: usize,
    /// The failure with the lowest call number. Calls after its batch were not made.
    pub failure: Option<E>,
}

/// Makes the calls `0..count` in batches. The first batch has `initial` calls, and each batch is twice the size of the
/// one before. The calls of a batch run concurrently. After a batch with a failure, no further batch starts.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// use setpoint::batch::slow_start;
/// let quota = 5;
/// let started = slow_start(100, 1, |call| async move { if call < quota { Ok(()) } else { Err("over quota") } }).await;
/// assert_eq!((started.succeeded, started.failure), (5, Some("over quota"))); // 7 calls, not 100
/// # });
/// ```
pub async fn slow_start<T, E, F>(
    count: usize,
    initial: usize,
    mut call: impl FnMut(usize) -> F,
) -> SlowStartResult<E>
where
    F: Future<Output = Result<T, E>>,
{
    let mut succeeded = 0;
    let mut batch = count.min(initial.max(1));
    while batch > 0 {
        // Everything before this batch succeeded, otherwise this batch would not have started.
        let results = join_all((succeeded..succeeded + batch).map(&mut call)).await;
        let failed = results.iter().filter(|result| result.is_err()).count();
        succeeded += batch - failed;
        if let Some(failure) = results.into_iter().find_map(Result::err) {
            return SlowStartResult { succeeded, failed, failure: Some(failure) };
        }
        batch = (2 * batch).min(count - succeeded);
    }
    SlowStartResult { succeeded, failed: 0, failure: None }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::future::ready;

    use super::*;

    /// Simulates a server that accepts `capacity` calls, and checks how many calls are made and how many succeed.
    #[track_caller]
    fn check(count: usize, initial: usize, capacity: usize, calls: usize, succeeded: usize) {
        let made = RefCell::new(Vec::new());
        let started = futures::executor::block_on(slow_start(count, initial, |call| {
            made.borrow_mut().push(call);
            ready(if call < capacity { Ok(()) } else { Err(call) })
        }));
        assert_eq!(*made.borrow(), (0..calls).collect::<Vec<_>>());
        assert_eq!(started.succeeded, succeeded);
        assert_eq!(started.failure, (succeeded < count).then_some(capacity));
    }

    #[test]
    fn batches_double_until_one_fails() {
        check(0, 1, 0, 0, 0);
        check(1, 1, 1, 1, 1);
        check(10, 1, 10, 10, 10);
        check(10, 1, 0, 1, 0);
        check(10, 1, 1, 3, 1);
        check(10, 1, 4, 7, 4);
        check(10, 1, 9, 10, 9);
        check(500, 10, 35, 70, 35);
        check(3, 10, 3, 3, 3);
        check(3, 0, 3, 3, 3);
    }
}
