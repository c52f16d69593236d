//! The state of a connection, shared by its driver and its streams: what frames change, and what is to be sent.
//!
//! Everything here is synchronous. Frames to send are bounded: those that this side causes by the number of streams, and
//! those that the peer causes by [`State::is_congested`], which stops the driver from reading.

use std::collections::{BTreeMap, VecDeque};
use std::task::Waker;

use bytes::BytesMut;

use crate::frame::{
    Frame, INITIAL_WINDOW_SIZE, MAX_CONCURRENT_STREAMS, MAX_STREAM, ResetStatus, StreamId, encode_data_head,
};
use crate::headers::Headers;
use crate::settings::{
    FlowControl, HEADER_BYTES, INITIAL_WINDOW, OWN_BUFFER, REPORTED, Role, SHARED_BUFFER, Settings,
};
use crate::slot::{Inbound, Outbound, Slot};
use crate::zlib::Deflate;

/// Frames that wait to be sent before the connection is no longer read.
const CONGESTED: usize = 64;
/// Maximum size of a data frame, so that streams take turns.
const DATA_BYTES: usize = 16 << 10;

pub(crate) struct State {
    pub(crate) settings: Settings,
    pub(crate) streams: BTreeMap<StreamId, Slot>,
    next_stream: StreamId,
    /// The stream that the peer opened last.
    last_stream: StreamId,
    /// Streams that the peer opened and no one has taken yet.
    arrived: VecDeque<StreamId>,
    control: VecDeque<Frame>,
    /// Streams that have something to send, in turn.
    senders: VecDeque<StreamId>,
    windows: Windows,
    /// How many streams the peer lets this side have.
    peer_streams: usize,
    ping: Option<u32>,
    next_ping: u32,
    /// No streams are opened any more, and the connection ends with its last stream.
    is_closing: bool,
    has_said_goodbye: bool,
    /// Nothing can be sent any more.
    pub(crate) is_mute: bool,
    pub(crate) is_ended: bool,
    pub(crate) driver: Option<Waker>,
    pub(crate) acceptor: Option<Waker>,
}

/// What is known of the peer's flow control.
struct Windows {
    /// Whether the peer keeps windows of streams, and of the connection as a whole.
    is_kept: bool,
    is_kept_overall: bool,
    initial: i64,
    overall: i64,
    /// Bytes that were received and not yet reported.
    unreported: u32,
}

/// Counts bytes to be reported, up to what one frame can report.
fn add(unreported: u32, count: usize) -> u32 {
    let count = u32::try_from(count).unwrap_or(u32::MAX);
    unreported.saturating_add(count).min(MAX_STREAM)
}

impl State {
    pub(crate) fn new(role: Role, mut settings: Settings) -> Self {
        settings.buffer = settings.buffer.max(INITIAL_WINDOW as usize);
        let first = if role == Role::Client { 1 } else { 2 };
        let window = i64::from(INITIAL_WINDOW);
        Self {
            settings,
            streams: BTreeMap::new(),
            next_stream: first,
            last_stream: 0,
            arrived: VecDeque::new(),
            control: VecDeque::new(),
            senders: VecDeque::new(),
            windows: Windows {
                is_kept: false,
                is_kept_overall: false,
                initial: window,
                overall: window,
                unreported: 0,
            },
            peer_streams: usize::MAX,
            ping: None,
            next_ping: first,
            is_closing: false,
            has_said_goodbye: false,
            is_mute: false,
            is_ended: false,
            driver: None,
            acceptor: None,
        }
    }

    pub(crate) fn wake_driver(&mut self) {
        self.driver.take().into_iter().for_each(Waker::wake);
    }

    // Streams of this side.

    pub(crate) fn is_accepting(&self) -> bool {
        !self.is_closing && !self.is_ended
    }

    /// Opens a stream, if there may be one more. Streams that were opened and dropped leave frames behind, so these
    /// count too.
    pub(crate) fn open(&mut self, headers: Headers) -> Option<StreamId> {
        let stream = self.next_stream;
        let ours = self.streams.values().filter(|slot| slot.is_ours).count();
        let is_full =
            self.streams.len() >= self.settings.streams || self.control.len() >= self.settings.streams;
        if is_full || ours >= self.peer_streams || stream > MAX_STREAM {
            return None;
        }
        self.next_stream += 2;
        self.streams.insert(stream, Slot::new(Headers::new(), true, self.windows.initial));
        self.send(Frame::SynStream { stream, headers, is_last: false, is_one_way: false });
        Some(stream)
    }

    /// The next stream that the peer opened.
    pub(crate) fn take_arrived(&mut self) -> Option<StreamId> {
        self.arrived.pop_front()
    }

