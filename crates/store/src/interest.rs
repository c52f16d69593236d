//! Decides which watchers a change wakes.
//!
//! Watchers of the same prefix share one [`Interest`]. A change looks up the interests that match its path, with one
//! lookup per distinct prefix length. So it wakes only the watchers it affects, and 5,000 watchers of 5,000 namespaces
//! cost a change no more than one watcher does.
//!
//! Some watchers want one record, or the records with one value of a field (the pods of a node). Their interests are
//! found by that path or value ([`Trigger`]), and list the events that match. So ten thousand nodes that each watch
//! their own pods cost a change of a pod two lookups, and none of them walks the events of the others.
//!
//! Each interest has two numbers that tell a sleeping watcher all it needs: whether a matching event was appended since
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
const AT_ONCE: usize = 64;

/// The watchers of one prefix, one path or one value.
pub(crate) struct Interest {
    place: Place,
    /// The matching events, if the path alone does not determine them.
    listed: Option<Mutex<Listed>>,
    /// One past the sequence number of the newest matching event.
    appended: AtomicU64,
    /// One past the sequence number of the newest matching event that the ring has forgotten.
    forgotten: AtomicU64,
    /// Already scheduled to be woken after the current publication.
    called: AtomicBool,
    bells: Mutex<Bells>,
    /// Requests another round, if watchers are woken in rounds.
    round: Notify,
}

/// How an interest is found.
#[derive(Clone)]
enum Place {
    Prefix(Arc<str>),
    Path(Arc<str>),
    Value(&'static str, Arc<str>),
}

/// The sequence numbers of all matching events in the ring from `since` on, so never more than the ring has events.
struct Listed {
    since: u64,
    sequences: VecDeque<u64>,
}

#[derive(Default)]
struct Bells {
    /// A persistent map, so that no lock is held while waking.
    wakers: OrdMap<u64, Arc<AtomicWaker>>,
    /// A task wakes the watchers in rounds ([`Rounds`]).
    has_rounds: bool,
}

/// The interests in one resource.
#[derive(Default)]
pub(crate) struct Interests {
    /// By prefix length, then by prefix.
    by_length: BTreeMap<usize, BTreeMap<Arc<str>, Arc<Interest>>>,
    by_path: BTreeMap<Arc<str>, Arc<Interest>>,
    by_value: BTreeMap<&'static str, Values>,
    next_bell: u64,
}

/// The interests in the values of one field.
struct Values {
    of: ValueOf,
    interests: BTreeMap<Arc<str>, Arc<Interest>>,
}

/// A watcher's registration for wake-ups.
pub(crate) struct Bell {
    id: u64,
    pub(crate) waker: Arc<AtomicWaker>,
    pub(crate) interest: Arc<Interest>,
}

/// The interests that a publication affects. They are woken once it is visible.
#[derive(Default)]
pub(crate) struct Calls(Vec<Arc<Interest>>);

impl Interests {
    /// Adds a watcher that has read up to `cursor`.
    pub(crate) fn add(
        &mut self,
        range: &Range,
        trigger: Option<&Trigger>,
        history: &History,
        cursor: u64,
    ) -> Bell {
        let interest = match trigger {
            Some(trigger) => self.value(trigger, history),
            None if range.is_exact => self.path(&range.prefix, history),
            None => self.prefix(&range.prefix, history),
        };
        interest.list_from(cursor, history, |event| self.concerns(&interest.place, event));
        self.next_bell += 1;
        let bell = Bell { id: self.next_bell, waker: Arc::default(), interest: interest.clone() };
        interest.add(&bell);
        bell
    }

    /// Events already in the ring may match the prefix. They have not been checked.
    fn prefix(&mut self, prefix: &Arc<str>, history: &History) -> Arc<Interest> {
        let same_length = self.by_length.entry(prefix.len()).or_default();
        let made = || Interest::new(Place::Prefix(prefix.clone()), None, history.start(), history.end());
        same_length.entry(prefix.clone()).or_insert_with(made).clone()
    }

