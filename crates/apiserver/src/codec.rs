//! Converts between stored bytes and objects.
//!
//! A stored object starts with its kind and version, then its metadata, then the rest. So its revision is at a known
//! position, and a list can omit kind and version, as v1.34 does, without decoding anything.
//!
//! Managed fields are stored beside the object ([`ManagedFields`]). Clients see them in their place; the server
//! usually decodes objects without them ([`Served::decode_bare`]).

use bytes::Bytes;
use serde_json::{Map, Value};
use setpoint_store::{Inset, Payload, Record};

use crate::apply::ManagedFields;
use crate::facts::Facts;
use crate::registry::Served;
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

    fn encode_stored(&self, object: &Value) -> Payload {
        let empty = Map::new();
        let members = object.as_object().unwrap_or(&empty);
        let metadata = members.get("metadata").and_then(Value::as_object).unwrap_or(&empty);
        let mut bytes = Vec::with_capacity(1024);
        bytes.extend_from_slice(&self.head);
        bytes.extend_from_slice(METADATA);
        let stamp_at = bytes.len();
        let is_inside = |name: &str| !matches!(name, "resourceVersion" | "managedFields");
        write_members(&mut bytes, metadata.iter().filter(|(name, _)| is_inside(name)));
        bytes.push(b'}');
        let rest =
            members.iter().filter(|(name, _)| !matches!(name.as_str(), "kind" | "apiVersion" | "metadata"));
        for (name, value) in rest {
            bytes.push(b',');
            write_members(&mut bytes, std::iter::once((name, value)));
        }
        bytes.push(b'}');
        let mut facts = Facts::from_object(object, self);
        facts.schema_generation = self.kind.custom.as_ref().map_or(0, |custom| custom.generation);
        let facts: Option<setpoint_store::Facts> = Some(std::sync::Arc::new(facts));
        Payload { bytes: bytes.into(), stamp_at: Some(stamp_at), inset: Inset::default(), facts }
    }

    /// Whether a record's bytes can be served as they are: stored in this kind's version, and with the current schema.
    pub(crate) fn is_shown_as_stored(&self, record: &Record) -> bool {
        match (&self.kind.conversion, &self.kind.custom) {
            (Some(_), _) => false,
            (None, None) => true,
            (None, Some(custom)) => {
                let schema = Facts::of(record, self).schema_generation;
                custom.is_stored_in_this_version() && schema == custom.generation
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
            false => self.decode(record).map(|object| to_bytes(&object)),
        }
    }

    /// Like [`bytes`](Self::bytes), without managed fields. In the stored version, this returns the store's own bytes.
    pub fn bare_bytes(&self, record: &Record) -> Result<Bytes, Status> {
        match self.is_shown_as_stored(record) {
            true => Ok(record.value.clone()),
            false => self.decode_bare(record).map(|object| to_bytes(&object)),
        }
    }

    /// Appends the encoded object of a record, in this kind's version.
    pub fn write(&self, record: &Record, into: &mut Vec<u8>) -> Result<(), Status> {
        match self.is_shown_as_stored(record) {
            true => record.write_whole(into),
            false => write(into, &self.decode(record)?),
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
        let (before, after) = record.around_inset(self.head.len());
        into.push(b'{');
        into.extend_from_slice(before);
        record.inset.write(into);
        into.extend_from_slice(after);
    }

    /// Returns the length of [`write_item`](Self::write_item)'s output, if known without decoding.
    pub fn item_length(&self, record: &Record) -> Option<usize> {
        if self.kind.custom.is_some() {
            return self.is_shown_as_stored(record).then(|| record.whole_length());
        }
        self.has_own_head(record).then(|| record.whole_length() - self.head.len() + 1)
    }

    fn has_own_head(&self, record: &Record) -> bool {
        self.kind.conversion.is_none() && record.value.starts_with(&self.head)
    }

    fn write_decoded_item(&self, record: &Record, into: &mut Vec<u8>) {
        let mut object = self.decode(record).unwrap_or_default();
        if let Some(members) = object.as_object_mut() {
            members.remove("kind");
            members.remove("apiVersion");
        }
        write(into, &object);
    }
}

fn write_members<'a>(bytes: &mut Vec<u8>, members: impl Iterator<Item = (&'a String, &'a Value)>) {
    for (at, (name, value)) in members.enumerate() {
        if at > 0 {
            bytes.push(b',');
        }
        write(bytes, name);
        bytes.push(b':');
        write(bytes, value);
    }
}

fn write(bytes: &mut Vec<u8>, value: &impl serde::Serialize) {
    serde_json::to_writer(bytes, value).expect("JSON values always encode into memory");
}

/// Serializes a response.
pub(crate) fn to_bytes(value: &impl serde::Serialize) -> Bytes {
    let mut bytes = Vec::with_capacity(512);
    write(&mut bytes, value);
    bytes.into()
}
