//! Drops events for a reconcile's own writes, so that they do not enqueue the application.
//!
//! Deploying an application writes its status, its finalizer and its objects. Without this, every write would cause a
//! reconcile that finds nothing to do.
//!
//! Invariants:
//! - An event is dropped only if it shows a version that a reconcile of the same application has written, or an older
//!   one: that reconcile has already seen it.
//! - An event that arrives during a reconcile is judged when the reconcile ends, because the write may not be recorded
//!   yet.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use setpoint::{Event, Key, Object, Queue};

/// The maximum number of events of one application that wait for the end of its reconcile, and of writes that wait for
/// their events: about 6 kB each. Beyond this, there is an extra reconcile, which is harmless.
const WAITING: usize = 64;

/// The own writes of reconciles. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Echoes {
    queue: Queue<Key>,
    /// By application, while a reconcile is in progress or events are awaited.
    passes: Arc<Mutex<BTreeMap<Key, Pass>>>,
}

#[derive(Default)]
struct Pass {
    is_running: bool,
    /// The last version that was written of each object whose event has not arrived, by uid: at most [`WAITING`].
    written: BTreeMap<Box<str>, u64>,
    /// The events that arrived during the reconcile.
    arrived: Vec<(Box<str>, u64)>,
}

impl Pass {
    /// Returns whether an event shows an own write.
    fn is_own(&self, uid: &str, version: u64) -> bool {
        self.written.get(uid).is_some_and(|written| version <= *written)
    }

    /// Removes a write whose event has arrived.
    fn forget(&mut self, uid: &str, version: u64) {
        if self.written.get(uid).is_some_and(|written| *written <= version) {
            self.written.remove(uid);
        }
    }
}

/// A reconcile. It ends when this is dropped.
pub(crate) struct Running<'a> {
    echoes: &'a Echoes,
    key: &'a Key,
}

impl Echoes {
    /// Creates a record. Applications whose objects were changed by others are added to the queue.
    pub(crate) fn new(queue: Queue<Key>) -> Self {
        Self { queue, passes: Arc::default() }
    }

    /// Starts a reconcile of an application.
    pub(crate) fn begin<'a>(&'a self, key: &'a Key) -> Running<'a> {
        self.passes.lock().entry(key.clone()).or_default().is_running = true;
        Running { echoes: self, key }
    }

    /// Records a write of an application, from the object that the server has returned.
    pub(crate) fn wrote(&self, key: &Key, object: &Object) {
        if let Some(pass) = self.passes.lock().get_mut(key) {
            if pass.written.len() >= WAITING {
                pass.written.pop_first();
            }
            pass.written.insert(object.meta().uid.clone(), object.meta().revision());
        }
    }

    /// Returns whether an event is news for the application. A deferred event is not, for now.
    pub(crate) fn is_news(&self, key: &Key, event: &Event) -> bool {
        let (uid, version) = (&event.object().meta().uid, event.object().meta().revision());
        let mut passes = self.passes.lock();
        let Some(pass) = passes.get_mut(key) else { return true };
        if let Event::Deleted { .. } = event {
            pass.written.remove(uid);
            if !pass.is_running && pass.written.is_empty() {
                passes.remove(key);
            }
            return true;
        }
        if pass.is_own(uid, version) {
            pass.forget(uid, version);
            if !pass.is_running && pass.written.is_empty() {
                passes.remove(key);
            }
            return false;
        }
        if !pass.is_running || pass.arrived.len() >= WAITING {
            return true;
        }
        pass.arrived.push((uid.clone(), version));
        false
    }

    /// Removes an application that is gone: events of unwatched kinds never arrive.
    pub(crate) fn forget(&self, key: &Key) {
        self.passes.lock().remove(key);
    }

    fn end(&self, key: &Key) {
        let mut passes = self.passes.lock();
        let Some(pass) = passes.get_mut(key) else { return };
        let arrived = std::mem::take(&mut pass.arrived);
        let is_news = arrived.iter().any(|(uid, version)| !pass.is_own(uid, *version));
        arrived.iter().for_each(|(uid, version)| pass.forget(uid, *version));
        pass.is_running = false;
        if pass.written.is_empty() {
            passes.remove(key);
        }
        drop(passes);
        if is_news {
            self.queue.add(key.clone());
        }
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.echoes.end(self.key);
    }
}

#[cfg(test)]
mod tests {
    use setpoint::{Clock, Metadata, Rng, Runtime};

    use super::*;

    fn object(uid: &str, version: &str) -> Object {
        let meta = Metadata { uid: uid.into(), resource_version: version.into(), ..Metadata::default() };
        Object::with_metadata(meta, Default::default())
    }

    fn updated(uid: &str, version: &str) -> Event {
        Event::Updated { old: object(uid, "1"), new: object(uid, version) }
    }

    fn echoes() -> (Echoes, Queue<Key>, Key) {
        let clock = Clock::simulated("2025-01-01T00:00:00Z".parse().expect("a time"));
        let queue = Queue::new("apps", &Runtime { clock, rng: Rng::seeded(1) });
        (Echoes::new(queue.clone()), queue, Key::namespaced("shop", "web"))
    }

    #[tokio::test(start_paused = true)]
    async fn own_writes_wake_nobody_and_others_do() {
        let (echoes, queue, app) = echoes();
        let pass = echoes.begin(&app);
        echoes.wrote(&app, &object("a", "7"));
        assert!(!echoes.is_news(&app, &updated("a", "7")));
        // The event arrives before the response.
        assert!(!echoes.is_news(&app, &updated("b", "8")));
        echoes.wrote(&app, &object("b", "8"));
        echoes.wrote(&app, &object("c", "9"));
        drop(pass);
        assert!(queue.is_empty());
        assert!(!echoes.is_news(&app, &updated("c", "9")));
        assert!(echoes.is_news(&app, &updated("c", "10")) && echoes.is_news(&app, &updated("d", "11")));
        assert!(echoes.passes.lock().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_by_others_during_a_reconcile_is_not_lost() {
        let (echoes, queue, app) = echoes();
        let pass = echoes.begin(&app);
        echoes.wrote(&app, &object("a", "7"));
        assert!(!echoes.is_news(&app, &updated("a", "8")));
        assert!(echoes.is_news(&app, &Event::Deleted { last: object("a", "8"), missed: false }));
        assert!(queue.is_empty());
        drop(pass);
        assert_eq!(queue.len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_kept_of_an_application_that_is_gone() {
        let (echoes, _, app) = echoes();
        let pass = echoes.begin(&app);
        echoes.wrote(&app, &object("of a kind that is not watched", "7"));
        drop(pass);
        let pass = echoes.begin(&app);
        echoes.forget(&app);
        drop(pass);
        assert!(echoes.passes.lock().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn too_many_events_wake_at_once() {
        let (echoes, _, app) = echoes();
        let pass = echoes.begin(&app);
        let news = (0..=WAITING).map(|at| echoes.is_news(&app, &updated(&at.to_string(), "5")));
        assert_eq!(news.filter(|news| *news).count(), 1);
        drop(pass);
    }
}
