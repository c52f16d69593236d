//! Ephemeral volumes: creates the claims of pods' ephemeral volumes; they are deleted with the pod.
//!
//! Owns: the claims of ephemeral volumes.
//! Watches: pods, claims.
//! Writes: claims (create), events.
//! Metrics: `ephemeral_volume_controller_*`.
//!
//! Invariants: a claim of the right name that was not created for the pod is never used for it; the pod waits, with an
//! event.

use serde::Deserialize;
use serde_json::{Map, Value, json};
use setpoint::metrics::Metrics;
use setpoint::owner::controller_ref;
use setpoint::reconcile::ErrorContext;
use setpoint::{
    Cached, Client, Context, Event, EventType, Key, Kind, Lister, Object, Outcome, ReconcileError,
    Reconciler, Recorder, Runnable,
};
use setpoint_volume::{Claim, PODS_BY_CLAIM, PodVolumes, claims_of, index_by_claim};

use crate::flags::Flag;
use crate::registry::{Access, EVENTS, Entry, Options};
use crate::wiring;

pub(crate) const ENTRY: Entry = Entry {
    name: "ephemeral-volume-controller",
    aliases: &["ephemeral-volume"],
    on_by_default: true,
    gates: &[],
    summary: "creates the claims of ephemeral volumes",
    watches: &[Access::watch("", "pods"), Access::watch("", "persistentvolumeclaims")],
    writes: &[
        Access::to("", "persistentvolumeclaims", &["create"]),
        Access::to("", "pods/finalizers", &["update"]),
        EVENTS,
    ],
    default_workers: 5,
    build,
};

pub(crate) const FLAGS: &[Flag] = &[Flag::workers("concurrent-ephemeralvolume-syncs", &ENTRY, "5")];

/// The event source.
const COMPONENT: &str = "ephemeral_volume";

fn build(context: &Context, options: &Options) -> Vec<Box<dyn Runnable>> {
    let pods = context.informers.of::<PodVolumes>();
    let claims = context.informers.of::<Claim>();
    index_by_claim(&pods);
    let queue = wiring::queue(context, "ephemeral_volume");
    let wake = queue.clone();
    pods.add_handler(move |event: &Event| {
        if matches!(event, Event::Added { .. }) && wants_claims(event.object()) {
            wake.add(event.object().key().clone());
        }
    });
    let (wake, lister) = (queue.clone(), pods.lister::<PodVolumes>());
    claims.add_handler(move |event: &Event| {
        if let Event::Deleted { last, .. } = event {
            let users = lister.objects().indexed(PODS_BY_CLAIM, &last.key().to_string());
            users.iter().filter(|pod| wants_claims(pod)).for_each(|pod| wake.add(pod.key().clone()));
        }
    });
    let maker = ClaimMaker {
        client: context.client.clone(),
        recorder: context.recorder(COMPONENT),
        pods: pods.lister(),
        claims: claims.lister(),
        metrics: context.metrics.clone(),
    };
    vec![Box::new(wiring::controller(&ENTRY, options, queue, maker, [&pods, &claims]))]
}

/// Whether a pod that is not being deleted has ephemeral volumes.
fn wants_claims(pod: &Object) -> bool {
    !pod.meta().is_being_deleted()
        && claims_of(pod).is_some_and(|pod| pod.volumes().iter().any(|volume| volume.is_ephemeral()))
}

