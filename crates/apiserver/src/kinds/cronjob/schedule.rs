//! Whether a text is a schedule, and what is wrong with one that is not.
//!
//! ```text
//!  [TZ=zone|CRON_TZ=zone ] minute hour day-of-month month day-of-week
//!                          @hourly, @daily, …, @every 1h30m
//! ```

/// Why a text is no schedule, in the words of the parser that v1.34 uses.
pub(super) fn complaint(schedule: &str) -> Option<String> {
    check(schedule).err()
}

fn check(schedule: &str) -> Result<(), String> {
    if schedule.is_empty() {
        return Err("empty spec string".into());
    }
    let mut rest = schedule;
    if schedule.starts_with("TZ=") || schedule.starts_with("CRON_TZ=") {
        let (zone, after) = schedule.split_once(' ').unwrap_or((schedule, ""));
        let zone = zone.split_once('=').map_or("", |(_, zone)| zone);
        if !is_time_zone(zone) {
            return Err(format!("provided bad location {zone}: unknown time zone {zone}"));
        }
        rest = after.trim();
    }
    match rest.starts_with('@') {
        true => check_descriptor(rest),
        false => check_fields(rest),
    }
}

/// Whether there is a time zone of this very name.
pub(super) fn is_time_zone(name: &str) -> bool {
    let known = || jiff::tz::TimeZone::get(name).ok()?.iana_name().map(|known| known == name);
    matches!(name, "" | "UTC" | "Local") || known() == Some(true)
}

fn check_descriptor(descriptor: &str) -> Result<(), String> {
    let known = ["@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"];
    if known.contains(&descriptor) {
        return Ok(());
    }
    match descriptor.strip_prefix("@every ") {
        Some(duration) => check_duration(duration)
            .map_err(|why| format!("failed to parse duration {descriptor}: time: {why}")),
        None => Err(format!("unrecognized descriptor: {descriptor}")),
    }
}

/// A duration as Go writes it: `1h30m`, `-1.5s`.
fn check_duration(duration: &str) -> Result<(), String> {
    let invalid = || Err(format!("invalid duration {duration:?}"));
    let mut rest = duration.trim_start_matches(['+', '-']);
    if duration.len() - rest.len() > 1 || rest.is_empty() {
        return invalid();
    }
    if rest == "0" {
        return Ok(());
    }
    while !rest.is_empty() {
        let number = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let digits = &rest[..number];
        if !digits.bytes().any(|b| b.is_ascii_digit()) || digits.matches('.').count() > 1 {
            return invalid();
        }
        rest = &rest[number..];
        let unit = rest.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(rest.len());
        match &rest[..unit] {
            "" => return Err(format!("missing unit in duration {duration:?}")),
            "ns" | "us" | "µs" | "μs" | "ms" | "s" | "m" | "h" => {}
            other => return Err(format!("unknown unit {other:?} in duration {duration:?}")),
        }
        rest = &rest[unit..];
    }
    Ok(())
}

/// What one field of a schedule can say.
struct Bounds {
    low: u64,
    high: u64,
    /// Names of the numbers, beginning with the lowest.
    names: &'static [&'static str],
}

const MONTHS: [&str; 12] =
    ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const DAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];
const FIELDS: [Bounds; 5] = [
    Bounds { low: 0, high: 59, names: &[] },
    Bounds { low: 0, high: 23, names: &[] },
    Bounds { low: 1, high: 31, names: &[] },
    Bounds { low: 1, high: 12, names: &MONTHS },
    Bounds { low: 0, high: 6, names: &DAYS },
];

fn check_fields(text: &str) -> Result<(), String> {
    let fields: Vec<&str> = text.split_whitespace().collect();
    if fields.len() != FIELDS.len() {
        let found = fields.join(" ");
        return Err(format!("expected exactly 5 fields, found {}: [{found}]", fields.len()));
    }
    for (field, bounds) in fields.iter().zip(&FIELDS) {
        for range in field.split(',').filter(|range| !range.is_empty()) {
            check_range(range, bounds)?;
        }
    }
    Ok(())
}

/// `*`, `3`, `mon-fri`, `10-50/20`, `5/15`
fn check_range(text: &str, bounds: &Bounds) -> Result<(), String> {
    let parts: Vec<&str> = text.split('/').collect();
    let ends: Vec<&str> = parts[0].split('-').collect();
    let (low, mut high) = match ends[..] {
        ["*" | "?", ..] => (bounds.low, bounds.high),
        [only] => number_or_name(only, bounds).map(|only| (only, only))?,
        [low, high] => (number_or_name(low, bounds)?, number_or_name(high, bounds)?),
        _ => return Err(format!("too many hyphens: {text}")),
    };
    let step = match parts[..] {
        [_] => 1,
        [_, step] => {
            if ends.len() == 1 {
                high = bounds.high;
            }
            number(step)?
        }
        _ => return Err(format!("too many slashes: {text}")),
    };
    if low < bounds.low {
        return Err(format!("beginning of range ({low}) below minimum ({}): {text}", bounds.low));
    }
    if high > bounds.high {
        return Err(format!("end of range ({high}) above maximum ({}): {text}", bounds.high));
    }
    if low > high {
        return Err(format!("beginning of range ({low}) beyond end of range ({high}): {text}"));
    }
    if step == 0 {
        return Err(format!("step of range should be a positive number: {text}"));
    }
    Ok(())
}

fn number_or_name(text: &str, bounds: &Bounds) -> Result<u64, String> {
    let named = bounds.names.iter().position(|name| name.eq_ignore_ascii_case(text));
    named.map_or_else(|| number(text), |at| Ok(bounds.low + at as u64))
}

fn number(text: &str) -> Result<u64, String> {
    let failed =
        |why: &str| format!("failed to parse int from {text}: strconv.Atoi: parsing {text:?}: {why}");
    match text.parse::<i64>() {
        Ok(number) => {
            u64::try_from(number).map_err(|_| format!("negative number ({number}) not allowed: {text}"))
        }
        Err(why)
            if matches!(
                why.kind(),
                std::num::IntErrorKind::PosOverflow | std::num::IntErrorKind::NegOverflow
            ) =>
        {
            Err(failed("value out of range"))
        }
        Err(_) => Err(failed("invalid syntax")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedules_are_read_and_the_rest_is_complained_of() {
        for schedule in [
            "* * * * *",
            "*/5 0-6/2 1,15 JAN-mar mon-FRI",
            "5/15 ? * * 0",
            "@hourly",
            "@every 1h30m",
            "TZ=UTC 0 0 * * *",
        ] {
            assert_eq!(complaint(schedule), None, "{schedule}");
        }
        for (schedule, expected) in [
            ("", "empty spec string"),
            ("* * * *", "expected exactly 5 fields, found 4: [* * * *]"),
            ("60 * * * *", "end of range (60) above maximum (59): 60"),
            ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
            ("5-1 * * * *", "beginning of range (5) beyond end of range (1): 5-1"),
            ("1-2-3 * * * *", "too many hyphens: 1-2-3"),
            ("1/2/3 * * * *", "too many slashes: 1/2/3"),
            ("*/0 * * * *", "step of range should be a positive number: */0"),
            ("x * * * *", "failed to parse int from x: strconv.Atoi: parsing \"x\": invalid syntax"),
            ("@never", "unrecognized descriptor: @never"),
            ("@every 5", "failed to parse duration @every 5: time: missing unit in duration \"5\""),
            ("TZ=No/Where 0 0 * * *", "provided bad location No/Where: unknown time zone No/Where"),
        ] {
            assert_eq!(complaint(schedule).as_deref(), Some(expected), "{schedule}");
        }
    }
}
