//! Fair queuing for server requests: the requests of one level, in shuffle-sharded queues.
//!
//! All queues with requests progress at the same rate in virtual time, which is measured in seat-seconds per queue (R).
//! A queue's next request starts in virtual time when the estimated work of the previous ones is done, and the request
//! that would finish first is dispatched first. When a request finishes, its estimated work is replaced by the actual
//! work.
//!
//! The code is pure: time is an argument, and [`QueueSet::take_dispatched`] returns the requests that may run now.
//! Seats that linger after their request ([`Work::additional_latency`]) are released at the first call after their
//! deadline, as of that deadline. If requests wait for them, [`QueueSet::next_release`] says when to call.

mod dump;
mod queue;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use setpoint_clock::Instant;

pub use self::dump::{QueueDump, RequestDump};
use self::queue::Queue;
use crate::dealer::{Dealer, InvalidHand};
use crate::integrator::Integrator;
use crate::seat_seconds::SeatSeconds;
use crate::stats::{FlowStats, LevelGauges};
use crate::work::Work;

/// The estimated duration of a request.
const ESTIMATED_SERVICE: Duration = Duration::from_millis(3);
/// R is set back by this much before it overflows: after centuries, at any plausible rate.
const EPOCH: SeatSeconds = SeatSeconds::MAX.divided_by(2);

/// What happens to requests beyond the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queuing {
    /// There is no limit.
    Exempt,
    /// They are rejected.
    Reject,
    /// They wait in one of `queues` queues, each of which holds `length_limit` requests.
    Queue { queues: usize, hand_size: usize, length_limit: usize },
}

/// The ID of a request while it waits or runs. Later requests have higher IDs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RequestId(u64);

/// Why a request was rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Its queue is full.
    QueueFull,
    /// There is no seat, and the level has no queues.
    ConcurrencyLimit,
    /// It waited too long, or its client disconnected.
    TimeOut,
}

impl Reason {
    pub const ALL: [Self; 3] = [Self::QueueFull, Self::ConcurrencyLimit, Self::TimeOut];

    pub const fn name(self) -> &'static str {
        match self {
            Self::QueueFull => "queue-full",
            Self::ConcurrencyLimit => "concurrency-limit",
            Self::TimeOut => "time-out",
        }
    }
}

/// The result for a request that has just arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    Executing(RequestId),
    Waiting(RequestId),
    Rejected(Reason),
}

/// Totals over the requests of a level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    pub waiting: u64,
    pub executing: u64,
    pub seats_in_use: u64,
    pub seats_waiting: u64,
    pub dispatched: u64,
    pub rejected: u64,
    pub cancelled: u64,
}

/// Virtual times at the latest dispatch.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Dispatch {
    pub r: SeatSeconds,
    /// When the dispatched request starts.
    pub latest_s: SeatSeconds,
    /// The minimum and maximum start time of the next request, over all queues with requests.
    pub s_bounds: (SeatSeconds, SeatSeconds),
    /// The same, minus the estimated work in progress.
    pub discounted_bounds: (SeatSeconds, SeatSeconds),
}

/// A waiting or executing request.
struct Request<T> {
    label: T,
    flow: Arc<FlowStats>,
    work: Work,
    total_work: SeatSeconds,
    final_work: SeatSeconds,
    /// The index of its queue. `None` if it did not come through one.
    queue: Option<usize>,
    arrived: Instant,
    arrival_r: SeatSeconds,
    started: Option<Instant>,
}

/// Seats that stay in use after their request.
struct Lingering {
    seats: u64,
    queue: Option<usize>,
    flow: Arc<FlowStats>,
}

/// The requests of one level. `T` is a label for the caller's use.
pub struct QueueSet<T> {
    queuing: Queuing,
    dealer: Option<Dealer>,
    limit: u64,
    /// May be more than configured, as long as the surplus queues have requests.
    queues: Vec<Queue>,
    /// All waiting and executing requests.
    requests: BTreeMap<RequestId, Request<T>>,
    lingering: BTreeMap<(Instant, RequestId), Lingering>,
    next_id: u64,
    now: Instant,
    r: SeatSeconds,
    /// The queue that was dispatched from last.
    robin: usize,
    enqueued: usize,
    /// The number of queues with waiting or executing requests.
    active_queues: u64,
    /// The seats that requests in queues use or wait for.
    queue_seats: u64,
    totals: Totals,
    dispatched: Vec<RequestId>,
    last_dispatch: Option<Dispatch>,
    epochs: u64,
    hand: Vec<usize>,
    pub(crate) demand: Integrator,
    pub(crate) gauges: LevelGauges,
}

