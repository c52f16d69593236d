//! Decides whether to keep an object, remove owner references, or delete it.

use setpoint::client::Propagation;
use setpoint::{Metadata, Object, OwnerRef};

use super::graph::{FOREGROUND, ORPHAN, has_finalizer, is_deleted_with};

/// The state of an owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// It exists.
    Solid,
    /// It is in foreground deletion.
    Waiting,
    /// It does not exist.
    Dangling,
}

/// Returns the standing of a reference's owner, given the object at its coordinates.
pub(super) fn standing(reference: &OwnerRef, found: Option<&Object>) -> Standing {
    match found.map(Object::meta) {
        Some(owner) if owner.uid != reference.uid => Standing::Dangling,
        Some(owner) if is_deleted_with(owner, FOREGROUND) => Standing::Waiting,
        Some(_) => Standing::Solid,
        None => Standing::Dangling,
    }
}

/// The dependents of the item itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dependents {
    None,
    Some,
    /// At least one is itself in foreground deletion, possibly waiting for this item in a cycle.
    SomeWaiting,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Plan {
    Keep,
    /// It has an owner that stays: remove the references, by position, to those that do not.
    DropOwners(Vec<usize>),
    Delete {
        propagation: Propagation,
        /// First unblock its owners, which might wait in a cycle.
        unblock_owners: bool,
    },
}

/// Decides on an item with owners. `standings` are those of its references, in order.
pub(super) fn plan(item: &Metadata, standings: &[Standing], dependents: Dependents) -> Plan {
    let is = |wanted: Standing| standings.contains(&wanted);
    if is(Standing::Solid) {
        let let_go = standings.iter().enumerate().filter(|(_, standing)| **standing != Standing::Solid);
        let let_go: Vec<usize> = let_go.map(|(position, _)| position).collect();
        return if let_go.is_empty() { Plan::Keep } else { Plan::DropOwners(let_go) };
    }
    if standings.is_empty() {
        return Plan::Keep;
    }
    if is(Standing::Waiting) && dependents != Dependents::None {
        let unblock_owners = dependents == Dependents::SomeWaiting;
        return Plan::Delete { propagation: Propagation::Foreground, unblock_owners };
    }
    Plan::Delete { propagation: wished_propagation(item), unblock_owners: false }
}

/// Returns the propagation policy requested by an earlier deletion.
fn wished_propagation(item: &Metadata) -> Propagation {
    if has_finalizer(item, ORPHAN) {
        Propagation::Orphan
    } else if has_finalizer(item, FOREGROUND) {
        Propagation::Foreground
    } else {
        Propagation::Background
    }
}
