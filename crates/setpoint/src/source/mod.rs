//! Stage 1: where objects come from.

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::BoxStream;

use crate::{ClientError, Kind, Object};

/// Which objects of a kind are wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Selection {
    pub namespace: Option<String>,
    pub labels: Option<String>,
    pub fields: Option<String>,
    /// Only metadata: labels, owners, finalizers, without spec and status.
    pub metadata_only: bool,
}

/// A consistent list.
#[derive(Debug)]
pub struct Listed {
    pub objects: Vec<Object>,
    pub resource_version: String,
    /// Objects whose metadata could not be read: reported, left out.
    pub undecodable: usize,
}

/// One item of a watch.
#[derive(Debug)]
pub enum WatchItem {
    Added(Object),
    Modified(Object),
    Deleted(Object),
    /// Nothing changed up to this version.
    Bookmark {
        resource_version: String,
    },
    /// An object that could not be read; the watch goes on.
    Undecodable {
        error: String,
        raw: Bytes,
    },
}

/// Lists and watches objects of any kind: over HTTP, or in the API server's own process.
pub trait Source: Send + Sync + 'static {
    fn list<'a>(
        &'a self,
        kind: &'a Kind,
        selection: &'a Selection,
    ) -> BoxFuture<'a, Result<Listed, ClientError>>;

    /// Changes after `resource_version`. The stream ends when the server closes it; an `Err` item is
    /// the last one ([`ClientError::is_expired`]: list again).
    fn watch<'a>(
        &'a self,
        kind: &'a Kind,
        selection: &'a Selection,
        resource_version: &'a str,
    ) -> BoxFuture<'a, Result<BoxStream<'static, Result<WatchItem, ClientError>>, ClientError>>;

    /// Whether its objects are held in this process anyway, so that whole ones cost no more than their
    /// metadata.
    fn shares_objects(&self) -> bool {
        false
    }
}
