//! The latency breakdown of a slow request: annotations `apiserver.latency.k8s.io/…`.

use std::time::Duration;

/// Requests that take longer are annotated, as in v1.34.
pub(super) const THRESHOLD: Duration = Duration::from_millis(500);

/// A stage of request processing, with its own annotation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layer {
    Authentication,
    Authorization,
    /// The total of all mutating webhook calls.
    MutatingWebhook,
    /// The longest validating webhook call.
    ValidatingWebhook,
    /// The total time.
    Total,
}

impl Layer {
    pub(super) const fn annotation(self) -> &'static str {
        match self {
            Self::Authentication => "apiserver.latency.k8s.io/authentication",
            Self::Authorization => "apiserver.latency.k8s.io/authorization",
            Self::MutatingWebhook => "apiserver.latency.k8s.io/mutating-webhook",
            Self::ValidatingWebhook => "apiserver.latency.k8s.io/validating-webhook",
            Self::Total => "apiserver.latency.k8s.io/total",
        }
    }
}

/// Formats a duration like Go: `1m2.5s`, `730.2ms`, `12µs`.
pub(super) fn written(duration: Duration) -> String {
    let nanoseconds = duration.as_nanos();
    let (unit, name) = match nanoseconds {
        0 => return "0s".into(),
        1..1_000 => (1, "ns"),
        1_000..1_000_000 => (1_000, "µs"),
        1_000_000..1_000_000_000 => (1_000_000, "ms"),
        _ => (1_000_000_000, "s"),
    };
    let (hours, rest) = (nanoseconds / 3_600_000_000_000, nanoseconds % 3_600_000_000_000);
    let (minutes, rest) = (rest / 60_000_000_000, rest % 60_000_000_000);
    let number = format!("{}.{:09}", rest / unit, rest % unit * (1_000_000_000 / unit));
    let number = number.trim_end_matches('0').trim_end_matches('.');
    match (hours, minutes) {
        (0, 0) => format!("{number}{name}"),
        (0, minutes) => format!("{minutes}m{number}{name}"),
        (hours, minutes) => format!("{hours}h{minutes}m{number}{name}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_written_as_go_does() {
        for (nanoseconds, expected) in [
            (0, "0s"),
            (12, "12ns"),
            (12_500, "12.5µs"),
            (730_200_000, "730.2ms"),
            (1_000_000_000, "1s"),
            (62_500_000_000, "1m2.5s"),
            (3_600_000_000_000, "1h0m0s"),
        ] {
            assert_eq!(written(Duration::from_nanos(nanoseconds)), expected);
        }
    }
}
