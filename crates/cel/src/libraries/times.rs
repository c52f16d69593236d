//! Components of timestamps and durations.

use jiff::tz::{Offset, TimeZone};
use jiff::{SignedDuration, Timestamp};

use super::{Outcome, failed};
use crate::value::Val;

pub(super) fn call(function: &str, args: &[Val]) -> Option<Outcome> {
    match args {
        [Val::Duration(nanoseconds)] => duration_part(function, *nanoseconds).map(|part| Ok(Val::Int(part))),
        [Val::Timestamp(time)] => time_part(function, *time, TimeZone::UTC).map(Ok),
        [Val::Timestamp(time), Val::String(zone)] => match self::zone(zone) {
            Some(zone) => time_part(function, *time, zone).map(Ok),
            None => Some(Err(failed(format!("unknown time zone {zone}")))),
        },
        _ => None,
    }
}

fn duration_part(function: &str, nanoseconds: i64) -> Option<i64> {
    Some(match function {
        "getHours" => nanoseconds / 3_600_000_000_000,
        "getMinutes" => nanoseconds / 60_000_000_000,
        "getSeconds" => nanoseconds / 1_000_000_000,
        "getMilliseconds" => nanoseconds / 1_000_000,
        _ => return None,
    })
}

/// Parses a time zone: `+01:00`, or a name.
fn zone(text: &str) -> Option<TimeZone> {
    let signed = text.starts_with(['+', '-']) || text.as_bytes().first().is_some_and(u8::is_ascii_digit);
    if !signed {
        return if matches!(text, "UTC" | "") { Some(TimeZone::UTC) } else { TimeZone::get(text).ok() };
    }
    let (sign, rest) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    let (hours, minutes) = rest.split_once(':')?;
    let seconds = (hours.parse::<i32>().ok()? * 60 + minutes.parse::<i32>().ok()?) * 60 * sign;
    Offset::from_seconds(seconds).ok().map(TimeZone::fixed)
}

fn time_part(function: &str, time: Timestamp, zone: TimeZone) -> Option<Val> {
    let local = time.to_zoned(zone);
    let part = match function {
        "getFullYear" => local.year().into(),
        "getMonth" => i64::from(local.month()) - 1,
        "getDayOfYear" => i64::from(local.day_of_year()) - 1,
        "getDayOfMonth" => i64::from(local.day()) - 1,
        "getDate" => local.day().into(),
        "getDayOfWeek" => local.weekday().to_sunday_zero_offset().into(),
        "getHours" => local.hour().into(),
        "getMinutes" => local.minute().into(),
        "getSeconds" => local.second().into(),
        "getMilliseconds" => local.millisecond().into(),
        _ => return None,
    };
    Some(Val::Int(part))
}

pub(super) fn shifted(time: Timestamp, nanoseconds: i64) -> Outcome {
    let by = SignedDuration::from_nanos(nanoseconds);
    time.checked_add(by).map(Val::Timestamp).map_err(|_| failed("timestamp overflow"))
}
