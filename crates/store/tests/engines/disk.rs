//! An in-memory disk that fails on request, and loses unsynced data on a power failure.
//!
//! The model: a write goes to a cache. A sync makes dirty data in the cache durable. A failed sync leaves the cache as
//! it is, but no longer dirty, so a second sync "succeeds" without the data. Name changes become durable by
//! `sync_names`, or by chance.

use std::collections::BTreeMap;
use std::io::{self, Cursor, Read};
use std::ops::Range;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use setpoint_clock::Rng;
use setpoint_store::{Disk, DiskFile};

const PAGE: usize = 512;

/// A fault to inject into an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// This operation and all later ones fail: the machine has stopped.
    Stop,
    /// Fails once with an I/O error. An append writes a part.
    Fail,
    /// Fails once because the disk is full. An append writes a part.
    Full,
}

/// How much of the unsynced data survives a crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unsynced {
    Lost,
    Kept,
    /// A prefix.
    Torn,
    /// Any subset of its pages.
    Scattered,
}

#[derive(Default)]
pub(crate) struct SimDisk {
    inner: Mutex<Inner>,
    /// Holding this blocks all operations.
    gate: Mutex<()>,
}

#[derive(Default)]
struct Inner {
    names: BTreeMap<String, usize>,
    durable_names: BTreeMap<String, usize>,
    /// The name changes since the last sync.
    unsynced_names: Vec<NameChange>,
    files: Vec<File>,
    operations: u64,
    faults: BTreeMap<u64, Fault>,
    stopped: bool,
    capacity: Option<usize>,
}

/// A file loses a name, gets one, or both.
#[derive(Clone)]
struct NameChange {
    removed: Option<String>,
    added: Option<(String, usize)>,
}

#[derive(Clone, Default)]
struct File {
    cached: Vec<u8>,
    dirty: Vec<Range<usize>>,
    durable: Vec<u8>,
}

struct Handle {
    disk: Arc<SimDisk>,
    file: usize,
}

/// The disk as used by the store.
struct Shared(Arc<SimDisk>);

impl SimDisk {
    pub(crate) fn share(self: &Arc<Self>) -> Arc<dyn Disk> {
        Arc::new(Shared(self.clone()))
    }

    /// Injects faults into the operations with these numbers, counted from the start.
    pub(crate) fn inject(&self, faults: impl IntoIterator<Item = (u64, Fault)>) {
        self.inner.lock().faults = faults.into_iter().collect();
    }

    /// Blocks all operations until `action` has ended.
    pub(crate) fn held(&self, action: impl FnOnce()) {
        let _held = self.gate.lock();
        action();
    }

    /// Locks the inner state for an operation.
    fn operate(&self) -> MutexGuard<'_, Inner> {
        drop(self.gate.lock());
        self.inner.lock()
    }

    pub(crate) fn operations(&self) -> u64 {
        self.inner.lock().operations
    }

    /// Sets the capacity in bytes.
    pub(crate) fn set_capacity(&self, capacity: Option<usize>) {
        self.inner.lock().capacity = capacity;
    }

    /// Returns the disk after a power failure.
    pub(crate) fn after_crash(&self, unsynced: Unsynced, rng: &Rng) -> Arc<Self> {
        let inner = self.inner.lock();
        let mut names = inner.durable_names.clone();
        inner.surviving_name_changes(unsynced, rng).into_iter().for_each(|change| change.apply(&mut names));
        let files = inner.files.iter().map(|file| File::durable(file.after_crash(unsynced, rng))).collect();
        let durable_names = names.clone();
        let inner = Inner { names, durable_names, files, ..Inner::default() };
        Arc::new(Self { inner: Mutex::new(inner), gate: Mutex::default() })
    }

    /// Turns this into the disk that a new process finds after the old one was killed: nothing is lost, nothing is
    /// synced.
    pub(crate) fn after_kill(&self) {
        let mut inner = self.inner.lock();
        inner.stopped = false;
        inner.faults.clear();
    }

    pub(crate) fn content(&self, name: &str) -> Vec<u8> {
        let inner = self.inner.lock();
        inner.files[inner.names[name]].cached.clone()
    }

    pub(crate) fn replace(&self, name: &str, content: Vec<u8>) {
        let mut inner = self.inner.lock();
        let id = inner.names[name];
        inner.files[id] = File::durable(content);
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.inner.lock().names.keys().cloned().collect()
    }
}

impl Inner {
    /// Counts an operation and injects its fault, if there is one.
    fn count(&mut self) -> Result<(), (Fault, io::Error)> {
        let fault = self.faults.get(&self.operations).copied();
        self.operations += 1;
        self.stopped |= fault == Some(Fault::Stop);
        match fault {
            _ if self.stopped => Err((Fault::Stop, io::Error::other("the machine has stopped"))),
            Some(Fault::Full) => Err((Fault::Full, io::ErrorKind::StorageFull.into())),
            Some(fault) => Err((fault, io::Error::other("injected"))),
            None => Ok(()),
        }
    }

    fn used(&self) -> usize {
        self.names.values().map(|id| self.files[*id].cached.len()).sum()
    }