    pub(crate) fn accept(&mut self, stream: StreamId) {
        let Some(slot) = self.streams.get_mut(&stream) else { return };
        slot.is_accepted = true;
        if !self.is_ended {
            self.send(Frame::SynReply { stream, headers: Headers::new(), is_last: false });
        }
    }

    pub(crate) fn reset(&mut self, stream: StreamId, status: ResetStatus) {
        let Some(slot) = self.streams.get_mut(&stream) else { return };
        let is_over = slot.outbound == Outbound::Finished && slot.inbound != Inbound::Open;
        slot.reset(status);
        if !is_over && !self.is_ended {
            self.send(Frame::Reset { stream, status });
        }
        self.forget_if_over(stream);
    }

    /// The handle of a stream is gone. What was finished is still sent; everything else is reset.
    pub(crate) fn release(&mut self, stream: StreamId) {
        let is_ended = self.is_ended;
        let Some(slot) = self.streams.get_mut(&stream) else { return };
        slot.is_held = false;
        slot.inbox = VecDeque::new();
        match slot.outbound {
            _ if is_ended => _ = self.streams.remove(&stream),
            // Followed by a reset if the peer has not finished by then.
            Outbound::Finishing => {}
            _ => self.reset(stream, ResetStatus::CANCEL),
        }
        self.forget_if_over(stream);
        // The connection may wait for its last stream, or for room in this one.
        self.wake_driver();
    }

    fn forget_if_over(&mut self, stream: StreamId) {
        if self.streams.get(&stream).is_some_and(Slot::is_over) {
            self.streams.remove(&stream);
        }
    }

    /// Queues a stream that has something to send.
    pub(crate) fn enqueue(&mut self, stream: StreamId) {
        let Some(slot) = self.streams.get_mut(&stream) else { return };
        if !std::mem::replace(&mut slot.is_queued, true) {
            self.senders.push_back(stream);
        }
        self.wake_driver();
    }

    /// Reports that bytes of a stream were read.
    pub(crate) fn consumed(&mut self, stream: StreamId, count: usize, was_full: bool) {
        let is_reporting = self.is_reporting();
        let Some(slot) = self.streams.get_mut(&stream) else { return };
        slot.unreported = add(slot.unreported, count);
        if is_reporting && slot.has_report() {
            self.enqueue(stream);
        } else if was_full {
            self.wake_driver();
        }
    }

    // Frames of the peer.

    /// Whether so many frames wait to be sent that no more should be read.
    pub(crate) fn is_congested(&self) -> bool {
        self.control.len() >= CONGESTED + self.streams.len()
    }

    /// Takes data of a stream. Returns whether there was room for it; data for no one is dropped.
    pub(crate) fn receive_data(&mut self, stream: StreamId, data: &[u8], is_last: bool) -> bool {
        let is_over_budget = self.is_over_budget(stream, data.len());
        if let Some(slot) = self.streams.get_mut(&stream) {
            if slot.takes_data() && slot.inbox.len() >= self.settings.buffer {
                return false;
            }
            if slot.takes_data() && is_over_budget {
                slot.inbox = VecDeque::new();
                self.reset(stream, ResetStatus::INTERNAL_ERROR);
            } else if slot.takes_data() {
                slot.inbox.extend(data);
                slot.wake_reader();
            }
            if is_last {
                self.peer_finished(stream);
            }
        }
        self.windows.unreported = add(self.windows.unreported, data.len());
        true
    }

    /// Whether what was read is reported to the peer.
    fn is_reporting(&self) -> bool {
        match self.settings.flow_control {
            FlowControl::Offered => true,
            FlowControl::Answered => self.windows.is_kept,
            FlowControl::None => false,
        }
    }

    /// Whether windows of the peer are honoured.
    fn is_honouring(&self) -> bool {
        self.settings.flow_control != FlowControl::None
    }

    /// Whether a stream that is not read would hold more than its share, of what all of them may hold.
    fn is_over_budget(&self, stream: StreamId, length: usize) -> bool {
        let held = self.streams.get(&stream).map_or(0, |slot| slot.inbox.len());
        if held + length <= OWN_BUFFER || held == 0 {
            return false;
        }
        let all: usize = self.streams.values().map(|slot| slot.inbox.len().saturating_sub(OWN_BUFFER)).sum();
        all + length > SHARED_BUFFER
    }

    fn peer_finished(&mut self, stream: StreamId) {
        let Some(slot) = self.streams.get_mut(&stream) else { return };
        if slot.inbound == Inbound::Open {
            slot.inbound = Inbound::Finished;
            slot.wake_reader();
        }
        self.forget_if_over(stream);
    }

