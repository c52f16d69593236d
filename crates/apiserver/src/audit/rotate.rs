//! The audit log file: appended line by line, and rotated by size.
//!
//! Backups are named and removed as in v1.34: `audit.log` becomes `audit-2025-01-02T15-04-05.000.log`, in UTC;
//! `--audit-log-maxbackup` and `--audit-log-maxage` remove the oldest, `--audit-log-compress` makes them `.gz`. A
//! separate thread maintains the backups, so that no request waits for gzip.
//!
//! Invariants:
//! - a line is written completely or not at all: the remains of a failed write are truncated;
//! - a file that ends in the middle of a line (the process was killed while writing) gets a line break before anything
//!   follows;
//! - files are created with mode 0600.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use flate2::Compression;
use flate2::write::GzEncoder;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use setpoint_clock::Clock;

/// Default maximum file size: 100 MB, as in v1.34.
const DEFAULT_MEGABYTES: u64 = 100;
const MEGABYTE: u64 = 1 << 20;

/// When to rotate the log, and which backups to keep. Zero means no limit.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rotation {
    pub max_megabytes: u64,
    pub max_age_days: u32,
    pub max_backups: usize,
    pub compress: bool,
}

impl Rotation {
    fn max_bytes(&self) -> u64 {
        let megabytes = if self.max_megabytes == 0 { DEFAULT_MEGABYTES } else { self.max_megabytes };
        megabytes.saturating_mul(MEGABYTE)
    }

    fn keeps_everything(&self) -> bool {
        self.max_age_days == 0 && self.max_backups == 0 && !self.compress
    }
}

/// The log file. Only one thread writes to it.
pub(super) struct LogFile {
    path: PathBuf,
    max_bytes: u64,
    file: File,
    size: u64,
    clock: Clock,
    /// Wakes the thread that maintains the backups. One queued wake-up is enough: it checks all of them.
    clean_up: Option<SyncSender<()>>,
}

impl LogFile {
    pub(super) fn open(path: &Path, rotation: Rotation, clock: Clock) -> io::Result<Self> {
        let directory = directory_of(path);
        fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        let (file, size) = append_to(path)?;
        let clean_up = match rotation.keeps_everything() {
            true => None,
            false => Some(start_cleanup(path, rotation, clock.clone())?),
        };
        let log =
            Self { path: path.to_owned(), max_bytes: rotation.max_bytes(), file, size, clock, clean_up };
        log.wake_cleanup();
        Ok(log)
    }

    /// Whether this many more bytes fit.
    pub(super) fn has_room(&self, bytes: usize) -> bool {
        self.size.saturating_add(bytes as u64) <= self.max_bytes
    }

    pub(super) fn is_empty(&self) -> bool {
        self.size == 0
    }

    /// Appends whole lines.
    pub(super) fn write(&mut self, lines: &[u8]) -> io::Result<()> {
        // Not the number of bytes written: another process may have truncated the file.
        let before = self.file.metadata()?.len();
        let written = self.file.write_all(lines);
        match written {
            Ok(()) => self.size = before + lines.len() as u64,
            // A partial line would corrupt the next one.
            Err(_) => {
                let _ = self.file.set_len(before);
            }
        }
        written
    }

    /// Syncs to disk, so that writes survive a crash of the machine.
    pub(super) fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    /// Moves the file to a backup and starts another.
    pub(super) fn rotate(&mut self) -> io::Result<()> {
        self.sync()?;
        let mode = self.file.metadata()?.permissions().mode();
        match fs::rename(&self.path, self.backup_path()) {
            // An earlier rotation stopped here, or another process moved the file.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            renamed => renamed?,
        }
        let begun = OpenOptions::new().append(true).create_new(true).mode(mode & 0o777).open(&self.path)?;
        begun.sync_all()?;
        File::open(directory_of(&self.path))?.sync_all()?;
        self.file = begun;
        self.size = 0;
        self.wake_cleanup();
        Ok(())
    }

