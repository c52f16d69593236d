//! Scalars with their own codec: timestamps, quantities, base64. Each is checked and converted to its stored form;
//! quantities keep their notation.

use std::borrow::Cow;

use base64::Engine;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use jiff::civil::{Date, DateTime, Time};
use jiff::tz::Offset;
use serde_json::Value;

use crate::quantity;

const SECONDS_LAYOUT: &str = "2006-01-02T15:04:05Z07:00";
const MICROS_LAYOUT: &str = "2006-01-02T15:04:05.000000Z07:00";

/// The zero time means no time.
const ZERO_TIME: &str = "0001-01-01T00:00:00Z";

/// Parses a timestamp in UTC and whole seconds.
pub(super) fn time(text: Cow<'_, str>) -> Result<Value, String> {
    if text == ZERO_TIME {
        return Ok(Value::Null);
    }
    if is_canonical_time(text.as_bytes()) {
        return Ok(Value::String(text.into_owned()));
    }
    let utc = TimestampParser { text: &text, rest: &text, layout: SECONDS_LAYOUT }.read()?;
    let (date, time) = (utc.date(), utc.time());
    Ok(Value::String(format!(
        "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z",
        date.year(),
        date.month(),
        date.day(),
        time.hour(),
        time.minute(),
        time.second()
    )))
}

/// Parses a timestamp in UTC and microseconds.
pub(super) fn micro_time(text: Cow<'_, str>) -> Result<Value, String> {
    let utc = TimestampParser { text: &text, rest: &text, layout: MICROS_LAYOUT }.read()?;
    let (date, time) = (utc.date(), utc.time());
    if date == Date::constant(1, 1, 1) && time == Time::midnight() {
        return Ok(Value::Null);
    }
    Ok(Value::String(format!(
        "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:06}Z",
        date.year(),
        date.month(),
        date.day(),
        time.hour(),
        time.minute(),
        time.second(),
        time.subsec_nanosecond() / 1000
    )))
}

/// Whether this is the common case, `2025-01-31T12:00:00Z`, which needs no calendar.
fn is_canonical_time(text: &[u8]) -> bool {
    const SHAPE: &[u8; 20] = b"dddd-dd-ddTdd:dd:ddZ";
    let number = |at: usize| (text[at] - b'0') * 10 + (text[at + 1] - b'0');
    text.len() == SHAPE.len()
        && text.iter().zip(SHAPE).all(|(c, s)| if *s == b'd' { c.is_ascii_digit() } else { c == s })
        && (1..=12).contains(&number(5))
        && (1..=28).contains(&number(8))
        && number(11) < 24
        && number(14) < 60
        && number(17) < 60
}

/// Parses a timestamp element by element, to report where it fails.
struct TimestampParser<'a> {
    text: &'a str,
    rest: &'a str,
    layout: &'static str,
}

