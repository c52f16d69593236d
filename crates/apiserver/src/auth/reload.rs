//! Configuration files that are read again when they change.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// How often a file is looked at. v1.34 is told of changes by the system, and looks once a minute besides.
pub(super) const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Looks after which the whole file is read, whatever its time and size say.
const READ_EVERY: u32 = 60;

/// A file, and what is known of it.
pub(super) struct Watched {
    path: PathBuf,
    seen: Option<(SystemTime, u64)>,
    looks: u32,
    text: String,
}

impl Watched {
    /// A file whose text is in force.
    pub(super) fn new(path: &Path, text: &str) -> Self {
        Self { path: path.to_owned(), seen: None, looks: 0, text: text.to_owned() }
    }

    /// The file's text, if it has changed.
    pub(super) fn changed(&mut self) -> Result<Option<String>, std::io::Error> {
        let found = fs::metadata(&self.path)?;
        let seen = found.modified().ok().map(|time| (time, found.len()));
        self.looks = (self.looks + 1) % READ_EVERY;
        if seen.is_some() && seen == self.seen && self.looks != 0 {
            return Ok(None);
        }
        let text = fs::read_to_string(&self.path)?;
        self.seen = seen;
        Ok((text != self.text).then_some(text))
    }

    /// The text has been dealt with, for good or bad: it is not looked at again.
    pub(super) fn settle(&mut self, text: String) {
        self.text = text;
    }

    /// The text is to be tried again at the next look.
    pub(super) fn retry(&mut self) {
        self.seen = None;
    }
}
