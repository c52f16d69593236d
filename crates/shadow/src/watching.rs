//! Compares the events that informers receive, and keeps them in order.
//!
//! Watches of different kinds are not ordered, and a controller that saw an effect before its cause would undo it. So
//! events are forwarded in the order of their versions across watches, as far as some of them wait:
//! - A live write waits a moment after the events that may have caused it.
//! - A live write without an intention waits for one until its head start is over.
//!
//! Invariant: every event is forwarded within one head start of its arrival.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::{BoxStream, StreamExt};
use parking_lot::Mutex;
use serde_json::Value;
use setpoint::source::{KubeSource, ObjectList, Selection, Source, WatchItem};
use setpoint::{ClientError, Instant, Kind, Object};

use crate::Shadow;
use crate::family::Family;
use crate::ledger::is_exempt;
use crate::observed::{Attributed, LiveCreate, LiveWrite};
use crate::order::Ticket;
use crate::target::{ObjectId, Resource, Target};

/// The maximum number of held events of a watch. Later ones wait at the API server. At 4 KB each that is 2 MB.
const MAX_HELD: usize = 512;

/// How much later a live write is forwarded than events of other kinds that may have caused it: time for them to reach
/// the caches.
const AFTER_CAUSES: Duration = Duration::from_millis(20);

/// The kinds and selections that have been listed before.
type ListedBefore = BTreeSet<(Resource, Selection)>;

pub(crate) struct Watching {
    shadow: Shadow,
    lists: KubeSource,
    /// Its objects have managed fields.
    watches: KubeSource,
    listed: Mutex<ListedBefore>,
}

/// A live write, and what else it waits for.
enum HeldWrite {
    Explained,
    Change(ObjectId),
    Creation(Family, Box<str>),
}

/// An event to be forwarded.
struct EventInTransit {
    held: Option<HeldWrite>,
    place: Ticket,
    deadline: Instant,
}

impl Watching {
    pub(crate) fn new(shadow: Shadow, lists: KubeSource, watches: KubeSource) -> Self {
        Self { shadow, lists, watches, listed: Mutex::new(BTreeSet::new()) }
    }

    /// Records a list. An object that only the second list shows was created in between. A list of metadata may be
    /// ahead of the watch of whole objects, so it does not count.
    fn note(&self, kind: &Kind, selection: &Selection, listed: &ObjectList) {
        if selection.metadata_only {
            return;
        }
        let is_first = self.listed.lock().insert((Resource::of(kind), selection.clone()));
        for object in &listed.objects {
            if !is_first {
                self.shadow.compare(kind, object);
            }
            let is_new = self.shadow.lock().observed.learn(object.meta());
            if is_new && !is_first {
                self.shadow.match_creation(kind, object);
            }
        }
    }
}

impl Source for Watching {
    fn list<'a>(
        &'a self,
        kind: &'a Kind,
        selection: &'a Selection,
    ) -> BoxFuture<'a, Result<ObjectList, ClientError>> {
        Box::pin(async move {
            let listed = self.lists.list(kind, selection).await?;
            self.note(kind, selection, &listed);
            Ok(listed)
        })
    }

    fn watch<'a>(
        &'a self,
        kind: &'a Kind,
        selection: &'a Selection,
        resource_version: &'a str,
    ) -> BoxFuture<'a, Result<BoxStream<'static, Result<WatchItem, ClientError>>, ClientError>> {
        Box::pin(async move {
            let items = self.watches.watch(kind, selection, resource_version).await?;
            let (shadow, kind, whole) = (self.shadow.clone(), kind.clone(), !selection.metadata_only);
            let handed_on = move |item: Result<WatchItem, ClientError>| {
                let (shadow, seen) =
                    (shadow.clone(), item.map(|item| shadow.handle_event(&kind, whole, item)));
                async move {
                    let (item, passing) = seen?;
                    if let Some(passing) = passing {
                        shadow.pass(passing).await;
                    }
                    shadow.forward(&item);
                    Ok(item)
                }
            };
            Ok(items.map(handed_on).buffered(MAX_HELD).boxed())
        })
    }
}

impl Shadow {
    /// Compares an event with the intentions. Returns what the event has to wait for.
    fn handle_event(&self, kind: &Kind, whole: bool, item: WatchItem) -> (WatchItem, Option<EventInTransit>) {
        let (item, held, revision) = match item {
            WatchItem::Added(object) => {
                let (held, revision) = (self.observe(kind, whole, &object), object.meta().revision());
                (WatchItem::Added(stripped(object)), held, revision)
            }
            WatchItem::Modified(object) => {
                let (held, revision) = (self.observe(kind, whole, &object), object.meta().revision());
                (WatchItem::Modified(stripped(object)), held, revision)
            }
            WatchItem::Deleted(object) => {
                if whole {
                    self.observe_deletion(kind, &object);
                    self.observe_gone(kind, &object);
                }
                let revision = object.meta().revision();
                (WatchItem::Deleted(stripped(object)), None, revision)
            }
            other => return (other, None),
        };
        let deadline = self.instant() + self.config().head_start;
        let place = self.order().enter(Resource::of(kind), revision, held.is_some());
        (item, Some(EventInTransit { held, place, deadline }))
    }

