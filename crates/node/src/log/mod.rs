//! The logs of containers, as a container runtime keeps them: lines with the time of their end.
//!
//! ```text
//!  script.rs  pure: lines that an annotation scripts
//!  query.rs   pure: the options of a request, and which lines it gets
//! ```
//!
//! A log is bounded: the oldest lines are dropped. Followers continue by the number of the next line.

mod query;
mod script;

use std::collections::VecDeque;
use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::Mutex;

pub(crate) use query::{LOOK_AFTER, LOOK_EVERY, LogQuery, QueryError, Selection};
pub(crate) use script::LogScript;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogStream {
    Stdout,
    Stderr,
}

/// A line, or a part of a long one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) at: Timestamp,
    pub(crate) stream: LogStream,
    /// With its newline, unless it is cut.
    pub(crate) text: Vec<u8>,
}

/// The maximum size of a log. A kubelet keeps 10 MiB of each container on disk; these logs are in memory, for all pods
/// that were queried.
const LOG_BYTES: usize = 256 << 10;

/// The overhead of a line.
const LINE_BYTES: usize = 64;

/// A line is split after this many bytes, as in a container runtime.
const MAX_LINE: usize = 16 << 10;

/// The lines of a container.
#[derive(Debug, Default)]
pub(crate) struct Log {
    lines: VecDeque<Line>,
    bytes: usize,
    /// How many lines were dropped.
    dropped: u64,
}

impl Log {
    /// Appends lines, and drops the oldest ones if there is no room.
    pub(crate) fn extend(&mut self, lines: impl IntoIterator<Item = Line>) {
        for line in lines {
            self.bytes += line.text.len() + LINE_BYTES;
            self.lines.push_back(line);
            while self.bytes > LOG_BYTES
                && let Some(oldest) = self.lines.pop_front()
            {
                self.bytes -= oldest.text.len() + LINE_BYTES;
                self.dropped += 1;
            }
        }
    }

    /// Returns the lines from a number on, and the number of the next line to come.
    pub(crate) fn lines_from(
        &self,
        number: u64,
    ) -> (impl DoubleEndedIterator<Item = &Line> + ExactSizeIterator, u64) {
        let skipped = usize::try_from(number.saturating_sub(self.dropped)).unwrap_or(usize::MAX);
        let lines = self.lines.range(skipped.min(self.lines.len())..);
        (lines, self.dropped + self.lines.len() as u64)
    }
}

/// Collects what processes print into lines. Cheap to clone; clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct LogBuffer(Arc<Mutex<Collected>>);

#[derive(Debug, Default)]
struct Collected {
    lines: Vec<Line>,
    bytes: usize,
    /// The incomplete lines of stdout and stderr.
    partial: [Vec<u8>; 2],
}

/// One of the streams of a log.
#[derive(Clone, Debug)]
pub(crate) struct LogWriter {
    buffer: LogBuffer,
    stream: LogStream,
}

impl LogBuffer {
    pub(crate) fn writer(&self, stream: LogStream) -> LogWriter {
        LogWriter { buffer: self.clone(), stream }
    }

    /// Takes the complete lines.
    pub(crate) fn take(&self) -> Vec<Line> {
        let mut collected = self.0.lock();
        collected.bytes = 0;
        std::mem::take(&mut collected.lines)
    }

    /// Ends lines without a newline, at the end of a run.
    pub(crate) fn finish(&self, now: Timestamp) {
        let mut collected = self.0.lock();
        for stream in [LogStream::Stdout, LogStream::Stderr] {
            collected.cut(stream, now);
        }
    }
}

impl LogWriter {
    pub(crate) fn write(&self, text: &[u8], now: Timestamp) {
        let mut collected = self.buffer.0.lock();
        for piece in text.split_inclusive(|byte| *byte == b'\n') {
            for piece in piece.chunks(MAX_LINE) {
                let partial = &mut collected.partial[self.stream as usize];
                partial.extend_from_slice(piece);
                if partial.ends_with(b"\n") || partial.len() >= MAX_LINE {
                    collected.cut(self.stream, now);
                }
            }
        }
    }
}

impl Collected {
    fn cut(&mut self, stream: LogStream, at: Timestamp) {
        let text = std::mem::take(&mut self.partial[stream as usize]);
        if text.is_empty() {
            return;
        }
        self.bytes += text.len() + LINE_BYTES;
        self.lines.push(Line { at, stream, text });
        // Text that the log would drop anyway need not be kept.
        if self.bytes > 2 * LOG_BYTES {
            let kept = self.lines.split_off(self.lines.len() / 2);
            self.bytes = kept.iter().map(|line| line.text.len() + LINE_BYTES).sum();
            self.lines = kept;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Timestamp {
        "2025-01-01T00:00:00Z".parse().expect("a time")
    }

    fn texts(lines: &[Line]) -> Vec<String> {
        lines.iter().map(|line| String::from_utf8_lossy(&line.text).into_owned()).collect()
    }

    #[test]
    fn a_line_has_the_time_of_its_end_and_streams_do_not_mix() {
        let buffer = LogBuffer::default();
        let (stdout, stderr) = (buffer.writer(LogStream::Stdout), buffer.writer(LogStream::Stderr));
        stdout.write(b"a", now());
        stderr.write(b"error\n", now());
        stdout.write(b"b\nc", now() + std::time::Duration::from_secs(5));
        let lines = buffer.take();
        assert_eq!(texts(&lines), ["error\n", "ab\n"]);
        assert_eq!(lines[1].at, now() + std::time::Duration::from_secs(5));
        buffer.finish(now());
        assert_eq!(texts(&buffer.take()), ["c"]);
        stdout.write(&[b'x'; 20 << 10], now());
        buffer.finish(now());
        assert_eq!(buffer.take().iter().map(|line| line.text.len()).collect::<Vec<_>>(), [16 << 10, 4 << 10]);
    }

    #[test]
    fn a_log_keeps_the_newest_lines_and_followers_continue_by_number() {
        let mut log = Log::default();
        let line = |number: usize| Line {
            at: now(),
            stream: LogStream::Stdout,
            text: format!("{number:960}").into(),
        };
        log.extend((0..1000).map(line));
        let (lines, next) = log.lines_from(0);
        assert_eq!((lines.len(), next), (256, 1000));
        assert_eq!(log.lines_from(998).0.len(), 2);
        assert_eq!(log.lines_from(2000).0.len(), 0);
    }
}
