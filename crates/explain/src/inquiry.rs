//! An explanation in progress: reads from the snapshot, explains objects, and follows references to others.
//!
//! Invariants:
//! - It terminates: an object is not explained again below itself, and the depth is bounded.
//! - Equal objects are explained once and counted.

use std::cell::{OnceCell, RefCell};
use std::collections::BTreeMap;

use jiff::Timestamp;
use setpoint_scheduler::Assessor;

use crate::kinds::GroupKind;
use crate::model::{Evidence, Node, ObjectRef, Source};
use crate::read::Read;
use crate::snapshot::{Event, Item, Lookup, Snapshot};
use crate::text::{count, since};
use crate::{controllers, deletion, registry};

/// How deep references are followed: Application → Deployment → ReplicaSet → Pod → claim → volume → node, and one more.
const MAX_DEPTH: usize = 8;

/// How many different states of dependents are explained. The others are counted.
pub(crate) const MAX_GROUPS: usize = 8;

/// An explanation in progress.
pub struct Inquiry<'a> {
    pub snapshot: &'a Snapshot,
    pub now: Timestamp,
    /// The objects that are being explained.
    path: RefCell<Vec<String>>,
    /// How many objects have been explained.
    explained: RefCell<usize>,
    pub(crate) assessor: OnceCell<Option<Assessor>>,
}

/// The maximum number of explained objects. Groups and depth allow 8^8; a readable explanation has a few dozen.
const MAX_EXPLAINED: usize = 200;

impl<'a> Inquiry<'a> {
    pub fn new(snapshot: &'a Snapshot, now: Timestamp) -> Self {
        Self {
            snapshot,
            now,
            path: RefCell::default(),
            explained: RefCell::default(),
            assessor: OnceCell::new(),
        }
    }

    /// Explains an object.
    pub fn explain(&self, item: &'a Item) -> Node {
        let depth = self.path.borrow().len();
        *self.explained.borrow_mut() += 1;
        if depth >= MAX_DEPTH || *self.explained.borrow() > MAX_EXPLAINED {
            return node_of(item).unknown("not followed further");
        }
        if self.is_on_path(item) {
            return node_of(item).unknown("explained above");
        }
        self.path.borrow_mut().push(id(item));
        let node = match item.object.meta().is_being_deleted() {
            true => deletion::explain(self, item),
            false => registry::explain(self, item),
        };
        self.path.borrow_mut().pop();
        let node = if depth == 0 { self.with_missing_owners(item, node) } else { node };
        controllers::add(self, item, node)
    }

    /// Whether an object is being explained right now.
    fn is_on_path(&self, item: &Item) -> bool {
        self.path.borrow().contains(&id(item))
    }

    /// Explains an object if it exists and can be read.
    pub fn explain_named(&self, kind: &GroupKind, namespace: Option<&str>, name: &str) -> Option<Node> {
        Some(self.explain(self.get(kind, namespace, name).found()?))
    }

    /// Explains the first object of each group. Objects with the same fingerprint are a group; the largest groups come
    /// first.
    pub fn explain_groups(&self, items: &[&'a Item], fingerprint: impl Fn(&Item) -> String) -> Vec<Node> {
        let mut groups: BTreeMap<String, Vec<&'a Item>> = BTreeMap::new();
        for item in items.iter().filter(|item| !self.is_on_path(item)) {
            groups.entry(fingerprint(item)).or_default().push(item);
        }
        let mut groups: Vec<Vec<&'a Item>> = groups.into_values().collect();
        groups.sort_by_key(|group| (std::cmp::Reverse(group.len()), group[0].name().to_owned()));
        let explain = |group: &Vec<&'a Item>| Node { more: group.len() - 1, ..self.explain(group[0]) };
        groups.iter().take(MAX_GROUPS).map(explain).collect()
    }

    pub fn get(&self, kind: &GroupKind, namespace: Option<&str>, name: &str) -> Lookup<'a> {
        self.snapshot.get(kind, namespace, name)
    }

