//! A priority level: requests get a seat, wait for one, or are rejected.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;
use setpoint_clock::{Clock, Instant};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::dealer::InvalidHand;
use crate::integrator::Demand;
use crate::queue_set::{QueueSet, Queuing, Reason, RequestId, Start};
use crate::stats::FlowStats;
use crate::work::Work;

/// A priority level: a queue set behind a lock, and its waiters.
pub struct Level<T> {
    clock: Clock,
    state: Mutex<State<T>>,
}

struct State<T> {
    set: QueueSet<T>,
    /// One per waiting request. Bounded by the queue length limits.
    waiters: BTreeMap<RequestId, oneshot::Sender<()>>,
    /// A task is releasing lingering seats that requests wait for.
    is_releasing: bool,
}

/// The result for a request that has just arrived.
pub enum Started<T: Send + 'static> {
    Admitted(Seat<T>),
    Queued(Queued<T>),
    Rejected(Reason),
}

/// Permission to run. Dropping it returns the seats.
pub struct Seat<T: Send + 'static> {
    level: Arc<Level<T>>,
    id: RequestId,
    flow: Arc<FlowStats>,
    began: Instant,
    is_watch: bool,
}

/// A place in a queue. Dropping it leaves the queue, or returns seats that were granted in the meantime.
pub struct Queued<T: Send + 'static> {
    entry: Option<QueuedRequest<T>>,
    granted: oneshot::Receiver<()>,
}

struct QueuedRequest<T: Send + 'static> {
    level: Arc<Level<T>>,
    id: RequestId,
    flow: Arc<FlowStats>,
    arrived: Instant,
    is_watch: bool,
}

impl<T: Send + 'static> Level<T> {
    pub fn new(clock: Clock, queuing: Queuing, limit: u64) -> Result<Arc<Self>, InvalidHand> {
        let set = QueueSet::new(clock.instant(), queuing, limit)?;
        let state = State { set, waiters: BTreeMap::new(), is_releasing: false };
        Ok(Arc::new(Self { clock, state: Mutex::new(state) }))
    }

    /// Changes the level's limits.
    pub fn configure(
        self: &Arc<Self>,
        queuing: Queuing,
        limit: u64,
        denominator: u64,
    ) -> Result<(), InvalidHand> {
        self.with(|set, now| set.configure(now, queuing, limit, denominator))
    }

    /// Handles a new request. `hash` identifies its flow.
    pub fn start(
        self: &Arc<Self>,
        work: Work,
        hash: u64,
        flow: &Arc<FlowStats>,
        is_watch: bool,
        label: T,
    ) -> Started<T> {
        flow.seats.observe(work.max_seats());
        let now = self.clock.instant();
        let mut state = self.state.lock();
        let start = state.set.start(now, work, hash, flow, label);
        let started = match start {
            Start::Executing(id) => {
                if !state.set.is_exempt() {
                    flow.waited[1].observe(0);
                }
                Started::Admitted(self.seat(id, flow.clone(), now, is_watch))
            }
            Start::Rejected(reason) => {
                flow.waited[0].observe(0);
                Started::Rejected(reason)
            }
            Start::Waiting(id) => {
                let (grant, granted) = oneshot::channel();
                state.waiters.insert(id, grant);
                let entry =
                    QueuedRequest { level: self.clone(), id, flow: flow.clone(), arrived: now, is_watch };
                Started::Queued(Queued { entry: Some(entry), granted })
            }
        };
        self.settle(&mut state);
        started
    }

    /// Takes the demand for seats since the last call.
    pub fn take_demand(self: &Arc<Self>) -> Demand {
        self.with(|set, now| set.demand.reset(now))
    }

    /// Advances the queue set to the current time and calls `look` with it.
    pub fn with<R>(self: &Arc<Self>, look: impl FnOnce(&mut QueueSet<T>, Instant) -> R) -> R {
        let now = self.clock.instant();
        let mut state = self.state.lock();
        state.set.advance(now);
        let result = look(&mut state.set, now);
        self.settle(&mut state);
        result
    }

    fn seat(
        self: &Arc<Self>,
        id: RequestId,
        flow: Arc<FlowStats>,
        began: Instant,
        is_watch: bool,
    ) -> Seat<T> {
        flow.dispatched.fetch_add(1, Ordering::Relaxed);
        Seat { level: self.clone(), id, flow, began, is_watch }
    }

    /// Wakes the requests that may run now, and starts releasing lingering seats if requests wait for them.
    fn settle(self: &Arc<Self>, state: &mut State<T>) {
        for id in state.set.take_dispatched() {
            if let Some(grant) = state.waiters.remove(&id) {
                // If the waiter is gone, dropping its place returns the seats.
                let _ = grant.send(());
            }
        }
        if state.is_releasing || !state.must_release() {
            return;
        }
        // Outside of a runtime, no request is waiting any more.
        if let Ok(runtime) = Handle::try_current() {
            state.is_releasing = true;
            runtime.spawn(self.clone().release_lingering());
        }
    }

    /// Runs as long as requests wait and seats linger.
    async fn release_lingering(self: Arc<Self>) {
        loop {
            let due = {
                let mut state = self.state.lock();
                let due = state.set.next_release().filter(|_| state.must_release());
                state.is_releasing = due.is_some();
                due
            };
            let Some(due) = due else { return };
            self.clock.sleep_until(due).await;
            self.with(|_, _| ());
        }
    }
}

