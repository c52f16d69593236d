//! Compressed parts of records in KubeVela's format: `spec.compression` has a type and base64 data.
//!
//! Invariant: an unreadable part is an error, never an empty record, whose objects would be lost.

use std::io::{Read, Write};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use ruzstd::decoding::StreamingDecoder;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The maximum decompressed size of a record. Otherwise, an object of 1.5 MiB could expand to gigabytes.
const MAX_BYTES: u64 = 32 << 20;

/// A compressed part of a record.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub(crate) struct Compression {
    #[serde(rename = "type", deserialize_with = "setpoint::null_is_empty")]
    kind: String,
    #[serde(deserialize_with = "setpoint::null_is_empty")]
    data: String,
}

impl Compression {
    /// Returns whether anything is compressed.
    pub(crate) fn is_used(&self) -> bool {
        !self.kind.is_empty()
    }

    /// Compresses a part with gzip: of the types that KubeVela reads, it gives the smallest records here.
    pub(crate) fn of(part: &Value) -> Result<Self, String> {
        let mut encoder = GzEncoder::new(Vec::new(), flate2::Compression::default());
        let packed = encoder.write_all(part.to_string().as_bytes()).and_then(|()| encoder.finish());
        let packed = packed.map_err(|why| format!("compress: {why}"))?;
        Ok(Self { kind: "gzip".to_owned(), data: STANDARD.encode(packed) })
    }

    /// Decompresses and decodes the part. The error says what is wrong with it.
    pub(crate) fn read<T: DeserializeOwned>(&self) -> Result<T, String> {
        let at = |why: &dyn std::fmt::Display| format!("spec.compression: {why}");
        let packed = STANDARD.decode(self.data.trim()).map_err(|why| at(&why))?;
        let text = match self.kind.as_str() {
            "gzip" => bounded(GzDecoder::new(packed.as_slice())),
            "zstd" => {
                StreamingDecoder::new(packed.as_slice()).map_err(|why| why.to_string()).and_then(bounded)
            }
            other => Err(format!("type {other:?}, expected gzip or zstd")),
        };
        serde_json::from_slice(&text.map_err(|why| at(&why))?).map_err(|why| at(&why))
    }
}

fn bounded(reader: impl Read) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    reader.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(|why| why.to_string())?;
    match bytes.len() as u64 > MAX_BYTES {
        true => Err(format!("larger than {MAX_BYTES} bytes")),
        false => Ok(bytes),
    }
}

/// Decompresses a ResourceTracker of KubeVela. The error says what is wrong with it.
///
/// ```
/// let mut tracker = serde_json::json!({"spec": {"managedResources": [{"kind": "ConfigMap", "name": "a"}]}});
/// setpoint_oam::unpack_tracker(&mut tracker).unwrap();
/// assert_eq!(tracker["spec"]["managedResources"][0]["name"], "a");
/// ```
pub fn unpack_tracker(tracker: &mut Value) -> Result<(), String> {
    let Some(spec) = tracker.get_mut("spec").and_then(Value::as_object_mut) else { return Ok(()) };
    let Some(given) = spec.remove("compression") else { return Ok(()) };
    let packed =
        Option::<Compression>::deserialize(given).map_err(|why| format!("spec.compression: {why}"))?;
    if let Some(packed) = packed.filter(Compression::is_used) {
        spec.insert("managedResources".to_owned(), packed.read()?);
    }
    Ok(())
}

/// Decompresses an ApplicationRevision. The error says what is wrong with it.
///
/// ```
/// let mut revision = serde_json::json!({"spec": {"application": {"spec": {}}}});
/// setpoint_oam::unpack_revision(&mut revision).unwrap();
/// assert_eq!(revision["spec"]["application"]["spec"], serde_json::json!({}));
/// ```
pub fn unpack_revision(revision: &mut Value) -> Result<(), String> {
    let Some(spec) = revision.get_mut("spec") else { return Ok(()) };
    let packed = Option::<Compression>::deserialize(&spec["compression"])
        .map_err(|why| format!("spec.compression: {why}"))?;
    if let Some(packed) = packed.filter(Compression::is_used) {
        *spec = packed.read()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use ruzstd::encoding::{CompressionLevel, compress_to_vec};
    use serde_json::json;

    use super::*;

    fn gzip(text: &[u8]) -> String {
        let mut encoder = GzEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(text).unwrap();
        STANDARD.encode(encoder.finish().unwrap())
    }

    fn tracker(kind: &str, data: String) -> Value {
        json!({"spec": {"compression": {"type": kind, "data": data}}})
    }

    #[test]
    fn records_of_kubevela_are_read() {
        let entries = json!([{"kind": "ConfigMap", "name": "a"}]);
        let text = entries.to_string();
        let zstd = STANDARD.encode(compress_to_vec(text.as_bytes(), CompressionLevel::Fastest));
        for mut compressed in [tracker("gzip", gzip(text.as_bytes())), tracker("zstd", zstd)] {
            unpack_tracker(&mut compressed).unwrap();
            assert_eq!(compressed, json!({"spec": {"managedResources": entries}}));
        }
        let mut plain = json!({"spec": {"compression": {}, "managedResources": entries}});
        unpack_tracker(&mut plain).unwrap();
        assert_eq!(plain["spec"]["managedResources"], entries);
    }

    #[test]
    fn a_compressed_revision_is_read() {
        let spec = json!({"application": {"spec": {"components": [{"name": "a"}]}}});
        let mut compressed = json!({"spec": {"compression": Compression::of(&spec).unwrap()}});
        unpack_revision(&mut compressed).unwrap();
        assert_eq!(compressed, json!({"spec": spec}));
        unpack_revision(&mut compressed).unwrap();
        assert_eq!(compressed, json!({"spec": spec}));
    }

    #[test]
    fn what_cannot_be_read_is_an_error() {
        let huge = vec![b' '; 40 << 20];
        for (kind, data, expected) in [
            ("lz4", String::new(), "expected gzip or zstd"),
            ("gzip", "%".to_owned(), "spec.compression"),
            ("zstd", STANDARD.encode("nonsense"), "spec.compression"),
            ("gzip", gzip(&huge), "larger than"),
        ] {
            let error = unpack_tracker(&mut tracker(kind, data)).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }
}
