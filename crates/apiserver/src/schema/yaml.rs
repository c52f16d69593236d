//! YAML bodies, as JSON values.

use serde::Deserialize;
use serde_json::Value;
use serde_saphyr::{DuplicateKeyPolicy, Options};

/// The first document of a text. Fails with the reason that it is none.
pub(crate) fn to_value(body: &[u8]) -> Result<Value, String> {
    parse(body, DuplicateKeyPolicy::LastWins)
        .map_err(|error| format!("error converting YAML to JSON: yaml: {error}"))
}

/// How the errors of a strict reader begin; warnings leave it out.
pub(crate) const UNMARSHAL: &str = "yaml: unmarshal errors:\n  ";

/// What a strict reader says of keys that occur twice in one mapping.
pub(crate) fn duplicate_keys(body: &[u8]) -> Vec<String> {
    match parse(body, DuplicateKeyPolicy::Error) {
        Err(serde_saphyr::Error::DuplicateMappingKey { key, location }) => {
            let key = key.unwrap_or_default();
            vec![format!("{UNMARSHAL}line {}: key {key:?} already set in map", location.line())]
        }
        _ => Vec::new(),
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

/// The default budget bounds aliases, anchors, depth and nodes; a body itself is bounded by the server.
fn options(duplicates: DuplicateKeyPolicy) -> Options {
    serde_saphyr::options! { duplicate_keys: duplicates, with_snippet: false }
}