impl<T> QueueSet<T> {
    pub fn new(now: Instant, queuing: Queuing, limit: u64) -> Result<Self, InvalidHand> {
        let mut set = Self {
            queuing: Queuing::Reject,
            dealer: None,
            limit: 0,
            queues: Vec::new(),
            requests: BTreeMap::new(),
            lingering: BTreeMap::new(),
            next_id: 0,
            now,
            r: SeatSeconds::ZERO,
            robin: 0,
            enqueued: 0,
            active_queues: 0,
            queue_seats: 0,
            totals: Totals::default(),
            dispatched: Vec::new(),
            last_dispatch: None,
            epochs: 0,
            hand: Vec::new(),
            demand: Integrator::new(now),
            gauges: LevelGauges::new(now),
        };
        set.configure(now, queuing, limit, limit.max(1))?;
        Ok(set)
    }

    /// Changes the level's limits. Waiting requests keep their place. `denominator` is the reference for ratios in
    /// metrics.
    pub fn configure(
        &mut self,
        now: Instant,
        queuing: Queuing,
        limit: u64,
        denominator: u64,
    ) -> Result<(), InvalidHand> {
        let dealer = match queuing {
            Queuing::Queue { queues, hand_size, .. } => Some(Dealer::new(queues, hand_size)?),
            Queuing::Exempt | Queuing::Reject => None,
        };
        self.advance(now);
        (self.queuing, self.dealer, self.limit) = (queuing, dealer, limit);
        let mut room = 1;
        if let Queuing::Queue { queues, length_limit, .. } = queuing {
            room = length_limit.max(1).saturating_mul(queues);
            let missing = queues.saturating_sub(self.queues.len());
            self.queues.extend((0..missing).map(|_| Queue::default()));
        }
        self.gauges.waiting.set_denominator(now, room as f64);
        for gauge in [&mut self.gauges.executing, &mut self.gauges.seats, &mut self.gauges.demand] {
            gauge.set_denominator(now, denominator as f64);
        }
        self.dispatch(None);
        Ok(())
    }

    pub fn start(&mut self, now: Instant, work: Work, hash: u64, flow: &Arc<FlowStats>, label: T) -> Start {
        self.advance(now);
        let Queuing::Queue { length_limit, .. } = self.queuing else {
            return self.start_without_queue(work, flow, label);
        };
        let at = self.shard(hash);
        if self.totals.seats_in_use >= self.limit && self.queues[at].waiting() >= length_limit {
            return self.reject(flow, Reason::QueueFull);
        }
        let id = self.enqueue(at, work, flow, label);
        flow.queue_length.observe(self.queues[at].waiting() as u64);
        // If only one request is waiting, its queue is the only candidate.
        self.dispatch((self.totals.waiting == 1).then_some(at));
        match self.dispatched.iter().position(|dispatched| *dispatched == id) {
            Some(place) => {
                self.dispatched.remove(place);
                Start::Executing(id)
            }
            None => Start::Waiting(id),
        }
    }

    /// Finishes a request. Its seats become free immediately, or after its additional latency.
    pub fn finish(&mut self, now: Instant, id: RequestId) {
        self.advance(now);
        let Some(request) = self.requests.remove(&id) else { return };
        self.totals.executing -= 1;
        request.flow.executing.fetch_sub(1, Ordering::Relaxed);
        self.gauges.executing.set(now, self.totals.executing as f64);
        if let Some(at) = request.queue {
            self.account(at, &request);
        }
        let seats = request.work.max_seats();
        let lingering = Lingering { seats, queue: request.queue, flow: request.flow };
        match request.work.additional_latency {
            Duration::ZERO => self.release(now, lingering),
            latency => _ = self.lingering.insert((now + latency, id), lingering),
        }
        self.dispatch(None);
    }

    /// Removes a waiting request from its queue. Finishes a request that is already executing.
    pub fn cancel(&mut self, now: Instant, id: RequestId) {
        if self.requests.get(&id).is_some_and(|request| request.started.is_some()) {
            return self.finish(now, id);
        }
        self.advance(now);
        let Some(request) = self.requests.remove(&id) else { return };
        self.leave_queue(id, &request);
        self.totals.rejected += 1;
        self.totals.cancelled += 1;
        request.flow.reject(Reason::TimeOut);
        self.note_demand();
        // A wide request at the head may have blocked narrower ones.
        self.dispatch(None);
    }

