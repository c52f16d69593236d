//! Facts about a stored object that the server needs without decoding it: derived once per change, kept with the
//! record, shared by selectors, watches and informers.

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;
use setpoint_store::Record;

use crate::registry::Served;

/// The facts about a stored object.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Facts {
    pub uid: Box<str>,
    pub generation: i64,
    pub creation_timestamp: Option<Timestamp>,
    pub deletion_timestamp: Option<Timestamp>,
    pub deletion_grace_period_seconds: Option<i64>,
    /// Sorted by key.
    #[serde(deserialize_with = "sorted_pairs")]
    pub labels: Pairs,
    pub finalizers: Box<[Box<str>]>,
    pub owner_references: Box<[OwnerReference]>,
    /// The generation of the CRD whose schema a custom resource was written with; zero if unknown.
    #[serde(skip)]
    pub schema_generation: i64,
    /// The values of the stored kind's own field selectors, in order.
    #[serde(skip)]
    fields: Box<[Box<str>]>,
}

/// An owner of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OwnerReference {
    pub api_version: Box<str>,
    pub kind: Box<str>,
    pub name: Box<str>,
    pub uid: Box<str>,
    pub controller: Option<bool>,
    pub block_owner_deletion: Option<bool>,
}

/// Keys and values, sorted by key.
pub type Pairs = Box<[(Box<str>, Box<str>)]>;

fn sorted_pairs<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Pairs, D::Error> {
    let map = Option::<std::collections::BTreeMap<Box<str>, Box<str>>>::deserialize(from)?;
    Ok(map.unwrap_or_default().into_iter().collect())
}

impl Facts {
    /// Returns the facts about a record: from its writer, or derived from its bytes.
    pub fn of<'a>(record: &'a Record, served: &Served) -> &'a Self {
        record
            .facts(|record| Self::read(record, served))
            .expect("only the API server attaches facts to records")
    }

    fn read(record: &Record, served: &Served) -> Self {
        #[derive(Deserialize)]
        struct Envelope {
            #[serde(default)]
            metadata: Facts,
        }
        if served.stored_selectors().is_empty() {
            let envelope: Result<Envelope, _> = serde_json::from_slice(&record.value);
            return envelope.map(|envelope| envelope.metadata).unwrap_or_default();
        }
        serde_json::from_slice(&record.value)
            .map(|object| Self::from_object(&object, served))
            .unwrap_or_default()
    }

    /// Derives the facts from an object in its stored form.
    pub fn from_object(object: &Value, served: &Served) -> Self {
        let mut facts = object.get("metadata").map(Self::from_metadata).unwrap_or_default();
        facts.fields = served.stored_selectors().iter().map(|own| (own.value)(object).into()).collect();
        facts
    }

    fn from_metadata(metadata: &Value) -> Self {
        let strings = |name: &str| metadata.get(name).and_then(Value::as_array).into_iter().flatten();
        let time = |name: &str| metadata.get(name).and_then(Value::as_str).and_then(|text| text.parse().ok());
        Self {
            uid: text(metadata, "uid"),
            generation: metadata.get("generation").and_then(Value::as_i64).unwrap_or(0),
            creation_timestamp: time("creationTimestamp"),
            deletion_timestamp: time("deletionTimestamp"),
            deletion_grace_period_seconds: metadata.get("deletionGracePeriodSeconds").and_then(Value::as_i64),
            labels: labels(metadata),
            finalizers: strings("finalizers").filter_map(Value::as_str).map(Into::into).collect(),
            owner_references: strings("ownerReferences").map(OwnerReference::from_value).collect(),
            schema_generation: 0,
            fields: Box::default(),
        }
    }

    pub fn label(&self, key: &str) -> Option<&str> {
        let at = self.labels.binary_search_by(|(candidate, _)| (**candidate).cmp(key)).ok()?;
        Some(&self.labels[at].1)
    }

    /// Returns the value of the stored kind's own field selector at `index`.
    pub fn field(&self, index: usize) -> &str {
        self.fields.get(index).map_or("", AsRef::as_ref)
    }

    pub fn is_being_deleted(&self) -> bool {
        self.deletion_timestamp.is_some()
    }
}

fn text(object: &Value, name: &str) -> Box<str> {
    object.get(name).and_then(Value::as_str).unwrap_or_default().into()
}

fn labels(metadata: &Value) -> Box<[(Box<str>, Box<str>)]> {
    let labels = metadata.get("labels").and_then(Value::as_object).into_iter().flatten();
    let mut pairs: Box<[_]> =
        labels.filter_map(|(key, value)| Some((key.as_str().into(), value.as_str()?.into()))).collect();
    pairs.sort_unstable();
    pairs
}

impl OwnerReference {
    fn from_value(reference: &Value) -> Self {
        let flag = |name: &str| reference.get(name).and_then(Value::as_bool);
        Self {
            api_version: text(reference, "apiVersion"),
            kind: text(reference, "kind"),
            name: text(reference, "name"),
            uid: text(reference, "uid"),
            controller: flag("controller"),
            block_owner_deletion: flag("blockOwnerDeletion"),
        }
    }
}
