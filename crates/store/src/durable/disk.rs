//! The disk interface of the durable engine. Tests implement it to inject faults.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use super::files::is_store_file;
use crate::private;

/// A flat directory of append-only files, which can be truncated or removed.
pub trait Disk: Send + Sync + 'static {
    /// Returns the names of all files, in any order.
    fn names(&self) -> io::Result<Vec<String>>;

    /// Creates an empty file, replacing any file of that name. The name is durable after
    /// [`sync_names`](Self::sync_names).
    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>>;

    /// Opens an existing file for appending.
    fn open(&self, name: &str) -> io::Result<Box<dyn DiskFile>>;

    /// Opens a file for reading from the start.
    fn read(&self, name: &str) -> io::Result<Box<dyn Read + Send>>;

    /// Renames a file, replacing the one at `to` if there is one.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    fn remove(&self, name: &str) -> io::Result<()>;

    /// Makes creations, renames and removals durable.
    fn sync_names(&self) -> io::Result<()>;
}

/// An open file.
pub trait DiskFile: Send {
    /// Appends to the file. After an error, any part of `bytes` may have been written.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// Makes written data durable. After an error, the state of everything written since the last success is unknown,
    /// and calling this again does not help: the system may have dropped the data.
    fn sync(&mut self) -> io::Result<()>;

    /// Truncates the file to `length`.
    fn truncate(&mut self, length: u64) -> io::Result<()>;
}

/// A directory of the file system.
pub(crate) struct Directory {
    path: PathBuf,
}

impl Directory {
    /// Opens the directory at `path`, creating it if necessary. Only its owner can read it and the store's files.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        private::create_directory(path)?;
        private::tighten(path, is_store_file)?;
        Ok(Self { path: path.to_owned() })
    }

    /// Uses a directory as it is.
    pub(crate) fn existing(path: &Path) -> Self {
        Self { path: path.to_owned() }
    }
}

impl Disk for Directory {
    fn names(&self) -> io::Result<Vec<String>> {
        let entries = fs::read_dir(&self.path)?;
        entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        Ok(Box::new(private::create_file(&self.path.join(name))?))
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        Ok(Box::new(OpenOptions::new().append(true).open(self.path.join(name))?))
    }

    fn read(&self, name: &str) -> io::Result<Box<dyn Read + Send>> {
        Ok(Box::new(File::open(self.path.join(name))?))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.path.join(from), self.path.join(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.path.join(name))
    }

    fn sync_names(&self) -> io::Result<()> {
        File::open(&self.path)?.sync_all()
    }
}

impl DiskFile for File {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.write_all(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.sync_data()
    }

    fn truncate(&mut self, length: u64) -> io::Result<()> {
        self.set_len(length)
    }
}
