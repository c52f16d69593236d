//! The format of changes on disk. All numbers are little-endian.
//!
//! ```text
//! file    = header frame*
//! header  = "setpoint" version:u32 kind:u32 generation:u64 revision:u64 records:u64 crc:u32
//! frame   = magic:u32 length:u32 body-crc:u32 header-crc:u32 body
//! body    = record*                                          `length` bytes
//! record  = flags:u8 revision:u64 resource path
//!           created:u64 [expires: seconds:i64 nanoseconds:i32] [stamp-at:u32] [inset-at:u32] payload [inset]
//!           (a removal ends after the path)
//! inset   = parts:u32 part*
//! part    = number:u32 [own-at:u32 text] own
//! resource, path, payload, text, own = length:u32 bytes
//! ```
//!
//! A payload is a value encoded by [`Sealing`]: the value itself, or encrypted. The stamp's position refers to the
//! value. Version 1 had no encryption and is otherwise the same.
//!
//! A frame is the unit of durability: nothing in it is acknowledged before all of it is on disk, and the next one is
//! not started before that. So a frame is valid as a whole or not at all. A broken frame at the end is an unfinished
//! write, and a broken one before a valid one is damage.
//!
//! Inset texts are numbered by their first occurrence in a frame, and written only there. So a frame with a hundred
//! pods of one template stores their managed fields once, and no frame depends on another.
//!
//! Version 2 added insets, version 3 their positions. The version will always be the second field. Everything after it
//! may change with the version.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;

use crate::record::{Head, Unstamped};
use crate::sealing::Sealing;
use crate::{Event, EventKind, InlineBytes, Inset, Key, Part, Record, Resource, Revision, Text};

/// The version that this code writes, and the newest it reads.
pub(crate) const VERSION: u32 = 3;

const FILE_MAGIC: &[u8; 8] = b"setpoint";
const FRAME_MAGIC: [u8; 4] = *b"\xf5fr\xa1";
pub(crate) const FILE_HEADER: usize = 44;
pub(crate) const FRAME_HEADER: usize = 16;

const REMOVAL: u8 = 1;
const EXPIRES: u8 = 2;
const STAMPED: u8 = 4;
const INSET: u8 = 8;
/// The inset has its own position in the value.
const PLACED: u8 = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileKind {
    Log = 1,
    Checkpoint = 2,
}

/// A file header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileHeader {
    /// The format version of the file.
    pub(crate) version: u32,
    pub(crate) kind: FileKind,
    pub(crate) generation: u64,
    /// A log contains the changes after this revision. A checkpoint contains the state at it.
    pub(crate) revision: Revision,
    /// The number of records in a checkpoint. 0 for a log.
    pub(crate) records: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeaderError {
    Newer(u32),
    Damaged(&'static str),
}

/// A frame header.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FrameHeader {
    pub(crate) length: usize,
    crc: u32,
}

/// A decoded change.
pub(crate) enum Entry {
    Put(Record),
    Removal(Key, Revision),
}

/// A broken record inside a frame with a valid checksum.
#[derive(Debug)]
pub(crate) struct Malformed;

impl FileHeader {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(FILE_HEADER);
        out.extend(FILE_MAGIC);
        out.extend(self.version.to_le_bytes());
        out.extend((self.kind as u32).to_le_bytes());
        out.extend(self.generation.to_le_bytes());
        out.extend(self.revision.to_le_bytes());
        out.extend(self.records.to_le_bytes());
        out.extend(crc32fast::hash(&out).to_le_bytes());
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, HeaderError> {
        let mut fields = Fields(bytes);
        let cut_short = |_| HeaderError::Damaged("the header is cut short");
        if fields.take(FILE_MAGIC.len()).map_err(cut_short)? != FILE_MAGIC {
            return Err(HeaderError::Damaged("this is not a file of the store"));
        }
        let version = fields.u32().map_err(cut_short)?;
        if version > VERSION {
            return Err(HeaderError::Newer(version));
        }
        let header = Self::decode_fields(version, &mut fields).map_err(cut_short)?;
        let covered = &bytes[..FILE_HEADER - 4];
        if fields.u32().map_err(cut_short)? != crc32fast::hash(covered) {
            return Err(HeaderError::Damaged("the header's checksum is wrong"));
        }
        Ok(header)
    }

    fn decode_fields(version: u32, fields: &mut Fields<'_>) -> Result<Self, Malformed> {
        let kind = if fields.u32()? == FileKind::Log as u32 { FileKind::Log } else { FileKind::Checkpoint };
        let (generation, revision) = (fields.u64()?, fields.u64()?);
        Ok(Self { version, kind, generation, revision, records: fields.u64()? })
    }
}

