//! Converts between stored bytes and objects.
//!
//! A stored object has its fields in v1.34's encoding order. One of a built-in kind starts with its kind and version,
//! so a list can omit them, as v1.34 does, without decoding anything. The positions of its revision and its managed
//! fields are recorded when it is encoded.
//!
//! Managed fields are stored separately ([`ManagedFields`]). They are inserted for clients; the server itself decodes
//! objects without them ([`Served::decode_bare`]).

use bytes::Bytes;
use serde_json::{Map, Value};
use setpoint_store::{Inset, Payload, Record};

use crate::apply::ManagedFields;
use crate::facts::Facts;
use crate::json::Json;
use crate::registry::Served;
use crate::schema::{Schema, documents, encode};
use crate::status::Status;

const METADATA: &[u8] = b"\"metadata\":{";

impl Served {
    /// Decodes a record's object in this kind's version, with its managed fields.
    pub fn decode(&self, record: &Record) -> Result<Value, Status> {
        self.decode_value(record).map(|object| match record.inset.is_empty() {
            true => object,
            false => ManagedFields::of(record).inside(object),
        })
    }

    /// Decodes a record's object in this kind's version, without its managed fields, which are a good third of the
    /// work.
    pub fn decode_bare(&self, record: &Record) -> Result<Value, Status> {
        let mut object = self.decode_value(record)?;
        if record.inset.is_empty() {
            ManagedFields::discard(&mut object);
        }
        Ok(object)
    }

    /// Decodes a record's value, which has managed fields only if an earlier version wrote it.
    fn decode_value(&self, record: &Record) -> Result<Value, Status> {
        let mut object: Value = serde_json::from_slice(&record.value)
            .map_err(|why| Status::internal(format_args!("cannot decode {}: {why}", record.key)))?;
        if let Some(conversion) = &self.kind.conversion {
            (conversion.from_stored)(&mut object);
            self.name_kind(&mut object);
        }
        if let Some(custom) = self.kind.custom.as_ref().filter(|_| !self.is_shown_as_stored(record)) {
            if self.needs_conversion(record) {
                let version = self.kind.api_version();
                return Err(Status::internal(format_args!(
                    "{} has not been converted to {version}",
                    record.key
                )));
            }
            custom.read(&mut object);
        }
        Ok(object)
    }

    /// Converts an object of this kind to another version.
    pub(crate) fn converted(&self, object: &Value, other: &Self) -> Value {
        let mut object = object.clone();
        if let (Some(custom), Some(shown)) = (&self.kind.custom, &other.kind.custom) {
            custom.write(&mut object);
            shown.read(&mut object);
            return object;
        }
        if let Some(conversion) = &self.kind.conversion {
            (conversion.to_stored)(&mut object);
        }
        if let Some(conversion) = &other.kind.conversion {
            (conversion.from_stored)(&mut object);
        }
        other.name_kind(&mut object);
        object
    }

    /// An object as clients see it.
    pub(crate) fn as_seen(&self, mut object: Value) -> Value {
        if let Some(hide) = self.kind.semantics.hides {
            hide(&mut object);
        }
        object
    }

    /// An object as it would be shown had it been stored.
    pub(crate) fn as_if_stored(&self, object: Value) -> Value {
        let mut object = self.as_seen(object);
        if let Some(custom) = self.kind.custom.as_ref().filter(|custom| !custom.is_stored_in_this_version()) {
            custom.write(&mut object);
            custom.read(&mut object);
        }
        object
    }

    /// Encodes an object for the store. Its managed fields are those in `fields`.
    pub fn encode(&self, object: &Value, fields: &ManagedFields) -> Payload {
        Payload { inset: fields.inset().clone(), ..self.encode_bare(object) }
    }

    fn encode_bare(&self, object: &Value) -> Payload {
        if let Some(custom) = self.kind.custom.as_ref().filter(|custom| !custom.is_stored_in_this_version()) {
            let mut stored = object.clone();
            custom.write(&mut stored);
            return self.encode_stored(&stored);
        }
        match &self.kind.conversion {
            None => self.encode_stored(object),
            Some(conversion) => {
                let mut stored = object.clone();
                (conversion.to_stored)(&mut stored);
                self.stored().encode_stored(&stored)
            }
        }
    }

    /// Encodes an object that has been converted to the storage version.
    pub(crate) fn encode_converted(&self, stored: &Value, fields: &ManagedFields) -> Payload {
        Payload { inset: fields.inset().clone(), ..self.encode_stored(stored) }
    }

    fn encode_stored(&self, object: &Value) -> Payload {
        match &self.kind.custom {
            Some(custom) => self.encode_as(object, custom.storage_api_version()),
            None => self.encode_as(object, ""),
        }
    }

    /// Encodes an object of this version in the form of a stored one.
    pub(crate) fn encode_shown(&self, object: &Value) -> Payload {
        self.encode_as(object, &self.kind.api_version())
    }

