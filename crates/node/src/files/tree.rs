//! A tree of files and directories, by path. The root is the empty path and always exists.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;

use super::quota::Quota;
use super::{FileError, path};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    Directory { mode: u32, modified: Timestamp },
    File { content: Arc<Vec<u8>>, mode: u32, modified: Timestamp },
}

/// What an entry takes besides its path and content: two strings' worth of map and allocations.
const ENTRY_BYTES: usize = 192;

/// The longest path, as in Linux. Looking at all parents of a path takes the square of its length.
pub(crate) const MAX_PATH: usize = 4096;

#[derive(Debug)]
pub(crate) struct Tree {
    entries: BTreeMap<String, Entry>,
    quota: Arc<Quota>,
    /// The bytes taken from the quota.
    bytes: usize,
}

impl Entry {
    pub(crate) fn mode(&self) -> u32 {
        match self {
            Self::Directory { mode, .. } | Self::File { mode, .. } => *mode,
        }
    }

    pub(crate) fn modified(&self) -> Timestamp {
        match self {
            Self::Directory { modified, .. } | Self::File { modified, .. } => *modified,
        }
    }

    pub(crate) fn is_directory(&self) -> bool {
        matches!(self, Self::Directory { .. })
    }

    pub(crate) fn size(&self) -> usize {
        match self {
            Self::Directory { .. } => 4096,
            Self::File { content, .. } => content.len(),
        }
    }
}

impl Tree {
    pub(crate) fn new(quota: Arc<Quota>) -> Self {
        let root = Entry::Directory { mode: 0o755, modified: Timestamp::UNIX_EPOCH };
        Self { entries: [(String::new(), root)].into(), quota, bytes: 0 }
    }

    pub(crate) fn get(&self, path: &str) -> Option<&Entry> {
        self.entries.get(path)
    }

    /// Returns the names directly in a directory.
    pub(crate) fn list(&self, path: &str) -> Result<Vec<String>, FileError> {
        match self.get(path).ok_or(FileError::NotFound)? {
            Entry::File { .. } => Err(FileError::NotADirectory),
            Entry::Directory { .. } => Ok(self.names(path)),
        }
    }

    /// Lists the names directly in a directory. Everything below them is skipped, not read.
    fn names(&self, path: &str) -> Vec<String> {
        let prefix = if path.is_empty() { String::new() } else { format!("{path}/") };
        let (mut names, mut from) = (Vec::new(), prefix.clone());
        while let Some((key, _)) = self.entries.range(from.clone()..).next()
            && let Some(rest) = key.strip_prefix(&prefix)
        {
            from = match rest.find('/') {
                // The first key after all that start with this directory.
                Some(end) => format!("{prefix}{}0", &rest[..end]),
                None => format!("{key}\0"),
            };
            if !rest.is_empty() && !rest.contains('/') {
                names.push(rest.to_owned());
            }
        }
        names
    }

