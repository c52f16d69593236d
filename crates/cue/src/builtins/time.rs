//! Package `time`: durations and RFC 3339 timestamps. There is no clock: evaluation is a pure function.

use super::{Builtin, int};
use crate::eval::value_of::Val;
use crate::label::quoted;
use crate::value::Atom;

pub(super) const TABLE: &[Builtin] = &[
    Builtin::check("Duration", 1, |args| {
        let text = args.text(0)?;
        Ok(Val::bool(duration(&text).is_some()))
    }),
    Builtin::new("ParseDuration", 1, |args| {
        let text = args.text(0)?;
        match duration(&text) {
            Some(nanoseconds) => Ok(Val::Atom(Atom::int(nanoseconds))),
            None => args.fail(format!("{} is not a duration such as 1h30m", quoted(&text))),
        }
    }),
    Builtin::new("FormatDuration", 1, |args| {
        let nanoseconds = args.int(0)?;
        args.created(format_duration(nanoseconds))
    }),
    Builtin::check("Time", 1, |args| {
        let text = args.text(0)?;
        Ok(Val::bool(timestamp(&text).is_some()))
    }),
    Builtin::new("Unix", 2, |args| {
        let (seconds, nanoseconds) = (args.int(0)?, args.int(1)?);
        match format_timestamp(seconds, nanoseconds) {
            Some(text) => args.created(text),
            None => args.fail("the time is out of range"),
        }
    }),
    Builtin::new("ToUnix", 1, |args| {
        let text = args.text(0)?;
        match timestamp(&text) {
            Some(seconds) => Ok(Val::Atom(Atom::int(seconds))),
            None => args.fail(format!("{} is not an RFC 3339 time", quoted(&text))),
        }
    }),
    Builtin::new("DaysIn", 2, |args| {
        let (year, month) = (args.int(0)?, args.int(1)?);
        match month {
            1..=12 => Ok(int(days_in(year, month) as usize)),
            _ => args.fail(format!("{month} is not a month")),
        }
    }),
];

const UNITS: &[(&str, i128)] = &[
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("μs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

pub(super) fn constant(name: &str) -> Option<Atom> {
    let nanoseconds = match name {
        "Nanosecond" => 1,
        "Microsecond" => 1_000,
        "Millisecond" => 1_000_000,
        "Second" => 1_000_000_000,
        "Minute" => 60_000_000_000,
        "Hour" => 3_600_000_000_000,
        "RFC3339" => return Some(Atom::text("2006-01-02T15:04:05Z07:00")),
        "RFC3339Nano" => return Some(Atom::text("2006-01-02T15:04:05.999999999Z07:00")),
        "RFC3339Date" => return Some(Atom::text("2006-01-02")),
        _ => return None,
    };
    Some(Atom::int(nanoseconds))
}

/// Parses a duration as Go does. Returns nanoseconds.
fn duration(text: &str) -> Option<i128> {
    let (negative, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Some(0);
    }
    let mut total: i128 = 0;
    let mut parts = 0;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, tail) = rest.split_at(end);
        let width = tail.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(tail.len());
        let (_, unit) = UNITS.iter().find(|(name, _)| *name == &tail[..width])?;
        total = total.checked_add(scaled(number, *unit)?)?;
        rest = &tail[width..];
        parts += 1;
    }
    let total = if negative { -total } else { total };
    (parts > 0 && i64::try_from(total).is_ok()).then_some(total)
}

fn scaled(number: &str, unit: i128) -> Option<i128> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let whole: i128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let fraction: String = fraction.chars().take(18).collect();
    let digits: i128 = if fraction.is_empty() { 0 } else { fraction.parse().ok()? };
    let scale = 10i128.checked_pow(fraction.len() as u32)?;
    whole.checked_mul(unit)?.checked_add(digits.checked_mul(unit)? / scale)
}

fn format_duration(nanoseconds: i128) -> String {
    let sign = if nanoseconds < 0 { "-" } else { "" };
    let value = nanoseconds.unsigned_abs();
    let fraction = |value: u128, unit: u128, name: &str| {
        let digits = format!("{:0width$}", value % unit, width = unit.ilog10() as usize);
        let digits = digits.trim_end_matches('0');
        let dot = if digits.is_empty() { "" } else { "." };
        format!("{}{dot}{digits}{name}", value / unit)
    };
    let text = match value {
        0 => "0s".to_owned(),
        1..1_000 => format!("{value}ns"),
        1_000..1_000_000 => fraction(value, 1_000, "µs"),
        1_000_000..1_000_000_000 => fraction(value, 1_000_000, "ms"),
        _ => {
            let (minutes, rest) = (value / 60_000_000_000, value % 60_000_000_000);
            let seconds = fraction(rest, 1_000_000_000, "s");
            match (minutes / 60, minutes % 60) {
                (0, 0) => seconds,
                (0, minutes) => format!("{minutes}m{seconds}"),
                (hours, minutes) => format!("{hours}h{minutes}m{seconds}"),
            }
        }
    };
    format!("{sign}{text}")
}

