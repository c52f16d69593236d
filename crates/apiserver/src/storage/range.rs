//! The stored form of `RangeAllocation`, which v1.34 stores but does not serve: a range of numbers, and a bitmap of those
//! in use.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde_json::{Value, json};
use setpoint_store::Payload;

use super::{StorageMediaType, line};
use crate::json::Json;
use crate::schema::protobuf::{self, is_marked, write};

const API_VERSION: &str = "v1";
const KIND: &str = "RangeAllocation";
/// The fields in protobuf.
const METADATA: u64 = 1;
const RANGE: u64 = 2;
const DATA: u64 = 3;

/// A range of numbers, such as `30000-32767`. The bitmap is one large number, its highest byte first; its lowest bit is
/// the first number of the range.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RangeAllocation {
    pub(crate) range: String,
    pub(crate) bitmap: Vec<u8>,
}

impl RangeAllocation {
    pub(crate) fn payload(&self) -> Payload {
        let data = STANDARD.encode(&self.bitmap);
        let object = json!({
            "kind": KIND, "apiVersion": API_VERSION, "metadata": {}, "range": self.range, "data": data,
        });
        Payload::plain(object.to_string())
    }

    /// Reads the payload of a record.
    pub(crate) fn read(json: &[u8]) -> Result<Self, String> {
        let object: Value = serde_json::from_slice(json).map_err(|why| why.to_string())?;
        if (object.text("apiVersion"), object.text("kind")) != (API_VERSION, KIND) {
            return Err(format!("it is not a {API_VERSION} {KIND}"));
        }
        let bitmap = STANDARD.decode(object.text("data")).map_err(|why| format!("data: {why}"))?;
        Ok(Self { range: object.text("range").to_owned(), bitmap })
    }

    fn from_protobuf(stored: &[u8]) -> Result<Self, String> {
        if protobuf::stated(stored)? != (API_VERSION.to_owned(), KIND.to_owned()) {
            return Err(format!("it is not a {API_VERSION} {KIND}"));
        }
        let mut allocation = Self::default();
        for (number, contents) in protobuf::byte_fields(stored)? {
            match number {
                RANGE => {
                    allocation.range = String::from_utf8(contents.to_vec()).map_err(|why| why.to_string())?;
                }
                DATA => allocation.bitmap = contents.to_vec(),
                _ => {}
            }
        }
        Ok(allocation)
    }

    fn to_protobuf(&self) -> Bytes {
        let mut message = Vec::with_capacity(self.bitmap.len() + 32);
        write::put_bytes(&mut message, METADATA, b"");
        write::put_bytes(&mut message, RANGE, self.range.as_bytes());
        write::put_bytes(&mut message, DATA, &self.bitmap);
        write::envelope(API_VERSION, KIND, &message)
    }
}

/// Returns the stored form of a payload.
pub(super) fn encode(payload: &Payload, media_type: StorageMediaType) -> Result<Bytes, String> {
    match media_type {
        StorageMediaType::Json => Ok(line(&payload.bytes)),
        StorageMediaType::Protobuf => Ok(RangeAllocation::read(&payload.bytes)?.to_protobuf()),
    }
}

/// Reads a stored value, in either form.
pub(super) fn decode(stored: &[u8]) -> Result<Payload, String> {
    let allocation = match is_marked(stored) {
        true => RangeAllocation::from_protobuf(stored)?,
        false => RangeAllocation::read(stored)?,
    };
    Ok(allocation.payload())
}
