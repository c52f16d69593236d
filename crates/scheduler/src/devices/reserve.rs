//! Claim writes needed before a pod can be bound. Pure.
//!
//! A claim that gets devices first gets a finalizer, so that it cannot disappear while allocated. One status write then
//! sets both the allocation and the reservation. A claim that is already allocated only gets another `reservedFor`
//! entry.

use setpoint::{Cached, Object, UpdateBody};

use super::allocation::Decided;
use super::in_use::InUse;
use super::needs::DeviceNeeds;
use super::view::{Claim, Consumer};
use crate::ledger::NodeInfo;
use crate::view::Pod;

/// Protects a claim while it is allocated.
const FINALIZER: &str = "resource.kubernetes.io/delete-protection";

/// The claims of a pod that are not reserved for it yet.
#[derive(Clone, Default)]
pub(crate) struct Reservation {
    pub(crate) claims: Vec<Reserving>,
}

/// A claim, and its allocation if it has none yet.
#[derive(Clone)]
pub(crate) struct Reserving {
    pub(crate) claim: Cached<Claim>,
    decided: Option<Decided>,
}

/// The next write to a claim.
pub(crate) enum Write {
    /// The object itself.
    Main(Object),
    Status(Object),
    /// None: the claim is reserved.
    Nothing,
    /// The claim cannot be reserved any more.
    Lost(String),
}

impl Reservation {
    /// Computes a pod's reservation on a node that can satisfy its claims.
    pub(crate) fn of(needs: &DeviceNeeds<'_>, pod: &Pod, node: &NodeInfo) -> Self {
        let mut decided = needs.allocations_on(node);
        let open = needs.claims.iter().filter(|claim| !claim.is_reserved_for(&pod.meta().uid));
        let claims = open.map(|claim| {
            let at = decided.iter().position(|(other, _)| other.key() == claim.key());
            let decided = at.map(|at| decided.swap_remove(at).1);
            Reserving { claim: claim.clone(), decided }
        });
        Self { claims: claims.collect() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.claims.is_empty()
    }

    /// Marks the devices as taken.
    pub(crate) fn assume(&self, in_use: &mut InUse) {
        for Reserving { claim, decided } in &self.claims {
            if let Some(decided) = decided {
                in_use.decide(&claim.meta().uid, decided.devices.clone());
            }
        }
    }

    /// Frees devices whose allocation was not written.
    pub(crate) fn forget(&self, in_use: &mut InUse) {
        self.claims.iter().for_each(|reserving| in_use.forget_decided(&reserving.claim.meta().uid));
    }
}

/// Returns the next write needed to reserve a claim, given its current state.
pub(crate) fn next_write(claim: &Cached<Claim>, reserving: &Reserving, pod: &Pod) -> Write {
    let key = claim.key();
    if claim.meta().is_being_deleted() || claim.meta().uid != reserving.claim.meta().uid {
        return Write::Lost(format!("claim {key} got deleted in the meantime"));
    }
    if claim.is_reserved_for(&pod.meta().uid) {
        return Write::Nothing;
    }
    let mut edit = UpdateBody::of(claim.object());
    if let Some(decided) = &reserving.decided {
        if claim.is_allocated() {
            return Write::Lost(format!("claim {key} got allocated elsewhere in the meantime"));
        }
        if !claim.metadata.finalizers.iter().any(|finalizer| finalizer == FINALIZER) {
            let mut finalizers = claim.metadata.finalizers.clone();
            finalizers.push(FINALIZER.to_owned());
            return written(&edit.set(&["metadata", "finalizers"], &finalizers), Write::Main);
        }
        edit = edit.set(&["status", "allocation"], &decided.allocation);
    }
    let mut users = claim.status.reserved_for.clone();
    users.push(Consumer {
        api_group: String::new(),
        resource: "pods".into(),
        name: pod.key().name().into(),
        uid: pod.meta().uid.to_string(),
    });
    written(&edit.set(&["status", "reservedFor"], &users), Write::Status)
}

/// Returns the write that deallocates an unused claim.
pub(crate) fn deallocation(claim: &Cached<Claim>) -> Write {
    let edit = UpdateBody::of(claim.object());
    let edit = edit.remove(&["status", "allocation"]).remove(&["status", "reservedFor"]);
    written(&edit.remove(&["status", "devices"]), Write::Status)
}

fn written(edit: &UpdateBody<'_>, as_part: fn(Object) -> Write) -> Write {
    let object = serde_json::to_vec(edit).map_err(|error| error.to_string());
    let object = object.and_then(|json| Object::from_json(json.into()).map_err(|error| error.to_string()));
    object.map_or_else(Write::Lost, as_part)
}
