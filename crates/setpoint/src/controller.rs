//! A controller: a queue, its reconciler, its workers, and the caches it waits for.

use tokio_util::sync::CancellationToken;

use crate::informer::Informer;
use crate::queue::Queue;
use crate::reconcile::Reconciler;

/// Something a manager runs until it is told to stop.
pub trait Runnable: Send + 'static {
    fn name(&self) -> &str;

    /// Runs until `stop`, then finishes what is under way.
    fn run(self: Box<Self>, stop: CancellationToken) -> futures::future::BoxFuture<'static, ()>;
}

/// A queue of keys and the reconciler that works on them.
pub struct Controller<R: Reconciler> {
    #[allow(dead_code)]
    name: &'static str,
    #[allow(dead_code)]
    queue: Queue<R::Key>,
}

impl<R: Reconciler> Controller<R> {
    pub fn new(name: &'static str, queue: Queue<R::Key>, reconciler: R) -> Self {
        let _ = reconciler;
        Self { name, queue }
    }

    /// How many keys are worked on at once (default 1).
    pub fn workers(self, workers: usize) -> Self {
        let _ = workers;
        self
    }

    /// No key is worked on before this informer has synced.
    pub fn waits_for(self, informer: &Informer) -> Self {
        let _ = informer;
        self
    }
}

impl<R: Reconciler> Runnable for Controller<R> {
    fn name(&self) -> &str {
        self.name
    }

    fn run(self: Box<Self>, stop: CancellationToken) -> futures::future::BoxFuture<'static, ()> {
        let _ = stop;
        todo!()
    }
}
