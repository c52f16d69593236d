//! Whether a cache shows what the API server has.
//!
//! A list and a cache are comparable at the same version only. So a list is fetched aside, kept until the
//! cache has come to its version, and compared at that moment; a cache that has moved past it without
//! stopping there says nothing, and the next list tries again.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::time::Sleep;

use crate::indexer::Indexer;
use crate::source::{Listed, Selection, Source};
use crate::{ClientError, Kind, Object};

/// Looks now and then whether a cache is right.
pub(super) struct Check {
    source: Arc<dyn Source>,
    what: (Kind, Selection),
    known: Arc<Indexer>,
    every: Option<Duration>,
    state: State,
}

enum State {
    Idle,
    Waiting(Pin<Box<Sleep>>),
    Listing(BoxFuture<'static, Result<Listed, ClientError>>),
    /// Until the cache is at its version.
    Listed(Listed),
}

pub(super) enum Verdict {
    /// As far as can be told.
    Consistent,
    Inconsistent(String),
}

impl Check {
    pub(super) fn new(
        source: Arc<dyn Source>,
        what: (Kind, Selection),
        known: Arc<Indexer>,
        every: Option<Duration>,
    ) -> Self {
        Self { source, what, known, every, state: State::Idle }
    }

    /// Waits for a list to compare with; for ever if none is wanted, or the last one still waits. May be
    /// dropped at any time.
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
                (State::Listing(list), _) => match list.await {
                    Ok(listed) => {
                        self.state = State::Listed(listed);
                        return;
                    }
                    Err(_) => self.state = State::Idle,
                },
                (State::Idle, None) | (State::Listed(_), _) => std::future::pending().await,
            }
        }
    }

    fn list(&mut self) {
        let (source, known, (kind, selection)) = (self.source.clone(), self.known.clone(), self.what.clone());
        let list = async move { source.relist(&kind, &selection, &known).await };
        self.state = State::Listing(list.boxed());
    }

    /// What can be said about a cache at this version.
    pub(super) fn verdict(&mut self, revision: u64) -> Verdict {
        let State::Listed(listed) = &self.state else { return Verdict::Consistent };
        let at: u64 = listed.resource_version.parse().unwrap_or(0);
        if revision < at {
            return Verdict::Consistent;
        }
        let difference =
            if revision == at { difference(&listed.objects, &self.known.list(None)) } else { None };
        self.state = State::Idle;
        difference.map_or(Verdict::Consistent, Verdict::Inconsistent)
    }
}

/// The first difference between two sets of objects.
fn difference(listed: &[Object], cached: &[Object]) -> Option<String> {
    let mut listed: Vec<&Object> = listed.iter().collect();
    listed.sort_by(|a, b| a.key().cmp(b.key()));
    let mut cached = cached.iter().peekable();
    for object in listed {
        if let Some(extra) = cached.next_if(|cached| cached.key() < object.key()) {
            return Some(format!("{extra:?} is in the cache alone"));
        }
        match cached.next_if(|cached| cached.key() == object.key()) {
            None => return Some(format!("{object:?} is not in the cache")),
            Some(same) if same.same_version(object) => {}
            Some(other) => return Some(format!("{object:?} is {other:?} in the cache")),
        }
    }
    cached.next().map(|extra| format!("{extra:?} is in the cache alone"))
}