    /// Encodes an object. Custom resources are encoded in this version.
    fn encode_as(&self, object: &Value, api_version: &str) -> Payload {
        let empty = Map::new();
        let members = object.as_object().unwrap_or(&empty);
        let mut text = Text::default();
        match &self.kind.custom {
            Some(_) => text.sorted(members, api_version, &self.kind.kind),
            None => text.typed(&self.head, &self.target.schema, members),
        }
        let mut facts = Facts::from_object(object, self);
        facts.schema_generation = self.kind.custom.as_ref().map_or(0, |custom| custom.generation);
        let facts: Option<setpoint_store::Facts> = Some(std::sync::Arc::new(facts));
        let Text { bytes, stamp_at, inset_at } = text;
        Payload { bytes: bytes.into(), stamp_at: Some(stamp_at), inset_at, inset: Inset::default(), facts }
    }

    /// Whether a record's bytes can be served as they are: stored in this kind's version, and with the current schema.
    pub(crate) fn is_shown_as_stored(&self, record: &Record) -> bool {
        match (&self.kind.conversion, &self.kind.custom) {
            (Some(_), _) => false,
            (None, None) => self.kind.semantics.hides.is_none(),
            (None, Some(custom)) => {
                let is_version = match custom.webhook {
                    None => custom.is_stored_in_this_version(),
                    Some(_) => custom.is_version_of(record),
                };
                is_version && Facts::of(record, self).schema_generation == custom.generation
            }
        }
    }

    /// Sets an object's kind and version.
    pub fn name_kind(&self, object: &mut Value) {
        if let Some(members) = object.as_object_mut() {
            members.insert("kind".into(), self.kind.kind.clone().into());
            members.insert("apiVersion".into(), self.kind.api_version().into());
        }
    }

    /// Encodes a record's object in this kind's version.
    pub fn bytes(&self, record: &Record) -> Result<Bytes, Status> {
        match self.is_shown_as_stored(record) {
            true => Ok(record.whole()),
            false => self.decode(record).map(|object| self.text_of(&self.as_seen(object))),
        }
    }

    /// Like [`bytes`](Self::bytes), without managed fields. In the stored version, this returns the store's own bytes.
    pub fn bare_bytes(&self, record: &Record) -> Result<Bytes, Status> {
        match self.is_shown_as_stored(record) {
            true => Ok(record.value.clone()),
            false => self.decode_bare(record).map(|object| self.text_of(&self.as_seen(object))),
        }
    }

    /// Encodes an object of this kind.
    fn text_of(&self, object: &Value) -> Bytes {
        let mut bytes = Vec::with_capacity(1024);
        self.write_object(&mut bytes, object);
        bytes.into()
    }

    /// Appends an object of this kind, with or without kind and version.
    pub(crate) fn write_object(&self, into: &mut Vec<u8>, object: &Value) {
        match self.kind.custom {
            Some(_) => write(into, object),
            None => encode::write(&self.target.schema, object, into),
        }
    }

    /// Appends the encoded object of a record, in this kind's version.
    pub fn write(&self, record: &Record, into: &mut Vec<u8>) -> Result<(), Status> {
        match self.is_shown_as_stored(record) {
            true => record.write_whole(into),
            false => self.write_object(into, &self.as_seen(self.decode(record)?)),
        }
        Ok(())
    }

    /// Appends a record as a list item: without kind and version, except for custom kinds.
    pub fn write_item(&self, record: &Record, into: &mut Vec<u8>) {
        if self.kind.custom.is_some() {
            match self.is_shown_as_stored(record) {
                true => record.write_whole(into),
                false => write(into, &self.decode(record).unwrap_or_default()),
            }
            return;
        }
        if !self.has_own_head(record) {
            return self.write_decoded_item(record, into);
        }
        into.push(b'{');
        record.write_whole_from(self.head.len(), into);
    }

    /// Returns the length of [`write_item`](Self::write_item)'s output, if known without decoding.
    pub fn item_length(&self, record: &Record) -> Option<usize> {
        if self.kind.custom.is_some() {
            return self.is_shown_as_stored(record).then(|| record.whole_length());
        }
        self.has_own_head(record).then(|| record.whole_length() - self.head.len() + 1)
    }

    fn has_own_head(&self, record: &Record) -> bool {
        self.kind.conversion.is_none()
            && self.kind.semantics.hides.is_none()
            && record.value.starts_with(&self.head)
    }

    fn write_decoded_item(&self, record: &Record, into: &mut Vec<u8>) {
        let mut object = self.as_seen(self.decode(record).unwrap_or_default());
        if let Some(members) = object.as_object_mut() {
            members.remove("kind");
            members.remove("apiVersion");
        }
        self.write_object(into, &object);
    }
}