    /// Advances the set to this time.
    pub fn advance(&mut self, now: Instant) {
        while let Some(entry) = self.lingering.first_entry().filter(|entry| entry.key().0 <= now) {
            let ((due, _), lingering) = entry.remove_entry();
            self.pass_time(due);
            self.release(due, lingering);
            self.dispatch(None);
        }
        self.pass_time(now);
    }

    /// Takes the requests dispatched since the last call.
    pub fn take_dispatched(&mut self) -> Vec<RequestId> {
        std::mem::take(&mut self.dispatched)
    }

    /// Returns when the next lingering seats become free.
    pub fn next_release(&self) -> Option<Instant> {
        self.lingering.keys().next().map(|(due, _)| *due)
    }

    /// Returns whether nothing waits or executes.
    pub fn is_idle(&self) -> bool {
        self.totals.waiting == 0 && self.totals.executing == 0
    }

    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// Returns the utilization of the level over time.
    pub fn gauges(&self) -> LevelGauges {
        self.gauges.clone()
    }

    pub fn is_exempt(&self) -> bool {
        self.queuing == Queuing::Exempt
    }

    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Returns the progress meter R.
    pub fn r(&self) -> SeatSeconds {
        self.r
    }

    pub fn last_dispatch(&self) -> Option<Dispatch> {
        self.last_dispatch
    }

    /// Returns how often the progress meter was set back.
    pub fn epochs(&self) -> u64 {
        self.epochs
    }

    fn start_without_queue(&mut self, work: Work, flow: &Arc<FlowStats>, label: T) -> Start {
        if !self.accommodates(work.max_seats()) {
            return self.reject(flow, Reason::ConcurrencyLimit);
        }
        let id = self.admit(work, flow, label, None);
        self.begin(id);
        Start::Executing(id)
    }

    fn reject(&mut self, flow: &FlowStats, reason: Reason) -> Start {
        self.totals.rejected += 1;
        flow.reject(reason);
        Start::Rejected(reason)
    }

    /// Returns the queue with the least work in the hand of a flow. The search starts at a different card each time, so
    /// that flows with overlapping hands do not all prefer the same queue.
    fn shard(&mut self, hash: u64) -> usize {
        let mut hand = std::mem::take(&mut self.hand);
        if let Some(dealer) = &self.dealer {
            dealer.deal(hash, &mut hand);
        }
        let offset = self.enqueued % hand.len().max(1);
        self.enqueued = self.enqueued.wrapping_add(1);
        let (before, after) = hand.split_at(offset);
        let work = |at: &&usize| self.queues[**at].waiting_work();
        let best = after.iter().chain(before).min_by_key(work).copied().unwrap_or(0);
        self.hand = hand;
        best
    }

    fn admit(&mut self, work: Work, flow: &Arc<FlowStats>, label: T, queue: Option<usize>) -> RequestId {
        let id = RequestId(self.next_id);
        self.next_id += 1;
        let final_work = SeatSeconds::of(work.final_seats as f64, work.additional_latency);
        let total_work = SeatSeconds::of(work.initial_seats as f64, ESTIMATED_SERVICE).plus(final_work);
        let request = Request {
            label,
            flow: flow.clone(),
            work,
            total_work,
            final_work,
            queue,
            arrived: self.now,
            arrival_r: self.r,
            started: None,
        };
        self.requests.insert(id, request);
        id
    }

    fn enqueue(&mut self, at: usize, work: Work, flow: &Arc<FlowStats>, label: T) -> RequestId {
        let id = self.admit(work, flow, label, Some(at));
        let (seats, total_work) = (work.max_seats(), self.requests[&id].total_work);
        if self.queues[at].is_idle() {
            self.queues[at].next_r = self.r;
            self.active_queues += 1;
        }
        self.queues[at].push(id, work.initial_seats, seats, total_work);
        self.queue_seats += seats;
        self.totals.waiting += 1;
        self.totals.seats_waiting += seats;
        flow.queued(1, seats as i64);
        self.gauges.waiting.set(self.now, self.totals.waiting as f64);
        self.note_demand();
        self.bound(at);
        id
    }

