//! Drops managed fields while decoding the metadata.

use std::borrow::Cow;
use std::fmt;

use bytes::{Bytes, BytesMut};
use serde::de::value::{CowStrDeserializer, MapAccessDeserializer};
use serde::de::{DeserializeSeed, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::Metadata;

const KEY: &str = "managedFields";

/// Decodes the metadata of an encoded object, and copies the object without `metadata.managedFields`, which are often
/// half of it.
pub(super) fn read_and_strip(raw: &[u8]) -> serde_json::Result<(Metadata, Bytes)> {
    #[derive(Deserialize)]
    struct Envelope<'a> {
        #[serde(borrow)]
        metadata: SplitMetadata<'a>,
    }
    let SplitMetadata { metadata, managed } = serde_json::from_slice::<Envelope<'_>>(raw)?.metadata;
    let member = managed.and_then(|value| member(raw, value.get()));
    Ok((metadata, member.map_or_else(|| Bytes::copy_from_slice(raw), |(start, end)| cut(raw, start, end))))
}

fn cut(raw: &[u8], start: usize, end: usize) -> Bytes {
    let mut kept = BytesMut::with_capacity(raw.len() - (end - start));
    kept.extend_from_slice(&raw[..start]);
    kept.extend_from_slice(&raw[end..]);
    kept.freeze()
}

/// Returns the byte range of the member with this value, including one of the commas around it.
fn member(raw: &[u8], value: &str) -> Option<(usize, usize)> {
    let value_start = value.as_ptr().addr() - raw.as_ptr().addr();
    let value_end = value_start + value.len();
    let key = raw[..value_start].trim_ascii_end().strip_suffix(b":")?.trim_ascii_end();
    let before = key.strip_suffix(b"\"")?.strip_suffix(KEY.as_bytes())?.strip_suffix(b"\"")?;
    match before.trim_ascii_end().strip_suffix(b",") {
        Some(before) => Some((before.len(), value_end)),
        None => {
            let after = raw[value_end..].trim_ascii_start();
            let after = after.strip_prefix(b",").unwrap_or(after);
            Some((before.len(), raw.len() - after.len()))
        }
    }
}

/// The metadata, and the encoded managed fields.
struct SplitMetadata<'a> {
    metadata: Metadata,
    managed: Option<&'a RawValue>,
}

impl<'de: 'a, 'a> Deserialize<'de> for SplitMetadata<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(SplitMetadataVisitor)
    }
}

struct SplitMetadataVisitor;

impl<'de> Visitor<'de> for SplitMetadataVisitor {
    type Value = SplitMetadata<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the metadata of an object")
    }

    fn visit_map<M: MapAccess<'de>>(self, map: M) -> Result<Self::Value, M::Error> {
        let mut managed = None;
        let others = OtherMembers { map, managed: &mut managed };
        let metadata = Metadata::deserialize(MapAccessDeserializer::new(others))?;
        Ok(SplitMetadata { metadata, managed })
    }
}

/// The members of the metadata except for the managed fields, which are stored separately.
struct OtherMembers<'a, 'de, M> {
    map: M,
    managed: &'a mut Option<&'de RawValue>,
}

impl<'de, M: MapAccess<'de>> MapAccess<'de> for OtherMembers<'_, 'de, M> {
    type Error = M::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, M::Error> {
        while let Some(Name(name)) = self.map.next_key::<Name<'de>>()? {
            if name != KEY {
                return seed.deserialize(CowStrDeserializer::new(name)).map(Some);
            }
            *self.managed = self.map.next_value()?;
        }
        Ok(None)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, M::Error> {
        self.map.next_value_seed(seed)
    }
}

/// The name of a member, borrowed unless it contains escapes.
#[derive(Deserialize)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_managed_fields_are_stripped() {
        let check = |raw: &str, expected: &str| {
            let (_, kept) = read_and_strip(raw.as_bytes()).unwrap();
            assert_eq!(kept, expected.as_bytes(), "{raw}");
        };
        check(r#"{"metadata":{"managedFields":[{"a":"}]"}],"name":"a"}}"#, r#"{"metadata":{"name":"a"}}"#);
        check(r#"{"metadata":{"name":"a","managedFields":[]}}"#, r#"{"metadata":{"name":"a"}}"#);
        check(r#"{"metadata":{"managedFields":[]}}"#, r#"{"metadata":{}}"#);
        check(
            r#"{"metadata": {"name": "a" , "managedFields" : [ {} ] , "uid": "u"}}"#,
            r#"{"metadata": {"name": "a"  , "uid": "u"}}"#,
        );
        for kept in [
            r#"{"metadata":{"name":"a"},"spec":{"managedFields":[1]}}"#,
            r#"{"metadata":{"name":"a","annotations":{"managedFields":"x"}}}"#,
            r#"{"metadata":{"annotations":{"x":"{\"managedFields\":[1]}"}}}"#,
        ] {
            check(kept, kept);
        }
    }

    #[test]
    fn the_metadata_around_managed_fields_is_read() {
        let raw = r#"{"metadata":{"name":"a","managedFields":[{"manager":"x"}],"uid":"u"}}"#;
        let (metadata, _) = read_and_strip(raw.as_bytes()).unwrap();
        assert_eq!((&*metadata.name, &*metadata.uid), ("a", "u"));
    }

    #[test]
    fn unreadable_input_is_an_error() {
        for bad in ["", "{}", r#"{"metadata":{"managedFields":["#, r#"{"metadata":[]}"#] {
            assert!(read_and_strip(bad.as_bytes()).is_err(), "{bad}");
        }
    }
}