impl TimestampParser<'_> {
    fn read(mut self) -> Result<DateTime, String> {
        let year = self.number(4, "2006")?;
        self.literal("-")?;
        let month = self.number(2, "01")?;
        self.literal("-")?;
        let day = self.number(2, "02")?;
        self.literal("T")?;
        let hour = self.number(2, "15")?;
        self.literal(":")?;
        let minute = self.number(2, "04")?;
        self.literal(":")?;
        let second = self.number(2, "05")?;
        let nanos = self.fraction()?;
        let offset = self.offset()?;
        if !self.rest.is_empty() {
            return Err(format!("parsing time {:?}: extra text: {:?}", self.text, self.rest));
        }
        let date = Date::new(
            i16::try_from(year).unwrap_or(0),
            i8::try_from(self.range(month, 1, 12, "month")?).unwrap_or(1),
            i8::try_from(day).unwrap_or(0),
        )
        .map_err(|_| self.out_of_range("day"))?;
        let time = Time::constant(
            i8::try_from(self.range(hour, 0, 23, "hour")?).unwrap_or(0),
            i8::try_from(self.range(minute, 0, 59, "minute")?).unwrap_or(0),
            i8::try_from(self.range(second, 0, 59, "second")?).unwrap_or(0),
            nanos,
        );
        let utc = offset.to_timestamp(date.to_datetime(time)).map_err(|_| self.out_of_range("year"))?;
        Ok(Offset::UTC.to_datetime(utc))
    }

    fn cannot_parse(&self, element: &str) -> String {
        format!(
            "parsing time {:?} as {:?}: cannot parse {:?} as {element:?}",
            self.text, self.layout, self.rest
        )
    }

    fn out_of_range(&self, what: &str) -> String {
        format!("parsing time {:?}: {what} out of range", self.text)
    }

    fn range(&self, number: u32, low: u32, high: u32, what: &str) -> Result<u32, String> {
        if (low..=high).contains(&number) { Ok(number) } else { Err(self.out_of_range(what)) }
    }

    fn number(&mut self, digits: usize, element: &str) -> Result<u32, String> {
        let number = self.rest.get(..digits).filter(|d| d.bytes().all(|b| b.is_ascii_digit()));
        let number = number.and_then(|d| d.parse().ok()).ok_or_else(|| self.cannot_parse(element))?;
        self.rest = &self.rest[digits..];
        Ok(number)
    }

    fn literal(&mut self, literal: &str) -> Result<(), String> {
        self.rest = self.rest.strip_prefix(literal).ok_or_else(|| self.cannot_parse(literal))?;
        Ok(())
    }

    /// Parses the fraction as nanoseconds. A layout with a fraction requires exactly its digits, one without accepts
    /// any number.
    fn fraction(&mut self) -> Result<i32, String> {
        let exact = self.layout == MICROS_LAYOUT;
        let digits = match self.rest.strip_prefix(['.', ',']) {
            Some(rest) => rest.bytes().take_while(u8::is_ascii_digit).count(),
            None => 0,
        };
        match digits {
            6.. if exact => Ok(self.nanos(6)),
            _ if exact => Err(self.cannot_parse(".000000")),
            0 => Ok(0),
            digits => Ok(self.nanos(digits)),
        }
    }

    fn nanos(&mut self, digits: usize) -> i32 {
        let nanos = self.rest.bytes().skip(1).take(digits).chain(std::iter::repeat(b'0'));
        let nanos = nanos.take(9).fold(0, |sum, digit| sum * 10 + i32::from(digit - b'0'));
        self.rest = &self.rest[1 + digits..];
        nanos
    }

    fn offset(&mut self) -> Result<Offset, String> {
        if let Some(rest) = self.rest.strip_prefix('Z') {
            self.rest = rest;
            return Ok(Offset::UTC);
        }
        let failed = self.cannot_parse("Z07:00");
        let two = |at: usize| self.rest.get(at..at + 2).and_then(|d| d.parse::<u8>().ok()).map(i32::from);
        let sign = match self.rest.as_bytes() {
            [b'+', _, _, b':', ..] => 1,
            [b'-', _, _, b':', ..] => -1,
            _ => return Err(failed),
        };
        let (Some(hours @ 0..=24), Some(minutes @ 0..=60)) = (two(1), two(4)) else { return Err(failed) };
        self.rest = &self.rest[6..];
        Offset::from_seconds(sign * (hours * 3600 + minutes * 60)).map_err(|_| failed)
    }
}

/// Parses a quantity (`100m`, `1.5Gi`, `1e3`) into canonical form.
pub(super) fn quantity(text: Cow<'_, str>) -> Result<Value, String> {
    match quantity::canonical(&text) {
        Ok(rewritten) => Ok(Value::String(rewritten.unwrap_or_else(|| text.into_owned()))),
        Err(error) => Err(error.to_string()),
    }
}

/// Returns the error for a value that is neither a string nor a number.
pub(super) fn no_quantity() -> String {
    quantity::ParseError::Format.to_string()
}

/// Returns where v1.34 stops decoding: at the first invalid character, or at the start of an incomplete group of four.
fn first_illegal(text: &[u8]) -> usize {
    let mut place = 0;
    let mut begin = 0;
    let mut letters = text.iter().enumerate().filter(|(_, byte)| !matches!(byte, b'\r' | b'\n'));
    while let Some((at, byte)) = letters.next() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'+' | b'/' => {
                place = (place + 1) % 4;
                if place == 0 {
                    begin = at + 1;
                }
            }
            b'=' if place == 3 => return letters.next().map_or(begin, |(at, _)| at),
            b'=' if place == 2 => match letters.next() {
                None => return text.len(),
                Some((_, b'=')) => return letters.next().map_or(begin, |(at, _)| at),
                Some((at, _)) => return at - 1,
            },
            _ => return at,
        }
    }
    begin
}

