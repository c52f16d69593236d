//! Keeps a claim while a pod on a node uses it.
//!
//! The finalizer is removed only after an uncached search for pods. That takes a list of all pods of the namespace, so
//! the claims of a namespace are processed together: the key is the namespace.

use setpoint::finalizer::{FinalizerAction, finalizer_action};
use setpoint::reconcile::ErrorContext;
use setpoint::source::Selection;
use setpoint::{
    Cached, Client, Context, Event, Key, Kind, Lister, Object, Outcome, ReconcileError, Reconciler, Runnable,
};
use setpoint_volume::{Claim, PODS_BY_CLAIM, PodVolumes, claims_of, index_by_claim, is_terminated};

use super::{change, concerns, is_due};
use crate::registry::{Access, EVENTS, Entry, Options};
use crate::wiring;

pub(crate) const ENTRY: Entry = Entry {
    name: "persistentvolumeclaim-protection-controller",
    aliases: &["pvc-protection"],
    on_by_default: true,
    gates: &[],
    summary: "keeps claims that pods use",
    watches: &[Access::watch("", "persistentvolumeclaims"), Access::watch("", "pods")],
    writes: &[Access::to("", "persistentvolumeclaims", &["update"]), EVENTS],
    default_workers: 1,
    build,
};

const FINALIZER: &str = "kubernetes.io/pvc-protection";

fn build(context: &Context, options: &Options) -> Vec<Box<dyn Runnable>> {
    let claims = context.informers.of::<Claim>();
    let pods = context.informers.of::<PodVolumes>();
    index_by_claim(&pods);
    let queue = wiring::queue(context, "pvcprotection");
    let wake = queue.clone();
    claims.add_handler(move |event: &Event| {
        if concerns(event, FINALIZER) {
            wake.add(namespace_of(event.object()));
        }
    });
    let wake = queue.clone();
    pods.add_handler(move |event: &Event| {
        if may_release_claims(event) {
            wake.add(namespace_of(event.object()));
        }
    });
    let keeper = ClaimKeeper { client: context.client.clone(), claims: claims.lister(), pods: pods.lister() };
    vec![Box::new(wiring::controller(&ENTRY, options, queue, keeper, [&claims, &pods]))]
}

fn namespace_of(object: &Object) -> Key {
    Key::cluster(object.key().namespace().unwrap_or_default())
}

/// Whether a pod may have stopped using its claims. A pod on a node uses them until it is gone.
fn may_release_claims(event: &Event) -> bool {
    let Some(pod) = claims_of(event.object()) else { return false };
    let gone = matches!(event, Event::Deleted { .. });
    (gone || is_terminated(&pod) || pod.node().is_none())
        && pod.volumes().iter().any(|one| one.claim_name("").is_some())
}

struct ClaimKeeper {
    client: Client,
    claims: Lister<Claim>,
    pods: Lister<PodVolumes>,
}

impl Reconciler for ClaimKeeper {
    type Key = Key;

    async fn reconcile(&self, namespace: &Key) -> Result<Outcome, ReconcileError> {
        let claims = self.claims.objects().list(Some(namespace.name()));
        let due_ones: Vec<Object> = claims.into_iter().filter(|claim| is_due(claim, FINALIZER)).collect();
        let asks = |claim: &Object| finalizer_action(claim.meta(), FINALIZER) == FinalizerAction::CleanUp;
        let mut waiting = Vec::new();
        for claim in due_ones {
            if !asks(&claim) || !self.is_used_in_cache(&claim)? {
                waiting.push(claim);
            }
        }
        let pods = if waiting.iter().any(asks) { self.pods_of(namespace).await? } else { Vec::new() };
        let mut result = Ok(Outcome::Settled);
        for claim in &waiting {
            let due = change(claim, FINALIZER, || pods.iter().any(|pod| uses(pod, claim)));
            if let Err(error) = self.make(claim, due).await {
                result = Err(error);
            }
        }
        result
    }
}

impl ClaimKeeper {
    fn is_used_in_cache(&self, claim: &Object) -> Result<bool, ReconcileError> {
        let pods = self.pods.indexed(PODS_BY_CLAIM, &claim.key().to_string())?;
        Ok(pods.iter().any(|pod| uses(pod, claim)))
    }

    /// Lists the pods of a namespace that have claims, uncached.
    async fn pods_of(&self, namespace: &Key) -> Result<Vec<Cached<PodVolumes>>, ReconcileError> {
        let selection = Selection { namespace: Some(namespace.name().to_owned()), ..Selection::default() };
        let listed = self.client.list(&Kind::of::<PodVolumes>(), &selection).await;
        let listed = listed.attempting(format!("list the pods of namespace {namespace} uncached"))?;
        Ok(listed.objects.iter().filter_map(claims_of).collect())
    }

    async fn make(&self, claim: &Object, finalizers: Option<Vec<String>>) -> Result<(), ReconcileError> {
        super::make(&self.client, &Kind::of::<Claim>(), claim, finalizers).await.map(drop)
    }
}

/// Whether a scheduled pod uses a claim. The claim of its ephemeral volume is unused once the pod has shut down.
fn uses(pod: &Cached<PodVolumes>, claim: &Object) -> bool {
    let meta = pod.meta();
    let shut_down = meta.is_being_deleted() && meta.deletion_grace_period_seconds == Some(0);
    let for_pod = claim.meta().is_controlled_by(&meta.uid);
    pod.node().is_some()
        && pod.key().namespace() == claim.key().namespace()
        && pod.volumes().iter().any(|volume| {
            volume.claim_name(pod.key().name()).as_deref() == Some(claim.key().name())
                && (!volume.is_ephemeral() || (!shut_down && for_pod))
        })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::workload::fixtures::cached;

    #[test]
    fn a_pod_uses_its_claims_while_it_is_on_a_node() {
        let check = |node: &str, volume: Value, metadata: Value, owner: &str, expected: bool| {
            let owners =
                json!([{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": owner, "controller": true}]);
            let claim = json!({"metadata": {"name": "c", "namespace": "ns", "ownerReferences": owners}});
            let claim = Object::from_json(claim.to_string().into()).expect("a claim");
            let mut metadata = metadata;
            metadata["name"] = json!("p");
            metadata["namespace"] = json!("ns");
            metadata["uid"] = json!("u");
            let pod = cached(json!({"metadata": metadata, "spec": {"nodeName": node, "volumes": [volume]},
                "status": {"phase": "Succeeded"}}));
            assert_eq!(uses(&pod, &claim), expected, "{volume} on {node:?}");
        };
        let named = |claim: &str| json!({"name": "v", "persistentVolumeClaim": {"claimName": claim}});
        check("n", named("c"), json!({}), "u", true);
        check("", named("c"), json!({}), "u", false);
        check("n", named("d"), json!({}), "u", false);
        let made = || json!({"name": "c", "ephemeral": {}});
        check("n", made(), json!({}), "u", false);
        let shut_down = json!({"deletionTimestamp": "2025-01-01T00:00:00Z", "deletionGracePeriodSeconds": 0});
        check("n", named("c"), shut_down, "u", true);
    }
}
