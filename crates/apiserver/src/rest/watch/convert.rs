//! Conversion of watched objects by a webhook.
//!
//! Changes are converted in order, one batch of the store at a time. As long as a batch cannot be converted, the watch
//! stays open and delivers nothing, as in v1.34. If it falls too far behind meanwhile, it ends like any slow watch.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use setpoint_clock::Clock;
use setpoint_store::{Event, EventKind, Record, Revision};

use crate::custom::conversion::Conversions;
use crate::registry::Served;
use crate::server::Server;
use crate::status::Status;

/// The pause after a failed conversion, doubled up to [`MAX_PAUSE`], as v1.34's caches do.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const MAX_PAUSE: Duration = Duration::from_secs(30);

/// Existing objects, sent at the start of a watch.
pub(super) enum Initial {
    Shown(VecDeque<Arc<Record>>),
    Converting(BoxFuture<'static, Vec<Arc<Record>>>),
}

/// Converts the changes of a watch.
pub(super) struct Converter {
    work: Work,
    /// The changes being converted: at most one batch of the store.
    events: Option<BoxFuture<'static, Vec<Arc<Event>>>>,
    /// The revision up to which all changes have been returned.
    revision: Revision,
    /// The revision of the changes being converted.
    next: Revision,
}

/// What a conversion needs. Cheap to clone.
#[derive(Clone)]
struct Work {
    conversions: Arc<Conversions>,
    served: Arc<Served>,
    clock: Clock,
}

impl Converter {
    pub(super) fn new(server: &Server, served: &Arc<Served>, revision: Revision) -> Self {
        let (conversions, clock) = (server.conversions.clone(), server.clock.clone());
        let work = Work { conversions, served: served.clone(), clock };
        Self { work, events: None, revision, next: revision }
    }

    pub(super) fn revision(&self) -> Revision {
        self.revision
    }

    pub(super) fn is_busy(&self) -> bool {
        self.events.is_some()
    }

    /// Begins to convert changes, or returns them if that is not necessary. Previous states are only needed for a
    /// selection.
    pub(super) fn begin(
        &mut self,
        events: Vec<Arc<Event>>,
        revision: Revision,
        with_previous: bool,
    ) -> Option<Vec<Arc<Event>>> {
        self.next = revision;
        let needs = |record: &Arc<Record>| self.work.served.needs_conversion(record);
        if !events.iter().any(|event| needs(&event.record) || event.previous.as_ref().is_some_and(needs)) {
            self.revision = revision;
            return Some(events);
        }
        let work = self.work.clone();
        self.events = Some(async move { work.events(&events, with_previous).await }.boxed());
        None
    }

    pub(super) fn poll_events(&mut self, context: &mut Context<'_>) -> Poll<Vec<Arc<Event>>> {
        let Some(converting) = &mut self.events else { return Poll::Pending };
        let events = std::task::ready!(converting.poll_unpin(context));
        self.events = None;
        self.revision = self.next;
        Poll::Ready(events)
    }

    pub(super) fn records(&self, records: Vec<Arc<Record>>) -> BoxFuture<'static, Vec<Arc<Record>>> {
        let work = self.work.clone();
        async move { work.records(records).await }.boxed()
    }
}

impl Work {
    /// Converts records, however often it takes.
    async fn records(&self, records: Vec<Arc<Record>>) -> Vec<Arc<Record>> {
        let mut pause = FIRST_PAUSE;
        loop {
            match self.conversions.records(&self.served, records.clone()).await {
                Ok(converted) => return converted,
                Err(why) => self.wait(&why, pause).await,
            }
            pause = (pause * 2).min(MAX_PAUSE);
        }
    }

    async fn wait(&self, why: &Status, pause: Duration) {
        tracing::debug!(%why, kind = self.served.kind.kind, "cannot convert the objects of a watch");
        self.clock.sleep(pause).await;
    }

    async fn events(&self, events: &[Arc<Event>], with_previous: bool) -> Vec<Arc<Event>> {
        let current = self.records(events.iter().map(|event| current(event)).collect()).await;
        let previous = events.iter().filter(|_| with_previous).filter_map(|event| event.previous.clone());
        let mut previous = self.records(previous.collect()).await.into_iter();
        let converted = events.iter().zip(current).map(|(event, record)| {
            let has_previous = with_previous && event.previous.is_some();
            let previous = has_previous.then(|| previous.next()).flatten();
            let record = match event.kind {
                EventKind::Deleted => Arc::new(record.removed(event.revision())),
                EventKind::Created | EventKind::Updated => record,
            };
            Arc::new(Event { kind: event.kind, record, previous })
        });
        converted.collect()
    }
}

/// Returns the record to convert. The last state of a removed object has often been converted before.
fn current(event: &Event) -> Arc<Record> {
    match (event.kind, &event.previous) {
        (EventKind::Deleted, Some(previous)) => previous.clone(),
        _ => event.record.clone(),
    }
}
