//! Stage 2: keeps up with a source, whatever goes wrong.
//!
//! ```text
//!     ┌──────────────────────── the version is no longer served ─────────┐
//!     ▼                                                                  │
//!   Empty ──► Listing ──────────────► Opening ──────────────────► Watching
//!     ▲          │ failed               ▲  │ failed        failed │  │
//!     └─ Waiting ◄┘                     ├──┴────► Waiting ◄───────┘  │
//!                                       └────────────────────────────┘ closed
//! ```
//!
//! | From | To | When |
//! |---|---|---|
//! | Empty | Listing | immediately |
//! | Listing | Opening | the list is complete; it is passed on in parts, then its full set of keys |
//! | Listing | Waiting, then Empty | the list failed |
//! | Opening | Watching | the watch is open |
//! | Opening, Watching | Waiting, then Opening | the watch failed, or ended within a second without an event; it resumes at the last version |
//! | Opening, Watching | Empty | the server no longer serves the version, or caused three failed watches in a row; with a wait, unless there was progress since the last list |
//! | Watching | Opening | the server closed the watch; it resumes at the last version |
//!
//! Invariants:
//! - A watch resumes at the newest version passed on, so nothing between two watches is lost.
//! - Waits grow from 0.8 s to 30 s, each randomly extended up to double, and are reset by progress: an item of a watch,
//!   or a watch that stayed open for a second.
//! - An item older than what was already passed on is a duplicate and is dropped.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};
use tokio::time::Sleep;

use crate::backoff::Backoff;
use crate::delta::{Delta, Deltas};
use crate::source::listing::{ListEvent, Listing};
use crate::source::{ObjectList, Selection, Source, WatchItem};
use crate::{ClientError, Instant, Key, Kind, Object, Runtime};

/// Each wait is randomly extended, up to double.
const WAITS: Backoff = Backoff::doubling(Duration::from_millis(800), Duration::from_secs(30));

/// A watch that ends sooner, without an event, counts as failed.
const MIN_GOOD_WATCH: Duration = Duration::from_secs(1);

/// List again after this many watches in a row have failed in a way that the version may have caused.
const FAILURES_BEFORE_RELIST: u32 = 3;

/// How much of an undecodable object is logged.
const REPORTED_BYTES: usize = 256;

type Watch = BoxStream<'static, Result<WatchItem, ClientError>>;

/// Lists, then watches, forever.
pub(crate) struct Reflector {
    source: Arc<dyn Source>,
    kind: Kind,
    selection: Selection,
    runtime: Runtime,
    state: State,
    /// The newest version passed on. Empty before the initial list.
    version: String,
    /// The same as a number, or 0 if it is not one.
    revision: u64,
    /// Failures since the last progress, and the subset that the version may have caused.
    failures: u32,
    suspicions: u32,
    /// The number of objects that could not be decoded.
    undecodable: u64,
    /// The timeout of a list.
    list_within: Duration,
}

enum State {
    Empty,
    /// The keys passed on from the list so far: 16 bytes per object, at most a hundredth of it.
    Listing {
        listing: Listing,
        seen: Vec<Key>,
    },
    Opening(BoxFuture<'static, Result<Watch, ClientError>>),
    Watching {
        watch: Watch,
        opened: Instant,
        silent: bool,
    },
    Waiting {
        until: Pin<Box<Sleep>>,
        then: AfterWait,
    },
}

#[derive(Clone, Copy)]
enum AfterWait {
    List,
    Watch,
}

/// The work for the next stage.
#[derive(Debug)]
pub(crate) enum Step {
    /// Some of the listed objects.
    ObjectList(Vec<Object>),
    /// The last objects of a list, at [`Reflector::revision`]. `seen` has the keys of the whole list.
    Replaced { last: Vec<Object>, seen: Vec<Key> },
    /// The changes are in the deltas. The source is at [`Reflector::revision`].
    Changed,
}

impl Step {
    /// Returns the number of objects in this step.
    pub(crate) fn len(&self, deltas: &Deltas) -> usize {
        match self {
            Self::ObjectList(objects) | Self::Replaced { last: objects, .. } => objects.len(),
            Self::Changed => deltas.len(),
        }
    }
}

impl Reflector {
    pub(crate) fn new(
        source: Arc<dyn Source>,
        (kind, selection): (Kind, Selection),
        runtime: Runtime,
        list_within: Duration,
    ) -> Self {
        Self {
            source,
            kind,
            selection,
            runtime,
            state: State::Empty,
            version: String::new(),
            revision: 0,
            failures: 0,
            suspicions: 0,
            undecodable: 0,
            list_within,
        }
    }

