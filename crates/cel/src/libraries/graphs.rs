//! Functions for templates of resource graphs, as in kro: seeded randomness, hashes, JSON, base64, list and map edits.

use std::sync::Arc;

use sha2::{Digest, Sha256};

use super::{Outcome, failed, graph_format, md5, strings};
use crate::declarations::GRAPH_FORMAT;
use crate::json::JsonLimit;
use crate::value::Val;

/// The maximum length for `random.seededString`: that of an object name.
const LONGEST: i64 = 253;

/// The maximum size of the JSON that `json.marshal` writes: that of a request.
const MAX_JSON: usize = 3 << 20;

const LETTERS: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";

pub(super) fn call(function: &str, args: &[Val]) -> Option<Outcome> {
    Some(match (function, args) {
        (GRAPH_FORMAT, [Val::String(text), Val::List(values)]) => graph_format::format(text, &values.items),
        ("random.seededString", [Val::Int(length), Val::String(seed)]) => seeded_string(*length, seed),
        ("random.seededInt", [Val::Int(min), Val::Int(max), Val::String(seed)]) => {
            seeded_int(*min, *max, seed)
        }
        ("hash.fnv64a", [Val::String(text)]) => Ok(bytes(&fnv(text).to_be_bytes())),
        ("hash.sha256", [Val::String(text)]) => Ok(bytes(&Sha256::digest(text.as_bytes()))),
        ("hash.md5", [Val::String(text)]) => Ok(bytes(&md5::digest(text.as_bytes()))),
        ("json.marshal", [value]) => marshal(value),
        ("json.unmarshal", [Val::String(text)]) => unmarshal(text),
        ("base64.encode", [Val::Bytes(bytes)]) => Ok(Val::text(strings::to_base64(bytes))),
        ("base64.decode", [Val::String(text)]) => decode(text),
        ("lists.setAtIndex", [Val::List(list), Val::Int(at), value]) => {
            edit(function, &list.items, *at, 1, Some(value))
        }
        ("lists.insertAtIndex", [Val::List(list), Val::Int(at), value]) => {
            edit(function, &list.items, *at, 0, Some(value))
        }
        ("lists.removeAtIndex", [Val::List(list), Val::Int(at)]) => edit(function, &list.items, *at, 1, None),
        ("merge", [Val::Map(base), Val::Map(other)]) => {
            Ok(Val::map(base.iter().chain(other.iter()).map(|(key, value)| (key.clone(), value.clone()))))
        }
        _ => return None,
    })
}

fn bytes(bytes: &[u8]) -> Val {
    Val::Bytes(Arc::from(bytes))
}

/// The string repeats every eight letters, as in kro: a seed gives eight letters.
fn seeded_string(length: i64, seed: &str) -> Outcome {
    if length <= 0 {
        return Err(failed("random.seededString length must be positive"));
    }
    if length > LONGEST {
        return Err(failed(format!("random.seededString length must be at most {LONGEST}")));
    }
    let hash = Sha256::digest(seed.as_bytes());
    let words = hash.chunks_exact(4).map(|word| u32::from_be_bytes([word[0], word[1], word[2], word[3]]));
    let letters: Vec<char> = words.map(|word| char::from(LETTERS[(word % 36) as usize])).collect();
    Ok(Val::text(letters.iter().cycle().take(length.unsigned_abs() as usize).collect::<String>()))
}

fn seeded_int(min: i64, max: i64, seed: &str) -> Outcome {
    if min >= max {
        return Err(failed("random.seededInt min must be less than max"));
    }
    let hash = Sha256::digest(seed.as_bytes());
    let first = hash.iter().take(8).fold(0_u64, |number, byte| (number << 8) | u64::from(*byte));
    let offset = first % max.abs_diff(min);
    Ok(Val::Int(min.wrapping_add_unsigned(offset)))
}

