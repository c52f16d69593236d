//! Records: the encoded value of a key, including its own revision.
//!
//! A payload is a JSON document and the position for `"resourceVersion":"<revision>"`. The engine stamps it when the
//! revision is known, so an object is encoded once and the same bytes serve every get, list and watch. The unstamped
//! payload is written to disk.
//!
//! Managed fields are not part of the value but of its [`Inset`], which is inserted where the complete object is needed
//! ([`Record::whole`]).

use std::any::Any;
use std::fmt;
use std::io::Write as _;
use std::sync::{Arc, OnceLock, Weak};

use bytes::Bytes;
use jiff::Timestamp;
use parking_lot::Mutex;
use setpoint_encryption::KeyTag;

use crate::inset::Inset;
use crate::{Key, Revision};

/// Data derived from a value (labels, indexed fields): computed once, shared.
pub type Facts = Arc<dyn Any + Send + Sync>;

/// A value to be stored.
#[derive(Clone)]
pub struct Payload {
    /// The encoded value, without a revision.
    pub bytes: Bytes,
    /// The position of the stamp in `bytes`: before a member of a JSON object. `None`: the value is not stamped.
    pub stamp_at: Option<usize>,
    /// The position of the inset in `bytes`: after a member of the same object. `None`: it follows the stamp.
    pub inset_at: Option<usize>,
    /// Empty for a value that is not stamped.
    pub inset: Inset,
    /// The facts, if already known.
    pub facts: Option<Facts>,
}

/// A stored value. Immutable: a change creates a new record.
pub struct Record {
    pub key: Key,
    /// The encoded value, stamped with `modified`, without its inset.
    pub value: Bytes,
    /// Inserted into the value where the complete object is needed.
    pub inset: Inset,
    pub created: Revision,
    pub modified: Revision,
    pub expires: Option<Timestamp>,
    stamp_at: Option<usize>,
    inset_at: Option<usize>,
    /// `None`: it is stored as it is.
    at_rest: Option<Box<AtRest>>,
    facts: OnceLock<Facts>,
    /// An object decoded from the value, as long as any reader keeps it.
    reading: Mutex<Option<Weak<dyn Any + Send + Sync>>>,
}

impl Payload {
    /// Creates a payload without a revision in it.
    pub fn plain(bytes: impl Into<Bytes>) -> Self {
        Self { bytes: bytes.into(), stamp_at: None, inset_at: None, inset: Inset::default(), facts: None }
    }

    /// Returns the value with its inset, without a revision.
    pub fn whole(&self) -> Bytes {
        if self.inset.is_empty() {
            return self.bytes.clone();
        }
        let at = self.inset_at.or(self.stamp_at).unwrap_or(0).min(self.bytes.len());
        let (before, after) = self.bytes.split_at(at);
        let mut whole = Vec::with_capacity(self.bytes.len() + self.inset.length());
        whole.extend_from_slice(before);
        match self.inset_at {
            Some(_) => self.inset.write_after(&mut whole),
            None => self.inset.write(&mut whole),
        }
        whole.extend_from_slice(after);
        whole.into()
    }

    fn stamped(self, revision: Revision) -> Bytes {
        match self.stamp_at {
            Some(at) => stamped(&self.bytes[..at], &self.bytes[at..], revision),
            None => self.bytes,
        }
    }
}

const STAMP_START: &str = "\"resourceVersion\":\"";
const STAMP_END: &str = "\",";

fn stamped(before: &[u8], after: &[u8], revision: Revision) -> Bytes {
    let length = before.len() + stamp_length(revision) + after.len();
    let mut value = Vec::with_capacity(length);
    value.extend_from_slice(before);
    // Writing to a vector cannot fail.
    let _ = write!(value, "{STAMP_START}{revision}{STAMP_END}");
    value.extend_from_slice(after);
    value.into()
}

fn stamp_length(revision: Revision) -> usize {
    let digits = revision.checked_ilog10().unwrap_or(0) as usize + 1;
    STAMP_START.len() + digits + STAMP_END.len()
}

/// How a value is stored.
#[derive(Clone)]
pub(crate) enum AtRest {
    /// Encrypted with this key.
    Encrypted(KeyTag),
    /// In a form that is read, but would not be written now.
    Outdated,
    /// It could not be decrypted or decoded, for this reason. The record's value is empty.
    Sealed { stored: Bytes, reason: String },
}

