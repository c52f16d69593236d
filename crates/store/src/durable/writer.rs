//! The writer: the only thread that accesses the disk.
//!
//! It takes the queued writes, appends them to the log as one frame, syncs, publishes and replies. Between two batches
//! it writes a slice of a checkpoint if one is due.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use setpoint_clock::Clock;

use super::checkpoint::Checkpoint;
use super::disk::Disk;
use super::files::Files;
use super::log::{AppendError, Log};
use super::queue::{BatchWait, Item, Queue};
use crate::core::Core;
use crate::sealing::Sealing;
use crate::{Error, Event, Key, Revision};

/// How many events are published under one lock. Readers wait for a fraction of a millisecond at most.
const PUBLISH_BATCH: usize = 256;

/// Waiting for more writes may take this fraction of a sync. It costs the first write little, and missing the batch
/// would cost the others a whole sync.
const BATCH_WAIT_PER_SYNC: u32 = 8;
/// Even fast syncs cost CPU time, as much as a write or two (60 to 120 us, measured on a virtual disk). So for each
/// expected write, the writer waits as long as a write takes.
const BATCH_WAIT_PER_ITEM: Duration = Duration::from_micros(60);
const MAX_BATCH_WAIT: Duration = Duration::from_millis(2);

pub(crate) struct Writer {
    pub(crate) clock: Clock,
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) core: Arc<Core>,
    pub(crate) queue: Arc<Queue>,
    pub(crate) log: Log,
    /// The log contains exactly what was published, and may be appended to.
    pub(crate) is_log_sound: bool,
    /// The log that replaces an unsound one once its checkpoint is complete.
    pub(crate) spare: Option<Log>,
    pub(crate) checkpoint: Option<Checkpoint>,
    pub(crate) checkpoint_slice: usize,
    pub(crate) sealing: Sealing,
    /// The log's length when the last slice was written.
    pub(crate) log_at_slice: u64,
    pub(crate) growth: Growth,
    pub(crate) batch_wait: BatchWait,
    /// The duration of the last append, which is mostly the sync.
    pub(crate) last_sync: Duration,
}

/// The sizes that decide when the next checkpoint is due: when the logs since the last one are larger than it, but not
/// before they have a minimum size. So everything is written about twice, and opening reads at most twice the
/// checkpoint's size, or the checkpoint plus `at_least`.
pub(crate) struct Growth {
    pub(crate) at_least: u64,
    pub(crate) checkpoint: u64,
    /// The size of the logs since the checkpoint, without the newest.
    pub(crate) older_logs: u64,
    /// After a failed checkpoint, none is attempted before the logs have reached this size.
    pub(crate) not_before: u64,
    /// The files contain plain text that would be encrypted now, so a checkpoint is due whatever their size.
    pub(crate) is_plain: bool,
}

impl Growth {
    fn is_due(&self, newest_log: u64) -> bool {
        let enough = if self.is_plain { 0 } else { self.at_least.max(self.checkpoint) };
        self.older_logs + newest_log > enough.max(self.not_before)
    }
}

impl Writer {
    /// Processes the queue until it is closed and empty.
    pub(crate) fn run(mut self) {
        while let Some(batch) = self.queue.take(self.checkpoint.is_none(), self.batch_wait) {
            let is_idle = batch.is_empty();
            if !is_idle {
                self.serve(batch);
            }
            if is_idle || self.is_slice_due() {
                self.advance_checkpoint();
            }
        }
        self.abandon_checkpoint();
    }

    fn serve(&mut self, batch: Vec<Item>) {
        match self.make_durable(&batch) {
            Ok(()) => self.publish(batch),
            Err(error) => self.fail(batch, error),
        }
    }

    fn make_durable(&mut self, batch: &[Item]) -> io::Result<()> {
        let mut events = batch.iter().filter_map(Item::event).peekable();
        if events.peek().is_none() {
            return Ok(());
        }
        if !self.is_log_sound {
            self.start_over()?;
        }
        let start = self.clock.instant();
        self.log.append(events).map_err(|AppendError { source, is_cut_back }| {
            self.is_log_sound = is_cut_back;
            source
        })?;
        self.last_sync = start.elapsed();
        Ok(())
    }

