//! Directories of single runs of programs: private, and removed with the run.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ring::rand::{SecureRandom, SystemRandom};

/// How often removing a directory is attempted again, and when: for a second.
const REMOVALS: usize = 20;
const REMOVED_AGAIN_AFTER: Duration = Duration::from_millis(50);

/// A directory that only this user can read. Dropping it removes it.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new() -> Result<Self, String> {
        let mut random = [0; 16];
        SystemRandom::new()
            .fill(&mut random)
            .map_err(|_| "there is no randomness for the name of a directory")?;
        let name: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
        let path = std::env::temp_dir().join(format!("setpoint-{name}"));
        let created = fs::DirBuilder::new().mode(0o700).create(&path);
        created.map_err(|error| format!("cannot create {}: {error}", path.display()))?;
        Ok(Self(path))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Writes a file, creating the directories above it.
    pub(crate) fn write(&self, name: &str, text: &str) -> Result<PathBuf, String> {
        let path = self.0.join(name);
        let write = || {
            if let Some(parent) = path.parent() {
                fs::DirBuilder::new().recursive(true).mode(0o700).create(parent)?;
            }
            let mut options = fs::OpenOptions::new();
            options
                .write(true)
                .create(true)
                .truncate(true)
                .mode(0o600)
                .open(&path)?
                .write_all(text.as_bytes())
        };
        write().map_err(|error| format!("cannot write {}: {error}", path.display()))?;
        Ok(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let path = std::mem::take(&mut self.0);
        if fs::remove_dir_all(&path).is_ok() {
            return;
        }
        // A program that has just been killed may still have written something. This thread must not wait for it.
        let removing = move || {
            let is_gone = (0..REMOVALS).any(|_| {
                std::thread::sleep(REMOVED_AGAIN_AFTER);
                fs::remove_dir_all(&path).is_ok() || !path.exists()
            });
            if !is_gone {
                tracing::warn!(path = %path.display(), "cannot remove the directory of a run");
            }
        };
        _ = std::thread::Builder::new().spawn(removing);
    }
}
