//! Snapshots: the state of a store in one file, from which a data directory can be restored.
//!
//! A snapshot is a checkpoint under another name, so every frame in it has a checksum, and its header says how many
//! records there are. Values are copied as they are: encrypted ones need the same keys after the restore.
//!
//! Invariants:
//! - A snapshot is the state at one revision, with everything that was acknowledged up to it.
//! - A file under the name of a snapshot is complete and was read back. Until then it has another name.
//! - Reading a data directory changes nothing in it, so a server may be using it.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use setpoint_encryption::Transformers;

use super::checkpoint::{Checkpoint, UNFINISHED};
use super::disk::{Directory, Disk};
use super::files::Files;
use super::format::{Entries, Entry, FileHeader, FileKind, begin_frame, file_name, finish_frame};
use super::lock::DirectoryLock;
use super::log::Log;
use super::recovery::{self, FrameReader};
use super::{DurableStore, OpenError};
use crate::core::State;
use crate::index::Index;
use crate::sealing::Sealing;
use crate::{Limits, Record, Revision};

/// The generation of a restored store. The first one has no checkpoint.
const GENERATION: u64 = 2;
/// How often to start over if the server that uses the directory replaces files while they are read.
const ATTEMPTS: usize = 10;
/// The approximate number of bytes written at a time.
const SLICE: usize = 2 << 20;

/// What is in a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotInfo {
    /// Its state is the one at this revision.
    pub revision: Revision,
    pub records: u64,
    /// The length of the file.
    pub bytes: u64,
    /// Of all records.
    pub checksum: u32,
}

/// Why a snapshot could not be written, read or restored.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    #[error("{} exists: choose another name", .0.display())]
    Exists(PathBuf),
    #[error("{} has no store: expected a data directory of setpoint", .0.display())]
    NoStore(PathBuf),
    #[error("{} already has a store: restore to another directory, or move its log-* and checkpoint-* files away", .0.display())]
    NotEmpty(PathBuf),
    #[error("{}: expected the path of a file", .0.display())]
    NotAFile(PathBuf),
    #[error("{file} is a log, expected a snapshot")]
    NotASnapshot { file: String },
    #[error("what was read back is not what was written: {written} and {read}")]
    Unfaithful { written: SnapshotInfo, read: SnapshotInfo },
    #[error("{} cannot be read: {why}", record)]
    Unreadable { record: String, why: String },
    #[error(transparent)]
    Open(#[from] OpenError),
}

impl fmt::Display for SnapshotInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { revision, records, bytes, checksum } = self;
        write!(f, "revision {revision}, {records} records, {bytes} bytes, checksum {checksum:08x}")
    }
}

/// All records of a store at one revision.
pub struct Contents {
    pub revision: Revision,
    pub records: Vec<Arc<Record>>,
}

impl DurableStore {
    /// Writes a snapshot of what is published. Takes as long as reading and writing everything once, so call it on a
    /// thread that may block.
    pub fn save_snapshot(&self, to: &Path) -> Result<SnapshotInfo, SnapshotError> {
        let (revision, indexes) = self.core.read().indexes();
        write(revision, indexes, &self.sealing, to)
    }
}

/// Writes a snapshot of a data directory. A server may be using it.
pub fn save_snapshot(directory: &Path, to: &Path) -> Result<SnapshotInfo, SnapshotError> {
    let state = read_directory(directory)?;
    let (revision, indexes) = state.indexes();
    // Without keys, values are copied as they are stored.
    write(revision, indexes, &Sealing::default(), to)
}

/// Reads a whole snapshot and checks it.
pub fn check_snapshot(file: &Path) -> Result<SnapshotInfo, SnapshotError> {
    let (disk, name) = place(file)?;
    let mut reader = open(&disk, &name)?;
    read(&mut reader, |_| Ok(())).map(|(_, info)| info)
}

/// Restores a snapshot to a data directory that has no store. Its revision grows by `bump`: clients that have seen later
/// revisions than the snapshot's then start again, instead of taking other changes for those they have seen.
pub fn restore_snapshot(file: &Path, directory: &Path, bump: u64) -> Result<SnapshotInfo, SnapshotError> {
    let info = check_snapshot(file)?;
    let failed = |attempt: &str| {
        let attempt = format!("{attempt} {}", directory.display());
        move |source| SnapshotError::Open(OpenError::io(attempt, source))
    };
    let disk: Arc<dyn Disk> =
        Arc::new(Directory::open(directory).map_err(failed("make the data directory"))?);
    let _lock = DirectoryLock::take(directory)?;
    check_empty(&disk, directory)?;
    let restored = copy(file, &disk, info.revision.saturating_add(bump));
    let checked = restored.and_then(|()| check_restored(directory, info, bump));
    if checked.is_err() {
        remove_all(&disk);
    }
    checked
}

