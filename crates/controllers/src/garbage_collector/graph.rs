//! The ownership graph: every observed object, and every owner that is only referenced.
//!
//! The graph does no I/O. Every change returns the resulting [`Work`]. Monitors report observed objects; the collector
//! reports owners that do not exist.
//!
//! Invariants:
//! - the observed nodes are the objects that monitors have reported and not reported deleted;
//! - there is an edge `(owner, dependent)` for every owner reference of every observed node, and no other, whether or
//!   not the owner has a node;
//! - the owner of a new reference has a node, virtual at first, until it is found absent;
//! - a virtual node is worked on until it has been observed or found absent.

use std::collections::{BTreeMap, BTreeSet};

use setpoint::{Kind, Metadata, Object, OwnerRef};

use super::absent::AbsentOwners;
use super::identity::Identity;
use super::uid::Uid;

/// The finalizer of an owner that waits until its dependents are deleted.
pub(super) const FOREGROUND: &str = "foregroundDeletion";
/// The finalizer of an owner that waits until its dependents are orphaned.
pub(super) const ORPHAN: &str = "orphan";

#[derive(Default)]
pub(super) struct Graph {
    nodes: BTreeMap<Uid, Node>,
    edges: BTreeSet<(Uid, Uid)>,
    absent: AbsentOwners,
}

/// An observed or only referenced object.
#[derive(Clone)]
pub(super) enum Node {
    /// Seen by a monitor, whose copy of the object it shares.
    Observed { kind: Kind, object: Object },
    /// Named by a reference. Whether it exists must be looked up.
    Virtual(Box<Identity>),
}

/// The work that results from a change.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Work {
    /// Attempt to delete these.
    pub(super) delete: Vec<Uid>,
    /// Attempt to delete these after a backoff.
    pub(super) delete_later: Vec<Uid>,
    /// Orphan the dependents of these.
    pub(super) orphan: Vec<Uid>,
    /// References to an owner in another namespace.
    pub(super) misplaced: Vec<Misplaced>,
}

/// A reference to an owner that is not, and cannot be, in the dependent's namespace.
#[derive(Debug, Clone)]
pub(super) struct Misplaced {
    pub(super) kind: Kind,
    pub(super) dependent: Object,
    pub(super) owner: Identity,
}

impl PartialEq for Misplaced {
    fn eq(&self, other: &Self) -> bool {
        self.owner == other.owner && self.dependent.same_version(&other.dependent)
    }
}

impl Graph {
    pub(super) fn node(&self, uid: &Uid) -> Option<&Node> {
        self.nodes.get(uid)
    }

    /// Lists observed nodes that refer to this owner.
    pub(super) fn dependents(&self, owner: &Uid) -> impl Iterator<Item = (&Uid, &Kind, &Object)> {
        let owner = owner.clone();
        let from_first = self.edges.range((owner.clone(), Uid::FIRST)..);
        let of_owner = from_first.take_while(move |(of, _)| *of == owner);
        of_owner.filter_map(|(_, dependent)| match self.nodes.get(dependent) {
            Some(Node::Observed { kind, object }) => Some((dependent, kind, object)),
            _ => None,
        })
    }

    /// Lists dependents that block the deletion of an owner.
    pub(super) fn blocking_dependents(&self, owner: &Uid) -> impl Iterator<Item = (&Uid, &Object)> {
        let uid = owner.to_string();
        let is_blocking = move |object: &Object| is_blocked(&object.meta().owner_references, &uid);
        self.dependents(owner)
            .filter(move |(.., object)| is_blocking(object))
            .map(|(uid, _, object)| (uid, object))
    }

    /// Whether an owner is known not to exist.
    pub(super) fn is_absent(&mut self, owner: &Identity) -> bool {
        self.absent.has(owner)
    }

    /// Records that the API server does not have this owner.
    pub(super) fn remember_absent(&mut self, owner: Identity) {
        self.absent.add(owner);
    }

    /// Applies a new or changed object from a monitor.
    pub(super) fn observed(&mut self, kind: &Kind, object: &Object) -> Work {
        let uid = Uid::from(&*object.meta().uid);
        let mut work = Work::default();
        let seen = Node::Observed { kind: kind.clone(), object: object.clone() };
        let before = match self.nodes.insert(uid.clone(), seen) {
            Some(Node::Observed { object: before, .. }) => Some(before),
            Some(Node::Virtual(named)) => {
                self.recheck_dependents(&uid, &named, &Identity::of(kind, object), &mut work);
                None
            }
            None => None,
        };
        self.relink(&uid, kind, before.as_ref(), object, &mut work);
        self.start_of_deletion(&uid, before.as_ref(), object, &mut work);
        work
    }

