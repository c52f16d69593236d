//! Encodes watch events: the shape and encoding of their objects, and their framing.

use std::sync::Arc;

use bytes::Bytes;
use jiff::Timestamp;
use serde_json::Value;
use setpoint_clock::Clock;
use setpoint_store::{Record, Revision};

use super::super::Call;
use super::recent::{Key, Recent};
use super::records::ChangeKind;
use crate::codec::document_bytes;
use crate::negotiate::{Encoding, Output, Shape};
use crate::protobuf;
use crate::registry::Served;
use crate::schema::protobuf::write;
use crate::status::Status;
use crate::transform::{self, IncludeObject, TableOptions};

/// Events of at least this length are not copied: watchers share their bytes. Shorter ones are copied together into
/// chunks, which is faster than sending each on its own.
pub(super) const SHARED_BYTES: usize = 2 << 10;

/// The framing of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Framing {
    /// JSON events: one line each.
    Lines,
    /// Protobuf events: each with its length in four bytes in front.
    Lengths,
    /// WebSocket: one message per event.
    Messages,
}

/// The form of a watch's objects.
pub(super) struct Form {
    pub(super) served: Arc<Served>,
    pub(super) framing: Framing,
    output: Output,
    table: TableOptions,
    clock: Clock,
    recent: Arc<Recent>,
}

impl Form {
    pub(super) fn of(call: &Call<'_>, in_messages: bool) -> Result<Self, Status> {
        let framing = match call.output.encoding {
            _ if in_messages => Framing::Messages,
            Encoding::Protobuf => Framing::Lengths,
            _ => Framing::Lines,
        };
        if call.output.encoding == Encoding::Yaml {
            return Err(Status::not_acceptable(
                "only the following media types are accepted: application/json;stream=watch, \
                 application/vnd.kubernetes.protobuf;stream=watch",
            ));
        }
        let table = match call.output.shape {
            Shape::Table => TableOptions::parse(call.query)?,
            _ => TableOptions { include: IncludeObject::Metadata, without_columns: false },
        };
        let (served, clock) = (call.served.clone(), call.server.clock.clone());
        let recent = call.server.recent_events.clone();
        Ok(Self { served, framing, output: call.output, table, clock, recent })
    }

