//! Stage 1: sources of objects.
//!
//! A source makes no decisions. It lists on request and watches from the given version. The reflector handles all
//! errors.

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
pub use self::listing::ListSink;

/// A selection of objects of a kind.
///
/// ```
/// use setpoint::source::Selection;
/// let running = Selection { fields: Some("status.phase=Running".into()), ..Selection::default() };
/// assert_eq!(running.to_string(), "fields=status.phase=Running");
/// assert_eq!(Selection::default().to_string(), "all");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Selection {
    /// Only objects in this namespace.
    pub namespace: Option<String>,
    /// A label selector, in API syntax.
    pub labels: Option<String>,
    /// A field selector, in API syntax.
    pub fields: Option<String>,
    /// Only metadata, such as labels, owners and finalizers, without spec and status.
    pub metadata_only: bool,
}

impl fmt::Display for Selection {
    /// Formats the selection: `namespace=shop,labels=app=web,metadata`, or `all`.
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
/// let nothing = setpoint::source::ObjectList { resource_version: "7".into(), ..Default::default() };
/// assert!(nothing.objects.is_empty());
/// ```
#[derive(Debug, Default)]
pub struct ObjectList {
    /// The objects, in any order.
    pub objects: Vec<Object>,
    /// The version to start a watch from.
    pub resource_version: String,
    /// The number of objects whose metadata could not be decoded. They are logged and left out.
    pub undecodable: usize,
}

impl ObjectList {
    /// Passes on the objects read so far, if there is a receiver.
    pub(crate) async fn send(&mut self, parts: Option<&ListSink>) {
        if let Some(parts) = parts {
            parts.send(std::mem::take(&mut self.objects)).await;
        }
    }
}

/// An item of a watch.
///
/// ```
/// use setpoint::source::WatchItem;
/// let item = WatchItem::Bookmark { resource_version: "8".into() };
/// assert!(matches!(item, WatchItem::Bookmark { .. }));
/// ```
#[derive(Debug)]
pub enum WatchItem {
    /// The object was created, or now matches the selection.
    Added(Object),
    /// The object changed.
    Modified(Object),
    /// The object was deleted, or no longer matches the selection. This is its last state, at the version of the
    /// deletion.
    Deleted(Object),
    /// Nothing else changed up to this version.
    Bookmark {
        /// The version.
        resource_version: String,
    },
    /// An object that could not be decoded. The watch continues.
    Undecodable {
        /// The reason.
        error: String,
        /// The bytes received.
        raw: Bytes,
    },
}

/// Lists and watches objects of any kind, over HTTP or in the API server's own process.
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
    /// Lists everything selected, at one version that is at least as new as the call.
    fn list<'a>(
        &'a self,
        kind: &'a Kind,
        selection: &'a Selection,
    ) -> BoxFuture<'a, Result<ObjectList, ClientError>>;

    /// Like [`list`](Self::list), but passes objects on in parts while reading, so that nothing has to hold all of
    /// them. Returns the objects that have not been passed on.
    fn list_in_parts<'a>(
        &'a self,
        kind: &'a Kind,
        selection: &'a Selection,
        parts: ListSink,
    ) -> BoxFuture<'a, Result<ObjectList, ClientError>> {
        let _ = parts;
        self.list(kind, selection)
    }

    /// Watches for changes after `resource_version`. The stream ends when the server closes it. An `Err` item is the
    /// last one; if it is [`ClientError::is_expired`], list again.
    fn watch<'a>(
        &'a self,
        kind: &'a Kind,
        selection: &'a Selection,
        resource_version: &'a str,
    ) -> BoxFuture<'a, Result<BoxStream<'static, Result<WatchItem, ClientError>>, ClientError>>;

    /// Returns whether the process holds the source's objects anyway, so that full objects cost no more than their
    /// metadata.
    fn shares_objects(&self) -> bool {
        false
    }
}
