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

mod api_services;
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

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::schema::Schema;
use columns::CustomColumn;
use conversion::ConversionWebhook;
use jsonpath::JsonPath;
use props::Props;

pub(crate) use setpoint_cel::{formats, number};

pub use kinds::compare_versions;
pub use scale::ScalePaths;

/// A version of a CRD's kind.
pub struct Custom {
    /// The CRD's generation: it changes with every schema change.
    pub generation: i64,
    pub list_kind: String,
    /// Whether the CRD is being deleted.
    pub is_terminating: bool,
    /// Makes objects of other versions than the stored one.
    pub(crate) webhook: Option<ConversionWebhook>,
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
    versions: Arc<Versions>,
}

/// All versions of a CRD, and its storage version.
struct Versions {
    storage: String,
    schemas: BTreeMap<String, Arc<Props>>,
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

    /// Whether objects of this version are made by a webhook.
    pub(crate) fn needs_webhook(&self) -> bool {
        self.webhook.is_some() && !self.is_stored_in_this_version()
    }

    /// Converts a stored object to this version, according to the current schema.
    pub fn read(&self, object: &mut Value) {
        let stored_in = object.get("apiVersion").and_then(Value::as_str).unwrap_or_default().to_owned();
        meta::settle_stored(object);
        if let Some(schema) = self.versions.schemas.get(&stored_in) {
            settle(object, schema);
            defaults::fill(object, schema);
        }
        if stored_in != self.api_version {
            object["apiVersion"] = self.api_version.as_str().into();
            settle(object, &self.schema);
        }
    }

    /// Brings an object into the form that it is stored in, with the defaults of the stored version: v1.34 adds them
    /// whenever it reads the object, so they show in every version.
    pub fn write(&self, object: &mut Value) {
        object["apiVersion"] = self.versions.storage.as_str().into();
        if let Some(schema) = self.versions.schemas.get(&self.versions.storage) {
            settle(object, schema);
            defaults::fill(object, schema);
        }
    }

    /// Brings an object into the form that it has once it is stored. What an apply made may hold what the schema does
    /// not have; what was just created lacks the default of a status.
    pub(crate) fn settle(&self, object: &mut Value, is_applied: bool) {
        let lacks = |status: &Props| status.default.is_some() && object.get("status").is_none();
        let lacks_status = self.schema.properties.get("status").is_some_and(lacks);
        if is_applied {
            settle(object, &self.schema);
        }
        if is_applied || lacks_status {
            defaults::fill(object, &self.schema);
        }
    }
}

/// Drops fields that the schema does not have.
fn settle(object: &mut Value, schema: &Props) {
    prune::prune(object, schema, true);
    prune::prune_nulls(object, Some(schema));
    // `Dropped` removes malformed embedded metadata, so this cannot fail.
    let _ = meta::settle_embedded(object, schema, meta::Malformed::Dropped);
}