    fn observe(&self, kind: &Kind, whole: bool, object: &Object) -> Option<HeldWrite> {
        if !whole {
            return None;
        }
        if object.meta().is_being_deleted() {
            self.observe_deletion(kind, object);
        }
        self.compare(kind, object);
        if is_exempt(&Resource::of(kind)) {
            return None;
        }
        let attributed = self.lock().observed.attribute(object, &self.config().manager);
        match attributed {
            Attributed::No => None,
            Attributed::Perhaps => Some(HeldWrite::Explained),
            Attributed::Creation => self.observe_creation(kind, object),
            Attributed::Change { subresource } => self.observe_write(kind, object, false, subresource),
        }
    }

    /// Decides on the pending intentions for an object.
    fn compare(&self, kind: &Kind, object: &Object) {
        let id = id(kind, object);
        let mut ledger = self.lock();
        if ledger.awaits(&id)
            && let Ok(live) = serde_json::from_slice(object.raw())
        {
            ledger.observe(&id, &live);
        }
    }

    fn observe_gone(&self, kind: &Kind, object: &Object) {
        let mut ledger = self.lock();
        ledger.observed.gone(object.meta());
        ledger.observe_gone(&id(kind, object));
    }

    fn observe_deletion(&self, kind: &Kind, object: &Object) {
        let (meta, now, mut ledger) = (object.meta(), self.instant(), self.lock());
        if let Some(owner) = meta.controller()
            && ledger.observed.marks_deletion(meta)
        {
            ledger.observe_deletion(&id(kind, object), &owner.uid, now);
        }
    }

    fn observe_creation(&self, kind: &Kind, object: &Object) -> Option<HeldWrite> {
        let Some((family, live)) = family(kind, object) else {
            return self.observe_write(kind, object, true, None);
        };
        let is_claimed = self.lock().observe_created(&family, &live);
        if is_claimed && !family.is_unique() {
            return Some(HeldWrite::Explained);
        }
        let create = LiveCreate::new(object, live, is_claimed, self.instant(), self.now());
        self.lock().observed.created(family.clone(), create);
        Some(HeldWrite::Creation(family, object.meta().uid.clone()))
    }

    /// Decides on a pending intention if an object with a generated name matches it.
    fn match_creation(&self, kind: &Kind, object: &Object) {
        if let Some((family, live)) = family(kind, object) {
            self.lock().observe_created(&family, &live);
        }
    }

    fn observe_write(
        &self,
        kind: &Kind,
        object: &Object,
        is_creation: bool,
        subresource: Option<String>,
    ) -> Option<HeldWrite> {
        let (id, at, time) = (id(kind, object), self.instant(), self.now());
        let mut ledger = self.lock();
        if ledger.is_touched(&id, at) {
            return Some(HeldWrite::Explained);
        }
        ledger.observed.changed(id.clone(), LiveWrite { is_creation, subresource, at, time });
        Some(HeldWrite::Change(id))
    }

    /// Records that the controllers of an object and of its owner are about to reconcile them again.
    fn forward(&self, item: &WatchItem) {
        let (WatchItem::Added(object) | WatchItem::Modified(object) | WatchItem::Deleted(object)) = item
        else {
            return;
        };
        let (now, meta) = (self.instant(), object.meta());
        let mut ledger = self.lock();
        ledger.challenge(&meta.uid, now);
        if let Some(owner) = meta.controller() {
            ledger.challenge(&owner.uid, now);
        }
    }

    /// Waits for the turn of an event, but not beyond its deadline.
    async fn pass(&self, EventInTransit { held, place, deadline }: EventInTransit) {
        self.wait_until(deadline, || place.is_first()).await;
        let Some(held) = held else { return };
        while let Some(turn) = place.after_others(AFTER_CAUSES).map(|turn| turn.min(deadline))
            && turn > self.instant()
        {
            self.sleep(turn.saturating_duration_since(self.instant())).await;
        }
        let is_explained = || {
            let ledger = self.lock();
            match &held {
                HeldWrite::Explained => true,
                HeldWrite::Change(id) => !ledger.observed.is_unexplained(id),
                HeldWrite::Creation(family, uid) => !ledger.observed.is_unclaimed(family, uid),
            }
        };
        self.wait_until(deadline, is_explained).await;
    }

    async fn wait_until(&self, deadline: Instant, holds: impl Fn() -> bool) {
        loop {
            let changed = self.changed().notified();
            let left = deadline.saturating_duration_since(self.instant());
            if left.is_zero() || holds() {
                return;
            }
            tokio::select! {
                () = changed => {}
                () = self.sleep(left) => {}
            }
        }
    }
}

/// Returns the object as caches store it.
fn stripped(object: Object) -> Object {
    Object::stripped(object.raw()).unwrap_or(object)
}

fn family(kind: &Kind, object: &Object) -> Option<(Family, Value)> {
    let live: Value = serde_json::from_slice(object.raw()).ok()?;
    Family::of(&Target::of(kind, object.key()), &live)
}

fn id(kind: &Kind, object: &Object) -> ObjectId {
    let key = object.key();
    let namespace = key.namespace().map(str::to_owned);
    ObjectId { resource: Resource::of(kind), namespace, name: key.name().to_owned() }
}