    pub(super) fn media_type(&self) -> &'static str {
        match self.output.encoding {
            Encoding::Protobuf => "application/vnd.kubernetes.protobuf;stream=watch",
            other => other.media_type(),
        }
    }

    pub(super) fn is_text(&self) -> bool {
        self.output.encoding != Encoding::Protobuf
    }

    /// Writes an event about a record, or returns the bytes shared by all watchers of this representation.
    pub(super) fn event(
        &mut self,
        into: &mut Vec<u8>,
        change: ChangeKind,
        record: &Record,
    ) -> Result<Option<Bytes>, Status> {
        if self.output.shape == Shape::Table {
            // Not shared: the first event has the columns, and all depend on the time.
            let object = self.object(self.served.decode(record)?)?;
            self.frame(into, change.name(), &object);
            return Ok(None);
        }
        let is_copied = self.is_plain() && self.served.is_shown_as_stored(record);
        if is_copied && record.whole_length() < SHARED_BYTES {
            into.reserve(line_length(change, record));
            self.line(into, change, record)?;
            return Ok(None);
        }
        let (output, framing) = (self.output, self.framing);
        let key = Key { revision: record.modified, change, output, framing };
        self.recent.get(&self.served, key, || self.encoded(change, record)).map(Some)
    }

    fn is_plain(&self) -> bool {
        self.output.shape == Shape::Object && self.output.encoding != Encoding::Protobuf
    }

    /// Encodes an event in any shape but a table.
    fn encoded(&self, change: ChangeKind, record: &Record) -> Result<Bytes, Status> {
        let mut event = Vec::with_capacity(line_length(change, record));
        match (self.output.shape, self.output.encoding) {
            (Shape::Object, Encoding::Protobuf) => {
                self.frame(&mut event, change.name(), &protobuf::record(&self.served, record)?);
            }
            (Shape::Object, _) => self.line(&mut event, change, record)?,
            _ => {
                let partial = transform::partial(&self.served, self.output, self.served.decode(record)?);
                self.frame(&mut event, change.name(), &self.document(&partial)?);
            }
        }
        // Watchers may hold it for a long time, so drop excess capacity.
        Ok(event.into_boxed_slice().into())
    }

    /// Writes an event as a line of JSON; writes nothing if the record cannot be converted.
    fn line(&self, into: &mut Vec<u8>, change: ChangeKind, record: &Record) -> Result<(), Status> {
        let start = into.len();
        begin_line(into, change.name());
        let written = self.served.write(record, into);
        match &written {
            Ok(()) => end_line(into),
            Err(_) => into.truncate(start),
        }
        written
    }

    fn object(&mut self, object: Value) -> Result<Bytes, Status> {
        let document = match self.output.shape {
            Shape::Object => object,
            Shape::PartialMetadata | Shape::PartialMetadataList => {
                transform::partial(&self.served, self.output, object)
            }
            Shape::Table => {
                let now: Timestamp = self.clock.now();
                let revision =
                    crate::json::Json::text(crate::metadata::of(&object), "resourceVersion").to_string();
                let list = transform::list_metadata(&revision, None, None);
                let table = transform::table(&self.served, self.output, &self.table, list, vec![object], now);
                self.table.without_columns = true;
                table
            }
        };
        self.document(&document)
    }

    fn document(&self, document: &Value) -> Result<Bytes, Status> {
        match self.output.encoding {
            Encoding::Protobuf => protobuf::document(document),
            _ => Ok(document_bytes(document)),
        }
    }

    /// Writes a bookmark event.
    pub(super) fn bookmark(&mut self, into: &mut Vec<u8>, revision: Revision, ends_initial: bool) {
        let object = transform::bookmark(&self.served, revision, ends_initial);
        match self.object(object) {
            Ok(object) => self.frame(into, "BOOKMARK", &object),
            Err(status) => self.error(into, &status),
        }
    }

    /// Writes the error event that ends the watch.
    pub(super) fn error(&self, into: &mut Vec<u8>, status: &Status) {
        match self.output.encoding {
            Encoding::Protobuf => self.frame(into, "ERROR", &protobuf::status(status)),
            _ => self.frame(into, "ERROR", &status.to_bytes()),
        }
    }

    fn frame(&self, into: &mut Vec<u8>, kind: &str, object: &[u8]) {
        if self.output.encoding != Encoding::Protobuf {
            return write_line(into, kind, object);
        }
        let start = into.len();
        if self.framing == Framing::Lengths {
            into.extend_from_slice(&[0; 4]);
        }
        let contents = into.len();
        write::watch_event(into, kind, object);
        if self.framing == Framing::Lengths {
            // Bodies are bounded, so objects are far smaller than the 4 GiB that the length can express.
            let length = (into.len() - contents) as u32;
            into[start..contents].copy_from_slice(&length.to_be_bytes());
        }
    }
}

fn write_line(piece: &mut Vec<u8>, kind: &str, object: &[u8]) {
    begin_line(piece, kind);
    piece.extend_from_slice(object);
    end_line(piece);
}

/// Returns the length of an event's line if its record is sent as stored.
fn line_length(change: ChangeKind, record: &Record) -> usize {
    r#"{"type":"","object":}"#.len() + "\n".len() + change.name().len() + record.whole_length()
}

fn begin_line(piece: &mut Vec<u8>, kind: &str) {
    piece.extend_from_slice(b"{\"type\":\"");
    piece.extend_from_slice(kind.as_bytes());
    piece.extend_from_slice(b"\",\"object\":");
}

fn end_line(piece: &mut Vec<u8>) {
    piece.extend_from_slice(b"}\n");
}
