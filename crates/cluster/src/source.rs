//! The in-process source: informers share the API server's records instead of copying them.
//!
//! Kinds that another server answers for, as an APIService says, are read by requests.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt, stream};
use setpoint::client::Cause;
use setpoint::object::DecodeError;
use setpoint::source::{KubeSource, ListSink, ObjectList, Selection, Source, WatchItem};
use setpoint::{ClientError, Kind, Metadata, Object, OwnerRef, Runtime};
use setpoint_apiserver::audit::{Read, Reader};
use setpoint_apiserver::auth::User;
use setpoint_apiserver::facts::Facts;
use setpoint_apiserver::registry::Gvr;
use setpoint_apiserver::status::Status;
use setpoint_apiserver::{ApiServer, ChangeKind, RecordWatch};
use setpoint_store::{Record, Revision};

use crate::{Connect, Denials, InProcess};

/// A source that calls the API server directly. Objects share the bytes of its store. Informers that hold the same
/// object share it, including its decoded views.
#[derive(Clone)]
pub struct InProcessSource {
    api: ApiServer,
    user: User,
    denials: Option<Denials>,
    /// Reads by requests, made when it is first needed.
    over_requests: OnceLock<Arc<KubeSource>>,
}

impl InProcessSource {
    /// Creates a source that reads as `user`.
    pub fn new(api: ApiServer, user: User) -> Self {
        Self { api, user, denials: None, over_requests: OnceLock::new() }
    }

    /// Records denied reads in `denials`.
    pub(crate) fn tracking(self, denials: &Denials) -> Self {
        Self { denials: Some(denials.clone()), ..self }
    }

    /// Returns the source of a kind that another server answers for.
    async fn of_other_server(&self, kind: &Kind) -> Option<&KubeSource> {
        if !self.api.forwards(kind.group(), kind.version()).await {
            return None;
        }
        let source = self.over_requests.get_or_init(|| {
            let denials = self.denials.clone().unwrap_or_default();
            let client = InProcess::new(self.api.clone(), denials).client(&self.user);
            let runtime = Runtime { clock: self.api.clock().clone(), rng: self.api.fork_rng() };
            Arc::new(KubeSource::new(client, runtime))
        });
        Some(source)
    }

    async fn authorize(&self, verb: &str, kind: &Kind, selection: &Selection) -> Result<(), Status> {
        let allowed = self.api.may_read(&self.user, verb, &gvr(kind), &choice(selection)).await;
        if let (Err(_), Some(denials)) = (&allowed, &self.denials) {
            denials.note(&self.user, &format!("{verb} {kind} ({selection})"));
        }
        allowed
    }

    async fn records(
        &self,
        kind: &Kind,
        selection: &Selection,
    ) -> Result<(Vec<Arc<Record>>, Revision), Status> {
        self.authorize("list", kind, selection).await?;
        let read = self.read(kind, selection, false).await?;
        let records = self.api.list_records(&gvr(kind), &choice(selection)).await;
        if let Err(status) = &records {
            read.failed(status);
        }
        records
    }

    /// Records a list or watch in the audit log, like a request.
    async fn read(&self, kind: &Kind, selection: &Selection, watches: bool) -> Result<Read, Status> {
        let reader = Reader { user: self.user.clone(), user_agent: USER_AGENT.into() };
        self.api.record_read(&reader, &gvr(kind), &choice(selection), watches).await
    }

    /// Converts records to objects. Objects that cannot be decoded are left out and counted.
    fn objects(&self, kind: &Kind, records: &[Arc<Record>]) -> Result<ObjectList, Status> {
        let gvr = gvr(kind);
        let mut listed = ObjectList::default();
        for (record, shown) in records.iter().zip(self.api.shown(&gvr, records)?) {
            match object(record, self.api.facts(&gvr, record)?, shown) {
                Ok(object) => listed.objects.push(object),
                Err(_) => listed.undecodable += 1,
            }
        }
        Ok(listed)
    }
}

const USER_AGENT: &str = concat!("setpoint/", env!("CARGO_PKG_VERSION"));

/// The number of objects in a part of a list.
const PART: usize = 500;

