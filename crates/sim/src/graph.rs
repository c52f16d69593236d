//! The result of a run: its objects, with random values masked, and its history.

use std::collections::BTreeMap;
use std::fmt;

use futures::FutureExt;
use serde_json::{Map, Value};
use setpoint_apiserver::ApiServer;
use setpoint_apiserver::registry::{Gvr, Registry};
use setpoint_apiserver::selector::Selection;
use setpoint_store::{Event, EventKind, Resource, Store};

/// Kinds that are not part of the result.
const EXCLUDED: [&str; 2] = ["Event", "Lease"];

/// Fields with random or timing-dependent values.
const MASKED: &[&str] = &[
    "uid",
    "resourceVersion",
    "generation",
    "observedGeneration",
    "managedFields",
    "nodeName",
    "hostIP",
    "hostIPs",
    "podIP",
    "podIPs",
    "clusterIP",
    "clusterIPs",
    // Node CIDRs are assigned in order of arrival.
    "podCIDR",
    "podCIDRs",
    // Its last characters are generated.
    "resourceClaimName",
    // Contains a serial number and times.
    "certificate",
    // Contains UIDs and a random signature.
    "token",
    // The time of the change that caused a write, which is unknown after a restart.
    "endpoints.kubernetes.io/last-change-trigger-time",
    // The nominated node of a pod that waited for room. A manager that takes over later finds the room right away.
    "nominatedNodeName",
    // When an autoscaler last scaled. A manager that takes over later does not know it.
    "lastScaleTime",
];

/// The token volume that admission adds to every pod. The rest of its name is random.
const TOKEN_VOLUME: &str = "kube-api-access-";

/// The objects at the end of a run, sorted, as text. Two runs with the same result have equal graphs.
#[derive(Clone, PartialEq, Eq)]
pub struct Graph(Vec<String>);

/// How often objects of each kind were created and deleted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts(pub BTreeMap<String, (usize, usize)>);

/// Every change of a run, in revision order.
pub struct History(Vec<std::sync::Arc<Event>>);

impl Graph {
    pub(crate) async fn of(api: &ApiServer) -> Self {
        let mut objects = Vec::new();
        for served in api.registry().all() {
            let kind = &served.kind;
            if EXCLUDED.contains(&kind.kind.as_str()) {
                continue;
            }
            let gvr = Gvr::new(&kind.group, &kind.version, &kind.plural);
            let (records, _) =
                api.list_records(&gvr, &Selection::all()).await.expect("a served kind can be listed");
            objects.extend(records.iter().map(|record| decode(&record.value)));
        }
        let names = Names::of(&objects);
        let mut lines: Vec<String> = objects.iter().map(|object| names.mask(object).to_string()).collect();
        lines.sort();
        Self(lines)
    }

    /// Adds the objects of another API server.
    pub(crate) fn add(&mut self, name: &str, other: Self) {
        self.0.extend(other.0.into_iter().map(|line| format!("{name}: {line}")));
        self.0.sort();
    }

    /// Returns what is in only one of the graphs.
    pub fn difference(&self, other: &Self) -> Vec<String> {
        let only = |mine: &Self, theirs: &Self, sign: char| -> Vec<String> {
            let mut rest = theirs.0.clone();
            let missing = |line: &&String| match rest.iter().position(|there| there == *line) {
                Some(at) => {
                    rest.remove(at);
                    false
                }
                None => true,
            };
            mine.0.iter().filter(missing).map(|line| format!("{sign} {line}")).collect()
        };
        let mut lines = only(self, other, '-');
        lines.extend(only(other, self, '+'));
        lines
    }
}

impl fmt::Debug for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("\n"))
    }
}

fn decode(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).expect("the store holds JSON")
}

/// The kind and name of the object for each UID.
struct Names(BTreeMap<String, String>);

impl Names {
    fn of(objects: &[Value]) -> Self {
        let entry = |object: &Value| {
            let uid = object["metadata"]["uid"].as_str()?.to_owned();
            Some((uid, format!("<uid of {} {}>", object["kind"].as_str()?, masked_name(object))))
        };
        Self(objects.iter().filter_map(entry).collect())
    }

