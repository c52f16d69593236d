//! The files of a store.
//!
//! Generation `n` is a checkpoint and the log of the changes after it. Generation 1 has no checkpoint. The log of a
//! generation is durable before its checkpoint is. Until the checkpoint is complete, the previous generation continues
//! with two logs.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;

use super::checkpoint::UNFINISHED;
use super::disk::Disk;
use super::format::{FileKind, file_name};
use super::lock::LOCK;

#[derive(Default)]
pub(crate) struct Files {
    pub(crate) logs: BTreeSet<u64>,
    pub(crate) checkpoints: BTreeSet<u64>,
    unfinished: Vec<String>,
}

impl Files {
    pub(crate) fn on(disk: &Arc<dyn Disk>) -> io::Result<Self> {
        let mut files = Self::default();
        for name in disk.names()? {
            if name.ends_with(UNFINISHED) {
                files.unfinished.push(name);
            } else if let Some(generation) = generation_of(&name, "log-") {
                files.logs.insert(generation);
            } else if let Some(generation) = generation_of(&name, "checkpoint-") {
                files.checkpoints.insert(generation);
            }
        }
        Ok(files)
    }

    /// Removes files that are obsolete once the checkpoint of `generation` is complete.
    pub(crate) fn remove_before(disk: &Arc<dyn Disk>, generation: u64) -> io::Result<()> {
        let files = Self::on(disk)?;
        let logs = files.logs.range(..generation).map(|old| file_name(FileKind::Log, *old));
        let checkpoints =
            files.checkpoints.range(..generation).map(|old| file_name(FileKind::Checkpoint, *old));
        logs.chain(checkpoints).try_for_each(|name| disk.remove(&name))
    }

    pub(crate) fn remove_unfinished(&self, disk: &Arc<dyn Disk>) -> io::Result<()> {
        self.unfinished.iter().try_for_each(|name| disk.remove(name))
    }
}

/// Returns whether the store creates files with this name.
pub(crate) fn is_store_file(name: &str) -> bool {
    let name = name.strip_suffix(UNFINISHED).unwrap_or(name);
    name == LOCK || ["log-", "checkpoint-"].iter().any(|prefix| generation_of(name, prefix).is_some())
}

fn generation_of(name: &str, prefix: &str) -> Option<u64> {
    name.strip_prefix(prefix)?.parse().ok()
}
