//! Recovery: loads the newest checkpoint, then replays the logs from its generation on.
//!
//! A file that ends in the middle of a frame was being written when the process or the machine stopped. Nothing in that
//! frame was acknowledged, so it is truncated. A broken frame followed by a valid one, a gap between revisions, or a
//! broken checkpoint is corruption: opening the store fails, and the error says where.

use std::io::{self, BufReader, Read};
use std::sync::Arc;

use super::OpenError;
use super::disk::Disk;
use super::files::Files;
use super::format::{
    Entries, Entry, FILE_HEADER, FRAME_HEADER, FileHeader, FileKind, FrameHeader, HeaderError, VERSION,
    contains_frame, file_name,
};
use super::log::Log;
use super::writer::Growth;
use crate::core::{EMPTY, State};
use crate::sealing::Sealing;
use crate::{Limits, Resource, Revision};

const READ_BUFFER: usize = 256 << 10;

pub(crate) struct Recovered {
    pub(crate) state: State,
    pub(crate) log: Log,
    pub(crate) growth: Growth,
}

pub(crate) fn recover(
    disk: &Arc<dyn Disk>,
    limits: Limits,
    checkpoint_after: u64,
    sealing: &Sealing,
) -> Result<Recovered, OpenError> {
    let files = Files::on(disk).map_err(|source| OpenError::io("list the data directory", source))?;
    files.remove_unfinished(disk).map_err(|source| OpenError::io("remove unfinished files", source))?;
    let mut recovery = Recovery::new(disk, limits, checkpoint_after, sealing);
    let generation = recovery.load_newest_checkpoint(&files)?;
    let log = recovery.replay_logs(&files, generation)?;
    Files::remove_before(disk, generation)
        .map_err(|source| OpenError::io("remove replaced files", source))?;
    let Recovery { mut state, revision, growth, .. } = recovery;
    state.start_at(revision);
    Ok(Recovered { state, log, growth })
}

/// Reads the state without changing anything: what follows an unfinished write is left to its writer. Values are as they
/// are stored.
pub(crate) fn read_only(disk: &Arc<dyn Disk>, files: &Files) -> Result<State, OpenError> {
    let sealing = Sealing::default();
    let mut recovery = Recovery::new(disk, Limits::default(), 0, &sealing);
    let generation = recovery.load_newest_checkpoint(files)?;
    recovery.read_logs(files, generation)?;
    let Recovery { mut state, revision, .. } = recovery;
    state.start_at(revision);
    Ok(state)
}

struct Recovery<'a> {
    disk: &'a Arc<dyn Disk>,
    state: State,
    revision: Revision,
    last_resource: Option<Resource>,
    sealing: &'a Sealing,
    growth: Growth,
}

impl<'a> Recovery<'a> {
    fn new(disk: &'a Arc<dyn Disk>, limits: Limits, checkpoint_after: u64, sealing: &'a Sealing) -> Self {
        let growth = Growth {
            at_least: checkpoint_after,
            checkpoint: 0,
            older_logs: 0,
            not_before: 0,
            is_plain: false,
        };
        let state = State::new(limits);
        Self { disk, state, revision: EMPTY, last_resource: None, sealing, growth }
    }

    /// Loads the newest checkpoint and returns its generation, or 1 if there is none.
    fn load_newest_checkpoint(&mut self, files: &Files) -> Result<u64, OpenError> {
        let Some(generation) = files.checkpoints.last().copied() else { return Ok(1) };
        let name = file_name(FileKind::Checkpoint, generation);
        let mut reader = FrameReader::open(self.disk, &name)?;
        let header = reader.header.map_err(|error| reader.header_error(error))?;
        self.revision = header.revision;
        let mut records = 0;
        while let Some(body) = reader.next_frame()? {
            let body = body.map_err(|what| reader.damaged(what))?;
            records += self.load(&body.bytes).ok_or_else(|| reader.damaged(MALFORMED))?;
        }
        if records != header.records {
            return Err(reader.damaged("records are missing at the end"));
        }
        self.growth.checkpoint = reader.offset;
        Ok(generation)
    }

