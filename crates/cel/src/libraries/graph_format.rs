//! `format` in resource graphs: kro's expressions have a newer version of cel-go's library than Kubernetes'.

use super::{Outcome, failed};
use crate::eval::EvalError;
use crate::number;
use crate::value::Val;

/// `%s`, `%d`, `%f`, `%e`, `%x`, `%X`, `%o`, `%b`, `%%`, with a precision.
pub(super) fn format(text: &str, values: &[Val]) -> Outcome {
    let mut result = String::new();
    let mut values = values.iter();
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        if letter != '%' {
            result.push(letter);
            continue;
        }
        let mut precision = None;
        let mut verb = letters.next();
        if verb == Some('.') {
            let mut digits = String::new();
            verb = letters.next();
            while let Some(digit) = verb.filter(char::is_ascii_digit) {
                digits.push(digit);
                verb = letters.next();
            }
            precision = digits.parse::<usize>().ok().filter(|precision| *precision <= 1000);
        }
        match verb {
            Some('%') => result.push('%'),
            Some(verb) => {
                let value = values.next().ok_or_else(|| failed("index out of range"))?;
                result.push_str(&formatted(verb, precision, value)?);
            }
            None => return Err(failed("unexpected end of string")),
        }
    }
    Ok(Val::text(result))
}

fn formatted(verb: char, precision: Option<usize>, value: &Val) -> Result<String, EvalError> {
    let digits = precision.unwrap_or(6);
    Ok(match (verb, value) {
        ('s', value) => shown(value),
        ('d', Val::Int(number)) => number.to_string(),
        ('d', Val::Uint(number)) => number.to_string(),
        ('f', Val::Double(number)) => format!("{number:.digits$}"),
        ('f', Val::Int(number)) => format!("{:.digits$}", *number as f64),
        ('e', Val::Double(number)) => format!("{number:.digits$e}"),
        ('x', Val::Int(number)) => format!("{number:x}"),
        ('X', Val::Int(number)) => format!("{number:X}"),
        ('x', Val::String(text)) => text.bytes().map(|byte| format!("{byte:02x}")).collect(),
        ('X', Val::String(text)) => text.bytes().map(|byte| format!("{byte:02X}")).collect(),
        ('o', Val::Int(number)) => format!("{number:o}"),
        ('b', Val::Int(number)) => format!("{number:b}"),
        ('b', Val::Bool(on)) => u8::from(*on).to_string(),
        _ => {
            return Err(failed(format!("could not format value of type {} with %{verb}", value.type_name())));
        }
    })
}

fn shown(value: &Val) -> String {
    match value {
        Val::String(text) => text.to_string(),
        Val::Null => "null".into(),
        Val::Double(double) => number::shown(*double),
        Val::Type(name) => name.to_string(),
        Val::Duration(nanoseconds) => format!("{}s", number::shown(*nanoseconds as f64 / 1e9)),
        Val::Timestamp(time) => time.to_string(),
        Val::List(list) => format!("[{}]", list.items.iter().map(shown).collect::<Vec<_>>().join(", ")),
        Val::Map(entries) | Val::Domains(entries) | Val::Escaped(entries) => {
            let entries: Vec<String> =
                entries.iter().map(|(key, value)| format!("{key}: {}", shown(value))).collect();
            format!("{{{}}}", entries.join(", "))
        }
        Val::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        other => match other.to_json() {
            serde_json::Value::String(text) => text,
            json => json.to_string(),
        },
    }
}