    pub(crate) fn receive(&mut self, frame: Frame) {
        match frame {
            Frame::SynStream { stream, headers, is_last, is_one_way } => {
                self.arrive(stream, headers, is_last, is_one_way);
            }
            Frame::SynReply { stream, headers, is_last } => self.accepted(stream, headers, is_last),
            Frame::Headers { stream, is_last: true, .. } => self.peer_finished(stream),
            Frame::Headers { .. } => {}
            Frame::Reset { stream, status } => {
                self.streams.get_mut(&stream).into_iter().for_each(|slot| slot.reset_by_peer(status));
                self.forget_if_over(stream);
            }
            Frame::Settings(settings) => self.set_all(&settings),
            Frame::Ping(id) if id % 2 == self.next_ping % 2 => _ = self.ping.take_if(|sent| *sent == id),
            Frame::Ping(id) => self.send(Frame::Ping(id)),
            Frame::GoAway { last_stream, .. } => self.peer_is_closing(last_stream),
            Frame::WindowUpdate { stream, delta } => self.widen(stream, delta),
        }
    }

    fn arrive(&mut self, stream: StreamId, headers: Headers, is_last: bool, is_one_way: bool) {
        let is_ours = stream % 2 == self.next_stream % 2;
        if is_ours || stream <= self.last_stream {
            return self.send(Frame::Reset { stream, status: ResetStatus::PROTOCOL_ERROR });
        }
        self.last_stream = stream;
        let is_full = self.streams.len() >= self.settings.streams || headers.bytes() > HEADER_BYTES;
        if !self.is_accepting() || is_full {
            return self.send(Frame::Reset { stream, status: ResetStatus::REFUSED_STREAM });
        }
        let mut slot = Slot::new(headers, false, self.windows.initial);
        slot.inbound = if is_last { Inbound::Finished } else { Inbound::Open };
        slot.outbound = if is_one_way { Outbound::Finished } else { Outbound::Open };
        self.streams.insert(stream, slot);
        self.arrived.push_back(stream);
        self.acceptor.take().into_iter().for_each(Waker::wake);
    }

    fn accepted(&mut self, stream: StreamId, headers: Headers, is_last: bool) {
        let Some(slot) = self.streams.get_mut(&stream) else { return };
        if !slot.is_ours || std::mem::replace(&mut slot.is_accepted, true) {
            return;
        }
        slot.headers = headers;
        slot.wake();
        if is_last {
            self.peer_finished(stream);
        }
    }

    /// Only the last value of each setting counts: each one changes all streams.
    fn set_all(&mut self, settings: &[(u32, u32)]) {
        for known in [MAX_CONCURRENT_STREAMS, INITIAL_WINDOW_SIZE] {
            let last = settings.iter().rev().find(|(id, _)| *id == known);
            last.into_iter().for_each(|(id, value)| self.set(*id, *value));
        }
    }

    fn set(&mut self, id: u32, value: u32) {
        match id {
            MAX_CONCURRENT_STREAMS => self.peer_streams = value as usize,
            INITIAL_WINDOW_SIZE if self.is_honouring() => {
                let initial = i64::from(value.min(MAX_STREAM));
                let change = initial - std::mem::replace(&mut self.windows.initial, initial);
                self.keep_windows();
                self.streams.values_mut().for_each(|slot| slot.window = slot.window.saturating_add(change));
                self.enqueue_all(Slot::has_output);
            }
            _ => {}
        }
    }

    /// The peer keeps windows from now on. If nothing was reported to it before, what was read until now is due: the peer
    /// counts it, and may wait for the report before it sends more.
    fn keep_windows(&mut self) {
        if !std::mem::replace(&mut self.windows.is_kept, true) && self.is_reporting() {
            self.enqueue_all(Slot::has_report);
        }
    }

    fn widen(&mut self, stream: StreamId, delta: u32) {
        if !self.is_honouring() {
            return;
        }
        self.keep_windows();
        if stream == 0 {
            self.windows.is_kept_overall = true;
            self.windows.overall = self.windows.overall.saturating_add(i64::from(delta));
            return self.enqueue_all(Slot::has_output);
        }
        let Some(slot) = self.streams.get_mut(&stream) else { return };
        slot.window = slot.window.saturating_add(i64::from(delta));
        if slot.has_output() {
            self.enqueue(stream);
        }
    }

    /// Queues every stream that has something to send: some may have waited for the peer.
    fn enqueue_all(&mut self, has_something: impl Fn(&Slot) -> bool) {
        let waiting = self.streams.iter().filter(|(_, slot)| has_something(slot)).map(|(stream, _)| *stream);
        waiting.collect::<Vec<_>>().into_iter().for_each(|stream| self.enqueue(stream));
    }

    /// The peer opens no more streams, and has not seen those of this side after the last one.
    fn peer_is_closing(&mut self, last_stream: StreamId) {
        self.is_closing = true;
        for (stream, slot) in &mut self.streams {
            if slot.is_ours && *stream > last_stream && !slot.is_accepted {
                slot.reset(ResetStatus::REFUSED_STREAM);
            }
        }
        self.streams.retain(|_, slot| !slot.is_over());
        self.acceptor.take().into_iter().for_each(Waker::wake);
    }

