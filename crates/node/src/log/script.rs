//! Scripted log lines of an annotation or a ConfigMap. Pure.
//!
//! ```text
//!  starting up                      when the container starts
//!  2s listening on :8080            two seconds later
//!  2500ms stderr: cache is cold     to stderr
//!  every 30s 12 requests served     after 30 seconds, and again every 30 seconds
//! ```

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use jiff::Timestamp;

use super::{LINE_BYTES, LOG_BYTES, Line, LogStream};
use crate::behaviour::parse_duration;

/// The lines of a script.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LogScript {
    lines: Vec<Scripted>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Scripted {
    after: Duration,
    is_repeated: bool,
    stream: LogStream,
    text: String,
}

/// The maximum number of lines of a script. With the size of an annotation or ConfigMap, their text is below 1 MiB.
const MAX_LINES: usize = 10_000;

/// The shortest interval of a repeated line.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(10);

impl LogScript {
    pub(crate) fn parse(text: &str) -> Self {
        let mut after = Duration::ZERO;
        let lines = text.lines().filter(|line| !line.is_empty()).take(MAX_LINES).map(|line| {
            let scripted = Scripted::parse(line, after);
            if !scripted.is_repeated {
                after = scripted.after;
            }
            scripted
        });
        Self { lines: lines.collect() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// Returns the lines of a run since `since` that are printed after one time and until another, in order: the
    /// newest ones, as many as a log keeps.
    pub(crate) fn between(&self, since: Timestamp, after: Option<Timestamp>, until: Timestamp) -> Vec<Line> {
        let Some(until) = passed(since, until) else { return Vec::new() };
        let after = after.and_then(|after| passed(since, after));
        let mut newest = Newest::default();
        for (index, scripted) in self.lines.iter().enumerate() {
            // A line that is not kept ends the search, because all further ones are older.
            scripted.times_back(after, until).all(|time| newest.keep((time, index), scripted.bytes()));
        }
        let lines = newest.into_sorted().into_iter();
        lines.filter_map(|(time, index)| self.lines[index].line(since, time)).collect()
    }

    /// Returns when the next line is printed after a time.
    pub(crate) fn next(&self, since: Timestamp, now: Timestamp) -> Option<Timestamp> {
        let passed = passed(since, now);
        let next = self.lines.iter().filter_map(|scripted| scripted.next(passed)).min();
        next.and_then(|after| since.checked_add(after).ok())
    }
}

/// The time of a line, and its index in the script.
type Printed = (Duration, usize);

/// The newest lines, as many as a log keeps.
#[derive(Default)]
struct Newest {
    lines: BinaryHeap<Reverse<(Printed, usize)>>,
    bytes: usize,
}

impl Newest {
    /// Adds a line, drops the oldest ones if there is no room, and returns whether the new one is still there.
    fn keep(&mut self, line: Printed, bytes: usize) -> bool {
        self.lines.push(Reverse((line, bytes)));
        self.bytes += bytes;
        let mut is_kept = true;
        while self.bytes > LOG_BYTES
            && let Some(Reverse((oldest, freed))) = self.lines.pop()
        {
            self.bytes -= freed;
            is_kept &= oldest != line;
        }
        is_kept
    }

    fn into_sorted(self) -> Vec<Printed> {
        let mut lines: Vec<Printed> = self.lines.into_iter().map(|Reverse((line, _))| line).collect();
        lines.sort_unstable();
        lines
    }
}

/// Returns a multiple of a duration. 584 years at most, which is later than anything that runs.
fn times_of(duration: Duration, count: u64) -> Duration {
    let nanoseconds = duration.as_nanos().saturating_mul(u128::from(count));
    Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX))
}

fn passed(since: Timestamp, now: Timestamp) -> Option<Duration> {
    Duration::try_from(now.duration_since(since)).ok()
}

