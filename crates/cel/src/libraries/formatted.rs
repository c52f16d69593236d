//! `format`: formats strings like version 2 of cel-go's library, in English.

use super::strings::LONGEST;
use super::{Outcome, conversions, failed};
use crate::clauses::{self, Clause};
use crate::eval::EvalError;
use crate::value::{Key, Val};

pub(super) fn format(text: &str, values: &[Val]) -> Outcome {
    let (mut result, mut rest, mut index) = (Vec::with_capacity(text.len()), text.as_bytes(), 0);
    while let Some(at) = rest.iter().position(|byte| *byte == b'%') {
        result.extend_from_slice(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix(b"%") {
            result.push(b'%');
            rest = after;
            continue;
        }
        let value = values.get(index).ok_or_else(|| failed(format!("index {index} out of range")))?;
        if rest.is_empty() {
            return Err(failed("unexpected end of string"));
        }
        let clause = clauses::parse(rest).map_err(failed)?;
        let formatted = formatted(&clause, value)?;
        result.extend_from_slice(formatted.ok_or_else(|| misfit(clause.verb, value.type_name()))?.as_bytes());
        rest = clause.rest;
        index += 1;
    }
    result.extend_from_slice(rest);
    // Clauses are ASCII, so slices between them are valid UTF-8.
    String::from_utf8(result).map(Val::text).map_err(|_| failed("invalid UTF-8"))
}

fn misfit(verb: u8, type_name: &str) -> EvalError {
    failed(clauses::misfit(verb, type_name).unwrap_or_default())
}

/// Formats a value. `None` if the clause is for other types.
fn formatted(clause: &Clause<'_>, value: &Val) -> Result<Option<String>, EvalError> {
    let digits = clause.precision.unwrap_or(DIGITS);
    Ok(Some(match (clause.verb, value) {
        (b's', value) => return shown(value).map(Some),
        (b'd', Val::Int(number)) => number.to_string(),
        (b'd', Val::Uint(number)) => number.to_string(),
        (b'o', Val::Int(number)) => signed(*number, format!("{:o}", number.unsigned_abs())),
        (b'o', Val::Uint(number)) => format!("{number:o}"),
        (b'b', Val::Int(number)) => signed(*number, format!("{:b}", number.unsigned_abs())),
        (b'b', Val::Uint(number)) => format!("{number:b}"),
        (b'b', Val::Bool(is_set)) => u8::from(*is_set).to_string(),
        (b'f' | b'e', value) => {
            let Some(number) = number(value) else { return Ok(None) };
            if clause.verb == b'f' { fixed(number, digits) } else { scientific(number) }
        }
        (b'x', value) => return Ok(hexadecimal(value)),
        (b'X', value) => return Ok(hexadecimal(value).map(|text| text.to_ascii_uppercase())),
        _ => return Ok(None),
    }))
}

/// The default precision.
const DIGITS: usize = 6;

fn signed(number: i64, digits: String) -> String {
    if number < 0 { format!("-{digits}") } else { digits }
}

/// Returns a floating-point number. Some have names.
fn number(value: &Val) -> Option<f64> {
    match value {
        Val::Double(number) => Some(*number),
        Val::String(name) => match &**name {
            "NaN" => Some(f64::NAN),
            "Infinity" => Some(f64::INFINITY),
            "-Infinity" => Some(f64::NEG_INFINITY),
            _ => None,
        },
        _ => None,
    }
}

fn not_finite(number: f64) -> Option<String> {
    match number {
        _ if number.is_nan() => Some("NaN".into()),
        f64::INFINITY => Some("∞".into()),
        f64::NEG_INFINITY => Some("-∞".into()),
        _ => None,
    }
}

/// Formats a number with commas between thousands.
fn fixed(number: f64, digits: usize) -> String {
    if let Some(name) = not_finite(number) {
        return name;
    }
    let text = format!("{:.digits$}", number.abs());
    let (whole, fraction) = text.split_at(text.find('.').unwrap_or(text.len()));
    let mut grouped = String::from(if number.is_sign_negative() { "-" } else { "" });
    for (at, digit) in whole.char_indices() {
        if at > 0 && (whole.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped + fraction
}

/// Formats a number with a power of ten. The precision of a clause is ignored, as in cel-go.
fn scientific(number: f64) -> String {
    if let Some(name) = not_finite(number) {
        return name;
    }
    let text = format!("{number:.DIGITS$e}");
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let (sign, exponent) = exponent.strip_prefix('-').map_or(("", exponent), |exponent| ("⁻", exponent));
    let raised = |digit: char| "⁰¹²³⁴⁵⁶⁷⁸⁹".chars().nth(digit.to_digit(10).unwrap_or(0) as usize);
    let exponent: String = format!("{exponent:0>2}").chars().filter_map(raised).collect();
    format!("{mantissa}\u{202f}×\u{202f}10{sign}{exponent}")
}

fn hexadecimal(value: &Val) -> Option<String> {
    let of_bytes = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    Some(match value {
        Val::Int(number) => signed(*number, format!("{:x}", number.unsigned_abs())),
        Val::Uint(number) => format!("{number:x}"),
        Val::String(text) => of_bytes(text.as_bytes()),
        Val::Bytes(bytes) => of_bytes(bytes),
        _ => return None,
    })
}

/// Formats a value as a text.
fn shown(value: &Val) -> Result<String, EvalError> {
    match value {
        Val::Null => Ok("null".into()),
        Val::List(list) => Ok(format!("[{}]", joined(list.items.iter().map(literal))?)),
        Val::Map(entries) | Val::Domains(entries) | Val::Escaped(entries) => {
            let mut pairs: Vec<(String, &Val)> =
                entries.iter().map(|(key, value)| (key_text(key), value)).collect();
            pairs.sort_by(|(one, _), (other, _)| one.cmp(other));
            let pairs = pairs.into_iter().map(|(key, value)| Ok(format!("{key}:{}", literal(value)?)));
            Ok(format!("{{{}}}", joined(pairs)?))
        }
        Val::Type(name) => Ok(name.to_string()),
        Val::Bool(_)
        | Val::Int(_)
        | Val::Uint(_)
        | Val::Double(_)
        | Val::String(_)
        | Val::Bytes(_)
        | Val::Duration(_)
        | Val::Timestamp(_) => conversions::text_of(value),
        other => Err(misfit(b's', other.type_name())),
    }
}

/// Joins formatted elements. Numbers may be long.
fn joined(texts: impl Iterator<Item = Result<String, EvalError>>) -> Result<String, EvalError> {
    let mut joined = String::new();
    for (at, text) in texts.enumerate() {
        joined.push_str(if at == 0 { "" } else { ", " });
        joined.push_str(&text?);
        if joined.len() > LONGEST {
            return Err(EvalError::TooExpensive);
        }
    }
    Ok(joined)
}

fn key_text(key: &Key) -> String {
    match key {
        Key::Bool(is_set) => is_set.to_string(),
        Key::Int(number) => number.to_string(),
        Key::Uint(number) => number.to_string(),
        Key::String(text) => format!("{text:?}"),
    }
}

/// Formats a value inside a list or map, in expression syntax.
fn literal(value: &Val) -> Result<String, EvalError> {
    Ok(match value {
        Val::String(text) => format!("{text:?}"),
        Val::Bytes(_) => format!("b{:?}", shown(value)?),
        Val::Double(number) => match not_finite(*number) {
            Some(_) => format!(
                "\"{}\"",
                if number.is_nan() {
                    "NaN"
                } else if *number > 0.0 {
                    "+Inf"
                } else {
                    "-Inf"
                }
            ),
            None => format!("{number:.DIGITS$}"),
        },
        Val::Timestamp(_) => format!("timestamp({:?})", shown(value)?),
        Val::Duration(_) => format!("duration({:?})", shown(value)?),
        Val::Type(name) => format!("type({name})"),
        Val::Optional(_) => {
            return Err(failed("error during formatting: no formatting function for optional_type"));
        }
        value => shown(value)?,
    })
}
