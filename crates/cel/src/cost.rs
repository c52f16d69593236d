//! Runtime costs of calls, as v1.34 computes them.

use super::declarations::GRAPH_FORMAT;
use super::eval::LIST_COST;
use super::value::Val;

/// The cost of scanning one character.
pub(super) const LETTER: f64 = 0.1;
/// The cost of one character of a pattern, per character it is matched against.
pub(super) const PATTERN_LETTER: f64 = 0.25;

fn letters(value: &Val, factor: f64) -> u64 {
    (value.size() as f64 * factor).ceil() as u64
}

fn pattern(text: &Val, pattern: &Val) -> u64 {
    let text = ((1.0 + text.size() as f64) * LETTER).ceil() as u64;
    text.saturating_mul(letters(pattern, PATTERN_LETTER))
}

/// Returns the part of a call's cost that is charged even if the call fails. An authorization check fails until the
/// authorizer has responded; if that were free, one expression could start any number of checks.
pub(super) fn in_advance(function: &str) -> u64 {
    if function == "check" { 350_000 } else { 0 }
}

/// Returns the rest of a call's cost.
pub(super) fn of_call(function: &str, args: &[Val], result: &Val) -> u64 {
    match (function, args) {
        ("check", _) => 0,
        ("fieldSelector" | "labelSelector", [_, selector]) => {
            let requirements = (selector.size() as f64 * 0.5).ceil();
            10 + letters(selector, LETTER) + (requirements * 50.0).ceil() as u64
        }
        ("isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf", [value, ..]) => traversal(value),
        ("url" | "lowerAscii" | "upperAscii" | "substring" | "trim" | "jsonpatch.escapeKey", [value, ..]) => {
            letters(value, LETTER)
        }
        ("json.marshal" | "random.seededString" | "base64.encode", _) => letters(result, LETTER),
        ("json.unmarshal" | "base64.decode" | "hash.fnv64a" | "hash.sha256" | "hash.md5", [value]) => {
            letters(value, LETTER)
        }
        ("lists.setAtIndex" | "lists.insertAtIndex" | "lists.removeAtIndex" | "merge", _) => {
            traversal(result)
        }
        ("replace" | "split", [value, ..]) => letters(value, 2.0 * LETTER),
        ("join", _) => letters(result, 2.0 * LETTER),
        ("find" | "findAll", [text, by, ..]) => pattern(text, by),
        ("cidr" | "isIP" | "isCIDR" | "quantity" | "isQuantity" | "semver" | "isSemver", [value, ..]) => {
            letters(value, LETTER)
        }
        ("ip", [Val::Cidr(..)]) => 1,
        ("ip", [value]) => letters(value, LETTER),
        ("ip.isCanonical", [value]) => letters(value, 2.0 * LETTER),
        ("containsIP", [range, other]) => {
            let own = (2.0 * range.size() as f64 * LETTER).ceil() as u64;
            own + if other.as_str().is_some() { letters(other, LETTER) } else { 0 }
        }
        ("containsCIDR", [range, other]) => {
            let own = (2.0 * range.size() as f64 * LETTER).ceil() as u64 + letters(range, LETTER) + 1;
            own + if other.as_str().is_some() { letters(other, LETTER) } else { 0 }
        }
        ("validate", [_, text]) => {
            let text = ((1.0 + text.size() as f64) * LETTER).ceil() as u64;
            text * (128.0 * PATTERN_LETTER).ceil() as u64
        }
        (
            "_==_",
            [
                Val::Quantity(_)
                | Val::Ip(_)
                | Val::Cidr(..)
                | Val::Format(_)
                | Val::Url(_)
                | Val::Semver(_)
                | Val::Foreign(_),
                _,
            ],
        ) => 1,
        ("startsWith" | "endsWith", [value, _]) => letters(value, LETTER),
        ("bytes" | "string", [value @ (Val::String(_) | Val::Bytes(_))])
            if result.type_name() != value.type_name() =>
        {
            letters(value, LETTER)
        }
        ("strings.quote" | "format" | GRAPH_FORMAT, [value, ..]) => letters(value, LETTER),
        ("@in", [_, list @ Val::List(_)]) => list.size(),
        ("_==_" | "_!=_", [a, b]) => smaller(a, b),
        ("_<_" | "_<=_" | "_>_" | "_>=_", [a @ (Val::String(_) | Val::Bytes(_)), b]) => smaller(a, b),
        ("_+_", [a @ (Val::String(_) | Val::Bytes(_)), b]) => {
            ((a.size() + b.size()) as f64 * LETTER).ceil() as u64
        }
        ("sets.contains" | "sets.intersects", [a, b]) => 1 + a.size().saturating_mul(b.size()),
        ("sets.equivalent", [a, b]) => 1 + a.size().saturating_mul(b.size()).saturating_mul(2),
        ("slice" | "lists.range" | "reverse", _) => made_list(1.0, result.size()),
        ("flatten", [list]) => made_list(1.0, list.size()),
        ("flatten", [list, Val::Int(depth)]) => made_list(*depth as f64, list.size()),
        ("distinct" | "sort", [list]) | ("@sortByAssociatedKeys", [_, list]) => compared_items(list),
        ("matches", [text, by]) => pattern(text, by),
        ("contains", [text, part]) => letters(text, LETTER).saturating_mul(letters(part, LETTER)),
        _ => 1,
    }
}

fn made_list(factor: f64, size: u64) -> u64 {
    ((size as f64 * factor) as u64).saturating_add(1 + LIST_COST)
}

/// Returns the cost of comparing every item of a list with every other.
fn compared_items(list: &Val) -> u64 {
    let is_text = match list {
        Val::List(list) => matches!(list.items.first(), Some(Val::String(_) | Val::Bytes(_))),
        _ => false,
    };
    let size = list.size();
    made_list(if is_text { 2.0 + LETTER } else { 2.0 }, size.saturating_mul(size))
}

fn smaller(a: &Val, b: &Val) -> u64 {
    (a.size().min(b.size()) as f64 * LETTER).ceil() as u64
}

fn traversal(value: &Val) -> u64 {
    match value {
        Val::String(text) => (text.len() as f64 * LETTER) as u64,
        Val::Bytes(bytes) => (bytes.len() as f64 * LETTER) as u64,
        Val::List(list) => list.items.iter().map(traversal).sum(),
        Val::Map(entries) | Val::Domains(entries) | Val::Escaped(entries) => {
            entries.iter().map(|(key, value)| traversal(&key.val()) + traversal(value)).sum()
        }
        _ => 1,
    }
}
