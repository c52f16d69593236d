//! Decides which watchers a change wakes.
//!
//! Watchers of the same prefix share one [`WatcherGroup`]. A change looks up the groups that match its path, with one
//! lookup per distinct prefix length. So it wakes only the watchers it affects, and 5,000 watchers of 5,000 namespaces
//! cost a change no more than one watcher does.
//!
//! Some watchers want one record, or the records with one value of a field (the pods of a node). Their groups are
//! found by that path or value ([`Trigger`]), and list the events that match. So ten thousand nodes that each watch
//! their own pods cost a change of a pod two lookups, and none of them walks the events of the others.
//!
//! Each group has two numbers that tell a sleeping watcher all it needs: whether a matching event was appended since
//! its cursor, and whether one was forgotten since. So changes that do not affect a watcher neither wake it nor make it
//! fall behind.
//!
//! A small set of watchers is woken immediately by every change. A large set is woken in batches: a few, then other
//! tasks get to run, then a few more. A change during such a round requests another round. So changes that happen while
//! thousands of watchers are being woken reach each of them together, instead of one wake-up per change, and the writer
//! of the next change does not wait behind all of them.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use futures::task::AtomicWaker;
use imbl::OrdMap;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::Notify;

use crate::history::History;
use crate::watch::{Trigger, ValueOf};
use crate::{Event, Range};

/// If one prefix has more watchers than this, they are woken in rounds, this many at a time.
const WAKE_BATCH: usize = 64;

/// The watchers of one prefix, one path or one value.
pub(crate) struct WatcherGroup {
    key: GroupKey,
    /// The matching events, if the path alone does not determine them.
    listed: Option<Mutex<MatchingEvents>>,
    /// One past the sequence number of the newest matching event.
    appended: AtomicU64,
    /// One past the sequence number of the newest matching event that the ring has forgotten.
    forgotten: AtomicU64,
    /// Already scheduled to be woken after the current publication.
    wake_pending: AtomicBool,
    subscriptions: Mutex<Subscriptions>,
    /// Requests another round, if watchers are woken in rounds.
    round: Notify,
}

/// The key of a group.
#[derive(Clone)]
enum GroupKey {
    Prefix(Arc<str>),
    Path(Arc<str>),
    Value(&'static str, Arc<str>),
}

/// The sequence numbers of all matching events in the ring from `since` on, so never more than the ring has events.
struct MatchingEvents {
    since: u64,
    sequences: VecDeque<u64>,
}

#[derive(Default)]
struct Subscriptions {
    /// A persistent map, so that no lock is held while waking.
    wakers: OrdMap<u64, Arc<AtomicWaker>>,
    /// A task wakes the watchers in rounds ([`BatchWaker`]).
    has_rounds: bool,
}

/// The groups in one resource.
#[derive(Default)]
pub(crate) struct WatcherGroups {
    /// By prefix length, then by prefix.
    by_length: BTreeMap<usize, BTreeMap<Arc<str>, Arc<WatcherGroup>>>,
    by_path: BTreeMap<Arc<str>, Arc<WatcherGroup>>,
    by_value: BTreeMap<&'static str, Values>,
    next_subscription: u64,
}

/// The groups in the values of one field.
struct Values {
    of: ValueOf,
    groups: BTreeMap<Arc<str>, Arc<WatcherGroup>>,
}

/// A watcher's registration for wake-ups.
pub(crate) struct Subscription {
    id: u64,
    pub(crate) waker: Arc<AtomicWaker>,
    pub(crate) group: Arc<WatcherGroup>,
}

/// The groups that a publication affects. They are woken once it is visible.
#[derive(Default)]
pub(crate) struct PendingWakes(Vec<Arc<WatcherGroup>>);

impl WatcherGroups {
    /// Adds a watcher that has read up to `cursor`.
    pub(crate) fn add(
        &mut self,
        range: &Range,
        trigger: Option<&Trigger>,
        history: &History,
        cursor: u64,
    ) -> Subscription {
        let group = match trigger {
            Some(trigger) => self.value(trigger, history),
            None if range.is_exact => self.path(&range.prefix, history),
            None => self.prefix(&range.prefix, history),
        };
        group.list_from(cursor, history, |event| self.matches(&group.key, event));
        self.next_subscription += 1;
        let subscription =
            Subscription { id: self.next_subscription, waker: Arc::default(), group: group.clone() };
        group.add(&subscription);
        subscription
    }

    /// Events already in the ring may match the prefix. They have not been checked.
    fn prefix(&mut self, prefix: &Arc<str>, history: &History) -> Arc<WatcherGroup> {
        let same_length = self.by_length.entry(prefix.len()).or_default();
        let made =
            || WatcherGroup::new(GroupKey::Prefix(prefix.clone()), None, history.start(), history.end());
        same_length.entry(prefix.clone()).or_insert_with(made).clone()
    }

