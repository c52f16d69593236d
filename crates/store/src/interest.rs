//! Who is to be woken by which change.
//!
//! Watchers of the same prefix share one [`Interest`]. A change looks up the interests its path belongs to,
//! one lookup per distinct prefix length, so it wakes only those it concerns, and 5,000 watchers of 5,000
//! namespaces cost a change no more than one does.
//!
//! Per interest two numbers say all that a sleeping watcher needs to know: whether anything for it was
//! appended since its cursor, and whether anything for it was forgotten since. So changes that do not
//! concern a watcher neither wake it nor let it fall behind.
//!
//! A few watchers are woken by every change at once. Many are woken in rounds: a few, then whoever else has
//! something to do, then a few more. A change during a round asks for another one. So what happens while
//! thousands are being served reaches them together, in one go each, instead of one go per change, and the
//! writer of the next change does not stand in line behind all of them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use futures::task::AtomicWaker;
use imbl::OrdMap;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::Notify;

/// More watchers of one prefix than this are woken in rounds, this many at a time.
const AT_ONCE: usize = 64;

/// The watchers of one prefix.
pub(crate) struct Interest {
    prefix: Arc<str>,
    /// One past the sequence number of the newest event under the prefix.
    appended: AtomicU64,
    /// One past the sequence number of the newest event under the prefix that the ring has forgotten.
    forgotten: AtomicU64,
    /// Already among those to be woken after the publication under way.
    called: AtomicBool,
    bells: Mutex<Bells>,
    /// Another round is wanted, where there are rounds.
    round: Notify,
}

#[derive(Default)]
struct Bells {
    /// A persistent map, so that the one who wakes holds no lock while waking.
    wakers: OrdMap<u64, Arc<AtomicWaker>>,
    /// Somebody goes the rounds ([`Rounds`]).
    has_rounds: bool,
}

/// The interests in one resource, by length of prefix, then by prefix.
#[derive(Default)]
pub(crate) struct Interests {
    by_length: BTreeMap<usize, BTreeMap<Arc<str>, Arc<Interest>>>,
    next_bell: u64,
}

/// A watcher's place among those to be woken.
pub(crate) struct Bell {
    id: u64,
    pub(crate) waker: Arc<AtomicWaker>,
    pub(crate) interest: Arc<Interest>,
}

/// The interests that a publication concerns; they are woken once it is visible.
#[derive(Default)]
pub(crate) struct Calls(Vec<Arc<Interest>>);

impl Interests {
    /// Adds a watcher of `prefix`. Events from `start` to `end` may be under the prefix: nobody looked.
    pub(crate) fn add(&mut self, prefix: &Arc<str>, start: u64, end: u64) -> Bell {
        let same_length = self.by_length.entry(prefix.len()).or_default();
        let interest = same_length.entry(prefix.clone()).or_insert_with(|| Interest::new(prefix, start, end));
        self.next_bell += 1;
        let bell = Bell { id: self.next_bell, waker: Arc::default(), interest: interest.clone() };
        interest.add(&bell);
        bell
    }

    /// Removes a watcher, and its interest if it was the last one.
    pub(crate) fn remove(&mut self, bell: &Bell) {
        if bell.interest.remove(bell) > 0 {
            return;
        }
        let prefix = &bell.interest.prefix;
        if let Some(same_length) = self.by_length.get_mut(&prefix.len()) {
            same_length.remove(prefix);
            if same_length.is_empty() {
                self.by_length.remove(&prefix.len());
            }
        }
    }

    /// An event at `sequence` under `path` was appended: those it concerns are added to `calls`.
    pub(crate) fn appended(&self, path: &str, sequence: u64, calls: &mut Calls) {
        for interest in self.matching(path) {
            interest.appended.store(sequence + 1, Ordering::Release);
            calls.add(interest);
        }
    }

    /// The event at `sequence` under `path` was forgotten: those that have not read it hear so when they read on.
    pub(crate) fn forgotten(&self, path: &str, sequence: u64) {
        for interest in self.matching(path) {
            interest.forgotten.store(sequence + 1, Ordering::Release);
        }
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<Interest>> {
        self.by_length.values().flat_map(BTreeMap::values)
    }

    fn matching<'a>(&'a self, path: &'a str) -> impl Iterator<Item = &'a Arc<Interest>> {
        // Watchers choose their prefixes; those longer than the path cost nothing.
        let not_longer = self.by_length.range(..=path.len());
        let prefixes = not_longer.filter_map(|(length, prefixes)| Some((path.get(..*length)?, prefixes)));
        prefixes.filter_map(|(prefix, prefixes)| prefixes.get(prefix))
    }
}

impl Interest {
    fn new(prefix: &Arc<str>, start: u64, end: u64) -> Arc<Self> {
        Arc::new(Self {
            prefix: prefix.clone(),
            appended: AtomicU64::new(end),
            forgotten: AtomicU64::new(start),
            called: AtomicBool::new(false),
            bells: Mutex::default(),
            round: Notify::new(),
        })
    }

    fn add(self: &Arc<Self>, bell: &Bell) {
        let mut bells = self.bells.lock();
        bells.wakers.insert(bell.id, bell.waker.clone());
        if bells.wakers.len() <= AT_ONCE || bells.has_rounds {
            return;
        }
        // Without a runtime to go the rounds on, everybody is woken at once.
        if let Ok(runtime) = Handle::try_current() {
            bells.has_rounds = true;
            runtime.spawn(Rounds(self.clone()).go());
        }
    }

    /// Removes a watcher; returns how many are left.
    fn remove(&self, bell: &Bell) -> usize {
        let mut bells = self.bells.lock();
        bells.wakers.remove(&bell.id);
        if bells.has_rounds && bells.wakers.len() <= AT_ONCE {
            self.round.notify_one();
        }
        bells.wakers.len()
    }

    /// Wakes everyone, now or in the next round.
    fn ring(&self) {
        let bells = self.bells.lock();
        if bells.has_rounds {
            return self.round.notify_one();
        }
        let wakers = bells.wakers.clone();
        drop(bells);
        wakers.values().for_each(|waker| waker.wake());
    }

    /// Something for a watcher at `cursor` may be in the ring, or has been there.
    pub(crate) fn concerns(&self, cursor: u64) -> bool {
        self.appended.load(Ordering::Acquire) > cursor
    }

    /// Something for a watcher at `cursor` is gone.
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

    /// Wakes everyone concerned. Call this without holding a lock: waking runs foreign code.
    pub(crate) fn wake(self) {
        for interest in self.0 {
            interest.called.store(false, Ordering::Release);
            interest.ring();
        }
    }
}

/// Goes the rounds of the many watchers of one prefix, until they are few again.
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
    /// However it ends, whoever is left is woken at once from now on, and for what was missed now.
    fn drop(&mut self) {
        self.0.bells.lock().has_rounds = false;
        self.0.ring();
    }
}