    /// Removes a waiting request from its queue.
    fn leave_queue(&mut self, id: RequestId, request: &Request<T>) {
        let Some(at) = request.queue else { return };
        let seats = request.work.max_seats();
        self.queues[at].remove(id, request.work.initial_seats, seats, request.total_work);
        self.queue_seats -= seats;
        if self.queues[at].is_idle() {
            self.active_queues -= 1;
        }
        self.totals.waiting -= 1;
        self.totals.seats_waiting -= seats;
        request.flow.queued(-1, -(seats as i64));
        self.gauges.waiting.set(self.now, self.totals.waiting as f64);
        self.bound(at);
        if self.queues[at].is_idle() {
            self.drop_surplus_queue(at);
        }
    }

    /// Starts executing a request.
    fn begin(&mut self, id: RequestId) {
        let now = self.now;
        let Some(request) = self.requests.get_mut(&id) else { return };
        request.started = Some(now);
        let seats = request.work.max_seats();
        self.totals.executing += 1;
        self.totals.dispatched += 1;
        self.totals.seats_in_use += seats;
        request.flow.executing.fetch_add(1, Ordering::Relaxed);
        request.flow.executing_seats.fetch_add(seats as i64, Ordering::Relaxed);
        self.gauges.executing.set(now, self.totals.executing as f64);
        self.gauges.seats.set(now, self.totals.seats_in_use as f64);
        self.note_demand();
    }

    /// Dispatches the requests that may run now. `only` is the one queue with a waiting request, if known.
    fn dispatch(&mut self, only: Option<usize>) {
        while self.totals.waiting > 0 && self.totals.seats_in_use < self.limit && self.dispatch_one(only) {}
    }

    fn dispatch_one(&mut self, only: Option<usize>) -> bool {
        let Some((at, marks)) = only.map(|at| (at, self.marks_of(at))).or_else(|| self.next_queue()) else {
            return false;
        };
        let Some(id) = self.queues[at].first() else { return false };
        let Some(request) = self.requests.get(&id) else { return false };
        if !self.accommodates(request.work.max_seats()) {
            request.flow.not_accommodated.fetch_add(1, Ordering::Relaxed);
            return false;
        }
        self.robin = at;
        self.last_dispatch = Some(Dispatch { r: self.r, latest_s: self.queues[at].next_r, ..marks });
        self.run_from_queue(at, id);
        true
    }

    fn run_from_queue(&mut self, at: usize, id: RequestId) {
        let Some(mut request) = self.requests.remove(&id) else { return };
        let (initial, seats, total) =
            (request.work.initial_seats, request.work.max_seats(), request.total_work);
        self.queues[at].remove(id, initial, seats, total);
        self.totals.waiting -= 1;
        self.totals.seats_waiting -= seats;
        request.flow.queued(-1, -(seats as i64));
        self.gauges.waiting.set(self.now, self.totals.waiting as f64);
        self.narrow(&mut request);
        let running = request.work.max_seats();
        self.queue_seats = self.queue_seats - seats + running;
        self.queues[at].executing += 1;
        self.queues[at].seats_in_use += running;
        self.queues[at].next_r = self.queues[at].next_r.plus(total);
        self.requests.insert(id, request);
        self.begin(id);
        self.dispatched.push(id);
        self.bound(at);
    }

    /// If the final seats exceed the limit, uses fewer seats for longer.
    fn narrow(&self, request: &mut Request<T>) {
        if request.work.final_seats > self.limit && self.limit > 0 {
            request.work.final_seats = self.limit;
            request.work.additional_latency = request.final_work.per_seat(self.limit as f64);
        }
    }

    /// Returns the queue whose next request would finish first in virtual time, searched round-robin.
    fn next_queue(&mut self) -> Option<(usize, Dispatch)> {
        let count = self.queues.len();
        let mut best: Option<(SeatSeconds, usize)> = None;
        let mut marks: Option<Dispatch> = None;
        for step in 1..=count {
            let at = (self.robin + step) % count;
            let Some(id) = self.queues[at].first() else { continue };
            let Some(request) = self.requests.get(&id) else { continue };
            let finish = self.queues[at].next_r.plus(request.total_work);
            if best.is_none_or(|(earliest, _)| finish < earliest) {
                best = Some((finish, at));
            }
            let own = self.marks_of(at);
            marks = Some(marks.map_or(own, |so_far| so_far.widened(&own)));
        }
        Some((best?.1, marks?))
    }

    fn marks_of(&self, at: usize) -> Dispatch {
        let queue = &self.queues[at];
        let in_progress = SeatSeconds::of(queue.seats_in_use as f64, ESTIMATED_SERVICE);
        let discounted = queue.next_r.minus(in_progress);
        Dispatch {
            s_bounds: (queue.next_r, queue.next_r),
            discounted_bounds: (discounted, discounted),
            ..Dispatch::default()
        }
    }

