//! Process metrics from the kernel, under the usual names of Prometheus client libraries.

use std::fs;

use setpoint_exposition::Text;

/// The unit of CPU time on every Linux.
const TICKS_PER_SECOND: f64 = 100.0;

/// A sample: name, type, help and value.
type Sample = (&'static str, &'static str, &'static str, f64);

/// Returns the metrics in the Prometheus text format. Empty if there is no `/proc`.
pub(crate) fn process_metrics() -> String {
    let mut text = Text::default();
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let samples = of_stat(&stat).into_iter().chain(of_status()).chain(of_files());
    for (name, kind, help, value) in samples {
        text.head(name, kind, help);
        text.sample(name, &[], value);
    }
    text.finish()
}

/// Extracts CPU time, virtual memory and the start time from `/proc/self/stat`.
fn of_stat(stat: &str) -> Vec<Sample> {
    // The second field, the program's name, may contain anything. The rest follows its closing parenthesis.
    let Some((_, rest)) = stat.rsplit_once(')') else { return Vec::new() };
    let fields: Vec<f64> = rest.split_whitespace().map(|field| field.parse().unwrap_or(0.0)).collect();
    // The state is the first of these, so field n in `man proc` is at n - 3.
    let [Some(user), Some(system), Some(started), Some(bytes)] = [11, 12, 19, 20].map(|at| fields.get(at))
    else {
        return Vec::new();
    };
    let cpu = (user + system) / TICKS_PER_SECOND;
    let mut samples = vec![
        ("process_cpu_seconds_total", "counter", "CPU seconds used, user and system.", cpu),
        ("process_virtual_memory_bytes", "gauge", "Bytes of virtual memory.", *bytes),
    ];
    if let Some(boot) = number_after("/proc/stat", "btime ", "") {
        let help = "Unix time of the process's start.";
        samples.push(("process_start_time_seconds", "gauge", help, boot + started / TICKS_PER_SECOND));
    }
    samples
}

fn of_status() -> Option<Sample> {
    let kibibytes = number_after("/proc/self/status", "VmRSS:", " kB")?;
    Some(("process_resident_memory_bytes", "gauge", "Bytes of resident memory.", kibibytes * 1024.0))
}

fn of_files() -> Vec<Sample> {
    let mut samples = Vec::new();
    if let Ok(open) = fs::read_dir("/proc/self/fd") {
        samples.push(("process_open_fds", "gauge", "Open file descriptors.", open.count() as f64));
    }
    if let Some(most) = rustix::process::getrlimit(rustix::process::Resource::Nofile).current {
        samples.push(("process_max_fds", "gauge", "Limit of open file descriptors.", most as f64));
    }
    samples
}

/// Returns the number on the line with this prefix and suffix.
fn number_after(file: &str, prefix: &str, suffix: &str) -> Option<f64> {
    let text = fs::read_to_string(file).ok()?;
    text.lines().find_map(|line| line.strip_prefix(prefix)?.strip_suffix(suffix))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::of_stat;

    #[test]
    fn a_name_with_a_parenthesis_does_not_shift_the_fields() {
        let stat = "7 (a) b) S 1 1 1 0 -1 0 0 0 0 0 150 50 0 0 20 0 1 0 1000 4096 1";
        let value = |name: &str| of_stat(stat).iter().find(|sample| sample.0 == name).map(|sample| sample.3);
        assert_eq!(value("process_cpu_seconds_total"), Some(2.0));
        assert_eq!(value("process_virtual_memory_bytes"), Some(4096.0));
        assert!(of_stat("").is_empty() && of_stat("7 (a) S 1").is_empty());
    }

    #[test]
    fn this_process_has_memory_and_files() {
        let process_metrics = super::process_metrics();
        for name in [
            "process_cpu_seconds_total",
            "process_virtual_memory_bytes",
            "process_start_time_seconds",
            "process_resident_memory_bytes",
            "process_open_fds",
            "process_max_fds",
        ] {
            let value = process_metrics.lines().find_map(|line| line.strip_prefix(&format!("{name} ")));
            assert!(value.is_some_and(|value| value.parse::<f64>().is_ok()), "{process_metrics}");
        }
    }
}
