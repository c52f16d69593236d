//! What controllers write with: any `kube::Client`, spoken to in encoded bytes.
//!
//! A reply is kept encoded: a controller that only needs to know that a create succeeded never pays
//! for decoding it. Every update and delete carries a precondition.

use bytes::Bytes;
use serde::Serialize;

use crate::{Key, Kind, Object, ReconcileError};

/// A client for all kinds. Cheap to clone.
#[derive(Clone)]
pub struct Client {
    kube: kube::Client,
}

/// Which part of an object a call addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    Main,
    Status,
    Scale,
    Binding,
    Eviction,
    Finalize,
}

/// A change of some fields.
#[derive(Clone, Debug)]
pub enum Patch {
    Json(Bytes),
    Merge(Bytes),
    Strategic(Bytes),
    Apply { body: Bytes, manager: String, force: bool },
}

/// How an object is to be deleted, and what it must still be.
#[derive(Clone, Debug, Default)]
pub struct Delete {
    pub uid: Option<String>,
    pub resource_version: Option<String>,
    pub grace_period_seconds: Option<i64>,
    pub propagation: Option<Propagation>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Propagation {
    Background,
    Foreground,
    Orphan,
}

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The API server answered with a Status.
    #[error("{message}")]
    Api { code: u16, reason: String, message: String, causes: Vec<Cause>, retry_after_seconds: Option<u32> },
    /// No answer: the call may or may not have been carried out.
    #[error("no answer from the API server")]
    Transport(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The answer could not be understood.
    #[error("cannot understand the API server's answer")]
    Answer(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// One of the reasons in a Status.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(default)]
pub struct Cause {
    pub reason: String,
    pub message: String,
    pub field: String,
}

impl Client {
    pub fn new(kube: kube::Client) -> Self {
        Self { kube }
    }

    /// The typed client of the ecosystem, for whatever this one does not offer.
    pub fn kube(&self) -> &kube::Client {
        &self.kube
    }

    pub async fn get(&self, kind: &Kind, key: &Key) -> Result<Object, ClientError> {
        let _ = (kind, key);
        todo!()
    }

    /// Creates an object. `namespace` is that of the object, `None` for a cluster-scoped one.
    pub async fn create(
        &self,
        kind: &Kind,
        namespace: Option<&str>,
        body: &impl Serialize,
    ) -> Result<Object, ClientError> {
        let _ = (kind, namespace, serde_json::to_vec(body));
        todo!()
    }

    /// Replaces an object or a part of it; the body carries the resource version it was made from.
    pub async fn update(
        &self,
        kind: &Kind,
        key: &Key,
        part: Part,
        body: &impl Serialize,
    ) -> Result<Object, ClientError> {
        let _ = (kind, key, part, serde_json::to_vec(body));
        todo!()
    }

    pub async fn patch(
        &self,
        kind: &Kind,
        key: &Key,
        part: Part,
        patch: Patch,
    ) -> Result<Object, ClientError> {
        let _ = (kind, key, part, patch);
        todo!()
    }

    /// Creates through a subresource (`binding`, `eviction`).
    pub async fn post(
        &self,
        kind: &Kind,
        key: &Key,
        part: Part,
        body: &impl Serialize,
    ) -> Result<(), ClientError> {
        let _ = (kind, key, part, serde_json::to_vec(body));
        todo!()
    }

    pub async fn delete(&self, kind: &Kind, key: &Key, delete: &Delete) -> Result<(), ClientError> {
        let _ = (kind, key, delete);
        todo!()
    }
}

impl ClientError {
    pub fn code(&self) -> Option<u16> {
        match self {
            Self::Api { code, .. } => Some(*code),
            _ => None,
        }
    }

    pub fn reason(&self) -> &str {
        match self {
            Self::Api { reason, .. } => reason,
            _ => "",
        }
    }

    pub fn is_not_found(&self) -> bool {
        self.reason() == "NotFound"
    }

    pub fn is_already_exists(&self) -> bool {
        self.reason() == "AlreadyExists"
    }

    pub fn is_conflict(&self) -> bool {
        self.reason() == "Conflict"
    }

    /// The version asked for is gone: list again.
    pub fn is_expired(&self) -> bool {
        self.code() == Some(410)
    }

    /// The class of this error for a reconciler that was attempting `attempted`.
    pub fn into_reconcile_error(self, attempted: String) -> ReconcileError {
        let (conflict, terminal) =
            (self.is_conflict(), matches!(self.code(), Some(400 | 401 | 403 | 404 | 405 | 413 | 415 | 422)));
        let source: Option<Box<dyn std::error::Error + Send + Sync>> = Some(Box::new(self));
        match (conflict, terminal) {
            (true, _) => ReconcileError::Conflict { attempted, source },
            (_, true) => ReconcileError::Terminal { attempted, source },
            _ => ReconcileError::Retry { attempted, source },
        }
    }
}