    fn path(&mut self, path: &Arc<str>, history: &History) -> Arc<Interest> {
        let made = || Interest::listing(Place::Path(path.clone()), history);
        self.by_path.entry(path.clone()).or_insert_with(made).clone()
    }

    fn value(&mut self, trigger: &Trigger, history: &History) -> Arc<Interest> {
        let Trigger { name, value, of } = trigger;
        let made = || Values { of: of.clone(), interests: BTreeMap::new() };
        let values = self.by_value.entry(name).or_insert_with(made);
        let made = || Interest::listing(Place::Value(name, value.clone()), history);
        values.interests.entry(value.clone()).or_insert_with(made).clone()
    }

    /// Removes a watcher, and its interest if it was the last one.
    pub(crate) fn remove(&mut self, bell: &Bell) {
        if bell.interest.remove(bell) > 0 {
            return;
        }
        match &bell.interest.place {
            Place::Prefix(prefix) => {
                if let Some(same_length) = self.by_length.get_mut(&prefix.len()) {
                    same_length.remove(prefix);
                    if same_length.is_empty() {
                        self.by_length.remove(&prefix.len());
                    }
                }
            }
            Place::Path(path) => _ = self.by_path.remove(path),
            Place::Value(name, value) => {
                if let Some(values) = self.by_value.get_mut(name) {
                    values.interests.remove(value);
                    if values.interests.is_empty() {
                        self.by_value.remove(name);
                    }
                }
            }
        }
    }

    /// Records an event that is about to be appended to `history`. Adds the matching interests to `calls`.
    pub(crate) fn appended(&self, event: &Event, history: &History, calls: &mut Calls) {
        let sequence = history.end();
        for interest in self.matching(event) {
            interest.append(sequence, history.start());
            calls.add(interest);
        }
    }

