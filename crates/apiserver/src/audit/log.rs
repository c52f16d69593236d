//! The log backend: writes events as lines to a file, or to standard output.
//!
//! A single thread writes. It takes all waiting lines, writes them at once and, if a line has to survive a crash of
//! the machine, syncs once for all of them: a group commit. Requests wait only for their own line.

use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::thread;

use futures::FutureExt;
use futures::future::BoxFuture;
use setpoint_clock::Clock;
use tokio::sync::{mpsc, oneshot};

use super::backend::{Entry, SendError, Sink};
use super::rotate::{LogFile, Rotation};

/// Maximum queued lines; further ones wait in their requests. A line has about 1 KiB without objects, and with them at
/// most twice the largest body: 8 MiB in practice, 4,096 × 6 MiB at the very worst.
const QUEUE_CAPACITY: usize = 4096;
/// Maximum bytes per write; the rest is written next.
const GROUP_BYTES: usize = 4 << 20;

/// Writes events to a file.
pub struct LogSink {
    jobs: mpsc::Sender<Job>,
}

struct Job {
    entries: Vec<Entry>,
    /// Syncs even if no entry asks for it.
    flush: bool,
    done: oneshot::Sender<Result<(), SendError>>,
}

impl LogSink {
    /// Opens the log; `-` is standard output. With `sync`, entries that end a write are synced to disk.
    pub fn open(path: &Path, rotation: Rotation, sync: bool, clock: Clock) -> io::Result<Self> {
        let output = match path.as_os_str() == "-" {
            true => Output::Stdout,
            false => Output::File(LogFile::open(path, rotation, clock)?),
        };
        let (jobs, waiting) = mpsc::channel(QUEUE_CAPACITY);
        let writer = Writer { output, sync };
        thread::Builder::new().name("audit-log".into()).spawn(move || writer.run(waiting))?;
        Ok(Self { jobs })
    }

    fn submit(&self, entries: Vec<Entry>, flush: bool) -> BoxFuture<'static, Result<(), SendError>> {
        let (done, outcome) = oneshot::channel();
        let job = Job { entries, flush, done };
        // Queued before anything is awaited, unless the queue is full: then it is queued while being awaited.
        let queued = self.jobs.try_send(job);
        let jobs = self.jobs.clone();
        async move {
            let stopped = || SendError::new("the writer of the audit log has stopped");
            match queued {
                Ok(()) => {}
                Err(mpsc::error::TrySendError::Full(job)) => jobs.send(job).await.map_err(|_| stopped())?,
                Err(mpsc::error::TrySendError::Closed(_)) => return Err(stopped()),
            }
            outcome.await.map_err(|_| stopped())?
        }
        .boxed()
    }
}

impl Sink for LogSink {
    fn name(&self) -> &'static str {
        "log"
    }

    fn send(&self, batch: Vec<Entry>) -> BoxFuture<'static, Result<(), SendError>> {
        self.submit(batch, false)
    }

    fn close(&self) -> BoxFuture<'static, ()> {
        self.submit(Vec::new(), true).map(drop).boxed()
    }
}

enum Output {
    File(LogFile),
    Stdout,
}

impl Output {
    fn write(&mut self, lines: &[u8]) -> io::Result<()> {
        match self {
            Self::File(file) => file.write(lines),
            Self::Stdout => {
                let mut out = io::stdout().lock();
                out.write_all(lines)?;
                out.flush()
            }
        }
    }

    fn has_room(&self, bytes: usize) -> bool {
        match self {
            Self::File(file) => file.has_room(bytes),
            Self::Stdout => true,
        }
    }

    /// Starts another file, unless this one is empty: a line longer than the maximum gets its own file.
    fn rotate(&mut self) -> io::Result<()> {
        match self {
            Self::File(file) if !file.is_empty() => file.rotate(),
            Self::File(_) | Self::Stdout => Ok(()),
        }
    }

    fn sync(&self) -> io::Result<()> {
        match self {
            Self::File(file) => file.sync(),
            Self::Stdout => Ok(()),
        }
    }
}

struct Writer {
    output: Output,
    sync: bool,
}