impl FrameHeader {
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, &'static str> {
        let mut fields = Fields(bytes);
        let header = Self::decode_fields(&mut fields).map_err(|_| "the frame's header is cut short")?;
        header.ok_or("the frame's header is broken")
    }

    fn decode_fields(fields: &mut Fields<'_>) -> Result<Option<Self>, Malformed> {
        let covered = fields.0.get(..FRAME_HEADER - 4).ok_or(Malformed)?;
        let is_frame = fields.take(FRAME_MAGIC.len())? == FRAME_MAGIC;
        let header = Self { length: fields.u32()? as usize, crc: fields.u32()? };
        let is_intact = fields.u32()? == crc32fast::hash(covered);
        Ok((is_frame && is_intact).then_some(header))
    }

    pub(crate) fn matches(&self, body: &[u8]) -> bool {
        crc32fast::hash(body) == self.crc
    }
}

/// Starts a frame in `out`. [`finish_frame`] completes it.
pub(crate) fn begin_frame(out: &mut Vec<u8>) {
    out.clear();
    out.resize(FRAME_HEADER, 0);
}

pub(crate) fn finish_frame(out: &mut [u8]) {
    let (header, body) = out.split_at_mut(FRAME_HEADER);
    // A frame is far smaller than 4 GiB: it exceeds its limit by at most one record.
    let length = u32::try_from(body.len()).expect("a frame is bounded");
    header[..4].copy_from_slice(&FRAME_MAGIC);
    header[4..8].copy_from_slice(&length.to_le_bytes());
    header[8..12].copy_from_slice(&crc32fast::hash(body).to_le_bytes());
    let crc = crc32fast::hash(&header[..12]);
    header[12..].copy_from_slice(&crc.to_le_bytes());
}

/// Returns whether a complete, valid frame starts anywhere in `bytes`.
pub(crate) fn contains_frame(bytes: &[u8]) -> bool {
    let magics = bytes.windows(FRAME_MAGIC.len()).enumerate().filter(|(_, window)| **window == FRAME_MAGIC);
    magics.map(|(at, _)| &bytes[at..]).any(|frame| {
        let Ok(header) = FrameHeader::decode(frame) else { return false };
        frame.get(FRAME_HEADER..FRAME_HEADER + header.length).is_some_and(|body| header.matches(body))
    })
}

/// The numbers of the texts in the frame being written.
#[derive(Default)]
pub(crate) struct FrameTexts(BTreeMap<*const Text, u32>);

/// Appends a change. `stored` is the stored form of its value, if it differs from the value.
pub(crate) fn encode_event(event: &Event, stored: Option<&[u8]>, texts: &mut FrameTexts, out: &mut Vec<u8>) {
    match event.kind {
        EventKind::Created | EventKind::Updated => encode_record(&event.record, stored, texts, out),
        EventKind::Deleted => encode_head(REMOVAL, &event.record, out),
    }
}

/// Appends a record. `stored` is the stored form of its value, if it differs from the value. An encrypted value
/// contains its inset ([`pack`]). A value that could not be decrypted is written as it was read.
pub(crate) fn encode_record(
    record: &Record,
    stored: Option<&[u8]>,
    texts: &mut FrameTexts,
    out: &mut Vec<u8>,
) {
    let Unstamped { before, after, .. } = record.unstamped();
    let (before, after) = stored.map_or((before, after), |stored| (stored, &[]));
    let stamp_at = record.stamp_at();
    let has_inset = !record.inset.is_empty() && (stored.is_none() || record.sealed().is_some());
    let flag = |flag, is_set| if is_set { flag } else { 0 };
    let flags = flag(EXPIRES, record.expires.is_some()) | flag(STAMPED, stamp_at.is_some());
    let inset_at = record.inset_at();
    encode_head(flags | flag(INSET, has_inset) | flag(PLACED, inset_at.is_some()), record, out);
    out.extend(record.created.to_le_bytes());
    if let Some(expires) = record.expires {
        out.extend(expires.as_second().to_le_bytes());
        out.extend(expires.subsec_nanosecond().to_le_bytes());
    }
    for at in stamp_at.into_iter().chain(inset_at) {
        out.extend((at as u32).to_le_bytes());
    }
    out.extend(((before.len() + after.len()) as u32).to_le_bytes());
    out.extend_from_slice(before);
    out.extend_from_slice(after);
    if has_inset {
        encode_inset(&record.inset, texts, out);
    }
}

/// Combines a value and its inset for encryption: the inset names the fields of the value.
pub(crate) fn pack(value: &[u8], inset: &Inset) -> Vec<u8> {
    let mut packed = Vec::with_capacity(8 + value.len() + inset.length());
    encode_bytes(value, &mut packed);
    encode_inset(inset, &mut FrameTexts::default(), &mut packed);
    packed
}

/// Splits what [`pack`] combined. Returns `None` if it is malformed.
pub(crate) fn unpack(packed: &[u8]) -> Option<(&[u8], Inset)> {
    let mut fields = Fields(packed);
    let value = fields.text_bytes().ok()?;
    let inset = fields.inset(&mut Vec::new()).ok()?;
    fields.0.is_empty().then_some((value, inset))
}

