//! String formats that schemas can require.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::LazyLock;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::civil::Date;
use regex::Regex;

const KNOWN: [&str; 24] = [
    "bsonobjectid",
    "uri",
    "email",
    "hostname",
    "ipv4",
    "ipv6",
    "cidr",
    "mac",
    "uuid",
    "uuid3",
    "uuid4",
    "uuid5",
    "isbn",
    "isbn10",
    "isbn13",
    "creditcard",
    "ssn",
    "hexcolor",
    "rgbcolor",
    "byte",
    "password",
    "date",
    "duration",
    "datetime",
];

/// Returns whether a format is validated. Others are ignored.
pub fn is_known(format: &str) -> bool {
    !format.is_empty() && KNOWN.contains(&normalized(format).as_str())
}

fn normalized(format: &str) -> String {
    format.replace('-', "")
}

/// Formats defined by a regular expression.
const PATTERNS: [(&str, &str); 10] = [
    ("bsonobjectid", "^[0-9a-fA-F]{24}$"),
    ("uuid", "(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}$"),
    ("uuid3", "(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?3[0-9a-f]{3}-?[0-9a-f]{4}-?[0-9a-f]{12}$"),
    ("uuid4", "(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?4[0-9a-f]{3}-?[89ab][0-9a-f]{3}-?[0-9a-f]{12}$"),
    ("uuid5", "(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?5[0-9a-f]{3}-?[89ab][0-9a-f]{3}-?[0-9a-f]{12}$"),
    ("ssn", r"^\d{3}[- ]?\d{2}[- ]?\d{4}$"),
    ("hexcolor", "^#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})$"),
    (
        "rgbcolor",
        r"^rgb\(\s*(0|[1-9]\d?|1\d\d?|2[0-4]\d|25[0-5])\s*,\s*(0|[1-9]\d?|1\d\d?|2[0-4]\d|25[0-5])\s*,\s*(0|[1-9]\d?|1\d\d?|2[0-4]\d|25[0-5])\s*\)$",
    ),
    (
        "creditcard",
        r"^(?:4[0-9]{12}(?:[0-9]{3})?|5[1-5][0-9]{14}|6(?:011|5[0-9][0-9])[0-9]{12}|3[47][0-9]{13}|3(?:0[0-5]|[68][0-9])[0-9]{11}|(?:2131|1800|35\d{3})\d{11})$",
    ),
    (
        "hostname",
        r"^([a-zA-Z0-9\p{S}\p{L}]((-?[a-zA-Z0-9\p{S}\p{L}]{0,62})?)|([a-zA-Z0-9\p{S}\p{L}](([a-zA-Z0-9-\p{S}\p{L}]{0,61}[a-zA-Z0-9\p{S}\p{L}])?)(\.)){1,}([a-zA-Z\p{L}]){2,63})$",
    ),
];

