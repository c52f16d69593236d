//! Package `strconv`.

use super::{Args, Builtin};
use crate::eval::Res;
use crate::eval::value_of::Val;
use crate::label::quoted;
use crate::number::Number;
use crate::value::Atom;

pub(super) const TABLE: &[Builtin] = &[
    Builtin::new("FormatInt", 2, format_int),
    Builtin::new("FormatUint", 2, format_int),
    Builtin::new("FormatBool", 1, |args| {
        let value = args.bool(0)?;
        args.created(value.to_string())
    }),
    Builtin::new("FormatFloat", 4, format_float),
    Builtin::new("ParseInt", 3, |args| parse_int(args, true)),
    Builtin::new("ParseUint", 3, |args| parse_int(args, false)),
    Builtin::new("Atoi", 1, atoi),
    Builtin::new("ParseBool", 1, parse_bool),
    Builtin::new("ParseFloat", 2, |args| parse_number(args).map(|number| number.to_decimal()).map(wrap)),
    Builtin::new("ParseNumber", 1, |args| parse_number(args).map(wrap)),
    Builtin::new("Quote", 1, |args| {
        let text = args.text(0)?;
        args.created(quoted(&text))
    }),
    Builtin::new("Unquote", 1, unquote),
];

fn wrap(number: Number) -> Val {
    Val::Atom(Atom::Number(number))
}

fn format_int(args: &mut Args<'_>) -> Res<Val> {
    let (value, base) = (args.int(0)?, args.int(1)?);
    if !(2..=36).contains(&base) {
        return args.fail(format!("a base is between 2 and 36, not {base}"));
    }
    let mut digits = Vec::new();
    let mut left = value.unsigned_abs();
    while left > 0 || digits.is_empty() {
        let digit = (left % base as u128) as u32;
        digits.push(char::from_digit(digit, 36).unwrap_or('0'));
        left /= base as u128;
    }
    if value < 0 {
        digits.push('-');
    }
    args.created(digits.into_iter().rev().collect())
}

fn format_float(args: &mut Args<'_>) -> Res<Val> {
    let (value, precision) = (args.number(0)?.to_f64(), args.int(2)?);
    let format = match args.atom(1)? {
        Atom::Text(text) => text.chars().next().unwrap_or('f'),
        Atom::Number(number) => number.as_usize().and_then(|code| char::from_u32(code as u32)).unwrap_or('f'),
        other => return args.wrong(1, "a format letter", &other),
    };
    let precision = usize::try_from(precision).ok().map(|precision| precision.min(100));
    let text = match (format, precision) {
        ('f' | 'F', Some(precision)) => format!("{value:.precision$}"),
        ('e', Some(precision)) => exponential(&format!("{value:.precision$e}")),
        ('e', None) => exponential(&format!("{value:e}")),
        ('f' | 'F' | 'g', _) => format!("{value}"),
        _ => return args.fail(format!("the format {format:?} is not supported: use f, e or g")),
    };
    args.created(text)
}

/// Writes an exponent with a sign and two digits, as Go does.
fn exponential(text: &str) -> String {
    let (mantissa, exponent) = text.split_once('e').unwrap_or((text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{mantissa}e{sign}{:02}", exponent.abs())
}

fn parse_int(args: &mut Args<'_>, signed: bool) -> Res<Val> {
    let (text, base, bits) = (args.text(0)?, args.int(1)?, args.int(2)?);
    let (negative, digits) = match text.strip_prefix('-') {
        Some(rest) if signed => (true, rest),
        _ => (false, text.strip_prefix('+').unwrap_or(&text)),
    };
    let (base, digits) = match base {
        0 => match digits.get(..2) {
            Some("0x" | "0X") => (16, &digits[2..]),
            Some("0o" | "0O") => (8, &digits[2..]),
            Some("0b" | "0B") => (2, &digits[2..]),
            _ => (10, digits),
        },
        2..=36 => (base as u32, digits),
        _ => return args.fail(format!("a base is between 2 and 36, not {base}")),
    };
    let plain = digits.chars().all(|digit| digit.is_digit(base));
    let value = i128::from_str_radix(digits, base).ok().filter(|_| plain);
    let value = value.map(|value| if negative { -value } else { value });
    let bits = if bits == 0 { 64 } else { bits.clamp(1, 64) as u32 };
    let range =
        if signed { -(1i128 << (bits - 1))..=(1i128 << (bits - 1)) - 1 } else { 0..=(1i128 << bits) - 1 };
    match value {
        Some(value) if range.contains(&value) => Ok(Val::Atom(Atom::int(value))),
        Some(_) => args.fail(format!("{} does not fit into {bits} bits", quoted(&text))),
        None => args.fail(format!("{} is not a number in base {base}", quoted(&text))),
    }
}

fn atoi(args: &mut Args<'_>) -> Res<Val> {
    let text = args.text(0)?;
    match text.parse::<i64>() {
        Ok(value) => Ok(Val::Atom(Atom::int(value.into()))),
        Err(_) => args.fail(format!("{} is not an int", quoted(&text))),
    }
}

fn parse_bool(args: &mut Args<'_>) -> Res<Val> {
    let text = args.text(0)?;
    match &*text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(Val::bool(true)),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(Val::bool(false)),
        _ => args.fail(format!("{} is not a bool", quoted(&text))),
    }
}

fn parse_number(args: &mut Args<'_>) -> Res<Number> {
    let text = args.text(0)?;
    match Number::parse_decimal(&text) {
        Some(number) => Ok(number),
        None => args.fail(format!("{} is not a number", quoted(&text))),
    }
}

fn unquote(args: &mut Args<'_>) -> Res<Val> {
    let text = args.text(0)?;
    match serde_json::from_str::<String>(&text) {
        Ok(inner) => args.created(inner),
        Err(_) => args.fail(format!("{} is not a quoted string", quoted(&text))),
    }
}
