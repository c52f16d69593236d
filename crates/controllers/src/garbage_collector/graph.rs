//! Who owns whom: every object that has been seen and every owner that is only spoken of.
//!
//! The graph never asks anybody and never waits; told of a change, it answers with the [`Work`] that
//! the change gives rise to. Monitors tell it what they see, the collector what it found absent.
//!
//! What always holds:
//! - the observed nodes are the objects the monitors have told of and not told to be gone;
//! - there is an edge `(owner, dependent)` for every owner reference of every observed node, and no
//!   other, whether or not there is a node of that owner;
//! - the owner of a reference that was added has a node, virtual at first, until it is found absent;
//! - a virtual node is worked on until it has been observed or found absent.

use std::collections::{BTreeMap, BTreeSet};

use setpoint::{Kind, Metadata, Object, OwnerRef};

use super::absent::AbsentOwners;
use super::identity::Identity;
use super::uid::Uid;

/// The finalizer of an owner that waits for its dependents to be deleted.
pub(super) const FOREGROUND: &str = "foregroundDeletion";
/// The finalizer of an owner that waits for its dependents to be released.
pub(super) const ORPHAN: &str = "orphan";

#[derive(Default)]
pub(super) struct Graph {
    nodes: BTreeMap<Uid, Node>,
    edges: BTreeSet<(Uid, Uid)>,
    absent: AbsentOwners,
}

/// An object, or one that only references name.
#[derive(Clone)]
pub(super) enum Node {
    /// Seen by a monitor. The object is the monitor's own copy.
    Observed { kind: Kind, object: Object },
    /// Named by a reference; whether it exists is to be found out.
    Virtual(Box<Identity>),
}