impl Scripted {
    /// Parses a line. Without a time, it is printed together with the one before.
    fn parse(line: &str, before: Duration) -> Self {
        let timed = |text: &str| {
            let (time, rest) = text.split_once(' ').unwrap_or((text, ""));
            // A plain number is more likely a part of the text.
            let has_unit = time.ends_with(|c: char| c.is_ascii_alphabetic());
            parse_duration(time).filter(|_| has_unit).map(|time| (time, rest.to_owned()))
        };
        let repeated = line.strip_prefix("every ").and_then(timed);
        let is_repeated = repeated.is_some();
        let (after, text) = repeated.or_else(|| timed(line)).unwrap_or((before, line.to_owned()));
        let after = if is_repeated { after.max(SHORTEST_INTERVAL) } else { after };
        match text.strip_prefix("stderr: ") {
            Some(text) => Self { after, is_repeated, stream: LogStream::Stderr, text: text.to_owned() },
            None => Self { after, is_repeated, stream: LogStream::Stdout, text },
        }
    }

    fn line(&self, since: Timestamp, after: Duration) -> Option<Line> {
        let text = format!("{}\n", self.text).into_bytes();
        Some(Line { at: since.checked_add(after).ok()?, stream: self.stream, text })
    }

    /// The size of the line in a log.
    fn bytes(&self) -> usize {
        self.text.len() + "\n".len() + LINE_BYTES
    }

    /// Returns when the line is printed after one time and until another, the latest time first.
    fn times_back(&self, after: Option<Duration>, until: Duration) -> impl Iterator<Item = Duration> {
        let count = |time: Duration| match self.is_repeated {
            true => u64::try_from(time.as_nanos() / self.after.as_nanos()).unwrap_or(u64::MAX),
            false => u64::from(self.after <= time),
        };
        let (first, last) = (after.map_or(0, count), count(until));
        (first..last).rev().map(|before| times_of(self.after, before + 1))
    }

    fn next(&self, passed: Option<Duration>) -> Option<Duration> {
        match (self.is_repeated, passed) {
            (false, passed) => Some(self.after).filter(|after| passed.is_none_or(|passed| *after > passed)),
            (true, None) => Some(self.after),
            (true, Some(passed)) => {
                let nth = passed.as_nanos() / self.after.as_nanos() + 1;
                Some(times_of(self.after, u64::try_from(nth).unwrap_or(u64::MAX)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn since() -> Timestamp {
        "2025-01-01T00:00:00Z".parse().expect("a time")
    }

    fn at(seconds: u64) -> Timestamp {
        since() + Duration::from_secs(seconds)
    }

    const SCRIPT: &str = "starting up\n2s listening\nready\n3s stderr: cold\nevery 5s tick\n10 is no time\n";

    #[test]
    fn lines_are_printed_at_their_times() {
        let script = LogScript::parse(SCRIPT);
        let shown = |after: Option<u64>, until: u64| {
            let lines = script.between(since(), after.map(at), at(until));
            let shown = lines.iter().map(|line| {
                let seconds = line.at.duration_since(since()).as_secs();
                format!("{seconds} {}", String::from_utf8_lossy(&line.text).trim_end())
            });
            shown.collect::<Vec<_>>()
        };
        assert_eq!(shown(None, 0), ["0 starting up"]);
        assert_eq!(shown(Some(0), 2), ["2 listening", "2 ready"]);
        assert_eq!(shown(Some(2), 12), ["3 cold", "3 10 is no time", "5 tick", "10 tick"]);
        assert_eq!(shown(Some(12), 14), [""; 0]);
        assert_eq!(script.between(since(), None, at(3))[3].stream, LogStream::Stderr);
        assert_eq!(script.next(since(), at(0)), Some(at(2)));
        assert_eq!(script.next(since(), at(12)), Some(at(15)));
    }

    #[test]
    fn a_year_of_repeated_lines_is_not_more_than_a_log_keeps() {
        let year = at(366 * 86400);
        for (count, text) in
            [(1, "tick".to_owned()), (MAX_LINES, "tick".to_owned()), (3, "x".repeat(100 << 10))]
        {
            let script = LogScript::parse(&format!("every 0ms {text}\n").repeat(count));
            let lines = script.between(since(), None, year);
            let room = LOG_BYTES / (text.len() + 1 + LINE_BYTES);
            assert_eq!(lines.len(), room, "{count} lines");
            assert_eq!(lines.last().map(|line| line.at), Some(year));
        }
        assert!(LogScript::parse("\n\n").is_empty());
    }
}
