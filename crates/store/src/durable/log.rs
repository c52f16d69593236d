//! The log: a file of frames, each made durable before the next is begun.

use std::io;
use std::sync::Arc;

use super::disk::{Disk, DiskFile};
use super::format::{
    FILE_HEADER, FileHeader, FileKind, FrameTexts, VERSION, begin_frame, encode_event, file_name,
    finish_frame,
};
use crate::{Event, Revision};

/// The buffer that frames are built in is given back beyond this size: a frame is at most
/// [`MAX_BATCH`](super::queue::MAX_BATCH) and one record.
const KEPT_BUFFER: usize = 1 << 20;

/// The newest log, open for appending.
pub(crate) struct Log {
    pub(crate) generation: u64,
    file: Box<dyn DiskFile>,
    /// How much of the file is durable: header and whole frames.
    length: u64,
    buffer: Vec<u8>,
}

/// Why an append failed.
pub(crate) struct AppendError {
    pub(crate) source: io::Error,
    /// The file ends where it ended before. If not, nothing may be appended to it any more.
    pub(crate) is_cut_back: bool,
}

impl Log {
    /// A new log of the changes after `revision`. It is durable, name and all, when this returns.
    pub(crate) fn create(disk: &Arc<dyn Disk>, generation: u64, revision: Revision) -> io::Result<Self> {
        let header = FileHeader { version: VERSION, kind: FileKind::Log, generation, revision, records: 0 };
        let mut file = disk.create(&file_name(FileKind::Log, generation))?;
        file.append(&header.encode())?;
        file.sync()?;
        disk.sync_names()?;
        Ok(Self { generation, file, length: FILE_HEADER as u64, buffer: Vec::new() })
    }

    /// Goes on with the log of `generation`, whose first `length` bytes are good.
    pub(crate) fn reopen(disk: &Arc<dyn Disk>, generation: u64, length: u64) -> io::Result<Self> {
        let mut file = disk.open(&file_name(FileKind::Log, generation))?;
        file.truncate(length)?;
        // A process that was killed leaves frames that it had not synced yet; they are about to be shown.
        file.sync()?;
        disk.sync_names()?;
        Ok(Self { generation, file, length, buffer: Vec::new() })
    }

    pub(crate) fn length(&self) -> u64 {
        self.length
    }

    /// Makes `events`, one or more in the order of their revisions, durable as one frame: all or none. Each comes with
    /// the stored form of its value if that is not the value itself.
    pub(crate) fn append<'a>(
        &mut self,
        events: impl Iterator<Item = (&'a Event, Option<&'a [u8]>)>,
    ) -> Result<(), AppendError> {
        begin_frame(&mut self.buffer);
        let mut texts = FrameTexts::default();
        events.for_each(|(event, stored)| encode_event(event, stored, &mut texts, &mut self.buffer));
        finish_frame(&mut self.buffer);
        let written = self.write_buffer();
        self.buffer.clear();
        self.buffer.shrink_to(KEPT_BUFFER);
        written
    }

    fn write_buffer(&mut self) -> Result<(), AppendError> {
        if let Err(source) = self.file.append(&self.buffer) {
            // At most a part of a frame was written, and that does not count even if the cut should not last.
            let cut_back = self.file.truncate(self.length);
            return Err(AppendError { source, is_cut_back: cut_back.is_ok() });
        }
        if let Err(source) = self.file.sync() {
            // Not to be trusted again; but should the process end before there is a new file, the next one
            // shall not read what was refused.
            let _ = self.file.truncate(self.length);
            return Err(AppendError { source, is_cut_back: false });
        }
        self.length += self.buffer.len() as u64;
        Ok(())
    }
}
