//! The language, feature by feature: a table of sources and what they evaluate to.

mod bounds;
mod builtins;
mod closedness;
mod comments;
mod comprehensions;
mod cycles;
mod definitions;
mod disjunctions;
mod errors;
mod fields;
mod hostile;
mod instances;
mod lists;
mod literals;
mod operators;
mod packages;
mod patterns;
mod properties;
mod references;
mod schemas;
mod tests_of_bottom;

use serde_json::Value as Json;
use setpoint_cue::Instance;

/// Evaluates a source and exports it.
fn export(source: &str) -> Result<Json, String> {
    let instance = Instance::of("case.cue", source).map_err(|errors| errors.to_string())?;
    instance.root().to_json().map_err(|errors| errors.to_string())
}

/// Checks each row: a source, and its JSON or, after `!`, a part of its error.
fn check(rows: &[(&str, &str)]) {
    for (source, expected) in rows {
        let found = export(source);
        match (expected.strip_prefix('!'), found) {
            (Some(part), Err(error)) => {
                assert!(error.contains(part), "{source}\nhas the error: {error}\nnot: {part}");
            }
            (Some(part), Ok(json)) => panic!("{source}\nis {json}, not the error: {part}"),
            (None, Err(error)) => panic!("{source}\nhas the error: {error}"),
            (None, Ok(json)) => {
                let expected: Json =
                    serde_json::from_str(expected).unwrap_or_else(|why| panic!("{expected}: {why}"));
                assert_eq!(json, expected, "{source}");
            }
        }
    }
}