    fn mask(&self, object: &Value) -> Value {
        let mut masked = self.mask_value(object);
        masked["metadata"]["name"] = masked_name(object).into();
        masked
    }

    fn mask_value(&self, value: &Value) -> Value {
        match value {
            Value::Object(fields) => Value::Object(self.mask_fields(fields)),
            Value::Array(items) => {
                let mut items: Vec<Value> = items.iter().map(|item| self.mask_value(item)).collect();
                // Conditions are a map by type. Their order is that of their first appearance.
                if items.iter().all(|item| item["type"].is_string() && item["status"].is_string()) {
                    items.sort_by_key(|item| item["type"].to_string());
                }
                // Taints are a map too, by key and effect.
                if items.iter().all(|item| item["key"].is_string() && item["effect"].is_string()) {
                    items.sort_by_key(|item| (item["key"].to_string(), item["effect"].to_string()));
                }
                Value::Array(items)
            }
            Value::String(text) => self.mask_text(text),
            other => other.clone(),
        }
    }

    fn mask_fields(&self, fields: &Map<String, Value>) -> Map<String, Value> {
        let reference = is_reference(fields);
        let refers = |name: &str| reference && name == "uid";
        let kept = fields.iter().filter(|(name, _)| !MASKED.contains(&name.as_str()) || refers(name));
        let masked = kept.map(|(name, value)| match value {
            Value::String(uid) if refers(name) => (name.clone(), self.referred(uid)),
            value => (name.clone(), self.mask_value(value)),
        });
        // Drop the annotations if they are empty now.
        masked
            .filter(|(name, value)| {
                name != "annotations" || value.as_object().is_none_or(|map| !map.is_empty())
            })
            .collect()
    }

    /// Returns the target of a reference. A volume may refer to a claim that is gone.
    fn referred(&self, uid: &str) -> Value {
        self.0.get(uid).map_or("<uid of something gone>", String::as_str).into()
    }

    fn mask_text(&self, text: &str) -> Value {
        if text.len() >= 20 && text.parse::<jiff::Timestamp>().is_ok() {
            return "<time>".into();
        }
        if text.starts_with(TOKEN_VOLUME) {
            return format!("{TOKEN_VOLUME}<generated>").into();
        }
        self.0.get(text).map_or(text, String::as_str).into()
    }
}

/// An owner reference keeps its UID, because it identifies the owner.
fn is_reference(fields: &Map<String, Value>) -> bool {
    fields.contains_key("uid") && fields.contains_key("kind") && fields.contains_key("apiVersion")
}

/// Masks generated suffixes, which are random.
fn masked_name(object: &Value) -> String {
    let meta = &object["metadata"];
    match meta["generateName"].as_str() {
        Some(prefix) => format!("{prefix}<generated>"),
        None => meta["name"].as_str().unwrap_or_default().to_owned(),
    }
}

impl History {
    pub(crate) fn of(store: &dyn Store, registry: &Registry) -> Self {
        let mut events = Vec::new();
        let mut resources: Vec<&str> = registry.all().map(|served| served.kind.stored_as.as_str()).collect();
        resources.sort_unstable();
        resources.dedup();
        for resource in resources {
            let mut watch =
                store.watch(Resource::new(resource).all(), store.compacted()).expect("nothing is compacted");
            // Ready immediately as long as there are events, so no runtime is needed.
            while let Some(Ok(batch)) = watch.next().now_or_never() {
                events.extend(batch);
            }
        }
        events.sort_by_key(|event| event.revision());
        Self(events)
    }

    /// Returns the changes, each with the event kind and the object after it.
    pub fn changes(&self) -> impl Iterator<Item = (EventKind, Value)> {
        self.0.iter().map(|event| (event.kind, decode(&event.record.value)))
    }

    pub fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        for event in &self.0 {
            let resource = event.record.key.resource.as_str().to_owned();
            if resource.contains("event") || resource.contains("lease") {
                continue;
            }
            let (created, deleted) = counts.0.entry(resource).or_default();
            match event.kind {
                EventKind::Created => *created += 1,
                EventKind::Deleted => *deleted += 1,
                EventKind::Updated => {}
            }
        }
        counts
    }
}
