//! A list on its way: handed over part by part while it is read.
//!
//! Whoever takes the parts one by one and keeps only what is new to it never holds two copies of the world,
//! however much of it has changed.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::sync::mpsc;

use super::{Listed, Selection, Source};
use crate::{ClientError, Kind, Object};

/// How many objects a part has, about: a page of a list. At 2 KB, a typical pod, that is 1 MB.
pub(crate) const PART: usize = 500;

/// Where a source puts a list while it reads it.
///
/// ```no_run
/// # async fn example(parts: setpoint::source::Parts, pages: Vec<Vec<setpoint::Object>>) {
/// for page in pages {
///     parts.hand_over(page).await;
/// }
/// # }
/// ```
#[derive(Debug)]
pub struct Parts(mpsc::Sender<Part>);

#[derive(Debug)]
enum Part {
    Objects(Vec<Object>),
    Again,
}

impl Parts {
    /// Hands objects over; waits until those before have been taken.
    pub async fn hand_over(&self, objects: Vec<Object>) {
        // Nobody takes them any more: then nobody waits for the list either, and it is dropped.
        let _ = self.0.send(Part::Objects(objects)).await;
    }

    /// The list begins anew: what has been handed over says nothing about what there is.
    pub async fn again(&self) {
        let _ = self.0.send(Part::Again).await;
    }
}

/// A list that is being read. Two parts are there at a time at most: one that waits and one that is made.
pub(crate) struct Listing {
    list: BoxFuture<'static, Result<Listed, ClientError>>,
    parts: mpsc::Receiver<Part>,
    ended: Option<Result<Listed, ClientError>>,
}

/// What a list has to say.
pub(crate) enum Heard {
    /// Some of what there is.
    Objects(Vec<Object>),
    /// What was heard so far does not count.
    Again,
    /// The last objects, and the version of the list.
    End(Result<Listed, ClientError>),
}

impl Listing {
    /// Starts a list; one that is not complete within this time has failed.
    pub(crate) fn start(source: Arc<dyn Source>, kind: Kind, selection: Selection, within: Duration) -> Self {
        let (sender, parts) = mpsc::channel(1);
        let list = async move {
            let list = source.list_in_parts(&kind, &selection, Parts(sender));
            match tokio::time::timeout(within, list).await {
                Ok(listed) => listed,
                Err(_) => Err(ClientError::Transport(format!("no complete list within {within:?}").into())),
            }
        };
        Self { list: list.boxed(), parts, ended: None }
    }

    /// Waits for the next part. May be dropped at any time: nothing is lost.
    pub(crate) async fn next(&mut self) -> Heard {
        loop {
            let part = match self.ended {
                Some(_) => self.parts.try_recv().ok(),
                None => tokio::select! {
                    biased;
                    Some(part) = self.parts.recv() => Some(part),
                    ended = &mut self.list => {
                        self.ended = Some(ended);
                        continue;
                    }
                },
            };
            match (part, self.ended.take()) {
                (Some(part), ended) => {
                    self.ended = ended;
                    return part.into();
                }
                (None, Some(ended)) => return Heard::End(ended),
                (None, None) => {}
            }
        }
    }
}

impl From<Part> for Heard {
    fn from(part: Part) -> Self {
        match part {
            Part::Objects(objects) => Self::Objects(objects),
            Part::Again => Self::Again,
        }
    }
}
