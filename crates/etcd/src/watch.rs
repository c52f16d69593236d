//! Watches: one stream of requests and one of responses.
//!
//! etcd splits a large response into fragments, possibly within a revision. The events of a revision are handed out
//! together, as soon as it is complete, so what is held back is never more than one transaction.
//!
//! A member that is frozen or cut off keeps the stream open. It is noticed when a request for progress is not answered,
//! and the watch ends ([`Overdue`]).

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use setpoint_clock::{Clock, Instant};
use setpoint_store::Revision;
use setpoint_store::etcd::{EtcdError, WatchEvent, WatchRequest, WatchResponse};
use tokio::sync::{mpsc, watch};

use crate::convert;
use crate::endpoint::Suspicion;
use crate::grpc::{self, Messages, RequestBody};
use crate::messages::{self, EVENT_DELETE, WatchCreateRequest, WatchProgressRequest, WatchRequestKind};

/// How long etcd may take to report anything after a request for progress. It answers at once, unless it is catching
/// up with earlier changes, which it reports.
const PROGRESS_WITHIN: Duration = Duration::from_secs(5);

/// Whether a request for progress waits for its answer, and since when.
#[derive(Clone)]
pub(crate) struct Overdue {
    clock: Clock,
    suspicion: Suspicion,
    since: Arc<watch::Sender<Option<Instant>>>,
}

impl Overdue {
    pub(crate) fn new(clock: Clock, suspicion: Suspicion) -> Self {
        Self { clock, suspicion, since: Arc::new(watch::channel(None).0) }
    }

    fn asked(&self) {
        let now = self.clock.instant();
        self.since.send_if_modified(|since| since.is_none() && since.replace(now).is_none());
    }

    fn answered(&self) {
        self.since.send_if_modified(|since| since.take().is_some());
    }

    /// Waits until an answer is overdue.
    async fn wait(&self) {
        let mut since = self.since.subscribe();
        let asked = since.wait_for(Option::is_some).await.ok().and_then(|since| *since);
        match asked {
            Some(asked) => self.clock.sleep_until(asked + PROGRESS_WITHIN).await,
            None => std::future::pending().await,
        }
    }
}

/// Returns the body of the watch: the request to create it, and requests for progress. It ends with the receiver.
pub(crate) fn body(
    request: &WatchRequest,
    progress_notify: bool,
    progress: mpsc::Receiver<()>,
    overdue: Overdue,
) -> RequestBody {
    let create = WatchRequestKind::Create(WatchCreateRequest {
        key: request.key.clone(),
        range_end: request.end.clone(),
        start_revision: convert::signed(request.from),
        progress_notify,
        fragment: true,
    });
    let requests = stream::unfold((progress, overdue), |(mut progress, overdue)| async {
        progress.recv().await?;
        overdue.asked();
        Some((WatchRequestKind::Progress(WatchProgressRequest {}), (progress, overdue)))
    });
    let frames = stream::once(std::future::ready(create)).chain(requests).map(|request| {
        let message = messages::WatchRequest { request: Some(request) };
        Ok::<_, Infallible>(Frame::data(grpc::frame(&message)))
    });
    StreamBody::new(frames).boxed_unsync()
}

/// The responses of a watch that etcd has confirmed.
pub(crate) struct Responses {
    messages: Messages,
    /// The events of a revision that may be incomplete.
    held: Vec<WatchEvent>,
    overdue: Overdue,
}

impl Responses {
    /// Waits until etcd confirms the watch.
    pub(crate) async fn begin(mut messages: Messages, overdue: Overdue) -> Result<Self, EtcdError> {
        let first: Option<messages::WatchResponse> = messages.next().await?;
        match first {
            Some(first) if first.created && !first.canceled => {
                Ok(Self { messages, held: Vec::new(), overdue })
            }
            Some(first) => {
                Err(EtcdError::Refused(format!("etcd refused the watch: {}", first.cancel_reason)))
            }
            None => Err(EtcdError::Unavailable("etcd ended the watch before it began".into())),
        }
    }

    pub(crate) fn stream(self) -> BoxStream<'static, Result<WatchResponse, EtcdError>> {
        let next = |responses: Option<Self>| async {
            let mut responses = responses?;
            match responses.next().await {
                Ok(Some(response)) => Some((Ok(response), Some(responses))),
                Ok(None) => None,
                Err(error) => Some((Err(error), None)),
            }
        };
        stream::unfold(Some(self), next).boxed()
    }

    async fn next(&mut self) -> Result<Option<WatchResponse>, EtcdError> {
        loop {
            let message = tokio::select! {
                biased;
                message = self.messages.next::<messages::WatchResponse>() => message?,
                () = self.overdue.wait() => {
                    self.overdue.suspicion.raise();
                    let seconds = PROGRESS_WITHIN.as_secs();
                    let why = format!("etcd has not answered a request for progress within {seconds} seconds");
                    return Err(EtcdError::Unavailable(why));
                }
            };
            let Some(message) = message else { return Ok(None) };
            self.overdue.answered();
            if let Some(response) = self.read(message)? {
                return Ok(Some(response));
            }
        }
    }

    fn read(&mut self, message: messages::WatchResponse) -> Result<Option<WatchResponse>, EtcdError> {
        if message.compact_revision > 0 {
            return Ok(Some(WatchResponse::Compacted(convert::unsigned(message.compact_revision))));
        }
        if message.canceled {
            return Err(EtcdError::Unavailable(format!("etcd ended the watch: {}", message.cancel_reason)));
        }
        if message.events.is_empty() && !message.fragment && self.held.is_empty() {
            let revision = message.header.map_or(0, |header| convert::unsigned(header.revision));
            return Ok(Some(WatchResponse::Progress(revision)).filter(|_| !message.created));
        }
        self.held.extend(message.events.into_iter().filter_map(event));
        let complete = match message.fragment {
            true => self.up_to_last_revision(),
            false => self.held.len(),
        };
        let events: Vec<_> = self.held.drain(..complete).collect();
        Ok(Some(WatchResponse::Events(events)).filter(|_| complete > 0))
    }

    /// Returns how many events are before the last revision.
    fn up_to_last_revision(&self) -> usize {
        let last: Option<Revision> = self.held.last().map(WatchEvent::revision);
        self.held.iter().take_while(|event| Some(event.revision()) < last).count()
    }
}

fn event(event: messages::Event) -> Option<WatchEvent> {
    let kv = event.kv?;
    Some(match event.kind {
        EVENT_DELETE => {
            WatchEvent::Delete { key: compact(&kv.key), revision: convert::unsigned(kv.mod_revision) }
        }
        _ => WatchEvent::Put(convert::key_value(kv)),
    })
}

/// Copies a key, which would keep the whole message alive.
fn compact(key: &Bytes) -> Bytes {
    Bytes::copy_from_slice(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_answer_is_overdue_only_after_a_request() {
        let clock = Clock::simulated("2025-01-01T00:00:00Z".parse().unwrap());
        let overdue = Overdue::new(clock.clone(), Suspicion::new(clock.clone()));
        let is_overdue = async |after: Duration| {
            tokio::select! {
                biased;
                () = overdue.wait() => true,
                () = clock.sleep(after) => false,
            }
        };
        let long = PROGRESS_WITHIN * 10;
        assert!(!is_overdue(long).await, "nothing was asked");
        overdue.asked();
        assert!(!is_overdue(PROGRESS_WITHIN / 2).await);
        // Asking again does not extend it.
        overdue.asked();
        assert!(is_overdue(PROGRESS_WITHIN).await);
        overdue.answered();
        assert!(!is_overdue(long).await);
    }
}
