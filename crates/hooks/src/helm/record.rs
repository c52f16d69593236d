//! The record of a revision: the Secret in which Helm keeps it.                                               (pure)
//!
//! ```text
//!  data.release = base64(base64(gzip(JSON)))      {name, version, info {status, notes, …}, chart, manifest, …}
//! ```

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use setpoint::Key;

use super::plan::Stamp;
use crate::names::RELEASE_INTERRUPTED;

/// The largest record, unpacked. A Secret of 1 MiB could unpack to a gigabyte. What is not needed of a record is not
/// decoded, since that takes many times more than its text.
const MAX_RECORD: u64 = 32 << 20;
/// How much is kept of all records. When there are more, they are read again.
const MAX_KEPT: usize = 64 << 20;

/// What is needed of a record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) chart: String,
    pub(super) manifest: String,
    pub(super) notes: String,
    pub(super) description: String,
}

impl Record {
    fn size(&self) -> usize {
        self.chart.len() + self.manifest.len() + self.notes.len() + self.description.len()
    }
}

/// The records of the current revisions, so that each is read once.
#[derive(Default)]
pub(super) struct Records {
    known: BTreeMap<Key, (Stamp, Arc<Record>)>,
    size: usize,
}

impl Records {
    pub(super) fn get(&self, release: &Key, stamp: &Stamp) -> Option<Arc<Record>> {
        self.known.get(release).filter(|(known, _)| known == stamp).map(|(_, record)| record.clone())
    }

    pub(super) fn insert(&mut self, release: &Key, stamp: &Stamp, record: &Arc<Record>) {
        self.remove(release);
        if self.size + record.size() > MAX_KEPT {
            *self = Self::default();
        }
        self.size += record.size();
        self.known.insert(release.clone(), (stamp.clone(), record.clone()));
    }

    pub(super) fn remove(&mut self, release: &Key) {
        let removed = self.known.remove(release);
        self.size -= removed.map_or(0, |(_, record)| record.size());
    }
}

/// The fields of a record that are needed.
#[derive(Deserialize, Default)]
#[serde(default)]
struct Fields {
    info: Option<Info>,
    chart: Option<InChart>,
    manifest: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Info {
    notes: Option<String>,
    description: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct InChart {
    metadata: Option<ChartMetadata>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ChartMetadata {
    name: Option<String>,
}

/// Reads the record in a Secret.
pub(super) fn read(secret: &Value) -> Result<Record, String> {
    let fields: Fields = serde_json::from_slice(&unpack(secret)?).map_err(wrong)?;
    let (info, chart) = (fields.info.unwrap_or_default(), fields.chart.unwrap_or_default());
    Ok(Record {
        chart: chart.metadata.and_then(|metadata| metadata.name).unwrap_or_default(),
        manifest: fields.manifest.unwrap_or_default(),
        notes: info.notes.unwrap_or_default(),
        description: info.description.unwrap_or_default(),
    })
}

/// Returns the patch that marks a revision as failed, as `helm` does when it is interrupted and has the time.
pub(super) fn failing(secret: &Value, why: &str) -> Result<Value, String> {
    let mut release: BTreeMap<String, Box<RawValue>> =
        serde_json::from_slice(&unpack(secret)?).map_err(wrong)?;
    let info = release.get("info").ok_or("data.release: info: expected an object")?;
    let mut info: Map<String, Value> = serde_json::from_str(info.get()).map_err(wrong)?;
    info.insert("status".into(), "failed".into());
    info.insert("description".into(), why.into());
    release.insert("info".into(), serde_json::value::to_raw_value(&info).map_err(wrong)?);
    let release = serde_json::to_vec(&release).map_err(wrong)?;
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

fn wrong(error: impl std::fmt::Display) -> String {
    format!("data.release: {error}")
}

fn unpack(secret: &Value) -> Result<Vec<u8>, String> {
    let text = secret["data"]["release"].as_str().ok_or("data.release: expected text")?;
    let inner = STANDARD.decode(text).map_err(wrong)?;
    let packed = STANDARD.decode(inner).map_err(wrong)?;
    if !packed.starts_with(&[0x1f, 0x8b]) {
        return Ok(packed);
    }
    let mut unpacked = Vec::new();
    GzDecoder::new(packed.as_slice()).take(MAX_RECORD + 1).read_to_end(&mut unpacked).map_err(wrong)?;
    match unpacked.len() as u64 > MAX_RECORD {
        true => Err(format!("data.release: it is larger than {MAX_RECORD} bytes")),
        false => Ok(unpacked),
    }
}

fn pack(release: &[u8]) -> Result<String, String> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(release).map_err(|error| error.to_string())?;
    let packed = encoder.finish().map_err(|error| error.to_string())?;
    Ok(STANDARD.encode(STANDARD.encode(packed)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packed(release: &Value) -> String {
        pack(release.to_string().as_bytes()).expect("it packs")
    }

    fn secret(release: &Value) -> Value {
        json!({"metadata": {"uid": "u", "resourceVersion": "7"}, "data": {"release": packed(release)}})
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
        let marked: Value = serde_json::from_slice(&unpack(&patch).expect("a record")).expect("JSON");
        assert_eq!((&marked["info"]["status"], &marked["other"]["kept"]), (&json!("failed"), &json!([1])));
        assert_eq!(
            (&patch["metadata"]["resourceVersion"], &patch["metadata"]["labels"]["status"]),
            (&json!("7"), &json!("failed"))
        );
    }

    #[test]
    fn a_record_that_unpacks_to_too_much_is_an_error() {
        let bomb = pack(&vec![b' '; MAX_RECORD as usize + 1]).expect("it packs");
        assert!(bomb.len() < 1 << 20, "it fits into a Secret");
        let error = read(&json!({"data": {"release": bomb}})).expect_err("too large");
        assert!(error.contains("larger than"), "{error}");
    }

    #[test]
    fn records_are_kept_up_to_a_limit() {
        let mut records = Records::default();
        let stamp: Stamp = ("u".into(), "1".into());
        let record = Arc::new(Record { manifest: "x".repeat(MAX_KEPT / 4), ..Record::default() });
        for nth in 0..40 {
            records.insert(&Key::namespaced("n", (nth % 20).to_string()), &stamp, &record);
            assert!(records.known.len() <= 4 && records.size == records.known.len() * record.size());
        }
        let last = Key::namespaced("n", "19");
        assert!(
            records.get(&last, &stamp).is_some() && records.get(&last, &("u".into(), "2".into())).is_none()
        );
        records.remove(&last);
        assert!(records.get(&last, &stamp).is_none());
    }

    #[test]
    fn a_secret_that_is_no_record_is_an_error() {
        assert!(read(&json!({})).is_err() && read(&json!({"data": {"release": "x"}})).is_err());
        let plain = STANDARD.encode(STANDARD.encode("{\"manifest\":\"m\"}"));
        assert_eq!(read(&json!({"data": {"release": plain}})).expect("Helm 2 did so").manifest, "m");
    }
}
