//! An informer's task: source → reflector → deltas → indexer → handlers.

use std::pin::Pin;
use std::sync::Arc;

use tokio::time::Sleep;

use super::Inner;
use super::consistency::{Check, Verdict};
use super::registration::Registrations;
use crate::delta::{Delta, Deltas};
use crate::indexer::Change;
use crate::reflector::{Reflector, Step};
use crate::source::Source;
use crate::{Event, Key, Object, Runtime};

/// Readers wait while a round of changes is written. With an index that decodes each object in about 10 µs, and its
/// previous state too, 64 changes take at most 1.3 ms.
const ROUND: usize = 64;

pub(super) struct Pipeline {
    shared: Arc<Inner>,
    reflector: Reflector,
    deltas: Deltas,
    runtime: Runtime,
    resync: Option<Pin<Box<Sleep>>>,
    check: Check,
}

impl Pipeline {
    pub(super) fn new(shared: Arc<Inner>, source: Arc<dyn Source>, runtime: &Runtime) -> Self {
        let what = (shared.kind.clone(), shared.selection.clone());
        let within = shared.list_within;
        let check =
            Check::new(source.clone(), what.clone(), shared.indexer.clone(), shared.checked_every, within);
        let reflector = Reflector::new(source, what, runtime.clone(), within);
        let (deltas, runtime) = (Deltas::default(), runtime.clone());
        Self { shared, reflector, deltas, runtime, resync: None, check }
    }

    pub(super) async fn run(mut self) {
        self.schedule_resync();
        loop {
            self.replay_to_pending();
            let (shared, reflector, deltas) = (&self.shared, &mut self.reflector, &mut self.deltas);
            let next = async move {
                if !reflector.is_listing() {
                    shared.room().await;
                }
                reflector.next(deltas).await
            };
            tokio::select! {
                biased;
                () = self.shared.registrations.added() => {}
                () = due(&mut self.resync) => self.resync(),
                () = self.check.listed() => self.compare(),
                step = next => {
                    let busy = self.deltas.is_full();
                    self.process(step);
                    yield_to_others(busy).await;
                }
            }
        }
    }

    fn process(&mut self, step: Step) {
        let (arrived, count) = (self.runtime.clock.instant(), step.len(&self.deltas));
        self.shared.stats.lock().queued = count;
        self.apply(step);
        let mut stats = self.shared.stats.lock();
        stats.queued = 0;
        stats.undecodable = self.reflector.undecodable();
        stats.seconds.observe_times(self.runtime.clock.instant() - arrived, count as u64);
        drop(stats);
        self.compare();
    }

    /// Compares the cache with a list of the same version, if there is one.
    fn compare(&mut self) {
        if !self.reflector.is_at_its_revision() {
            return;
        }
        match self.check.verdict(self.reflector.revision()) {
            Verdict::Consistent => {}
            Verdict::Inconsistent(difference) => {
                tracing::error!(kind = %self.shared.kind, difference, "the cache differs from the API server: listing again");
                self.shared.stats.lock().inconsistencies += 1;
                self.reflector.relist();
            }
        }
    }

    fn apply(&mut self, step: Step) {
        match step {
            Step::ObjectList(objects) => return self.apply_part(objects),
            Step::Replaced { last, seen } => {
                self.apply_part(last);
                self.drop_unseen(seen);
            }
            Step::Changed => self.drain(),
        }
        let revision = self.reflector.revision();
        self.shared.progress.send_if_modified(|progress| {
            let before = (std::mem::replace(&mut progress.listed, true), progress.revision);
            progress.revision = revision;
            before != (true, revision)
        });
    }

    fn drain(&mut self) {
        let mut events = Vec::with_capacity(self.deltas.len().min(ROUND));
        while self.deltas.len() > 0 {
            let mut change = self.shared.indexer.change();
            for delta in std::iter::from_fn(|| self.deltas.pop()).take(ROUND) {
                match delta {
                    Delta::Upserted(object) => self.shared.upsert(&mut change, object, false, &mut events),
                    Delta::Deleted(object) => delete(&mut change, object, &mut events),
                }
            }
            drop(change);
            self.notify(&mut events);
        }
    }

