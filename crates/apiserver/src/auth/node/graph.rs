//! The objects that the pods on each node refer to, maintained from the store's watch history.
//!
//! ```text
//!  secret, config map, account, device claim ──► pod ──► node
//!  secret ──► volume ──► claim ───────────────► pod ──► node
//! ```
//!
//! Only pods assigned to a node are included. Mirror pods refer to nothing, because nodes create them. Memory: an
//! entry per reference of a pod on a node and per bound volume, about 200 bytes each.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use setpoint_store::{Record, Resource};

use crate::auth::store_view::View;
use crate::json::Json;
use crate::kinds::pod::references::{self, MIRROR};

/// The kind of an object that a pod refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Referred {
    Secret,
    ConfigMap,
    Claim,
    DeviceClaim,
    Account,
}

/// The namespace and name of an object.
type NamespacedName = (Box<str>, Box<str>);

/// Nodes, with the number of their pods that refer to an object.
type Nodes = BTreeMap<Box<str>, usize>;

#[derive(Default)]
pub(super) struct Graph {
    /// Pods assigned to nodes, by `namespace/name`.
    pods: BTreeMap<Box<str>, Pod>,
    /// The nodes of the pods that refer to each object.
    nodes: BTreeMap<(Referred, NamespacedName), Nodes>,
    /// Bound volumes, by name.
    volumes: BTreeMap<Box<str>, Volume>,
    /// The volumes that need each secret to be mounted.
    volumes_of_secrets: BTreeMap<NamespacedName, BTreeSet<Box<str>>>,
}

#[derive(Debug, PartialEq, Eq)]
struct Pod {
    node: Box<str>,
    refers_to: BTreeSet<(Referred, NamespacedName)>,
}

struct Volume {
    claim: NamespacedName,
    secrets: BTreeSet<NamespacedName>,
}

#[derive(Clone, Copy)]
pub(super) enum Source {
    Pods,
    Volumes,
}

impl View for Graph {
    type Source = Source;

    fn sources() -> Vec<(Source, Resource)> {
        vec![(Source::Pods, Resource::new("pods")), (Source::Volumes, Resource::new("persistentvolumes"))]
    }

    fn apply(&mut self, source: Source, record: &Record, is_there: bool) {
        let object = || serde_json::from_slice::<Value>(&record.value).ok().filter(|_| is_there);
        match source {
            Source::Pods => self.set_pod(&record.key.path, object().as_ref().and_then(pod)),
            Source::Volumes => self.set_volume(&record.key.path, object().as_ref().and_then(volume)),
        }
    }
}

impl Graph {
    /// Whether a pod on the node refers to the object or, for a secret, uses a volume that does.
    pub(super) fn refers(&self, node: &str, referred: Referred, namespace: &str, name: &str) -> bool {
        let place = (namespace.into(), name.into());
        let of_volumes = || {
            let mut volumes = self.volumes_of_secrets.get(&place).into_iter().flatten();
            volumes.any(|volume| self.mounts(node, volume))
        };
        let has_secret = referred == Referred::Secret && of_volumes();
        has_secret || self.nodes.get(&(referred, place)).is_some_and(|nodes| nodes.contains_key(node))
    }

    /// Whether a pod on the node refers to the claim that the volume is bound to.
    pub(super) fn mounts(&self, node: &str, volume: &str) -> bool {
        let Some(volume) = self.volumes.get(volume) else { return false };
        let nodes = self.nodes.get(&(Referred::Claim, volume.claim.clone()));
        nodes.is_some_and(|nodes| nodes.contains_key(node))
    }

    fn set_pod(&mut self, path: &str, pod: Option<Pod>) {
        if self.pods.get(path) == pod.as_ref() {
            return;
        }
        if let Some(old) = self.pods.remove(path) {
            for reference in old.refers_to {
                self.forget(reference, &old.node);
            }
        }
        let Some(pod) = pod else { return };
        for reference in &pod.refers_to {
            let nodes = self.nodes.entry(reference.clone()).or_default();
            *nodes.entry(pod.node.clone()).or_default() += 1;
        }
        self.pods.insert(path.into(), pod);
    }

    fn forget(&mut self, reference: (Referred, NamespacedName), node: &str) {
        let Some(nodes) = self.nodes.get_mut(&reference) else { return };
        match nodes.get_mut(node) {
            Some(pods) if *pods > 1 => *pods -= 1,
            _ => _ = nodes.remove(node),
        }
        if nodes.is_empty() {
            self.nodes.remove(&reference);
        }
    }

    fn set_volume(&mut self, name: &str, volume: Option<Volume>) {
        for secret in self.volumes.remove(name).into_iter().flat_map(|old| old.secrets) {
            if let Some(volumes) = self.volumes_of_secrets.get_mut(&secret) {
                volumes.remove(name);
                if volumes.is_empty() {
                    self.volumes_of_secrets.remove(&secret);
                }
            }
        }
        let Some(volume) = volume else { return };
        for secret in &volume.secrets {
            self.volumes_of_secrets.entry(secret.clone()).or_default().insert(name.into());
        }
        self.volumes.insert(name.into(), volume);
    }
}

