//! Custom resources: the kinds defined by CRDs.
//!
//! ```text
//!  CustomResourceDefinition ─► names accepted ─► established ─► kinds ─► a new registry is published
//!                                                                 │
//!  body ─► decode: prune, default ─► validate: schema, lists, rules ─► stored in the storage version
//!  stored ─► prune, default, convert ─► returned in the requested version
//! ```
//!
//! Invariants:
//! - the served kinds follow the stored CRDs: a write to a CRD is answered once the registry includes it;
//! - an object is always returned according to the current schema, whenever it was written;
//! - a CRD is removed only after the last of its objects.

mod columns;
pub(crate) mod conversion;
mod correlate;
pub(crate) mod declared;
pub(crate) mod decode;
pub(crate) mod default_values;
mod defaults;
pub(crate) mod definitions;
pub(crate) mod field_path;
pub(crate) mod finish;
mod jsonpath;
mod kinds;
mod lists;
pub(crate) mod meta;
pub(crate) mod names;
pub mod props;
pub(crate) mod prune;
pub(crate) mod rules;
pub(crate) mod scale;
mod shape;
mod strategy;
pub mod structural;
pub(crate) mod validate;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;
use setpoint_store::Record;
use tokio_util::sync::CancellationToken;

use crate::schema::Schema;
use columns::CustomColumn;
use conversion::ConversionWebhook;
use jsonpath::JsonPath;
use props::Props;

pub(crate) use setpoint_cel::{formats, number};

pub use kinds::compare_versions;
pub use scale::ScalePaths;

/// The beginning of every stored object without fields that sort before its version.
const HEAD: &[u8] = br#"{"apiVersion":"#;

/// A version of a CRD's kind.
pub struct Custom {
    /// The CRD's generation: it changes with every schema change.
    pub generation: i64,
    pub list_kind: String,
    /// Whether the CRD is being deleted.
    pub is_terminating: bool,
    /// Converts objects between versions.
    pub(crate) webhook: Option<Arc<ConversionWebhook>>,
    /// Ends the watches of this kind when the kind changes.
    pub closing: CancellationToken,
    pub scale: Option<ScalePaths>,
    pub selectable: Vec<Selectable>,
    pub columns: Vec<CustomColumn>,
    pub schema: Arc<Props>,
    /// The schema as types, for server-side apply.
    pub types: Schema,
    /// The schema as written in the CRD.
    pub written: Box<str>,
    api_version: String,
    /// The beginning of objects that were written in this version, unless they have fields that sort before it.
    head: Box<[u8]>,
    versions: Arc<Versions>,
}

/// All versions of a CRD, and its storage version.
struct Versions {
    storage: String,
    schemas: BTreeMap<String, Arc<Props>>,
    /// The schemas as types, and whether there is a status subresource. Only if a webhook converts between versions.
    types: BTreeMap<String, (Schema, bool)>,
}

/// A field that can be used in field selectors.
pub struct Selectable {
    pub path: String,
    found: JsonPath,
}

impl Selectable {
    pub fn value(&self, object: &Value) -> String {
        match self.found.first(object) {
            None | Some(Value::Null) => String::new(),
            Some(Value::String(text)) => text.clone(),
            Some(other) => other.to_string(),
        }
    }
}

impl Custom {
    /// Returns the storage version.
    pub fn storage_api_version(&self) -> &str {
        &self.versions.storage
    }

    pub fn is_stored_in_this_version(&self) -> bool {
        self.api_version == self.versions.storage
    }

    pub fn api_version(&self) -> &str {
        &self.api_version
    }

    /// Returns the types of a version, and whether it has a status subresource, if a webhook converts to it.
    pub(crate) fn version_types(&self, api_version: &str) -> Option<(&Schema, bool)> {
        self.versions.types.get(api_version).map(|(types, has_status)| (types, *has_status))
    }

