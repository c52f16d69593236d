//! Files and directories that only their owner can read.
//!
//! The store holds Secrets, tokens and keys. What is created here is private from the first system call on, so there is
//! no moment at which another user of the machine could open it. Wider permissions from an earlier version are
//! tightened.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

const DIRECTORY_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;
/// The permissions of the group and of others.
const NOT_OWNER: u32 = 0o077;

/// Creates a directory and its missing parents.
pub fn create_directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(path)
}

/// Returns options that create a file with permissions only for its owner.
pub fn file_options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.mode(FILE_MODE);
    options
}

/// Creates an empty file for appending, replacing any file of that name.
pub fn create_file(path: &Path) -> io::Result<File> {
    // Not `truncate`: a file that is open elsewhere must not change, and must not keep its wider permissions.
    fs::remove_file(path).or_else(ignore_not_found)?;
    file_options().append(true).create_new(true).open(path)
}

/// Removes the permissions of group and others from a directory and, recursively, from its entries that `is_ours`
/// selects by name. Logs what was changed. Links are left alone.
pub fn tighten(directory: &Path, is_ours: impl Fn(&str) -> bool) -> io::Result<()> {
    let mut tightened = Vec::new();
    tighten_one(directory, &mut tightened)?;
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if is_ours(&entry.file_name().to_string_lossy()) {
            // Another process may be about to release the directory, and remove files from it.
            tighten_below(&entry.path(), &mut tightened).or_else(ignore_not_found)?;
        }
    }
    if !tightened.is_empty() {
        let paths: Vec<_> = tightened.iter().map(|path| path.display().to_string()).collect();
        tracing::warn!(
            paths = paths.join(", "),
            "removed the permissions of group and others: other users could read the data"
        );
    }
    Ok(())
}

fn ignore_not_found(error: io::Error) -> io::Result<()> {
    if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) }
}

fn tighten_below(path: &Path, tightened: &mut Vec<PathBuf>) -> io::Result<()> {
    tighten_one(path, tightened)?;
    if fs::symlink_metadata(path)?.is_dir() {
        for entry in fs::read_dir(path)? {
            tighten_below(&entry?.path(), tightened)?;
        }
    }
    Ok(())
}

fn tighten_one(path: &Path, tightened: &mut Vec<PathBuf>) -> io::Result<()> {
    let metadata = fs::symlink_metadata(path)?;
    let mode = metadata.permissions().mode();
    if metadata.is_symlink() || mode & NOT_OWNER == 0 {
        return Ok(());
    }
    match fs::set_permissions(path, fs::Permissions::from_mode(mode & !NOT_OWNER)) {
        Ok(()) => tightened.push(path.to_owned()),
        // It belongs to another user, who decides who may read it.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            tracing::warn!(path = %path.display(), "other users can read the data, and the permissions are not ours to change");
        }
        Err(error) => return Err(error),
    }
    Ok(())
}