    /// Returns the number of objects that could not be decoded.
    pub(crate) fn undecodable(&self) -> u64 {
        self.undecodable
    }

    /// Starts over with a list, whatever the current state.
    pub(crate) fn relist(&mut self) {
        self.state = State::Empty;
    }

    /// Returns whether a list is being read. It must not be held back, or it would time out.
    pub(crate) fn is_listing(&self) -> bool {
        matches!(self.state, State::Listing { .. })
    }

    /// Returns whether everything passed on matches the revision. False while a list is read or retried.
    pub(crate) fn is_at_its_revision(&self) -> bool {
        matches!(self.state, State::Opening(_) | State::Watching { .. })
    }

    /// Returns the newest version passed on, as a number, or 0 if it is not one.
    pub(crate) fn revision(&self) -> u64 {
        self.revision
    }

    /// Waits for a part of a list, or for an item of a watch. In the second case, also takes the other items that have
    /// arrived, as far as the deltas have room. Cancel safe: the next call continues where this one stopped.
    pub(crate) async fn next(&mut self, deltas: &mut Deltas) -> Step {
        loop {
            match &mut self.state {
                State::Empty => self.list(),
                State::Listing { listing, seen } => match listing.next().await {
                    ListEvent::Objects(objects) => {
                        seen.extend(objects.iter().map(|object| object.key().clone()));
                        return Step::ObjectList(objects);
                    }
                    ListEvent::Again => seen.clear(),
                    ListEvent::End(Ok(listed)) => {
                        seen.extend(listed.objects.iter().map(|object| object.key().clone()));
                        let seen = std::mem::take(seen);
                        return Step::Replaced { last: self.listed(listed), seen };
                    }
                    ListEvent::End(Err(error)) => self.list_failed(&error),
                },
                State::Opening(open) => match open.await {
                    Ok(watch) => {
                        let opened = self.runtime.clock.instant();
                        self.state = State::Watching { watch, opened, silent: true };
                    }
                    Err(error) => self.watch_failed(&error),
                },
                State::Watching { watch, .. } => {
                    let item = watch.next().await;
                    if self.take(item, deltas) {
                        self.take_ready(deltas);
                        return Step::Changed;
                    }
                }
                State::Waiting { until, then } => {
                    until.await;
                    match *then {
                        AfterWait::List => self.state = State::Empty,
                        AfterWait::Watch => self.open(),
                    }
                }
            }
        }
    }

    fn list(&mut self) {
        let (source, kind, selection) = (self.source.clone(), self.kind.clone(), self.selection.clone());
        let listing = Listing::start(source, kind, selection, self.list_within);
        self.state = State::Listing { listing, seen: Vec::new() };
    }

    fn listed(&mut self, listed: ObjectList) -> Vec<Object> {
        if listed.undecodable > 0 {
            self.undecodable += listed.undecodable as u64;
            tracing::warn!(kind = %self.kind, objects = listed.undecodable, "skipping objects of a list: cannot decode their metadata");
        }
        self.version.clone_from(&listed.resource_version);
        self.revision = listed.resource_version.parse().unwrap_or(0);
        self.suspicions = 0;
        self.open();
        listed.objects
    }

    fn list_failed(&mut self, error: &ClientError) {
        tracing::warn!(kind = %self.kind, error = error as &dyn std::error::Error, "list failed");
        self.wait(AfterWait::List);
    }

    fn open(&mut self) {
        let (source, kind, selection) = (self.source.clone(), self.kind.clone(), self.selection.clone());
        let version = self.version.clone();
        self.state = State::Opening(async move { source.watch(&kind, &selection, &version).await }.boxed());
    }