    fn path(&mut self, path: &Arc<str>, history: &History) -> Arc<WatcherGroup> {
        let made = || WatcherGroup::listing(GroupKey::Path(path.clone()), history);
        self.by_path.entry(path.clone()).or_insert_with(made).clone()
    }

    fn value(&mut self, trigger: &Trigger, history: &History) -> Arc<WatcherGroup> {
        let Trigger { name, value, of } = trigger;
        let made = || Values { of: of.clone(), groups: BTreeMap::new() };
        let values = self.by_value.entry(name).or_insert_with(made);
        let made = || WatcherGroup::listing(GroupKey::Value(name, value.clone()), history);
        values.groups.entry(value.clone()).or_insert_with(made).clone()
    }

    /// Removes a watcher, and its group if it was the last one.
    pub(crate) fn remove(&mut self, subscription: &Subscription) {
        if subscription.group.remove(subscription) > 0 {
            return;
        }
        match &subscription.group.key {
            GroupKey::Prefix(prefix) => {
                if let Some(same_length) = self.by_length.get_mut(&prefix.len()) {
                    same_length.remove(prefix);
                    if same_length.is_empty() {
                        self.by_length.remove(&prefix.len());
                    }
                }
            }
            GroupKey::Path(path) => _ = self.by_path.remove(path),
            GroupKey::Value(name, value) => {
                if let Some(values) = self.by_value.get_mut(name) {
                    values.groups.remove(value);
                    if values.groups.is_empty() {
                        self.by_value.remove(name);
                    }
                }
            }
        }
    }

    /// Records an event that is about to be appended to `history`. Adds the matching groups to `wakes`.
    pub(crate) fn appended(&self, event: &Event, history: &History, wakes: &mut PendingWakes) {
        let sequence = history.end();
        for group in self.matching(event) {
            group.append(sequence, history.start());
            wakes.add(group);
        }
    }

    /// Records that the event at `sequence` was forgotten. Watchers that have not read it find out when they read on.
    pub(crate) fn forgotten(&self, event: &Event, sequence: u64) {
        for group in self.matching(event) {
            group.forgotten.store(sequence + 1, Ordering::Release);
        }
    }

    /// Records that unknown changes took the place of `sequence`: everyone has to start again after it.
    pub(crate) fn cut(&self, sequence: u64) {
        for group in self.all() {
            group.cut(sequence);
        }
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<WatcherGroup>> {
        let by_value = self.by_value.values().flat_map(|values| values.groups.values());
        self.by_length.values().flat_map(BTreeMap::values).chain(self.by_path.values()).chain(by_value)
    }

    fn matching<'a>(&'a self, event: &'a Event) -> impl Iterator<Item = &'a Arc<WatcherGroup>> {
        let path = &*event.record.key.path;
        // Watchers choose their prefixes. Those longer than the path cost nothing.
        let not_longer = self.by_length.range(..=path.len());
        let prefixes =
            not_longer.filter_map(move |(length, prefixes)| Some((path.get(..*length)?, prefixes)));
        let by_prefix = prefixes.filter_map(|(prefix, prefixes)| prefixes.get(prefix));
        let by_value = self.by_value.values().flat_map(move |values| values.matching(event));
        by_prefix.chain(self.by_path.get(path)).chain(by_value)
    }

    fn matches(&self, key: &GroupKey, event: &Event) -> bool {
        match key {
            GroupKey::Prefix(prefix) => event.record.key.path.starts_with(&**prefix),
            GroupKey::Path(path) => event.record.key.path == *path,
            GroupKey::Value(name, value) => {
                self.by_value.get(name).is_some_and(|values| values.of(event).any(|found| found == &**value))
            }
        }
    }
}

impl Values {
    /// Returns the values before and after a change, without duplicates.
    fn of<'e>(&self, event: &'e Event) -> impl Iterator<Item = &'e str> {
        let after = (self.of)(&event.record);
        let before = event.previous.as_ref().map(|previous| (self.of)(previous));
        std::iter::once(after).chain(before.filter(|before| *before != after))
    }

    fn matching<'a>(&'a self, event: &'a Event) -> impl Iterator<Item = &'a Arc<WatcherGroup>> {
        self.of(event).filter_map(|value| self.groups.get(value))
    }
}

impl WatcherGroup {
    fn new(key: GroupKey, listed: Option<MatchingEvents>, start: u64, appended: u64) -> Arc<Self> {
        Arc::new(Self {
            key,
            listed: listed.map(Mutex::new),
            appended: AtomicU64::new(appended),
            forgotten: AtomicU64::new(start),
            wake_pending: AtomicBool::new(false),
            subscriptions: Mutex::default(),
            round: Notify::new(),
        })
    }

    /// Creates a group that lists its events, initially none.
    fn listing(key: GroupKey, history: &History) -> Arc<Self> {
        let listed = MatchingEvents { since: history.end(), sequences: VecDeque::new() };
        Self::new(key, Some(listed), history.start(), 0)
    }