/// What a change of the graph gives rise to.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Work {
    /// See whether these are to be deleted.
    pub(super) delete: Vec<Uid>,
    /// The same, after a while.
    pub(super) delete_later: Vec<Uid>,
    /// Release the dependents of these.
    pub(super) orphan: Vec<Uid>,
    /// References to an owner that is in another namespace.
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

    /// The observed nodes that refer to this owner.
    pub(super) fn dependents(&self, owner: &Uid) -> impl Iterator<Item = (&Uid, &Kind, &Object)> {
        let owner = owner.clone();
        let from_first = self.edges.range((owner.clone(), Uid::FIRST)..);
        let of_owner = from_first.take_while(move |(of, _)| *of == owner);
        of_owner.filter_map(|(_, dependent)| match self.nodes.get(dependent) {
            Some(Node::Observed { kind, object }) => Some((dependent, kind, object)),
            _ => None,
        })
    }

    /// The dependents that keep a waiting owner from going.
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

    /// The API server was asked and does not have this owner.
    pub(super) fn remember_absent(&mut self, owner: Identity) {
        self.absent.add(owner);
    }

    /// A monitor sees a new or changed object.
    pub(super) fn observed(&mut self, kind: &Kind, object: &Object) -> Work {
        let uid = Uid::from(&*object.meta().uid);
        let mut work = Work::default();
        let seen = Node::Observed { kind: kind.clone(), object: object.clone() };
        let before = match self.nodes.insert(uid.clone(), seen) {
            Some(Node::Observed { object: before, .. }) => Some(before),
            Some(Node::Virtual(named)) => {
                self.doubt_dependents(&uid, &named, &Identity::of(kind, object), &mut work);
                None
            }
            None => None,
        };
        self.relink(&uid, kind, before.as_ref(), object, &mut work);
        self.start_of_deletion(&uid, before.as_ref(), object, &mut work);
        work
    }

    /// A monitor sees that an object is gone.
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

    /// The API server was asked for an object that is only spoken of, and does not have it.
    pub(super) fn found_absent(&mut self, absent: &Identity) -> Work {
        let mut work = Work::default();
        // If it has been observed by now, then its monitor tells of its end.
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
        // Some call it by other coordinates: those are to be looked up before it is given up.
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

    /// A kind is served no more, and so monitored no more. Nothing is deleted for that: what its objects
    /// own is kept, since nobody can tell whether they exist. Owners that wait for them wait no longer.
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

    /// Brings the edges of a node in line with its references.
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
        // With other owners, those that stayed may be the ones that decide now.
        if !old.is_empty() && !new.is_empty() {
            work.delete.push(uid.clone());
        }
    }

    /// Adds a dependent to its owners. Where it cannot be right in all it says of them, it is looked at.
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
            let doubt = if doubtful { None } else { node.doubt(reference, dependent) };
            if doubt == Some(Doubt::OtherNamespace) {
                work.misplaced.push(misplaced(kind, dependent, reference));
            }
            // An owner that waits for its dependents to go has not met this one yet.
            doubtful |= doubt.is_some() || node.waits_for_dependents();
        }
        if doubtful {
            work.delete.push(uid.clone());
        }
    }

    /// An owner has been seen elsewhere than references named it: dependents that named it so may refer
    /// to something that does not exist.
    fn doubt_dependents(&self, uid: &Uid, named: &Identity, seen: &Identity, work: &mut Work) {
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

    /// The dependents of an owner that is no more are all to be looked at.
    fn owner_gone(&mut self, owner: &Uid, identity: impl FnOnce() -> Identity, work: &mut Work) {
        let before = work.delete.len();
        work.delete.extend(self.dependents(owner).map(|(dependent, _, _)| dependent.clone()));
        if work.delete.len() > before {
            self.absent.add(identity());
        }
    }

    /// A dependent is no more: an owner that waited for it as the last one can go.
    fn release_owners(&mut self, uid: &Uid, dependent: &Object, work: &mut Work) {
        for reference in dependent.meta().owner_references.iter() {
            self.edges.remove(&(Uid::from(&*reference.uid), uid.clone()));
            if blocks(reference) {
                self.unblock(&reference.uid, work);
            }
        }
    }

    /// One of the references that block an owner does so no longer.
    fn unblock(&self, owner: &str, work: &mut Work) {
        let owner = Uid::from(owner);
        let waits = self.nodes.get(&owner).is_some_and(Node::waits_for_dependents);
        if waits && self.blocking_dependents(&owner).next().is_none() {
            work.delete.push(owner);
        }
    }
}

/// What may be wrong with a reference to a known node.
#[derive(PartialEq, Eq)]
enum Doubt {
    /// The owner has been seen, in another namespace.
    OtherNamespace,
    /// The reference may be to something that does not exist.
    Unclear,
}

impl Node {
    pub(super) fn waits_for_dependents(&self) -> bool {
        matches!(self, Self::Observed { object, .. } if is_deleted_with(object.meta(), FOREGROUND))
    }

    /// Whether this is, without doubt, the owner that the reference of a dependent means.
    pub(super) fn is_meant_by(&self, reference: &OwnerRef, dependent: &Object) -> bool {
        matches!(self, Self::Observed { .. }) && self.doubt(reference, dependent).is_none()
    }

    fn doubt(&self, reference: &OwnerRef, dependent: &Object) -> Option<Doubt> {
        let dependent_namespace = dependent.key().namespace();
        match self {
            Self::Observed { kind, object } => {
                let namespace = object.key().namespace();
                let named = kind.is_called(&reference.api_version, &reference.kind);
                if namespace.is_some() && namespace != dependent_namespace {
                    Some(Doubt::OtherNamespace)
                } else {
                    (!named || object.key().name() != &*reference.name).then_some(Doubt::Unclear)
                }
            }
            Self::Virtual(named) => {
                let elsewhere = named.namespace.as_deref() != dependent_namespace;
                (elsewhere || !named.is_named_by(reference)).then_some(Doubt::Unclear)
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

/// References may come twice, and then one that blocks is enough.
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
