//! Watches configuration files for changes.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// How often to check a file. v1.34 uses file system notifications, and also checks once a minute.
pub(super) const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// After this many checks, reads the whole file even if its time and size are unchanged.
const CHECKS_PER_READ: u32 = 60;

/// A watched file and its last known state.
pub(super) struct Watched {
    path: PathBuf,
    seen: Option<(SystemTime, u64)>,
    looks: u32,
    text: String,
}

impl Watched {
    /// Watches a file whose text is already in effect.
    pub(super) fn new(path: &Path, text: &str) -> Self {
        Self { path: path.to_owned(), seen: None, looks: 0, text: text.to_owned() }
    }

    /// Returns the file's text if it has changed.
    pub(super) fn changed(&mut self) -> Result<Option<String>, std::io::Error> {
        let found = fs::metadata(&self.path)?;
        let seen = found.modified().ok().map(|time| (time, found.len()));
        self.looks = (self.looks + 1) % CHECKS_PER_READ;
        if seen.is_some() && seen == self.seen && self.looks != 0 {
            return Ok(None);
        }
        let text = fs::read_to_string(&self.path)?;
        self.seen = seen;
        Ok((text != self.text).then_some(text))
    }

    /// Marks the text as handled, successfully or not, so that it is not reported again.
    pub(super) fn mark_handled(&mut self, text: String) {
        self.text = text;
    }

    /// Reports the text again at the next check.
    pub(super) fn retry(&mut self) {
        self.seen = None;
    }
}
