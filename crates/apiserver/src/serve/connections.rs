//! Limits the number of open connections, and decides which to close first.
//!
//! Invariants:
//! - accepting never waits for a client. A handshake beyond the limit ends the oldest one, a connection beyond the
//!   limit ends the one that has been idle the longest; if all are busy, the new one is rejected;
//! - a connection counts against its address, and against the user of its latest request;
//! - a connection counts until everything it carries is finished, including upgraded streams.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use setpoint_clock::{Clock, Instant};
use tokio_util::sync::CancellationToken;

use super::bodies::Bodies;
use super::settings::ServeSettings;
use crate::status::Status;

/// Maximum concurrent handshakes: each takes milliseconds, so this allows tens of thousands per second.
const HANDSHAKES: usize = 1_000;
/// Idle timeout of a connection, as in v1.34.
const IDLE: Duration = Duration::from_secs(90);

/// All connections of a server.
pub(super) struct Connections {
    clock: Clock,
    total: usize,
    per_client: usize,
    per_user: usize,
    /// Closes all connections once their requests are answered.
    pub(super) finishing: CancellationToken,
    /// Closes all connections immediately.
    pub(super) closing: CancellationToken,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    next: u64,
    all: BTreeMap<u64, Entry>,
    by_client: BTreeMap<IpAddr, usize>,
    /// Counts by user: never more entries than connections.
    by_user: BTreeMap<Arc<str>, usize>,
    handshaking: BTreeSet<u64>,
    idle: BTreeSet<(Instant, u64)>,
}

struct Entry {
    client: IpAddr,
    /// The user of the latest request; `None` before the first.
    user: Option<Arc<str>>,
    close: CancellationToken,
    finish: CancellationToken,
    phase: Phase,
    bodies: Weak<Bodies>,
}

enum Phase {
    Handshake,
    Idle(Instant),
    ActiveRequest(usize),
}

/// A connection's entry in the table.
pub(crate) struct Slot {
    connections: Arc<Connections>,
    id: u64,
    pub(super) close: CancellationToken,
    pub(super) finish: CancellationToken,
    pub(super) bodies: Arc<Bodies>,
}

/// A request in progress on a connection.
pub(super) struct ActiveRequest(Arc<Slot>);

impl Connections {
    pub(super) fn new(clock: Clock, settings: &ServeSettings) -> Arc<Self> {
        Arc::new(Self {
            clock,
            total: settings.connections,
            per_client: settings.connections_per_client,
            per_user: settings.connections_per_user,
            finishing: CancellationToken::new(),
            closing: CancellationToken::new(),
            state: Mutex::default(),
        })
    }

    /// Registers a new connection, if there is room or room can be made.
    pub(super) fn open(self: &Arc<Self>, client: IpAddr) -> Option<Arc<Slot>> {
        let mut state = self.state.lock();
        if state.by_client.get(&client).copied().unwrap_or(0) >= self.per_client {
            state.evict(|entry| entry.client == client)?;
        }
        if state.all.len() >= self.total {
            state.evict(|_| true)?;
        }
        if state.handshaking.len() >= HANDSHAKES
            && let Some(oldest) = state.handshaking.first().copied()
        {
            state.close(oldest);
        }
        let id = state.next;
        state.next += 1;
        let bodies = Bodies::new(self.clock.instant());
        let (close, finish) = (self.closing.child_token(), self.finishing.child_token());
        let entry = Entry {
            client,
            user: None,
            close: close.clone(),
            finish: finish.clone(),
            phase: Phase::Handshake,
            bodies: Arc::downgrade(&bodies),
        };
        state.all.insert(id, entry);
        state.handshaking.insert(id);
        *state.by_client.entry(client).or_default() += 1;
        Some(Arc::new(Slot { connections: self.clone(), id, close, finish, bodies }))
    }

    pub(super) fn count(&self) -> usize {
        self.state.lock().all.len()
    }

    /// Closes connections that have been idle for too long, or whose client does not read. Call it every few seconds.
    pub(super) fn sweep(&self) {
        let now = self.clock.instant();
        let state = self.state.lock();
        let is_old = |(since, _): &&(Instant, u64)| now.saturating_duration_since(*since) >= IDLE;
        for (_, id) in state.idle.iter().take_while(is_old) {
            state.all[id].finish.cancel();
        }
        for entry in state.all.values() {
            if entry.bodies.upgrade().is_some_and(|bodies| bodies.has_stalled(now)) {
                tracing::debug!(client = %entry.client, "dropping a client that does not read");
                entry.close.cancel();
            }
        }
    }
}

