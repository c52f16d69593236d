//! The watches of a controller, and the parents that an event affects.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use setpoint::handler::{Handler, enqueue_mapped, predicate};
use setpoint::informer::Registration;
use setpoint::source::Selection;
use setpoint::{Event, Informer, Informers, Key, Kind, Object, OwnerRef, Queue};

use super::claim::{BY_OWNER, by_owner, selector_of};
use super::setup::{ParentKey, Setup, annotations};
use crate::names::{CONTROLLER_UID, revision_kind};
use crate::wire::Shape;

/// The informers of all controllers. Cheap to clone.
#[derive(Clone)]
pub(crate) struct SharedInformers {
    informers: Informers,
    /// Held while handlers are added or removed, so that none is added to an informer that is about to be removed.
    changing: Arc<Mutex<()>>,
}

impl SharedInformers {
    pub(crate) fn new(informers: Informers) -> Self {
        Self { informers, changing: Arc::default() }
    }

    pub(crate) fn all(&self) -> &Informers {
        &self.informers
    }

    /// Changes the watches.
    pub(crate) fn change<T>(&self, change: impl FnOnce(&Informers) -> T) -> T {
        let _changing = self.changing.lock();
        change(&self.informers)
    }

    /// Removes handlers, and informers that have no other.
    pub(crate) fn unfollow(&self, followed: impl IntoIterator<Item = (Informer, Registration)>) {
        self.change(|informers| {
            for (informer, registration) in followed {
                registration.remove();
                informers.remove_if_unused(&informer);
            }
        });
    }
}

/// The caches of a controller.
pub(crate) struct Watched {
    pub(crate) parents: BTreeMap<Kind, Informer>,
    pub(crate) children: BTreeMap<Kind, Informer>,
    /// Only if children are rolled out.
    pub(crate) revisions: Option<Informer>,
    /// The handlers to remove when the controller stops.
    pub(crate) followed: Vec<(Informer, Registration)>,
}

/// Watches the kinds of a controller. Events add parents to the queue.
pub(crate) fn watch(setup: &Arc<Setup>, informers: &SharedInformers, queue: &Queue<ParentKey>) -> Watched {
    informers.change(|informers| follow(setup, informers, queue))
}

fn follow(setup: &Arc<Setup>, informers: &Informers, queue: &Queue<ParentKey>) -> Watched {
    let all = |kind: &Kind| informers.select(kind, Selection::default());
    let parents: BTreeMap<Kind, Informer> =
        setup.parents.iter().map(|parent| (parent.kind.clone(), all(&parent.kind))).collect();
    let children: BTreeMap<Kind, Informer> =
        setup.children.iter().map(|child| (child.kind.clone(), all(&child.kind))).collect();
    let revisions = setup.is_rolling().then(|| all(&revision_kind()));
    children.values().chain(&revisions).for_each(|informer| informer.add_index(BY_OWNER, by_owner()));
    let mut followed = Vec::new();
    for (kind, informer) in &parents {
        followed.push((informer.clone(), informer.add_handler(of_parent(setup, kind, queue))));
    }
    let finder = Arc::new(Finder { setup: setup.clone(), parents: parents.clone() });
    for informer in children.values().chain(&revisions) {
        let finder = finder.clone();
        let handler = enqueue_mapped(queue, move |child: &Object| finder.parents_of(child));
        let registration = informer.add_handler(handler.when(predicate::version_changed()));
        followed.push((informer.clone(), registration));
    }
    Watched { parents, children, revisions, followed }
}

fn of_parent(setup: &Arc<Setup>, kind: &Kind, queue: &Queue<ParentKey>) -> impl Handler + use<> {
    let (selecting, of) = (setup.clone(), kind.clone());
    let map = move |parent: &Object| {
        let concerned = selecting.concerns(&of, parent);
        concerned.then(|| ParentKey { kind: of.clone(), key: parent.key().clone() })
    };
    let ignores_status = setup.parent_kind(kind).is_some_and(|parent| parent.ignores_status);
    enqueue_mapped(queue, map).when(move |event: &Event| !ignores_status || !is_about_status_only(event))
}

/// Whether an update changed neither generation, labels nor annotations. A resync is no update, and a deletion counts.
pub(crate) fn is_about_status_only(event: &Event) -> bool {
    let Event::Updated { old, new } = event else { return false };
    let (before, after) = (old.meta(), new.meta());
    !old.same_version(new)
        && before.generation == after.generation
        && before.labels == after.labels
        && !after.is_being_deleted()
        && annotations(old) == annotations(new)
}

/// Maps children to parents.
struct Finder {
    setup: Arc<Setup>,
    parents: BTreeMap<Kind, Informer>,
}

impl Finder {
    fn parents_of(&self, child: &Object) -> Vec<ParentKey> {
        match child.meta().controller() {
            Some(owner) => {
                let named = |kind: &&Kind| kind.kind() == &*owner.kind && kind.group() == owner.group();
                let kind = self.parents.keys().find(named);
                let found = kind.and_then(|kind| Some((kind, self.key_of(kind, owner, child.key())?)));
                found.map(|(kind, key)| ParentKey { kind: kind.clone(), key }).into_iter().collect()
            }
            None if self.setup.shape == Shape::Decorator || child.meta().is_being_deleted() => Vec::new(),
            None => self.possible_parents(child),
        }
    }

    /// Returns the key of the parent that owns a child. For a cluster-scoped child, the namespace is unknown.
    fn key_of(&self, kind: &Kind, owner: &OwnerRef, child: &Key) -> Option<Key> {
        match (kind.namespaced(), child.namespace()) {
            (false, _) => Some(Key::cluster(&*owner.name)),
            (true, Some(_)) => Some(child.sibling(&*owner.name)),
            (true, None) => {
                let mut parents = self.parents.get(kind)?.objects().list(None).into_iter();
                Some(parents.find(|parent| parent.meta().uid == owner.uid)?.key().clone())
            }
        }
    }

    /// Returns the parents that might adopt an orphan.
    fn possible_parents(&self, child: &Object) -> Vec<ParentKey> {
        let mut found = Vec::new();
        let owner = child.meta().label(CONTROLLER_UID);
        for (kind, informer) in &self.parents {
            let namespace = child.key().namespace().filter(|_| kind.namespaced());
            for parent in informer.objects().list(namespace) {
                let matches = || match self.setup.generate_selector {
                    true => owner == Some(&*parent.meta().uid),
                    false => selector_of(&parent, false)
                        .is_ok_and(|selector| selector.matches(&child.meta().labels)),
                };
                if self.setup.concerns(kind, &parent) && matches() {
                    found.push(ParentKey { kind: kind.clone(), key: parent.key().clone() });
                }
            }
        }
        found
    }
}
