//! Optional values.

use super::{Outcome, failed};
use crate::value::Val;

pub(super) fn call(function: &str, args: &[Val]) -> Option<Outcome> {
    Some(match (function, args) {
        ("optional.of", [value]) => Ok(Val::some(value.clone())),
        ("optional.none", []) => Ok(Val::NONE),
        ("optional.ofNonZeroValue", [value]) => {
            Ok(if value.is_zero() { Val::NONE } else { Val::some(value.clone()) })
        }
        ("hasValue", [Val::Optional(value)]) => Ok(Val::Bool(value.is_some())),
        ("value", [Val::Optional(Some(value))]) => Ok((**value).clone()),
        ("value", [Val::Optional(None)]) => Err(failed("optional.none() dereference")),
        ("or", [first @ Val::Optional(value), second]) => {
            Ok(if value.is_some() { first.clone() } else { second.clone() })
        }
        ("orValue", [Val::Optional(value), otherwise]) => {
            Ok(value.as_ref().map_or_else(|| otherwise.clone(), |value| (**value).clone()))
        }
        _ => return None,
    })
}
