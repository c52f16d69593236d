//! The stored FlowSchemas and PriorityLevelConfigurations, updated from the store's watch history.

use std::collections::BTreeMap;
use std::sync::Arc;

use http::HeaderValue;
use serde::Deserialize;
use serde_json::{Value, json};
use setpoint_flow::{Queuing, Shares};
use setpoint_store::{Error, EventKind, ListOptions, Record, Resource, Revision, Store, Watch, WatchError};

use super::rules::Rule;
use crate::kinds::flowcontrol::{GROUP, bootstrap};

pub(super) const EXEMPT: &str = "exempt";
pub(super) const CATCH_ALL: &str = "catch-all";

#[derive(Deserialize)]
struct Metadata {
    name: String,
    #[serde(default)]
    uid: String,
}

/// How the requests of a schema are divided into flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub(super) enum Distinguisher {
    ByUser,
    ByNamespace,
}

/// The status of a FlowSchema to apply.
pub(crate) fn with_condition(name: &str, condition: &Value) -> Value {
    json!({
        "apiVersion": format!("{GROUP}/v1"),
        "kind": "FlowSchema",
        "metadata": {"name": name},
        "status": {"conditions": [condition]},
    })
}

/// A FlowSchema.
#[derive(Debug)]
pub(super) struct Schema {
    pub(super) name: String,
    pub(super) uid: HeaderValue,
    pub(super) precedence: i64,
    pub(super) level: String,
    pub(super) distinguisher: Option<Distinguisher>,
    pub(super) rules: Arc<Vec<Rule>>,
    pub(super) conditions: Vec<Value>,
}

/// A PriorityLevelConfiguration.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Priority {
    pub(super) uid: HeaderValue,
    pub(super) queuing: Queuing,
    pub(super) shares: Shares,
}

#[derive(Deserialize)]
struct SchemaObject {
    metadata: Metadata,
    spec: SchemaSpec,
    #[serde(default)]
    status: Status,
}