    pub fn list(&self, kind: &GroupKind, namespace: Option<&str>) -> Vec<&'a Item> {
        self.snapshot.list(kind, namespace).unwrap_or_default()
    }

    pub fn owned(&self, owner: &Item, kind: &GroupKind) -> Vec<&'a Item> {
        self.snapshot.owned(owner, kind).unwrap_or_default()
    }

    /// Returns the events about an object, the latest first.
    pub fn events(&self, item: &Item) -> Vec<Event<'a>> {
        self.snapshot.events(&item.kind, item.namespace(), item.name(), item.uid())
    }

    /// Returns the latest event with one of these reasons.
    pub fn event(&self, item: &Item, reasons: &[&str]) -> Option<Event<'a>> {
        self.events(item).into_iter().find(|event| reasons.contains(&event.reason()))
    }

    /// Returns the seconds since an object was created.
    pub fn age(&self, item: &Item) -> i64 {
        let created = item.object.meta().creation_timestamp;
        created.map_or(0, |created| self.now.duration_since(created).as_secs())
    }

    /// Returns the seconds since the spec of an object was written, according to its managed fields.
    pub fn age_of_spec(&self, item: &Item) -> i64 {
        let managed = item.items("/metadata/managedFields").iter();
        let written = managed.filter(|fields| fields.text("/subresource").is_empty());
        let latest = written.filter_map(|fields| fields.time("/time")).max();
        latest.map_or(i64::MAX, |time| self.now.duration_since(time).as_secs()).min(self.age(item))
    }

    /// Describes when an event was seen.
    pub fn evidence(&self, event: &Event<'_>) -> Evidence {
        let times = match event.times() {
            1 => String::new(),
            times => format!(" ×{times}"),
        };
        Evidence::new(Source::Event, &format!("{}{times}", event.reason()), event.message(), event.time())
    }

    /// Returns how long ago a time was.
    pub fn since(&self, then: Option<Timestamp>) -> String {
        then.map_or_else(|| "an unknown time".to_owned(), |then| since(then, self.now))
    }

    /// Adds the owners of an object that no longer exist: the garbage collector deletes it.
    fn with_missing_owners(&self, item: &'a Item, node: Node) -> Node {
        let mut node = node;
        for owner in item.object.meta().owner_references.iter() {
            let kind = GroupKind::of_reference(&owner.api_version, &owner.kind);
            let namespace = item.namespace().filter(|_| !self.snapshot.is_cluster_scoped(&kind));
            let found = self.get(&kind, namespace, &owner.name);
            let replaced = found.found().is_some_and(|found| found.uid() != &*owner.uid);
            if !found.is_missing() && !replaced {
                continue;
            }
            let why =
                if replaced { "was replaced by another object of that name" } else { "no longer exists" };
            let name = format!("{} {}", owner.kind, owner.name);
            let path = "metadata.ownerReferences";
            node = node.evidence([Evidence::field(path, format!("{name} (uid {}) {why}", owner.uid))]);
            node = match node.problem.is_some() {
                true => node,
                false => {
                    let text = format!("its owner {name} {why}, so the garbage collector deletes it");
                    let fix = "remove the owner reference to keep the object";
                    node.blocked(text, fix)
                }
            };
        }
        node
    }
}

fn id(item: &Item) -> String {
    format!("{} {} {}", item.kind, item.object.key(), item.uid())
}

/// Returns an empty node for an object.
pub fn node_of(item: &Item) -> Node {
    Node::new(reference(item))
}

/// Returns the name of an object.
pub fn reference(item: &Item) -> ObjectRef {
    ObjectRef::new(&item.kind, item.namespace(), item.name())
}

/// Whether the controller of an object has not seen its latest change: the observed and the current generation.
pub fn behind(item: &Item) -> Option<(i64, i64)> {
    let generation = item.number("/metadata/generation")?;
    let observed = item.number("/status/observedGeneration")?;
    (observed < generation).then_some((observed, generation))
}

/// Returns a string such as `2 of 3 pods are ready`.
pub fn share(some: usize, all: usize, thing: &str, how: &str) -> String {
    let verb = if all == 1 { "is" } else { "are" };
    format!("{some} of {} {verb} {how}", count(all, thing))
}