    /// Lists the events from `cursor` on that are not listed yet.
    fn list_from(&self, cursor: u64, history: &History, matches: impl Fn(&Event) -> bool) {
        let Some(listed) = &self.listed else { return };
        let mut listed = listed.lock();
        let from = cursor.max(history.start());
        if from >= listed.since {
            return;
        }
        let earlier = (from..listed.since).zip(history.since(from));
        let earlier: Vec<u64> =
            earlier.filter(|(_, event)| matches(event)).map(|(sequence, _)| sequence).collect();
        if let Some(last) = earlier.last() {
            self.appended.fetch_max(last + 1, Ordering::AcqRel);
        }
        earlier.into_iter().rev().for_each(|sequence| listed.sequences.push_front(sequence));
        listed.since = from;
    }

    /// Records a matching event at `sequence`. The ring starts at `start`.
    fn append(&self, sequence: u64, start: u64) {
        if let Some(listed) = &self.listed {
            let sequences = &mut listed.lock().sequences;
            while sequences.front().is_some_and(|first| *first < start) {
                sequences.pop_front();
            }
            sequences.push_back(sequence);
        }
        self.appended.store(sequence + 1, Ordering::Release);
    }

    fn cut(&self, sequence: u64) {
        if let Some(listed) = &self.listed {
            let mut listed = listed.lock();
            (listed.since, listed.sequences) = (sequence + 1, VecDeque::new());
        }
        self.forgotten.store(sequence + 1, Ordering::Release);
    }

    /// Returns the matching events from `cursor` on, at most `most`. `None` if they are not listed.
    pub(crate) fn listed(&self, cursor: u64, most: usize) -> Option<Vec<u64>> {
        let listed = self.listed.as_ref()?.lock();
        let from = listed.sequences.partition_point(|sequence| *sequence < cursor);
        Some(listed.sequences.range(from..).take(most).copied().collect())
    }

    fn add(self: &Arc<Self>, subscription: &Subscription) {
        let mut subscriptions = self.subscriptions.lock();
        subscriptions.wakers.insert(subscription.id, subscription.waker.clone());
        if subscriptions.wakers.len() <= WAKE_BATCH || subscriptions.has_rounds {
            return;
        }
        // Without a runtime for the rounds, all watchers are woken at once.
        if let Ok(runtime) = Handle::try_current() {
            subscriptions.has_rounds = true;
            runtime.spawn(BatchWaker(self.clone()).run());
        }
    }

    /// Removes a watcher. Returns how many are left.
    fn remove(&self, subscription: &Subscription) -> usize {
        let mut subscriptions = self.subscriptions.lock();
        subscriptions.wakers.remove(&subscription.id);
        if subscriptions.has_rounds && subscriptions.wakers.len() <= WAKE_BATCH {
            self.round.notify_one();
        }
        subscriptions.wakers.len()
    }

    /// Wakes all watchers, now or in the next round.
    fn wake(&self) {
        let subscriptions = self.subscriptions.lock();
        if subscriptions.has_rounds {
            return self.round.notify_one();
        }
        let wakers = subscriptions.wakers.clone();
        drop(subscriptions);
        wakers.values().for_each(|waker| waker.wake());
    }

    /// Returns whether a matching event after `cursor` may be, or has been, in the ring.
    pub(crate) fn has_appended_after(&self, cursor: u64) -> bool {
        self.appended.load(Ordering::Acquire) > cursor
    }

    /// Returns whether a matching event after `cursor` has been forgotten.
    pub(crate) fn has_forgotten_after(&self, cursor: u64) -> bool {
        self.forgotten.load(Ordering::Acquire) > cursor
    }
}

impl PendingWakes {
    pub(crate) fn add(&mut self, group: &Arc<WatcherGroup>) {
        if !group.wake_pending.swap(true, Ordering::AcqRel) {
            self.0.push(group.clone());
        }
    }

    /// Wakes all affected watchers. Call this without holding a lock: wakers run foreign code.
    pub(crate) fn wake(self) {
        for group in self.0 {
            group.wake_pending.store(false, Ordering::Release);
            group.wake();
        }
    }
}

/// A task that wakes a large set of watchers in rounds, until the set is small again.
struct BatchWaker(Arc<WatcherGroup>);

impl BatchWaker {
    async fn run(self) {
        loop {
            self.0.round.notified().await;
            let wakers = self.0.subscriptions.lock().wakers.clone();
            if wakers.len() <= WAKE_BATCH {
                return;
            }
            for (at, waker) in wakers.values().enumerate() {
                waker.wake();
                if at % WAKE_BATCH == WAKE_BATCH - 1 {
                    tokio::task::yield_now().await;
                }
            }
        }
    }
}

impl Drop for BatchWaker {
    /// However this ends, the remaining watchers are woken immediately from now on, and once now for anything missed.
    fn drop(&mut self) {
        self.0.subscriptions.lock().has_rounds = false;
        self.0.wake();
    }
}