    fn id(&self, name: &str) -> io::Result<usize> {
        self.names.get(name).copied().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn change_names(&mut self, removed: Option<&str>, added: Option<(&str, usize)>) {
        let added = added.map(|(name, file)| (name.to_owned(), file));
        let change = NameChange { removed: removed.map(str::to_owned), added };
        change.clone().apply(&mut self.names);
        self.unsynced_names.push(change);
    }

    fn surviving_name_changes(&self, unsynced: Unsynced, rng: &Rng) -> Vec<NameChange> {
        let mut changes = self.unsynced_names.clone();
        match unsynced {
            Unsynced::Lost => changes.clear(),
            Unsynced::Kept => {}
            Unsynced::Torn => changes.truncate(rng.below(changes.len() as u64 + 1) as usize),
            Unsynced::Scattered => changes.retain(|_| rng.below(2) == 0),
        }
        changes
    }
}

impl NameChange {
    fn apply(self, names: &mut BTreeMap<String, usize>) {
        self.removed.map(|name| names.remove(&name));
        names.extend(self.added);
    }
}

impl File {
    fn durable(content: Vec<u8>) -> Self {
        Self { cached: content.clone(), dirty: Vec::new(), durable: content }
    }

    fn write(&mut self, bytes: &[u8]) {
        let start = self.cached.len();
        self.cached.extend_from_slice(bytes);
        self.dirty.push(start..self.cached.len());
    }

    fn sync(&mut self) {
        self.durable.resize(self.cached.len(), 0);
        for range in std::mem::take(&mut self.dirty) {
            self.durable[range.clone()].copy_from_slice(&self.cached[range]);
        }
    }

    fn truncate(&mut self, length: usize) {
        self.cached.truncate(length);
        self.dirty.retain_mut(|range| {
            range.end = range.end.min(length);
            range.start < range.end
        });
    }

    fn after_crash(&self, unsynced: Unsynced, rng: &Rng) -> Vec<u8> {
        let mut survivor = self.clone();
        match unsynced {
            Unsynced::Lost => survivor.dirty.clear(),
            Unsynced::Kept => {}
            Unsynced::Torn => {
                let dirty: usize = self.dirty.iter().map(Range::len).sum();
                survivor.truncate(self.cached.len() - rng.below(dirty as u64 + 1) as usize);
            }
            Unsynced::Scattered => {
                survivor.dirty = self.dirty.iter().flat_map(|range| pages(range, rng)).collect()
            }
        }
        if unsynced != Unsynced::Lost {
            survivor.sync();
        }
        survivor.durable
    }
}

/// Returns some of the pages of a range.
fn pages(range: &Range<usize>, rng: &Rng) -> Vec<Range<usize>> {
    let starts = range.clone().step_by(PAGE);
    let pages = starts.map(|start| start..(start + PAGE).min(range.end));
    pages.filter(|_| rng.below(2) == 0).collect()
}

impl Disk for Shared {
    fn names(&self) -> io::Result<Vec<String>> {
        Ok(self.0.names())
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        let mut inner = self.0.operate();
        inner.count().map_err(|(_, error)| error)?;
        inner.files.push(File::default());
        let file = inner.files.len() - 1;
        // As on a real disk, the old file is removed first.
        if inner.names.contains_key(name) {
            inner.change_names(Some(name), None);
        }
        inner.change_names(None, Some((name, file)));
        Ok(Box::new(Handle { disk: self.0.clone(), file }))
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        let file = self.0.inner.lock().id(name)?;
        Ok(Box::new(Handle { disk: self.0.clone(), file }))
    }

    fn read(&self, name: &str) -> io::Result<Box<dyn Read + Send>> {
        let inner = self.0.inner.lock();
        Ok(Box::new(Cursor::new(inner.files[inner.id(name)?].cached.clone())))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut inner = self.0.operate();
        inner.count().map_err(|(_, error)| error)?;
        let file = inner.id(from)?;
        inner.change_names(Some(from), Some((to, file)));
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut inner = self.0.operate();
        inner.count().map_err(|(_, error)| error)?;
        inner.id(name)?;
        inner.change_names(Some(name), None);
        Ok(())
    }

    fn sync_names(&self) -> io::Result<()> {
        let mut inner = self.0.operate();
        inner.count().map_err(|(_, error)| error)?;
        inner.durable_names = inner.names.clone();
        inner.unsynced_names.clear();
        Ok(())
    }
}

impl DiskFile for Handle {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut inner = self.disk.operate();
        let room = inner.capacity.map_or(usize::MAX, |capacity| capacity.saturating_sub(inner.used()));
        let mut result = inner.count().map_err(|(_, error)| (bytes.len() / 2, error));
        if result.is_ok() && bytes.len() > room {
            result = Err((room, io::ErrorKind::StorageFull.into()));
        }
        let written = result.as_ref().map_or_else(|(written, _)| *written, |()| bytes.len());
        inner.files[self.file].write(&bytes[..written]);
        result.map_err(|(_, error)| error)
    }

    fn sync(&mut self) -> io::Result<()> {
        let mut inner = self.disk.operate();
        match inner.count() {
            Ok(()) => inner.files[self.file].sync(),
            Err((Fault::Stop, error)) => return Err(error),
            Err((_, error)) => {
                inner.files[self.file].dirty.clear();
                return Err(error);
            }
        }
        Ok(())
    }

    fn truncate(&mut self, length: u64) -> io::Result<()> {
        let mut inner = self.disk.operate();
        inner.count().map_err(|(_, error)| error)?;
        inner.files[self.file].truncate(length as usize);
        Ok(())
    }
}