#[derive(Deserialize, Default)]
struct Status {
    #[serde(default)]
    conditions: Vec<Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SchemaSpec {
    priority_level_configuration: Name,
    #[serde(default)]
    matching_precedence: i64,
    distinguisher_method: Option<Method>,
    #[serde(default)]
    rules: Option<Vec<Rule>>,
}

#[derive(Deserialize)]
struct Name {
    name: String,
}

#[derive(Deserialize)]
struct Method {
    r#type: Distinguisher,
}

#[derive(Deserialize)]
struct PriorityObject {
    metadata: Metadata,
    spec: PrioritySpec,
}

#[derive(Deserialize)]
struct PrioritySpec {
    r#type: String,
    limited: Option<Limited>,
    exempt: Option<Exempt>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Limited {
    nominal_concurrency_shares: Option<u32>,
    lendable_percent: Option<u32>,
    borrowing_limit_percent: Option<u32>,
    limit_response: LimitResponse,
}

#[derive(Deserialize)]
struct LimitResponse {
    r#type: String,
    queuing: Option<QueuingSpec>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct QueuingSpec {
    queues: usize,
    hand_size: usize,
    queue_length_limit: usize,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Exempt {
    nominal_concurrency_shares: Option<u32>,
    lendable_percent: Option<u32>,
}

/// The default shares of a level.
const DEFAULT_SHARES: u32 = 30;

fn uid(metadata: &Metadata) -> HeaderValue {
    HeaderValue::from_str(&metadata.uid).unwrap_or(HeaderValue::from_static(""))
}

impl Schema {
    fn parse(object: SchemaObject) -> Self {
        Self {
            uid: uid(&object.metadata),
            name: object.metadata.name,
            precedence: object.spec.matching_precedence,
            level: object.spec.priority_level_configuration.name,
            distinguisher: object.spec.distinguisher_method.map(|method| method.r#type),
            rules: Arc::new(object.spec.rules.unwrap_or_default()),
            conditions: object.status.conditions,
        }
    }

    /// Returns a mandatory level, which exists even without its object.
    pub(super) fn mandatory(name: &str) -> Option<Self> {
        let object = bootstrap::mandatory(bootstrap::flow_schemas(), name)?;
        serde_json::from_value(object).ok().map(Self::parse)
    }
}

impl Priority {
    /// Returns `None` if v1.34 would not use the object: its fields contradict each other.
    fn parse(object: &PriorityObject) -> Option<Self> {
        let spec = &object.spec;
        let uid = uid(&object.metadata);
        if (spec.r#type == "Exempt") != (object.metadata.name == EXEMPT) {
            return None;
        }
        match (spec.r#type.as_str(), &spec.limited, &spec.exempt) {
            ("Exempt", None, Some(exempt)) => {
                let nominal = exempt.nominal_concurrency_shares.unwrap_or(0);
                let lendable_percent = exempt.lendable_percent.unwrap_or(0);
                let shares = Shares { nominal, lendable_percent, borrowing_percent: None };
                Some(Self { uid, queuing: Queuing::Exempt, shares })
            }
            ("Limited", Some(limited), None) => {
                let shares = Shares {
                    nominal: limited.nominal_concurrency_shares.unwrap_or(DEFAULT_SHARES),
                    lendable_percent: limited.lendable_percent.unwrap_or(0).min(100),
                    borrowing_percent: limited.borrowing_limit_percent,
                };
                Some(Self { uid, queuing: limited.limit_response.queuing()?, shares })
            }
            _ => None,
        }
    }

    pub(super) fn mandatory(name: &str) -> Option<Self> {
        let object = bootstrap::mandatory(bootstrap::priority_levels(), name)?;
        Self::parse(&serde_json::from_value(object).ok()?)
    }
}

impl LimitResponse {
    fn queuing(&self) -> Option<Queuing> {
        match (self.r#type.as_str(), &self.queuing) {
            ("Reject", None) => Some(Queuing::Reject),
            ("Queue", Some(QueuingSpec { queues, hand_size, queue_length_limit })) => Some(Queuing::Queue {
                queues: *queues,
                hand_size: *hand_size,
                length_limit: *queue_length_limit,
            }),
            _ => None,
        }
    }
}

/// The objects and their position in the store's history.
pub(super) struct FlowObjects {
    pub(super) schemas: BTreeMap<String, Schema>,
    pub(super) levels: BTreeMap<String, Priority>,
    /// The revision they reflect.
    revision: Revision,
    of_schemas: Watch,
    of_levels: Watch,
}

/// Returns the stored resource of FlowSchemas.
pub(super) fn schemas() -> Resource {
    Resource::new(format!("{GROUP}/flowschemas"))
}

/// Returns the stored resource of PriorityLevelConfigurations.
pub(super) fn levels() -> Resource {
    Resource::new(format!("{GROUP}/prioritylevelconfigurations"))
}

impl FlowObjects {
    pub(super) async fn load(store: &dyn Store) -> Result<Self, Error> {
        let (schemas, levels) = (schemas().all(), levels().all());
        let of_schemas = store.list(&schemas, ListOptions::default()).await?;
        let of_levels = store.list(&levels, ListOptions::default()).await?;
        let mut fed = Self {
            schemas: BTreeMap::new(),
            levels: BTreeMap::new(),
            revision: of_schemas.revision.min(of_levels.revision),
            of_schemas: store.watch(schemas, of_schemas.revision)?,
            of_levels: store.watch(levels, of_levels.revision)?,
        };
        of_schemas.records.iter().for_each(|record| set_schema(&mut fed.schemas, record, true));
        of_levels.records.iter().for_each(|record| set_level(&mut fed.levels, record, true));
        Ok(fed)
    }

    pub(super) fn has_seen(&self, revision: Revision) -> bool {
        self.revision >= revision
    }

    /// Applies all events up to `newest`, and returns whether there were any; fails if the history no longer reaches
    /// back far enough.
    pub(super) fn catch_up(&mut self, newest: Revision) -> Result<bool, WatchError> {
        let schemas = drain(&mut self.of_schemas, |record, is_there| {
            set_schema(&mut self.schemas, record, is_there);
        })?;
        let levels = drain(&mut self.of_levels, |record, is_there| {
            set_level(&mut self.levels, record, is_there);
        })?;
        self.revision = newest;
        Ok(schemas || levels)
    }
}

fn drain(watch: &mut Watch, mut apply: impl FnMut(&Record, bool)) -> Result<bool, WatchError> {
    let mut any = false;
    loop {
        match watch.try_next() {
            Ok(Some(events)) => {
                events.iter().for_each(|event| apply(&event.record, event.kind != EventKind::Deleted));
                any = true;
            }
            Ok(None) | Err(WatchError::Closed) => return Ok(any),
            Err(behind) => return Err(behind),
        }
    }
}

/// Ignores a record that cannot be decoded, which validation prevents.
fn set_schema(schemas: &mut BTreeMap<String, Schema>, record: &Record, is_there: bool) {
    let parsed = serde_json::from_slice(&record.value).ok().filter(|_| is_there).map(Schema::parse);
    set(schemas, &record.key.path, parsed);
}

fn set_level(levels: &mut BTreeMap<String, Priority>, record: &Record, is_there: bool) {
    let object: Option<PriorityObject> = serde_json::from_slice(&record.value).ok();
    let parsed = object.filter(|_| is_there).and_then(|object| Priority::parse(&object));
    set(levels, &record.key.path, parsed);
}

fn set<V>(all: &mut BTreeMap<String, V>, name: &str, value: Option<V>) {
    match value {
        Some(value) => _ = all.insert(name.to_owned(), value),
        None => _ = all.remove(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mandatory_objects_can_be_read() {
        for name in [EXEMPT, CATCH_ALL] {
            assert!(Schema::mandatory(name).is_some() && Priority::mandatory(name).is_some(), "{name}");
        }
        assert!(Schema::mandatory("global-default").is_none());
        assert_eq!(Priority::mandatory(EXEMPT).unwrap().queuing, Queuing::Exempt);
        assert_eq!(Priority::mandatory(CATCH_ALL).unwrap().shares.nominal, 5);
    }
}
