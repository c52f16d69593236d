//! API objects that must exist before a pod's containers can be created: volumes and configuration.
//!
//! Read once, when a pod is about to start. The service account token, which most pods have, is assumed to exist.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::IgnoredAny;
use setpoint::Object;

/// The prefix of the service account token volume that every pod gets.
const TOKEN: &str = "kube-api-access-";

/// The pod fields that refer to sources.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Pod {
    spec: Spec,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    volumes: Vec<Volume>,
    containers: Vec<Container>,
    init_containers: Vec<Container>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Volume {
    name: Box<str>,
    config_map: Option<Named>,
    secret: Option<SecretName>,
    persistent_volume_claim: Option<ClaimName>,
    ephemeral: Option<IgnoredAny>,
    projected: Option<Projected>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Named {
    name: Box<str>,
    optional: bool,
    key: Option<Box<str>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SecretName {
    secret_name: Box<str>,
    optional: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ClaimName {
    claim_name: Box<str>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Projected {
    sources: Vec<Projection>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Projection {
    config_map: Option<Named>,
    secret: Option<Named>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Container {
    name: Box<str>,
    env: Vec<Variable>,
    env_from: Vec<Variables>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Variable {
    value_from: Option<ValueFrom>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ValueFrom {
    config_map_key_ref: Option<Named>,
    secret_key_ref: Option<Named>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Variables {
    config_map_ref: Option<Named>,
    secret_ref: Option<Named>,
}

/// An object that must exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Source {
    pub(crate) kind: SourceKind,
    pub(crate) name: Box<str>,
    /// A key it must contain.
    pub(crate) key: Option<Box<str>>,
    pub(crate) needed_by: NeededBy,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SourceKind {
    ConfigMap,
    Secret,
    Claim,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NeededBy {
    Volume(Box<str>),
    Container(Box<str>),
}

/// The relevant fields of a ConfigMap, Secret or claim.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct SourceObject {
    data: BTreeMap<Box<str>, IgnoredAny>,
    binary_data: BTreeMap<Box<str>, IgnoredAny>,
    status: SourceStatus,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct SourceStatus {
    phase: Box<str>,
}

/// Whether an encoded pod refers to anything except the CA certificate of its token volume. Most pods do not and need
/// not be decoded.
pub(crate) fn are_mentioned(pod: &Object) -> bool {
    const OTHERS: [&str; 6] = [
        "\"secret\":",
        "\"claimName\":",
        "\"ephemeral\":",
        "KeyRef\":",
        "\"configMapRef\":",
        "\"secretRef\":",
    ];
    let count = |text: &str| std::str::from_utf8(pod.raw()).map_or(1, |raw| raw.matches(text).count());
    OTHERS.iter().any(|field| pod.contains_text(field))
        || count("\"configMap\":") > count("\"name\":\"kube-root-ca.crt\"")
}

impl Pod {
    /// Lists the required sources, volumes first.
    pub(crate) fn sources(&self, pod_name: &str) -> Vec<Source> {
        let mut sources = Vec::new();
        for volume in self.spec.volumes.iter().filter(|volume| !volume.name.starts_with(TOKEN)) {
            volume.add_sources(pod_name, &mut sources);
        }
        for container in self.spec.init_containers.iter().chain(&self.spec.containers) {
            let mut add = |kind, named: &Option<Named>| {
                let needed_by = NeededBy::Container(container.name.clone());
                sources.extend(named.as_ref().and_then(|named| named.source(kind, needed_by)));
            };
            for all in &container.env_from {
                add(SourceKind::ConfigMap, &all.config_map_ref);
                add(SourceKind::Secret, &all.secret_ref);
            }
            for from in container.env.iter().filter_map(|variable| variable.value_from.as_ref()) {
                add(SourceKind::ConfigMap, &from.config_map_key_ref);
                add(SourceKind::Secret, &from.secret_key_ref);
            }
        }
        sources
    }
}

impl Volume {
    fn add_sources(&self, pod_name: &str, sources: &mut Vec<Source>) {
        let needed_by = || NeededBy::Volume(self.name.clone());
        let of = |kind, name: &str| Source { kind, name: name.into(), key: None, needed_by: needed_by() };
        let config_map = self.config_map.as_ref();
        sources.extend(config_map.and_then(|named| named.source(SourceKind::ConfigMap, needed_by())));
        if let Some(secret) = self.secret.as_ref().filter(|secret| !secret.optional) {
            sources.push(of(SourceKind::Secret, &secret.secret_name));
        }
        if let Some(claim) = &self.persistent_volume_claim {
            sources.push(of(SourceKind::Claim, &claim.claim_name));
        }
        if self.ephemeral.is_some() {
            sources.push(of(SourceKind::Claim, &format!("{pod_name}-{}", self.name)));
        }
        for projection in self.projected.iter().flat_map(|projected| &projected.sources) {
            let (config_map, secret) = (projection.config_map.as_ref(), projection.secret.as_ref());
            sources.extend(config_map.and_then(|named| named.source(SourceKind::ConfigMap, needed_by())));
            sources.extend(secret.and_then(|named| named.source(SourceKind::Secret, needed_by())));
        }
    }
}

impl Named {
    fn source(&self, kind: SourceKind, needed_by: NeededBy) -> Option<Source> {
        let source = || Source { kind, name: self.name.clone(), key: self.key.clone(), needed_by };
        (!self.optional).then(source)
    }
}

impl Source {
    /// Returns the kubelet's message for what is wrong with a source. `None` if it is usable.
    pub(crate) fn complaint(&self, namespace: &str, found: Option<&SourceObject>) -> Option<String> {
        let name = &self.name;
        let why = match (self.kind, found) {
            (SourceKind::ConfigMap, None) => format!("configmap {name:?} not found"),
            (SourceKind::Secret, None) => format!("secret {name:?} not found"),
            (SourceKind::Claim, None) => format!(
                "error processing PVC {namespace}/{name}: failed to fetch PVC from API server: persistentvolumeclaims {name:?} not found"
            ),
            (SourceKind::Claim, Some(claim)) if &*claim.status.phase != "Bound" => {
                format!("error processing PVC {namespace}/{name}: PVC is not bound")
            }
            (kind, Some(found)) => {
                let key = self.key.as_ref().filter(|key| !found.has(key))?;
                let kind = if kind == SourceKind::Secret { "Secret" } else { "ConfigMap" };
                format!("couldn't find key {key} in {kind} {namespace}/{name}")
            }
        };
        Some(match (&self.needed_by, self.kind) {
            (NeededBy::Container(_), _) => why,
            (NeededBy::Volume(volume), SourceKind::Claim) => format!(
                "Unable to attach or mount volumes: unmounted volumes=[{volume}], unattached volumes=[], failed to process volumes=[{volume}]: {why}"
            ),
            (NeededBy::Volume(volume), _) => {
                format!("MountVolume.SetUp failed for volume {volume:?} : {why}")
            }
        })
    }
}

impl SourceObject {
    fn has(&self, key: &str) -> bool {
        self.data.contains_key(key) || self.binary_data.contains_key(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn complaints(spec: Value, found: Option<Value>) -> Vec<String> {
        let encoded = json!({"metadata": {"name": "p"}, "spec": spec}).to_string();
        let encoded = Object::from_json(encoded.into()).expect("an object");
        let pod: Pod = encoded.decode().expect("a pod");
        assert_eq!(
            are_mentioned(&encoded),
            !pod.sources("p").is_empty() || spec.to_string().contains("optional")
        );
        let found: Option<SourceObject> =
            found.map(|found| serde_json::from_value(found).expect("an object"));
        let sources = pod.sources("p");
        sources.iter().filter_map(|source| source.complaint("ns", found.as_ref())).collect()
    }

    #[test]
    fn volumes_need_their_sources() {
        let volume = |fields: Value| {
            let mut volume = json!({"name": "v"});
            for (name, value) in fields.as_object().into_iter().flatten() {
                volume[name] = value.clone();
            }
            json!({"volumes": [volume, {"name": "kube-api-access-x", "projected": {"sources": [{"configMap": {"name": "kube-root-ca.crt"}}]}}]})
        };
        let setup = |why: &str| format!("MountVolume.SetUp failed for volume \"v\" : {why}");
        let check = |fields: Value, found: Option<Value>, expected: &[String]| {
            assert_eq!(complaints(volume(fields.clone()), found), expected, "{fields}");
        };
        check(json!({"emptyDir": {}}), None, &[]);
        check(json!({"configMap": {"name": "c"}}), None, &[setup("configmap \"c\" not found")]);
        check(json!({"configMap": {"name": "c", "optional": true}}), None, &[]);
        check(json!({"configMap": {"name": "c"}}), Some(json!({})), &[]);
        check(json!({"secret": {"secretName": "s"}}), None, &[setup("secret \"s\" not found")]);
        let projected = json!({"projected": {"sources": [{"secret": {"name": "s"}}]}});
        check(projected, None, &[setup("secret \"s\" not found")]);
        let unbound =
            complaints(volume(json!({"persistentVolumeClaim": {"claimName": "c"}})), Some(json!({})));
        assert!(unbound[0].ends_with("error processing PVC ns/c: PVC is not bound"), "{unbound:?}");
        let bound = json!({"status": {"phase": "Bound"}});
        check(json!({"ephemeral": {}}), Some(bound), &[]);
    }

    #[test]
    fn containers_need_their_config_sources() {
        let container = |fields: Value| {
            let mut container = json!({"name": "c"});
            for (name, value) in fields.as_object().into_iter().flatten() {
                container[name] = value.clone();
            }
            json!({"containers": [container]})
        };
        let key =
            |kind: &str| json!({"env": [{"name": "E", "valueFrom": {kind: {"name": "n", "key": "k"}}}]});
        assert_eq!(complaints(container(key("secretKeyRef")), None), ["secret \"n\" not found"]);
        let empty = Some(json!({"data": {}}));
        let missing = complaints(container(key("configMapKeyRef")), empty);
        assert_eq!(missing, ["couldn't find key k in ConfigMap ns/n"]);
        let there = Some(json!({"data": {"k": "v"}}));
        assert_eq!(complaints(container(key("configMapKeyRef")), there), Vec::<String>::new());
        let all = json!({"envFrom": [{"configMapRef": {"name": "n"}}, {"secretRef": {"name": "s", "optional": true}}]});
        assert_eq!(complaints(container(all), None), ["configmap \"n\" not found"]);
    }
}