    // Frames to send.

    fn send(&mut self, frame: Frame) {
        self.control.push_back(frame);
        self.wake_driver();
    }

    /// Whether there are frames to send besides data.
    pub(crate) fn has_control(&self) -> bool {
        !self.control.is_empty()
    }

    /// Sends a ping, unless the last one is still unanswered.
    pub(crate) fn send_ping(&mut self) {
        if self.ping.is_none() {
            let id = self.next_ping;
            self.next_ping = if id > MAX_STREAM - 2 { 2 - id % 2 } else { id + 2 };
            self.ping = Some(id);
            self.send(Frame::Ping(id));
        }
    }

    /// Encodes the next frames: those that wait, then one data frame.
    pub(crate) fn encode(&mut self, deflate: &mut Deflate, into: &mut BytesMut) {
        if self.is_reporting() && self.windows.unreported >= REPORTED {
            let delta = std::mem::take(&mut self.windows.unreported);
            Frame::WindowUpdate { stream: 0, delta }.encode(deflate, into);
        }
        while into.len() < DATA_BYTES
            && let Some(frame) = self.control.pop_front()
        {
            frame.encode(deflate, into);
        }
        while into.is_empty()
            && let Some(stream) = self.senders.pop_front()
        {
            self.encode_stream(stream, deflate, into);
        }
    }

    fn encode_stream(&mut self, stream: StreamId, deflate: &mut Deflate, into: &mut BytesMut) {
        let (room, is_reporting) = (self.room(stream), self.is_reporting());
        let Some(slot) = self.streams.get_mut(&stream) else { return };
        slot.is_queued = false;
        if is_reporting && slot.unreported >= REPORTED {
            let delta = std::mem::take(&mut slot.unreported);
            Frame::WindowUpdate { stream, delta }.encode(deflate, into);
        }
        let length = slot.outbox.len().min(room);
        let is_last = slot.outbound == Outbound::Finishing && length == slot.outbox.len();
        if length == 0 && !is_last {
            return;
        }
        encode_data_head(stream, length, is_last, into);
        into.extend(slot.outbox.drain(..length));
        let sent = i64::try_from(length).unwrap_or(i64::MAX);
        slot.window -= sent;
        self.windows.overall -= sent;
        if is_last {
            slot.outbound = Outbound::Finished;
        }
        slot.wake_writer();
        let (has_more, is_abandoned) = (slot.has_output(), is_last && !slot.is_held);
        match (has_more, is_abandoned) {
            (true, _) => self.enqueue(stream),
            (_, true) => self.reset(stream, ResetStatus::CANCEL),
            _ => {}
        }
    }

    /// How many bytes of a stream may be sent in one frame.
    fn room(&self, stream: StreamId) -> usize {
        let allowed = |is_kept: bool, window: i64| match is_kept {
            true => usize::try_from(window).unwrap_or(0),
            false => usize::MAX,
        };
        let window = self.streams.get(&stream).map_or(0, |slot| slot.window);
        let overall = allowed(self.windows.is_kept_overall, self.windows.overall);
        allowed(self.windows.is_kept, window).min(overall).min(DATA_BYTES)
    }

    // The end.

    /// The transport takes no more: frames that wait to be sent are dropped, and writers fail.
    pub(crate) fn drop_output(&mut self) {
        self.is_mute = true;
        self.control.clear();
        self.senders.clear();
        self.streams.values_mut().for_each(Slot::wake_writer);
    }

    /// Ends the connection after its last stream.
    pub(crate) fn close(&mut self) {
        self.is_closing = true;
        while let Some(stream) = self.arrived.pop_front() {
            self.release(stream);
        }
        self.wake_driver();
    }

    /// Whether the connection has nothing left to do. Says goodbye first.
    ///
    /// Kubernetes' implementation stops reading at a GOAWAY, so it is the last frame.
    pub(crate) fn is_done(&mut self) -> bool {
        if !self.is_closing || !self.streams.is_empty() || !self.control.is_empty() {
            return false;
        }
        if !std::mem::replace(&mut self.has_said_goodbye, true) {
            self.control.push_back(Frame::GoAway { last_stream: self.last_stream, status: 0 });
            return false;
        }
        true
    }

    /// The connection is gone: wakes everything that waits for it.
    pub(crate) fn end(&mut self) {
        (self.is_mute, self.is_ended) = (true, true);
        self.control.clear();
        self.senders.clear();
        self.streams.retain(|_, slot| slot.is_held);
        self.streams.values_mut().for_each(Slot::wake);
        self.acceptor.take().into_iter().for_each(Waker::wake);
    }

    pub(crate) fn goodbye_for_violation(&self) -> Frame {
        Frame::GoAway { last_stream: self.last_stream, status: 1 }
    }
}
