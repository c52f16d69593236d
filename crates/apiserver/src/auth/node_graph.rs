//! What the pods on each node refer to, followed through the store's own history.
//!
//! A node may read what its pods refer to. Looking that up in all pods of a namespace would cost a scan for every
//! ConfigMap that a node reads, so the references are kept by node: a decision looks at the pods of one node and
//! namespace only. Like the roles, the graph is brought up to the newest revision before it is asked. It holds one
//! entry per bound pod: its path and a few names, some 200 bytes.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::RwLock;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;
use setpoint_store::{Error, EventKind, ListOptions, Record, Resource, Revision, Store, Watch, WatchError};

use crate::json::Json;
use crate::kinds::pod::references::{self, MIRROR};

/// A kind of object that a pod refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Referred {
    Secret,
    ConfigMap,
    Claim,
    DeviceClaim,
    Account,
}

type Reference = (Referred, Box<str>);

pub(super) struct Graph {
    store: Arc<dyn Store>,
    /// Built when a node first asks for something that depends on its pods.
    fed: RwLock<Option<Fed>>,
}

/// The graph and its place in the store's history.
struct Fed {
    by_node: BTreeMap<Box<str>, BTreeMap<Box<str>, Pod>>,
    revision: Revision,
    watch: Watch,
}

/// What is kept of a bound pod.
struct Pod {
    uid: Box<str>,
    generation: i64,
    has_device_claims: bool,
    references: Box<[Reference]>,
}

impl Graph {
    pub(super) fn new(store: Arc<dyn Store>) -> Self {
        Self { store, fed: RwLock::new(None) }
    }

    /// Whether a pod on the node refers to this. Nothing can be said if the pods cannot be read.
    pub(super) async fn refers(
        &self,
        node: &str,
        referred: Referred,
        namespace: &str,
        name: &str,
    ) -> Result<bool, Error> {
        if !self.catch_up() {
            let loaded = Fed::load(&*self.store).await?;
            *self.fed.write() = Some(loaded);
        }
        let fed = self.fed.read();
        Ok(fed.as_ref().is_some_and(|fed| fed.refers(node, referred, namespace, name)))
    }

    /// Whether the graph is there and shows the newest revision now.
    fn catch_up(&self) -> bool {
        let newest = self.store.revision();
        if self.fed.read().as_ref().is_some_and(|fed| fed.revision >= newest) {
            return true;
        }
        self.fed.write().as_mut().is_some_and(|fed| fed.catch_up(newest).is_ok())
    }
}

impl Fed {
    async fn load(store: &dyn Store) -> Result<Self, Error> {
        let range = Resource::new("pods").all();
        let page = store.list(&range, ListOptions::default()).await?;
        let watch = store.watch(range, page.revision)?;
        let mut fed = Self { by_node: BTreeMap::new(), revision: page.revision, watch };
        for record in &page.records {
            fed.apply(record, true);
        }
        Ok(fed)
    }

    /// Applies what has happened up to `newest`; fails where the history no longer reaches back.
    fn catch_up(&mut self, newest: Revision) -> Result<(), WatchError> {
        loop {
            let events = match self.watch.try_next() {
                Ok(Some(events)) => events,
                Ok(None) | Err(WatchError::Closed) => break,
                Err(behind) => return Err(behind),
            };
            for event in events {
                self.apply(&event.record, event.kind != EventKind::Deleted);
            }
        }
        self.revision = newest;
        Ok(())
    }

    fn apply(&mut self, record: &Record, is_there: bool) {
        let Ok(glimpse) = serde_json::from_slice::<Glimpse>(&record.value) else { return };
        let node = &*glimpse.spec.node_name;
        if node.is_empty() {
            return;
        }
        let path = &*record.key.path;
        if !is_there {
            let left = self.by_node.get_mut(node).map(|pods| {
                pods.remove(path);
                pods.is_empty()
            });
            if left == Some(true) {
                self.by_node.remove(node);
            }
            return;
        }
        // Only its spec and the claims made for it say what a pod refers to: most changes are of its status.
        let known = self.by_node.get(node).and_then(|pods| pods.get(path));
        if known.is_some_and(|pod| glimpse.refers_as(pod)) {
            return;
        }
        let Some(pod) = Pod::read(record, &glimpse) else { return };
        self.by_node.entry(node.into()).or_default().insert(path.into(), pod);
    }

    fn refers(&self, node: &str, referred: Referred, namespace: &str, name: &str) -> bool {
        let Some(pods) = self.by_node.get(node) else { return false };
        let prefix = format!("{namespace}/");
        pods.range::<str, _>((std::ops::Bound::Included(&*prefix), std::ops::Bound::Unbounded))
            .take_while(|(path, _)| path.starts_with(&prefix))
            .flat_map(|(_, pod)| &pod.references)
            .any(|(kind, to)| *kind == referred && **to == *name)
    }
}

impl Pod {
    fn read(record: &Record, glimpse: &Glimpse) -> Option<Self> {
        let pod: Value = serde_json::from_slice(&record.value).ok()?;
        Some(Self {
            uid: glimpse.metadata.uid.clone(),
            generation: glimpse.metadata.generation,
            has_device_claims: glimpse.status.has_device_claims(),
            references: references(&pod),
        })
    }
}

