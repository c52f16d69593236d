//! Responses in protobuf, for clients that ask for it: Go clients, for which it is a third of the size.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;
use setpoint_store::Record;

use crate::body::Body;
use crate::json::Json;
use crate::negotiate::Output;
use crate::registry::Served;
use crate::schema::Schema;
use crate::schema::protobuf::write::{self, NoForm};
use crate::status::Status;

/// The contents of documents whose own type is empty.
const OBJECT_METADATA: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
const LIST_METADATA: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta";
const STATUS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Status";

/// Encodes a document of a built-in kind, in its envelope.
pub(crate) fn document(document: &Value) -> Result<Bytes, Status> {
    let (api_version, kind) = (document.text("apiVersion"), document.text("kind"));
    // The oldest documents do not state their version.
    let api_version = if api_version.is_empty() { "v1" } else { api_version };
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let written = match (group, kind) {
        ("meta.k8s.io", "PartialObjectMetadata") => {
            partial(document).map(|raw| write::envelope(api_version, kind, &raw))
        }
        ("meta.k8s.io", "PartialObjectMetadataList") => {
            partial_list(document).map(|raw| write::envelope(api_version, kind, &raw))
        }
        _ => match Schema::built_in_kind(group, version, kind) {
            Some(schema) => write::document(&schema, api_version, kind, document),
            None => Err(NoForm),
        },
    };
    written.map_err(|NoForm| no_form(kind))
}

fn no_form(kind: &str) -> Status {
    Status::not_acceptable(format!(
        "object *v1.{kind} does not implement the protobuf marshalling interface and cannot be encoded to a \
         protobuf message"
    ))
}

fn built_in(name: &str) -> Result<Schema, NoForm> {
    Schema::built_in(name).ok_or(NoForm)
}

fn partial(document: &Value) -> Result<Vec<u8>, NoForm> {
    let mut raw = Vec::new();
    write::put_bytes(&mut raw, 1, &write::message(&built_in(OBJECT_METADATA)?, document.at("metadata"))?);
    Ok(raw)
}

fn partial_list(document: &Value) -> Result<Vec<u8>, NoForm> {
    let mut raw = Vec::new();
    write::put_bytes(&mut raw, 1, &write::message(&built_in(LIST_METADATA)?, document.at("metadata"))?);
    for item in document.list("items") {
        write::put_bytes(&mut raw, 2, &partial(item)?);
    }
    Ok(raw)
}

/// Encodes an error status.
pub(crate) fn status(status: &Status) -> Bytes {
    let document = serde_json::to_value(status).unwrap_or_default();
    let raw = built_in(STATUS).and_then(|schema| write::message(&schema, &document)).unwrap_or_default();
    write::envelope("v1", "Status", &raw)
}

/// Encodes a list of stored objects.
pub(crate) async fn list(served: &Served, metadata: &Value, records: &[Arc<Record>]) -> Result<Body, Status> {
    let (api_version, kind) = (served.kind.api_version(), served.kind.list_kind());
    let item = |object: Value| write::message(&served.target.schema, &object);
    items(served, metadata, records, item).await.map(|pieces| pieces.body(&api_version, &kind))
}

/// Encodes a list of the metadata of stored objects.
pub(crate) async fn partial_records(
    served: &Served,
    output: Output,
    metadata: &Value,
    records: &[Arc<Record>],
) -> Result<Body, Status> {
    let pieces = items(served, metadata, records, |object| partial(&object)).await?;
    Ok(pieces.body(output.meta_version(), "PartialObjectMetadataList"))
}

/// Objects to encode before yielding: at about 30 us each, 2 ms.
const OBJECTS_PER_TURN: usize = 64;
/// Encoded objects are collected in chunks of about this size, so that none is moved again.
const PIECE_BYTES: usize = 128 << 10;

/// An encoded list without its envelope, which starts with its length.
struct Pieces {
    full: Vec<Bytes>,
    last: Vec<u8>,
}

impl Pieces {
    fn push(&mut self, number: u64, contents: &[u8]) {
        write::put_bytes(&mut self.last, number, contents);
        if self.last.len() >= PIECE_BYTES {
            self.full.push(std::mem::take(&mut self.last).into());
        }
    }

    fn body(self, api_version: &str, kind: &str) -> Body {
        let raw: Vec<Bytes> = self.full.into_iter().chain([self.last.into()]).collect();
        let length = raw.iter().map(Bytes::len).sum();
        let (head, tail) = write::envelope_around(api_version, kind, length);
        let total = (head.len() + length + tail.len()) as u64;
        match <[Bytes; 1]>::try_from(raw) {
            Ok([only]) => Body::full([&head[..], &only[..], &tail[..]].concat()),
            Err(raw) => {
                let pieces = std::iter::once(head).chain(raw).chain([tail]);
                Body::stream(futures::stream::iter(pieces), Some(total))
            }
        }
    }
}

/// Encodes the items of a list, decoding one at a time.
async fn items(
    served: &Served,
    metadata: &Value,
    records: &[Arc<Record>],
    item: impl Fn(Value) -> Result<Vec<u8>, NoForm>,
) -> Result<Pieces, Status> {
    let no_form = |NoForm| no_form(&served.kind.list_kind());
    let mut pieces = Pieces { full: Vec::new(), last: Vec::new() };
    let metadata = built_in(LIST_METADATA).and_then(|schema| write::message(&schema, metadata));
    pieces.push(1, &metadata.map_err(no_form)?);
    for (at, record) in records.iter().enumerate() {
        if at > 0 && at.is_multiple_of(OBJECTS_PER_TURN) {
            tokio::task::yield_now().await;
        }
        pieces.push(2, &item(served.decode(record)?).map_err(no_form)?);
    }
    Ok(pieces)
}

/// Encodes a stored object, in its envelope.
pub(crate) fn record(served: &Served, record: &Record) -> Result<Bytes, Status> {
    let object = served.decode(record)?;
    let (api_version, kind) = (served.kind.api_version(), &served.kind.kind);
    write::document(&served.target.schema, &api_version, kind, &object).map_err(|NoForm| no_form(kind))
}
