//! Stored form of `metadata.managedFields`: one shared text per entry, and its time.
//!
//! While an object is processed, its managed fields travel beside it, not inside. They are compared by pointer, and
//! become values only when a client, a patch or a policy needs to see them.

use std::sync::Arc;

use serde_json::Value;
use setpoint_store::{InlineBytes, Inset, Part, Record, Text};

use super::managers::{Manager, Managers, Operation, Owned, decode, metadata_of, take_entries};
use crate::schema::is_built_in;

/// The managed fields of an object. Cheap to clone and to compare.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ManagedFields(Inset);

impl ManagedFields {
    /// Returns the managed fields of a record. Earlier versions stored them inside the object.
    pub fn of(record: &Record) -> Self {
        let is_inside = || record.value.windows(WRITTEN.len()).any(|window| window == WRITTEN);
        if !record.inset.is_empty() || !is_inside() {
            return Self(record.inset.clone());
        }
        serde_json::from_slice(&record.value)
            .map_or_else(|_| Self::default(), |mut object| Self::take_from(&mut object))
    }

    /// Removes them from an object.
    pub(crate) fn discard(object: &mut Value) {
        drop(take_entries(object));
    }

    /// Takes them out of an object.
    pub fn take_from(object: &mut Value) -> Self {
        Self::from_entries(take_entries(object).unwrap_or_default())
    }

    /// Puts them into an object.
    pub fn put_into(&self, object: &mut Value) {
        let Some(metadata) = metadata_of(object) else { return };
        match self.is_empty() {
            true => _ = metadata.remove(MANAGED_FIELDS),
            false => _ = metadata.insert(MANAGED_FIELDS.into(), self.entries().into()),
        }
    }

    /// Returns the object with these managed fields inside.
    pub fn inside(&self, mut object: Value) -> Value {
        self.put_into(&mut object);
        object
    }

    pub(super) fn from_entries(entries: Vec<Value>) -> Self {
        Self(Inset::new(entries.into_iter().filter_map(part_of)))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns their length in an encoded object.
    pub fn length(&self) -> usize {
        self.0.length()
    }

    pub(crate) fn inset(&self) -> &Inset {
        &self.0
    }

    pub(super) fn entries(&self) -> Vec<Value> {
        let entry = |part: &Part| {
            let mut text = Vec::new();
            part.write(&mut text);
            serde_json::from_slice(&text).unwrap_or_default()
        };
        self.0.parts().iter().map(entry).collect()
    }

    /// Checks that all entries are valid.
    pub(crate) fn check(&self) -> Result<(), String> {
        self.managers().map(drop)
    }

    /// Whether there are entries of other versions than this one.
    pub(super) fn has_other_versions(&self, api_version: &str) -> bool {
        let mut entries = self.0.parts().iter().filter_map(|part| read(&part.text).ok());
        entries.any(|entry| entry.api_version != api_version)
    }

    /// Decodes the managers; fails if an entry is invalid.
    pub(super) fn managers(&self) -> Result<Managers, String> {
        self.0.parts().iter().map(owned).collect::<Result<_, _>>().map(Managers)
    }

    /// Returns the times of `live` if only the times differ and the objects are equal.
    pub(crate) fn keeping_times(self, live: &Self, is_same_object: impl FnOnce() -> bool) -> Self {
        let only_times = self != *live && self.0.has_texts_of(&live.0);
        if only_times && is_same_object() { live.clone() } else { self }
    }

    /// Sorts entries as v1.34 does: by operation, time and name.
    pub(super) fn sorted(mut parts: Vec<Part>) -> Self {
        parts.sort_by(|a, b| match (read(&a.text), read(&b.text)) {
            (Ok(one), Ok(other)) => (one.manager.operation.cmp(&other.manager.operation))
                .then_with(|| a.own.as_str().cmp(b.own.as_str()))
                .then_with(|| one.manager.name.cmp(&other.manager.name))
                .then_with(|| one.api_version.cmp(&other.api_version))
                .then_with(|| one.manager.subresource.cmp(&other.manager.subresource)),
            _ => std::cmp::Ordering::Equal,
        });
        Self(Inset::new(parts))
    }
}

const MANAGED_FIELDS: &str = "managedFields";
/// Their prefix in an encoded object.
const WRITTEN: &[u8] = b"\"managedFields\":[";
const TIME: &str = "time";

/// The cached decoding of a text: an entry without its time.
struct Entry {
    manager: Manager,
    api_version: String,
    /// Only cached for short texts: a set takes many times the memory of its text.
    owned: Option<Owned>,
}

fn read(text: &Text) -> Result<&Entry, &str> {
    let read = text.reading(|text| -> Result<Entry, String> {
        let (manager, owned) = decode_text(text)?;
        let api_version = owned.api_version.clone();
        let is_long = text.bytes().len() > Text::LONG;
        Ok(Entry { manager, api_version, owned: (!is_long).then_some(owned) })
    });
    match read {
        Some(Ok(entry)) => Ok(entry),
        Some(Err(why)) => Err(why),
        None => Err("this is not an entry of managed fields"),
    }
}

fn decode_text(text: &Text) -> Result<(Manager, Owned), String> {
    let entry = serde_json::from_slice(text.bytes()).map_err(|why| why.to_string())?;
    decode(0, entry)
}

/// Returns an entry's manager.
pub(super) fn manager_of(part: &Part) -> Option<&Manager> {
    read(&part.text).ok().map(|entry| &entry.manager)
}

fn owned(part: &Part) -> Result<(Manager, Owned), String> {
    let entry = read(&part.text)?;
    let (manager, owned) = match &entry.owned {
        Some(owned) => (entry.manager.clone(), owned.clone()),
        None => decode_text(&part.text)?,
    };
    let time = Some(part.own.as_str()).filter(|time| !time.is_empty()).map(Into::into);
    // A time inside the text was decoded with it.
    let time = time.or_else(|| owned.time.clone());
    Ok((manager, Owned { time, ..owned }))
}

/// Converts an entry as received: the time is separate, the rest is shared.
fn part_of(entry: Value) -> Option<Part> {
    let Value::Object(mut fields) = entry else { return None };
    let own =
        fields.get(TIME).and_then(Value::as_str).filter(|time| is_plain(time)).and_then(InlineBytes::new);
    if own.is_some() {
        fields.remove(TIME);
    }
    let api_version = fields.get("apiVersion").and_then(Value::as_str).unwrap_or_default();
    let order = order_of(api_version);
    let mut writing = Writing::default();
    for name in order {
        match fields.get(*name) {
            Some(value) => _ = serde_json::to_writer(writing.member(name), value),
            None if *name == TIME && own.is_some() => writing.time(),
            None => {}
        }
    }
    for (name, value) in fields.iter().filter(|(name, _)| !order.contains(&name.as_str())) {
        let _ = serde_json::to_writer(writing.member(name), value);
    }
    Some(Part { text: writing.end()?, own: own.unwrap_or_default() })
}

/// Whether a time needs no escapes.
fn is_plain(time: &str) -> bool {
    !time.is_empty() && time.bytes().all(|byte| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\\'))
}

/// Returns the members of an entry in v1.34's encoding order: the declaration order for built-in kinds, sorted for
/// custom resources.
fn order_of(api_version: &str) -> &'static [&'static str; 7] {
    const DECLARED: [&str; 7] =
        ["manager", "operation", "apiVersion", TIME, "fieldsType", "fieldsV1", "subresource"];
    const SORTED: [&str; 7] =
        ["apiVersion", "fieldsType", "fieldsV1", "manager", "operation", "subresource", TIME];
    if is_built_in(api_version) { &DECLARED } else { &SORTED }
}

/// An entry being encoded.
#[derive(Default)]
struct Writing {
    text: Vec<u8>,
    own_at: Option<usize>,
}

impl Writing {
    /// Starts a member. The caller appends its value to the text.
    fn member(&mut self, name: &str) -> &mut Vec<u8> {
        self.text.push(if self.text.is_empty() { b'{' } else { b',' });
        // Writing to a vector cannot fail.
        let _ = serde_json::to_writer(&mut self.text, name);
        self.text.push(b':');
        &mut self.text
    }