    fn publish(&mut self, batch: Vec<Item>) {
        let mut answers = Vec::with_capacity(batch.len());
        let mut events = Vec::with_capacity(batch.len());
        for mut item in batch {
            let outcome = std::mem::replace(&mut item.outcome, Err(Error::Closed));
            let reply = outcome.map(|event| {
                let record = event.record.clone();
                events.push(event);
                record
            });
            answers.push((item, reply));
        }
        let revisions: Vec<(Key, Revision)> = events.iter().map(key_and_revision).collect();
        self.publish_events(events);
        let waiting = self.queue.published(revisions.into_iter());
        // All active clients: those about to get a reply, and those that have queued writes since.
        self.batch_wait = batch_wait(answers.len() + waiting, self.last_sync);
        answers.into_iter().for_each(|(item, reply)| item.answer(reply));
    }

    fn publish_events(&self, events: Vec<Event>) {
        let mut events = events.into_iter().peekable();
        while events.peek().is_some() {
            let some = events.by_ref().take(PUBLISH_BATCH);
            self.core.change(|state, wakes| some.for_each(|event| state.publish(event, wakes)));
        }
    }

    fn fail(&mut self, batch: Vec<Item>, error: io::Error) {
        tracing::error!(%error, writes = batch.len(), "could not make writes durable");
        let error = Arc::new(error);
        let published = self.core.revision();
        let behind = self.queue.give_up(published);
        batch.into_iter().chain(behind).for_each(|item| item.answer(Err(as_store_error(&error))));
    }

    /// Starts the next generation with a checkpoint of the published state, because the log cannot be trusted. Nothing
    /// is published in the meantime, so a retry can reuse the log of a failed attempt.
    fn start_over(&mut self) -> io::Result<()> {
        self.abandon_checkpoint();
        let published = self.core.revision();
        let log = match self.spare.take() {
            Some(log) => log,
            None => Log::create(&self.disk, self.log.generation + 1, published)?,
        };
        let generation = self.spare.insert(log).generation;
        let mut checkpoint = Some(self.begin_checkpoint(generation)?);
        while let Some(unfinished) = checkpoint {
            checkpoint = self.step(unfinished)?;
        }
        self.log = self.spare.take().expect("inserted above");
        self.is_log_sound = true;
        Ok(())
    }

    /// While commits wait, a checkpoint may write as much as they do. So it takes at most half of the disk bandwidth,
    /// and the log grows by no more than the checkpoint's size in the meantime.
    fn is_slice_due(&self) -> bool {
        self.checkpoint.is_none() || self.log.length() - self.log_at_slice >= self.checkpoint_slice as u64
    }

    fn advance_checkpoint(&mut self) {
        self.log_at_slice = self.log.length();
        let result = match self.checkpoint.take() {
            Some(checkpoint) => self.step(checkpoint),
            None if self.is_log_sound && self.growth.is_due(self.log.length()) => {
                self.begin_generation().map(Some)
            }
            None => return,
        };
        match result {
            Ok(checkpoint) => self.checkpoint = checkpoint,
            Err(error) => {
                tracing::warn!(%error, "could not write a checkpoint; the log continues");
                self.growth.not_before =
                    self.growth.older_logs + self.log.length() + self.growth.at_least / 2;
            }
        }
    }

    /// Switches to a new log, and starts a checkpoint of the state before it.
    fn begin_generation(&mut self) -> io::Result<Checkpoint> {
        let generation = self.log.generation + 1;
        let checkpoint = self.begin_checkpoint(generation)?;
        match Log::create(&self.disk, generation, checkpoint.revision) {
            Ok(log) => {
                self.growth.older_logs += self.log.length();
                self.log_at_slice = log.length();
                self.log = log;
                Ok(checkpoint)
            }
            Err(error) => {
                checkpoint.abandon();
                Err(error)
            }
        }
    }

    fn begin_checkpoint(&self, generation: u64) -> io::Result<Checkpoint> {
        let (revision, indexes) = self.core.read().indexes();
        Checkpoint::begin(&self.disk, generation, revision, indexes, self.checkpoint_slice, &self.sealing)
    }

    /// Continues a checkpoint. Returns `None` when it is complete.
    fn step(&mut self, mut checkpoint: Checkpoint) -> io::Result<Option<Checkpoint>> {
        match checkpoint.step() {
            Ok(false) => Ok(Some(checkpoint)),
            Ok(true) => {
                self.complete(checkpoint);
                Ok(None)
            }
            Err(error) => {
                checkpoint.abandon();
                Err(error)
            }
        }
    }

    fn abandon_checkpoint(&mut self) {
        if let Some(checkpoint) = self.checkpoint.take() {
            checkpoint.abandon();
        }
    }

