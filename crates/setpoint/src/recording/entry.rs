//! The entries of a recording.

use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::client::Cause;
use crate::object::DecodeError;
use crate::source::{ObjectList, Selection, WatchItem};
use crate::{ClientError, Kind, Object};

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Entry {
    /// The time since the start of the recording.
    pub(super) at: Duration,
    pub(super) what: EntryKind,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum EntryKind {
    /// A list returned.
    ObjectList { of: String, answer: Result<List, Failure> },
    /// A watch was opened, or failed to open.
    Watched { of: String, watch: u64, refusal: Option<Failure> },
    /// A watch received an item.
    Came { watch: u64, item: Item },
    /// A watch ended.
    Ended { watch: u64, failure: Option<Failure> },
    /// A request got a response, or failed.
    Called { call: Call, answer: Result<RecordedResponse, String> },
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct List {
    objects: Vec<Box<RawValue>>,
    resource_version: String,
    undecodable: usize,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Item {
    Added(Box<RawValue>),
    Modified(Box<RawValue>),
    Deleted(Box<RawValue>),
    Bookmark(String),
    Undecodable { error: String, raw: String },
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct Call {
    pub(super) method: String,
    pub(super) path: String,
    pub(super) body: String,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct RecordedResponse {
    pub(super) code: u16,
    pub(super) body: String,
}

/// An error that can be serialized.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Failure {
    Api {
        code: u16,
        reason: String,
        message: String,
        causes: Vec<(String, String, String)>,
        retry_after: Option<u32>,
    },
    NoAnswer(String),
}

/// Returns the text that identifies a list or a watch.
pub(super) fn request_name(kind: &Kind, selection: &Selection) -> String {
    format!("{kind} {selection}")
}

impl List {
    pub(super) fn of(listed: &ObjectList) -> Self {
        let objects = listed.objects.iter().filter_map(encoded).collect();
        let ObjectList { resource_version, undecodable, .. } = listed;
        Self { objects, resource_version: resource_version.clone(), undecodable: *undecodable }
    }

    pub(super) fn listed(&self) -> Result<ObjectList, DecodeError> {
        let objects = self.objects.iter().map(|raw| decoded(raw)).collect::<Result<_, _>>()?;
        let (resource_version, undecodable) = (self.resource_version.clone(), self.undecodable);
        Ok(ObjectList { objects, resource_version, undecodable })
    }
}

impl Item {
    /// Returns `None` for an object whose bytes are not JSON, which a transform may produce.
    pub(super) fn of(item: &WatchItem) -> Option<Self> {
        Some(match item {
            WatchItem::Added(object) => Self::Added(encoded(object)?),
            WatchItem::Modified(object) => Self::Modified(encoded(object)?),
            WatchItem::Deleted(object) => Self::Deleted(encoded(object)?),
            WatchItem::Bookmark { resource_version } => Self::Bookmark(resource_version.clone()),
            WatchItem::Undecodable { error, raw } => {
                Self::Undecodable { error: error.clone(), raw: String::from_utf8_lossy(raw).into_owned() }
            }
        })
    }

    pub(super) fn item(&self) -> Result<WatchItem, DecodeError> {
        Ok(match self {
            Self::Added(raw) => WatchItem::Added(decoded(raw)?),
            Self::Modified(raw) => WatchItem::Modified(decoded(raw)?),
            Self::Deleted(raw) => WatchItem::Deleted(decoded(raw)?),
            Self::Bookmark(version) => WatchItem::Bookmark { resource_version: version.clone() },
            Self::Undecodable { error, raw } => {
                WatchItem::Undecodable { error: error.clone(), raw: raw.clone().into() }
            }
        })
    }
}

impl Failure {
    pub(super) fn of(error: &ClientError) -> Self {
        match error {
            ClientError::Api { code, reason, message, causes, retry_after_seconds } => Self::Api {
                code: *code,
                reason: reason.clone(),
                message: message.clone(),
                causes: causes
                    .iter()
                    .cloned()
                    .map(|cause| (cause.reason, cause.message, cause.field))
                    .collect(),
                retry_after: *retry_after_seconds,
            },
            other => Self::NoAnswer(other.to_string()),
        }
    }

    pub(super) fn error(&self) -> ClientError {
        match self.clone() {
            Self::Api { code, reason, message, causes, retry_after } => {
                let cause = |(reason, message, field)| Cause { reason, message, field };
                let causes = causes.into_iter().map(cause).collect();
                ClientError::Api { code, reason, message, causes, retry_after_seconds: retry_after }
            }
            Self::NoAnswer(why) => ClientError::Transport(why.into()),
        }
    }
}

fn encoded(object: &Object) -> Option<Box<RawValue>> {
    serde_json::from_slice(object.raw()).ok()
}

fn decoded(raw: &RawValue) -> Result<Object, DecodeError> {
    Object::from_json(Bytes::copy_from_slice(raw.get().as_bytes()))
}
