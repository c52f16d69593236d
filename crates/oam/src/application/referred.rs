//! Existing objects that components of the type `ref-objects` copy. They are recorded in the revision: an application
//! changes when it is edited, not when the objects that it refers to change.

use serde::Deserialize;
use serde_json::{Map, Value, json};
use setpoint::Kind;

use crate::apply::cluster::{Cluster, ClusterError};
use crate::apply::identity::Identity;
use crate::clusters::Clusters;
use crate::model::{Component, Spec};
use crate::names;

/// The type of components that copy objects.
const TYPE: &str = "ref-objects";
/// The maximum number of objects that one application copies.
const MOST: usize = 500;

/// The objects that a component copies.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Referrer {
    resource: String,
    group: String,
    api_version: String,
    kind: String,
    name: String,
    namespace: String,
    cluster: String,
    label_selector: Map<String, Value>,
}

fn referring(spec: &Spec) -> impl Iterator<Item = &Component> {
    spec.components.iter().filter(|component| names::without_revision(&component.kind) == TYPE)
}

fn referrers(component: &Component) -> Result<Vec<Referrer>, String> {
    let at = |why: String| format!("component {}: {why}", component.name);
    if component.properties["urls"].as_array().is_some_and(|urls| !urls.is_empty()) {
        return Err(at("properties.urls is not supported".to_owned()));
    }
    let objects = component.properties["objects"].as_array().into_iter().flatten();
    let parsed = objects.map(|object| {
        let mut referrer =
            Referrer::deserialize(object).map_err(|why| format!("properties.objects: {why}"))?;
        if referrer.name.is_empty() && referrer.label_selector.is_empty() {
            referrer.name.clone_from(&component.name);
        }
        Ok(referrer)
    });
    parsed.collect::<Result<_, String>>().map_err(at)
}

impl Referrer {
    async fn served(&self, cluster: &Cluster) -> Result<Kind, ClusterError> {
        match self.kind.is_empty() {
            false => cluster.kind(&self.api_version, &self.kind).await,
            true => cluster.resource(&self.group, &self.resource).await,
        }
    }

    fn namespace<'a>(&'a self, own: &'a str) -> &'a str {
        if self.namespace.is_empty() { own } else { &self.namespace }
    }

    fn selector(&self) -> String {
        let term =
            |(name, value): (&String, &Value)| format!("{name}={}", value.as_str().unwrap_or_default());
        self.label_selector.iter().map(term).collect::<Vec<_>>().join(",")
    }

    async fn read(&self, cluster: &Cluster, own: &str) -> Result<Vec<Value>, ClusterError> {
        let (kind, namespace) = (self.served(cluster).await?, self.namespace(own));
        if self.name.is_empty() {
            return cluster.list(&kind, Some(namespace), Some(self.selector())).await;
        }
        let of = Identity::of(&kind, &json!({"metadata": {"name": self.name}}), namespace);
        let found = cluster.get(&of).await?;
        found.map(|object| vec![object]).ok_or_else(|| ClusterError::Refused(format!("{of} not found")))
    }
}

/// Reads the objects that an application copies, by component. The inner error says what is missing.
pub(super) async fn read(
    clusters: &Clusters,
    namespace: &str,
    spec: &Spec,
) -> Result<Result<Map<String, Value>, String>, ClusterError> {
    let (mut all, mut count) = (Map::new(), 0);
    for component in referring(spec) {
        let wanted = match referrers(component) {
            Ok(wanted) => wanted,
            Err(why) => return Ok(Err(why)),
        };
        let mut objects = Vec::new();
        for referrer in wanted {
            let cluster = match clusters.get(&referrer.cluster) {
                Err(ClusterError::NoCluster { cluster }) => {
                    return Ok(Err(format!("component {}: cluster {cluster:?} not found", component.name)));
                }
                cluster => cluster?,
            };
            let kind = match referrer.served(&cluster).await {
                Err(ClusterError::NoKind { api_version, kind }) => {
                    let shown = format!("{api_version} {kind}");
                    return Ok(Err(format!("component {}: {} is not served", component.name, shown.trim())));
                }
                kind => kind?,
            };
            let found = match referrer.read(&cluster, namespace).await {
                Err(ClusterError::Refused(why)) => {
                    return Ok(Err(format!("component {}: {why}", component.name)));
                }
                found => found?,
            };
            objects.extend(found.into_iter().map(|object| copied(&kind, object)));
        }
        count += objects.len();
        if count > MOST {
            return Ok(Err(format!(
                "component {}: more than {MOST} objects are referred to",
                component.name
            )));
        }
        all.insert(component.name.clone(), objects.into());
    }
    Ok(Ok(all))
}

/// Replaces the references with the recorded objects.
pub(super) fn fill(spec: &mut Spec, recorded: &Map<String, Value>) {
    for component in &mut spec.components {
        if let Some(objects) = recorded.get(&component.name) {
            component.properties = json!({"objects": objects});
        }
    }
}

/// Returns the copied part of an object, without fields set by the server or its owner.
fn copied(kind: &Kind, mut object: Value) -> Value {
    let meta = &object["metadata"];
    let own = |part: &str| -> Map<String, Value> {
        let all = meta[part].as_object().into_iter().flatten();
        let is_own = |name: &str| {
            !name.contains("oam.dev/") && name != "kubectl.kubernetes.io/last-applied-configuration"
        };
        all.filter(|(name, _)| is_own(name)).map(|(name, value)| (name.clone(), value.clone())).collect()
    };
    let mut copied = json!({"name": meta["name"]});
    for part in ["labels", "annotations"] {
        let kept = own(part);
        if !kept.is_empty() {
            copied[part] = kept.into();
        }
    }
    object["metadata"] = copied;
    object["apiVersion"] = kind.api_version().into();
    object["kind"] = kind.kind().into();
    if let Some(fields) = object.as_object_mut() {
        fields.remove("status");
    }
    let headless = object["spec"]["clusterIP"] == "None";
    if kind.group().is_empty() && kind.kind() == "Service" && !headless {
        for field in ["clusterIP", "clusterIPs"] {
            crate::apply::paths::remove(&mut object, &format!("spec.{field}"));
        }
    }
    object
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_server_gives_is_not_copied() {
        let services = Kind::new("", "v1", "Service", "services", true);
        let object = json!({
            "metadata": {"name": "a", "namespace": "x", "uid": "1", "resourceVersion": "2", "labels": {"app.oam.dev/name": "b", "team": "c"}},
            "spec": {"clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"], "ports": []}, "status": {"loadBalancer": {}},
        });
        let expected = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a", "labels": {"team": "c"}}, "spec": {"ports": []}});
        assert_eq!(copied(&services, object), expected);
    }
}
