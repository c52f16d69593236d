//! A list that is passed on in parts while it is read.
//!
//! A consumer that takes one part at a time and keeps only what is new never holds two copies of everything, however
//! much has changed.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::sync::mpsc;

use super::{ObjectList, Selection, Source};
use crate::{ClientError, Kind, Object};

/// The approximate number of objects in a part: a page of a list. With typical pods of 2 KB, that is 1 MB.
pub(crate) const PART: usize = 500;

/// The receiver of a list that a source reads in parts.
///
/// ```no_run
/// # async fn example(parts: setpoint::source::ListSink, pages: Vec<Vec<setpoint::Object>>) {
/// for page in pages {
///     parts.send(page).await;
/// }
/// # }
/// ```
#[derive(Debug)]
pub struct ListSink(mpsc::Sender<Part>);

#[derive(Debug)]
enum Part {
    Objects(Vec<Object>),
    Again,
}

impl ListSink {
    /// Passes objects on. Waits until the previous part has been taken.
    pub async fn send(&self, objects: Vec<Object>) {
        // If the receiver is gone, the list is not needed any more and can be dropped.
        let _ = self.0.send(Part::Objects(objects)).await;
    }

    /// Starts the list over: discards everything passed on so far.
    pub async fn restart(&self) {
        let _ = self.0.send(Part::Again).await;
    }
}

/// A list in progress. Holds at most two parts: one waiting and one being read.
pub(crate) struct Listing {
    list: BoxFuture<'static, Result<ObjectList, ClientError>>,
    parts: mpsc::Receiver<Part>,
    ended: Option<Result<ObjectList, ClientError>>,
}

/// An item from a list in progress.
pub(crate) enum ListEvent {
    /// Some of the objects.
    Objects(Vec<Object>),
    /// Discard everything received so far.
    Again,
    /// The last objects, and the version of the list.
    End(Result<ObjectList, ClientError>),
}

impl Listing {
    /// Starts a list that times out after `within`.
    pub(crate) fn start(source: Arc<dyn Source>, kind: Kind, selection: Selection, within: Duration) -> Self {
        let (sender, parts) = mpsc::channel(1);
        let list = async move {
            let list = source.list_in_parts(&kind, &selection, ListSink(sender));
            match tokio::time::timeout(within, list).await {
                Ok(listed) => listed,
                Err(_) => Err(ClientError::Transport(format!("no complete list within {within:?}").into())),
            }
        };
        Self { list: list.boxed(), parts, ended: None }
    }

    /// Waits for the next part. Cancel safe.
    pub(crate) async fn next(&mut self) -> ListEvent {
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
                (None, Some(ended)) => return ListEvent::End(ended),
                (None, None) => {}
            }
        }
    }
}

impl From<Part> for ListEvent {
    fn from(part: Part) -> Self {
        match part {
            Part::Objects(objects) => Self::Objects(objects),
            Part::Again => Self::Again,
        }
    }
}