    fn complete(&mut self, checkpoint: Checkpoint) {
        self.growth.checkpoint = checkpoint.length;
        self.growth.older_logs = 0;
        self.growth.not_before = 0;
        self.growth.is_plain = false;
        if let Err(error) = Files::remove_before(&self.disk, checkpoint.generation) {
            tracing::warn!(%error, "could not remove files that a checkpoint has replaced; the next one will");
        }
    }
}

/// However the writer ends, nothing waits for it any more.
impl Drop for Writer {
    fn drop(&mut self) {
        self.queue.close();
        let published = self.core.revision();
        drop(self.queue.give_up(published));
        self.core.close();
    }
}

/// Returns how long it pays to wait for `items` active clients.
fn batch_wait(items: usize, last_sync: Duration) -> BatchWait {
    let for_items = BATCH_WAIT_PER_ITEM.saturating_mul(items as u32);
    let at_most = (last_sync / BATCH_WAIT_PER_SYNC).max(for_items).min(MAX_BATCH_WAIT);
    BatchWait { items, at_most }
}

fn key_and_revision(event: &Event) -> (Key, Revision) {
    (event.record.key.clone(), event.revision())
}

fn as_store_error(error: &Arc<io::Error>) -> Error {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    match error.kind() {
        StorageFull | QuotaExceeded | FileTooLarge => Error::Full,
        _ => Error::Io(error.clone()),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::sync_channel;
    use std::thread;

    use futures::executor::block_on;

    use super::super::disk::Directory;
    use super::super::recovery::{Recovered, recover};
    use super::*;
    use crate::{Limits, Resource};

    fn writer(directory: &std::path::Path) -> Writer {
        let disk: Arc<dyn Disk> = Arc::new(Directory::open(directory).unwrap());
        let sealing = Sealing::default();
        let Recovered { state, log, growth } = recover(&disk, Limits::default(), 1 << 20, &sealing).unwrap();
        let core = Arc::new(Core::new(state));
        Writer {
            clock: Clock::system(),
            disk,
            queue: Arc::new(Queue::new(core.revision())),
            core,
            log,
            is_log_sound: true,
            spare: None,
            checkpoint: None,
            checkpoint_slice: 1 << 20,
            sealing,
            log_at_slice: 0,
            growth,
            batch_wait: BatchWait::default(),
            last_sync: Duration::ZERO,
        }
    }

    /// Returns whether the state can be changed while a commit holds the queue and the writer does something that takes
    /// both.
    fn changes_beside(act: impl FnOnce(&mut Writer) + Send + 'static, batch_wait: Duration) -> bool {
        let directory = tempfile::tempdir().unwrap();
        let mut writer = writer(directory.path());
        let (core, queue) = (writer.core.clone(), writer.queue.clone());
        let (deciding, is_deciding) = sync_channel(1);
        let (decide, may_decide) = sync_channel::<()>(1);
        let commit = thread::spawn(move || {
            let room = block_on(queue.reserve(0)).unwrap();
            let decide = |_: Option<&_>, _| {
                deciding.send(()).unwrap();
                let _ = may_decide.recv();
                Err(Error::Closed)
            };
            queue.submit(&core, &Resource::new("pods").key("a"), room, None, decide).map(drop)
        });
        is_deciding.recv().expect("the commit holds the queue");
        let core = writer.core.clone();
        let acting = thread::spawn(move || act(&mut writer));
        // Time to reach the queue's lock. With less, the test would detect less.
        thread::sleep(Duration::from_millis(100));
        let (changed, is_changed) = sync_channel(1);
        let change = thread::spawn(move || {
            core.change(|_, _| ());
            changed.send(()).unwrap();
        });
        let is_changed = is_changed.recv_timeout(batch_wait).is_ok();
        drop(decide);
        assert!(matches!(commit.join().unwrap(), Err(Error::Closed)));
        acting.join().unwrap();
        change.join().unwrap();
        is_changed
    }

    /// The lock order is the queue's lock, then the state's. If the writer waited for the queue with the state locked,
    /// it would wait for a commit that holds the queue, which waits for a change of the state, which waits for the
    /// writer.
    #[test]
    fn giving_up_does_not_lock_the_state_while_it_waits_for_the_queue() {
        let fail = |writer: &mut Writer| writer.fail(Vec::new(), io::Error::other("the disk is gone"));
        // If it is not done by then, it hangs.
        assert!(changes_beside(fail, Duration::from_secs(20)));
    }
}