    /// Whether a record's object is in this version.
    pub(crate) fn is_version_of(&self, record: &Record) -> bool {
        #[derive(serde::Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Envelope<'a> {
            #[serde(borrow)]
            api_version: Cow<'a, str>,
        }
        if record.value.starts_with(&self.head) {
            return true;
        }
        if record.value.starts_with(HEAD) {
            return false;
        }
        serde_json::from_slice::<Envelope<'_>>(&record.value)
            .is_ok_and(|envelope| envelope.api_version == self.api_version)
    }

    /// Converts a stored object to this version, according to the current schema.
    pub fn read(&self, object: &mut Value) {
        // An object of a removed version is shown as far as possible.
        let _ = self.settle_read(object);
        if object.get("apiVersion").and_then(Value::as_str) != Some(&self.api_version) {
            object["apiVersion"] = self.api_version.as_str().into();
            normalize(object, &self.schema);
        }
    }

    /// Brings a stored object into the form of its own version's current schema. Fails if the version does not exist.
    pub(crate) fn settle_read(&self, object: &mut Value) -> Result<(), String> {
        meta::normalize_stored(object);
        let stored_in = object.get("apiVersion").and_then(Value::as_str).unwrap_or_default();
        let Some(schema) = self.versions.schemas.get(stored_in) else {
            return Err(format!("request to convert CR from an invalid group/version: {stored_in}"));
        };
        normalize(object, schema);
        defaults::fill(object, schema);
        Ok(())
    }

    /// Drops fields that this version does not have from an object that a webhook has converted to it. Defaults are those
    /// of the version it was converted from. Fails if embedded metadata is malformed.
    pub(crate) fn settle_converted(&self, object: &mut Value) -> Result<(), String> {
        checked(object, &self.schema)
    }

    /// The same for an object converted to the storage version, which gets the defaults of that version.
    pub(crate) fn settle_converted_for_storage(&self, object: &mut Value) -> Result<(), String> {
        if let Some(schema) = self.versions.schemas.get(&self.versions.storage) {
            checked(object, schema)?;
            defaults::fill(object, schema);
        }
        Ok(())
    }

    /// Converts an object to its stored form.
    pub fn write(&self, object: &mut Value) {
        object["apiVersion"] = self.versions.storage.as_str().into();
        self.settle_stored(object);
    }

    /// Brings an object in the storage version into its stored form, with the defaults of that version: v1.34 adds them
    /// whenever it reads the object, so they appear in every version.
    fn settle_stored(&self, object: &mut Value) {
        if let Some(schema) = self.versions.schemas.get(&self.versions.storage) {
            normalize(object, schema);
            defaults::fill(object, schema);
        }
    }

    /// Brings an object into the form it has after being stored. An applied object may have unknown fields, and a
    /// created one lacks the default of its status.
    pub(crate) fn normalize(&self, object: &mut Value, is_applied: bool) {
        let lacks = |status: &Props| status.default.is_some() && object.get("status").is_none();
        let lacks_status = self.schema.properties.get("status").is_some_and(lacks);
        if is_applied {
            normalize(object, &self.schema);
        }
        if is_applied || lacks_status {
            defaults::fill(object, &self.schema);
        }
    }
}

/// Drops fields that the schema does not have, and empty labels and annotations. Refuses malformed embedded metadata.
fn checked(object: &mut Value, schema: &Props) -> Result<(), String> {
    prune::prune(object, schema, true);
    prune::prune_nulls(object, Some(schema));
    meta::drop_empty(object);
    meta::normalize_embedded(object, schema, meta::Malformed::Refused).map(drop)
}

/// Drops fields that the schema does not have.
fn normalize(object: &mut Value, schema: &Props) {
    prune::prune(object, schema, true);
    prune::prune_nulls(object, Some(schema));
    // `Dropped` removes malformed embedded metadata, so this cannot fail.
    let _ = meta::normalize_embedded(object, schema, meta::Malformed::Dropped);
}
