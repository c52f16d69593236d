//! Checkpoints: the complete live state at one revision, in a separate file.
//!
//! A checkpoint is written from a snapshot in slices, and each slice is synced. The writer can serve commits in
//! between, so a checkpoint of any size delays them by one slice at a time. Under its final name, it is always
//! complete. Values are encrypted with the current key, whichever key they were written with. Values that could not be
//! decrypted are copied unchanged.

use std::io;
use std::sync::Arc;

use super::disk::{Disk, DiskFile};
use super::format::{
    FILE_HEADER, FRAME_HEADER, FileHeader, FileKind, FrameTexts, VERSION, begin_frame, encode_record,
    file_name, finish_frame,
};
use crate::Revision;
use crate::index::Index;
use crate::sealing::Sealing;

/// The suffix of an unfinished file.
pub(crate) const UNFINISHED: &str = ".unfinished";

pub(crate) struct Checkpoint {
    disk: Arc<dyn Disk>,
    name: Arc<str>,
    pub(crate) generation: u64,
    pub(crate) revision: Revision,
    file: Box<dyn DiskFile>,
    /// The remaining resources, in reverse order.
    rest: Vec<Index>,
    /// The last path written from the last of `rest`.
    after: Option<Arc<str>>,
    pub(crate) length: u64,
    /// The approximate number of bytes written at a time.
    slice: usize,
    sealing: Sealing,
    buffer: Vec<u8>,
}

impl Checkpoint {
    pub(crate) fn begin(
        disk: &Arc<dyn Disk>,
        generation: u64,
        revision: Revision,
        indexes: Vec<Index>,
        slice: usize,
        sealing: &Sealing,
    ) -> io::Result<Self> {
        let name = file_name(FileKind::Checkpoint, generation);
        Self::begin_named(disk, name, generation, revision, indexes, slice, sealing)
    }

    /// Like [`begin`](Self::begin), under another name.
    pub(crate) fn begin_named(
        disk: &Arc<dyn Disk>,
        name: Arc<str>,
        generation: u64,
        revision: Revision,
        indexes: Vec<Index>,
        slice: usize,
        sealing: &Sealing,
    ) -> io::Result<Self> {
        let records = indexes.iter().map(|index| index.len() as u64).sum();
        let mut file = disk.create(&format!("{name}{UNFINISHED}"))?;
        let header =
            FileHeader { version: VERSION, kind: FileKind::Checkpoint, generation, revision, records };
        file.append(&header.encode())?;
        Ok(Self {
            disk: disk.clone(),
            name,
            generation,
            revision,
            file,
            rest: indexes,
            after: None,
            length: FILE_HEADER as u64,
            slice,
            sealing: sealing.clone(),
            buffer: Vec::new(),
        })
    }

    /// Writes the next slice. Returns true once the checkpoint is complete, durable and renamed.
    pub(crate) fn step(&mut self) -> io::Result<bool> {
        begin_frame(&mut self.buffer);
        self.fill_slice()?;
        if self.buffer.len() > FRAME_HEADER {
            finish_frame(&mut self.buffer);
            self.file.append(&self.buffer)?;
            self.length += self.buffer.len() as u64;
        }
        self.file.sync()?;
        if !self.rest.is_empty() {
            return Ok(false);
        }
        self.disk.rename(&format!("{}{UNFINISHED}", self.name), &self.name)?;
        self.disk.sync_names()?;
        Ok(true)
    }

    /// Gives up, and frees the disk space if possible.
    pub(crate) fn abandon(self) {
        let _ = self.disk.remove(&format!("{}{UNFINISHED}", self.name));
    }

    fn fill_slice(&mut self) -> io::Result<()> {
        let mut texts = FrameTexts::default();
        while let Some(index) = self.rest.last() {
            let after = self.after.take();
            for record in index.after(after.as_deref()) {
                let stored = self.sealing.copy(record).map_err(io::Error::other)?;
                encode_record(record, stored.as_deref(), &mut texts, &mut self.buffer);
                if self.buffer.len() >= self.slice {
                    self.after = Some(record.key.path.clone());
                    return Ok(());
                }
            }
            self.rest.pop();
        }
        Ok(())
    }
}