impl Source for InProcessSource {
    fn list<'a>(
        &'a self,
        kind: &'a Kind,
        selection: &'a Selection,
    ) -> BoxFuture<'a, Result<ObjectList, ClientError>> {
        async move {
            if let Some(source) = self.of_other_server(kind).await {
                return source.list(kind, selection).await;
            }
            let (records, revision) = self.records(kind, selection).await.map_err(client_error)?;
            let listed = self.objects(kind, &records).map_err(client_error)?;
            Ok(ObjectList { resource_version: revision.to_string(), ..listed })
        }
        .boxed()
    }

    fn list_in_parts<'a>(
        &'a self,
        kind: &'a Kind,
        selection: &'a Selection,
        parts: ListSink,
    ) -> BoxFuture<'a, Result<ObjectList, ClientError>> {
        async move {
            if let Some(source) = self.of_other_server(kind).await {
                return source.list_in_parts(kind, selection, parts).await;
            }
            let (records, revision) = self.records(kind, selection).await.map_err(client_error)?;
            let mut undecodable = 0;
            for records in records.chunks(PART) {
                let listed = self.objects(kind, records).map_err(client_error)?;
                undecodable += listed.undecodable;
                parts.send(listed.objects).await;
            }
            Ok(ObjectList { resource_version: revision.to_string(), undecodable, ..ObjectList::default() })
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
            if let Some(source) = self.of_other_server(kind).await {
                return source.watch(kind, selection, resource_version).await;
            }
            self.authorize("watch", kind, selection).await.map_err(client_error)?;
            let from = resource_version.parse().unwrap_or(0);
            let read = self.read(kind, selection, true).await.map_err(client_error)?;
            match self.api.watch_records(&gvr(kind), &choice(selection), from).await {
                Ok(watch) => Ok(items(watch, read).boxed()),
                Err(status) => {
                    read.failed(&status);
                    Err(client_error(status))
                }
            }
        }
        .boxed()
    }

    fn shares_objects(&self) -> bool {
        true
    }
}

/// How often an idle watch sends a bookmark.
const BOOKMARK_EVERY: Duration = Duration::from_secs(60);

/// Returns the items of a watch. Every batch ends with a bookmark, so that the informer knows its position, and an idle
/// watch sends one periodically. When the stream ends, the read is recorded as complete.
fn items(
    watch: RecordWatch,
    read: Read,
) -> impl futures::Stream<Item = Result<WatchItem, ClientError>> + Send {
    // One timer for the whole watch. It is reset when it fires, not with every change.
    let timer = Box::pin(tokio::time::sleep(BOOKMARK_EVERY));
    stream::unfold(Some((watch, timer, read)), |state| async {
        let (mut watch, mut timer, read) = state?;
        let next = tokio::select! {
            biased;
            next = watch.next() => next,
            () = &mut timer => {
                timer = Box::pin(tokio::time::sleep(BOOKMARK_EVERY));
                Ok(Some(Vec::new()))
            }
        };
        let (items, rest) = match next {
            Ok(None) => return None,
            Ok(Some(changes)) => {
                let bookmark = WatchItem::Bookmark { resource_version: watch.revision().to_string() };
                let items = changes.iter().map(|(change, record)| item(&watch, *change, record));
                let items: Vec<_> = items.chain([bookmark]).map(Ok).collect();
                (items, Some((watch, timer, read)))
            }
            Err(status) => (vec![Err(client_error(status))], None),
        };
        Some((stream::iter(items), rest))
    })
    .flatten()
}

fn item(watch: &RecordWatch, change: ChangeKind, record: &Arc<Record>) -> WatchItem {
    let object = match watch.shown(record) {
        Ok(shown) => object(record, watch.facts(record), shown),
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

/// Returns the object of a record: the one another informer has decoded, or a new one from the metadata the API server
/// already has. The bytes are only decoded if the server does not return those of its store.
fn object(record: &Record, facts: &Facts, shown: Bytes) -> Result<Object, DecodeError> {
    let stored = shown.as_ptr() == record.value.as_ptr() && shown.len() == record.value.len();
    if !stored || facts.uid.is_empty() {
        return Object::from_json(shown);
    }
    if let Some(object) = record.decoded().and_then(Object::from_shared) {
        return Ok(object);
    }
    let object = Object::with_metadata(metadata(record, facts), shown);
    record.share_decoded(&object.to_shared());
    Ok(object)
}

fn metadata(record: &Record, facts: &Facts) -> Metadata {
    let (namespace, name) = match record.key.path.split_once('/') {
        Some((namespace, name)) => (Some(namespace.into()), name.into()),
        None => (None, (*record.key.path).into()),
    };
    let owner = |owner: &setpoint_apiserver::facts::OwnerReference| OwnerRef {
        api_version: owner.api_version.clone(),
        kind: owner.kind.clone(),
        name: owner.name.clone(),
        uid: owner.uid.clone(),
        controller: owner.controller,
        block_owner_deletion: owner.block_owner_deletion,
    };
    Metadata {
        name,
        namespace,
        uid: facts.uid.clone(),
        resource_version: record.modified.to_string().into(),
        generation: facts.generation,
        creation_timestamp: facts.creation_timestamp,
        deletion_timestamp: facts.deletion_timestamp,
        deletion_grace_period_seconds: facts.deletion_grace_period_seconds,
        labels: facts.labels.iter().cloned().collect(),
        owner_references: facts.owner_references.iter().map(owner).collect(),
        finalizers: facts.finalizers.clone(),
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
    let details = status.details.unwrap_or_default();
    let causes = details.causes.into_iter().map(|cause| Cause {
        reason: cause.reason.into_owned(),
        message: cause.message,
        field: cause.field,
    });
    ClientError::Api {
        code: status.code,
        reason: status.reason.to_string(),
        message: status.message,
        causes: causes.collect(),
        retry_after_seconds: Some(details.retry_after_seconds).filter(|seconds| *seconds > 0),
    }
}