fn check_empty(disk: &Arc<dyn Disk>, directory: &Path) -> Result<(), SnapshotError> {
    let files = Files::on(disk).map_err(|source| OpenError::io("list the data directory", source))?;
    match files.logs.is_empty() && files.checkpoints.is_empty() {
        true => Ok(()),
        false => Err(SnapshotError::NotEmpty(directory.to_owned())),
    }
}

/// Removes what an unfinished restore has written.
fn remove_all(disk: &Arc<dyn Disk>) {
    for kind in [FileKind::Checkpoint, FileKind::Log] {
        let name = file_name(kind, GENERATION);
        _ = disk.remove(&name);
        _ = disk.remove(&format!("{name}{UNFINISHED}"));
    }
}

/// Copies a snapshot to the checkpoint of a store.
fn copy(file: &Path, disk: &Arc<dyn Disk>, revision: Revision) -> Result<(), SnapshotError> {
    let failed = |source| OpenError::io("write the restored store", source);
    let (from, name) = place(file)?;
    let mut reader = open(&from, &name)?;
    // Before the checkpoint: without its log, a checkpoint is damage.
    Log::create(disk, GENERATION, revision).map_err(failed)?;
    let checkpoint = file_name(FileKind::Checkpoint, GENERATION);
    let unfinished = format!("{checkpoint}{UNFINISHED}");
    let mut output = disk.create(&unfinished).map_err(failed)?;
    let header = header_of(&reader)?;
    let header = FileHeader { generation: GENERATION, revision, ..header };
    output.append(&header.encode()).map_err(failed)?;
    let mut frame = Vec::new();
    read(&mut reader, |body| {
        begin_frame(&mut frame);
        frame.extend_from_slice(body);
        finish_frame(&mut frame);
        output.append(&frame)
    })?;
    output.sync().map_err(failed)?;
    disk.rename(&unfinished, &checkpoint).map_err(failed)?;
    Ok(disk.sync_names().map_err(failed)?)
}

fn check_restored(directory: &Path, written: SnapshotInfo, bump: u64) -> Result<SnapshotInfo, SnapshotError> {
    let disk: Arc<dyn Disk> = Arc::new(Directory::existing(directory));
    let mut reader = open(&disk, &file_name(FileKind::Checkpoint, GENERATION))?;
    let (_, read) = read(&mut reader, |_| Ok(()))?;
    let expected = SnapshotInfo { revision: written.revision.saturating_add(bump), ..written };
    match read == expected {
        true => Ok(read),
        false => Err(SnapshotError::Unfaithful { written: expected, read }),
    }
}

/// Reads all records of a data directory that no server uses, decrypted.
pub async fn read_contents(
    directory: &Path,
    transformers: Option<Arc<dyn Transformers>>,
) -> Result<Contents, SnapshotError> {
    let _lock = DirectoryLock::take(directory)?;
    let sealing = transformers.map(Sealing::with).unwrap_or_default();
    let (revision, indexes) = read_directory(directory)?.indexes();
    let mut records = Vec::new();
    for record in indexes.iter().flat_map(|index| index.after(None)) {
        records.push(match record.unreadable() {
            None => record.clone(),
            Some(_) => Arc::new(
                sealing
                    .open(record)
                    .await
                    .map_err(|why| SnapshotError::Unreadable { record: record.key.to_string(), why })?,
            ),
        });
    }
    Ok(Contents { revision, records })
}

/// Writes all records to a data directory that has no store, encrypted as configured.
pub fn write_contents(
    contents: &Contents,
    directory: &Path,
    transformers: Option<Arc<dyn Transformers>>,
) -> Result<SnapshotInfo, SnapshotError> {
    let failed = |source| OpenError::io("write the store", source);
    let disk: Arc<dyn Disk> = Arc::new(Directory::open(directory).map_err(failed)?);
    let _lock = DirectoryLock::take(directory)?;
    check_empty(&disk, directory)?;
    let sealing = transformers.map(Sealing::with).unwrap_or_default();
    let mut state = State::new(Limits::default());
    contents.records.iter().for_each(|record| state.load(record.clone()));
    state.start_at(contents.revision);
    let (revision, indexes) = state.indexes();
    let written = Log::create(&disk, GENERATION, revision).and_then(|_| {
        let name = file_name(FileKind::Checkpoint, GENERATION);
        let begun = Checkpoint::begin_named(&disk, name, GENERATION, revision, indexes, SLICE, &sealing);
        finish(begun?)
    });
    let checked = written.map_err(|source| SnapshotError::Open(failed(source))).and_then(|()| {
        let mut reader = open(&disk, &file_name(FileKind::Checkpoint, GENERATION))?;
        Ok(read(&mut reader, |_| Ok(()))?.1)
    });
    if checked.is_err() {
        remove_all(&disk);
    }
    checked
}

