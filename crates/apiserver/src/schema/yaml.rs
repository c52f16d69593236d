//! Decodes YAML bodies to JSON values, as v1.34 does.
//!
//! Numbers follow YAML 1.1, so `0777` is octal. A float with an integral value becomes an integer: Go writes `1e+06` as
//! `1000000`.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt;

use serde::de::{DeserializeSeed, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_saphyr::{DuplicateKeyPolicy, Options, Spanned};

/// Parses the first document in a text; fails if it is invalid.
pub(crate) fn to_value(body: &[u8]) -> Result<Value, String> {
    let mut value = match unended_block(body) {
        Some(value) => value,
        None => parse(body, DuplicateKeyPolicy::LastWins)
            .map_err(|error| format!("error converting YAML to JSON: yaml: {error}"))?,
    };
    make_whole(&mut value);
    Ok(value)
}

/// Marks the end of a text. A text that already contains it is read as it is.
const MARK: &str = "\u{e000}\u{f8ff}";

/// Decodes a document that ends in a block scalar without a newline. The scalar then has no newline either, but the
/// parser adds one, so the line is marked to find the scalar again. `None` for all other documents.
fn unended_block(body: &[u8]) -> Option<Value> {
    let text = std::str::from_utf8(body).ok()?;
    if text.trim_start().starts_with(['{', '[']) {
        // JSON, which most clients send, has no blocks.
        return None;
    }
    let last = text.rsplit('\n').next().unwrap_or_default();
    if last.trim().is_empty() || !text.contains(['|', '>']) || text.contains(MARK) {
        return None;
    }
    let marked = format!("{text}{MARK}");
    let mut value = parse(marked.as_bytes(), DuplicateKeyPolicy::LastWins).ok()?;
    strip_mark(&mut value).then_some(value)
}

/// Removes the mark from the block scalar that ends in it. Returns whether there was one.
fn strip_mark(value: &mut Value) -> bool {
    match value {
        Value::String(text) => match text.trim_end_matches('\n').strip_suffix(MARK) {
            Some(unmarked) if text.ends_with('\n') => {
                *text = unmarked.to_owned();
                true
            }
            _ => false,
        },
        Value::Array(items) => items.iter_mut().any(strip_mark),
        Value::Object(fields) => fields.values_mut().any(strip_mark),
        _ => false,
    }
}

/// Go writes integral floats up to this value without an exponent.
const MAX_WHOLE: f64 = 1e21;

/// Converts integral floats to integers.
fn make_whole(value: &mut Value) {
    match value {
        Value::Number(number) if number.is_f64() => {
            let fraction = number.as_f64().filter(|number| number.fract() == 0.0);
            if let Some(whole) = fraction.filter(|number| number.abs() < MAX_WHOLE)
                && let Some(whole) = serde_json::Number::from_i128(whole as i128)
            {
                *number = whole;
            }
        }
        Value::Array(items) => items.iter_mut().for_each(make_whole),
        Value::Object(fields) => fields.values_mut().for_each(make_whole),
        _ => {}
    }
}

/// The prefix of strict decoding errors; warnings omit it.
pub(crate) const UNMARSHAL: &str = "yaml: unmarshal errors:\n  ";

/// Returns the strict decoding error for duplicate keys in mappings: all of them in one message.
pub(crate) fn duplicate_keys(body: &[u8]) -> Vec<String> {
    if let Ok(_) | Err(serde_saphyr::Error::MultipleDocuments { .. }) = parse(body, DuplicateKeyPolicy::Error)
    {
        return Vec::new();
    }
    let found = RefCell::default();
    // Invalid documents have been rejected before.
    let options = options(DuplicateKeyPolicy::LastWins);
    let _ = serde_saphyr::with_deserializer_from_slice_with_options(body, options, |document| {
        Repeated { found: &found }.deserialize(document)
    });
    let mut found: Vec<(u64, String)> = found.into_inner();
    found.sort();
    let lines: Vec<String> =
        found.iter().map(|(line, key)| format!("line {line}: key {key:?} already set in map")).collect();
    if lines.is_empty() { Vec::new() } else { vec![format!("{UNMARSHAL}{}", lines.join("\n  "))] }
}

/// Splits the error into the warnings for clients. Other errors are unchanged.
pub(crate) fn warnings(problem: &str) -> impl Iterator<Item = &str> {
    problem.strip_prefix(UNMARSHAL).unwrap_or(problem).split("\n  ")
}

/// Finds duplicate keys and their positions.
#[derive(Clone, Copy)]
struct Repeated<'f> {
    found: &'f RefCell<Vec<(u64, String)>>,
}

