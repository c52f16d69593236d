//! The record of a revision: the Secret in which Helm keeps it.                                               (pure)
//!
//! ```text
//!  data.release = base64(base64(gzip(JSON)))      {name, version, info {status, notes, …}, chart, manifest, …}
//! ```

use std::io::{Read, Write};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use serde_json::{Value, json};

use crate::names::RELEASE_INTERRUPTED;

/// The largest record, unpacked. A Secret of 1 MiB could unpack to a gigabyte.
const MAX_RECORD: u64 = 64 << 20;

/// What is needed of a record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) chart: String,
    pub(super) manifest: String,
    pub(super) notes: String,
    pub(super) description: String,
}

/// Reads the record in a Secret.
pub(super) fn read(secret: &Value) -> Result<Record, String> {
    let release = unpack(secret)?;
    let text =
        |pointer: &str| release.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
    Ok(Record {
        chart: text("/chart/metadata/name"),
        manifest: text("/manifest"),
        notes: text("/info/notes"),
        description: text("/info/description"),
    })
}

/// Returns the patch that marks a revision as failed, as `helm` does when it is interrupted and has the time.
pub(super) fn failing(secret: &Value, why: &str) -> Result<Value, String> {
    let mut release = unpack(secret)?;
    let info = release["info"].as_object_mut().ok_or("info: expected an object")?;
    info.insert("status".into(), "failed".into());
    info.insert("description".into(), why.into());
    Ok(json!({
        "metadata": {
            "uid": secret["metadata"]["uid"],
            "resourceVersion": secret["metadata"]["resourceVersion"],
            "labels": {"status": "failed"},
            "annotations": {RELEASE_INTERRUPTED: "true"},
        },
        "data": {"release": pack(&release)?},
    }))
}

fn unpack(secret: &Value) -> Result<Value, String> {
    let text = secret["data"]["release"].as_str().ok_or("data.release: expected text")?;
    let wrong = |error: &dyn std::fmt::Display| format!("data.release: {error}");
    let inner = STANDARD.decode(text).map_err(|error| wrong(&error))?;
    let packed = STANDARD.decode(inner).map_err(|error| wrong(&error))?;
    let mut unpacked = Vec::new();
    if packed.starts_with(&[0x1f, 0x8b]) {
        let mut decoder = GzDecoder::new(packed.as_slice()).take(MAX_RECORD + 1);
        decoder.read_to_end(&mut unpacked).map_err(|error| wrong(&error))?;
    } else {
        unpacked = packed;
    }
    if unpacked.len() as u64 > MAX_RECORD {
        return Err(format!("data.release: it is larger than {MAX_RECORD} bytes"));
    }
    serde_json::from_slice(&unpacked).map_err(|error| wrong(&error))
}

fn pack(release: &Value) -> Result<String, String> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(release.to_string().as_bytes()).map_err(|error| error.to_string())?;
    let packed = encoder.finish().map_err(|error| error.to_string())?;
    Ok(STANDARD.encode(STANDARD.encode(packed)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(release: &Value) -> Value {
        json!({"metadata": {"uid": "u", "resourceVersion": "7"}, "data": {"release": pack(release).expect("it packs")}})
    }

    #[test]
    fn a_record_is_read_and_marked() {
        let release = json!({
            "name": "shop", "version": 2, "info": {"status": "pending-upgrade", "notes": "hello", "description": "d"},
            "chart": {"metadata": {"name": "shop"}}, "manifest": "---\n", "other": {"kept": [1]},
        });
        let record = read(&secret(&release)).expect("a record");
        let expected = Record {
            chart: "shop".into(),
            manifest: "---\n".into(),
            notes: "hello".into(),
            description: "d".into(),
        };
        assert_eq!(record, expected);
        let patch = failing(&secret(&release), "interrupted").expect("a patch");
        let marked = unpack(&patch).expect("a record");
        assert_eq!((&marked["info"]["status"], &marked["other"]["kept"]), (&json!("failed"), &json!([1])));
        assert_eq!(
            (&patch["metadata"]["resourceVersion"], &patch["metadata"]["labels"]["status"]),
            (&json!("7"), &json!("failed"))
        );
    }

    #[test]
    fn a_secret_that_is_no_record_is_an_error() {
        assert!(read(&json!({})).is_err() && read(&json!({"data": {"release": "x"}})).is_err());
        let plain = STANDARD.encode(STANDARD.encode("{\"manifest\":\"m\"}"));
        assert_eq!(read(&json!({"data": {"release": plain}})).expect("Helm 2 did so").manifest, "m");
    }
}