fn days_in(year: i128, month: i128) -> i128 {
    match month {
        4 | 6 | 9 | 11 => 30,
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        _ => 31,
    }
}

/// Days since 1970-01-01 in the Gregorian calendar.
fn days_from_civil(year: i128, month: i128, day: i128) -> i128 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year - era * 400;
    let of_year = (153 * (month + if month > 2 { -3 } else { 9 }) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// Parses an RFC 3339 time. Returns seconds since 1970.
fn timestamp(text: &str) -> Option<i128> {
    let number = |range: std::ops::Range<usize>| -> Option<i128> {
        let part = text.get(range)?;
        part.bytes().all(|byte| byte.is_ascii_digit()).then(|| part.parse().ok())?
    };
    let separators = [(4, "-"), (7, "-"), (10, "T"), (13, ":"), (16, ":")];
    if separators.iter().any(|(at, wanted)| text.get(*at..*at + 1) != Some(wanted)) {
        return None;
    }
    let (year, month, day) = (number(0..4)?, number(5..7)?, number(8..10)?);
    let (hour, minute, second) = (number(11..13)?, number(14..16)?, number(17..19)?);
    let valid = (1..=12).contains(&month)
        && (1..=days_in(year, month)).contains(&day)
        && hour < 24
        && minute < 60
        && second < 60;
    let mut zone = text.get(19..)?;
    if let Some(fraction) = zone.strip_prefix('.') {
        zone = fraction.trim_start_matches(|c: char| c.is_ascii_digit());
        if zone.len() == fraction.len() {
            return None;
        }
    }
    let offset = offset(zone)?;
    let seconds = days_from_civil(year, month, day) * 86_400 + hour * 3_600 + minute * 60 + second - offset;
    valid.then_some(seconds)
}

fn offset(zone: &str) -> Option<i128> {
    if zone == "Z" {
        return Some(0);
    }
    let sign = match zone.get(..1)? {
        "+" => 1,
        "-" => -1,
        _ => return None,
    };
    let (hours, minutes) = zone.get(1..)?.split_once(':')?;
    let part = |text: &str, limit: i128| -> Option<i128> {
        let value: i128 = (text.len() == 2).then(|| text.parse().ok())??;
        (0..limit).contains(&value).then_some(value)
    };
    Some(sign * (part(hours, 24)? * 3_600 + part(minutes, 60)? * 60))
}

fn format_timestamp(seconds: i128, nanoseconds: i128) -> Option<String> {
    let seconds = seconds.checked_add(nanoseconds.div_euclid(1_000_000_000))?;
    let nanoseconds = nanoseconds.rem_euclid(1_000_000_000);
    let (days, rest) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    // Years with four digits: 0000 to 9999.
    if !(-719_528..2_932_897).contains(&days) {
        return None;
    }
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let of_era = shifted - era * 146_097;
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + i128::from(month <= 2);
    let (hour, minute, second) = (rest / 3_600, rest / 60 % 60, rest % 60);
    let fraction = format!("{nanoseconds:09}");
    let fraction = fraction.trim_end_matches('0');
    let dot = if fraction.is_empty() { "" } else { "." };
    Some(format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}{dot}{fraction}Z"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_go_reads_them() {
        for (text, expected) in [
            ("1h30m", Some(5_400_000_000_000)),
            ("1.5s", Some(1_500_000_000)),
            ("-2ms", Some(-2_000_000)),
            ("0", Some(0)),
            ("", None),
            ("1", None),
            ("1x", None),
            (".s", None),
        ] {
            assert_eq!(duration(text), expected, "{text}");
        }
        assert_eq!(format_duration(5_400_000_000_000), "1h30m0s");
        assert_eq!(format_duration(1_500_000), "1.5ms");
    }

    #[test]
    fn timestamps_round_trip() {
        for seconds in [0, 951_782_400, 1_700_000_000, -86_400, 253_402_300_799] {
            let text = format_timestamp(seconds, 0).unwrap();
            assert_eq!(timestamp(&text), Some(seconds), "{text}");
        }
        assert_eq!(timestamp("2024-02-30T00:00:00Z"), None);
        assert_eq!(timestamp("2024-01-01T00:00:00+02:00"), Some(1_704_060_000));
    }
}