    /// Lists everything below a directory, with the length of the directory's path.
    fn below<'t>(&'t self, path: &str) -> impl Iterator<Item = (&'t String, usize)> {
        let prefix = if path.is_empty() { String::new() } else { format!("{path}/") };
        let length = prefix.len();
        let keys = self.entries.range(prefix.clone()..).map(|(key, _)| key);
        keys.take_while(move |key| key.starts_with(&prefix))
            .filter(|key| !key.is_empty())
            .map(move |key| (key, length))
    }

    /// Replaces the content of a file, or creates it.
    pub(crate) fn write(
        &mut self,
        path: &str,
        content: Vec<u8>,
        mode: u32,
        modified: Timestamp,
    ) -> Result<(), FileError> {
        self.write_shared(path, Arc::new(content), mode, modified)
    }

    /// Like [`write`](Self::write), with content that is used elsewhere too.
    pub(crate) fn write_shared(
        &mut self,
        path: &str,
        content: Arc<Vec<u8>>,
        mode: u32,
        modified: Timestamp,
    ) -> Result<(), FileError> {
        if matches!(self.get(path), Some(Entry::Directory { .. })) {
            return Err(FileError::IsADirectory);
        }
        self.set(path, Entry::File { content, mode, modified })
    }

    pub(crate) fn append(&mut self, path: &str, more: &[u8], now: Timestamp) -> Result<(), FileError> {
        match self.entries.get_mut(path) {
            Some(Entry::Directory { .. }) => Err(FileError::IsADirectory),
            Some(Entry::File { content, modified, .. }) => {
                if !self.quota.take(more.len()) {
                    return Err(FileError::NoSpace);
                }
                self.bytes += more.len();
                Arc::make_mut(content).extend_from_slice(more);
                *modified = now;
                Ok(())
            }
            None => self.write(path, more.to_vec(), 0o644, now),
        }
    }

    pub(crate) fn touch(&mut self, path: &str, now: Timestamp) -> Result<(), FileError> {
        match self.entries.get_mut(path) {
            Some(Entry::Directory { modified, .. } | Entry::File { modified, .. }) => {
                *modified = now;
                Ok(())
            }
            None => self.write(path, Vec::new(), 0o644, now),
        }
    }

    pub(crate) fn set_mode(&mut self, path: &str, new: u32) -> Result<(), FileError> {
        match self.entries.get_mut(path).ok_or(FileError::NotFound)? {
            Entry::Directory { mode, .. } | Entry::File { mode, .. } => *mode = new,
        }
        Ok(())
    }

    pub(crate) fn make_directory(&mut self, path: &str, now: Timestamp) -> Result<(), FileError> {
        match self.get(path) {
            Some(_) => Err(FileError::Exists),
            None => self.set(path, Entry::Directory { mode: 0o755, modified: now }),
        }
    }

    /// Creates a directory and its parents, unless they exist.
    pub(crate) fn make_directories(&mut self, path: &str, now: Timestamp) -> Result<(), FileError> {
        check_length(path)?;
        let ends = path.match_indices('/').map(|(at, _)| at).chain([path.len()]);
        for directory in ends.map(|end| &path[..end]).filter(|directory| !directory.is_empty()) {
            match self.get(directory) {
                Some(Entry::Directory { .. }) => {}
                Some(Entry::File { .. }) => return Err(FileError::NotADirectory),
                None => self.set(directory, Entry::Directory { mode: 0o755, modified: now })?,
            }
        }
        Ok(())
    }

    /// Removes a file, or a directory with everything below it. The root is emptied.
    pub(crate) fn remove(&mut self, path: &str) -> Result<(), FileError> {
        if self.get(path).is_none() {
            return Err(FileError::NotFound);
        }
        let below: Vec<String> = self.below(path).map(|(key, _)| key.clone()).collect();
        let itself = (!path.is_empty()).then(|| path.to_owned());
        for key in below.into_iter().chain(itself) {
            let freed = self.entries.remove(&key).map_or(0, |entry| cost(&key, &entry));
            self.give_back(freed);
        }
        Ok(())
    }

    /// Sets an entry whose parent is a directory.
    fn set(&mut self, path: &str, entry: Entry) -> Result<(), FileError> {
        check_length(path)?;
        match self.get(path::split(path).0) {
            Some(Entry::Directory { .. }) => {}
            Some(Entry::File { .. }) => return Err(FileError::NotADirectory),
            None => {
                let is_below_a_file = |end: usize| matches!(self.get(&path[..end]), Some(Entry::File { .. }));
                let below_a_file = path.match_indices('/').any(|(end, _)| is_below_a_file(end));
                return Err(if below_a_file { FileError::NotADirectory } else { FileError::NotFound });
            }
        }
        let needed = cost(path, &entry);
        if !self.quota.take(needed) {
            return Err(FileError::NoSpace);
        }
        self.bytes += needed;
        let freed = self.entries.insert(path.to_owned(), entry).map_or(0, |old| cost(path, &old));
        self.give_back(freed);
        Ok(())
    }

    fn give_back(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_sub(bytes);
        self.quota.give_back(bytes);
    }
}

fn check_length(path: &str) -> Result<(), FileError> {
    if path.len() > MAX_PATH { Err(FileError::NameTooLong) } else { Ok(()) }
}

fn cost(path: &str, entry: &Entry) -> usize {
    let content = match entry {
        Entry::File { content, .. } => content.len(),
        Entry::Directory { .. } => 0,
    };
    ENTRY_BYTES + 2 * path.len() + content
}

impl Drop for Tree {
    fn drop(&mut self) {
        self.quota.give_back(self.bytes);
    }
}
