//! Durations in Go's format: `300ms`, `1m30s`, `2h`.

use std::time::Duration;

/// Parses a duration. The error says what was expected.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is no duration such as 30s or 1m30s");
    let (mut rest, mut total) = (text.trim(), 0.0_f64);
    if rest.is_empty() {
        return Err(wrong());
    }
    while !rest.is_empty() && rest != "0" {
        let end = rest.find(|letter: char| !letter.is_ascii_digit() && letter != '.').ok_or_else(wrong)?;
        let number: f64 = rest[..end].parse().map_err(|_| wrong())?;
        let tail = &rest[end..];
        let unit_end = tail.find(|letter: char| letter.is_ascii_digit()).unwrap_or(tail.len());
        let seconds = match &tail[..unit_end] {
            "h" => 3600.0,
            "m" => 60.0,
            "s" => 1.0,
            "ms" => 1e-3,
            "us" | "µs" => 1e-6,
            "ns" => 1e-9,
            _ => return Err(wrong()),
        };
        total += number * seconds;
        rest = &tail[unit_end..];
    }
    Duration::try_from_secs_f64(total).map_err(|_| wrong())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_go_reads_them() {
        for (text, seconds) in [("5s", 5.0), ("1m30s", 90.0), ("1.5h", 5400.0), ("300ms", 0.3), ("0", 0.0)] {
            assert_eq!(parse(text), Ok(Duration::from_secs_f64(seconds)), "{text}");
        }
        for text in ["", "5", "s", "1x", "99999999999999999999h"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