    fn load(&mut self, body: &[u8]) -> Option<u64> {
        let mut records = 0;
        for entry in Entries::of(body, &mut self.last_resource, self.sealing) {
            let Ok(Entry::Put(record)) = entry else { return None };
            self.growth.is_plain |= self.sealing.is_plain(&record);
            self.state.load(Arc::new(record));
            records += 1;
        }
        Some(records)
    }

    /// Replays the logs from `generation` on. Returns the last one.
    fn read_logs(&mut self, files: &Files, generation: u64) -> Result<Option<(u64, Replayed)>, OpenError> {
        let mut open: Option<(u64, Replayed)> = None;
        for (expected, found) in (generation..).zip(files.logs.range(generation..).copied()) {
            if found != expected {
                let what = format!("the log of generation {expected} is missing");
                return Err(OpenError::damaged(&file_name(FileKind::Log, found), 0, what));
            }
            let is_last = files.logs.last() == Some(&found);
            if let Some(replayed) = self.replay(found, is_last)? {
                self.growth.older_logs += open.map_or(0, |(_, Replayed { length, .. })| length);
                open = Some((found, replayed));
            }
        }
        Ok(open)
    }

    /// Replays the logs from `generation` on and opens the last one.
    fn replay_logs(&mut self, files: &Files, generation: u64) -> Result<Log, OpenError> {
        let open = self.read_logs(files, generation)?;
        let log = match open {
            // A log is only continued in its own format version: an older version of this program would misread newer
            // records.
            Some((last, Replayed { length, version })) if version < VERSION => {
                self.growth.older_logs += length;
                Log::reopen(self.disk, last, length)
                    .and_then(|_| Log::create(self.disk, last + 1, self.revision))
            }
            Some((last, Replayed { length, .. })) => Log::reopen(self.disk, last, length),
            None if generation == 1 => Log::create(self.disk, 1, EMPTY),
            None => {
                let what = format!("its log {} is missing", file_name(FileKind::Log, generation));
                return Err(OpenError::damaged(&file_name(FileKind::Checkpoint, generation), 0, what));
            }
        };
        log.map_err(|source| OpenError::io("open the log", source))
    }

    /// Replays one log. Returns `None` if its creation was interrupted.
    fn replay(&mut self, generation: u64, is_last: bool) -> Result<Option<Replayed>, OpenError> {
        let mut reader = FrameReader::open(self.disk, &file_name(FileKind::Log, generation))?;
        let header = reader.header;
        let header = match header {
            Ok(header) => header,
            Err(HeaderError::Damaged(_)) if is_last && reader.is_at_end()? => return Ok(None),
            Err(error) => return Err(reader.header_error(error)),
        };
        if header.revision > self.revision {
            let what =
                format!("the changes from revision {} to {} are missing", self.revision + 1, header.revision);
            return Err(reader.damaged(what));
        }
        while let Some(body) = reader.next_frame()? {
            match body {
                Ok(body) => {
                    self.apply(&body).map_err(|what| OpenError::damaged(&reader.name, body.offset, what))?
                }
                Err(what) if reader.is_followed_by_a_frame()? => return Err(reader.damaged(what)),
                Err(what) => {
                    tracing::warn!(file = %reader.name, offset = reader.offset, "truncating an unfinished write: {what}");
                    break;
                }
            }
        }
        Ok(Some(Replayed { length: reader.offset, version: header.version }))
    }

    fn apply(&mut self, frame: &Frame) -> Result<(), String> {
        for entry in Entries::of(&frame.bytes, &mut self.last_resource, self.sealing) {
            let entry = entry.map_err(|_| MALFORMED.to_owned())?;
            let revision = match &entry {
                Entry::Put(record) => record.modified,
                Entry::Removal(_, revision) => *revision,
            };
            if revision != self.revision + 1 {
                return Err(format!("revision {revision} follows {}", self.revision));
            }
            self.revision = revision;
            match entry {
                Entry::Put(record) => {
                    self.growth.is_plain |= self.sealing.is_plain(&record);
                    self.state.load(Arc::new(record));
                }
                Entry::Removal(key, _) => self.state.unload(&key),
            }
        }
        Ok(())
    }
}

