//! Leaving out what no controller reads.

use bytes::{Bytes, BytesMut};
use serde::Deserialize;
use serde_json::value::RawValue;

const KEY: &[u8] = b"\"managedFields\"";

/// A copy of an encoded object without `metadata.managedFields`, which often make up half of it. What
/// cannot be read is copied as it is.
///
/// ```
/// let raw = br#"{"metadata":{"name":"a","managedFields":[{"manager":"kubectl"}],"uid":"u"},"spec":{}}"#;
/// let stripped = setpoint::object::without_managed_fields(raw);
/// assert_eq!(stripped, br#"{"metadata":{"name":"a","uid":"u"},"spec":{}}"#[..]);
/// ```
pub fn without_managed_fields(raw: &[u8]) -> Bytes {
    match member(raw) {
        None => Bytes::copy_from_slice(raw),
        Some((start, end)) => {
            let mut kept = BytesMut::with_capacity(raw.len() - (end - start));
            kept.extend_from_slice(&raw[..start]);
            kept.extend_from_slice(&raw[end..]);
            kept.freeze()
        }
    }
}

/// Where the member starts and ends, with one of the commas around it.
fn member(raw: &[u8]) -> Option<(usize, usize)> {
    memchr::memmem::find(raw, KEY)?; // most objects from a cache of one's own have none
    let value = value(raw)?.get();
    let value_start = value.as_ptr().addr() - raw.as_ptr().addr();
    let value_end = value_start + value.len();
    let before =
        raw[..value_start].trim_ascii_end().strip_suffix(b":")?.trim_ascii_end().strip_suffix(KEY)?;
    match before.trim_ascii_end().strip_suffix(b",") {
        Some(before) => Some((before.len(), value_end)),
        None => {
            let after = raw[value_end..].trim_ascii_start();
            let after = after.strip_prefix(b",").unwrap_or(after);
            Some((before.len(), raw.len() - after.len()))
        }
    }
}

fn value(raw: &[u8]) -> Option<&RawValue> {
    #[derive(Deserialize)]
    struct Envelope<'a> {
        #[serde(borrow)]
        metadata: Metadata<'a>,
    }
    #[derive(Deserialize)]
    struct Metadata<'a> {
        #[serde(borrow, default, rename = "managedFields")]
        managed_fields: Option<&'a RawValue>,
    }
    serde_json::from_slice::<Envelope<'_>>(raw).ok()?.metadata.managed_fields
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn managed_fields_go_and_nothing_else_does() {
        let check = |raw: &str, expected: &str| {
            assert_eq!(without_managed_fields(raw.as_bytes()), expected.as_bytes(), "{raw}");
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
            r#"{"metadata":{"managedFields":["#,
            "",
        ] {
            check(kept, kept);
        }
    }
}
