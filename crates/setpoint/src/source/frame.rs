//! The lines of a watch, with one encoded event each.
//!
//! An object is copied out of its line once, without its managed fields unless they are wanted. Only its metadata is
//! decoded here.

use bytes::{Buf, Bytes, BytesMut};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::WatchItem;
use crate::object::DecodeError;
use crate::{ClientError, Object};

/// An object takes at most 3 MiB, the API server's limit on a request. Objects that the server stores in a denser
/// format than JSON may come out several times as long.
const MAX_LINE: usize = 32 << 20;

/// A line splitter. A line within one chunk is a slice of it. Only a line that spans several chunks is copied. Holds at
/// most one incomplete line and the current chunk.
#[derive(Default)]
pub(super) struct Lines {
    chunk: Bytes,
    /// The start of a line that ends in a later chunk.
    begun: BytesMut,
}

impl Lines {
    /// Continues with this chunk. The previous chunks must have been read to the end.
    pub(super) fn push(&mut self, chunk: Bytes) {
        debug_assert!(self.chunk.is_empty(), "`next` says `None` at the end of a chunk");
        self.chunk = chunk;
    }

    /// Returns the next complete, non-empty line.
    pub(super) fn next(&mut self) -> Result<Option<Bytes>, ClientError> {
        while let Some(end) = memchr::memchr(b'\n', &self.chunk) {
            let mut line = self.chunk.split_to(end);
            self.chunk.advance(1);
            if !self.begun.is_empty() {
                self.begun.extend_from_slice(&line);
                line = std::mem::take(&mut self.begun).freeze();
            }
            if !line.trim_ascii().is_empty() {
                return Ok(Some(line));
            }
        }
        self.begun.extend_from_slice(&std::mem::take(&mut self.chunk));
        if self.begun.len() > MAX_LINE {
            return Err(ClientError::InvalidResponse(
                format!("a watch event is longer than {MAX_LINE} bytes").into(),
            ));
        }
        Ok(None)
    }
}

/// A decoded line.
#[derive(Debug)]
pub(super) enum Frame {
    Item(WatchItem),
    /// The end of the initial events, at this version.
    InitialEventsEnd {
        resource_version: String,
    },
}

impl Frame {
    /// Converts to a watch item. For a plain watch, the end of the initial events is just a bookmark.
    pub(super) fn into_item(self) -> WatchItem {
        match self {
            Self::Item(item) => item,
            Self::InitialEventsEnd { resource_version } => WatchItem::Bookmark { resource_version },
        }
    }
}

/// What to keep of an object's bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct ObjectDecoder {
    pub(super) managed_fields: bool,
}

impl ObjectDecoder {
    /// Decodes an object from a part of a larger buffer, without keeping the buffer.
    pub(super) fn object(self, raw: &[u8]) -> Result<Object, DecodeError> {
        match self.managed_fields {
            true => Object::from_json(Bytes::copy_from_slice(raw)),
            false => Object::stripped(raw),
        }
    }
}

/// Decodes a line. Returns `Err` if the server reports an error, which ends the watch.
pub(super) fn read(line: &Bytes, keep: ObjectDecoder) -> Result<Frame, ClientError> {
    if let Some((kind, raw)) = split(line)
        && let Some(frame) = read_plainly(kind, raw, keep)
    {
        return Ok(Frame::Item(frame));
    }
    #[derive(Deserialize)]
    struct Event<'a> {
        r#type: &'a str,
        #[serde(borrow)]
        object: &'a RawValue,
    }
    let Event { r#type, object } =
        serde_json::from_slice(line).map_err(|error| ClientError::InvalidResponse(Box::new(error)))?;
    let raw = object.get().as_bytes();
    Ok(Frame::Item(match r#type {
        "ADDED" | "MODIFIED" | "DELETED" => item(r#type, raw, keep),
        "BOOKMARK" => return bookmark(raw),
        "ERROR" => return Err(ClientError::from_encoded_status(&line.slice_ref(raw))),
        other => {
            return Err(ClientError::InvalidResponse(
                format!("a watch event of the unknown type {other:?}").into(),
            ));
        }
    }))
}

