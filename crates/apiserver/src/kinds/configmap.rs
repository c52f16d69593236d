//! ConfigMaps.

use serde_json::Value;

use super::{CORE, entry, metadata};
use crate::field::{Errors, Path};
use crate::json::Json;
use crate::kind::{Kind, Scope};
use crate::strategy::{Lifecycle, NameRule, Semantics, Validation};
use crate::table::Column;
use crate::validation::{add_invalid, too_long, words};

pub fn kind() -> Kind {
    Kind {
        short_names: vec!["cm".into()],
        columns: vec![
            Column::name(),
            Column::text("Data", DATA, |object, _| size(object).into()),
            Column::age(),
        ],
        semantics: Semantics { counts_generations: false, ..Semantics::default() },
        ..entry(&CORE, "ConfigMap", "configmaps", ConfigMap)
    }
}

const DATA: &str = "Data contains the configuration data. Each key must consist of alphanumeric characters, '-', '_' or '.'. Values with non-UTF-8 byte sequences must use the BinaryData field. The keys stored in Data must not overlap with the keys in the BinaryData field, this is enforced during validation process.";

fn size(object: &Value) -> usize {
    ["data", "binaryData"].iter().filter_map(|field| object.map(field)).map(serde_json::Map::len).sum()
}

struct ConfigMap;

/// Maximum data size of a ConfigMap or Secret.
pub(super) const DATA_BYTES: usize = 1 << 20;
/// The error for changes to an immutable object's fields.
pub(super) const MADE_IMMUTABLE: &str = "field is immutable when `immutable` is set";

impl Lifecycle for ConfigMap {}

impl Validation for ConfigMap {
    fn validate(&self, map: &Value) -> Errors {
        let mut errors = Errors::default();
        metadata::new(map, &mut errors);
        check_data(map, &mut errors);
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Errors {
        let mut errors = Errors::default();
        metadata::change(new, &mut errors);
        check_immutable(new, old, &["data", "binaryData"], &mut errors);
        metadata::whole(new, Scope::Namespaced, NameRule::Subdomain, &mut errors);
        check_data(new, &mut errors);
        errors
    }
}

fn check_data(map: &Value, errors: &mut Errors) {
    let mut size = 0;
    let path = Path::root("data");
    for (key, value) in map.map("data").into_iter().flatten() {
        add_invalid(words::config_key(key), key, &path.key(key), errors);
        if map.at("binaryData").has(key) {
            errors.invalid(&path.key(key), key.as_str(), "duplicate of key present in binaryData");
        }
        size += value.as_str().map_or(0, str::len);
    }
    let path = Path::root("binaryData");
    for (key, value) in map.map("binaryData").into_iter().flatten() {
        add_invalid(words::config_key(key), key, &path.key(key), errors);
        size += decoded_size(value.as_str().unwrap_or_default());
    }
    if size > DATA_BYTES {
        // The data as a whole has no field path of its own.
        too_long(DATA_BYTES, &Path::root("[]"), errors);
    }
}

/// Returns the decoded size of a base64 text.
pub(super) fn decoded_size(text: &str) -> usize {
    let padding = text.bytes().rev().take(2).filter(|b| *b == b'=').count();
    (text.len() / 4 * 3).saturating_sub(padding)
}

/// Checks that an immutable object stays so, and that its fields do not change.
pub(super) fn check_immutable(new: &Value, old: &Value, parts: &[&str], errors: &mut Errors) {
    if !old.flag("immutable") {
        return;
    }
    if !new.flag("immutable") {
        errors.forbidden(&Path::root("immutable"), MADE_IMMUTABLE);
    }
    for part in parts {
        if new.at(part) != old.at(part) {
            errors.forbidden(&Path::root(part), MADE_IMMUTABLE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::check;
    use serde_json::json;

    #[test]
    fn keys_and_sizes_are_checked() {
        check::create(&ConfigMap, json!({"data": {"a.b": "c"}, "binaryData": {"d": "AAAA"}}), &[]);
        check::create(
            &ConfigMap,
            json!({"data": {"a b": "", "..": ""}}),
            &["Invalid data[..]", "Invalid data[a b]"],
        );
        check::create(&ConfigMap, json!({"data": {"a": ""}, "binaryData": {"a": ""}}), &["Invalid data[a]"]);
        check::create(&ConfigMap, json!({"data": {"a": "x".repeat(1 << 20), "b": "x"}}), &["TooLong []"]);
    }

    #[test]
    fn an_immutable_map_stays_as_it_is() {
        let old = json!({"immutable": true, "data": {"a": "b"}});
        check::update(&ConfigMap, json!({"immutable": true, "data": {"a": "b"}}), &old, &[]);
        check::update(
            &ConfigMap,
            json!({"data": {"a": "c"}}),
            &old,
            &["Forbidden immutable", "Forbidden data"],
        );
    }

    #[test]
    fn sizes_count_decoded_bytes() {
        for (text, size) in [("", 0), ("YQ==", 1), ("YWI=", 2), ("YWJj", 3)] {
            assert_eq!(decoded_size(text), size, "{text}");
        }
    }
}
