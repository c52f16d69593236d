//! Lists and sets.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Outcome, failed};
use crate::eval::EvalError;
use crate::value::{Key, Members, Val, compare};

pub(super) fn call(function: &str, args: &[Val]) -> Option<Outcome> {
    Some(match (function, args) {
        ("isSorted", [Val::List(list)]) => {
            let is_sorted = list
                .items
                .windows(2)
                .all(|pair| compare(&pair[0], &pair[1]).is_none_or(|order| order.is_le()));
            Ok(Val::Bool(is_sorted))
        }
        ("sum", [Val::List(list)]) => sum(&list.items),
        ("min" | "max", [Val::List(list)]) => extreme(&list.items, function == "min"),
        ("indexOf", [Val::List(list), item]) => {
            Ok(place(list.items.iter().position(|candidate| candidate == item)))
        }
        ("lastIndexOf", [Val::List(list), item]) => {
            Ok(place(list.items.iter().rposition(|candidate| candidate == item)))
        }
        ("slice", [Val::List(list), Val::Int(from), Val::Int(to)]) => slice(&list.items, *from, *to),
        ("flatten", [Val::List(list)]) => Ok(Val::list(flattened(&list.items, 1))),
        ("flatten", [Val::List(_), Val::Int(depth)]) if *depth < 0 => {
            Err(failed("level must be non-negative"))
        }
        ("flatten", [Val::List(list), Val::Int(depth)]) => Ok(Val::list(flattened(&list.items, *depth))),
        ("distinct", [Val::List(list)]) => {
            let mut members = Members::of(&[]);
            Ok(Val::list(list.items.iter().filter(|item| members.add(item)).cloned().collect()))
        }
        ("reverse", [Val::List(list)]) => Ok(Val::list(list.items.iter().rev().cloned().collect())),
        ("sort", [Val::List(list)]) => Ok(sorted(list.items.iter().map(|item| (item, item)))),
        ("@sortByAssociatedKeys", [Val::List(list), Val::List(keys)]) => {
            Ok(sorted(keys.items.iter().zip(&list.items)))
        }
        ("lists.range", [Val::Int(count)]) => match count {
            0..=MOST => Ok(Val::list((0..*count).map(Val::Int).collect())),
            _ => Err(failed(format!("lists.range: {count} is out of range"))),
        },
        ("sets.contains", [Val::List(list), Val::List(part)]) => {
            let members = Members::of(&list.items);
            Ok(Val::Bool(part.items.iter().all(|item| members.has(item))))
        }
        ("sets.equivalent", [Val::List(a), Val::List(b)]) => {
            let (of_a, of_b) = (Members::of(&a.items), Members::of(&b.items));
            let is_same =
                a.items.iter().all(|item| of_b.has(item)) && b.items.iter().all(|item| of_a.has(item));
            Ok(Val::Bool(is_same))
        }
        ("sets.intersects", [Val::List(a), Val::List(b)]) => {
            let members = Members::of(&b.items);
            Ok(Val::Bool(a.items.iter().any(|item| members.has(item))))
        }
        ("cel.@mapInsert", [Val::Map(map), more @ ..]) => {
            let mut all = map.clone();
            insert(Arc::make_mut(&mut all), more).map(|()| Val::Map(all))
        }
        _ => return None,
    })
}

/// Inserts the entries of a map, or a key and a value, into another map.
pub(in super::super) fn insert(all: &mut BTreeMap<Key, Val>, more: &[Val]) -> Result<(), EvalError> {
    match more {
        [Val::Map(more)] => {
            for (key, value) in &**more {
                if all.insert(key.clone(), value.clone()).is_some() {
                    return Err(failed(format!("insert failed: key {key} already exists")));
                }
            }
        }
        [key, value] => _ = all.insert(key.key().ok_or_else(EvalError::no_overload)?, value.clone()),
        _ => return Err(EvalError::no_overload()),
    }
    Ok(())
}

/// The maximum length of a list that an expression generates.
const MOST: i64 = 100_000;

fn place(found: Option<usize>) -> Val {
    Val::Int(found.map_or(-1, |at| at as i64))
}

fn sum(items: &[Val]) -> Outcome {
    let mut items = items.iter();
    let Some(first) = items.next() else { return Ok(Val::Int(0)) };
    let mut total = first.clone();
    for item in items {
        total = super::call("_+_", false, &[total, item.clone()])?;
    }
    Ok(total)
}

fn extreme(items: &[Val], is_least: bool) -> Outcome {
    let mut items = items.iter();
    let name = if is_least { "min" } else { "max" };
    let mut best = items.next().ok_or_else(|| failed(format!("{name} called on empty list")))?;
    for item in items {
        let order = compare(item, best).ok_or_else(EvalError::no_overload)?;
        if order.is_lt() && is_least || order.is_gt() && !is_least {
            best = item;
        }
    }
    Ok(best.clone())
}

fn slice(items: &[Val], from: i64, to: i64) -> Outcome {
    let range = usize::try_from(from).ok().zip(usize::try_from(to).ok());
    match range.and_then(|(from, to)| items.get(from..to)) {
        Some(part) => Ok(Val::list(part.to_vec())),
        None => Err(failed(format!("cannot slice({from}, {to}), list is length {}", items.len()))),
    }
}

fn flattened(items: &[Val], depth: i64) -> Vec<Val> {
    let mut flat = Vec::new();
    for item in items {
        match item {
            Val::List(inner) if depth > 0 => flat.extend(flattened(&inner.items, depth - 1)),
            other => flat.push(other.clone()),
        }
    }
    flat
}

/// Orders numbers before other types, and NaN after all other numbers.
fn rank(value: &Val) -> (&str, bool) {
    match value {
        Val::Int(_) | Val::Uint(_) => ("", false),
        Val::Double(number) => ("", number.is_nan()),
        other => (other.type_name(), false),
    }
}

fn sorted<'v>(pairs: impl Iterator<Item = (&'v Val, &'v Val)>) -> Val {
    let mut pairs: Vec<_> = pairs.collect();
    // Values without an order get one here, because an inconsistent order makes the sort panic.
    pairs.sort_by(|(a, _), (b, _)| compare(a, b).unwrap_or_else(|| rank(a).cmp(&rank(b))));
    Val::list(pairs.into_iter().map(|(_, item)| item.clone()).collect())
}
