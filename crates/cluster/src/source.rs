//! Informers in the API server's own process: its records, not copies of them.

use std::sync::Arc;

use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt, stream};
use setpoint::source::{Listed, Selection, Source, WatchItem};
use setpoint::{ClientError, Kind, Object};

use setpoint_apiserver::registry::Gvr;
use setpoint_apiserver::status::Status;
use setpoint_apiserver::{ApiServer, ChangeKind, RecordWatch};
use setpoint_store::Record;

/// Lists and watches by calling the API server. Objects share the bytes of its store.
#[derive(Clone)]
pub struct InProcessSource {
    api: ApiServer,
}

impl InProcessSource {
    pub fn new(api: ApiServer) -> Self {
        Self { api }
    }
}

impl Source for InProcessSource {
    fn list<'a>(
        &'a self,
        kind: &'a Kind,
        selection: &'a Selection,
    ) -> BoxFuture<'a, Result<Listed, ClientError>> {
        async move {
            let listed = self.api.list_records(&gvr(kind), &choice(selection)).await;
            let (records, revision) = listed.map_err(client_error)?;
            let shown = self.api.shown(&gvr(kind), &records).map_err(client_error)?;
            let objects: Vec<Object> =
                shown.into_iter().filter_map(|bytes| Object::from_json(bytes).ok()).collect();
            let undecodable = records.len() - objects.len();
            Ok(Listed { objects, resource_version: revision.to_string(), undecodable })
        }
        .boxed()
    }

    fn watch<'a>(
        &'a self,
        kind: &'a Kind,
        selection: &'a Selection,
        resource_version: &'a str,
    ) -> BoxFuture<'a, Result<BoxStream<'static, Result<WatchItem, ClientError>>, ClientError>> {
        async move {
            let from = resource_version.parse().unwrap_or(0);
            let watch = self.api.watch_records(&gvr(kind), &choice(selection), from).await;
            Ok(items(watch.map_err(client_error)?).boxed())
        }
        .boxed()
    }

    fn shares_objects(&self) -> bool {
        true
    }
}

/// The items of a watch: every batch ends with a bookmark, so the informer knows how far it has seen.
fn items(watch: RecordWatch) -> impl futures::Stream<Item = Result<WatchItem, ClientError>> + Send {
    stream::unfold(Some(watch), |watch| async {
        let mut watch = watch?;
        let (items, rest) = match watch.next().await {
            Ok(None) => return None,
            Ok(Some(changes)) => {
                let bookmark = WatchItem::Bookmark { resource_version: watch.revision().to_string() };
                let items = changes.iter().map(|(change, record)| item(&watch, *change, record));
                let items: Vec<_> = items.chain([bookmark]).map(Ok).collect();
                (items, Some(watch))
            }
            Err(status) => (vec![Err(client_error(status))], None),
        };
        Some((stream::iter(items), rest))
    })
    .flatten()
}

fn item(watch: &RecordWatch, change: ChangeKind, record: &Arc<Record>) -> WatchItem {
    let object = match watch.shown(record) {
        Ok(bytes) => Object::from_json(bytes),
        Err(status) => {
            return WatchItem::Undecodable { error: status.to_string(), raw: record.value.clone() };
        }
    };
    match (object, change) {
        (Ok(object), ChangeKind::Added) => WatchItem::Added(object),
        (Ok(object), ChangeKind::Modified) => WatchItem::Modified(object),
        (Ok(object), ChangeKind::Deleted) => WatchItem::Deleted(object),
        (Err(error), _) => WatchItem::Undecodable { error: error.to_string(), raw: record.value.clone() },
    }
}

fn gvr(kind: &Kind) -> Gvr {
    Gvr::new(kind.group(), kind.version(), kind.plural())
}

fn choice(selection: &Selection) -> setpoint_apiserver::selector::Selection {
    setpoint_apiserver::selector::Selection {
        namespace: selection.namespace.clone(),
        labels: selection.labels.clone(),
        fields: selection.fields.clone(),
    }
}

fn client_error(status: Status) -> ClientError {
    ClientError::Api {
        code: status.code,
        reason: status.reason.to_string(),
        message: status.message,
        causes: Vec::new(),
        retry_after_seconds: None,
    }
}
