//! Result tables, and time measurement.

use std::hint::black_box;
use std::time::Duration;

use crate::process;

/// A table that is printed with aligned columns.
pub(crate) struct Report {
    rows: Vec<Vec<String>>,
    title: String,
}

impl Report {
    pub(crate) fn new(title: &str, columns: &[&str]) -> Self {
        let head = std::iter::once("").chain(columns.iter().copied()).map(String::from).collect();
        Self { rows: vec![head], title: title.into() }
    }

    /// Adds a row: its name, and a number for each column.
    pub(crate) fn row<T: ToString>(&mut self, name: &str, cells: impl IntoIterator<Item = T>) {
        let cells = cells.into_iter().map(|cell| cell.to_string());
        self.rows.push(std::iter::once(name.to_owned()).chain(cells).collect());
    }

    pub(crate) fn print(self) {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            self.rows
                .iter()
                .filter_map(|row| row.get(column))
                .map(|cell| cell.chars().count())
                .max()
                .unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        println!("\n{}", self.title);
        for row in &self.rows {
            let (name, cells) = row.split_first().expect("a row has a name");
            let cells: String =
                cells.iter().zip(&widths[1..]).map(|(cell, width)| format!("  {cell:>width$}")).collect();
            println!("  {name:<width$}{cells}", width = widths[0]);
        }
    }
}

/// Runs `work`. Returns the CPU time of this thread and the result.
pub(crate) fn timed<T>(work: impl FnOnce() -> T) -> (Duration, T) {
    let before = process::thread_cpu();
    let made = work();
    (process::thread_cpu().saturating_sub(before), made)
}

/// The minimum duration of a round, because the kernel updates a thread's CPU time only every few milliseconds.
const ROUND: Duration = Duration::from_millis(200);

/// Returns the CPU time of a call in nanoseconds, as the best of five rounds, because other programs can only slow a
/// round down. The time is checked after every `calls` calls.
pub(crate) fn per_call<T>(calls: u32, mut call: impl FnMut() -> T) -> u64 {
    let mut round = || {
        let (before, mut made) = (process::thread_cpu(), 0);
        loop {
            (0..calls).for_each(|_| _ = black_box(call()));
            made += u64::from(calls);
            let time = process::thread_cpu().saturating_sub(before);
            if time >= ROUND {
                return time.as_nanos() as u64 / made;
            }
        }
    };
    (0..5).map(|_| round()).min().unwrap_or(0)
}

/// Returns the duration in nanoseconds of a call on a value made for it, as the median of many short rounds, because
/// other programs disturb few of them. Making the value is not included.
pub(crate) fn median<S>(make: impl Fn() -> S, mut call: impl FnMut(&S)) -> u64 {
    const CALLS: usize = 20;
    let clock = setpoint::Clock::system();
    let mut rounds: Vec<u64> = (0..2_001)
        .map(|_| {
            let made: Vec<S> = (0..CALLS).map(|_| make()).collect();
            let before = clock.instant();
            made.iter().for_each(&mut call);
            (clock.instant() - before).as_nanos() as u64 / CALLS as u64
        })
        .collect();
    rounds.sort_unstable();
    rounds[rounds.len() / 2]
}

/// Formats a number as `12,345`.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let start = digits.len() % 3;
    let groups =
        digits.as_bytes()[start..].chunks(3).map(|group| String::from_utf8_lossy(group).into_owned());
    std::iter::once(digits[..start].to_owned())
        .filter(|head| !head.is_empty())
        .chain(groups)
        .collect::<Vec<_>>()
        .join(",")
}
