//! A process's view of its container: files, time, names. Also tracks assumptions about the unknown image.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use jiff::Timestamp;
use parking_lot::Mutex;

use super::{Output, Pace, Stop};
use crate::files::{Entry, FileError, FileSystem};

/// A container as its processes see it. Cheap to clone; clones share it.
#[derive(Clone)]
pub(crate) struct Machine {
    pub(crate) files: FileSystem,
    pub(crate) pace: Pace,
    pub(crate) manner: UnknownCommands,
    pub(crate) identity: Arc<Identity>,
    /// Whether only the end of the run matters. Endless loops are not followed then.
    pub(crate) only_ends: bool,
    /// The streams of the container's main process: stdout and stderr.
    pub(crate) main: Option<Arc<(Output, Output)>>,
    doubts: Arc<Mutex<AssumedFiles>>,
    /// Work that is not counted as steps yet, in bytes.
    owed: Arc<AtomicUsize>,
}

/// Copying, comparing or parsing this many bytes takes about as long as a step.
const BYTES_PER_STEP: usize = 1024;

/// How to handle unknown commands and files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UnknownCommands {
    /// Stop: the rest is unknown.
    Certain,
    /// Report that they do not exist.
    Interactive,
}

/// Whom processes run as, and where.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) host_name: String,
    pub(crate) pod_ip: String,
    pub(crate) user: i64,
    pub(crate) group: i64,
}

/// Files that a run has made assumptions about. Both sets are bounded by the run's text.
#[derive(Debug, Default)]
struct AssumedFiles {
    /// Files that it has created or removed.
    touched: BTreeSet<String>,
    /// Files that were assumed absent, and may be part of the image, with the time of the first assumption.
    missed: BTreeMap<String, Timestamp>,
}

impl Machine {
    pub(crate) fn new(
        files: FileSystem,
        pace: Pace,
        manner: UnknownCommands,
        identity: Arc<Identity>,
    ) -> Self {
        Self {
            files,
            pace,
            manner,
            identity,
            only_ends: false,
            main: None,
            doubts: Arc::default(),
            owed: Arc::default(),
        }
    }

    /// Records work that takes as long as copying this many bytes. It counts with the next step.
    pub(super) fn owe(&self, bytes: usize) {
        self.owed.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Returns the recorded work, in steps.
    pub(super) fn take_owed(&self) -> u64 {
        let steps = self.owed.load(Ordering::Relaxed) / BYTES_PER_STEP;
        self.owed.fetch_sub(steps * BYTES_PER_STEP, Ordering::Relaxed);
        steps as u64
    }

    /// Returns when the run first assumed that a file is absent which may be part of the image, and which it did not
    /// create or remove itself. Its behaviour from then on is uncertain.
    pub(crate) fn first_doubt(&self) -> Option<Timestamp> {
        let doubts = self.doubts.lock();
        let open = doubts.missed.iter().filter(|(path, _)| !doubts.touched.contains(*path));
        open.map(|(_, at)| *at).min()
    }

    fn is_doubtful(&self, path: &str) -> bool {
        self.manner == UnknownCommands::Certain
            && !self.files.is_complete(path)
            && !self.doubts.lock().touched.contains(path)
    }

    /// Records that a file is created or removed.
    pub(crate) fn touch(&self, path: &str) {
        if self.manner == UnknownCommands::Certain {
            self.doubts.lock().touched.insert(path.to_owned());
        }
    }

    /// Returns a file that a script asks about. One that may be part of the image is assumed absent.
    pub(crate) fn look(&self, path: &str) -> Option<Entry> {
        let found = self.files.get(path).ok();
        if found.is_none() && self.is_doubtful(path) {
            self.doubts.lock().missed.entry(path.to_owned()).or_insert_with(|| self.pace.now());
        }
        found
    }

    /// Returns the result of an operation on a file. It is unknown if the file may be part of the image.
    pub(crate) fn certain<T>(
        &self,
        path: &str,
        result: Result<T, FileError>,
    ) -> Result<Result<T, FileError>, Stop> {
        match &result {
            Err(FileError::NotFound) if self.is_doubtful(path) => Err(Stop::Unknown),
            _ => Ok(result),
        }
    }
}