impl<T> State<T> {
    fn must_release(&self) -> bool {
        self.set.totals().waiting > 0 && self.set.next_release().is_some()
    }
}

impl<T: Send + 'static> Queued<T> {
    /// Waits for a seat until a deadline. Dropping the future leaves the queue.
    pub async fn wait(mut self, deadline: Instant) -> Option<Seat<T>> {
        let is_granted = match tokio::time::timeout_at(deadline, &mut self.granted).await {
            Ok(Ok(())) => true,
            Ok(Err(_)) | Err(_) => false,
        };
        let entry = self.entry.as_ref()?;
        let waited = entry.level.clock.instant().saturating_duration_since(entry.arrived);
        // As in v1.34, a request that waited in vain is recorded with the executed ones.
        entry.flow.waited[1].observe(waited.as_nanos() as u64);
        if !is_granted {
            return None;
        }
        let QueuedRequest { level, id, flow, is_watch, .. } = self.entry.take()?;
        let began = level.clock.instant();
        Some(level.seat(id, flow, began, is_watch))
    }
}

impl<T: Send + 'static> Drop for Queued<T> {
    fn drop(&mut self) {
        let Some(QueuedRequest { level, id, .. }) = self.entry.take() else { return };
        let now = level.clock.instant();
        let mut state = level.state.lock();
        state.waiters.remove(&id);
        state.set.cancel(now, id);
        level.settle(&mut state);
    }
}

