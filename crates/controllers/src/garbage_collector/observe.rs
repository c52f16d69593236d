//! A snapshot of what the graph knows about an item.

use setpoint::{Kind, Object, OwnerRef};

use super::graph::{FOREGROUND, Graph, Node, ORPHAN, is_deleted_with};
use super::identity::Identity;
use super::plan::{Dependents, OwnerState};
use super::uid::Uid;

/// An item in the graph.
pub(super) enum Observed {
    /// Gone, without owners, or being deleted without waiting for dependents.
    Done,
    /// Only referenced.
    Virtual(Box<Identity>),
    /// In foreground deletion, waiting for its dependents.
    Waiting(Waiting),
    /// Alive, with owners.
    Owned(Owned),
}

pub(super) struct Waiting {
    pub(super) kind: Kind,
    pub(super) object: Object,
    /// Whether any dependent blocks it.
    pub(super) blocked: bool,
    /// Blocking dependents that are not being deleted yet.
    pub(super) untouched: Vec<Uid>,
}

pub(super) struct Owned {
    pub(super) kind: Kind,
    pub(super) object: Object,
    /// The state of each reference's owner. `None` if only the API server knows.
    pub(super) owner_states: Vec<Option<OwnerState>>,
    pub(super) dependents: Dependents,
}

pub(super) fn observe(graph: &mut Graph, uid: &Uid) -> Observed {
    let (kind, object) = match graph.node(uid) {
        None => return Observed::Done,
        Some(Node::Virtual(named)) => return Observed::Virtual(named.clone()),
        Some(Node::Observed { kind, object }) => (kind.clone(), object.clone()),
    };
    let meta = object.meta();
    if is_deleted_with(meta, FOREGROUND) {
        return Observed::Waiting(waiting(graph, uid, kind, object));
    }
    if meta.is_being_deleted() || meta.owner_references.is_empty() {
        return Observed::Done;
    }
    let owner_states = meta.owner_references.iter().map(|owner| owner_state(graph, owner, &object)).collect();
    let dependents = dependents(graph, uid);
    Observed::Owned(Owned { kind, object, owner_states, dependents })
}

/// Returns the owner if it waits for its dependents to be orphaned.
pub(super) fn orphaning(graph: &Graph, uid: &Uid) -> Option<(Kind, Object)> {
    match graph.node(uid) {
        Some(Node::Observed { kind, object }) if is_deleted_with(object.meta(), ORPHAN) => {
            Some((kind.clone(), object.clone()))
        }
        _ => None,
    }
}

fn waiting(graph: &Graph, uid: &Uid, kind: Kind, object: Object) -> Waiting {
    let mut blocking = graph.blocking_dependents(uid).peekable();
    let blocked = blocking.peek().is_some();
    let untouched = blocking.filter(|(_, object)| !object.meta().is_being_deleted());
    let untouched = untouched.map(|(dependent, _)| dependent.clone()).collect();
    Waiting { kind, object, blocked, untouched }
}

fn owner_state(graph: &mut Graph, owner: &OwnerRef, dependent: &Object) -> Option<OwnerState> {
    if let Some(node) = graph.node(&Uid::from(&*owner.uid))
        && node.is_referenced_by(owner, dependent)
    {
        return Some(if node.waits_for_dependents() { OwnerState::Waiting } else { OwnerState::Solid });
    }
    let absent = [None, dependent.key().namespace()]
        .into_iter()
        .any(|namespace| graph.is_absent(&Identity::of_owner(owner, namespace)));
    absent.then_some(OwnerState::Dangling)
}

fn dependents(graph: &Graph, uid: &Uid) -> Dependents {
    let mut found = Dependents::None;
    for (.., object) in graph.dependents(uid) {
        if is_deleted_with(object.meta(), FOREGROUND) {
            return Dependents::SomeWaiting;
        }
        found = Dependents::Some;
    }
    found
}
