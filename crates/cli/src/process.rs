//! What the kernel says of this process, under the names that every exporter of Prometheus has for it.

use std::fmt::Write;
use std::fs;

/// The kernel counts CPU time in these on every Linux.
const TICKS_PER_SECOND: f64 = 100.0;

/// In the text format of Prometheus; where there is no `/proc`, nothing.
pub(crate) fn figures() -> String {
    let mut text = String::new();
    let mut put = |name: &str, kind: &str, help: &str, value: f64| {
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}");
    };
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The second field, the program's name, may contain anything; the rest follows its closing parenthesis.
    let fields: Vec<f64> = match stat.rsplit_once(')') {
        Some((_, rest)) => rest.split_whitespace().map(|field| field.parse().unwrap_or(0.0)).collect(),
        None => Vec::new(),
    };
    // State is the first of these, so what `man proc` numbers n is at n - 3.
    if let (Some(user), Some(system)) = (fields.get(11), fields.get(12)) {
        let seconds = (user + system) / TICKS_PER_SECOND;
        put(
            "process_cpu_seconds_total",
            "counter",
            "Total user and system CPU time spent in seconds.",
            seconds,
        );
    }
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB"));
    if let Some(kibibytes) = resident.and_then(|text| text.parse::<f64>().ok()) {
        put("process_resident_memory_bytes", "gauge", "Resident memory size in bytes.", kibibytes * 1024.0);
    }
    if let Ok(open) = fs::read_dir("/proc/self/fd") {
        put("process_open_fds", "gauge", "Number of open file descriptors.", open.count() as f64);
    }
    text
}

#[cfg(test)]
mod tests {
    #[test]
    fn this_process_has_memory_and_files() {
        let figures = super::figures();
        for name in ["process_cpu_seconds_total", "process_resident_memory_bytes", "process_open_fds"] {
            let value = figures.lines().find_map(|line| line.strip_prefix(&format!("{name} ")));
            assert!(value.is_some_and(|value| value.parse::<f64>().is_ok()), "{figures}");
        }
    }
}