impl<T: Send + 'static> Drop for Seat<T> {
    fn drop(&mut self) {
        let now = self.level.clock.instant();
        let took = now.saturating_duration_since(self.began);
        self.flow.executed[usize::from(self.is_watch)].observe(took.as_nanos() as u64);
        let mut state = self.level.state.lock();
        state.set.finish(now, self.id);
        self.level.settle(&mut state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const ONE_QUEUE: Queuing = Queuing::Queue { queues: 1, hand_size: 1, length_limit: 10 };

    fn level(limit: u64) -> (Arc<Level<()>>, Arc<FlowStats>) {
        (Level::new(Clock::system(), ONE_QUEUE, limit).unwrap(), Arc::default())
    }

    fn start(level: &Arc<Level<()>>, flow: &Arc<FlowStats>, work: Work) -> Started<()> {
        level.start(work, 0, flow, false, ())
    }

    fn admitted(started: Started<()>) -> Seat<()> {
        match started {
            Started::Admitted(seat) => seat,
            _ => panic!("there is a seat"),
        }
    }

    fn queued(started: Started<()>) -> Queued<()> {
        match started {
            Started::Queued(queued) => queued,
            _ => panic!("there is no seat"),
        }
    }

    fn in_use(level: &Arc<Level<()>>) -> (u64, u64) {
        level.with(|set, _| (set.totals().waiting, set.totals().seats_in_use))
    }

    #[tokio::test(start_paused = true)]
    async fn a_seat_is_handed_to_the_next_in_line() {
        let (level, flow) = level(1);
        let first = admitted(start(&level, &flow, Work::ONE_SEAT));
        let waiting = queued(start(&level, &flow, Work::ONE_SEAT));
        let deadline = level.clock.instant() + Duration::from_secs(1);
        let second = tokio::spawn(waiting.wait(deadline));
        tokio::task::yield_now().await;
        drop(first);
        let second = second.await.unwrap().expect("the seat is free");
        assert_eq!(in_use(&level), (0, 1));
        drop(second);
        assert_eq!(in_use(&level), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_waits_too_long_leaves_its_queue() {
        let (level, flow) = level(1);
        let _running = admitted(start(&level, &flow, Work::ONE_SEAT));
        let deadline = level.clock.instant() + Duration::from_secs(15);
        assert!(queued(start(&level, &flow, Work::ONE_SEAT)).wait(deadline).await.is_none());
        assert_eq!(in_use(&level), (0, 1));
        assert_eq!((flow.rejected(Reason::TimeOut), flow.waited[1].count()), (1, 2));
        assert_eq!(level.clock.instant(), deadline);
    }

    #[tokio::test(start_paused = true)]
    async fn cancelling_at_any_point_returns_the_seats() {
        let (level, flow) = level(1);
        // Not polled yet, polled once, granted but not polled since.
        for polls in 0..3 {
            let running = admitted(start(&level, &flow, Work::ONE_SEAT));
            let deadline = level.clock.instant() + Duration::from_secs(1);
            let mut waiting = Box::pin(queued(start(&level, &flow, Work::ONE_SEAT)).wait(deadline));
            if polls > 0 {
                assert!(futures_poll(&mut waiting).await);
            }
            if polls > 1 {
                drop(running);
                assert_eq!(in_use(&level), (0, 1), "granted to the one that waits");
                drop(waiting);
            } else {
                drop(waiting);
                assert_eq!(in_use(&level), (0, 1));
                drop(running);
            }
            assert_eq!(in_use(&level), (0, 0));
            assert!(level.with(|set, _| set.is_idle()));
        }
    }

    /// Polls once. Returns whether the future is still pending.
    async fn futures_poll(future: &mut (impl Future + Unpin)) -> bool {
        std::future::poll_fn(|cx| {
            std::task::Poll::Ready(std::pin::Pin::new(&mut *future).poll(cx).is_pending())
        })
        .await
    }

    #[tokio::test(start_paused = true)]
    async fn lingering_seats_are_released_without_another_request() {
        let (level, flow) = level(2);
        let work = Work { initial_seats: 1, final_seats: 2, additional_latency: Duration::from_millis(50) };
        let began = level.clock.instant();
        drop(admitted(start(&level, &flow, work)));
        assert_eq!(in_use(&level), (0, 2));
        let waiting = queued(start(&level, &flow, Work::ONE_SEAT));
        let seat = waiting.wait(began + Duration::from_secs(10)).await;
        assert!(seat.is_some());
        assert_eq!(level.clock.instant() - began, Duration::from_millis(50));
        drop(seat);
        tokio::task::yield_now().await;
        assert!(!level.state.lock().is_releasing);
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_runs_beside_requests_when_none_wait() {
        let (level, flow) = level(2);
        let work = Work { initial_seats: 1, final_seats: 2, additional_latency: Duration::from_millis(50) };
        drop(admitted(start(&level, &flow, work)));
        assert!(!level.state.lock().is_releasing);
        tokio::time::advance(Duration::from_millis(51)).await;
        assert_eq!(in_use(&level), (0, 0));
    }
}
