//! Arithmetic, comparison, membership and indexing.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Outcome, failed};
use crate::eval::{self, EvalError};
use crate::value::{self, Identity, List, Members, Val, compare};

pub(super) fn call(function: &str, args: &[Val]) -> Option<Outcome> {
    Some(match (function, args) {
        ("!_", [Val::Bool(on)]) => Ok(Val::Bool(!on)),
        ("-_", [Val::Int(number)]) => number.checked_neg().map(Val::Int).ok_or_else(overflow),
        ("-_", [Val::Double(number)]) => Ok(Val::Double(-number)),
        ("_==_", [a, b]) => Ok(Val::Bool(a == b)),
        ("_!=_", [a, b]) => Ok(Val::Bool(a != b)),
        ("_<_" | "_<=_" | "_>_" | "_>=_", [a, b]) => ordered(function, a, b),
        ("_+_", [a, b]) => add(a, b),
        ("_-_", [a, b]) => subtract(a, b),
        ("_*_", [Val::Int(a), Val::Int(b)]) => a.checked_mul(*b).map(Val::Int).ok_or_else(overflow),
        ("_*_", [Val::Uint(a), Val::Uint(b)]) => {
            a.checked_mul(*b).map(Val::Uint).ok_or_else(unsigned_overflow)
        }
        ("_*_", [Val::Double(a), Val::Double(b)]) => Ok(Val::Double(a * b)),
        ("_/_", [Val::Int(_), Val::Int(0)] | [Val::Uint(_), Val::Uint(0)]) => Err(failed("division by zero")),
        ("_/_", [Val::Int(a), Val::Int(b)]) => a.checked_div(*b).map(Val::Int).ok_or_else(overflow),
        ("_/_", [Val::Uint(a), Val::Uint(b)]) => Ok(Val::Uint(a / b)),
        ("_/_", [Val::Double(a), Val::Double(b)]) => Ok(Val::Double(a / b)),
        ("_%_", [Val::Int(_), Val::Int(0)] | [Val::Uint(_), Val::Uint(0)]) => Err(failed("modulus by zero")),
        ("_%_", [Val::Int(a), Val::Int(b)]) => a.checked_rem(*b).map(Val::Int).ok_or_else(overflow),
        ("_%_", [Val::Uint(a), Val::Uint(b)]) => Ok(Val::Uint(a % b)),
        ("@in", [item, Val::List(list)]) => Ok(Val::Bool(list.items.contains(item))),
        ("@in", [key, Val::Map(entries) | Val::Domains(entries) | Val::Escaped(entries)]) => {
            Ok(Val::Bool(key.key().is_some_and(|key| entries.contains_key(&key))))
        }
        ("_[_]", [Val::Optional(inner), key]) => Ok(at_optional(inner.as_deref(), key)),
        ("_[_]", [container, key]) => at(container, key),
        ("_[?_]", [Val::Optional(inner), key]) => Ok(at_optional(inner.as_deref(), key)),
        ("_[?_]", [container, key]) => Ok(at_optional(Some(container), key)),
        (
            "size",
            [
                value @ (Val::String(_)
                | Val::Bytes(_)
                | Val::List(_)
                | Val::Map(_)
                | Val::Domains(_)
                | Val::Escaped(_)),
            ],
        ) => Ok(Val::Int(i64::try_from(value.size()).unwrap_or(i64::MAX))),
        _ => return None,
    })
}

fn overflow() -> EvalError {
    failed("integer overflow")
}

fn unsigned_overflow() -> EvalError {
    failed("unsigned integer overflow")
}

fn ordered(function: &str, a: &Val, b: &Val) -> Outcome {
    let order = compare(a, b);
    if order.is_none() && !matches!((a, b), (Val::Double(_), _) | (_, Val::Double(_))) {
        return Err(EvalError::no_overload());
    }
    Ok(Val::Bool(order.is_some_and(|order| match function {
        "_<_" => order.is_lt(),
        "_<=_" => order.is_le(),
        "_>_" => order.is_gt(),
        _ => order.is_ge(),
    })))
}

