//! Many calls in growing batches, so that a failure common to all of them is met once, not a
//! thousand times: a quota that is used up costs one refused call a try.

use futures::future::join_all;

/// How a slow start ended.
///
/// ```
/// use setpoint::batch::Started;
/// let started = Started { succeeded: 3, failed: 1, failure: Some("quota") };
/// assert!(started.failure.is_some());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Started<E> {
    /// How many calls succeeded.
    pub succeeded: usize,
    /// How many were made and failed.
    pub failed: usize,
    /// The first failure, by the number of its call; the calls after its batch were not made.
    pub failure: Option<E>,
}

/// Makes the calls `0..count`, `initial` of them at first, then twice as many at a time as before. The
/// calls of a batch run together; a batch with a failure is finished and is the last one.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// use setpoint::batch::slow_start;
/// let quota = 5;
/// let started = slow_start(100, 1, |call| async move { if call < quota { Ok(()) } else { Err("over quota") } }).await;
/// assert_eq!((started.succeeded, started.failure), (5, Some("over quota"))); // 7 calls, not 100
/// # });
/// ```
pub async fn slow_start<T, E, F>(count: usize, initial: usize, mut call: impl FnMut(usize) -> F) -> Started<E>
where
    F: Future<Output = Result<T, E>>,
{
    let mut succeeded = 0;
    let mut batch = count.min(initial.max(1));
    while batch > 0 {
        // Everything before this batch succeeded, or there would be no further batch.
        let results = join_all((succeeded..succeeded + batch).map(&mut call)).await;
        let failed = results.iter().filter(|result| result.is_err()).count();
        succeeded += batch - failed;
        if let Some(failure) = results.into_iter().find_map(Result::err) {
            return Started { succeeded, failed, failure: Some(failure) };
        }
        batch = (2 * batch).min(count - succeeded);
    }
    Started { succeeded, failed: 0, failure: None }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::future::ready;

    use super::*;

    /// With a server that takes `capacity` calls: which calls are made, and how many succeed.
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
