//! Converts YAML bodies to JSON values.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt;

use serde::de::{DeserializeSeed, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_saphyr::{DuplicateKeyPolicy, Options, Spanned};

/// Parses the first document in a text; fails if it is invalid.
pub(crate) fn to_value(body: &[u8]) -> Result<Value, String> {
    parse(body, DuplicateKeyPolicy::LastWins)
        .map_err(|error| format!("error converting YAML to JSON: yaml: {error}"))
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
    serde_saphyr::options! { duplicate_keys: duplicates, with_snippet: false }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_that_occurs_twice_is_told_of_with_its_line() {
        let body = b"a: 1\nb:\n  c: 1\n  c: {d: 1, d: 2}\na: 2\nl:\n- x: 1\n  x: 2\n";
        let problems = duplicate_keys(body);
        let lines = ["line 4: key \"c\"", "line 4: key \"d\"", "line 5: key \"a\"", "line 8: key \"x\""];
        let lines = lines.map(|line| format!("{line} already set in map"));
        assert_eq!(problems, [format!("yaml: unmarshal errors:\n  {}", lines.join("\n  "))]);
        assert!(warnings(&problems[0]).eq(lines.iter().map(String::as_str)));
        assert!(duplicate_keys(b"a: 1\nb: [a, a]\n").is_empty());
    }
}
