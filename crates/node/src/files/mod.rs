//! The simulated file system of a container: trees of files, mounted at paths.
//!
//! ```text
//!  tree.rs     one volume, or the root of a container
//!  quota.rs    how much memory files may take
//!  path.rs     pure: normal paths
//!  pattern.rs  pure: shell patterns
//!  archive.rs  pure: tar archives, for `kubectl cp`
//! ```
//!
//! Invariants:
//! - a path outside of every mount belongs to the container's root;
//! - nothing is written to a read-only mount;
//! - what all files of a process take is bounded by the quotas of their trees.

pub(crate) mod archive;
pub(crate) mod path;
pub(crate) mod pattern;
mod quota;
mod tree;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use jiff::Timestamp;
use parking_lot::Mutex;

pub(crate) use quota::Quota;
pub(crate) use tree::{Entry, MAX_PATH, Tree};

/// A tree that containers and processes share.
pub(crate) type Shared = Arc<Mutex<Tree>>;

/// A tree at a path.
#[derive(Clone, Debug)]
pub(crate) struct Mount {
    /// A normal path without a trailing slash. The root is empty.
    pub(crate) at: String,
    pub(crate) tree: Shared,
    /// The path inside the tree, from `subPath`.
    pub(crate) within: String,
    pub(crate) is_read_only: bool,
    /// Whether the tree holds all files that a real one would. The image of a container is not known.
    pub(crate) is_complete: bool,
}

/// The files that a container sees. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct FileSystem {
    /// Longest path first, the root last.
    mounts: Arc<[Mount]>,
    /// Set by the first change, if someone wants to know.
    changed: Option<Arc<AtomicBool>>,
}

/// Why an operation fails, in the words of libc.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileError {
    NotFound,
    NotADirectory,
    IsADirectory,
    Exists,
    ReadOnly,
    NoSpace,
    NotEmpty,
    Busy,
    NameTooLong,
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotFound => "No such file or directory",
            Self::NotADirectory => "Not a directory",
            Self::IsADirectory => "Is a directory",
            Self::Exists => "File exists",
            Self::ReadOnly => "Read-only file system",
            Self::NoSpace => "No space left on device",
            Self::NotEmpty => "Directory not empty",
            Self::Busy => "Device or resource busy",
            Self::NameTooLong => "File name too long",
        })
    }
}

impl FileSystem {
    /// Mounts trees over a root. Missing mount points are created.
    pub(crate) fn new(root: Mount, mounts: Vec<Mount>, now: Timestamp) -> Self {
        let mut all = mounts;
        all.sort_by(|a, b| b.at.len().cmp(&a.at.len()).then_with(|| a.at.cmp(&b.at)));
        let points: Vec<(String, bool)> =
            all.iter().map(|mount| (mount.at.clone(), mount.is_file())).collect();
        all.push(root);
        let files = Self { mounts: all.into(), changed: None };
        // Parents first, so that a mount inside another one finds its place. A tree that cannot hold another entry lacks
        // the mount point in listings, nothing else.
        for (at, is_file) in points.into_iter().rev() {
            files.make_mount_point(&at, is_file, now);
        }
        files
    }

    /// Returns the same files, whose changes through this handle are noted.
    pub(crate) fn noting(&self, changed: &Arc<AtomicBool>) -> Self {
        Self { mounts: self.mounts.clone(), changed: Some(changed.clone()) }
    }

    fn make_mount_point(&self, at: &str, is_file: bool, now: Timestamp) {
        let (parent, _) = path::split(at);
        let (mount, key) = self.locate(parent);
        let mut tree = mount.tree.lock();
        let inside = path::below(&key, path::name(at));
        if tree.get(&inside).is_some() {
            return;
        }
        _ = tree.make_directories(&key, now);
        _ = if is_file {
            tree.write(&inside, Vec::new(), 0o644, now)
        } else {
            tree.make_directories(&inside, now)
        };
    }

