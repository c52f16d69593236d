//! Who is to be woken by which change.
//!
//! Watchers of the same prefix share one [`Interest`]. A change looks up the interests its path belongs to,
//! one lookup per distinct prefix length, so it wakes only those it concerns, and 5,000 watchers of 5,000
//! namespaces cost a change no more than one does.
//!
//! Per interest two numbers say all that a sleeping watcher needs to know: whether anything for it was
//! appended since its cursor, and whether anything for it was forgotten since. So changes that do not
//! concern a watcher neither wake it nor let it fall behind.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use futures::task::AtomicWaker;
use imbl::OrdMap;
use parking_lot::Mutex;

/// The watchers of one prefix.
pub(crate) struct Interest {
    prefix: Arc<str>,
    /// One past the sequence number of the newest event under the prefix.
    appended: AtomicU64,
    /// One past the sequence number of the newest event under the prefix that the ring has forgotten.
    forgotten: AtomicU64,
    /// Already among those to be woken after the publication under way.
    called: AtomicBool,
    /// A persistent map, so that the one who wakes holds no lock while waking.
    bells: Mutex<OrdMap<u64, Arc<AtomicWaker>>>,
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
        interest.bells.lock().insert(bell.id, bell.waker.clone());
        bell
    }

    /// Removes a watcher, and its interest if it was the last one.
    pub(crate) fn remove(&mut self, bell: &Bell) {
        let mut bells = bell.interest.bells.lock();
        bells.remove(&bell.id);
        if !bells.is_empty() {
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
        let prefixes =
            self.by_length.iter().filter_map(|(length, prefixes)| Some((path.get(..*length)?, prefixes)));
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
        })
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
            let bells = interest.bells.lock().clone();
            bells.values().for_each(|waker| waker.wake());
        }
    }
}
