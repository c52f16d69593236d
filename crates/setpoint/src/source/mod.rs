//! Stage 1: where objects come from.
//!
//! A source makes no decisions: it lists when asked to and watches from the version it is told, and
//! whatever goes wrong is the reflector's to handle.

mod frame;
mod kube;
pub(crate) mod listing;
#[cfg(test)]
mod tests;

use std::fmt;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::BoxStream;

use crate::{ClientError, Kind, Object};

pub use self::kube::KubeSource;
pub use self::listing::Parts;

/// Which objects of a kind are wanted.
///
/// ```
/// use setpoint::source::Selection;
/// let running = Selection { fields: Some("status.phase=Running".into()), ..Selection::default() };
/// assert_eq!(running.to_string(), "fields=status.phase=Running");
/// assert_eq!(Selection::default().to_string(), "all");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Selection {
    /// Only this namespace.
    pub namespace: Option<String>,
    /// A label selector, as the API takes it.
    pub labels: Option<String>,
    /// A field selector, as the API takes it.
    pub fields: Option<String>,
    /// Only metadata: labels, owners, finalizers, without spec and status.
    pub metadata_only: bool,
}

impl fmt::Display for Selection {
    /// Names what is selected: `namespace=shop,labels=app=web,metadata`; `all` if everything is.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [("namespace", &self.namespace), ("labels", &self.labels), ("fields", &self.fields)];
        let parts = parts.into_iter().filter_map(|(name, value)| Some(format!("{name}={}", value.as_ref()?)));
        let parts: Vec<String> = parts.chain(self.metadata_only.then(|| "metadata".into())).collect();
        f.write_str(if parts.is_empty() { "all" } else { "" })?;
        f.write_str(&parts.join(","))
    }
}

/// A consistent list.
///
/// ```
/// let nothing = setpoint::source::Listed { resource_version: "7".into(), ..Default::default() };
/// assert!(nothing.objects.is_empty());
/// ```
#[derive(Debug, Default)]
pub struct Listed {
    /// The objects, in any order.
    pub objects: Vec<Object>,
    /// The version that a watch goes on from.
    pub resource_version: String,
    /// Objects whose metadata could not be read: reported, left out.
    pub undecodable: usize,
}

impl Listed {
    /// Hands over the objects read so far, if they go anywhere.
    pub(crate) async fn hand_over(&mut self, parts: Option<&Parts>) {
        if let Some(parts) = parts {
            parts.hand_over(std::mem::take(&mut self.objects)).await;
        }
    }
}

/// One item of a watch.
///
/// ```
/// use setpoint::source::WatchItem;
/// let item = WatchItem::Bookmark { resource_version: "8".into() };
/// assert!(matches!(item, WatchItem::Bookmark { .. }));
/// ```
#[derive(Debug)]
pub enum WatchItem {
    /// The object was created, or now belongs to the selection.
    Added(Object),
    /// The object changed.
    Modified(Object),
    /// The object was removed, or no longer belongs to the selection; this is its last state, at the
    /// version of its removal.
    Deleted(Object),
    /// Nothing changed up to this version.
    Bookmark {
        /// The version.
        resource_version: String,
    },
    /// An object that could not be read; the watch goes on.
    Undecodable {
        /// Why.
        error: String,
        /// What was received.
        raw: Bytes,
    },
}

/// Lists and watches objects of any kind: over HTTP, or in the API server's own process.
///
/// ```no_run
/// # async fn example(source: impl setpoint::source::Source) -> Result<(), setpoint::ClientError> {
/// use futures::StreamExt;
/// use k8s_openapi::api::core::v1::Pod;
/// let (pods, all) = (setpoint::Kind::of::<Pod>(), Default::default());
/// let listed = source.list(&pods, &all).await?;
/// let mut watch = source.watch(&pods, &all, &listed.resource_version).await?;
/// while let Some(item) = watch.next().await {
///     println!("{:?}", item?);
/// }
/// # Ok(()) }
/// ```
pub trait Source: Send + Sync + 'static {
    /// Everything selected, at one version that is no older than the call.
    fn list<'a>(
        &'a self,
        kind: &'a Kind,
        selection: &'a Selection,
    ) -> BoxFuture<'a, Result<Listed, ClientError>>;

    /// The same, handed over part by part while it is read, so that nobody has to hold all of it. What is
    /// returned are the last objects: those that have not been handed over.
    fn list_in_parts<'a>(
        &'a self,
        kind: &'a Kind,
        selection: &'a Selection,
        parts: Parts,
    ) -> BoxFuture<'a, Result<Listed, ClientError>> {
        let _ = parts;
        self.list(kind, selection)
    }

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