    /// Returns the mount of a normal path, and the path inside its tree.
    fn locate(&self, path: &str) -> (&Mount, String) {
        let found = self.mounts.iter().find_map(|mount| {
            let rest = path.strip_prefix(&*mount.at)?;
            (rest.is_empty() || rest.starts_with('/')).then_some((mount, rest))
        });
        // The root's path is empty, so it has every path.
        let (mount, rest) = found.unwrap_or((&self.mounts[self.mounts.len() - 1], path));
        (mount, path::below(&mount.within, rest.trim_start_matches('/')))
    }

    /// Whether all files around a path are known. Otherwise a file that is missing may exist in the image.
    pub(crate) fn is_complete(&self, path: &str) -> bool {
        self.locate(path).0.is_complete
    }

    pub(crate) fn get(&self, path: &str) -> Result<Entry, FileError> {
        let (mount, key) = self.locate(path);
        mount.tree.lock().get(&key).cloned().ok_or(FileError::NotFound)
    }

    /// Returns the content of a file.
    pub(crate) fn read(&self, path: &str) -> Result<Arc<Vec<u8>>, FileError> {
        match self.get(path)? {
            Entry::File { content, .. } => Ok(content),
            Entry::Directory { .. } => Err(FileError::IsADirectory),
        }
    }

    /// Returns the names in a directory.
    pub(crate) fn list(&self, path: &str) -> Result<Vec<String>, FileError> {
        let (mount, key) = self.locate(path);
        mount.tree.lock().list(&key)
    }

    /// Replaces the content of a file, or creates it.
    pub(crate) fn write(&self, path: &str, content: Vec<u8>, now: Timestamp) -> Result<(), FileError> {
        self.write_shared(path, Arc::new(content), now)
    }

    /// Like [`write`](Self::write), with content that another file has too.
    pub(crate) fn write_shared(
        &self,
        path: &str,
        content: Arc<Vec<u8>>,
        now: Timestamp,
    ) -> Result<(), FileError> {
        self.change(path, |tree, key| {
            let mode = tree.get(key).map_or(0o644, Entry::mode);
            tree.write_shared(key, content, mode, now)
        })
    }

    pub(crate) fn append(&self, path: &str, content: &[u8], now: Timestamp) -> Result<(), FileError> {
        self.change(path, |tree, key| tree.append(key, content, now))
    }

    /// Creates a file, or sets its time.
    pub(crate) fn touch(&self, path: &str, now: Timestamp) -> Result<(), FileError> {
        self.change(path, |tree, key| tree.touch(key, now))
    }

    pub(crate) fn make_directory(&self, path: &str, now: Timestamp) -> Result<(), FileError> {
        if self.get(path).is_ok() {
            return Err(FileError::Exists);
        }
        self.change(path, |tree, key| tree.make_directory(key, now))
    }

    pub(crate) fn set_mode(&self, path: &str, mode: u32) -> Result<(), FileError> {
        self.change(path, |tree, key| tree.set_mode(key, mode))
    }

    /// Removes a file, or a directory with everything below it.
    pub(crate) fn remove(&self, path: &str) -> Result<(), FileError> {
        let prefix = format!("{}/", path.trim_end_matches('/'));
        if self.mounts.iter().any(|mount| mount.at == path || mount.at.starts_with(&prefix)) {
            return Err(FileError::Busy);
        }
        self.change(path, Tree::remove)
    }

    fn change(
        &self,
        path: &str,
        change: impl FnOnce(&mut Tree, &str) -> Result<(), FileError>,
    ) -> Result<(), FileError> {
        let (mount, key) = self.locate(path);
        if mount.is_read_only {
            return Err(FileError::ReadOnly);
        }
        if let Some(changed) = &self.changed {
            changed.store(true, Ordering::Relaxed);
        }
        change(&mut mount.tree.lock(), &key)
    }
}

impl Mount {
    /// Returns the root of a container.
    pub(crate) fn root(tree: Shared, is_read_only: bool) -> Self {
        Self { at: String::new(), tree, within: String::new(), is_read_only, is_complete: false }
    }

