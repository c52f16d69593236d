//! The handlers of an informer.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::Inner;
use crate::Event;
use crate::handler::Handler;

/// Handlers that get every change, and handlers that first have to get the contents of the cache.
#[derive(Default)]
pub(super) struct Registrations {
    handlers: Mutex<Handlers>,
    /// A handler waits for the contents of the cache.
    added: Notify,
}

#[derive(Default)]
struct Handlers {
    /// Replaced as a whole, so that notifying handlers holds no lock.
    active: Arc<[Arc<dyn Handler>]>,
    pending: Vec<Arc<dyn Handler>>,
}

/// A handler's registration with an informer. Dropping it does not remove the handler.
///
/// ```no_run
/// # fn example(pods: setpoint::Informer) {
/// let registration = pods.add_handler(|event: &setpoint::Event| println!("{event:?}"));
/// registration.remove();
/// # }
/// ```
pub struct Registration {
    informer: Weak<Inner>,
    handler: Arc<dyn Handler>,
}

impl Registrations {
    /// Returns the handlers that get every change.
    pub(super) fn active(&self) -> Arc<[Arc<dyn Handler>]> {
        self.handlers.lock().active.clone()
    }

    /// Returns the handlers that wait for the contents of the cache.
    pub(super) fn pending(&self) -> Vec<Arc<dyn Handler>> {
        self.handlers.lock().pending.clone()
    }

    pub(super) fn is_empty(&self) -> bool {
        let handlers = self.handlers.lock();
        handlers.active.is_empty() && handlers.pending.is_empty()
    }

    /// Waits until there may be a pending handler.
    pub(super) async fn added(&self) {
        self.added.notified().await;
    }

    /// Passes an event to all handlers that have not been removed in the meantime.
    pub(super) fn notify(handlers: &[Arc<dyn Handler>], event: &Event) {
        handlers.iter().for_each(|handler| handler.handle(event));
    }
}

impl Inner {
    /// Marks that `handler` has received the contents of the cache. From now on it gets every change.
    pub(super) fn activate(&self, handler: &Arc<dyn Handler>) {
        self.change_handlers(|handlers| {
            let Some(at) = handlers.pending.iter().position(|pending| Arc::ptr_eq(pending, handler)) else {
                return;
            };
            let active = handlers.pending.remove(at);
            handlers.active = handlers.active.iter().cloned().chain([active]).collect();
        });
    }

    fn change_handlers(&self, change: impl FnOnce(&mut Handlers)) {
        let mut handlers = self.registrations.handlers.lock();
        change(&mut handlers);
        let pending = handlers.pending.len();
        self.progress
            .send_if_modified(|progress| std::mem::replace(&mut progress.pending, pending) != pending);
    }
}

impl Registration {
    pub(super) fn new(informer: &Arc<Inner>, mut handler: impl Handler) -> Self {
        handler.informs_of(&informer.kind);
        let handler: Arc<dyn Handler> = Arc::new(handler);
        informer.change_handlers(|handlers| handlers.pending.push(handler.clone()));
        informer.registrations.added.notify_one();
        Self { informer: Arc::downgrade(informer), handler }
    }

    /// Removes the handler. A round of events in progress may still reach it.
    pub fn remove(self) {
        let Some(informer) = self.informer.upgrade() else { return };
        let others = |handler: &Arc<dyn Handler>| !Arc::ptr_eq(handler, &self.handler);
        informer.change_handlers(|handlers| {
            handlers.pending.retain(others);
            handlers.active = handlers.active.iter().filter(|handler| others(handler)).cloned().collect();
        });
    }
}
