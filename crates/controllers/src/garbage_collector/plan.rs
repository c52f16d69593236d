//! Decides whether to keep an object, remove owner references, or delete it.

use setpoint::client::PropagationPolicy;
use setpoint::{Metadata, Object, OwnerRef};

use super::graph::{FOREGROUND, ORPHAN, has_finalizer, is_deleted_with};

/// The state of an owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OwnerState {
    /// It exists.
    Solid,
    /// It is in foreground deletion.
    Waiting,
    /// It does not exist.
    Dangling,
}

/// Returns the state of a reference's owner, given the object at its coordinates.
pub(super) fn owner_state(reference: &OwnerRef, found: Option<&Object>) -> OwnerState {
    match found.map(Object::meta) {
        Some(owner) if owner.uid != reference.uid => OwnerState::Dangling,
        Some(owner) if is_deleted_with(owner, FOREGROUND) => OwnerState::Waiting,
        Some(_) => OwnerState::Solid,
        None => OwnerState::Dangling,
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
        propagation: PropagationPolicy,
        /// First unblock its owners, which might wait in a cycle.
        unblock_owners: bool,
    },
}

/// Decides on an item with owners. `owner_states` are those of its references, in order.
pub(super) fn plan(item: &Metadata, owner_states: &[OwnerState], dependents: Dependents) -> Plan {
    let is = |wanted: OwnerState| owner_states.contains(&wanted);
    if is(OwnerState::Solid) {
        let dropped =
            owner_states.iter().enumerate().filter(|(_, owner_state)| **owner_state != OwnerState::Solid);
        let dropped: Vec<usize> = dropped.map(|(position, _)| position).collect();
        return if dropped.is_empty() { Plan::Keep } else { Plan::DropOwners(dropped) };
    }
    if owner_states.is_empty() {
        return Plan::Keep;
    }
    if is(OwnerState::Waiting) && dependents != Dependents::None {
        let unblock_owners = dependents == Dependents::SomeWaiting;
        return Plan::Delete { propagation: PropagationPolicy::Foreground, unblock_owners };
    }
    Plan::Delete { propagation: requested_propagation(item), unblock_owners: false }
}

/// Returns the propagation policy requested by an earlier deletion.
fn requested_propagation(item: &Metadata) -> PropagationPolicy {
    if has_finalizer(item, ORPHAN) {
        PropagationPolicy::Orphan
    } else if has_finalizer(item, FOREGROUND) {
        PropagationPolicy::Foreground
    } else {
        PropagationPolicy::Background
    }
}
