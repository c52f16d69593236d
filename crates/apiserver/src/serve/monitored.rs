//! A response on its way to a client: counted as a request until it is sent, watched for clients that do not read,
//! and ended when the server stops.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::Stream;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use setpoint_clock::Rng;
use tokio_util::sync::WaitForCancellationFutureOwned;

use super::bodies::Handed;
use super::connections::{Busy, Slot};
use super::drain::Draining;
use crate::body::Body;

/// The pieces of a watch, and what ends it.
struct Monitored {
    pieces: BoxStream<'static, Bytes>,
    handed: Handed,
    slot: Arc<Slot>,
    draining: Arc<Draining>,
    rng: Rng,
    /// What ends a watch; a list ends by itself.
    end: Option<End>,
    _busy: Busy,
}

enum End {
    /// The server has not begun to stop.
    Later(Pin<Box<WaitForCancellationFutureOwned>>),
    /// It ends after a while.
    Soon(BoxFuture<'static, ()>),
}

/// Follows a response. One in a piece is as good as sent; a stream is followed to its end.
pub(super) fn monitored(
    body: Body,
    slot: &Arc<Slot>,
    draining: &Arc<Draining>,
    rng: &Rng,
    busy: Busy,
) -> Body {
    let length = body.length();
    if body.as_full().is_some() {
        return body;
    }
    let started = Box::pin(draining.watches_end.clone().cancelled_owned());
    let monitored = Monitored {
        pieces: body.into_stream(),
        handed: slot.bodies.follow(),
        slot: slot.clone(),
        draining: draining.clone(),
        rng: rng.clone(),
        end: length.is_none().then_some(End::Later(started)),
        _busy: busy,
    };
    Body::stream(monitored, length)
}

impl Monitored {
    /// Whether it is time to end. Watches end one after the other, spread over the grace period.
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
    type Item = Bytes;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let this = &mut *self;
        if this.handed.poll_unblocked(context).is_pending() {
            std::task::ready!(this.poll_end(context));
            return Poll::Ready(None);
        }
        this.handed.asked_again();
        match this.pieces.as_mut().poll_next(context) {
            Poll::Ready(piece) => {
                this.handed.handed_out(this.slot.now());
                Poll::Ready(piece)
            }
            Poll::Pending => {
                std::task::ready!(this.poll_end(context));
                Poll::Ready(None)
            }
        }
    }
}

/// The least watches that end in a second.
const WATCHES_PER_SECOND: f64 = 200.0;

/// Over how long so many watches end within a grace period.
pub(super) fn spread(watches: usize, grace: Duration) -> Duration {
    Duration::from_secs_f64(watches as f64 / WATCHES_PER_SECOND).min(grace)
}