/// The claim templates of a pod.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Templates {
    spec: Spec,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Spec {
    volumes: Vec<Volume>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Volume {
    name: String,
    ephemeral: Option<Ephemeral>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Ephemeral {
    volume_claim_template: Template,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Template {
    metadata: Map<String, Value>,
    spec: Value,
}

struct ClaimMaker {
    client: Client,
    recorder: Recorder,
    pods: Lister<PodVolumes>,
    claims: Lister<Claim>,
    metrics: Metrics,
}

impl Reconciler for ClaimMaker {
    type Key = Key;

    async fn reconcile(&self, key: &Key) -> Result<Outcome, ReconcileError> {
        let Some(pod) = self.pods.get(key)?.filter(|pod| wants_claims(pod.object())) else {
            return Ok(Outcome::Settled);
        };
        let templates: Templates = pod.object().decode()?;
        for volume in &templates.spec.volumes {
            if let Some(ephemeral) = &volume.ephemeral {
                self.make(&pod, &volume.name, &ephemeral.volume_claim_template).await?;
            }
        }
        Ok(Outcome::Settled)
    }
}

impl ClaimMaker {
    async fn make(
        &self,
        pod: &Cached<PodVolumes>,
        volume: &str,
        template: &Template,
    ) -> Result<(), ReconcileError> {
        let name = format!("{}-{volume}", pod.key().name());
        let there = self.claims.objects().get(&pod.key().sibling(&*name));
        let failed = match there {
            Some(claim) if claim.meta().is_controlled_by(&pod.meta().uid) => return Ok(()),
            Some(claim) => Err(ReconcileError::retry(not_for(pod.key(), claim.key()))),
            None => {
                let body = claim_body(pod, &name, template);
                let created = self.client.create(&Kind::of::<Claim>(), pod.key().namespace(), &body).await;
                self.count("ephemeral_volume_controller_create", 1);
                self.count("ephemeral_volume_controller_create_failures", u64::from(created.is_err()));
                created.map(drop).attempting(format!("create PVC {name}"))
            }
        };
        if let Err(error) = &failed {
            let message = format!("ephemeral volume {volume}: {}", error.report());
            let kind = Kind::of::<PodVolumes>();
            self.recorder.event(&kind, pod.object(), EventType::Warning, "FailedBinding", message);
        }
        failed
    }
}

impl ClaimMaker {
    fn count(&self, name: &'static str, more: u64) {
        self.metrics.count(name, "Number of PersistentVolumeClaim creation requests", &[], more);
    }
}

fn not_for(pod: &Key, claim: &Key) -> String {
    format!("PVC {claim} was not created for pod {pod} (pod is not owner)")
}

/// Builds the claim of a template.
fn claim_body(pod: &Cached<PodVolumes>, name: &str, template: &Template) -> Value {
    let mut metadata = json!({
        "name": name,
        "ownerReferences": [controller_ref(&Kind::of::<PodVolumes>(), pod.meta())],
    });
    for field in ["annotations", "labels"] {
        if let Some(value) = template.metadata.get(field) {
            metadata[field] = value.clone();
        }
    }
    json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": template.spec})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::fixtures::cached;

    #[test]
    fn a_claim_is_its_template_with_the_pod_as_its_controller() {
        let pod = cached(json!({"metadata": {"name": "p", "namespace": "ns", "uid": "u"}}));
        let template: Template = serde_json::from_value(json!({
            "metadata": {"labels": {"t": "1"}, "annotations": {"n": "2"}, "creationTimestamp": null},
            "spec": {"accessModes": ["ReadWriteOnce"]},
        }))
        .expect("a template");
        let expected = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {
            "name": "p-scratch", "labels": {"t": "1"}, "annotations": {"n": "2"},
            "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u", "controller": true,
                "blockOwnerDeletion": true}],
        }, "spec": {"accessModes": ["ReadWriteOnce"]}});
        assert_eq!(claim_body(&pod, "p-scratch", &template), expected);
    }

    #[test]
    fn only_pods_that_stay_and_have_ephemeral_volumes_want_claims() {
        let check = |volumes: Value, deleted: Value, expected: bool| {
            let metadata = json!({"name": "p", "namespace": "ns", "deletionTimestamp": deleted});
            let pod = json!({"metadata": metadata, "spec": {"volumes": volumes}});
            assert_eq!(wants_claims(&Object::from_json(pod.to_string().into()).expect("a pod")), expected);
        };
        let own = || json!([{"name": "v", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}}]);
        check(own(), Value::Null, true);
        check(own(), json!("2025-01-01T00:00:00Z"), false);
        check(json!([{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]), Value::Null, false);
        check(json!([]), Value::Null, false);
    }
}
