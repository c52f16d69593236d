//! Many calls in growing batches, so that a failure common to all of them is met once, not a
//! thousand times: a quota that is used up costs one refused call a try.

use futures::future::join_all;

/// How a slow start ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Started<E> {
    pub(crate) succeeded: usize,
    /// The first failure; the calls after its batch were not made.
    pub(crate) failure: Option<E>,
}

/// Makes `count` calls, 1 at first, then 2, 4, 8 at a time. A batch with a failure is the last one.
///
/// At most half of the calls, rounded up, are under way at once.
pub(crate) async fn slow_start<E, F>(count: usize, mut call: impl FnMut() -> F) -> Started<E>
where
    F: Future<Output = Result<(), E>>,
{
    let mut succeeded = 0;
    let mut batch = count.min(1);
    while batch > 0 {
        let results = join_all((0..batch).map(|_| call())).await;
        succeeded += results.iter().filter(|result| result.is_ok()).count();
        if let Some(failure) = results.into_iter().find_map(Result::err) {
            return Started { succeeded, failure: Some(failure) };
        }
        batch = (2 * batch).min(count - succeeded);
    }
    Started { succeeded, failure: None }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::future::ready;

    use super::*;

    /// With a server that takes `capacity` calls: how many calls are made, and what comes of them.
    #[track_caller]
    fn check(count: usize, capacity: usize, calls: usize, succeeded: usize) {
        let made = Cell::new(0);
        let started = futures::executor::block_on(slow_start(count, || {
            made.set(made.get() + 1);
            ready(if made.get() > capacity { Err("full") } else { Ok(()) })
        }));
        assert_eq!(made.get(), calls, "calls for {count} with room for {capacity}");
        let failure = (succeeded < count).then_some("full");
        assert_eq!(started, Started { succeeded, failure }, "{count} with room for {capacity}");
    }

    #[test]
    fn batches_double_and_end_with_the_first_failure() {
        check(0, 10, 0, 0);
        check(1, 10, 1, 1);
        check(10, 10, 10, 10);
        check(100, 100, 100, 100);
        check(10, 0, 1, 0);
        check(10, 2, 3, 2);
        check(200, 2, 3, 2);
        check(200, 6, 7, 6);
        check(200, 7, 15, 7);
    }
}
