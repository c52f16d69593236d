//! Type conversions.

use jiff::Timestamp;

use super::{Outcome, failed};
use crate::duration;
use crate::eval::EvalError;
use crate::number;
use crate::value::Val;

pub(super) fn call(function: &str, args: &[Val]) -> Option<Outcome> {
    let [value] = args else { return None };
    Some(match (function, value) {
        ("dyn", value) => Ok(value.clone()),
        ("type", value) => Ok(Val::Type(value.type_name().into())),
        ("bool", Val::Bool(_))
        | ("int", Val::Int(_))
        | ("uint", Val::Uint(_))
        | ("double", Val::Double(_))
        | ("string", Val::String(_))
        | ("bytes", Val::Bytes(_))
        | ("duration", Val::Duration(_))
        | ("timestamp", Val::Timestamp(_)) => Ok(value.clone()),
        ("bool", Val::String(text)) => match &**text {
            "1" | "t" | "true" | "TRUE" | "True" => Ok(Val::Bool(true)),
            "0" | "f" | "false" | "FALSE" | "False" => Ok(Val::Bool(false)),
            _ => Err(failed("type conversion error from 'string' to 'bool'")),
        },
        ("int", Val::Uint(number)) => {
            i64::try_from(*number).map(Val::Int).map_err(|_| failed("integer overflow"))
        }
        ("int", Val::Double(number)) => {
            whole(*number).map(Val::Int).ok_or_else(|| failed("integer overflow"))
        }
        ("int", Val::String(text)) => text.parse().map(Val::Int).map_err(|_| parse_failure("ParseInt", text)),
        ("int", Val::Timestamp(time)) => Ok(Val::Int(time.as_second())),
        ("int", Val::Duration(nanoseconds)) => Ok(Val::Int(*nanoseconds)),
        ("uint", Val::Int(number)) => {
            u64::try_from(*number).map(Val::Uint).map_err(|_| failed("unsigned integer overflow"))
        }
        ("uint", Val::Double(number)) if *number >= 0.0 && *number < 1.8446744073709552e19 => {
            Ok(Val::Uint(*number as u64))
        }
        ("uint", Val::Double(_)) => Err(failed("unsigned integer overflow")),
        ("uint", Val::String(text)) => {
            text.parse().map(Val::Uint).map_err(|_| parse_failure("ParseUint", text))
        }
        ("double", Val::Int(number)) => Ok(Val::Double(*number as f64)),
        ("double", Val::Uint(number)) => Ok(Val::Double(*number as f64)),
        ("double", Val::String(text)) => {
            text.parse().map(Val::Double).map_err(|_| parse_failure("ParseFloat", text))
        }
        ("bytes", Val::String(text)) => Ok(Val::Bytes(text.as_bytes().into())),
        ("string", value) => return text(value),
        ("duration", Val::String(text)) => duration::parse(text)
            .map(Val::Duration)
            .ok_or_else(|| failed("type conversion error from 'string' to 'google.protobuf.Duration'")),
        ("duration", Val::Int(nanoseconds)) => Ok(Val::Duration(*nanoseconds)),
        ("timestamp", Val::String(text)) => text
            .parse()
            .map(Val::Timestamp)
            .map_err(|_| failed("type conversion error from 'string' to 'google.protobuf.Timestamp'")),
        ("timestamp", Val::Int(seconds)) => {
            Timestamp::from_second(*seconds).map(Val::Timestamp).map_err(|_| failed("timestamp overflow"))
        }
        _ => return None,
    })
}

fn parse_failure(function: &str, text: &str) -> EvalError {
    failed(format!("strconv.{function}: parsing {text:?}: invalid syntax"))
}

fn whole(number: f64) -> Option<i64> {
    (number > -9.3e18 && number < 9.223372036854775e18).then_some(number as i64)
}

/// Returns what `string` converts a value to.
pub(super) fn text_of(value: &Val) -> Result<String, EvalError> {
    let text = match value {
        Val::String(_) => Ok(value.clone()),
        value => text(value).unwrap_or_else(|| Err(EvalError::no_overload())),
    };
    text.map(|text| text.as_str().unwrap_or_default().to_owned())
}

/// Converts a value to a string. Returns `None` for types that have no string form.
fn text(value: &Val) -> Option<Outcome> {
    Some(match value {
        Val::Bool(on) => Ok(Val::text(on.to_string())),
        Val::Int(number) => Ok(Val::text(number.to_string())),
        Val::Uint(number) => Ok(Val::text(number.to_string())),
        Val::Double(double) => Ok(Val::text(number::shown(*double))),
        Val::Bytes(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => Ok(Val::text(text)),
            Err(_) => Err(failed("invalid UTF-8 in bytes, cannot convert to string")),
        },
        Val::Timestamp(time) => Ok(Val::text(time.to_string())),
        Val::Duration(nanoseconds) => Ok(Val::text(seconds(*nanoseconds))),
        Val::Ip(address) => Ok(Val::text(address.to_string())),
        Val::Cidr(address, bits) => Ok(Val::text(format!("{address}/{bits}"))),
        _ => return None,
    })
}

/// `90s`, `1.5s`.
fn seconds(nanoseconds: i64) -> String {
    format!("{}s", number::shown(nanoseconds as f64 / 1e9))
}