    /// Returns an unused name for the backup.
    fn backup_path(&self) -> PathBuf {
        let names = Names::of(&self.path);
        let mut time = self.clock.now();
        loop {
            let path = directory_of(&self.path).join(names.backup(time));
            if !path.exists() {
                return path;
            }
            time += SignedDuration::from_millis(1);
        }
    }

    fn wake_cleanup(&self) {
        if let Some(clean_up) = &self.clean_up {
            let _ = clean_up.try_send(());
        }
    }
}

fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Opens a log file at its end, on a new line.
fn append_to(path: &Path) -> io::Result<(File, u64)> {
    let mut file = OpenOptions::new().append(true).read(true).create(true).mode(0o600).open(path)?;
    let mut size = file.metadata()?.len();
    if size > 0 {
        file.seek(SeekFrom::End(-1))?;
        let mut last = [0];
        file.read_exact(&mut last)?;
        if last != *b"\n" {
            file.write_all(b"\n")?;
            size += 1;
        }
    }
    Ok((file, size))
}

/// Names of a log's backups: the time goes between the name and its extension.
struct Names {
    prefix: String,
    extension: String,
}

const TIME_FORMAT: &str = "%Y-%m-%dT%H-%M-%S%.3f";

impl Names {
    fn of(path: &Path) -> Self {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let dot = name.rfind('.').unwrap_or(name.len());
        Self { prefix: format!("{}-", &name[..dot]), extension: name[dot..].to_owned() }
    }

    fn backup(&self, time: Timestamp) -> String {
        let time = time.to_zoned(TimeZone::UTC).strftime(TIME_FORMAT);
        format!("{}{time}{}", self.prefix, self.extension)
    }

    /// Returns when a backup was made; `None` for any other file.
    fn time_of(&self, name: &str) -> Option<Timestamp> {
        let name = name.strip_suffix(".gz").unwrap_or(name);
        let time = name.strip_prefix(&self.prefix)?.strip_suffix(&self.extension)?;
        let time = DateTime::strptime(TIME_FORMAT, time).ok()?;
        Some(time.to_zoned(TimeZone::UTC).ok()?.timestamp())
    }
}

fn start_cleanup(path: &Path, rotation: Rotation, clock: Clock) -> io::Result<SyncSender<()>> {
    let (wake, woken): (_, Receiver<()>) = sync_channel(1);
    let path = path.to_owned();
    let run = move || {
        for () in woken {
            if let Err(error) = clean_up(&path, rotation, clock.now()) {
                tracing::warn!(%error, path = %path.display(), "cannot clean up the backups of the audit log");
            }
        }
    };
    thread::Builder::new().name("audit-backups".into()).spawn(run)?;
    Ok(wake)
}

/// Removes surplus backups and compresses the others.
fn clean_up(path: &Path, rotation: Rotation, now: Timestamp) -> io::Result<()> {
    let names = Names::of(path);
    let mut backups = Vec::new();
    for entry in fs::read_dir(directory_of(path))? {
        let entry = entry?;
        if let Some(time) = names.time_of(&entry.file_name().to_string_lossy()) {
            backups.push((time, entry.path()));
        }
    }
    // The newest first; a backup and its compressed form count as one.
    backups.sort_by(|one, other| other.cmp(one));
    let age = SignedDuration::from_hours(24 * i64::from(rotation.max_age_days));
    let oldest = (rotation.max_age_days > 0).then(|| now.saturating_sub(age).unwrap_or(Timestamp::MIN));
    let mut kept: Vec<Timestamp> = Vec::new();
    for (time, backup) in backups {
        if kept.last() != Some(&time) {
            kept.push(time);
        }
        let is_surplus = rotation.max_backups > 0 && kept.len() > rotation.max_backups;
        if is_surplus || oldest.is_some_and(|oldest| time < oldest) {
            fs::remove_file(&backup)?;
        } else if rotation.compress && backup.extension().is_none_or(|extension| extension != "gz") {
            compress(&backup)?;
        }
    }
    Ok(())
}

