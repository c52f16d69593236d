//! The parts that most controllers are made of, as Kubernetes' own controllers have them: a queue whose retries are
//! fast at first and limited over all keys, and a loop that waits for its caches and never gives a key up.

use std::sync::Arc;

use setpoint::queue::limiter;
use setpoint::reconcile::WorkKey;
use setpoint::{Context, Controller, Event, Informer, Queue, Reconciler};

use crate::registry::{Entry, Options};

/// A queue with client-go's default rate limiter.
pub(crate) fn queue<K: WorkKey>(context: &Context, name: &'static str) -> Queue<K> {
    Queue::with_rate_limiter(name, &context.runtime, limiter::eager(&context.runtime.clock))
}

/// The main loop of a controller, with the workers that it is configured to have.
pub(crate) fn controller<'a, K: WorkKey>(
    entry: &Entry,
    options: &Options,
    queue: Queue<K>,
    reconciler: impl Reconciler<Key = K>,
    caches: impl IntoIterator<Item = &'a Informer>,
) -> Controller<K> {
    part(entry.name, queue, reconciler, caches).workers(options.workers(entry))
}

/// A loop of a controller that has several, with one worker unless it is given more.
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