    /// Applies a deletion from a monitor.
    pub(super) fn removed(&mut self, kind: &Kind, last: &Object) -> Work {
        let uid = Uid::from(&*last.meta().uid);
        let mut work = Work::default();
        let Some(node) = self.nodes.remove(&uid) else { return work };
        self.owner_gone(&uid, || Identity::of(kind, last), &mut work);
        if let Node::Observed { object, .. } = node {
            self.release_owners(&uid, &object, &mut work);
        }
        work
    }

    /// Records that the API server does not have a virtual node's object.
    pub(super) fn found_absent(&mut self, absent: &Identity) -> Work {
        let mut work = Work::default();
        // If it has been observed by now, its monitor reports its deletion.
        let Some(Node::Virtual(named)) = self.nodes.get(&absent.uid) else { return work };
        let (mut agreeing, mut disagreeing) = (Vec::new(), Vec::new());
        for (uid, _, object) in self.dependents(&absent.uid) {
            let agreement = absent.agreement(object);
            if agreement.agrees {
                agreeing.push(uid.clone());
            }
            if agreement.disagrees {
                disagreeing.push(object);
            }
        }
        if disagreeing.is_empty() {
            self.nodes.remove(&absent.uid);
            self.owner_gone(&absent.uid, || absent.clone(), &mut work);
            return work;
        }
        // Some references have different coordinates. Look those up before giving up.
        if **named == *absent
            && let Some(alternative) = absent.alternative(disagreeing.into_iter())
        {
            self.nodes.insert(absent.uid.clone(), Node::Virtual(Box::new(alternative)));
            work.delete_later.push(absent.uid.clone());
        }
        if !agreeing.is_empty() {
            self.absent.add(absent.clone());
            work.delete.extend(agreeing);
        }
        work
    }

    /// Removes a kind that is no longer served or monitored. Dependents of its objects are kept, since their owners may
    /// still exist. Owners blocked by its objects are unblocked.
    pub(super) fn forget_kind(&mut self, forgotten: &Kind) -> Work {
        let mut work = Work::default();
        let of_kind = |node: &Node| matches!(node, Node::Observed { kind, .. } if kind == forgotten);
        let uids: Vec<Uid> =
            self.nodes.iter().filter(|(_, node)| of_kind(node)).map(|(uid, _)| uid.clone()).collect();
        for uid in uids {
            if let Some(Node::Observed { object, .. }) = self.nodes.remove(&uid) {
                self.release_owners(&uid, &object, &mut work);
            }
        }
        work
    }

    /// Updates the edges of a node to its references.
    fn relink(&mut self, uid: &Uid, kind: &Kind, before: Option<&Object>, now: &Object, work: &mut Work) {
        let old = before.map_or(&[][..], |before| &before.meta().owner_references);
        let new = &now.meta().owner_references[..];
        if old == new {
            return;
        }
        for before in old {
            if reference_to(new, &before.uid).is_none() {
                self.edges.remove(&(Uid::from(&*before.uid), uid.clone()));
            }
            if blocks(before) && !is_blocked(new, &before.uid) {
                self.unblock(&before.uid, work);
            }
        }
        let added: Vec<_> =
            new.iter().filter(|new| !old.iter().any(|old| same_coordinates(old, new))).collect();
        self.link(uid, kind, now, &added, work);
        // With changed owners, the remaining ones may now decide that it must go.
        if !old.is_empty() && !new.is_empty() {
            work.delete.push(uid.clone());
        }
    }

    /// Adds a dependent to its owners. If a reference is doubtful, the dependent is checked.
    fn link(&mut self, uid: &Uid, kind: &Kind, dependent: &Object, added: &[&OwnerRef], work: &mut Work) {
        let mut doubtful = false;
        for &reference in added {
            let owner = Uid::from(&*reference.uid);
            self.edges.insert((owner.clone(), uid.clone()));
            let Some(node) = self.nodes.get(&owner) else {
                let named = Identity::of_owner(reference, dependent.key().namespace());
                self.nodes.insert(owner.clone(), Node::Virtual(Box::new(named)));
                work.delete.push(owner);
                continue;
            };
            let mismatch = if doubtful { None } else { node.mismatch(reference, dependent) };
            if mismatch == Some(Mismatch::OtherNamespace) {
                work.misplaced.push(misplaced(kind, dependent, reference));
            }
            // An owner in foreground deletion has not processed this dependent yet.
            doubtful |= mismatch.is_some() || node.waits_for_dependents();
        }
        if doubtful {
            work.delete.push(uid.clone());
        }
    }

    /// Checks the dependents whose references disagree with the observed owner: they may refer to something that does
    /// not exist.
    fn recheck_dependents(&self, uid: &Uid, named: &Identity, seen: &Identity, work: &mut Work) {
        if named == seen {
            return;
        }
        for (dependent, kind, object) in
            self.dependents(uid).filter(|(_, _, object)| seen.agreement(object).disagrees)
        {
            let elsewhere = seen.namespace.is_some() && seen.namespace.as_deref() != object.key().namespace();
            let reference =
                object.meta().owner_references.iter().find(|owner| Uid::from(&*owner.uid) == *uid);
            if let Some(reference) = reference.filter(|_| elsewhere) {
                work.misplaced.push(misplaced(kind, object, reference));
            }
            work.delete.push(dependent.clone());
        }
    }