/// A record without its value.
pub(crate) struct Head {
    pub(crate) key: Key,
    pub(crate) created: Revision,
    pub(crate) modified: Revision,
    pub(crate) expires: Option<Timestamp>,
    pub(crate) stamp_at: Option<usize>,
    pub(crate) inset_at: Option<usize>,
    pub(crate) inset: Inset,
}

/// A record's value without its stamp, in two parts.
pub(crate) struct Unstamped<'a> {
    pub(crate) before: &'a [u8],
    pub(crate) after: &'a [u8],
    pub(crate) stamp_at: Option<usize>,
}

impl Record {
    pub fn new(
        key: Key,
        payload: Payload,
        created: Revision,
        modified: Revision,
        expires: Option<Timestamp>,
    ) -> Self {
        let (stamp_at, inset_at) = (payload.stamp_at, payload.inset_at);
        let facts = payload.facts.clone().map(OnceLock::from).unwrap_or_default();
        let inset = if stamp_at.is_some() { payload.inset.clone() } else { Inset::default() };
        let (value, reading) = (payload.stamped(modified), Mutex::default());
        let at_rest = None;
        Self { key, value, inset, created, modified, expires, stamp_at, inset_at, at_rest, facts, reading }
    }

    /// Creates a record from a value in a larger buffer, which is copied once, including the stamp. `None` if stamp or
    /// inset are outside the value.
    pub(crate) fn restore(head: Head, value: &[u8], at_rest: Option<Box<AtRest>>) -> Option<Self> {
        if head.inset_at.is_some_and(|at| at > value.len()) {
            return None;
        }
        let value = match head.stamp_at {
            Some(at) => {
                let (before, after) = value.split_at_checked(at)?;
                stamped(before, after, head.modified)
            }
            None => Bytes::copy_from_slice(value),
        };
        Some(Self::restored(head, value, at_rest))
    }

    /// Creates a record whose value cannot be read.
    pub(crate) fn restore_sealed(head: Head, stored: Bytes, reason: String) -> Self {
        Self::restored(head, Bytes::new(), Some(Box::new(AtRest::Sealed { stored, reason })))
    }

    fn restored(head: Head, value: Bytes, at_rest: Option<Box<AtRest>>) -> Self {
        let Head { key, created, modified, expires, stamp_at, inset_at, inset } = head;
        let (facts, reading) = Default::default();
        Self { key, value, inset, created, modified, expires, stamp_at, inset_at, at_rest, facts, reading }
    }

    pub(crate) fn head(&self) -> Head {
        let Self { key, created, modified, expires, stamp_at, inset_at, inset, .. } = self;
        Head {
            key: key.clone(),
            created: *created,
            modified: *modified,
            expires: *expires,
            stamp_at: *stamp_at,
            inset_at: *inset_at,
            inset: inset.clone(),
        }
    }

    /// Returns where in the unstamped value the stamp goes.
    pub(crate) fn stamp_at(&self) -> Option<usize> {
        self.stamp_at
    }

    /// Returns the position of the inset in the unstamped value.
    pub(crate) fn inset_at(&self) -> Option<usize> {
        self.inset_at
    }

    /// Records that the stored value is encrypted with `key`.
    pub(crate) fn set_key(&mut self, key: Option<KeyTag>) {
        self.at_rest = key.map(|key| Box::new(AtRest::Encrypted(key)));
    }

    /// Records that the stored form would not be written now.
    pub(crate) fn set_outdated(&mut self) {
        self.at_rest = Some(Box::new(AtRest::Outdated));
    }

    pub(crate) fn is_outdated(&self) -> bool {
        matches!(self.at_rest.as_deref(), Some(AtRest::Outdated))
    }

    pub(crate) fn key_tag(&self) -> Option<&KeyTag> {
        match self.at_rest.as_deref() {
            Some(AtRest::Encrypted(key)) => Some(key),
            _ => None,
        }
    }

    /// Returns the stored value that could not be decrypted, and the reason.
    pub(crate) fn sealed(&self) -> Option<(&Bytes, &str)> {
        match self.at_rest.as_deref() {
            Some(AtRest::Sealed { stored, reason }) => Some((stored, reason)),
            _ => None,
        }
    }

    /// Returns why the value cannot be read, if it could not be decrypted.
    pub fn unreadable(&self) -> Option<&str> {
        self.sealed().map(|(_, reason)| reason)
    }