    /// Records that the event at `sequence` was forgotten. Watchers that have not read it find out when they read on.
    pub(crate) fn forgotten(&self, event: &Event, sequence: u64) {
        for interest in self.matching(event) {
            interest.forgotten.store(sequence + 1, Ordering::Release);
        }
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<Interest>> {
        let by_value = self.by_value.values().flat_map(|values| values.interests.values());
        self.by_length.values().flat_map(BTreeMap::values).chain(self.by_path.values()).chain(by_value)
    }

    fn matching<'a>(&'a self, event: &'a Event) -> impl Iterator<Item = &'a Arc<Interest>> {
        let path = &*event.record.key.path;
        // Watchers choose their prefixes. Those longer than the path cost nothing.
        let not_longer = self.by_length.range(..=path.len());
        let prefixes =
            not_longer.filter_map(move |(length, prefixes)| Some((path.get(..*length)?, prefixes)));
        let by_prefix = prefixes.filter_map(|(prefix, prefixes)| prefixes.get(prefix));
        let by_value = self.by_value.values().flat_map(move |values| values.matching(event));
        by_prefix.chain(self.by_path.get(path)).chain(by_value)
    }

    fn concerns(&self, place: &Place, event: &Event) -> bool {
        match place {
            Place::Prefix(prefix) => event.record.key.path.starts_with(&**prefix),
            Place::Path(path) => event.record.key.path == *path,
            Place::Value(name, value) => {
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

    fn matching<'a>(&'a self, event: &'a Event) -> impl Iterator<Item = &'a Arc<Interest>> {
        self.of(event).filter_map(|value| self.interests.get(value))
    }
}

impl Interest {
    fn new(place: Place, listed: Option<Listed>, start: u64, appended: u64) -> Arc<Self> {
        Arc::new(Self {
            place,
            listed: listed.map(Mutex::new),
            appended: AtomicU64::new(appended),
            forgotten: AtomicU64::new(start),
            called: AtomicBool::new(false),
            bells: Mutex::default(),
            round: Notify::new(),
        })
    }

    /// Creates an interest that lists its events, initially none.
    fn listing(place: Place, history: &History) -> Arc<Self> {
        let listed = Listed { since: history.end(), sequences: VecDeque::new() };
        Self::new(place, Some(listed), history.start(), 0)
    }

    /// Lists the events from `cursor` on that are not listed yet.
    fn list_from(&self, cursor: u64, history: &History, concerns: impl Fn(&Event) -> bool) {
        let Some(listed) = &self.listed else { return };
        let mut listed = listed.lock();
        let from = cursor.max(history.start());
        if from >= listed.since {
            return;
        }
        let earlier = (from..listed.since).zip(history.since(from));
        let earlier: Vec<u64> =
            earlier.filter(|(_, event)| concerns(event)).map(|(sequence, _)| sequence).collect();
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

    /// Returns the matching events from `cursor` on, at most `most`. `None` if they are not listed.
    pub(crate) fn listed(&self, cursor: u64, most: usize) -> Option<Vec<u64>> {
        let listed = self.listed.as_ref()?.lock();
        let from = listed.sequences.partition_point(|sequence| *sequence < cursor);
        Some(listed.sequences.range(from..).take(most).copied().collect())
    }

    fn add(self: &Arc<Self>, bell: &Bell) {
        let mut bells = self.bells.lock();
        bells.wakers.insert(bell.id, bell.waker.clone());
        if bells.wakers.len() <= AT_ONCE || bells.has_rounds {
            return;
        }
        // Without a runtime for the rounds, all watchers are woken at once.
        if let Ok(runtime) = Handle::try_current() {
            bells.has_rounds = true;
            runtime.spawn(Rounds(self.clone()).go());
        }
    }

    /// Removes a watcher. Returns how many are left.
    fn remove(&self, bell: &Bell) -> usize {
        let mut bells = self.bells.lock();
        bells.wakers.remove(&bell.id);
        if bells.has_rounds && bells.wakers.len() <= AT_ONCE {
            self.round.notify_one();
        }
        bells.wakers.len()
    }

    /// Wakes all watchers, now or in the next round.
    fn ring(&self) {
        let bells = self.bells.lock();
        if bells.has_rounds {
            return self.round.notify_one();
        }
        let wakers = bells.wakers.clone();
        drop(bells);
        wakers.values().for_each(|waker| waker.wake());
    }

    /// Returns whether a matching event after `cursor` may be, or has been, in the ring.
    pub(crate) fn concerns(&self, cursor: u64) -> bool {
        self.appended.load(Ordering::Acquire) > cursor
    }

    /// Returns whether a matching event after `cursor` has been forgotten.
    pub(crate) fn lost(&self, cursor: u64) -> bool {
        self.forgotten.load(Ordering::Acquire) > cursor
    }
}

impl Calls {
    pub(crate) fn add(&mut self, interest: &Arc<Interest>) {
        if !interest.called.swap(true, Ordering::AcqRel) {
            self.0.push(interest.clone());
        }
    }

    /// Wakes all affected watchers. Call this without holding a lock: wakers run foreign code.
    pub(crate) fn wake(self) {
        for interest in self.0 {
            interest.called.store(false, Ordering::Release);
            interest.ring();
        }
    }
}

/// A task that wakes a large set of watchers in rounds, until the set is small again.
struct Rounds(Arc<Interest>);

impl Rounds {
    async fn go(self) {
        loop {
            self.0.round.notified().await;
            let wakers = self.0.bells.lock().wakers.clone();
            if wakers.len() <= AT_ONCE {
                return;
            }
            for (at, waker) in wakers.values().enumerate() {
                waker.wake();
                if at % AT_ONCE == AT_ONCE - 1 {
                    tokio::task::yield_now().await;
                }
            }
        }
    }
}

impl Drop for Rounds {
    /// However this ends, the remaining watchers are woken immediately from now on, and once now for anything missed.
    fn drop(&mut self) {
        self.0.bells.lock().has_rounds = false;
        self.0.ring();
    }
}
