//! The log: a file of frames, each made durable before the next one starts.

use std::io;
use std::sync::Arc;

use super::disk::{Disk, DiskFile};
use super::format::{
    FILE_HEADER, FileHeader, FileKind, FrameTexts, VERSION, begin_frame, encode_event, file_name,
    finish_frame,
};
use crate::{Event, Revision};

/// The frame buffer is shrunk beyond this size. A frame is at most [`MAX_BATCH`](super::queue::MAX_BATCH) plus one
/// record.
const MAX_IDLE_BUFFER: usize = 1 << 20;

/// The newest log, open for appending.
pub(crate) struct Log {
    pub(crate) generation: u64,
    file: Box<dyn DiskFile>,
    /// The durable length of the file: the header and whole frames.
    length: u64,
    buffer: Vec<u8>,
}

/// An append error.
pub(crate) struct AppendError {
    pub(crate) source: io::Error,
    /// The file was truncated to its previous length. If not, nothing may be appended to it any more.
    pub(crate) is_cut_back: bool,
}

impl Log {
    /// Creates a log for the changes after `revision`. It is durable, including its name, when this returns.
    pub(crate) fn create(disk: &Arc<dyn Disk>, generation: u64, revision: Revision) -> io::Result<Self> {
        let header = FileHeader { version: VERSION, kind: FileKind::Log, generation, revision, records: 0 };
        let mut file = disk.create(&file_name(FileKind::Log, generation))?;
        file.append(&header.encode())?;
        file.sync()?;
        disk.sync_names()?;
        Ok(Self { generation, file, length: FILE_HEADER as u64, buffer: Vec::new() })
    }

    /// Continues the log of `generation`, whose first `length` bytes are valid.
    pub(crate) fn reopen(disk: &Arc<dyn Disk>, generation: u64, length: u64) -> io::Result<Self> {
        let mut file = disk.open(&file_name(FileKind::Log, generation))?;
        file.truncate(length)?;
        // A killed process leaves frames that it had not synced yet. They are about to become visible.
        file.sync()?;
        disk.sync_names()?;
        Ok(Self { generation, file, length, buffer: Vec::new() })
    }

    pub(crate) fn length(&self) -> u64 {
        self.length
    }

    /// Makes one or more events, in revision order, durable as one frame: all or none. Each comes with the stored form
    /// of its value, if that differs from the value.
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
        self.buffer.shrink_to(MAX_IDLE_BUFFER);
        written
    }

    fn write_buffer(&mut self) -> Result<(), AppendError> {
        if let Err(source) = self.file.append(&self.buffer) {
            // At most a partial frame was written, which is ignored even if the truncation should not be durable.
            let cut_back = self.file.truncate(self.length);
            return Err(AppendError { source, is_cut_back: cut_back.is_ok() });
        }
        if let Err(source) = self.file.sync() {
            // Do not trust this file again. Still truncate it: if the process ends before there is a new file, recovery
            // must not read the failed writes.
            let _ = self.file.truncate(self.length);
            return Err(AppendError { source, is_cut_back: false });
        }
        self.length += self.buffer.len() as u64;
        Ok(())
    }
}
