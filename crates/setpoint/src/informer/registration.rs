//! The handlers of an informer.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::Shared;
use crate::Event;
use crate::handler::Handler;

/// Handlers told of every change, and those that first have to be told of what is there.
#[derive(Default)]
pub(super) struct Registrations {
    handlers: Mutex<Handlers>,
    /// A handler waits to be told.
    added: Notify,
}

#[derive(Default)]
struct Handlers {
    /// Replaced as a whole, so that a round of telling holds no lock.
    told: Arc<[Arc<dyn Handler>]>,
    untold: Vec<Arc<dyn Handler>>,
}

/// A handler's place with an informer. The handler stays when this is dropped.
///
/// ```no_run
/// # fn example(pods: setpoint::Informer) {
/// let registration = pods.add_handler(|event: &setpoint::Event| println!("{event:?}"));
/// registration.remove();
/// # }
/// ```
pub struct Registration {
    informer: Weak<Shared>,
    handler: Arc<dyn Handler>,
}

impl Registrations {
    /// The handlers to tell of a change.
    pub(super) fn told(&self) -> Arc<[Arc<dyn Handler>]> {
        self.handlers.lock().told.clone()
    }

    /// The handlers that have to be told of what is there.
    pub(super) fn untold(&self) -> Vec<Arc<dyn Handler>> {
        self.handlers.lock().untold.clone()
    }

    pub(super) fn is_empty(&self) -> bool {
        let handlers = self.handlers.lock();
        handlers.told.is_empty() && handlers.untold.is_empty()
    }

    /// Waits until there may be one of those.
    pub(super) async fn added(&self) {
        self.added.notified().await;
    }

    /// Hands an event to handlers that have not been removed in the meantime.
    pub(super) fn tell(handlers: &[Arc<dyn Handler>], event: &Event) {
        handlers.iter().for_each(|handler| handler.handle(event));
    }
}

impl Shared {
    /// `handler` has been told of what is there: from now on it is told of every change.
    pub(super) fn has_been_told(&self, handler: &Arc<dyn Handler>) {
        self.change_handlers(|handlers| {
            let Some(at) = handlers.untold.iter().position(|untold| Arc::ptr_eq(untold, handler)) else {
                return;
            };
            let told = handlers.untold.remove(at);
            handlers.told = handlers.told.iter().cloned().chain([told]).collect();
        });
    }

    fn change_handlers(&self, change: impl FnOnce(&mut Handlers)) {
        let mut handlers = self.registrations.handlers.lock();
        change(&mut handlers);
        let untold = handlers.untold.len();
        self.progress.send_if_modified(|progress| std::mem::replace(&mut progress.untold, untold) != untold);
    }
}

impl Registration {
    pub(super) fn new(informer: &Arc<Shared>, mut handler: impl Handler) -> Self {
        handler.informs_of(&informer.kind);
        let handler: Arc<dyn Handler> = Arc::new(handler);
        informer.change_handlers(|handlers| handlers.untold.push(handler.clone()));
        informer.registrations.added.notify_one();
        Self { informer: Arc::downgrade(informer), handler }
    }

    /// Removes the handler. A round of events that is under way may still reach it.
    pub fn remove(self) {
        let Some(informer) = self.informer.upgrade() else { return };
        let others = |handler: &Arc<dyn Handler>| !Arc::ptr_eq(handler, &self.handler);
        informer.change_handlers(|handlers| {
            handlers.untold.retain(others);
            handlers.told = handlers.told.iter().filter(|handler| others(handler)).cloned().collect();
        });
    }
}
