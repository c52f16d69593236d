//! One stream of a connection: its buffers, its windows, and the state of each direction.

use std::collections::VecDeque;
use std::io;
use std::task::{Context, Waker};

use crate::frame::ResetStatus;
use crate::headers::Headers;
use crate::settings::REPORTED;

/// What the peer may still send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Inbound {
    Open,
    Finished,
    Reset(ResetStatus),
}

/// What this side may still send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outbound {
    Open,
    /// Nothing is added, but the buffer and the end of the stream are still to be sent.
    Finishing,
    Finished,
}

/// A stream, as the connection knows it.
#[derive(Debug)]
pub(crate) struct Slot {
    /// The headers of the peer: of its SYN_STREAM or its SYN_REPLY.
    pub(crate) headers: Headers,
    /// Whether this side opened it.
    pub(crate) is_ours: bool,
    /// Whether the other side has accepted it.
    pub(crate) is_accepted: bool,
    /// Whether there is still a handle to the stream.
    pub(crate) is_held: bool,
    /// Whether it waits for its turn to send.
    pub(crate) is_queued: bool,
    pub(crate) inbox: VecDeque<u8>,
    pub(crate) inbound: Inbound,
    /// Bytes that were read and not yet reported to the peer.
    pub(crate) unreported: u32,
    pub(crate) outbox: VecDeque<u8>,
    pub(crate) outbound: Outbound,
    /// How many bytes the peer is ready for. Negative if the peer was sent more before it reported any.
    pub(crate) window: i64,
    pub(crate) opener: Option<Waker>,
    pub(crate) reader: Option<Waker>,
    pub(crate) writer: Option<Waker>,
}

impl Slot {
    pub(crate) fn new(headers: Headers, is_ours: bool, window: i64) -> Self {
        Self {
            headers,
            is_ours,
            is_accepted: false,
            is_held: true,
            is_queued: false,
            inbox: VecDeque::new(),
            inbound: Inbound::Open,
            unreported: 0,
            outbox: VecDeque::new(),
            outbound: Outbound::Open,
            window,
            opener: None,
            reader: None,
            writer: None,
        }
    }

    /// Ends both directions without a trace of what was buffered.
    pub(crate) fn reset(&mut self, status: ResetStatus) {
        if self.inbound == Inbound::Open {
            self.inbox = VecDeque::new();
        }
        self.reset_by_peer(status);
    }

    /// The peer ends both directions. What it sent before can still be read: kubelets reset the stream with the outcome
    /// of a command right after they have written it.
    pub(crate) fn reset_by_peer(&mut self, status: ResetStatus) {
        if self.inbound == Inbound::Open {
            self.inbound = Inbound::Reset(status);
        }
        self.outbound = Outbound::Finished;
        self.outbox = VecDeque::new();
        self.wake();
    }

    pub(crate) fn wake(&mut self) {
        let wakers = [self.opener.take(), self.reader.take(), self.writer.take()];
        wakers.into_iter().flatten().for_each(Waker::wake);
    }

    pub(crate) fn wake_reader(&mut self) {
        self.reader.take().into_iter().for_each(Waker::wake);
    }

    pub(crate) fn wake_writer(&mut self) {
        self.writer.take().into_iter().for_each(Waker::wake);
    }

    /// Whether received data is kept. What a peer sends before it has accepted a stream is dropped, as in Kubernetes.
    pub(crate) fn takes_data(&self) -> bool {
        self.is_held && (self.is_accepted || !self.is_ours) && self.inbound == Inbound::Open
    }

    /// Whether nothing is left to do for this stream.
    pub(crate) fn is_over(&self) -> bool {
        !self.is_held && self.outbound == Outbound::Finished && self.inbound != Inbound::Open
    }

    /// Whether the peer should hear how much was read.
    pub(crate) fn has_report(&self) -> bool {
        self.unreported >= REPORTED && self.inbound == Inbound::Open
    }

    /// Whether it has data, or its end, to send.
    pub(crate) fn has_output(&self) -> bool {
        !self.outbox.is_empty() || self.outbound == Outbound::Finishing
    }
}

/// Registers a task in a place for one waker.
pub(crate) fn register(place: &mut Option<Waker>, context: &Context<'_>) {
    match place {
        Some(waker) => waker.clone_from(context.waker()),
        None => *place = Some(context.waker().clone()),
    }
}

pub(crate) fn was_reset() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionReset, "the SPDY stream was reset")
}