fn encode_inset(inset: &Inset, texts: &mut FrameTexts, out: &mut Vec<u8>) {
    out.extend((inset.parts().len() as u32).to_le_bytes());
    for Part { text, own } in inset.parts() {
        let next = texts.0.len() as u32;
        let number = *texts.0.entry(Arc::as_ptr(text)).or_insert(next);
        out.extend(number.to_le_bytes());
        if number == next {
            out.extend((text.own_at() as u32).to_le_bytes());
            encode_bytes(text.bytes(), out);
        }
        encode_bytes(own.as_str().as_bytes(), out);
    }
}

fn encode_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    out.extend((bytes.len() as u32).to_le_bytes());
    out.extend_from_slice(bytes);
}

fn encode_head(flags: u8, record: &Record, out: &mut Vec<u8>) {
    out.push(flags);
    out.extend(record.modified.to_le_bytes());
    for text in [record.key.resource.as_str(), &record.key.path] {
        encode_bytes(text.as_bytes(), out);
    }
}

/// The records of a frame's body. Keys of the same resource share its name.
pub(crate) struct Entries<'a> {
    fields: Fields<'a>,
    resource: &'a mut Option<Resource>,
    /// The texts of this frame, by number.
    texts: Vec<Arc<Text>>,
    sealing: &'a Sealing,
}

impl<'a> Entries<'a> {
    /// `resource` caches the last resource seen, across frames.
    pub(crate) fn of(body: &'a [u8], resource: &'a mut Option<Resource>, sealing: &'a Sealing) -> Self {
        Self { fields: Fields(body), resource, texts: Vec::new(), sealing }
    }

    fn entry(&mut self) -> Result<Entry, Malformed> {
        let flags = self.fields.u8()?;
        let revision = self.fields.u64()?;
        let resource = self.fields.text()?;
        let resource = self.shared(resource);
        let key = resource.key(self.fields.text()?);
        if flags & REMOVAL != 0 {
            return Ok(Entry::Removal(key, revision));
        }
        let created = self.fields.u64()?;
        let expires = if flags & EXPIRES != 0 { Some(self.fields.timestamp()?) } else { None };
        let stamp_at = if flags & STAMPED != 0 { Some(self.fields.u32()? as usize) } else { None };
        let inset_at = if flags & PLACED != 0 { Some(self.fields.u32()? as usize) } else { None };
        let stored = self.fields.text_bytes()?;
        let inset = if flags & INSET != 0 { self.fields.inset(&mut self.texts)? } else { Inset::default() };
        let head = Head { key, created, modified: revision, expires, stamp_at, inset_at, inset };
        self.sealing.restore(head, stored).map(Entry::Put).ok_or(Malformed)
    }

    fn shared(&mut self, name: &str) -> Resource {
        match self.resource {
            Some(resource) if resource.as_str() == name => resource.clone(),
            _ => self.resource.insert(Resource::new(name)).clone(),
        }
    }
}

impl Iterator for Entries<'_> {
    type Item = Result<Entry, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        (!self.fields.0.is_empty()).then(|| self.entry())
    }
}

/// The remaining fields of a slice.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(Malformed)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(Malformed)?;
        self.0 = rest;
        Ok(*taken)
    }

    fn u8(&mut self) -> Result<u8, Malformed> {
        self.array().map(u8::from_le_bytes)
    }

    fn u32(&mut self) -> Result<u32, Malformed> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, Malformed> {
        self.array().map(u64::from_le_bytes)
    }

    /// Reads an inset. Its texts are numbered among `texts`.
    fn inset(&mut self, texts: &mut Vec<Arc<Text>>) -> Result<Inset, Malformed> {
        let count = self.u32()?;
        (0..count).map(|_| self.part(texts)).collect::<Result<Vec<_>, _>>().map(Inset::new)
    }

    fn part(&mut self, texts: &mut Vec<Arc<Text>>) -> Result<Part, Malformed> {
        let number = self.u32()? as usize;
        if number == texts.len() {
            let own_at = self.u32()? as usize;
            texts.push(Text::shared(self.text_bytes()?, own_at).ok_or(Malformed)?);
        }
        let text = texts.get(number).ok_or(Malformed)?.clone();
        let own = InlineBytes::new(self.text()?).ok_or(Malformed)?;
        Ok(Part { text, own })
    }

    fn timestamp(&mut self) -> Result<Timestamp, Malformed> {
        let second = self.array().map(i64::from_le_bytes)?;
        let nanosecond = self.array().map(i32::from_le_bytes)?;
        Timestamp::new(second, nanosecond).map_err(|_| Malformed)
    }

    fn text_bytes(&mut self) -> Result<&'a [u8], Malformed> {
        let length = self.u32()? as usize;
        self.take(length)
    }

    fn text(&mut self) -> Result<&'a str, Malformed> {
        std::str::from_utf8(self.text_bytes()?).map_err(|_| Malformed)
    }
}

/// Returns the file name for a generation. Names sort by generation.
pub(crate) fn file_name(kind: FileKind, generation: u64) -> Arc<str> {
    let prefix = match kind {
        FileKind::Log => "log",
        FileKind::Checkpoint => "checkpoint",
    };
    format!("{prefix}-{generation:020}").into()
}
