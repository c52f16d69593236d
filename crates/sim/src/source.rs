//! Fault injection for watches.
//!
//! A real watch is ordered. So faults delay, hide, repeat or end it, but never reorder events within one watch.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt, stream};
use setpoint::source::{ObjectList, Selection, Source, WatchItem};
use setpoint::{ClientError, Kind, Object};

use crate::faults::{Faults, OnEvent};

type Items = BoxStream<'static, Result<WatchItem, ClientError>>;

/// A source with faults in its watches.
pub(crate) struct FaultySource {
    inner: Arc<dyn Source>,
    faults: Faults,
}

impl FaultySource {
    pub(crate) fn new(inner: Arc<dyn Source>, faults: Faults) -> Self {
        Self { inner, faults }
    }
}

impl Source for FaultySource {
    fn list<'a>(
        &'a self,
        kind: &'a Kind,
        selection: &'a Selection,
    ) -> BoxFuture<'a, Result<ObjectList, ClientError>> {
        async move {
            if let Some((objects, resource_version)) = self.faults.older_list(kind) {
                return Ok(ObjectList { objects, resource_version, ..ObjectList::default() });
            }
            let listed = self.inner.list(kind, selection).await?;
            self.faults.listed(kind, &listed.objects, &listed.resource_version);
            Ok(listed)
        }
        .boxed()
    }

    fn watch<'a>(
        &'a self,
        kind: &'a Kind,
        selection: &'a Selection,
        resource_version: &'a str,
    ) -> BoxFuture<'a, Result<Items, ClientError>> {
        async move {
            if self.faults.is_compacted() {
                return Err(gone());
            }
            let items = self.inner.watch(kind, selection, resource_version).await?;
            let disturbed = disturbed(items, kind.clone(), self.faults.clone());
            Ok(match self.faults.watches_last() {
                None => disturbed.boxed(),
                Some(last) => disturbed.take_until(tokio::time::sleep(last)).boxed(),
            })
        }
        .boxed()
    }

    fn shares_objects(&self) -> bool {
        self.inner.shares_objects()
    }
}

/// How long a hidden event stays hidden.
const HIDDEN_FOR: Duration = Duration::from_secs(30);

/// The rest of a watch.
enum Rest {
    Open(Items),
    Ended,
}

fn disturbed(
    items: Items,
    kind: Kind,
    faults: Faults,
) -> impl futures::Stream<Item = Result<WatchItem, ClientError>> {
    let counts = is_faulted(&kind);
    stream::unfold((Rest::Open(items), faults), move |(rest, faults)| async move {
        let Rest::Open(mut items) = rest else { return None };
        let item = items.next().await?;
        if counts && is_event(&item) {
            faults.step().await;
        }
        let fault = if counts && is_event(&item) { faults.on_event() } else { None };
        let (out, rest): (Vec<_>, Rest) = match fault {
            None => (vec![item], Rest::Open(items)),
            Some(OnEvent::Duplicate) => (repeated(item), Rest::Open(items)),
            Some(OnEvent::Delay(duration)) => {
                tokio::time::sleep(duration).await;
                (vec![item], Rest::Open(items))
            }
            Some(OnEvent::Hide) => {
                tokio::time::sleep(HIDDEN_FOR).await;
                (vec![Err(gone())], Rest::Ended)
            }
            Some(OnEvent::Close) => (Vec::new(), Rest::Ended),
            Some(OnEvent::Expire) => (vec![Err(gone())], Rest::Ended),
        };
        Some((stream::iter(out), (rest, faults)))
    })
    .flatten()
}

fn is_event(item: &Result<WatchItem, ClientError>) -> bool {
    matches!(item, Ok(WatchItem::Added(_) | WatchItem::Modified(_) | WatchItem::Deleted(_)))
}

/// Returns whether a kind gets faults. Leases and events change all the time and decide nothing.
fn is_faulted(kind: &Kind) -> bool {
    !matches!(kind.kind(), "Lease" | "Event")
}

fn repeated(item: Result<WatchItem, ClientError>) -> Vec<Result<WatchItem, ClientError>> {
    let copy = match &item {
        Ok(WatchItem::Added(object)) => Some(WatchItem::Modified(Object::clone(object))),
        Ok(WatchItem::Modified(object)) => Some(WatchItem::Modified(object.clone())),
        _ => None,
    };
    std::iter::once(item).chain(copy.map(Ok)).collect()
}

fn gone() -> ClientError {
    ClientError::Api {
        code: 410,
        reason: "Expired".into(),
        message: "too old resource version".into(),
        causes: Vec::new(),
        retry_after_seconds: None,
    }
}
