//! Limits of calls.

use std::time::Duration;

use tokio::sync::Semaphore;

use crate::backoff::Backoff;
use crate::error::CallError;

/// Timeout, maximum response size and retries of a call.
#[derive(Clone, Debug)]
pub struct Settings {
    /// From the first byte sent to the last byte received.
    pub timeout: Duration,
    /// The maximum response size in bytes.
    pub answer_bytes: usize,
    /// The maximum number of responses that one client reads and its callers hold at a time. Further ones wait, within
    /// their timeouts. By default only the number of calls is limited.
    pub responses: usize,
    pub user_agent: &'static str,
    /// Whether to send the timeout as the query parameter `timeout`, as Kubernetes API clients do.
    pub sends_timeout: bool,
    pub backoff: Backoff,
    pub retries: Retries,
}

/// Which errors are retried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Retries {
    /// Errors that may be transient, according to the server.
    #[default]
    Transient,
    /// All errors: the message must not be lost.
    All,
}

impl Retries {
    pub(crate) fn includes(self, error: &CallError) -> bool {
        self == Self::All || error.is_transient()
    }
}

/// Responses larger than the largest request this server accepts are useless to it.
const ANSWER_BYTES: usize = 3 << 20;
/// As in v1.34: kubeconfig files set no timeout.
const TIMEOUT: Duration = Duration::from_secs(30);

impl Default for Settings {
    fn default() -> Self {
        Self {
            timeout: TIMEOUT,
            answer_bytes: ANSWER_BYTES,
            responses: Semaphore::MAX_PERMITS,
            // The user agent that v1.34 sends to token and authorization webhooks.
            user_agent: "Go-http-client/1.1",
            sends_timeout: false,
            backoff: Backoff::default(),
            retries: Retries::default(),
        }
    }
}

/// Formats a duration as Go does: `1m30s`, `500ms`.
pub fn go_duration(duration: Duration) -> String {
    let (seconds, nanoseconds) = (duration.as_secs(), duration.subsec_nanos());
    if seconds == 0 {
        return match nanoseconds {
            0 => "0s".into(),
            1..1_000 => format!("{nanoseconds}ns"),
            1_000..1_000_000 => format!("{}µs", decimal(u64::from(nanoseconds), 1_000)),
            _ => format!("{}ms", decimal(u64::from(nanoseconds), 1_000_000)),
        };
    }
    let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
    let rest = u64::from(nanoseconds) + seconds % 60 * 1_000_000_000;
    let rest = decimal(rest, 1_000_000_000);
    match (hours, minutes) {
        (0, 0) => format!("{rest}s"),
        (0, minutes) => format!("{minutes}m{rest}s"),
        (hours, minutes) => format!("{hours}h{minutes}m{rest}s"),
    }
}

/// Formats `value / unit` without trailing zeros.
fn decimal(value: u64, unit: u64) -> String {
    let (whole, part) = (value / unit, value % unit);
    if part == 0 {
        return whole.to_string();
    }
    let width = unit.ilog10() as usize;
    let part = format!("{part:0width$}");
    format!("{whole}.{}", part.trim_end_matches('0'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_written_as_go_writes_them() {
        let rows = [
            (0, "0s"),
            (500, "500ms"),
            (1_500, "1.5s"),
            (30_000, "30s"),
            (90_000, "1m30s"),
            (3_600_000, "1h0m0s"),
        ];
        for (milliseconds, expected) in rows {
            assert_eq!(go_duration(Duration::from_millis(milliseconds)), expected);
        }
        assert_eq!(go_duration(Duration::from_micros(1_500)), "1.5ms");
    }
}