    /// Returns the value without the stamp.
    pub fn payload(&self) -> Payload {
        let Unstamped { before, after, stamp_at } = self.unstamped();
        let bytes = if stamp_at.is_some() { [before, after].concat().into() } else { self.value.clone() };
        let (inset_at, inset, facts) = (self.inset_at, self.inset.clone(), self.facts.get().cloned());
        Payload { bytes, stamp_at, inset_at, inset, facts }
    }

    /// Returns whether the record already holds this payload, apart from the stamp.
    pub fn holds(&self, payload: &Payload) -> bool {
        let Unstamped { before, after, stamp_at } = self.unstamped();
        let (new_before, new_after) = payload.bytes.split_at(payload.stamp_at.unwrap_or(0));
        let same = stamp_at == payload.stamp_at && before == new_before && after == new_after;
        same && self.inset_at == payload.inset_at && self.inset == payload.inset
    }

    pub(crate) fn unstamped(&self) -> Unstamped<'_> {
        if self.sealed().is_some() {
            return Unstamped { before: &[], after: &[], stamp_at: None };
        }
        let (before, _) = self.value.split_at(self.stamp_at.unwrap_or(0));
        Unstamped { before, after: &self.value[self.stamp_end()..], stamp_at: self.stamp_at }
    }

    fn stamp_end(&self) -> usize {
        match self.stamp_at.filter(|_| self.sealed().is_none()) {
            Some(at) => at + stamp_length(self.modified),
            None => 0,
        }
    }

    /// Returns the position of the inset in the stamped value.
    fn inset_place(&self) -> usize {
        let end = self.stamp_end();
        match (self.inset_at.filter(|_| self.sealed().is_none()), self.stamp_at) {
            (Some(at), Some(stamp_at)) if at > stamp_at => at + (end - stamp_at),
            (Some(at), _) => at,
            (None, _) => end,
        }
    }

    /// Appends the whole value starting at byte `from`, which must not be after the stamp or the inset.
    pub fn write_whole_from(&self, from: usize, into: &mut Vec<u8>) {
        let (before, after) = self.value.split_at(self.inset_place().min(self.value.len()));
        into.extend_from_slice(before.get(from..).unwrap_or_default());
        match self.inset_at {
            Some(_) => self.inset.write_after(into),
            None => self.inset.write(into),
        }
        into.extend_from_slice(after);
    }

    /// Returns the value with its inset. Without an inset, this is the value itself, not a copy.
    pub fn whole(&self) -> Bytes {
        if self.inset.is_empty() {
            return self.value.clone();
        }
        let mut whole = Vec::with_capacity(self.whole_length());
        self.write_whole(&mut whole);
        whole.into()
    }

    pub fn whole_length(&self) -> usize {
        self.value.len() + self.inset.length()
    }

    /// Appends the value with its inset.
    pub fn write_whole(&self, into: &mut Vec<u8>) {
        self.write_whole_from(0, into);
    }

    /// Returns how many bytes it keeps alive, without shared ones.
    pub(crate) fn weight(&self) -> usize {
        self.value.len() + self.inset.weight()
    }

    /// Returns this record as the last state of its key, removed at `revision`.
    pub fn removed(&self, revision: Revision) -> Self {
        let Unstamped { before, after, stamp_at } = self.unstamped();
        let value = if stamp_at.is_some() { stamped(before, after, revision) } else { self.value.clone() };
        let (key, created, facts) = (self.key.clone(), self.created, self.facts.clone());
        let (modified, expires, reading) = (revision, None, Mutex::default());
        let (inset_at, inset, at_rest) = (self.inset_at, self.inset.clone(), self.at_rest.clone());
        Self { key, value, inset, created, modified, expires, stamp_at, inset_at, at_rest, facts, reading }
    }

    /// Returns the facts of this value, derived on first use unless the writer already knew them.
    pub fn facts<T: Any + Send + Sync>(&self, derive: impl FnOnce(&Self) -> T) -> Option<&T> {
        self.facts.get_or_init(|| Arc::new(derive(self))).downcast_ref()
    }

    /// Returns the object another reader has decoded from this value, if it is still alive.
    pub fn decoded(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        self.reading.lock().as_ref().and_then(Weak::upgrade)
    }

    /// Shares a decoded object with other readers, for as long as this reader keeps it.
    pub fn share_decoded(&self, made: &Arc<dyn Any + Send + Sync>) {
        *self.reading.lock() = Some(Arc::downgrade(made));
    }
}

impl fmt::Debug for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Record({} @{}, {} bytes)", self.key, self.modified, self.value.len())
    }
}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Payload({} bytes)", self.bytes.len())
    }
}
