//! Checks that a cache matches the API server.
//!
//! A list and a cache can only be compared at the same resource version. So a list is fetched separately, kept until
//! the cache reaches its version, and compared at that moment. If the cache moves past that version without stopping
//! there, the result is inconclusive, and the next list tries again.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Sleep;

use crate::indexer::Indexer;
use crate::source::listing::{ListEvent, Listing};
use crate::source::{Selection, Source};
use crate::{Key, Kind, Object};

/// Periodically checks a cache against a list.
pub(super) struct Check {
    source: Arc<dyn Source>,
    what: (Kind, Selection),
    known: Arc<Indexer>,
    every: Option<Duration>,
    /// The timeout of a list.
    within: Duration,
    state: State,
}

enum State {
    Idle,
    Waiting(Pin<Box<Sleep>>),
    Listing {
        listing: Listing,
        versions: Vec<Version>,
    },
    /// Waits until the cache is at this version.
    ObjectList {
        versions: Vec<Version>,
        at: u64,
    },
}

/// The version of an object. This is all that is kept of a list for the comparison.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Version {
    key: Key,
    uid: Box<str>,
    version: Box<str>,
}

impl Version {
    fn of(object: &Object) -> Self {
        let (uid, version) = (object.meta().uid.clone(), object.meta().resource_version.clone());
        Self { key: object.key().clone(), uid, version }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} @{}", self.key, self.version)
    }
}

pub(super) enum Verdict {
    /// Or inconclusive.
    Consistent,
    Inconsistent(String),
}

impl Check {
    pub(super) fn new(
        source: Arc<dyn Source>,
        what: (Kind, Selection),
        known: Arc<Indexer>,
        every: Option<Duration>,
        within: Duration,
    ) -> Self {
        Self { source, what, known, every, within, state: State::Idle }
    }

    /// Waits for a list to compare with. Waits forever if checks are disabled or the last list is still pending. Cancel
    /// safe.
    pub(super) async fn listed(&mut self) {
        loop {
            match (&mut self.state, self.every) {
                (State::Idle, Some(every)) => {
                    self.state = State::Waiting(Box::pin(tokio::time::sleep(every)))
                }
                (State::Waiting(time), _) => {
                    time.await;
                    self.list();
                }
                (State::Listing { listing, versions }, _) => match listing.next().await {
                    ListEvent::Objects(objects) => versions.extend(objects.iter().map(Version::of)),
                    ListEvent::Again => versions.clear(),
                    ListEvent::End(Ok(listed)) => {
                        versions.extend(listed.objects.iter().map(Version::of));
                        let at = listed.resource_version.parse().unwrap_or(0);
                        self.state = State::ObjectList { versions: std::mem::take(versions), at };
                        return;
                    }
                    ListEvent::End(Err(_)) => self.state = State::Idle,
                },
                (State::Idle, None) | (State::ObjectList { .. }, _) => std::future::pending().await,
            }
        }
    }

    fn list(&mut self) {
        let (kind, selection) = self.what.clone();
        let listing = Listing::start(self.source.clone(), kind, selection, self.within);
        self.state = State::Listing { listing, versions: Vec::new() };
    }

    /// Returns the verdict on a cache at this version.
    pub(super) fn verdict(&mut self, revision: u64) -> Verdict {
        let State::ObjectList { versions, at } = &mut self.state else { return Verdict::Consistent };
        if revision < *at {
            return Verdict::Consistent;
        }
        let difference = if revision == *at {
            versions.sort();
            let cached: Vec<Version> = self.known.list(None).iter().map(Version::of).collect();
            difference(versions, &cached)
        } else {
            None
        };
        self.state = State::Idle;
        difference.map_or(Verdict::Consistent, Verdict::Inconsistent)
    }
}

/// Returns the first difference between two sets of objects in key order.
fn difference(listed: &[Version], cached: &[Version]) -> Option<String> {
    let mut cached = cached.iter().peekable();
    for object in listed {
        if let Some(extra) = cached.next_if(|cached| cached.key < object.key) {
            return Some(format!("{extra} is in the cache alone"));
        }
        match cached.next_if(|cached| cached.key == object.key) {
            None => return Some(format!("{object} is not in the cache")),
            Some(same) if same == object => {}
            Some(other) => return Some(format!("{object} is {other} in the cache")),
        }
    }
    cached.next().map(|extra| format!("{extra} is in the cache alone"))
}