/// An object to be stored, with the positions of the metadata added by the store.
#[derive(Default)]
struct Text {
    bytes: Vec<u8>,
    stamp_at: usize,
    inset_at: Option<usize>,
}

/// The metadata before the revision, in declaration order.
const BEFORE_REVISION: [&str; 5] = ["name", "generateName", "namespace", "selfLink", "uid"];

impl Text {
    /// Encodes an object of a built-in kind, with fields in declaration order.
    fn typed(&mut self, head: &[u8], schema: &Schema, members: &Map<String, Value>) {
        let empty = Map::new();
        let metadata = members.get("metadata").and_then(Value::as_object).unwrap_or(&empty);
        self.bytes = Vec::with_capacity(1024);
        self.bytes.extend_from_slice(head);
        self.bytes.extend_from_slice(METADATA);
        self.stamp_at = self.bytes.len();
        let mut stamp_at = None;
        if let Some(of_metadata) = schema.field("metadata") {
            encode::write_members(&of_metadata, metadata, &mut self.bytes, is_inside, |name, at| {
                if !BEFORE_REVISION.contains(&name) {
                    stamp_at.get_or_insert(at);
                }
            });
        }
        if let Some(at) = stamp_at {
            self.stamp_at = at;
            self.inset_at = Some(self.bytes.len());
        }
        self.bytes.push(b'}');
        let is_rest = |name: &str| !matches!(name, "kind" | "apiVersion" | "metadata");
        if members.keys().any(|name| is_rest(name)) {
            self.bytes.push(b',');
            encode::write_members(schema, members, &mut self.bytes, is_rest, |_, _| ());
        }
        self.bytes.push(b'}');
    }

    /// Encodes a custom resource, with sorted keys.
    fn sorted(&mut self, members: &Map<String, Value>, api_version: &str, kind: &str) {
        self.bytes = Vec::with_capacity(1024);
        self.bytes.push(b'{');
        let named = ["apiVersion", "kind", "metadata"];
        let mut names: Vec<&str> = members.keys().map(String::as_str).chain(named).collect();
        names.sort_unstable();
        names.dedup();
        for (at, name) in names.into_iter().enumerate() {
            if at > 0 {
                self.bytes.push(b',');
            }
            self.name(name);
            match (name, members.get(name)) {
                ("apiVersion", _) => write(&mut self.bytes, api_version),
                ("kind", _) => write(&mut self.bytes, kind),
                ("metadata", metadata) => self.sorted_metadata(metadata),
                (_, value) => encode::write_value(&mut self.bytes, value.unwrap_or(&Value::Null)),
            }
        }
        self.bytes.push(b'}');
    }

    fn sorted_metadata(&mut self, metadata: Option<&Value>) {
        let members = metadata.and_then(Value::as_object).into_iter().flatten();
        self.bytes.push(b'{');
        self.stamp_at = self.bytes.len();
        let (mut is_first, mut is_stamped) = (true, false);
        for (name, value) in members.filter(|(name, _)| is_inside(name)) {
            if name.as_str() > "managedFields" && self.inset_at.is_none() && !is_first {
                self.inset_at = Some(self.bytes.len());
            }
            if !is_first {
                self.bytes.push(b',');
            }
            if name.as_str() > "resourceVersion" && !is_stamped {
                self.stamp_at = self.bytes.len();
                is_stamped = true;
            }
            self.name(name);
            write(&mut self.bytes, value);
            is_first = false;
        }
        self.bytes.push(b'}');
    }

    fn name(&mut self, name: &str) {
        write(&mut self.bytes, name);
        self.bytes.push(b':');
    }
}

/// Whether a metadata field is part of the stored text.
fn is_inside(name: &str) -> bool {
    !matches!(name, "resourceVersion" | "managedFields")
}

fn write(bytes: &mut Vec<u8>, value: &(impl serde::Serialize + ?Sized)) {
    encode::write_plain(bytes, value);
}

/// Encodes a custom resource that is in the form in which it is stored.
pub(crate) fn stored_custom(object: &Value, fields: &ManagedFields) -> Payload {
    let empty = Map::new();
    let mut text = Text::default();
    text.sorted(object.as_object().unwrap_or(&empty), object.text("apiVersion"), object.text("kind"));
    let Text { bytes, stamp_at, inset_at } = text;
    let inset = fields.inset().clone();
    Payload { bytes: bytes.into(), stamp_at: Some(stamp_at), inset_at, inset, facts: None }
}

/// Encodes a document with its fields in v1.34's order.
pub(crate) fn document_bytes(document: &Value) -> Bytes {
    let mut bytes = Vec::with_capacity(512);
    documents::write_document(document, &mut bytes);
    bytes.into()
}

/// Serializes a response.
pub(crate) fn to_bytes(value: &impl serde::Serialize) -> Bytes {
    let mut bytes = Vec::with_capacity(512);
    write(&mut bytes, value);
    bytes.into()
}
