//! Monitors a response body: counts the request until it is sent, watches for clients that do not read, and ends
//! watches on shutdown.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::{Stream, StreamExt};
use http_body::Frame;
use setpoint_clock::Rng;
use tokio_util::sync::WaitForCancellationFutureOwned;

use super::SEND_BUFFER;
use super::bodies::BodyInFlight;
use super::connections::{ActiveRequest, Slot};
use super::drain::Draining;
use crate::body::{Aborted, Body, Frames};

/// A response body, and what ends it.
struct Monitored {
    frames: Frames,
    handed: BodyInFlight,
    slot: Arc<Slot>,
    draining: Arc<Draining>,
    rng: Rng,
    /// What ends a watch; `None` for a list, which ends on its own.
    end: Option<End>,
    _busy: ActiveRequest,
}

enum End {
    /// Shutdown has not begun.
    Later(Pin<Box<WaitForCancellationFutureOwned>>),
    /// The watch ends after a delay.
    Soon(BoxFuture<'static, ()>),
}

/// Monitors a response until it ends; a short single chunk counts as sent immediately.
///
/// A long one is handed out in chunks. In HTTP/2 the client decides how much of it is sent, and so how long it is held
/// here: without monitoring, a hundred long responses per connection, forever.
pub(super) fn monitored(
    body: Body,
    slot: &Arc<Slot>,
    draining: &Arc<Draining>,
    rng: &Rng,
    busy: ActiveRequest,
) -> Body {
    let (length, is_endless) = (body.length(), body.is_endless());
    if body.as_full().is_some_and(|bytes| bytes.len() <= SEND_BUFFER) {
        return body;
    }
    let handed = slot.bodies.follow();
    // Until the first chunk is requested, it also waits for its client.
    handed.mark_sent(slot.now());
    let started = Box::pin(draining.watches_end.clone().cancelled_owned());
    let monitored = Monitored {
        frames: match body.as_full() {
            Some(_) => body.into_pieces(SEND_BUFFER).map(|piece| Ok(Frame::data(piece))).boxed(),
            None => body.into_frames(),
        },
        handed,
        slot: slot.clone(),
        draining: draining.clone(),
        rng: rng.clone(),
        end: is_endless.then_some(End::Later(started)),
        _busy: busy,
    };
    Body::frames(monitored.boxed(), length, is_endless)
}

impl Monitored {
    /// Waits until the watch has to end. On shutdown, watches end at random times within the grace period.
    fn poll_end(&mut self, context: &mut Context<'_>) -> Poll<()> {
        loop {
            match &mut self.end {
                None => return Poll::Pending,
                Some(End::Later(started)) => {
                    std::task::ready!(started.as_mut().poll(context));
                    let after = self.draining.spread().mul_f64(self.rng.fraction());
                    self.end = Some(End::Soon(Box::pin(tokio::time::sleep(after))));
                }
                Some(End::Soon(timer)) => return timer.as_mut().poll(context),
            }
        }
    }
}

impl Stream for Monitored {
    type Item = Result<Frame<Bytes>, Aborted>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        if this.handed.poll_unblocked(context).is_pending() {
            std::task::ready!(this.poll_end(context));
            return Poll::Ready(None);
        }
        this.handed.mark_polled();
        match this.frames.as_mut().poll_next(context) {
            Poll::Ready(frame) => {
                this.handed.mark_sent(this.slot.now());
                Poll::Ready(frame)
            }
            Poll::Pending => {
                std::task::ready!(this.poll_end(context));
                Poll::Ready(None)
            }
        }
    }
}

/// Minimum rate at which watches end, per second.
const WATCHES_PER_SECOND: f64 = 200.0;

/// Returns the time over which this many watches end, within a grace period.
pub(super) fn spread(watches: usize, grace: Duration) -> Duration {
    Duration::from_secs_f64(watches as f64 / WATCHES_PER_SECOND).min(grace)
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use futures::StreamExt;
    use setpoint_clock::Clock;

    use super::super::bodies::STALLED;
    use super::super::connections::Connections;
    use super::super::settings::ServeSettings;
    use super::*;

    fn followed(body: Body) -> (Arc<Connections>, Arc<Slot>, Body) {
        let connections = Connections::new(Clock::system(), &ServeSettings::default());
        let slot = connections.open(IpAddr::from([192, 0, 2, 1])).expect("there is space");
        slot.established();
        let busy = slot.begin();
        let body = monitored(body, &slot, &Arc::default(), &Rng::seeded(1), busy);
        (connections, slot, body)
    }

    async fn wait(connections: &Connections) {
        tokio::time::advance(STALLED).await;
        connections.sweep();
    }

    /// An HTTP/2 client need not open its window at all: then no chunk is ever requested.
    #[tokio::test(start_paused = true)]
    async fn a_client_that_never_reads_its_response_is_dropped() {
        for body in [Body::full(vec![0; SEND_BUFFER + 1]), Body::stream(futures::stream::pending(), None)] {
            let (connections, slot, body) = followed(body);
            wait(&connections).await;
            assert!(slot.close.is_cancelled(), "{body:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_stops_reading_a_response_is_dropped() {
        let (connections, slot, body) = followed(Body::full(vec![7; 3 * SEND_BUFFER]));
        let mut pieces = body.into_stream();
        assert_eq!(pieces.next().await.map(|piece| piece.len()), Some(SEND_BUFFER));
        connections.sweep();
        assert!(!slot.close.is_cancelled());
        wait(&connections).await;
        assert!(slot.close.is_cancelled());
    }

    #[tokio::test(start_paused = true)]
    async fn a_long_response_that_is_taken_is_whole() {
        let long: Vec<u8> = (0..3 * SEND_BUFFER + 5).map(|at| at as u8).collect();
        let (connections, slot, body) = followed(Body::full(long.clone()));
        assert_eq!(body.length(), Some(long.len() as u64));
        assert_eq!(body.collect().await, long);
        wait(&connections).await;
        assert!(!slot.close.is_cancelled());
    }
}
