//! What is kept under a key: encoded bytes that already carry their own revision.
//!
//! A payload is a JSON document and a place in it where `"resourceVersion":"<revision>"` belongs.
//! The engine stamps it when the revision is known, so an object is encoded once and the same bytes
//! serve every get, list and watch. What is made durable is the unstamped payload.

use std::any::Any;
use std::fmt;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use jiff::Timestamp;

use crate::{Key, Revision};

/// What the owner of the values derived from one (labels, indexed fields): computed once, shared.
pub type Facts = Arc<dyn Any + Send + Sync>;

/// A value on its way into the store.
#[derive(Clone)]
pub struct Payload {
    /// The encoded value, without a revision.
    pub bytes: Bytes,
    /// Where in `bytes` the stamp goes: just after the `{` of a JSON object that has at least one
    /// other member. `None`: the value is not stamped.
    pub stamp_at: Option<usize>,
    /// Facts that are already known.
    pub facts: Option<Facts>,
}

/// A value in the store. Immutable: a change makes a new record.
pub struct Record {
    pub key: Key,
    /// The encoded value, stamped with `modified`.
    pub value: Bytes,
    pub created: Revision,
    pub modified: Revision,
    pub expires: Option<Timestamp>,
    stamp_at: Option<usize>,
    facts: OnceLock<Facts>,
}

impl Payload {
    /// A value that carries no revision inside.
    pub fn plain(bytes: impl Into<Bytes>) -> Self {
        Self { bytes: bytes.into(), stamp_at: None, facts: None }
    }

    fn stamped(&self, revision: Revision) -> Bytes {
        let Some(at) = self.stamp_at else { return self.bytes.clone() };
        let (before, after) = self.bytes.split_at(at);
        [before, stamp(revision).as_bytes(), after].concat().into()
    }
}

fn stamp(revision: Revision) -> String {
    format!("\"resourceVersion\":\"{revision}\",")
}

impl Record {
    pub fn new(
        key: Key,
        payload: Payload,
        created: Revision,
        modified: Revision,
        expires: Option<Timestamp>,
    ) -> Self {
        let value = payload.stamped(modified);
        let facts = payload.facts.map(OnceLock::from).unwrap_or_default();
        Self { key, value, created, modified, expires, stamp_at: payload.stamp_at, facts }
    }

    /// The value as it was before it was stamped.
    pub fn payload(&self) -> Payload {
        let facts = self.facts.get().cloned();
        let Some(at) = self.stamp_at else {
            return Payload { bytes: self.value.clone(), stamp_at: None, facts };
        };
        let after = at + stamp(self.modified).len();
        let bytes = [&self.value[..at], &self.value[after..]].concat().into();
        Payload { bytes, stamp_at: self.stamp_at, facts }
    }

    /// This record as the last state of its key, removed at `revision`.
    pub fn removed(&self, revision: Revision) -> Self {
        Self::new(self.key.clone(), self.payload(), self.created, revision, None)
    }

    /// The facts of this value, derived on first use unless the writer already knew them.
    pub fn facts<T: Any + Send + Sync>(&self, derive: impl FnOnce(&Self) -> T) -> Option<&T> {
        self.facts.get_or_init(|| Arc::new(derive(self))).downcast_ref()
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
