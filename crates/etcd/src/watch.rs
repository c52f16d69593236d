//! Watches: one stream of requests and one of responses.
//!
//! etcd splits a large response into fragments, possibly within a revision. The events of a revision are handed out
//! together, as soon as it is complete, so what is held back is never more than one transaction.

use std::convert::Infallible;

use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use setpoint_store::Revision;
use setpoint_store::etcd::{EtcdError, WatchEvent, WatchRequest, WatchResponse};
use tokio::sync::mpsc;

use crate::convert;
use crate::grpc::{self, Messages, RequestBody};
use crate::messages::{self, EVENT_DELETE, WatchCreateRequest, WatchProgressRequest, WatchRequestKind};

/// Returns the body of the watch: the request to create it, and requests for progress. It ends with the receiver.
pub(crate) fn body(
    request: &WatchRequest,
    progress_notify: bool,
    progress: mpsc::Receiver<()>,
) -> RequestBody {
    let create = WatchRequestKind::Create(WatchCreateRequest {
        key: request.key.clone(),
        range_end: request.end.clone(),
        start_revision: convert::signed(request.from),
        progress_notify,
        fragment: true,
    });
    let requests = stream::unfold(progress, |mut progress| async {
        progress.recv().await?;
        Some((WatchRequestKind::Progress(WatchProgressRequest {}), progress))
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
}

impl Responses {
    /// Waits until etcd confirms the watch.
    pub(crate) async fn begin(mut messages: Messages) -> Result<Self, EtcdError> {
        let first: Option<messages::WatchResponse> = messages.next().await?;
        match first {
            Some(first) if first.created && !first.canceled => Ok(Self { messages, held: Vec::new() }),
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
            let Some(message) = self.messages.next::<messages::WatchResponse>().await? else {
                return Ok(None);
            };
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
