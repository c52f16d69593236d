//! Admission reviews of Applications, on dedicated threads: they evaluate templates, which must not block the threads
//! that serve requests.

use std::num::NonZero;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};
use setpoint_oam::admission::Admission;
use tokio::sync::Semaphore;

/// The maximum number of waiting reviews. With at most 8 MiB each, they take 512 MiB; the API server's timeout is five
/// seconds.
const MAX_WAITING: usize = 64;

/// Responds to a review, unless it is cancelled.
type Review = dyn Fn(&Value, &dyn Fn() -> bool) -> Value + Send + Sync;

/// Reviews Applications, on half of the cores. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Reviews {
    review: Arc<Review>,
    threads: Arc<Semaphore>,
    places: Arc<Semaphore>,
}

/// Cancels a review when its caller has timed out.
struct Abandons(Arc<AtomicBool>);

impl Drop for Abandons {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Reviews {
    pub(crate) fn new(admission: Admission) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
        let review =
            move |review: &Value, is_wanted: &dyn Fn() -> bool| admission.review_while(review, is_wanted);
        Self::on_threads((cores / 2).max(1), Arc::new(review))
    }

    fn on_threads(threads: usize, review: Arc<Review>) -> Self {
        let places = Arc::new(Semaphore::new(threads + MAX_WAITING));
        Self { review, threads: Arc::new(Semaphore::new(threads)), places }
    }

    /// Responds to an AdmissionReview. Rejects it if too many are waiting.
    #[allow(clippy::disallowed_methods, reason = "simulations review inline, without this")]
    pub(crate) async fn review(&self, review: Value) -> Value {
        let uid = review["request"]["uid"].clone();
        let Ok(_place) = self.places.try_acquire() else {
            return refusal(&uid, "too many Applications are being checked, try again");
        };
        let Ok(thread) = self.threads.clone().acquire_owned().await else {
            return refusal(&uid, "the server is shutting down");
        };
        let abandoned = Arc::new(AtomicBool::new(false));
        let _abandons = Abandons(abandoned.clone());
        let answer = self.review.clone();
        let answering = tokio::task::spawn_blocking(move || {
            let answer = answer(&review, &|| !abandoned.load(Ordering::Relaxed));
            // The thread is free when the review has ended, not when its caller has timed out.
            drop(thread);
            answer
        });
        answering.await.unwrap_or_else(|_| refusal(&uid, "the check of the Application failed"))
    }
}

/// Rejects a review temporarily.
fn refusal(uid: &Value, why: &str) -> Value {
    let status = json!({"code": 429, "reason": "TooManyRequests", "message": why});
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "response": {"uid": uid, "allowed": false, "status": status}})
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use futures::future::join_all;
    use parking_lot::{Condvar, Mutex};

    use super::*;

    /// Reviews that end when the gate opens.
    fn gated(threads: usize) -> (Reviews, Arc<(Mutex<bool>, Condvar)>) {
        let gate: Arc<(Mutex<bool>, Condvar)> = Arc::default();
        let held = gate.clone();
        let review = move |review: &Value, _: &dyn Fn() -> bool| {
            let (open, changed) = &*held;
            changed.wait_while(&mut open.lock(), |open| !*open);
            review.clone()
        };
        (Reviews::on_threads(threads, Arc::new(review)), gate)
    }

    fn open(gate: &(Mutex<bool>, Condvar)) {
        *gate.0.lock() = true;
        gate.1.notify_all();
    }

    /// The runtime of this test has one thread.
    #[tokio::test]
    async fn a_review_does_not_block_the_thread_that_serves() {
        let (reviews, gate) = gated(1);
        let mut first = Box::pin(reviews.review(json!({"n": 1})));
        assert!(first.as_mut().now_or_never().is_none());
        open(&gate);
        assert_eq!(first.await, json!({"n": 1}));
    }

    #[tokio::test]
    async fn too_many_reviews_are_refused() {
        let (reviews, gate) = gated(1);
        let mut waiting: Vec<_> =
            (0..=MAX_WAITING).map(|n| Box::pin(reviews.review(json!({"n": n})))).collect();
        assert!(waiting.iter_mut().all(|one| one.as_mut().now_or_never().is_none()));
        let refused = reviews.review(json!({"request": {"uid": "7"}})).await;
        assert_eq!(refused["response"]["status"]["code"], 429);
        assert_eq!(
            (&refused["response"]["uid"], &refused["response"]["allowed"]),
            (&json!("7"), &json!(false))
        );
        open(&gate);
        assert_eq!(join_all(waiting).await.len(), MAX_WAITING + 1);
    }

    #[tokio::test]
    async fn a_review_whose_caller_has_given_up_frees_its_thread() {
        let review = |review: &Value, is_wanted: &dyn Fn() -> bool| {
            while review["endless"] == true && is_wanted() {
                std::thread::yield_now();
            }
            review.clone()
        };
        let reviews = Reviews::on_threads(1, Arc::new(review));
        assert!(reviews.review(json!({"endless": true})).now_or_never().is_none());
        assert_eq!(reviews.review(json!({})).await, json!({}));
    }

    #[tokio::test]
    async fn a_review_that_panics_is_refused() {
        let reviews = Reviews::on_threads(1, Arc::new(|_: &Value, _: &dyn Fn() -> bool| panic!("a bug")));
        let refused = reviews.review(json!({"request": {"uid": "7"}})).await;
        assert_eq!(refused["response"]["allowed"], false);
        assert_eq!(reviews.review(json!({})).await["response"]["allowed"], false, "the thread is free again");
    }
}