impl<'de> DeserializeSeed<'de> for Repeated<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, document: D) -> Result<(), D::Error> {
        document.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Repeated<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("anything")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut document: A) -> Result<(), A::Error> {
        let mut keys = BTreeSet::new();
        while let Some(key) = document.next_key::<Spanned<String>>()? {
            let line = key.referenced.line();
            if !keys.insert(key.value.clone()) {
                self.found.borrow_mut().push((line, key.value));
            }
            document.next_value_seed(self)?;
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut document: A) -> Result<(), A::Error> {
        while document.next_element_seed(self)?.is_some() {}
        Ok(())
    }

    fn visit_some<D: Deserializer<'de>>(self, document: D) -> Result<(), D::Error> {
        self.deserialize(document)
    }

    fn visit_none<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }
}

fn parse(body: &[u8], duplicates: DuplicateKeyPolicy) -> Result<Value, serde_saphyr::Error> {
    let mut first = None;
    let rest =
        serde_saphyr::with_deserializer_from_slice_with_options(body, options(duplicates), |document| {
            first = Some(Value::deserialize(document)?);
            Ok(())
        });
    match (rest, first) {
        (Ok(()) | Err(serde_saphyr::Error::MultipleDocuments { .. }), Some(value)) => Ok(value),
        (Err(error), _) => Err(error),
        (Ok(()), None) => Ok(Value::Null),
    }
}

/// Sets the parser's options. The default budget limits aliases, anchors, depth and nodes; the server limits the size
/// of a body.
fn options(duplicates: DuplicateKeyPolicy) -> Options {
    serde_saphyr::options! { duplicate_keys: duplicates, with_snippet: false, legacy_octal_numbers: true }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn numbers_are_read_as_go_reads_them() {
        for (text, expected) in [
            ("0777", json!(511)),
            ("-0777", json!(-511)),
            ("0o777", json!(511)),
            ("0x1ff", json!(511)),
            ("08", json!(8)),
            ("0", json!(0)),
            ("1e+06", json!(1_000_000)),
            ("1E3", json!(1000)),
            ("1.0", json!(1)),
            ("-2.50e1", json!(-25)),
            ("0.5", json!(0.5)),
            ("1_000", json!(1000)),
            ("18446744073709551615", json!(u64::MAX)),
            ("1.2.3", json!("1.2.3")),
            ("'0777'", json!("0777")),
        ] {
            assert_eq!(to_value(format!("n: {text}\n").as_bytes()), Ok(json!({"n": expected})), "{text}");
        }
    }

    #[test]
    fn a_block_scalar_ends_as_the_text_ends() {
        for (text, expected) in [
            ("k: |\n  one\n  two", json!({"k": "one\ntwo"})),
            ("k: |\n  one\n  two\n", json!({"k": "one\ntwo\n"})),
            ("k: >\n  one\n  two", json!({"k": "one two"})),
            ("k: |-\n  one", json!({"k": "one"})),
            ("k: |+\n  one", json!({"k": "one"})),
            ("k: |+\n  one\n\n", json!({"k": "one\n\n"})),
            ("- a: |\n    x\n- |\n  y", json!([{"a": "x\n"}, "y"])),
            ("a: |\n  x\nb: c", json!({"a": "x\n", "b": "c"})),
            ("a: |\n  x\nb: \"c\"", json!({"a": "x\n", "b": "c"})),
            ("a: b | c", json!({"a": "b | c"})),
            (r#"{"a": "b | c"}"#, json!({"a": "b | c"})),
            ("k: |\n  one\n---\na: b", json!({"k": "one\n"})),
        ] {
            assert_eq!(to_value(text.as_bytes()), Ok(expected), "{text:?}");
        }
    }

    #[test]
    fn every_duplicate_key_is_reported_with_its_line() {
        let body = b"a: 1\nb:\n  c: 1\n  c: {d: 1, d: 2}\na: 2\nl:\n- x: 1\n  x: 2\n";
        let problems = duplicate_keys(body);
        let lines = ["line 4: key \"c\"", "line 4: key \"d\"", "line 5: key \"a\"", "line 8: key \"x\""];
        let lines = lines.map(|line| format!("{line} already set in map"));
        assert_eq!(problems, [format!("yaml: unmarshal errors:\n  {}", lines.join("\n  "))]);
        assert!(warnings(&problems[0]).eq(lines.iter().map(String::as_str)));
        assert!(duplicate_keys(b"a: 1\nb: [a, a]\n").is_empty());
    }
}