static COMPILED: LazyLock<Vec<(&'static str, Option<Regex>)>> =
    LazyLock::new(|| PATTERNS.iter().map(|(name, pattern)| (*name, Regex::new(pattern).ok())).collect());

fn matches(format: &str, text: &str) -> bool {
    COMPILED
        .iter()
        .find(|(name, _)| *name == format)
        .and_then(|(_, pattern)| pattern.as_ref())
        .is_some_and(|pattern| pattern.is_match(text))
}

/// Returns whether a string has a format that [`is_known`].
pub fn is_valid(format: &str, text: &str) -> bool {
    match normalized(format).as_str() {
        "uri" => is_uri(text),
        "email" => is_email(text),
        "hostname" => {
            matches("hostname", text) && text.len() <= 255 && text.split('.').all(|part| part.len() <= 63)
        }
        "ipv4" => text.parse::<Ipv4Addr>().is_ok(),
        "ipv6" => text.parse::<Ipv6Addr>().is_ok(),
        "cidr" => is_cidr(text),
        "mac" => is_mac(text),
        "isbn" => is_isbn(text, 10) || is_isbn(text, 13),
        "isbn10" => is_isbn(text, 10),
        "isbn13" => is_isbn(text, 13),
        "creditcard" => is_credit_card(text),
        "byte" => !text.is_empty() && STANDARD.decode(text).is_ok(),
        "password" => true,
        "date" => text.len() == 10 && text.parse::<Date>().is_ok(),
        "datetime" => is_date_time(text),
        "duration" => is_duration(text),
        format => matches(format, text),
    }
}

/// Accepts an absolute path, or a URI with a scheme.
fn is_uri(text: &str) -> bool {
    let is_clean = !text.is_empty() && !text.chars().any(|letter| letter.is_control() || letter == ' ');
    let scheme = text.split_once(':').map(|(scheme, _)| scheme);
    let has_scheme = scheme.is_some_and(|scheme| {
        scheme.starts_with(|letter: char| letter.is_ascii_alphabetic())
            && scheme.chars().all(|letter| letter.is_ascii_alphanumeric() || "+-.".contains(letter))
    });
    is_clean && (text.starts_with('/') || has_scheme)
}

fn is_email(text: &str) -> bool {
    let address = match (text.find('<'), text.ends_with('>')) {
        (Some(start), true) => &text[start + 1..text.len() - 1],
        _ => text,
    };
    let is_word = |word: &str| {
        !word.is_empty()
            && !word.starts_with('.')
            && !word.ends_with('.')
            && !word.contains("..")
            && word.chars().all(|letter| !letter.is_whitespace() && !"()<>[]:;@\\,\"".contains(letter))
    };
    address.rsplit_once('@').is_some_and(|(local, domain)| is_word(local) && is_word(domain))
}

fn is_cidr(text: &str) -> bool {
    let Some((address, bits)) = text.split_once('/') else { return false };
    let most = match address.parse::<std::net::IpAddr>() {
        Ok(std::net::IpAddr::V4(_)) => 32,
        Ok(std::net::IpAddr::V6(_)) => 128,
        Err(_) => return false,
    };
    bits.parse::<u8>().is_ok_and(|bits| bits <= most) && !bits.starts_with('+')
}

/// Accepts 6, 8 or 20 bytes, in groups of two or four digits.
fn is_mac(text: &str) -> bool {
    let (separator, digits) =
        if text.contains('.') { ('.', 4) } else { (if text.contains('-') { '-' } else { ':' }, 2) };
    let parts: Vec<&str> = text.split(separator).collect();
    let is_part = |part: &&str| part.len() == digits && part.chars().all(|digit| digit.is_ascii_hexdigit());
    matches!(parts.len() * digits, 12 | 16 | 40) && parts.iter().all(is_part)
}

fn is_isbn(text: &str, length: usize) -> bool {
    let digits: Vec<char> = text.chars().filter(|letter| !matches!(letter, '-' | ' ')).collect();
    if digits.len() != length {
        return false;
    }
    let value = |at: usize| match digits[at] {
        'X' | 'x' if length == 10 && at == 9 => Some(10),
        digit => digit.to_digit(10),
    };
    let Some(values) = (0..length).map(value).collect::<Option<Vec<u32>>>() else { return false };
    let weighted = |weight: &dyn Fn(u32) -> u32| -> u32 {
        (0u32..).zip(&values).map(|(at, value)| weight(at) * value).sum()
    };
    match length {
        10 => weighted(&|at| at + 1) % 11 == 0,
        _ => weighted(&|at| if at % 2 == 0 { 1 } else { 3 }) % 10 == 0,
    }
}

/// Accepts a number of a known issuer with a valid check digit.
fn is_credit_card(text: &str) -> bool {
    let digits: String = text.chars().filter(char::is_ascii_digit).collect();
    let sum: u32 = digits
        .chars()
        .rev()
        .enumerate()
        .filter_map(|(at, digit)| Some((at, digit.to_digit(10)?)))
        .map(|(at, digit)| match digit * 2 {
            _ if at % 2 == 0 => digit,
            double if double > 9 => double - 9,
            double => double,
        })
        .sum();
    matches("creditcard", &digits) && sum.is_multiple_of(10)
}

fn is_date_time(text: &str) -> bool {
    if text.len() < 4 {
        return false;
    }
    let lower = text.to_lowercase();
    let Some((date, time)) = lower.split_once('t') else { return false };
    let time = time.strip_suffix('z').map(|time| (time, "")).or_else(|| {
        let at = time.rfind(['+', '-'])?;
        Some((&time[..at], &time[at + 1..]))
    });
    let Some((clock, offset)) = time else { return false };
    let parts =
        |text: &str| text.split(':').map(|part| part.parse::<f64>().ok()).collect::<Option<Vec<f64>>>();
    let is_clock =
        matches!(parts(clock).as_deref(), Some([h, m, s]) if *h <= 23.0 && *m <= 59.0 && *s <= 60.0);
    let is_offset = offset.is_empty() || matches!(parts(offset).as_deref(), Some([_, _]));
    date.parse::<Date>().is_ok() && is_clock && is_offset
}

/// Accepts `1h30m`, or words: `3 days`.
fn is_duration(text: &str) -> bool {
    crate::duration::parse(text).is_some() || has_timed_words(text)
}

fn has_timed_words(text: &str) -> bool {
    const UNITS: [&str; 22] = [
        "ns", "nano", "us", "µs", "micro", "ms", "milli", "s", "sec", "m", "min", "h", "hr", "hour", "d",
        "day", "w", "wk", "week", "seconds", "minutes", "hours",
    ];
    let mut rest = text;
    while let Some(start) = rest.find(|letter: char| letter.is_ascii_digit()) {
        rest = rest[start..].trim_start_matches(|letter: char| letter.is_ascii_digit()).trim_start();
        let end = rest.find(|letter: char| !letter.is_alphabetic()).unwrap_or(rest.len());
        let unit = rest[..end].to_lowercase();
        let starts = ["nano", "micro", "milli", "sec", "min", "hour", "day", "week"];
        if UNITS.contains(&unit.as_str()) || starts.iter().any(|start| unit.starts_with(start)) {
            return true;
        }
        rest = &rest[end..];
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_have_their_formats() {
        for (format, good, bad) in [
            ("ipv4", "10.0.0.1", "10.0.0.256"),
            ("ipv6", "::1", "10.0.0.1"),
            ("cidr", "10.0.0.0/8", "10.0.0.0"),
            ("mac", "01:02:03:04:05:ab", "01:02"),
            ("uuid", "123e4567-e89b-12d3-a456-426614174000", "123"),
            ("uri", "https://example.com/a", "not a uri"),
            ("email", "a@example.com", "a@"),
            ("hostname", "example.com", "-x-"),
            ("byte", "YWJj", "*"),
            ("date", "2024-01-31", "2024-13-01"),
            ("date-time", "2024-01-31T10:00:00Z", "2024-01-31"),
            ("duration", "1h30m", "soon"),
            ("duration", "3 days", ""),
            ("isbn10", "0321751043", "0321751044"),
            ("hexcolor", "#FFFFFF", "#GG"),
            ("byte", "YQ==", ""),
        ] {
            assert!(is_known(format), "{format}");
            assert!(is_valid(format, good), "{format} {good}");
            assert!(!is_valid(format, bad), "{format} {bad}");
        }
        assert!(!is_known("int32"));
        // v1.34 lists this format under a name that it never looks up.
        assert!(!is_known("k8s-short-name"));
    }
}