    fn accommodates(&self, seats: u64) -> bool {
        match self.queuing {
            Queuing::Exempt => true,
            // Wider than the whole level: it runs alone.
            _ if seats > self.limit => self.totals.executing == 0,
            _ => self.totals.seats_in_use + seats <= self.limit,
        }
    }

    /// Replaces the estimated work of a finished request with the actual work.
    fn account(&mut self, at: usize, request: &Request<T>) {
        let took =
            request.started.map_or(Duration::ZERO, |started| self.now.saturating_duration_since(started));
        let seats = request.work.initial_seats as f64;
        let queue = &mut self.queues[at];
        queue.executing -= 1;
        queue.next_r = match took < ESTIMATED_SERVICE {
            true => queue.next_r.minus(SeatSeconds::of(seats, ESTIMATED_SERVICE - took)),
            false => queue.next_r.plus(SeatSeconds::of(seats, took - ESTIMATED_SERVICE)),
        };
        if queue.is_idle() {
            self.active_queues -= 1;
        }
        self.bound(at);
    }

    fn release(&mut self, now: Instant, lingering: Lingering) {
        let seats = lingering.seats;
        self.totals.seats_in_use -= seats;
        lingering.flow.executing_seats.fetch_sub(seats as i64, Ordering::Relaxed);
        self.gauges.seats.set(now, self.totals.seats_in_use as f64);
        self.note_demand();
        if let Some(at) = lingering.queue {
            self.queues[at].seats_in_use -= seats;
            self.queue_seats -= seats;
            self.drop_surplus_queue(at);
        }
    }

    /// A queue does not accumulate credit while it is empty: its next request starts, in virtual time, no earlier than
    /// it arrived.
    fn bound(&mut self, at: usize) {
        let Some(first) = self.queues[at].first() else { return };
        let Some(request) = self.requests.get(&first) else { return };
        self.queues[at].next_r = self.queues[at].next_r.max(request.arrival_r);
    }

    /// Removes an idle queue if there are too many.
    fn drop_surplus_queue(&mut self, at: usize) {
        let desired = match self.queuing {
            Queuing::Queue { queues, .. } => queues,
            Queuing::Exempt | Queuing::Reject => 0,
        };
        if self.queues.len() <= desired || !self.queues[at].is_idle() || self.queues[at].seats_in_use > 0 {
            return;
        }
        self.queues.remove(at);
        if self.robin >= at {
            self.robin = self.robin.saturating_sub(1);
        }
        let of_requests = self.requests.values_mut().map(|request| &mut request.queue);
        let of_lingering = self.lingering.values_mut().map(|lingering| &mut lingering.queue);
        for place in of_requests.chain(of_lingering).flatten() {
            if *place > at {
                *place -= 1;
            }
        }
    }

    fn pass_time(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.now);
        if passed.is_zero() {
            return;
        }
        self.now = now;
        if self.active_queues > 0 {
            let rate = self.queue_seats.min(self.limit) as f64 / self.active_queues as f64;
            self.r = self.r.plus(SeatSeconds::of(rate, passed));
        }
        if self.r >= EPOCH.plus(EPOCH.divided_by(2)) {
            self.set_back();
        }
    }

    /// Subtracts an epoch from all readings of R.
    fn set_back(&mut self) {
        self.epochs += 1;
        self.r = self.r.minus(EPOCH);
        self.queues.iter_mut().for_each(|queue| queue.next_r = queue.next_r.minus(EPOCH));
        self.requests.values_mut().for_each(|request| request.arrival_r = request.arrival_r.minus(EPOCH));
    }

    fn note_demand(&mut self) {
        let seats = (self.totals.seats_in_use + self.totals.seats_waiting) as f64;
        self.demand.set(self.now, seats);
        self.gauges.demand.set(self.now, seats);
    }
}

impl Dispatch {
    fn widened(&self, other: &Self) -> Self {
        let widen = |one: (SeatSeconds, SeatSeconds), other: (SeatSeconds, SeatSeconds)| {
            (one.0.min(other.0), one.1.max(other.1))
        };
        Self {
            s_bounds: widen(self.s_bounds, other.s_bounds),
            discounted_bounds: widen(self.discounted_bounds, other.discounted_bounds),
            ..*self
        }
    }
}