fn add(a: &Val, b: &Val) -> Outcome {
    match (a, b) {
        (Val::Int(a), Val::Int(b)) => a.checked_add(*b).map(Val::Int).ok_or_else(overflow),
        (Val::Uint(a), Val::Uint(b)) => a.checked_add(*b).map(Val::Uint).ok_or_else(unsigned_overflow),
        (Val::Double(a), Val::Double(b)) => Ok(Val::Double(a + b)),
        (Val::String(a), Val::String(b)) => Ok(Val::text([&**a, &**b].concat())),
        (Val::Bytes(a), Val::Bytes(b)) => Ok(Val::Bytes([&**a, &**b].concat().into())),
        (Val::List(a), Val::List(b)) => Ok(Val::List(Arc::new(concatenated(a, b)))),
        (Val::Duration(a), Val::Duration(b)) => {
            a.checked_add(*b).map(Val::Duration).ok_or_else(|| failed("duration overflow"))
        }
        (Val::Timestamp(time), Val::Duration(by)) | (Val::Duration(by), Val::Timestamp(time)) => {
            super::times::shifted(*time, *by)
        }
        _ => Err(EvalError::no_overload()),
    }
}

/// Concatenates two lists. For sets and maps, adds only new items. For maps, replaces existing ones.
fn concatenated(a: &List, b: &List) -> List {
    let mut items = a.items.clone();
    match &a.identity {
        Identity::Position => items.extend(b.items.iter().cloned()),
        Identity::Whole => {
            let mut members = Members::of(&a.items);
            items.extend(b.items.iter().filter(|item| members.add(item)).cloned());
        }
        Identity::Keys(keys) => {
            // The keys of list items are scalars, which have a canonical text form.
            let of = |item: &Val| -> Vec<Option<String>> {
                keys.iter()
                    .map(|key| eval::get(item, key).ok().and_then(|key| value::written(&key)))
                    .collect()
            };
            let mut places: BTreeMap<Vec<Option<String>>, usize> = BTreeMap::new();
            for (at, item) in items.iter().enumerate() {
                places.entry(of(item)).or_insert(at);
            }
            for item in &b.items {
                match places.get(&of(item)) {
                    Some(at) => items[*at] = item.clone(),
                    None => {
                        places.insert(of(item), items.len());
                        items.push(item.clone());
                    }
                }
            }
        }
    }
    List { items, identity: a.identity.clone() }
}

fn subtract(a: &Val, b: &Val) -> Outcome {
    match (a, b) {
        (Val::Int(a), Val::Int(b)) => a.checked_sub(*b).map(Val::Int).ok_or_else(overflow),
        (Val::Uint(a), Val::Uint(b)) => a.checked_sub(*b).map(Val::Uint).ok_or_else(unsigned_overflow),
        (Val::Double(a), Val::Double(b)) => Ok(Val::Double(a - b)),
        (Val::Duration(a), Val::Duration(b)) => {
            a.checked_sub(*b).map(Val::Duration).ok_or_else(|| failed("duration overflow"))
        }
        (Val::Timestamp(time), Val::Duration(by)) => super::times::shifted(*time, by.saturating_neg()),
        (Val::Timestamp(a), Val::Timestamp(b)) => {
            let difference = a.as_nanosecond() - b.as_nanosecond();
            i64::try_from(difference).map(Val::Duration).map_err(|_| failed("timestamp overflow"))
        }
        _ => Err(EvalError::no_overload()),
    }
}

fn at(container: &Val, key: &Val) -> Outcome {
    match container {
        Val::Map(_) | Val::Domains(_) | Val::Escaped(_) => {
            let found = key.key().and_then(|key| container.at_key(&key));
            found.ok_or_else(|| failed(format!("no such key: {}", shown(key))))
        }
        Val::List(list) => {
            let index = index(key).ok_or_else(EvalError::no_overload)?;
            let found = usize::try_from(index).ok().and_then(|index| list.items.get(index));
            found.cloned().ok_or_else(|| failed(format!("index out of bounds: {index}")))
        }
        _ => Err(EvalError::no_overload()),
    }
}

fn index(key: &Val) -> Option<i64> {
    match key {
        Val::Int(number) => Some(*number),
        Val::Uint(number) => i64::try_from(*number).ok(),
        Val::Double(number) if number.fract() == 0.0 => Some(*number as i64),
        _ => None,
    }
}

fn at_optional(container: Option<&Val>, key: &Val) -> Val {
    container.and_then(|container| at(container, key).ok()).map_or(Val::NONE, Val::some)
}

fn shown(key: &Val) -> String {
    key.key().map_or_else(|| "?".into(), |key| key.to_string())
}
