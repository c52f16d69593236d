//! Resource usage of a process according to the kernel: this one, or a child.

use std::fs;
use std::path::Path;
use std::time::Duration;

/// The unit of CPU time on every Linux.
const TICKS_PER_SECOND: u64 = 100;

/// Returns the CPU time this process has used so far.
pub(crate) fn cpu() -> Duration {
    cpu_of("self")
}

/// Returns the CPU time used so far, user and system, by all threads.
pub(crate) fn cpu_of(process: &str) -> Duration {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // The second field, the program's name, may contain anything. The rest follows its closing parenthesis.
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    let ticks: u64 = fields.skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
    Duration::from_millis(ticks * 1000 / TICKS_PER_SECOND)
}

/// Returns the CPU time the calling thread has used so far.
pub(crate) fn thread_cpu() -> Duration {
    let stat = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    Duration::from_nanos(stat.split_whitespace().next().and_then(|nanos| nanos.parse().ok()).unwrap_or(0))
}

/// Returns the number of allocated bytes, by the allocator's own count.
pub(crate) fn allocated() -> usize {
    // The counts are from the last epoch. Advancing it refreshes them.
    tikv_jemalloc_ctl::epoch::advance().ok();
    tikv_jemalloc_ctl::stats::allocated::read().unwrap_or(0)
}

/// Returns the current resident memory of this process in bytes.
pub(crate) fn rss() -> u64 {
    memory_of("self", "VmRSS:")
}

/// Returns a memory value of a process in bytes: `VmRSS:` for the current value, `VmHWM:` for the peak.
pub(crate) fn memory_of(process: &str, figure: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(figure)).unwrap_or_default();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap_or(0) * 1024
}

/// Returns the total size of the files in a directory.
pub(crate) fn disk_usage(directory: &Path) -> u64 {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let size = |entry: fs::DirEntry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => disk_usage(&entry.path()),
        metadata => metadata.map_or(0, |metadata| metadata.len()),
    };
    entries.map(size).sum()
}
