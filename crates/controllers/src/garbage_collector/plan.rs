//! Whether an object is to be kept, released from some of its owners, or deleted.

use setpoint::client::Propagation;
use setpoint::{Metadata, Object, OwnerRef};

use super::graph::{FOREGROUND, ORPHAN, has_finalizer, is_deleted_with};

/// How an owner stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// It exists.
    Solid,
    /// It is being deleted and waits for its dependents.
    Waiting,
    /// It does not exist.
    Dangling,
}

/// How the owner of a reference stands, given what the API server has at its coordinates.
pub(super) fn standing(reference: &OwnerRef, found: Option<&Object>) -> Standing {
    match found.map(Object::meta) {
        Some(owner) if owner.uid != reference.uid => Standing::Dangling,
        Some(owner) if is_deleted_with(owner, FOREGROUND) => Standing::Waiting,
        Some(_) => Standing::Solid,
        None => Standing::Dangling,
    }
}

/// What depends on the item itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dependents {
    None,
    Some,
    /// And at least one waits for its own dependents: possibly for this item, in a circle.
    SomeWaiting,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Plan {
    Keep,
    /// It has an owner that stays: let go of those, by their position, that do not.
    DropOwners(Vec<usize>),
    Delete {
        propagation: Propagation,
        /// First let none of its owners wait for it, lest they wait in a circle.
        unblock_owners: bool,
    },
}

/// Decides on an item that has owners. `standings` are those of its references, in order.
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

/// What an earlier deletion asked for is honoured.
fn wished_propagation(item: &Metadata) -> Propagation {
    if has_finalizer(item, ORPHAN) {
        Propagation::Orphan
    } else if has_finalizer(item, FOREGROUND) {
        Propagation::Foreground
    } else {
        Propagation::Background
    }
}
