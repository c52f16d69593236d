//! Volume expander: tells users and drivers who resizes a volume.
//!
//! No in-tree plugin can resize volumes: CSI drivers do it, and this controller records an event that says so. For an
//! in-tree volume migrated to CSI, it annotates the claim with the driver.
//!
//! Owns: the annotation `volume.kubernetes.io/storage-resizer`.
//! Watches: claims.
//! Writes: annotations of claims (update of their status, as v1.34 does), events.
//!
//! Invariants: a claim that already has the size it requests is left alone.

use setpoint::client::{Optional, Subresource};
use setpoint::reconcile::ErrorContext;
use setpoint::{
    Cached, Client, Context, Event, EventType, Key, Kind, Lister, Object, Outcome, ReconcileError,
    Reconciler, Recorder, Runnable, UpdateBody,
};
use setpoint_quantity::Quantity;
use setpoint_volume::{Amounts, Claim, Volume, migrated, storage};

use crate::registry::{Access, EVENTS, Entry, Options};
use crate::wiring;

pub(crate) const ENTRY: Entry = Entry {
    name: "persistentvolume-expander-controller",
    aliases: &["persistentvolume-expander"],
    on_by_default: true,
    gates: &[],
    summary: "tells users and drivers who resizes a volume",
    watches: &[Access::watch("", "persistentvolumeclaims")],
    writes: &[
        Access::to("", "persistentvolumes", &["get", "list", "watch", "patch", "update"]),
        Access::to("", "persistentvolumeclaims/status", &["patch", "update"]),
        EVENTS,
    ],
    default_workers: 10,
    build,
};

/// The event source.
const COMPONENT: &str = "volume_expand";
/// The claim annotation with the driver that resizes its volume.
const RESIZER: &str = "volume.kubernetes.io/storage-resizer";
/// The volume annotation with the claim's capacity before a resize.
const PRE_RESIZE_CAPACITY: &str = "volume.alpha.kubernetes.io/pre-resize-capacity";

fn build(context: &Context, options: &Options) -> Vec<Box<dyn Runnable>> {
    let claims = context.informers.of::<Claim>();
    let queue = wiring::queue(context, "volume_expand");
    let wake = queue.clone();
    claims.add_handler(move |event: &Event| {
        if concerns(event) {
            wake.add(event.object().key().clone());
        }
    });
    let expander = Expander {
        client: context.client.clone(),
        recorder: context.recorder(COMPONENT),
        claims: claims.lister(),
    };
    vec![Box::new(wiring::controller(&ENTRY, options, queue, expander, [&claims]))]
}

/// Whether a bound claim is new, requests more than before, or was resized.
fn concerns(event: &Event) -> bool {
    let claim = |object: &Object| object.view::<Claim>().ok().cloned();
    let Some(new) = claim(event.object()).filter(|new| &*new.status.phase == "Bound") else { return false };
    match event {
        Event::Added { .. } => true,
        Event::Deleted { .. } => false,
        Event::Updated { old, .. } => claim(old).is_none_or(|old| {
            new.requested() > old.requested() || amount(&new.status.capacity) > amount(&old.status.capacity)
        }),
    }
}

fn amount(amounts: &Option<Amounts>) -> Quantity {
    amounts.as_ref().map_or(Quantity::ZERO, storage)
}

/// The resizer of a volume.
#[derive(Debug, PartialEq, Eq)]
enum Plan {
    /// No resize is needed.
    Nothing,
    /// Some CSI driver, which acts on its own.
    AnyDriver,
    /// The CSI driver that an in-tree plugin is migrated to.
    Driver { plugin: &'static str, driver: &'static str },
}