impl State {
    /// Makes room by closing the longest idle connection that may be closed.
    fn evict(&mut self, may_go: impl Fn(&Entry) -> bool) -> Option<()> {
        let is_candidate = |id: &u64| may_go(&self.all[id]);
        let idle = self.idle.iter().map(|(_, id)| *id).find(is_candidate);
        let oldest = idle.or_else(|| self.handshaking.iter().copied().find(is_candidate))?;
        self.close(oldest);
        Some(())
    }

    /// Closes a connection; it no longer counts.
    fn close(&mut self, id: u64) {
        if let Some(entry) = self.forget(id) {
            entry.close.cancel();
        }
    }

    fn forget(&mut self, id: u64) -> Option<Entry> {
        let entry = self.all.remove(&id)?;
        self.handshaking.remove(&id);
        if let Phase::Idle(since) = entry.phase {
            self.idle.remove(&(since, id));
        }
        count_down(&mut self.by_client, &entry.client);
        if let Some(user) = &entry.user {
            count_down(&mut self.by_user, user);
        }
        Some(entry)
    }

    /// Counts a connection against a user instead of the previous one.
    fn set_user(&mut self, id: u64, user: &str) {
        let Some(entry) = self.all.get_mut(&id) else { return };
        let user: Arc<str> = user.into();
        if let Some(before) = entry.user.replace(user.clone()) {
            count_down(&mut self.by_user, &before);
        }
        *self.by_user.entry(user).or_default() += 1;
    }

    /// Sets the phase of a connection; does nothing if it was evicted.
    fn set_phase(&mut self, id: u64, change: impl FnOnce(&Phase) -> Phase) {
        let Some(entry) = self.all.get_mut(&id) else { return };
        let next = change(&entry.phase);
        match std::mem::replace(&mut entry.phase, next) {
            Phase::Handshake => _ = self.handshaking.remove(&id),
            Phase::Idle(since) => _ = self.idle.remove(&(since, id)),
            Phase::ActiveRequest(_) => {}
        }
        if let Phase::Idle(since) = entry.phase {
            self.idle.insert((since, id));
        }
    }
}

fn count_down<K: Ord>(counts: &mut BTreeMap<K, usize>, key: &K) {
    if let Some(count) = counts.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(key);
        }
    }
}

impl Slot {
    /// Attributes the connection to the user of a new request. If the user has too many connections, closes the
    /// longest idle one; if all are busy, rejects this request and closes its connection after the response.
    pub(crate) fn belongs_to(&self, user: &str) -> Result<(), Status> {
        let mut state = self.connections.state.lock();
        // An evicted connection no longer counts.
        let Some(entry) = state.all.get(&self.id) else { return Ok(()) };
        if entry.user.as_deref() == Some(user) {
            return Ok(());
        }
        let limit = self.connections.per_user;
        let is_full = state.by_user.get(user).is_some_and(|count| *count >= limit);
        if is_full && state.evict(|entry| entry.user.as_deref() == Some(user)).is_none() {
            self.finish.cancel();
            let why =
                format!("too many connections: {user:?} has {limit} open connections, which is the limit");
            return Err(Status::too_many_requests(why, 1));
        }
        state.set_user(self.id, user);
        Ok(())
    }

    /// Marks the handshake as complete.
    pub(super) fn established(&self) {
        let now = self.connections.clock.instant();
        self.connections.state.lock().set_phase(self.id, |_| Phase::Idle(now));
    }

    /// Marks the start of a request.
    pub(super) fn begin(self: &Arc<Self>) -> ActiveRequest {
        self.connections.state.lock().set_phase(self.id, |phase| match phase {
            Phase::ActiveRequest(count) => Phase::ActiveRequest(count + 1),
            Phase::Handshake | Phase::Idle(_) => Phase::ActiveRequest(1),
        });
        ActiveRequest(self.clone())
    }

    pub(super) fn now(&self) -> Instant {
        self.connections.clock.instant()
    }
}