    /// Applies a part of a list to the cache in place. Each object is dropped as its successor arrives, so even if
    /// everything has changed, there are never two copies of everything.
    fn apply_part(&mut self, mut listed: Vec<Object>) {
        listed.sort_by(|a, b| a.key().cmp(b.key()));
        let initial = !self.shared.progress.borrow().listed;
        let mut events = Vec::with_capacity(listed.len().min(ROUND));
        let mut listed = listed.into_iter();
        while listed.len() > 0 {
            let mut change = self.shared.indexer.change();
            for object in listed.by_ref().take(ROUND) {
                self.shared.upsert(&mut change, object, initial, &mut events);
            }
            drop(change);
            self.notify(&mut events);
        }
    }

    /// Removes the objects that were not in the complete list.
    fn drop_unseen(&mut self, mut seen: Vec<Key>) {
        seen.sort();
        seen.dedup();
        let mut gone = self.shared.indexer.without(&seen).into_iter();
        let mut events = Vec::with_capacity(gone.len().min(ROUND));
        while gone.len() > 0 {
            let mut change = self.shared.indexer.change();
            for object in gone.by_ref().take(ROUND) {
                change.remove(object.key());
                events.push(Event::Deleted { last: object, missed: true });
            }
            drop(change);
            self.notify(&mut events);
        }
    }

    fn notify(&self, events: &mut Vec<Event>) {
        let handlers = self.shared.registrations.active();
        events.drain(..).for_each(|event| Registrations::notify(&handlers, &event));
    }

    /// Replays the cache to the handlers that were added since. No change can come in between, because this task makes
    /// the changes.
    fn replay_to_pending(&self) {
        for handler in self.shared.registrations.pending() {
            for object in self.shared.indexer.list(None) {
                handler.handle(&Event::Added { object, initial: true });
            }
            self.shared.activate(&handler);
        }
    }

    fn resync(&mut self) {
        let handlers = self.shared.registrations.active();
        for object in self.shared.indexer.list(None) {
            Registrations::notify(&handlers, &Event::Updated { old: object.clone(), new: object });
        }
        self.schedule_resync();
    }

    fn schedule_resync(&mut self) {
        self.resync = self.shared.resync.map(|period| {
            let stretched = period.mul_f64(1.0 + self.runtime.rng.fraction());
            Box::pin(tokio::time::sleep(stretched))
        });
    }
}

impl Inner {
    fn upsert(&self, change: &mut Change<'_>, object: Object, initial: bool, events: &mut Vec<Event>) {
        let known = change.get(object.key());
        if known.is_some_and(|known| known.same_version(&object)) {
            return; // repeated by the watch
        }
        let mut object = match &self.transform {
            Some(transform) => transform(object),
            None => object,
        };
        if let Some(alike) = known.or_else(|| change.neighbour(object.key())) {
            object.share(alike);
        }
        match change.upsert(object.clone()) {
            Some(old) if old.meta().uid == object.meta().uid => {
                events.push(Event::Updated { old, new: object })
            }
            Some(replaced) => {
                events.push(Event::Deleted { last: replaced, missed: true });
                events.push(Event::Added { object, initial: false });
            }
            None => events.push(Event::Added { object, initial }),
        }
    }
}

fn delete(change: &mut Change<'_>, last: Object, events: &mut Vec<Event>) {
    let Some(known) = change.remove(last.key()) else { return };
    let missed = known.meta().uid != last.meta().uid;
    // A delete of an object that was never seen: the known object of this name was deleted before it.
    let last = if missed { known } else { last };
    events.push(Event::Deleted { last, missed });
}

async fn due(timer: &mut Option<Pin<Box<Sleep>>>) {
    match timer {
        Some(timer) => timer.await,
        None => std::future::pending().await,
    }
}

/// Yields to other tasks of this thread: immediately after a lot of work, otherwise occasionally.
async fn yield_to_others(busy: bool) {
    if busy {
        tokio::task::yield_now().await;
    } else {
        tokio::task::coop::consume_budget().await;
    }
}
