//! The claims that a pod uses.
//!
//! Most pods use none, and there are many pods. A search of the encoded pod finds out without decoding it.

use std::sync::Arc;

use serde::Deserialize;
use setpoint::indexer::{IndexFn, Indexer};
use setpoint::object::DecodeError;
use setpoint::{Cached, Informer, Key, Lister, Object};

use crate::{Claim, Volume};

/// The common part of `persistentVolumeClaim` and `volumeClaimTemplate`. Field names are never written with escapes.
const MENTIONS_CLAIM: &str = "olumeClaim";

/// Index of pods by the keys of their claims.
pub const PODS_BY_CLAIM: &str = "claim";

/// A pod's volumes with claims.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct PodVolumes {
    spec: Spec,
    status: Status,
}

setpoint::view!(PodVolumes of k8s_openapi::api::core::v1::Pod);

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    node_name: Box<str>,
    volumes: Option<Vec<PodVolume>>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    phase: Box<str>,
    container_statuses: Option<Vec<ContainerStatus>>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct ContainerStatus {
    state: State,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
struct State {
    waiting: Option<Present>,
    terminated: Option<Present>,
}

/// Only the presence of the field matters.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
struct Present {}

/// A volume of a pod. Volumes without a claim have no data here.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodVolume {
    pub name: Box<str>,
    persistent_volume_claim: Option<ClaimSource>,
    ephemeral: Option<Present>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ClaimSource {
    claim_name: Box<str>,
}

impl PodVolumes {
    pub fn node(&self) -> Option<&str> {
        Some(&*self.spec.node_name).filter(|node| !node.is_empty())
    }

    pub fn has_ended(&self) -> bool {
        matches!(&*self.status.phase, "Succeeded" | "Failed")
    }

    pub fn volumes(&self) -> &[PodVolume] {
        self.spec.volumes.as_deref().unwrap_or_default()
    }
}

impl PodVolume {
    /// Returns the name of its claim, if it has one.
    pub fn claim_name(&self, pod: &str) -> Option<String> {
        match (&self.persistent_volume_claim, &self.ephemeral) {
            (Some(source), _) => Some(source.claim_name.to_string()),
            (None, Some(_)) => Some(format!("{pod}-{}", self.name)),
            (None, None) => None,
        }
    }

    /// Whether the claim is generated for the pod.
    pub fn is_ephemeral(&self) -> bool {
        self.persistent_volume_claim.is_none() && self.ephemeral.is_some()
    }

    /// Whether it uses this claim: the name matches and, for an ephemeral volume, the claim was generated for this pod.
    pub fn refers_to(&self, pod: &Object, claim: &Object) -> bool {
        self.claim_name(pod.key().name()).as_deref() == Some(claim.key().name())
            && (!self.is_ephemeral() || claim.meta().is_controlled_by(&pod.meta().uid))
    }
}

/// Whether a pod no longer runs: it has finished, or it is being deleted and its containers have stopped.
pub fn is_terminated(pod: &Cached<PodVolumes>) -> bool {
    let stopped = |one: &ContainerStatus| one.state.waiting.is_some() || one.state.terminated.is_some();
    let mut containers = pod.status.container_statuses.iter().flatten();
    pod.has_ended() || (pod.meta().is_being_deleted() && containers.all(stopped))
}

/// Returns the PersistentVolume behind a pod's volume, if claim and volume are bound to each other.
pub fn bound_volume(
    pod: &Cached<PodVolumes>,
    volume: &PodVolume,
    claims: &Lister<Claim>,
    volumes: &Lister<Volume>,
) -> Result<Option<Cached<Volume>>, DecodeError> {
    let Some(name) = volume.claim_name(pod.key().name()) else { return Ok(None) };
    let claim = claims.get(&pod.key().sibling(name))?;
    let is_bound = |claim: &Cached<Claim>| {
        volume.refers_to(pod.object(), claim.object()) && &*claim.status.phase == "Bound"
    };
    let Some(claim) = claim.filter(is_bound) else { return Ok(None) };
    let bound = volumes.get(&Key::cluster(&*claim.spec.volume_name))?;
    let points_back = |volume: &Cached<Volume>| {
        volume.spec.claim_ref.as_ref().is_some_and(|reference| reference.uid == claim.meta().uid)
    };
    Ok(bound.filter(points_back))
}

/// Decodes the pod if it may use claims.
pub fn claims_of(pod: &Object) -> Option<Cached<PodVolumes>> {
    if !pod.contains_text(MENTIONS_CLAIM) {
        return None;
    }
    Cached::new(pod.clone()).ok()
}

/// Lists the keys of the claims that a pod uses.
pub fn claim_keys(pod: &Object) -> impl Iterator<Item = Key> {
    let names: Vec<String> = claims_of(pod)
        .map(|view| view.volumes().iter().filter_map(|volume| volume.claim_name(pod.key().name())).collect())
        .unwrap_or_default();
    names.into_iter().map(|name| pod.key().sibling(name))
}

/// Adds the index of pods by claim: [`PODS_BY_CLAIM`].
pub fn index_by_claim(pods: &Informer) {
    index_pod_cache(pods.lister::<PodVolumes>().objects());
}

/// Adds the index to a cache without an informer.
pub fn index_pod_cache(pods: &Indexer) {
    let values: IndexFn = Arc::new(|pod| claim_keys(pod).map(|claim| claim.to_string()).collect());
    pods.add_index(PODS_BY_CLAIM, values);
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn the_claims_of_a_pod_are_those_it_names_and_those_made_for_it() {
        let check = |volumes: Value, expected: &[&str]| {
            let pod = json!({"metadata": {"name": "p", "namespace": "ns"}, "spec": {"volumes": volumes}});
            let pod = Object::from_json(pod.to_string().into()).expect("a pod");
            let keys: Vec<String> = claim_keys(&pod).map(|key| key.to_string()).collect();
            assert_eq!(keys, expected, "{volumes}");
        };
        check(Value::Null, &[]);
        check(json!([{"name": "a", "emptyDir": {}}]), &[]);
        check(json!([{"name": "olumeClaim", "emptyDir": {}}]), &[]);
        check(json!([{"name": "a", "persistentVolumeClaim": {"claimName": "c"}}]), &["ns/c"]);
        check(
            json!([{"name": "a", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}},
                   {"name": "b", "persistentVolumeClaim": {"claimName": "c"}}]),
            &["ns/p-a", "ns/c"],
        );
    }

    #[test]
    fn a_pods_volume_leads_to_the_volume_of_its_claim_and_back() {
        let check = |volume: Value, claim: Value, reference: Value, expected: bool| {
            let object = |value: Value| Object::from_json(value.to_string().into()).expect("an object");
            let meta = json!({"name": "p", "namespace": "ns", "uid": "pod"});
            let pod = object(json!({"metadata": meta, "spec": {"volumes": [volume]}}));
            let pod = Cached::<PodVolumes>::new(pod).expect("a pod");
            let pv = json!({"metadata": {"name": "pv"}, "spec": {"claimRef": reference}});
            let (claims, volumes) =
                (Lister::from_objects([object(claim)]), Lister::from_objects([object(pv)]));
            let found = bound_volume(&pod, &pod.volumes()[0], &claims, &volumes).expect("all can be read");
            assert_eq!(found.is_some(), expected, "{:?}", pod.object());
        };
        let claim = |phase: &str, owner: &str| {
            let owner =
                json!({"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": owner, "controller": true});
            let meta = json!({"name": "p-a", "namespace": "ns", "uid": "claim", "ownerReferences": [owner]});
            json!({"metadata": meta, "spec": {"volumeName": "pv"}, "status": {"phase": phase}})
        };
        let reference = |uid: &str| json!({"namespace": "ns", "name": "p-a", "uid": uid});
        let named = || json!({"name": "x", "persistentVolumeClaim": {"claimName": "p-a"}});
        let made = || json!({"name": "a", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}});
        check(named(), claim("Bound", "another"), reference("claim"), true);
        check(named(), claim("Pending", "another"), reference("claim"), false);
        check(named(), claim("Bound", "another"), reference("older"), false);
        check(made(), claim("Bound", "pod"), reference("claim"), true);
        check(made(), claim("Bound", "another"), reference("claim"), false);
        check(json!({"name": "a", "emptyDir": {}}), claim("Bound", "pod"), reference("claim"), false);
    }
}