impl Drop for ActiveRequest {
    fn drop(&mut self) {
        let now = self.0.connections.clock.instant();
        self.0.connections.state.lock().set_phase(self.0.id, |phase| match phase {
            Phase::ActiveRequest(count) if *count > 1 => Phase::ActiveRequest(count - 1),
            _ => Phase::Idle(now),
        });
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.connections.state.lock().forget(self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::super::bodies::STALLED;
    use super::*;

    fn connections(total: usize, per_client: usize) -> Arc<Connections> {
        let settings = ServeSettings {
            connections: total,
            connections_per_client: per_client,
            ..ServeSettings::default()
        };
        Connections::new(Clock::system(), &settings)
    }

    fn client(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }

    fn idle(connections: &Arc<Connections>, last: u8) -> Arc<Slot> {
        let slot = connections.open(client(last)).expect("there is space");
        slot.established();
        slot
    }

    #[tokio::test(start_paused = true)]
    async fn the_longest_idle_connection_is_evicted() {
        let connections = connections(3, 3);
        let first = idle(&connections, 1);
        tokio::time::advance(Duration::from_secs(1)).await;
        let second = idle(&connections, 2);
        let busy = idle(&connections, 3);
        let request = busy.begin();
        drop(first.begin());
        tokio::time::advance(Duration::from_secs(1)).await;
        drop(first.begin());
        let _fourth = idle(&connections, 4);
        assert!(second.close.is_cancelled() && !first.close.is_cancelled() && !busy.close.is_cancelled());
        drop(request);
        assert_eq!(connections.count(), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn a_busy_server_turns_new_connections_away() {
        let connections = connections(2, 2);
        let slots = [idle(&connections, 1), idle(&connections, 2)];
        let requests: Vec<_> = slots.iter().map(Slot::begin).collect();
        assert!(connections.open(client(3)).is_none());
        drop(requests);
        assert!(connections.open(client(3)).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn one_client_does_not_take_the_place_of_others() {
        let connections = connections(10, 2);
        let other = idle(&connections, 1);
        let own = [idle(&connections, 2), idle(&connections, 2)];
        let third = idle(&connections, 2);
        assert!(own[0].close.is_cancelled() && !own[1].close.is_cancelled() && !other.close.is_cancelled());
        let _busy: Vec<_> = [&own[1], &third].map(Slot::begin).into_iter().collect();
        assert!(connections.open(client(2)).is_none() && connections.open(client(3)).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn one_user_does_not_take_the_place_of_others() {
        let settings = ServeSettings { connections_per_user: 2, ..ServeSettings::default() };
        let connections = Connections::new(Clock::system(), &settings);
        let slots: Vec<_> = (0..5).map(|last| idle(&connections, last)).collect();
        let other = slots[4].begin();
        slots[4].belongs_to("other").unwrap();
        let mut busy = Vec::new();
        for slot in &slots[..2] {
            busy.push(slot.begin());
            slot.belongs_to("one").unwrap();
            slot.belongs_to("one").unwrap();
        }
        let third = slots[2].begin();
        assert_eq!(slots[2].belongs_to("one").unwrap_err().code, 429);
        assert!(slots[2].finish.is_cancelled() && !slots[0].close.is_cancelled());
        drop((busy.remove(0), third));
        slots[3].begin();
        slots[3].belongs_to("one").unwrap();
        assert!(slots[0].close.is_cancelled() && !slots[1].close.is_cancelled(), "the idle one makes room");
        slots[1].belongs_to("other").unwrap();
        drop((busy, other, slots));
        let state = connections.state.lock();
        assert!(state.by_user.is_empty() && state.by_client.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn handshakes_beyond_the_bound_end_the_oldest() {
        let connections = connections(5_000, 5_000);
        let slots: Vec<_> = (0..=HANDSHAKES).map(|_| connections.open(client(1)).unwrap()).collect();
        assert!(slots[0].close.is_cancelled() && !slots[1].close.is_cancelled());
        drop(slots);
        let state = connections.state.lock();
        assert!(state.all.is_empty() && state.by_client.is_empty() && state.handshaking.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn long_idle_connections_finish_and_clients_that_do_not_read_are_dropped() {
        let connections = connections(5, 5);
        let (idle_one, reading, stalled) =
            (idle(&connections, 1), idle(&connections, 2), idle(&connections, 3));
        let _busy = [reading.begin(), stalled.begin()];
        let bodies = [reading.bodies.follow(), stalled.bodies.follow()];
        bodies.iter().for_each(|body| body.mark_sent(connections.clock.instant()));
        bodies[0].mark_polled();
        tokio::time::advance(IDLE).await;
        connections.sweep();
        assert!(idle_one.finish.is_cancelled() && !idle_one.close.is_cancelled());
        assert!(!stalled.close.is_cancelled());
        tokio::time::advance(STALLED).await;
        connections.sweep();
        assert!(
            stalled.close.is_cancelled() && !reading.close.is_cancelled() && !reading.finish.is_cancelled()
        );
    }
}