    /// Whether a single file is mounted, by `subPath`.
    fn is_file(&self) -> bool {
        matches!(self.tree.lock().get(&self.within), Some(Entry::File { .. }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Timestamp {
        "2025-01-01T00:00:00Z".parse().expect("a time")
    }

    fn shared(files: &[(&str, &str)]) -> Shared {
        let mut tree = Tree::new(Quota::new(1 << 20));
        for (path, content) in files {
            tree.make_directories(path::split(path).0, now()).expect("room");
            tree.write(path, content.as_bytes().to_vec(), 0o644, now()).expect("room");
        }
        Arc::new(Mutex::new(tree))
    }

    fn mount(at: &str, tree: &Shared, within: &str, is_read_only: bool) -> Mount {
        Mount { at: at.into(), tree: tree.clone(), within: within.into(), is_read_only, is_complete: true }
    }

    fn text(files: &FileSystem, path: &str) -> String {
        let read = files.read(path);
        read.map_or_else(|why| why.to_string(), |content| String::from_utf8_lossy(&content).into_owned())
    }

    #[test]
    fn volumes_are_mounted_over_the_root_and_over_each_other() {
        let config = shared(&[("a.conf", "A"), ("b.conf", "B")]);
        let data = shared(&[("x/y", "XY")]);
        let root = Mount::root(shared(&[("etc/hosts", "hosts")]), false);
        let mounts = vec![
            mount("/data", &data, "", false),
            mount("/etc/config", &config, "", true),
            mount("/data/one.conf", &config, "a.conf", true),
            mount("/y", &data, "x", false),
        ];
        let files = FileSystem::new(root, mounts, now());
        assert_eq!(text(&files, "/etc/config/a.conf"), "A");
        assert_eq!(text(&files, "/data/one.conf"), "A");
        assert_eq!((text(&files, "/data/x/y"), text(&files, "/y/y")), ("XY".into(), "XY".into()));
        assert_eq!(text(&files, "/etc/hosts"), "hosts");
        assert_eq!(files.list("/"), Ok(vec!["data".into(), "etc".into(), "y".into()]));
        assert_eq!(files.list("/data"), Ok(vec!["one.conf".into(), "x".into()]));
        assert_eq!(files.write("/etc/config/c", Vec::new(), now()), Err(FileError::ReadOnly));
        files.write("/y/z", b"Z".to_vec(), now()).expect("a directory");
        assert_eq!(text(&files, "/data/x/z"), "Z");
        assert_eq!(files.remove("/data"), Err(FileError::Busy));
        assert_eq!((files.is_complete("/data/q"), files.is_complete("/datum")), (true, false));
    }

    #[test]
    fn operations_fail_as_libc_says() {
        let root = Mount::root(shared(&[("d/f", "1")]), false);
        let files = FileSystem::new(root, Vec::new(), now());
        assert_eq!(files.read("/d"), Err(FileError::IsADirectory));
        assert_eq!(files.read("/d/g").map(drop), Err(FileError::NotFound));
        assert_eq!(files.list("/d/f"), Err(FileError::NotADirectory));
        assert_eq!(files.write("/no/f", Vec::new(), now()), Err(FileError::NotFound));
        assert_eq!(files.write("/d/f/g", Vec::new(), now()), Err(FileError::NotADirectory));
        assert_eq!(files.make_directory("/d", now()), Err(FileError::Exists));
        assert_eq!(files.write("/big", vec![0; 2 << 20], now()), Err(FileError::NoSpace));
        files.append("/d/f", b"2", now()).expect("a file");
        assert_eq!(text(&files, "/d/f"), "12");
        files.remove("/d").expect("a directory");
        assert_eq!(files.get("/d/f").map(drop), Err(FileError::NotFound));
    }

    #[test]
    fn removed_files_give_their_room_back() {
        let quota = Quota::new(10_000);
        let mut tree = Tree::new(quota.clone());
        for _ in 0..10 {
            tree.write("f", vec![0; 8000], 0o644, now()).expect("room");
            tree.remove("f").expect("a file");
        }
        tree.write("f", vec![0; 8000], 0o644, now()).expect("room");
        assert_eq!(tree.append("f", &[0; 8000], now()), Err(FileError::NoSpace));
        drop(tree);
        assert_eq!(quota.used(), 0);
    }
}
