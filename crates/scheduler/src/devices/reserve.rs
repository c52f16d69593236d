//! The claims that have to be written before a pod can be bound. Pure.
//!
//! A claim that gets devices is first held by a finalizer, so that it cannot go while it has them; then its status
//! says at once which devices it has and that the pod uses them. A claim that has devices only gets another user.

use setpoint::{Cached, Edit, Object};

use super::allocation::Decided;
use super::in_use::InUse;
use super::needs::DeviceNeeds;
use super::view::{Claim, Consumer};
use crate::ledger::NodeInfo;
use crate::view::Pod;

/// Holds a claim while its devices are allocated.
const FINALIZER: &str = "resource.kubernetes.io/delete-protection";

/// The claims of a pod that are not reserved for it yet.
#[derive(Clone, Default)]
pub(crate) struct Reservation {
    pub(crate) claims: Vec<Reserving>,
}

/// A claim, and the devices that it gets if it has none.
#[derive(Clone)]
pub(crate) struct Reserving {
    pub(crate) claim: Cached<Claim>,
    decided: Option<Decided>,
}

/// What is to be written next about a claim.
pub(crate) enum Write {
    /// The object itself.
    Main(Object),
    Status(Object),
    /// Nothing: it is reserved.
    Nothing,
    /// It cannot be reserved any more.
    Lost(String),
}

impl Reservation {
    /// What a pod needs on a node that can have its devices.
    pub(crate) fn of(needs: &DeviceNeeds<'_>, pod: &Pod, node: &NodeInfo) -> Self {
        let mut decided = needs.decided_on(node);
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

    /// From now on nobody else gets these devices.
    pub(crate) fn assume(&self, in_use: &mut InUse) {
        for Reserving { claim, decided } in &self.claims {
            if let Some(decided) = decided {
                in_use.decide(&claim.meta().uid, decided.devices.clone());
            }
        }
    }

    /// What was not written is free again.
    pub(crate) fn forget(&self, in_use: &mut InUse) {
        self.claims.iter().for_each(|reserving| in_use.forget_decided(&reserving.claim.meta().uid));
    }
}

/// What is to be written next so that a claim, as it is now, is the pod's.
pub(crate) fn next_write(claim: &Cached<Claim>, reserving: &Reserving, pod: &Pod) -> Write {
    let key = claim.key();
    if claim.meta().is_being_deleted() || claim.meta().uid != reserving.claim.meta().uid {
        return Write::Lost(format!("claim {key} got deleted in the meantime"));
    }
    if claim.is_reserved_for(&pod.meta().uid) {
        return Write::Nothing;
    }
    let mut edit = Edit::of(claim.object());
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

/// A claim that nobody uses, without its devices.
pub(crate) fn let_go(claim: &Cached<Claim>) -> Write {
    let edit = Edit::of(claim.object());
    let edit = edit.remove(&["status", "allocation"]).remove(&["status", "reservedFor"]);
    written(&edit.remove(&["status", "devices"]), Write::Status)
}

fn written(edit: &Edit<'_>, as_part: fn(Object) -> Write) -> Write {
    let object = serde_json::to_vec(edit).map_err(|error| error.to_string());
    let object = object.and_then(|json| Object::from_json(json.into()).map_err(|error| error.to_string()));
    object.map_or_else(Write::Lost, as_part)
}
