//! Durations in text form: `1h30m5.5s`.

const UNITS: [(&str, i128); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("μs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// Parses a duration into nanoseconds. Returns `None` if it is invalid or longer than 292 years.
pub fn parse(text: &str) -> Option<i64> {
    let (sign, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Some(0);
    }
    if rest.is_empty() {
        return None;
    }
    let mut total: i128 = 0;
    while !rest.is_empty() {
        let end = rest.find(|letter: char| !letter.is_ascii_digit() && letter != '.')?;
        let (number, tail) = rest.split_at(end);
        let unit_end =
            tail.find(|letter: char| letter.is_ascii_digit() || letter == '.').unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(unit_end);
        let (_, factor) = UNITS.iter().find(|(name, _)| *name == unit)?;
        total = total.checked_add(nanoseconds(number, *factor)?)?;
        rest = tail;
    }
    i64::try_from(sign * total).ok()
}

fn nanoseconds(number: &str, factor: i128) -> Option<i128> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() || fraction.contains('.') {
        return None;
    }
    let whole: i128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let mut total = whole.checked_mul(factor)?;
    let mut scale = factor;
    for digit in fraction.chars() {
        scale /= 10;
        total += i128::from(digit.to_digit(10)?) * scale;
    }
    Some(total)
}

/// Formats a duration in its shortest form.
pub fn shown(nanoseconds: i64) -> String {
    let sign = if nanoseconds < 0 { "-" } else { "" };
    let total = nanoseconds.unsigned_abs();
    if total == 0 {
        return "0s".into();
    }
    let (unit, factor) = match total {
        ..1_000 => ("ns", 1),
        1_000..1_000_000 => ("µs", 1_000),
        1_000_000..1_000_000_000 => ("ms", 1_000_000),
        _ => ("s", 1_000_000_000u64),
    };
    if unit != "s" {
        return format!("{sign}{}{unit}", decimal(total, factor));
    }
    let (hours, rest) = (total / 3_600_000_000_000, total % 3_600_000_000_000);
    let (minutes, rest) = (rest / 60_000_000_000, rest % 60_000_000_000);
    let seconds = decimal(rest, factor);
    match (hours, minutes) {
        (0, 0) => format!("{sign}{seconds}s"),
        (0, _) => format!("{sign}{minutes}m{seconds}s"),
        _ => format!("{sign}{hours}h{minutes}m{seconds}s"),
    }
}

fn decimal(total: u64, factor: u64) -> String {
    let (whole, fraction) = (total / factor, total % factor);
    if fraction == 0 {
        return whole.to_string();
    }
    let digits = factor.ilog10() as usize;
    format!("{whole}.{}", format!("{fraction:0>digits$}").trim_end_matches('0'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_and_shown() {
        for (text, nanoseconds, back) in [
            ("1h30m", 5_400_000_000_000, "1h30m0s"),
            ("1.5s", 1_500_000_000, "1.5s"),
            ("-2ms", -2_000_000, "-2ms"),
            ("0", 0, "0s"),
            ("100us", 100_000, "100µs"),
        ] {
            assert_eq!(parse(text), Some(nanoseconds), "{text}");
            assert_eq!(shown(nanoseconds), back);
        }
        for text in ["", "1", "1d", "x", "-"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
