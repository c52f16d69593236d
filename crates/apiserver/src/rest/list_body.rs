//! List bodies, produced while the client reads.
//!
//! Invariants:
//! - at most one object of a list is decoded at a time, however long the list is;
//! - the task yields after every chunk.

use std::sync::Arc;

use bytes::Bytes;
use futures::{Stream, stream};
use jiff::Timestamp;
use serde_json::{Value, json};
use setpoint_store::Record;

use super::respond;
use crate::body::Body;
use crate::json::JsonMut;
use crate::negotiate::{Encoding, Output, Shape};
use crate::registry::Served;
use crate::schema::{documents, encode};
use crate::transform::{self, TableOptions};

/// A chunk ends once it has this many bytes.
const PIECE_BYTES: usize = 128 << 10;
/// Or once it has this many items: decoding and encoding a pod takes about 30 us, so a chunk takes 2 ms.
pub(super) const PIECE_ITEMS: usize = 64;

/// Appends a list item.
pub(super) type WriteItem = Box<dyn FnMut(&Record, &mut Vec<u8>) + Send>;

/// The text around and between the items of a list.
pub(super) struct Frame {
    pub(super) head: Vec<u8>,
    pub(super) between: Vec<u8>,
    pub(super) tail: Vec<u8>,
    /// Indentation of an item's lines, if the output is indented.
    indent: usize,
}

/// A placeholder for the items while a frame is built.
const MARK: &str = "setpointitemsgohere";

impl Frame {
    /// Builds the frame of a list of stored objects.
    pub(super) fn plain(head: Vec<u8>, tail: Vec<u8>) -> Self {
        Self { head, between: b",".to_vec(), tail, indent: 0 }
    }

    /// Splits a document with [`MARK`] as its only list item into a frame.
    fn around(encoding: Encoding, document: &Value) -> Option<Self> {
        let text = respond::encoded(encoding, document);
        let text = std::str::from_utf8(&text).ok()?;
        let quoted = format!("\"{MARK}\"");
        let mark = if text.contains(&quoted) { quoted.as_str() } else { MARK };
        let (head, tail) = text.rsplit_once(mark)?;
        let line = head.rsplit('\n').next().unwrap_or_default();
        let (between, indent) = match encoding {
            Encoding::Json { pretty: true } => (format!(",\n{line}"), line.len()),
            Encoding::Yaml => (format!("\n{line}"), line.len()),
            _ => (",".to_owned(), 0),
        };
        Some(Self { head: head.into(), between: between.into(), tail: tail.into(), indent })
    }
}

/// Builds a list of records in a shape or encoding other than the stored one; `None` if it cannot be produced item by
/// item.
pub(super) fn shaped(
    served: &Arc<Served>,
    output: Output,
    options: TableOptions,
    mut document: Value,
    records: Vec<Arc<Record>>,
    now: Timestamp,
) -> Option<Body> {
    let items = if output.shape == Shape::Table { "rows" } else { "items" };
    document.set(items, json!([MARK]));
    let frame = Frame::around(output.encoding, &document)?;
    let (served, indent) = (served.clone(), frame.indent);
    let write: WriteItem = Box::new(move |record, into| {
        let object = served.decode(record).unwrap_or_default();
        let item = match output.shape {
            Shape::Table => transform::row(&served, output, &options, object, now),
            Shape::Object => transform::item(&served, object),
            Shape::PartialMetadata | Shape::PartialMetadataList => {
                transform::partial(&served, output, object)
            }
        };
        write_indented(into, &encoded_item(&served, output, &item), indent);
    });
    Some(body(frame, records, write, None))
}

/// Encodes a list item, without its kind and version.
fn encoded_item(served: &Served, output: Output, item: &Value) -> Bytes {
    if output.encoding == Encoding::Yaml {
        return respond::encoded(output.encoding, item);
    }
    let mut text = Vec::with_capacity(1024);
    match output.shape {
        Shape::Table => documents::write_row(item, &mut text),
        Shape::Object => served.write_object(&mut text, item),
        Shape::PartialMetadata | Shape::PartialMetadataList => documents::write_document(item, &mut text),
    }
    match output.encoding {
        Encoding::Json { pretty: true } => encode::indented(&text).into(),
        _ => text.into(),
    }
}

/// Appends a text, indenting all lines but the first.
fn write_indented(into: &mut Vec<u8>, text: &[u8], indent: usize) {
    if indent == 0 {
        return into.extend_from_slice(text);
    }
    for (at, line) in text.trim_ascii_end().split(|byte| *byte == b'\n').enumerate() {
        if at > 0 {
            into.push(b'\n');
            let width = if line.is_empty() { 0 } else { indent };
            into.extend(std::iter::repeat_n(b' ', width));
        }
        into.extend_from_slice(line);
    }
}

/// Builds a body with all records between head and tail.
pub(super) fn body(frame: Frame, records: Vec<Arc<Record>>, write: WriteItem, length: Option<u64>) -> Body {
    let mut pieces = Pieces { frame, records: records.into_iter(), write, state: State::Head };
    let first = pieces.next().unwrap_or_default();
    if pieces.state == State::Over {
        return Body::full(first);
    }
    Body::stream(pieces.one_by_one(first), length)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Head,
    FirstItem,
    Items,
    Over,
}

struct Pieces {
    frame: Frame,
    records: std::vec::IntoIter<Arc<Record>>,
    write: WriteItem,
    state: State,
}

impl Pieces {
    /// Produces the chunks after the first one, yielding before each.
    fn one_by_one(self, first: Bytes) -> impl Stream<Item = Bytes> + Send {
        stream::unfold((Some(first), self), |(first, mut pieces)| async {
            if let Some(first) = first {
                return Some((first, (None, pieces)));
            }
            tokio::task::yield_now().await;
            pieces.next().map(|piece| (piece, (None, pieces)))
        })
    }
}

impl Iterator for Pieces {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        let mut piece = match self.state {
            State::Over => return None,
            State::Head => std::mem::take(&mut self.frame.head),
            State::FirstItem | State::Items => Vec::with_capacity(PIECE_BYTES + (16 << 10)),
        };
        if self.state == State::Head {
            self.state = State::FirstItem;
        }
        for _ in 0..PIECE_ITEMS {
            if piece.len() >= PIECE_BYTES {
                return Some(piece.into());
            }
            let Some(record) = self.records.next() else {
                piece.append(&mut self.frame.tail);
                self.state = State::Over;
                return Some(piece.into());
            };
            if self.state == State::Items {
                piece.extend_from_slice(&self.frame.between);
            }
            self.state = State::Items;
            (self.write)(&record, &mut piece);
        }
        Some(piece.into())
    }
}