fn fnv(text: &str) -> u64 {
    text.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

fn marshal(value: &Val) -> Outcome {
    let json = JsonLimit::new(MAX_JSON).convert(value);
    let json = json.map_err(|why| failed(format!("json.marshal failed to convert value: {why}")))?;
    Ok(Val::text(json.to_string()))
}

fn unmarshal(text: &str) -> Outcome {
    let json: serde_json::Value = serde_json::from_str(text)
        .map_err(|error| failed(format!("json.unmarshal failed to parse JSON: {error}")))?;
    Ok(Val::of_json(&json))
}

/// Padding is optional, as in cel-go.
fn decode(text: &str) -> Outcome {
    let padded = format!("{text}{}", "=".repeat((4 - text.len() % 4) % 4));
    match strings::from_base64(text).or_else(|| strings::from_base64(&padded)) {
        Some(decoded) => Ok(bytes(&decoded)),
        None => Err(failed("base64.decode: expected base64")),
    }
}

/// Replaces `dropped` items at an index with a value, if there is one.
fn edit(function: &str, items: &[Val], at: i64, dropped: usize, value: Option<&Val>) -> Outcome {
    let index = usize::try_from(at).ok().filter(|index| index + dropped <= items.len());
    let Some(index) = index else {
        let end = if dropped == 0 { ']' } else { ')' };
        return Err(failed(format!("{function}: index {at} out of bounds [0, {}{end}", items.len())));
    };
    let (before, after) = (&items[..index], &items[index + dropped..]);
    Ok(Val::list(before.iter().chain(value).chain(after).cloned().collect()))
}

#[cfg(test)]
mod tests {
    use crate::{CALL_LIMIT, Environment, Variables};

    use super::*;

    fn evaluate(text: &str) -> Result<Val, String> {
        let program =
            Environment::new().with_graph_functions().compile(text).map_err(|error| error.to_string())?;
        program.evaluate(&Variables::new(), CALL_LIMIT).0.map_err(|error| error.to_string())
    }

    #[test]
    fn results_are_those_of_kro() {
        for text in [
            "random.seededString(10, 'seed') == 'qakd42wvqa'",
            "random.seededInt(30000, 32768, 'seed') == 32522",
            "base64.encode(hash.fnv64a('hello')) == 'pDDYRoCqvQs='",
            "base64.encode(hash.sha256('hello')) == 'LPJNul+wow4m6DsqxbninhsWHlwfp0JecwQzYpOLmCQ='",
            "string(base64.decode('aGVsbG8')) == 'hello' && base64.decode('aGVsbG8=') == b'hello'",
            "json.unmarshal('{\"a\": [1, 2]}').a[1] == 2 && json.marshal({'a': [1, true]}) == '{\"a\":[1,true]}'",
            "lists.setAtIndex([1, 2, 3], 1, 9) == [1, 9, 3] && lists.insertAtIndex([1], 1, 9) == [1, 9]",
            "lists.removeAtIndex([1, 2, 3], 0) == [2, 3]",
            "{'a': 1, 'b': 1}.merge({'b': 2}) == {'a': 1, 'b': 2}",
            "'%s %.1f'.format([['a'], 1234.5]) == '[a] 1234.5'",
        ] {
            assert!(matches!(evaluate(text), Ok(Val::Bool(true))), "{text}: {:?}", evaluate(text));
        }
    }

    #[test]
    fn bad_arguments_are_refused() {
        for (text, expected) in [
            ("random.seededString(0, 'a')", "must be positive"),
            ("random.seededString(9999999, 'a')", "at most"),
            ("random.seededInt(2, 2, 'a')", "less than max"),
            ("lists.removeAtIndex([1], 1)", "out of bounds [0, 1)"),
            ("lists.insertAtIndex([1], -1, 2)", "out of bounds [0, 1]"),
            ("json.unmarshal('{')", "failed to parse"),
            ("base64.decode('?')", "expected base64"),
        ] {
            assert!(evaluate(text).unwrap_err().contains(expected), "{text}");
        }
    }

    /// Values share their parts, and a call that fails has no cost.
    #[test]
    fn work_is_bounded() {
        let doubled = |first: &str, step: &str| format!("optional.of({first}){}.value()", step.repeat(40));
        let nested = doubled("[dyn(1)]", ".optMap(a, [dyn(a), dyn(a)])");
        let maps = doubled("{'a': dyn(1)}", ".optMap(a, {'a': dyn(a), 'b': dyn(a)})");
        let text = "(lists.range(10000).map(i, '0123456789').join('') + '?')";
        let often = |what: &str| {
            format!("optional.of({text}).optMap(t, lists.range(20000).all(i, {what} || true)).value()")
        };
        for text in [
            format!("lists.setAtIndex({nested}, 0, dyn(1)).size() == 2"),
            format!("lists.insertAtIndex({nested}, 0, dyn(1)).size() == 3"),
            format!("lists.removeAtIndex({nested}, 0).size() == 1"),
            format!("{maps}.merge({maps}).size() == 2"),
            format!("json.marshal({nested}) == ''"),
            format!("lists.range(100000).exists(i, json.marshal({nested}) == '' || false)"),
            format!("dyn([{nested}]).min() == 1"),
            often("json.unmarshal(t) == 1"),
            often("base64.decode(t) == b''"),
            often("random.seededInt(1, 2, t) == 3"),
            often("random.seededString(1, t) == ''"),
        ] {
            assert_eq!(
                evaluate(&text),
                Err("operation cancelled: actual cost limit exceeded".into()),
                "{text}"
            );
        }
    }

    #[test]
    fn other_expressions_do_not_have_them() {
        for text in ["hash.md5('a')", "{'a': 1}.merge({'a': 2})"] {
            assert!(Environment::new().compile(text).is_err(), "{text}");
        }
    }
}