    fn start_of_deletion(&self, uid: &Uid, before: Option<&Object>, now: &Object, work: &mut Work) {
        let starts = |finalizer| {
            is_deleted_with(now.meta(), finalizer)
                && !before.is_some_and(|old| is_deleted_with(old.meta(), finalizer))
        };
        if starts(ORPHAN) {
            work.orphan.push(uid.clone());
        } else if starts(FOREGROUND) {
            work.delete.extend(self.dependents(uid).map(|(dependent, _, _)| dependent.clone()));
            work.delete.push(uid.clone());
        }
    }

    /// Checks all dependents of an owner that is gone.
    fn owner_gone(&mut self, owner: &Uid, identity: impl FnOnce() -> Identity, work: &mut Work) {
        let before = work.delete.len();
        work.delete.extend(self.dependents(owner).map(|(dependent, _, _)| dependent.clone()));
        if work.delete.len() > before {
            self.absent.add(identity());
        }
    }

    /// Unblocks the owners of a dependent that is gone.
    fn release_owners(&mut self, uid: &Uid, dependent: &Object, work: &mut Work) {
        for reference in dependent.meta().owner_references.iter() {
            self.edges.remove(&(Uid::from(&*reference.uid), uid.clone()));
            if blocks(reference) {
                self.unblock(&reference.uid, work);
            }
        }
    }

    /// Checks an owner if no dependent blocks it any more.
    fn unblock(&self, owner: &str, work: &mut Work) {
        let owner = Uid::from(owner);
        let waits = self.nodes.get(&owner).is_some_and(Node::waits_for_dependents);
        if waits && self.blocking_dependents(&owner).next().is_none() {
            work.delete.push(owner);
        }
    }
}

/// A problem with a reference to a known node.
#[derive(PartialEq, Eq)]
enum Mismatch {
    /// The observed owner is in another namespace.
    OtherNamespace,
    /// The reference may point to something that does not exist.
    Unclear,
}

impl Node {
    pub(super) fn waits_for_dependents(&self) -> bool {
        matches!(self, Self::Observed { object, .. } if is_deleted_with(object.meta(), FOREGROUND))
    }

    /// Whether this is certainly the owner that a dependent's reference points to.
    pub(super) fn is_referenced_by(&self, reference: &OwnerRef, dependent: &Object) -> bool {
        matches!(self, Self::Observed { .. }) && self.mismatch(reference, dependent).is_none()
    }

    fn mismatch(&self, reference: &OwnerRef, dependent: &Object) -> Option<Mismatch> {
        let dependent_namespace = dependent.key().namespace();
        match self {
            Self::Observed { kind, object } => {
                let namespace = object.key().namespace();
                let named = kind.is_named(&reference.api_version, &reference.kind);
                if namespace.is_some() && namespace != dependent_namespace {
                    Some(Mismatch::OtherNamespace)
                } else {
                    (!named || object.key().name() != &*reference.name).then_some(Mismatch::Unclear)
                }
            }
            Self::Virtual(named) => {
                let elsewhere = named.namespace.as_deref() != dependent_namespace;
                (elsewhere || !named.is_named_by(reference)).then_some(Mismatch::Unclear)
            }
        }
    }
}

fn misplaced(kind: &Kind, dependent: &Object, reference: &OwnerRef) -> Misplaced {
    let owner = Identity::of_owner(reference, dependent.key().namespace());
    Misplaced { kind: kind.clone(), dependent: dependent.clone(), owner }
}

fn reference_to<'a>(references: &'a [OwnerRef], uid: &str) -> Option<&'a OwnerRef> {
    references.iter().find(|reference| &*reference.uid == uid)
}

fn same_coordinates(one: &OwnerRef, other: &OwnerRef) -> bool {
    (&one.uid, &one.name, &one.kind, &one.api_version)
        == (&other.uid, &other.name, &other.kind, &other.api_version)
}

/// Whether any reference to the uid blocks its deletion. References may be duplicated; one blocking reference is
/// enough.
fn is_blocked(references: &[OwnerRef], uid: &str) -> bool {
    references.iter().any(|reference| blocks(reference) && &*reference.uid == uid)
}

fn blocks(reference: &OwnerRef) -> bool {
    reference.block_owner_deletion == Some(true)
}

/// Whether an object is being deleted and has this finalizer.
pub(super) fn is_deleted_with(meta: &Metadata, finalizer: &str) -> bool {
    meta.is_being_deleted() && has_finalizer(meta, finalizer)
}

pub(super) fn has_finalizer(meta: &Metadata, finalizer: &str) -> bool {
    meta.finalizers.iter().any(|own| &**own == finalizer)
}
