//! Plans what to do about a claim. Pure.

use setpoint::{Cached, EventType};
use setpoint_volume::{BOUND_BY_CONTROLLER, Claim, Volume, is_delayed, matching};

use super::Settings;
use super::observe::Observed;
use super::provision::{Provision, provision};

/// An event to record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PlannedEvent {
    pub(super) event_type: EventType,
    pub(super) reason: &'static str,
    pub(super) message: String,
}

impl PlannedEvent {
    pub(super) fn normal(reason: &'static str, message: impl Into<String>) -> Self {
        Self { event_type: EventType::Normal, reason, message: message.into() }
    }

    pub(super) fn warning(reason: &'static str, message: impl Into<String>) -> Self {
        Self { event_type: EventType::Warning, reason, message: message.into() }
    }
}

pub(super) enum Plan {
    /// Complete the binding to this volume. Writes nothing if it is already complete.
    Bind(Cached<Volume>),
    /// Assign this storage class. Everything else follows from that.
    AssignClass(String),
    /// Provision a volume.
    Provision(Provision),
    /// Wait for a volume: the phase is `Pending`.
    Wait(Option<PlannedEvent>),
    /// The volume is gone: the phase becomes `Lost`, reported once.
    GiveUp(PlannedEvent),
    /// Someone has tampered with its binding.
    Refuse(PlannedEvent),
}

pub(super) fn plan(claim: &Cached<Claim>, observed: &Observed, settings: Settings) -> Plan {
    match (claim.was_bound(), &*claim.spec.volume_name) {
        (true, "") => lost(
            "ClaimLost",
            "Bound claim has lost reference to PersistentVolume. Data on the volume is lost!",
        ),
        (true, _) => bound(claim, observed.named.as_ref()),
        (false, "") => unbound(claim, observed, settings),
        (false, name) => named(claim, name, observed.named.as_ref()),
    }
}

fn lost(reason: &'static str, message: &str) -> Plan {
    Plan::GiveUp(PlannedEvent::warning(reason, message))
}

/// Plans for a claim that was bound before: it stays with its volume.
fn bound(claim: &Cached<Claim>, volume: Option<&Cached<Volume>>) -> Plan {
    let Some(volume) = volume else {
        return lost("ClaimLost", "Bound claim has lost its PersistentVolume. Data on the volume is lost!");
    };
    match &volume.spec.claim_ref {
        Some(reference) if reference.uid != claim.meta().uid => {
            lost("ClaimMisbound", "Two claims are bound to the same volume, this one is bound incorrectly")
        }
        // Either the volume came unbound or the cache does not show the binding yet. Binding again handles both.
        _ => Plan::Bind(volume.clone()),
    }
}

/// Plans for a claim that does not name a volume.
fn unbound(claim: &Cached<Claim>, observed: &Observed, settings: Settings) -> Plan {
    let delayed = is_delayed(observed.class.as_deref());
    if let Some(volume) = matching::best(claim, &observed.candidates, delayed) {
        return Plan::Bind(volume.clone());
    }
    if let Some(class) = &observed.default_class {
        return Plan::AssignClass(class.clone());
    }
    if delayed && !claim.has_selected_node() {
        return Plan::Wait(Some(waits_for_a_pod(&observed.waiting)));
    }
    match claim.class() {
        "" => {
            let message = "no persistent volumes available for this claim and no storage class is set";
            Plan::Wait(Some(PlannedEvent::normal("FailedBinding", message)))
        }
        _ => Plan::Provision(provision(claim, observed, settings)),
    }
}

fn waits_for_a_pod(pods: &[String]) -> PlannedEvent {
    match pods {
        [] => PlannedEvent::normal(
            "WaitForFirstConsumer",
            "waiting for first consumer to be created before binding",
        ),
        [pod] => {
            PlannedEvent::normal("WaitForPodScheduled", format!("waiting for pod {pod} to be scheduled"))
        }
        pods => {
            let message = format!("waiting for pods {} to be scheduled", pods.join(","));
            PlannedEvent::normal("WaitForPodScheduled", message)
        }
    }
}

/// Plans for a claim that names this volume.
fn named(claim: &Cached<Claim>, name: &str, volume: Option<&Cached<Volume>>) -> Plan {
    let Some(volume) = volume else { return Plan::Wait(None) };
    if volume.is_for(claim) {
        return Plan::Bind(volume.clone());
    }
    if volume.spec.claim_ref.is_none() {
        return match matching::objection(volume, claim) {
            None => Plan::Bind(volume.clone()),
            Some(objection) => {
                let message = format!("Cannot bind to requested volume {name:?}: {objection}");
                Plan::Wait(Some(PlannedEvent::warning("VolumeMismatch", message)))
            }
        };
    }
    let taken = PlannedEvent::warning(
        "FailedBinding",
        format!("volume {name:?} already bound to a different claim."),
    );
    if claim.metadata.has(BOUND_BY_CONTROLLER) { Plan::Refuse(taken) } else { Plan::Wait(Some(taken)) }
}