const MALFORMED: &str = "a record is malformed";

/// A replayed log.
#[derive(Clone, Copy)]
struct Replayed {
    /// The number of valid bytes.
    length: u64,
    version: u32,
}

/// A frame's body, and where the frame starts.
pub(crate) struct Frame {
    pub(crate) bytes: Vec<u8>,
    offset: u64,
}

/// A reader of a file, frame by frame. `offset` stays at the first invalid frame.
pub(crate) struct FrameReader<'a> {
    disk: &'a Arc<dyn Disk>,
    pub(crate) name: Arc<str>,
    input: BufReader<Box<dyn Read + Send>>,
    pub(crate) header: Result<FileHeader, HeaderError>,
    pub(crate) offset: u64,
}

impl<'a> FrameReader<'a> {
    pub(crate) fn open(disk: &'a Arc<dyn Disk>, name: &Arc<str>) -> Result<Self, OpenError> {
        let failed = |source| OpenError::io(format!("read {name}"), source);
        let mut input = BufReader::with_capacity(READ_BUFFER, disk.read(name).map_err(failed)?);
        let header = read_up_to(&mut input, FILE_HEADER).map_err(failed)?;
        let header = FileHeader::decode(&header);
        Ok(Self { disk, name: name.clone(), input, header, offset: FILE_HEADER as u64 })
    }

    /// Returns the next frame, or what is wrong with it. `None` at the end.
    pub(crate) fn next_frame(&mut self) -> Result<Option<Result<Frame, &'static str>>, OpenError> {
        let header = self.read(FRAME_HEADER)?;
        if header.is_empty() {
            return Ok(None);
        }
        let header = match FrameHeader::decode(&header) {
            Ok(header) => header,
            Err(what) => return Ok(Some(Err(what))),
        };
        let bytes = self.read(header.length)?;
        if bytes.len() < header.length {
            return Ok(Some(Err("the frame is cut short")));
        }
        if !header.matches(&bytes) {
            return Ok(Some(Err("the frame's checksum is wrong")));
        }
        let frame = Frame { bytes, offset: self.offset };
        self.offset += (FRAME_HEADER + header.length) as u64;
        Ok(Some(Ok(frame)))
    }

    fn read(&mut self, length: usize) -> Result<Vec<u8>, OpenError> {
        let read = read_up_to(&mut self.input, length);
        read.map_err(|source| OpenError::io(format!("read {}", self.name), source))
    }

    fn is_at_end(&mut self) -> Result<bool, OpenError> {
        Ok(self.read(1)?.is_empty())
    }

    /// Returns whether a valid frame starts anywhere after the first byte of a broken one.
    fn is_followed_by_a_frame(&self) -> Result<bool, OpenError> {
        let failed = |source| OpenError::io(format!("read {}", self.name), source);
        let mut input = self.disk.read(&self.name).map_err(failed)?;
        io::copy(&mut input.by_ref().take(self.offset + 1), &mut io::sink()).map_err(failed)?;
        let mut rest = Vec::new();
        input.read_to_end(&mut rest).map_err(failed)?;
        Ok(contains_frame(&rest))
    }

    pub(crate) fn damaged(&self, what: impl Into<String>) -> OpenError {
        OpenError::damaged(&self.name, self.offset, what)
    }

    pub(crate) fn header_error(&self, error: HeaderError) -> OpenError {
        match error {
            HeaderError::Newer(found) => {
                OpenError::Newer { file: self.name.to_string(), found, supported: VERSION }
            }
            HeaderError::Damaged(what) => OpenError::damaged(&self.name, 0, what),
        }
    }
}

/// Reads `length` bytes, or fewer if the input ends first.
fn read_up_to(input: &mut impl Read, length: usize) -> io::Result<Vec<u8>> {
    // Do not reserve more than there is: a corrupt length must not allocate gigabytes.
    let mut bytes = Vec::with_capacity(length.min(READ_BUFFER));
    input.take(length as u64).read_to_end(&mut bytes)?;
    Ok(bytes)
}