/// What a pod refers to. A mirror of what a node runs anyway is of the node's own making: it counts for nothing.
fn references(pod: &Value) -> Box<[Reference]> {
    if pod.at("metadata").at("annotations").has(MIRROR) {
        return Box::default();
    }
    let spec = pod.at("spec");
    let of = |kind: Referred, names: Vec<&str>| names.into_iter().map(|name| (kind, name.into())).collect();
    let mut all: Vec<Reference> = of(Referred::Secret, references::secrets(spec));
    all.extend::<Vec<Reference>>(of(Referred::ConfigMap, references::config_maps(spec)));
    all.extend::<Vec<Reference>>(of(Referred::DeviceClaim, references::device_claims(pod)));
    all.extend::<Vec<Reference>>(of(Referred::Account, vec![spec.text("serviceAccountName")]));
    all.extend(references::claims(pod).into_iter().map(|claim| (Referred::Claim, claim.into())));
    all.into()
}

/// What tells whether a pod's references have to be read again.
#[derive(Deserialize)]
struct Glimpse {
    #[serde(default)]
    metadata: GlimpseMetadata,
    #[serde(default)]
    spec: GlimpseSpec,
    #[serde(default)]
    status: GlimpseStatus,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct GlimpseMetadata {
    uid: Box<str>,
    generation: i64,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct GlimpseSpec {
    #[serde(rename = "nodeName")]
    node_name: Box<str>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct GlimpseStatus {
    resource_claim_statuses: Option<IgnoredAny>,
    extended_resource_claim_status: Option<IgnoredAny>,
}

impl GlimpseStatus {
    fn has_device_claims(&self) -> bool {
        self.resource_claim_statuses.is_some() || self.extended_resource_claim_status.is_some()
    }
}

impl Glimpse {
    fn refers_as(&self, pod: &Pod) -> bool {
        pod.uid == self.metadata.uid
            && pod.generation == self.metadata.generation
            && !pod.has_device_claims
            && !self.status.has_device_claims()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use setpoint_clock::Clock;
    use setpoint_store::{Change, Expect, MemoryStore, Payload, Write};

    fn pod(node: &str, spec: Value, status: Value) -> Value {
        let mut pod =
            json!({"metadata": {"name": "p", "uid": "u", "generation": 1}, "spec": spec, "status": status});
        pod["spec"]["nodeName"] = node.into();
        pod
    }

    async fn put(store: &MemoryStore, path: &str, pod: &Value, expect: Expect) -> Revision {
        let payload = Payload::plain(pod.to_string());
        let change = Change::Put { payload, ttl: None };
        let key = Resource::new("pods").key(path);
        store.commit(Write { key, expect, change }).await.unwrap().modified
    }

    #[tokio::test]
    async fn a_node_is_related_to_what_its_pods_refer_to_while_they_are_there() {
        let store = Arc::new(MemoryStore::new(Clock::simulated("2025-01-01T00:00:00Z".parse().unwrap())));
        let graph = Graph::new(store.clone());
        let refers = async |node: &str, kind, namespace: &str, name: &str| {
            graph.refers(node, kind, namespace, name).await.unwrap()
        };
        assert!(!refers("n1", Referred::ConfigMap, "a", "c").await);
        let spec = json!({"volumes": [{"name": "v", "configMap": {"name": "c"}}]});
        let first = put(&store, "a/p", &pod("n1", spec.clone(), json!({})), Expect::Absent).await;
        put(&store, "a/unbound", &pod("", json!({"serviceAccountName": "s"}), json!({})), Expect::Absent)
            .await;
        assert!(refers("n1", Referred::ConfigMap, "a", "c").await);
        for (node, kind, namespace, name) in [
            ("n2", Referred::ConfigMap, "a", "c"),
            ("n1", Referred::Secret, "a", "c"),
            ("n1", Referred::ConfigMap, "b", "c"),
            ("n1", Referred::ConfigMap, "a", "other"),
            ("", Referred::Account, "a", "s"),
        ] {
            assert!(!refers(node, kind, namespace, name).await, "{node} {kind:?} {namespace}/{name}");
        }
        let made = json!({"resourceClaimStatuses": [{"name": "x", "resourceClaimName": "made"}]});
        let mut with_claim = spec.clone();
        with_claim["resourceClaims"] = json!([{"name": "x", "resourceClaimTemplateName": "t"}]);
        let second = put(&store, "a/p", &pod("n1", with_claim, made), Expect::Revision(first)).await;
        assert!(refers("n1", Referred::DeviceClaim, "a", "made").await, "a status may add a reference");
        let key = Resource::new("pods").key("a/p");
        let delete = Write { key, expect: Expect::Revision(second), change: Change::Delete };
        store.commit(delete).await.unwrap();
        assert!(!refers("n1", Referred::ConfigMap, "a", "c").await);
    }

    #[test]
    fn a_mirror_of_a_pod_gives_its_node_no_rights() {
        let mut pod = json!({"metadata": {}, "spec": {"serviceAccountName": "robot"}});
        assert!(references(&pod).contains(&(Referred::Account, "robot".into())));
        pod["metadata"]["annotations"] = json!({MIRROR: "x"});
        assert!(references(&pod).is_empty());
    }
}
