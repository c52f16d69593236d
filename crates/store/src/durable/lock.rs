//! Makes sure that only one process uses a data directory.

use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::path::Path;

use super::OpenError;
use crate::private;

/// The name of the lock file.
pub(crate) const LOCK: &str = "LOCK";

/// Held while the store is open. The system releases it when the process ends, however it ends.
pub(crate) struct DirectoryLock {
    _file: File,
}

impl DirectoryLock {
    pub(crate) fn take(directory: &Path) -> Result<Self, OpenError> {
        let path = directory.join(LOCK);
        let failed = |source| OpenError::io(format!("lock {}", path.display()), source);
        let mut options = private::file_options();
        let mut file = options.create(true).truncate(false).write(true).open(&path).map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(in_use(directory, &path)),
            Err(TryLockError::Error(source)) => return Err(failed(source)),
        }
        write_holder(&mut file).map_err(failed)?;
        Ok(Self { _file: file })
    }
}

fn write_holder(file: &mut File) -> io::Result<()> {
    file.set_len(0)?;
    write!(file, "{}", std::process::id())
}

fn in_use(directory: &Path, lock: &Path) -> OpenError {
    let holder = fs::read_to_string(lock).unwrap_or_default();
    let holder = if holder.is_empty() { "another process".to_owned() } else { format!("process {holder}") };
    OpenError::InUse { directory: directory.to_owned(), holder }
}
