//! Dates in Go's layouts, for `vela/time`. Only converts between dates and timestamps; reads no clock.

use jiff::Timestamp;
use jiff::fmt::strtime::{self, BrokenDownTime};
use jiff::tz::TimeZone;

/// The parts of a layout and their strftime equivalents, longer ones before their prefixes.
const PARTS: &[(&str, &str)] = &[
    ("2006", "%Y"),
    ("January", "%B"),
    ("Jan", "%b"),
    ("Monday", "%A"),
    ("Mon", "%a"),
    ("MST", "%Z"),
    ("Z07:00", "%:z"),
    ("-07:00", "%:z"),
    ("Z0700", "%z"),
    ("-0700", "%z"),
    (".000000000", "%.9f"),
    (".000000", "%.6f"),
    (".000", "%.3f"),
    (".999999999", "%.f"),
    (".999999", "%.f"),
    (".999", "%.f"),
    ("01", "%m"),
    ("02", "%d"),
    ("03", "%I"),
    ("04", "%M"),
    ("05", "%S"),
    ("06", "%y"),
    ("15", "%H"),
    ("PM", "%p"),
    ("pm", "%P"),
    ("_2", "%e"),
    ("1", "%-m"),
    ("2", "%-d"),
    ("3", "%-I"),
    ("4", "%-M"),
    ("5", "%-S"),
    ("%", "%%"),
];

const RFC_3339: &str = "2006-01-02T15:04:05Z07:00";

/// Returns the layout in the notation of strftime. No layout is RFC 3339.
fn format_of(layout: &str) -> String {
    let (mut format, mut rest) = (String::new(), if layout.is_empty() { RFC_3339 } else { layout });
    while let Some(letter) = rest.chars().next() {
        match PARTS.iter().find(|(part, _)| rest.starts_with(part)) {
            Some((part, name)) => {
                format.push_str(name);
                rest = &rest[part.len()..];
            }
            None => {
                format.push(letter);
                rest = &rest[letter.len_utf8()..];
            }
        }
    }
    format
}

/// Returns whether a layout writes UTC as `Z`.
fn writes_z(layout: &str) -> bool {
    layout.is_empty() || layout.contains("Z07")
}

/// Converts a date to seconds since 1970. Without an offset it is in UTC. The error says why it is invalid.
pub(super) fn timestamp(date: &str, layout: &str) -> Result<i64, String> {
    let wrong =
        |why: &dyn std::fmt::Display| format!("date {date:?} does not have the layout {layout:?}: {why}");
    let zoned = match date.strip_suffix('Z').filter(|_| writes_z(layout)) {
        Some(rest) => format!("{rest}+00:00"),
        None => date.to_owned(),
    };
    let parsed: BrokenDownTime = strtime::parse(format_of(layout), zoned).map_err(|why| wrong(&why))?;
    if let Ok(timestamp) = parsed.to_timestamp() {
        return Ok(timestamp.as_second());
    }
    let day = parsed.to_date().map_err(|why| wrong(&why))?;
    let at = day.to_datetime(parsed.to_time().unwrap_or_default());
    let zoned = at.to_zoned(TimeZone::UTC).map_err(|why| wrong(&why))?;
    Ok(zoned.timestamp().as_second())
}

/// Converts a timestamp to a date in UTC. The error says why it is invalid.
pub(super) fn date(timestamp: i64, layout: &str) -> Result<String, String> {
    let at = Timestamp::from_second(timestamp).map_err(|why| format!("timestamp {timestamp}: {why}"))?;
    let formatted = strtime::format(format_of(layout), &at.to_zoned(TimeZone::UTC));
    let formatted = formatted.map_err(|why| format!("layout {layout:?}: {why}"))?;
    Ok(if writes_z(layout) { formatted.replace("+00:00", "Z").replace("+0000", "Z") } else { formatted })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_and_timestamps_are_turned_into_each_other() {
        for (date, layout, seconds) in [
            ("2024-03-01T12:30:05Z", "", 1_709_296_205),
            ("2024-03-01T12:30:05Z", RFC_3339, 1_709_296_205),
            ("2024-03-01 12:30:05", "2006-01-02 15:04:05", 1_709_296_205),
            ("2024-03-01", "2006-01-02", 1_709_251_200),
            ("Fri, 01 Mar 2024 12:30:05 +0000", "Mon, 02 Jan 2006 15:04:05 -0700", 1_709_296_205),
        ] {
            assert_eq!(timestamp(date, layout), Ok(seconds), "{date} {layout}");
            assert_eq!(super::date(seconds, layout).as_deref(), Ok(date), "{layout}");
        }
        assert_eq!(timestamp("2024-03-01T14:30:05+02:00", ""), Ok(1_709_296_205));
        assert!(timestamp("yesterday", "").unwrap_err().contains("yesterday"));
        assert!(super::date(i64::MAX, "").is_err());
    }
}