    /// Leaves room for the time.
    fn time(&mut self) {
        let text = self.member(TIME);
        text.push(b'"');
        let own_at = text.len();
        text.push(b'"');
        self.own_at = Some(own_at);
    }

    fn end(mut self) -> Option<Arc<Text>> {
        if self.text.is_empty() {
            self.text.push(b'{');
        }
        self.text.push(b'}');
        Text::shared(&self.text, self.own_at.unwrap_or(self.text.len()))
    }
}

/// Builds the text of an entry whose fields `write_fields` appends; `None` if there are none.
pub(super) fn entry(
    manager: &Manager,
    api_version: &str,
    has_time: bool,
    write_fields: impl FnOnce(&mut Vec<u8>) -> bool,
) -> Option<Arc<Text>> {
    let mut writing = Writing { text: Vec::with_capacity(1024), own_at: None };
    let mut write_fields = Some(write_fields);
    let operation = match manager.operation {
        Operation::Apply => "Apply",
        Operation::Update => "Update",
    };
    for name in order_of(api_version) {
        let text = match *name {
            "manager" => &manager.name,
            "operation" => operation,
            "apiVersion" => api_version,
            "fieldsType" => "FieldsV1",
            "subresource" if manager.subresource.is_empty() => continue,
            "subresource" => &manager.subresource,
            "fieldsV1" => {
                let has_fields = write_fields.take().is_some_and(|write| write(writing.member(name)));
                if !has_fields {
                    return None;
                }
                continue;
            }
            _ => {
                if has_time {
                    writing.time();
                }
                continue;
            }
        };
        let _ = serde_json::to_writer(writing.member(name), text);
    }
    writing.end()
}

impl Managers {
    /// Encodes the entries of these managers.
    pub(super) fn into_fields(self) -> ManagedFields {
        ManagedFields::sorted(
            self.0.into_iter().filter_map(|(manager, owned)| into_part(manager, owned)).collect(),
        )
    }
}

pub(super) fn into_part(manager: Manager, owned: Owned) -> Option<Part> {
    let Owned { set, api_version, time } = owned;
    let own = time.as_deref().filter(|time| is_plain(time)).and_then(InlineBytes::new);
    let has_time = own.is_some();
    let text = entry(&manager, &api_version, has_time, |text| {
        serde_json::to_writer(text, &set.into_stored()).is_ok()
    })?;
    Some(Part { text, own: own.unwrap_or_default() })
}