/// Reads a pod's references; `None` unless it is assigned to a node.
fn pod(pod: &Value) -> Option<Pod> {
    let (metadata, spec) = (pod.at("metadata"), pod.at("spec"));
    let node = Some(spec.text("nodeName")).filter(|node| !node.is_empty())?;
    let namespace = metadata.text("namespace");
    let mut refers_to = BTreeSet::new();
    if !metadata.at("annotations").has(MIRROR) {
        let mut add = |referred: Referred, name: &str| {
            if !name.is_empty() {
                refers_to.insert((referred, (namespace.into(), name.into())));
            }
        };
        add(Referred::Account, spec.text("serviceAccountName"));
        references::secrets(spec).into_iter().for_each(|name| add(Referred::Secret, name));
        references::config_maps(spec).into_iter().for_each(|name| add(Referred::ConfigMap, name));
        references::claims(pod).iter().for_each(|name| add(Referred::Claim, name));
        references::device_claims(pod).into_iter().for_each(|name| add(Referred::DeviceClaim, name));
    }
    Some(Pod { node: node.into(), refers_to })
}

/// Reads the claim that a volume is bound to, and the secrets that a node needs to mount it.
fn volume(volume: &Value) -> Option<Volume> {
    const REFERENCES: [&str; 4] =
        ["secretRef", "nodePublishSecretRef", "nodeStageSecretRef", "nodeExpandSecretRef"];
    let claim = volume.at("spec").at("claimRef");
    if !claim.is_object() {
        return None;
    }
    let of_claim = claim.text("namespace");
    let place = |found: &Value, namespace: &str, name: &str| {
        let within = Some(found.text(namespace)).filter(|within| !within.is_empty()).unwrap_or(of_claim);
        Some((within.into(), found.text(name).into())).filter(|(_, name): &NamespacedName| !name.is_empty())
    };
    let sources = volume.at("spec").as_object().into_iter().flatten();
    let secrets = sources.flat_map(|(_, source)| {
        let named = REFERENCES.map(|field| place(source.at(field), "namespace", "name"));
        named.into_iter().chain([place(source, "secretNamespace", "secretName")]).flatten()
    });
    Some(Volume { claim: (of_claim.into(), claim.text("name").into()), secrets: secrets.collect() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn volume_of(source: Value) -> Volume {
        volume(&json!({"spec": {"claimRef": {"namespace": "ns", "name": "c"}, "source": source}})).unwrap()
    }

    fn pod_on(node: &str, spec: Value) -> Value {
        let mut pod = json!({"metadata": {"name": "p", "namespace": "ns"}, "spec": spec});
        pod["spec"]["nodeName"] = node.into();
        pod
    }

    #[test]
    fn a_volume_needs_the_secrets_that_its_node_shows() {
        let needs = |source: Value, namespace: &str| {
            volume_of(source).secrets.contains(&(namespace.into(), "s".into()))
        };
        let own = json!({"secretRef": {"name": "s"}});
        assert!(needs(own.clone(), "ns") && !needs(own, "other"));
        let other = json!({"nodeStageSecretRef": {"name": "s", "namespace": "other"}});
        assert!(needs(other.clone(), "other") && !needs(other, "ns"));
        assert!(needs(json!({"secretName": "s"}), "ns"));
        assert!(!needs(json!({"controllerPublishSecretRef": {"name": "s", "namespace": "ns"}}), "ns"));
    }

    #[test]
    fn a_mirror_pod_grants_its_node_no_access() {
        let mut mirror = pod_on("n", json!({"serviceAccountName": "robot"}));
        assert_eq!(pod(&mirror).unwrap().refers_to.len(), 1);
        mirror["metadata"]["annotations"] = json!({MIRROR: "x"});
        assert!(pod(&mirror).unwrap().refers_to.is_empty());
    }

    #[test]
    fn an_object_is_referred_to_until_the_last_pod_is_gone() {
        let mut graph = Graph::default();
        let mounts = json!({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]});
        let refers = |graph: &Graph, node: &str| {
            let secret = graph.refers(node, Referred::Secret, "ns", "s");
            (graph.refers(node, Referred::Claim, "ns", "c"), graph.mounts(node, "pv"), secret)
        };
        graph.set_pod("ns/a", pod(&pod_on("n", mounts.clone())));
        graph.set_pod("ns/b", pod(&pod_on("n", mounts)));
        assert_eq!(refers(&graph, "n"), (true, false, false));
        graph.set_volume("pv", Some(volume_of(json!({"secretRef": {"name": "s"}}))));
        assert_eq!(refers(&graph, "n"), (true, true, true));
        assert_eq!(refers(&graph, "other"), (false, false, false));
        graph.set_pod("ns/a", None);
        assert_eq!(refers(&graph, "n"), (true, true, true));
        graph.set_pod("ns/b", None);
        graph.set_volume("pv", None);
        assert_eq!(refers(&graph, "n"), (false, false, false));
        assert!(graph.nodes.is_empty() && graph.volumes_of_secrets.is_empty());
    }
}