    /// Handles an item of a watch. Returns whether there is something to pass on.
    fn take(&mut self, item: Option<Result<WatchItem, ClientError>>, deltas: &mut Deltas) -> bool {
        match item {
            Some(Ok(item)) => {
                self.progressed();
                self.push(item, deltas);
                true
            }
            Some(Err(error)) => {
                self.watch_failed(&error);
                false
            }
            None => {
                self.watch_closed();
                false
            }
        }
    }

    fn take_ready(&mut self, deltas: &mut Deltas) {
        while !deltas.is_full()
            && let State::Watching { watch, .. } = &mut self.state
            && let Some(item) = watch.next().now_or_never()
        {
            self.take(item, deltas);
        }
    }

    fn push(&mut self, item: WatchItem, deltas: &mut Deltas) {
        let delta = match item {
            WatchItem::Added(object) | WatchItem::Modified(object) => Delta::Upserted(object),
            WatchItem::Deleted(object) => Delta::Deleted(object),
            WatchItem::Bookmark { resource_version } => {
                self.advance(&resource_version);
                return;
            }
            WatchItem::Undecodable { error, raw } => return self.report_undecodable(&error, &raw),
        };
        if self.advance(&delta.object().meta().resource_version) {
            deltas.push(delta);
        }
    }

    /// Advances to `version`. Returns false if it is older than what was passed on: then the item is a duplicate.
    fn advance(&mut self, version: &str) -> bool {
        let revision = version.parse().unwrap_or(0);
        if revision != 0 && revision < self.revision {
            tracing::debug!(kind = %self.kind, revision, at = self.revision, "the watch repeats itself");
            return false;
        }
        if revision != self.revision || revision == 0 {
            version.clone_into(&mut self.version);
            self.revision = revision;
        }
        true
    }

    fn report_undecodable(&mut self, error: &str, raw: &[u8]) {
        self.undecodable += 1;
        let raw = String::from_utf8_lossy(&raw[..raw.len().min(REPORTED_BYTES)]);
        tracing::warn!(kind = %self.kind, error, %raw, "skipping a change: cannot decode its object");
    }

    fn progressed(&mut self) {
        (self.failures, self.suspicions) = (0, 0);
        if let State::Watching { silent, .. } = &mut self.state {
            *silent = false;
        }
    }

    fn watch_closed(&mut self) {
        let State::Watching { opened, silent, .. } = self.state else { return };
        if silent && self.runtime.clock.instant() - opened < MIN_GOOD_WATCH {
            tracing::debug!(kind = %self.kind, "the watch closed immediately");
            return self.wait(AfterWait::Watch);
        }
        self.progressed();
        self.open();
    }

    fn watch_failed(&mut self, error: &ClientError) {
        tracing::info!(kind = %self.kind, version = self.version, error = error as &dyn std::error::Error, "watch failed");
        match classify(error) {
            WatchFailure::Version if self.failures == 0 => {
                self.failures = 1;
                self.state = State::Empty;
            }
            WatchFailure::Version => self.wait(AfterWait::List),
            WatchFailure::Unknown => {
                self.suspicions += 1;
                let relist = self.suspicions >= FAILURES_BEFORE_RELIST;
                self.wait(if relist { AfterWait::List } else { AfterWait::Watch });
            }
            WatchFailure::Circumstances => self.wait(AfterWait::Watch),
        }
    }

    fn wait(&mut self, then: AfterWait) {
        let delay = WAITS.delay(self.failures).mul_f64(1.0 + self.runtime.rng.fraction());
        self.failures = self.failures.saturating_add(1);
        self.state = State::Waiting { until: Box::pin(tokio::time::sleep(delay)), then };
    }
}

/// What a failed watch says about the version it requested.
enum WatchFailure {
    /// The version is no longer, or not yet, served.
    Version,
    /// Nothing: the server is down, busy or denies access.
    Circumstances,
    Unknown,
}

fn classify(error: &ClientError) -> WatchFailure {
    match error {
        error if error.is_expired() => WatchFailure::Version,
        error if error.has_cause("ResourceVersionTooLarge") => WatchFailure::Version,
        ClientError::Transport(_) | ClientError::Api { code: 401 | 403 | 429 | 503, .. } => {
            WatchFailure::Circumstances
        }
        ClientError::Api { .. } | ClientError::InvalidResponse(_) | ClientError::Fenced => {
            WatchFailure::Unknown
        }
    }
}
