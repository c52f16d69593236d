//! Decoded `metadata.managedFields`: who set which fields, by which operation, when.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::set::Set;

/// Maximum number of update entries per object; the oldest are merged.
pub(super) const MAX_UPDATERS: usize = 10;
const OLD_UPDATERS: &str = "ancient-changes";

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Operation {
    Apply,
    Update,
}

/// The identity of a manager. For appliers it does not include the version.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Manager {
    pub(super) name: String,
    pub(super) operation: Operation,
    /// Empty for appliers.
    pub(super) api_version: String,
    pub(super) subresource: String,
}

/// The fields a manager owns.
#[derive(Clone, Debug)]
pub(super) struct Owned {
    pub(super) set: Set,
    pub(super) api_version: String,
    /// In stored form.
    pub(super) time: Option<String>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Managers(pub(super) BTreeMap<Manager, Owned>);

impl Manager {
    pub(super) fn new(name: &str, operation: Operation, api_version: &str, subresource: &str) -> Self {
        Self {
            name: if name.is_empty() { "unknown".to_owned() } else { name.to_owned() },
            operation,
            api_version: if operation == Operation::Apply { String::new() } else { api_version.to_owned() },
            subresource: subresource.to_owned(),
        }
    }

    /// Formats a manager for conflict messages.
    pub(super) fn describe(&self) -> String {
        let mut text = format!("{:?}", self.name);
        if !self.subresource.is_empty() {
            text.push_str(&format!(" with subresource {:?}", self.subresource));
        }
        if self.operation == Operation::Update {
            text.push_str(&format!(" using {}", self.api_version));
        }
        text
    }
}

impl Managers {
    /// Decodes an object's entries; fails if one is invalid.
    pub(super) fn decode(entries: Vec<Value>) -> Result<Self, String> {
        let entries = entries.into_iter().enumerate();
        entries.map(|(index, entry)| decode(index, entry)).collect::<Result<_, _>>().map(Self)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Drops managers that own nothing.
    pub(super) fn drop_idle(&mut self) {
        self.0.retain(|_, owned| !owned.set.is_empty());
    }

    /// Encodes the entries into an object, sorted by operation, time and name.
    pub(super) fn encode(self, object: &mut Value) {
        let mut entries: Vec<(Manager, Owned)> = self.0.into_iter().collect();
        entries.sort_by(|(a, x), (b, y)| {
            (a.operation.cmp(&b.operation))
                .then_with(|| x.time.cmp(&y.time))
                .then_with(|| a.name.cmp(&b.name))
                .then_with(|| x.api_version.cmp(&y.api_version))
                .then_with(|| a.subresource.cmp(&b.subresource))
        });
        let entries: Vec<Value> =
            entries.into_iter().map(|(manager, owned)| encode(manager, owned)).collect();
        match metadata_of(object) {
            Some(metadata) if !entries.is_empty() => {
                _ = metadata.insert("managedFields".into(), entries.into())
            }
            Some(metadata) => _ = metadata.remove("managedFields"),
            None => {}
        }
    }

    /// Counts the updaters.
    pub(super) fn updaters(&self) -> usize {
        self.0.keys().filter(|manager| manager.operation == Operation::Update).count()
    }

    /// Merges the oldest updaters of a version until there are few enough.
    pub(super) fn merge_oldest(&mut self) {
        let mut updaters: Vec<Manager> =
            self.0.keys().filter(|manager| manager.operation == Operation::Update).cloned().collect();
        let mut count = updaters.len();
        if count <= MAX_UPDATERS {
            return;
        }
        updaters.sort_by(|a, b| self.0[a].time.cmp(&self.0[b].time).then_with(|| a.cmp(b)));
        let mut first_of_version: BTreeMap<String, Manager> = BTreeMap::new();
        for manager in updaters {
            if count <= MAX_UPDATERS {
                return;
            }
            let version = manager.api_version.clone();
            match first_of_version.get(&version) {
                None => _ = first_of_version.insert(version, manager),
                Some(first) => {
                    let bucket = Manager::new(OLD_UPDATERS, Operation::Update, &version, "");
                    self.merge_into(&bucket, first, &manager);
                    count -= 1;
                }
            }
        }
    }

    fn merge_into(&mut self, bucket: &Manager, first: &Manager, manager: &Manager) {
        let older = self.0.remove(bucket).or_else(|| self.0.remove(first));
        let (Some(older), Some(newer)) = (older, self.0.remove(manager)) else { return };
        self.0.insert(bucket.clone(), Owned { set: newer.set.union(older.set), ..newer });
    }
}

pub(super) fn entries_of(object: &Value) -> &[Value] {
    let entries = object.get("metadata").and_then(|metadata| metadata.get("managedFields"));
    entries.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// Takes the entries out of an object; `None` if it does not have the field.
pub(super) fn take_entries(object: &mut Value) -> Option<Vec<Value>> {
    match metadata_of(object)?.remove("managedFields")? {
        Value::Array(entries) => Some(entries),
        _ => None,
    }
}

pub(super) fn metadata_of(object: &mut Value) -> Option<&mut Map<String, Value>> {
    object.get_mut("metadata").and_then(Value::as_object_mut)
}

/// Formats a time as stored.
pub(super) fn stored_time(now: Timestamp) -> String {
    now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

pub(super) fn decode(index: usize, mut entry: Value) -> Result<(Manager, Owned), String> {
    let mut text = |field: &str| match entry.get_mut(field).map(Value::take) {
        Some(Value::String(text)) => text,
        _ => String::new(),
    };
    let operation = match text("operation").as_str() {
        "Apply" => Operation::Apply,
        "Update" => Operation::Update,
        _ => return Err("operation must be `Apply` or `Update`".to_owned()),
    };
    let api_version = text("apiVersion");
    if api_version.is_empty() {
        return Err("apiVersion must not be empty".to_owned());
    }
    match text("fieldsType").as_str() {
        "FieldsV1" => {}
        "" => return Err(format!("missing fieldsType in managed fields entry {index}")),
        other => return Err(format!("invalid fieldsType {other:?} in managed fields entry {index}")),
    }
    let manager = Manager {
        name: text("manager"),
        operation,
        api_version: if operation == Operation::Apply { String::new() } else { api_version.clone() },
        subresource: text("subresource"),
    };
    let time = Some(text("time")).filter(|time| !time.is_empty());
    let set = Set::from_stored(entry.get_mut("fieldsV1").map(Value::take).unwrap_or_default());
    Ok((manager, Owned { set, api_version, time }))
}

fn encode(manager: Manager, owned: Owned) -> Value {
    let operation = match manager.operation {
        Operation::Apply => "Apply",
        Operation::Update => "Update",
    };
    let mut entry = json!({
        "manager": manager.name,
        "operation": operation,
        "apiVersion": owned.api_version,
        "fieldsType": "FieldsV1",
        "fieldsV1": owned.set.into_stored(),
    });
    if let Some(fields) = entry.as_object_mut() {
        if let Some(time) = owned.time {
            fields.insert("time".into(), time.into());
        }
        if !manager.subresource.is_empty() {
            fields.insert("subresource".into(), manager.subresource.into());
        }
    }
    entry
}