/// Decodes base64 in the standard alphabet with padding.
pub(super) fn base64(text: Cow<'_, str>) -> Result<Value, String> {
    if base64::prelude::BASE64_STANDARD.decode(text.as_bytes()).is_ok() {
        return Ok(Value::String(text.into_owned()));
    }
    // Line breaks and stray trailing bits are accepted, but not kept.
    const LENIENT: GeneralPurpose = GeneralPurpose::new(
        &base64::alphabet::STANDARD,
        GeneralPurposeConfig::new()
            .with_decode_allow_trailing_bits(true)
            .with_decode_padding_mode(DecodePaddingMode::RequireCanonical),
    );
    let joined: String = text.chars().filter(|c| !matches!(c, '\r' | '\n')).collect();
    let bytes = LENIENT.decode(&joined).map_err(|_| {
        let at = first_illegal(text.as_bytes());
        format!("illegal base64 data at input byte {at}")
    })?;
    Ok(Value::String(base64::prelude::BASE64_STANDARD.encode(bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_brought_to_utc_seconds() {
        let check = |text: &str, expected: Result<&str, &str>| {
            let read = time(text.into());
            let read = read.as_ref().map(|v| v.as_str().unwrap_or("null")).map_err(|e| e.as_str());
            assert_eq!(read, expected, "{text}");
        };
        check("2025-01-31T12:00:00Z", Ok("2025-01-31T12:00:00Z"));
        check("2025-01-31T12:00:00.987Z", Ok("2025-01-31T12:00:00Z"));
        check("2025-01-31T23:30:00-01:00", Ok("2025-02-01T00:30:00Z"));
        check("2024-02-29T00:00:00Z", Ok("2024-02-29T00:00:00Z"));
        check("0001-01-01T00:00:00Z", Ok("null"));
        check("2025-02-29T00:00:00Z", Err("parsing time \"2025-02-29T00:00:00Z\": day out of range"));
        check("2025-13-01T00:00:00Z", Err("parsing time \"2025-13-01T00:00:00Z\": month out of range"));
        check(
            "yesterday",
            Err(
                "parsing time \"yesterday\" as \"2006-01-02T15:04:05Z07:00\": cannot parse \"yesterday\" as \"2006\"",
            ),
        );
        check(
            "2025-01-31",
            Err("parsing time \"2025-01-31\" as \"2006-01-02T15:04:05Z07:00\": cannot parse \"\" as \"T\""),
        );
    }

    #[test]
    fn micro_times_keep_six_digits() {
        let read = |text: &str| micro_time(text.into()).map(|v| v.as_str().unwrap_or("null").to_owned());
        assert_eq!(read("2025-01-31T12:00:00.123456Z").as_deref(), Ok("2025-01-31T12:00:00.123456Z"));
        assert_eq!(read("2025-01-31T13:00:00.123456+01:00").as_deref(), Ok("2025-01-31T12:00:00.123456Z"));
        assert!(read("2025-01-31T12:00:00Z").is_err());
        assert!(read("2025-01-31T12:00:00.1234567Z").is_err());
    }

    #[test]
    fn quantities_become_canonical() {
        let read = |text: &str| quantity(text.into()).map(|v| v.as_str().unwrap_or_default().to_owned());
        assert_eq!(read("0.5").as_deref(), Ok("500m"));
        assert_eq!(read("1024Mi").as_deref(), Ok("1Gi"));
        assert!(read("1..2").is_err());
    }

    #[test]
    fn base64_is_checked_and_made_canonical() {
        let read = |text: &str| base64(text.into()).map(|v| v.as_str().unwrap_or_default().to_owned());
        assert_eq!(read("aGVsbG8=").as_deref(), Ok("aGVsbG8="));
        assert_eq!(read("aGVs\nbG8=").as_deref(), Ok("aGVsbG8="));
        assert_eq!(read("***"), Err("illegal base64 data at input byte 0".to_owned()));
        assert_eq!(read("v"), Err("illegal base64 data at input byte 0".to_owned()));
        for (text, at) in [("Bad_Name!", 3), ("aGVsb", 4), ("aGVsbG8=x", 8), ("aGVsbA=", 7), ("a=", 1)] {
            assert_eq!(read(text), Err(format!("illegal base64 data at input byte {at}")), "{text}");
        }
    }
}