/// Jobs whose lines are written at once.
#[derive(Default)]
struct Group {
    lines: Vec<u8>,
    needs_sync: bool,
    done: Vec<oneshot::Sender<Result<(), SendError>>>,
}

impl Writer {
    fn run(mut self, mut waiting: mpsc::Receiver<Job>) {
        while let Some(job) = waiting.blocking_recv() {
            let mut group = Group::default();
            let mut next = Some(job);
            while let Some(job) = next {
                self.add(&mut group, job);
                next = if group.lines.len() < GROUP_BYTES { waiting.try_recv().ok() } else { None };
            }
            self.commit(&mut group);
        }
    }

    /// Adds a job's lines; if they do not fit the file, writes the previous ones first.
    fn add(&mut self, group: &mut Group, job: Job) {
        let length: usize = job.entries.iter().map(|entry| entry.bytes.len() + 1).sum();
        if !self.output.has_room(group.lines.len() + length) {
            self.commit(group);
            if !self.output.has_room(length)
                && let Err(error) = self.output.rotate()
            {
                // Keep writing to the same file: a file that is too long is better than a missing line.
                tracing::error!(%error, "cannot rotate the audit log");
            }
        }
        for entry in &job.entries {
            group.lines.extend_from_slice(&entry.bytes);
            group.lines.push(b'\n');
            group.needs_sync |= self.sync && entry.ends_write;
        }
        group.needs_sync |= job.flush;
        group.done.push(job.done);
    }

    fn commit(&mut self, group: &mut Group) {
        let Group { lines, needs_sync, done } = std::mem::take(group);
        let mut outcome = if lines.is_empty() { Ok(()) } else { self.output.write(&lines) };
        if outcome.is_ok() && needs_sync {
            outcome = self.output.sync();
        }
        let outcome = outcome.map_err(|error| SendError(Arc::from(error.to_string())));
        for waiting in done {
            let _ = waiting.send(outcome.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(text: &str) -> Entry {
        Entry { bytes: text.to_owned().into(), ends_write: true }
    }

    #[tokio::test]
    async fn acknowledged_events_are_in_the_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("audit.log");
        let sink = LogSink::open(&path, Rotation::default(), true, Clock::system()).unwrap();
        let sent = (0..200).map(|number| sink.send(vec![entry(&format!("line {number}"))]));
        for outcome in futures::future::join_all(sent).await {
            outcome.unwrap();
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let expected: Vec<String> = (0..200).map(|number| format!("line {number}")).collect();
        assert_eq!(text.lines().collect::<Vec<_>>(), expected);
    }

    #[tokio::test]
    async fn a_full_file_is_rotated_and_no_line_is_lost() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("audit.log");
        let rotation = Rotation { max_megabytes: 1, ..Rotation::default() };
        let sink = LogSink::open(&path, rotation, false, Clock::system()).unwrap();
        let long = "x".repeat(300 << 10);
        let sent = (0..10).map(|number| sink.send(vec![entry(&format!("{number} {long}"))]));
        for outcome in futures::future::join_all(sent).await {
            outcome.unwrap();
        }
        // Longer than the maximum: gets its own file.
        sink.send(vec![entry(&"y".repeat(2 << 20))]).await.unwrap();
        let mut lines = 0;
        let mut files = 0;
        for file in std::fs::read_dir(directory.path()).unwrap() {
            let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
            assert!(text.len() <= 1 << 20 || text.lines().count() == 1);
            lines += text.lines().count();
            files += 1;
        }
        assert_eq!((lines, files), (11, 5));
    }

    #[tokio::test]
    async fn a_full_disk_is_reported_to_waiting_callers() {
        let full = Path::new("/dev/full");
        if !full.exists() {
            return;
        }
        let sink = LogSink::open(full, Rotation::default(), true, Clock::system()).unwrap();
        let error = sink.send(vec![entry("line")]).await.unwrap_err();
        assert!(error.to_string().contains("No space left"), "{error}");
    }

    #[tokio::test]
    async fn a_sent_line_is_written_though_its_sender_does_not_wait() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("audit.log");
        let sink = LogSink::open(&path, Rotation::default(), true, Clock::system()).unwrap();
        drop(sink.send(vec![entry("unattended")]));
        sink.close().await;
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "unattended\n");
    }
}