/// Reads the state of a data directory, whether or not a server uses it.
fn read_directory(directory: &Path) -> Result<State, SnapshotError> {
    let disk: Arc<dyn Disk> = Arc::new(Directory::existing(directory));
    let mut attempt = 1;
    loop {
        let files = Files::on(&disk).map_err(|source| {
            OpenError::io(format!("list the data directory {}", directory.display()), source)
        })?;
        if files.logs.is_empty() && files.checkpoints.is_empty() {
            return Err(SnapshotError::NoStore(directory.to_owned()));
        }
        match recovery::read_only(&disk, &files) {
            // A server has replaced files meanwhile, or has finished a frame that looked broken.
            Err(OpenError::Io { source, .. })
                if source.kind() == io::ErrorKind::NotFound && attempt < ATTEMPTS => {}
            Err(OpenError::Damaged { .. }) if attempt < ATTEMPTS => {}
            read => return Ok(read?),
        }
        attempt += 1;
    }
}

fn write(
    revision: Revision,
    indexes: Vec<Index>,
    sealing: &Sealing,
    to: &Path,
) -> Result<SnapshotInfo, SnapshotError> {
    let (disk, name) = place(to)?;
    if to.exists() {
        return Err(SnapshotError::Exists(to.to_owned()));
    }
    let records: u64 = indexes.iter().map(|index| index.len() as u64).sum();
    let failed = |source| OpenError::io(format!("write {}", to.display()), source);
    let unfinished: Arc<str> = format!("{name}{UNFINISHED}").into();
    // It is read back under a name that is not the snapshot's yet.
    let begun = Checkpoint::begin_named(&disk, unfinished.clone(), 1, revision, indexes, SLICE, sealing);
    let written = begun.and_then(finish).map_err(|source| SnapshotError::Open(failed(source)));
    let checked = written.and_then(|()| {
        let mut reader = open(&disk, &unfinished)?;
        let (_, info) = read(&mut reader, |_| Ok(()))?;
        match (info.revision, info.records) == (revision, records) {
            true => Ok(info),
            false => {
                let written = SnapshotInfo { revision, records, ..info };
                Err(SnapshotError::Unfaithful { written, read: info })
            }
        }
    });
    let named = checked.and_then(|info| {
        let renamed = disk.rename(&unfinished, &name).and_then(|()| disk.sync_names());
        renamed.map(|()| info).map_err(|source| SnapshotError::Open(failed(source)))
    });
    if named.is_err() {
        _ = disk.remove(&unfinished);
        _ = disk.remove(&format!("{unfinished}{UNFINISHED}"));
    }
    named
}

fn finish(mut checkpoint: Checkpoint) -> io::Result<()> {
    loop {
        match checkpoint.step() {
            Ok(false) => {}
            Ok(true) => return Ok(()),
            Err(error) => {
                checkpoint.abandon();
                return Err(error);
            }
        }
    }
}

/// Returns the directory of a file, and its name there.
fn place(file: &Path) -> Result<(Arc<dyn Disk>, Arc<str>), SnapshotError> {
    let name = file.file_name().and_then(|name| name.to_str());
    let name = name.ok_or_else(|| SnapshotError::NotAFile(file.to_owned()))?;
    let parent = file.parent().filter(|parent| !parent.as_os_str().is_empty());
    let disk = Directory::existing(parent.unwrap_or(Path::new(".")));
    Ok((Arc::new(disk), name.into()))
}

fn open<'d>(disk: &'d Arc<dyn Disk>, name: &Arc<str>) -> Result<FrameReader<'d>, SnapshotError> {
    let reader = FrameReader::open(disk, name)?;
    let header = header_of(&reader)?;
    match header.kind {
        FileKind::Checkpoint => Ok(reader),
        FileKind::Log => Err(SnapshotError::NotASnapshot { file: name.to_string() }),
    }
}

fn header_of(reader: &FrameReader<'_>) -> Result<FileHeader, SnapshotError> {
    Ok(reader.header.map_err(|error| reader.header_error(error))?)
}

/// Reads a checkpoint to its end, and checks it.
fn read(
    reader: &mut FrameReader<'_>,
    mut each: impl FnMut(&[u8]) -> io::Result<()>,
) -> Result<(FileHeader, SnapshotInfo), SnapshotError> {
    let header = header_of(reader)?;
    let (mut records, mut resource, mut checksum) = (0, None, crc32fast::Hasher::new());
    while let Some(frame) = reader.next_frame()? {
        let frame = frame.map_err(|what| reader.damaged(what))?;
        for entry in Entries::of(&frame.bytes, &mut resource, &Sealing::default()) {
            match entry {
                Ok(Entry::Put(_)) => records += 1,
                _ => return Err(reader.damaged("a record is malformed").into()),
            }
        }
        checksum.update(&frame.bytes);
        each(&frame.bytes).map_err(|source| OpenError::io(format!("copy {}", reader.name), source))?;
    }
    if records != header.records {
        let what = format!("it has {records} records, expected {}", header.records);
        return Err(reader.damaged(what).into());
    }
    let (revision, bytes, checksum) = (header.revision, reader.offset, checksum.finalize());
    Ok((header, SnapshotInfo { revision, records, bytes, checksum }))
}
