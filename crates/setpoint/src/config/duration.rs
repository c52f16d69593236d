//! Durations in text form: `500ms`, `1.5s`, `1h30m`.

use std::time::Duration;

#[cfg(feature = "config")]
const UNITS: [(&str, f64); 6] =
    [("ns", 1e-9), ("us", 1e-6), ("ms", 1e-3), ("s", 1.0), ("m", 60.0), ("h", 3600.0)];

/// Parses a duration. Returns `None` if it is invalid or negative.
#[cfg(feature = "config")]
pub(super) fn parse(text: &str) -> Option<Duration> {
    if text == "0" {
        return Some(Duration::ZERO);
    }
    let mut rest = text;
    let mut seconds = 0.0;
    while !rest.is_empty() {
        let number = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let unit = rest[number..].find(|c: char| c.is_ascii_digit()).map_or(rest.len(), |at| number + at);
        let (_, factor) = UNITS.iter().find(|(name, _)| *name == &rest[number..unit])?;
        seconds += rest[..number].parse::<f64>().ok()? * factor;
        rest = &rest[unit..];
    }
    Some(seconds).filter(|_| !text.is_empty()).and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
}

/// Formats a duration so that `parse` accepts it.
pub(super) fn show(duration: Duration) -> String {
    match (duration.as_secs(), duration.subsec_nanos()) {
        (0, 0) => "0s".into(),
        (seconds, 0) if seconds % 3600 == 0 => format!("{}h", seconds / 3600),
        (seconds, 0) if seconds % 60 == 0 => format!("{}m", seconds / 60),
        (seconds, 0) => format!("{seconds}s"),
        (0, nanos) if nanos % 1_000_000 == 0 => format!("{}ms", nanos / 1_000_000),
        _ => format!("{}s", duration.as_secs_f64()),
    }
}
