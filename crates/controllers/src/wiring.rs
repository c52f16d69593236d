//! Parts that most controllers share, with client-go's behavior: a queue with per-key backoff and an overall rate
//! limit, and a loop that waits for its caches and retries forever.

use std::sync::Arc;

use setpoint::queue::limiter;
use setpoint::reconcile::WorkKey;
use setpoint::{Context, Controller, Event, Informer, Queue, Reconciler};

use crate::registry::{Entry, Options};

/// Creates a queue with client-go's default rate limiter.
pub(crate) fn queue<K: WorkKey>(context: &Context, name: &'static str) -> Queue<K> {
    Queue::with_rate_limiter(name, &context.runtime, limiter::kubernetes_limiter(&context.runtime.clock))
}

/// Builds a controller's main loop with its configured number of workers.
pub(crate) fn controller<'a, K: WorkKey>(
    entry: &Entry,
    options: &Options,
    queue: Queue<K>,
    reconciler: impl Reconciler<Key = K>,
    caches: impl IntoIterator<Item = &'a Informer>,
) -> Controller<K> {
    part(entry.name, queue, reconciler, caches).workers(options.workers(entry))
}

/// Builds one of several loops of a controller, with one worker by default.
pub(crate) fn part<'a, K: WorkKey>(
    name: &'static str,
    queue: Queue<K>,
    reconciler: impl Reconciler<Key = K>,
    caches: impl IntoIterator<Item = &'a Informer>,
) -> Controller<K> {
    let controller = Controller::new(name, queue, reconciler).persistent();
    caches.into_iter().fold(controller, Controller::waits_for)
}

/// Calls `changed` on `wake` for every event of an informer.
pub(crate) fn follow<W: Send + Sync + 'static>(informer: &Informer, wake: &Arc<W>, changed: fn(&W, &Event)) {
    let wake = wake.clone();
    informer.add_handler(move |event: &Event| changed(&wake, event));
}