/// Replaces a backup by its compressed form. Redoes an incomplete one from an earlier run.
fn compress(backup: &Path) -> io::Result<()> {
    let mut name = backup.as_os_str().to_owned();
    name.push(".gz");
    let mut source = File::open(backup)?;
    let mode = source.metadata()?.permissions().mode();
    let target = OpenOptions::new().write(true).create(true).truncate(true).mode(mode & 0o777).open(&name)?;
    let mut encoder = GzEncoder::new(target, Compression::default());
    io::copy(&mut source, &mut encoder)?;
    encoder.finish()?.sync_all()?;
    fs::remove_file(backup)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(path: &Path, rotation: Rotation) -> LogFile {
        LogFile::open(path, rotation, Clock::system()).unwrap()
    }

    fn names_in(directory: &Path) -> Vec<String> {
        let entries = fs::read_dir(directory).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_backup_is_named_by_its_time() {
        let names = Names::of(Path::new("/var/log/audit.log"));
        let time: Timestamp = "2025-01-02T03:04:05.006Z".parse().unwrap();
        assert_eq!(names.backup(time), "audit-2025-01-02T03-04-05.006.log");
        assert_eq!(
            names.backup("2025-01-02T03:04:05Z".parse().unwrap()),
            "audit-2025-01-02T03-04-05.000.log"
        );
        for name in ["audit-2025-01-02T03-04-05.006.log", "audit-2025-01-02T03-04-05.006.log.gz"] {
            assert_eq!(names.time_of(name), Some(time), "{name}");
        }
        for name in ["audit.log", "audit-old.log", "other-2025-01-02T03-04-05.006.log"] {
            assert_eq!(names.time_of(name), None, "{name}");
        }
        assert_eq!(Names::of(Path::new("audit")).backup(time), "audit-2025-01-02T03-04-05.006");
    }

    #[test]
    fn rotation_begins_another_file_that_only_its_owner_reads() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("sub/audit.log");
        let mut log = open(&path, Rotation { max_megabytes: 1, ..Rotation::default() });
        log.write(b"first\n").unwrap();
        assert!(!log.has_room(1 << 20));
        log.rotate().unwrap();
        log.rotate().unwrap();
        log.write(b"second\n").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "second\n");
        assert_eq!(names_in(path.parent().unwrap()).len(), 3, "no backup replaces another");
        for name in names_in(path.parent().unwrap()) {
            let mode = fs::metadata(path.parent().unwrap().join(&name)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{name}");
        }
    }

    #[test]
    fn a_truncated_line_does_not_corrupt_the_next() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("audit.log");
        fs::write(&path, "{\"whole\":1}\n{\"cut").unwrap();
        let mut log = open(&path, Rotation::default());
        log.write(b"{}\n").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "{\"whole\":1}\n{\"cut\n{}\n");
    }

    #[test]
    fn backups_beyond_the_limits_go_and_the_others_are_compressed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("audit.log");
        for day in ["01", "02", "03", "04"] {
            fs::write(directory.path().join(format!("audit-2025-01-{day}T00-00-00.000.log")), day).unwrap();
        }
        fs::write(directory.path().join("other.log"), "").unwrap();
        let rotation = Rotation { max_backups: 3, max_age_days: 2, compress: true, ..Rotation::default() };
        clean_up(&path, rotation, "2025-01-04T12:00:00Z".parse().unwrap()).unwrap();
        let expected =
            ["audit-2025-01-03T00-00-00.000.log.gz", "audit-2025-01-04T00-00-00.000.log.gz", "other.log"];
        assert_eq!(names_in(directory.path()), expected);
        let bytes = fs::read(directory.path().join(expected[0])).unwrap();
        let mut text = String::new();
        flate2::read::GzDecoder::new(&*bytes).read_to_string(&mut text).unwrap();
        assert_eq!(text, "03");
    }
}