/// Splits an event as every known server writes it, without scanning the object.
fn split(line: &[u8]) -> Option<(&'static str, &[u8])> {
    let line = line.strip_prefix(br#"{"type":""#)?;
    let kind = ["ADDED", "MODIFIED", "DELETED"].into_iter().find(|kind| line.starts_with(kind.as_bytes()))?;
    let raw = line[kind.len()..].strip_prefix(br#"","object":"#)?;
    Some((kind, raw.trim_ascii_end().strip_suffix(b"}")?))
}

/// Decoding the object proves that the event was split correctly.
fn read_plainly(kind: &'static str, raw: &[u8], keep: ObjectDecoder) -> Option<WatchItem> {
    keep.object(raw).ok().map(|object| of_type(kind, object))
}

fn item(kind: &str, raw: &[u8], keep: ObjectDecoder) -> WatchItem {
    match keep.object(raw) {
        Ok(object) => of_type(kind, object),
        Err(error) => {
            let error = std::error::Error::source(&error)
                .map_or_else(|| error.to_string(), |why| format!("{error}: {why}"));
            WatchItem::Undecodable { error, raw: Bytes::copy_from_slice(raw) }
        }
    }
}

fn of_type(kind: &str, object: Object) -> WatchItem {
    match kind {
        "ADDED" => WatchItem::Added(object),
        "MODIFIED" => WatchItem::Modified(object),
        _ => WatchItem::Deleted(object),
    }
}

fn bookmark(raw: &[u8]) -> Result<Frame, ClientError> {
    #[derive(Deserialize)]
    struct Bookmark {
        metadata: Metadata,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Metadata {
        resource_version: String,
        #[serde(default)]
        annotations: Option<Annotations>,
    }
    #[derive(Deserialize)]
    struct Annotations {
        #[serde(rename = "k8s.io/initial-events-end", default)]
        initial_events_end: String,
    }
    let Bookmark { metadata: Metadata { resource_version, annotations } } =
        serde_json::from_slice(raw).map_err(|error| ClientError::InvalidResponse(Box::new(error)))?;
    Ok(match annotations {
        Some(annotations) if annotations.initial_events_end == "true" => {
            Frame::InitialEventsEnd { resource_version }
        }
        _ => Frame::Item(WatchItem::Bookmark { resource_version }),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &str, expected: &str) {
        let keep = ObjectDecoder { managed_fields: false };
        let read = match read(&Bytes::copy_from_slice(line.as_bytes()), keep) {
            Ok(Frame::Item(WatchItem::Undecodable { error, raw })) => {
                format!("undecodable {}: {error}", String::from_utf8_lossy(&raw))
            }
            Ok(Frame::Item(WatchItem::Bookmark { resource_version })) => {
                format!("bookmark {resource_version}")
            }
            Ok(Frame::InitialEventsEnd { resource_version }) => format!("end {resource_version}"),
            Ok(Frame::Item(item)) => format!("{item:?}"),
            Err(error) => format!("error {:?} {error}", error.code()),
        };
        assert_eq!(read, expected, "{line}");
    }

    #[test]
    fn a_line_is_an_event() {
        check(
            r#"{"type":"ADDED","object":{"metadata":{"name":"a","resourceVersion":"1"}}}"#,
            "Added(Object(a @1))",
        );
        check(r#"{"type":"MODIFIED","object":{"metadata":{"name":"a"}}} "#, "Modified(Object(a @))");
        check(r#"{"type":"DELETED","object":{"metadata":{"name":"a"}}}"#, "Deleted(Object(a @))");
        check(r#"{ "object": {"metadata":{"name":"a"}}, "type": "ADDED" }"#, "Added(Object(a @))");
        check(r#"{"type":"ADDED","object":{"metadata":{"name":"a"}},"more":{}}"#, "Added(Object(a @))");
        check(
            r#"{"type":"BOOKMARK","object":{"kind":"Pod","metadata":{"resourceVersion":"7","creationTimestamp":null}}}"#,
            "bookmark 7",
        );
        check(
            r#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"7","annotations":{"k8s.io/initial-events-end":"true"}}}}"#,
            "end 7",
        );
        check(
            r#"{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","status":"Failure","message":"too old resource version: 1 (9)","reason":"Expired","code":410}}"#,
            "error Some(410) too old resource version: 1 (9)",
        );
    }

    #[test]
    fn an_object_that_cannot_be_read_is_an_item_and_a_broken_line_is_the_end() {
        check(
            r#"{"type":"ADDED","object":{"metadata":{"name":7}}}"#,
            r#"undecodable {"metadata":{"name":7}}: cannot decode the metadata of an object: invalid type: integer `7`, expected a string at line 1 column 21"#,
        );
        for broken in
            [r#"{"type":"ADDED","object":{"metadata":{"name":"a"}}"#, "x", r#"{"type":"NEW","object":{}}"#]
        {
            let read = read(&Bytes::from_static(broken.as_bytes()), ObjectDecoder { managed_fields: false });
            assert!(matches!(read, Err(ClientError::InvalidResponse(_))), "{broken}");
        }
    }

    #[test]
    fn lines_are_found_however_they_are_cut() {
        let text = b"first\n\n second\r\nthird\nrest";
        for size in 1..text.len() {
            let (mut lines, mut found) = (Lines::default(), Vec::new());
            for chunk in text.chunks(size) {
                lines.push(Bytes::copy_from_slice(chunk));
                while let Some(line) = lines.next().unwrap() {
                    found.push(String::from_utf8(line.to_vec()).unwrap());
                }
            }
            assert_eq!(found, ["first", " second\r", "third"], "in chunks of {size}");
        }
    }

    #[test]
    fn an_endless_line_is_refused() {
        let mut lines = Lines::default();
        let chunk = Bytes::from(vec![b'x'; 1 << 20]);
        let refused = (0..40).position(|_| {
            lines.push(chunk.clone());
            lines.next().is_err()
        });
        assert_eq!(refused, Some(MAX_LINE / chunk.len()));
    }
}