fn plan(claim: &Claim, volume: &Volume) -> Plan {
    let growing = volume.metadata.has(PRE_RESIZE_CAPACITY);
    if claim.requested() <= amount(&claim.status.capacity) && !growing {
        return Plan::Nothing;
    }
    let migrated = volume.migrated_plugin();
    match migrated.and_then(|plugin| Some((plugin, migrated::driver_of(plugin)?))) {
        Some((plugin, driver)) => Plan::Driver { plugin, driver },
        None => Plan::AnyDriver,
    }
}

struct Expander {
    client: Client,
    recorder: Recorder,
    claims: Lister<Claim>,
}

impl Reconciler for Expander {
    type Key = Key;

    async fn reconcile(&self, key: &Key) -> Result<Outcome, ReconcileError> {
        let Some(claim) = self.claims.get(key)? else { return Ok(Outcome::Settled) };
        if claim.requested() <= amount(&claim.status.capacity) && claim.spec.volume_name.is_empty() {
            return Ok(Outcome::Settled);
        }
        let name = Key::cluster(&*claim.spec.volume_name);
        let volume = self.client.get(&Kind::of::<Volume>(), &name).await.optional();
        let Some(volume) = volume.attempting(format!("get volume {name} of claim {key}"))? else {
            return Ok(Outcome::Settled);
        };
        let volume = Cached::<Volume>::new(volume)?;
        let bound = volume.spec.claim_ref.as_ref().is_some_and(|one| one.uid == claim.meta().uid);
        if !bound {
            return Err(ReconcileError::retry(format!(
                "expand volume {name}, which is not bound to claim {key}"
            )));
        }
        self.apply(&claim, plan(&claim, &volume)).await?;
        Ok(Outcome::Settled)
    }
}

impl Expander {
    async fn apply(&self, claim: &Cached<Claim>, plan: Plan) -> Result<(), ReconcileError> {
        let message = match &plan {
            Plan::Nothing => return Ok(()),
            Plan::AnyDriver => "waiting for an external controller to expand this PVC".to_owned(),
            Plan::Driver { plugin, .. } => {
                format!("CSI migration enabled for {plugin}; waiting for external resizer to expand the pvc")
            }
        };
        let kind = Kind::of::<Claim>();
        self.recorder.event(&kind, claim.object(), EventType::Normal, "ExternalExpanding", message);
        let Plan::Driver { driver, .. } = plan else { return Ok(()) };
        if claim.metadata.get(RESIZER) == Some(driver) {
            return Ok(());
        }
        let edit = UpdateBody::of(claim.object()).set(&["metadata", "annotations", RESIZER], &driver);
        let updated = self.client.update(&kind, claim.key(), Subresource::Status, &edit).await;
        updated.map(drop).attempting(format!("set the resizer of claim {}", claim.key()))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn only_a_claim_that_requests_more_gets_a_resizer() {
        let check = |wants: &str, has: &str, volume: Value, expected: Plan| {
            let claim: Claim = serde_json::from_value(json!({
                "spec": {"resources": {"requests": {"storage": wants}}}, "status": {"capacity": {"storage": has}},
            }))
            .expect("a claim");
            let volume: Volume = serde_json::from_value(volume).expect("a volume");
            assert_eq!(plan(&claim, &volume), expected, "{wants} of {has}");
        };
        let csi = || json!({"spec": {"csi": {"driver": "d", "volumeHandle": "h"}}});
        check("1Gi", "1Gi", csi(), Plan::Nothing);
        check("1024Mi", "1Gi", csi(), Plan::Nothing);
        check("2Gi", "1Gi", csi(), Plan::AnyDriver);
        let disk = json!({"spec": {"gcePersistentDisk": {"pdName": "d"}}});
        let driver = Plan::Driver { plugin: "kubernetes.io/gce-pd", driver: "pd.csi.storage.gke.io" };
        check("2Gi", "1Gi", disk, driver);
        let growing = json!({"metadata": {"annotations": {PRE_RESIZE_CAPACITY: "1Gi"}}});
        check("1Gi", "1Gi", growing, Plan::AnyDriver);
    }
}
