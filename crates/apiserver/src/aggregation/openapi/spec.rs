//! A version 2 document of another server, reduced to the paths of its APIService.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use crate::json::Json;

const DEFINITIONS: &str = "#/definitions/";
const PARAMETERS: &str = "#/parameters/";
/// The maximum number of definitions in a document. Kubernetes' own has 900.
const MAX_DEFINITIONS: usize = 20_000;
/// The maximum number of kinds per definition. Kubernetes' own document has up to 60. The kinds of two documents are
/// compared pairwise: at most a million comparisons per definition.
const MAX_KINDS: usize = 1000;

/// The parts of a document that are merged into others.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Spec {
    pub(crate) info: Value,
    pub(crate) paths: Map<String, Value>,
    pub(crate) definitions: Map<String, Value>,
    pub(crate) parameters: Map<String, Value>,
    /// The hash of the document that it was read from.
    pub(crate) hash: String,
}

impl Spec {
    /// Reads a document and keeps the paths below a prefix, with everything they reference.
    pub(super) fn read(bytes: &[u8], prefix: &str, hash: String) -> Result<Self, String> {
        let document: Value = serde_json::from_slice(bytes).map_err(|why| why.to_string())?;
        let Value::Object(mut document) = document else {
            return Err("expected an OpenAPI document, found something else".into());
        };
        let mut take = |name: &str| match document.remove(name) {
            Some(Value::Object(found)) => found,
            _ => Map::new(),
        };
        let mut spec = Self {
            paths: take("paths"),
            definitions: take("definitions"),
            parameters: take("parameters"),
            info: Value::Object(take("info")),
            hash,
        };
        if spec.definitions.len() > MAX_DEFINITIONS {
            return Err(format!("the document has more than {MAX_DEFINITIONS} definitions"));
        }
        let names_many = |definition: &Value| definition.list(KINDS).len() > MAX_KINDS;
        if let Some((name, _)) = spec.definitions.iter().find(|(_, definition)| names_many(definition)) {
            return Err(format!("definition {name:?} names more than {MAX_KINDS} kinds"));
        }
        spec.retain_paths(|path| path.starts_with(prefix));
        Ok(spec)
    }

    /// Keeps some paths. Definitions and parameters used only by other paths are removed.
    pub(super) fn retain_paths(&mut self, keep: impl Fn(&str) -> bool) {
        let before = self.used();
        self.paths.retain(|path, _| keep(path));
        let after = self.used();
        let stays = |reference: String| after.contains(&reference) || !before.contains(&reference);
        self.definitions.retain(|name, _| stays(format!("{DEFINITIONS}{name}")));
        self.parameters.retain(|name, _| stays(format!("{PARAMETERS}{name}")));
    }

    /// Returns the references from paths, and from what they refer to.
    fn used(&self) -> BTreeSet<String> {
        let mut used = BTreeSet::new();
        let mut pending: Vec<&Value> = self.paths.values().collect();
        while let Some(value) = pending.pop() {
            each_reference(value, &mut |reference| {
                if !used.insert(reference.to_owned()) {
                    return;
                }
                pending.extend(self.find(reference));
            });
        }
        used
    }

    fn find(&self, reference: &str) -> Option<&Value> {
        if let Some(name) = reference.strip_prefix(DEFINITIONS) {
            return self.definitions.get(name);
        }
        self.parameters.get(reference.strip_prefix(PARAMETERS)?)
    }

    /// Renames definitions and parameters, and the references to them.
    pub(super) fn rename(&mut self, definitions: &[(String, String)], parameters: &[(String, String)]) {
        let mut all: BTreeMap<String, String> = BTreeMap::new();
        for (kind, renamed) in [(DEFINITIONS, definitions), (PARAMETERS, parameters)] {
            all.extend(renamed.iter().map(|(old, new)| (format!("{kind}{old}"), format!("{kind}{new}"))));
        }
        if all.is_empty() {
            return;
        }
        for (section, renamed) in [(&mut self.definitions, definitions), (&mut self.parameters, parameters)] {
            for (old, new) in renamed {
                if let Some(value) = section.remove(old) {
                    section.insert(new.clone(), value);
                }
            }
        }
        for section in [&mut self.paths, &mut self.definitions, &mut self.parameters] {
            section.values_mut().for_each(|value| redirect(value, &all));
        }
    }
}

/// Calls `each` for every reference in a value. Values are at most 128 deep: the reader allows no more.
fn each_reference<'v>(value: &'v Value, each: &mut dyn FnMut(&'v str)) {
    match value {
        Value::Object(fields) => {
            if let Some(Value::String(reference)) = fields.get("$ref") {
                each(reference);
            }
            fields.values().for_each(|value| each_reference(value, each));
        }
        Value::Array(items) => items.iter().for_each(|value| each_reference(value, each)),
        _ => {}
    }
}

fn redirect(value: &mut Value, renamed: &BTreeMap<String, String>) {
    match value {
        Value::Object(fields) => {
            if let Some(Value::String(reference)) = fields.get_mut("$ref")
                && let Some(new) = renamed.get(reference)
            {
                reference.clone_from(new);
            }
            fields.values_mut().for_each(|value| redirect(value, renamed));
        }
        Value::Array(items) => items.iter_mut().for_each(|value| redirect(value, renamed)),
        _ => {}
    }
}

/// The extension that names the kinds of a definition.
pub(super) const KINDS: &str = "x-kubernetes-group-version-kind";

/// Whether two definitions are equal except for the kinds they name.
pub(super) fn is_same(one: &Value, other: &Value) -> bool {
    let (Some(one), Some(other)) = (one.as_object(), other.as_object()) else { return one == other };
    let count = |fields: &Map<String, Value>| fields.keys().filter(|name| *name != KINDS).count();
    let is_equal = |(name, value): (&String, &Value)| name == KINDS || other.get(name) == Some(value);
    count(one) == count(other) && one.iter().all(is_equal)
}

/// Returns the kinds that a definition names and another one lacks.
pub(super) fn further_kinds(known: &Value, new: &Value) -> Vec<Value> {
    let known = known.list(KINDS);
    new.list(KINDS).iter().filter(|kind| !known.contains(kind)).cloned().collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn document() -> Value {
        let refers = |name: &str| json!({"get": {"responses": {"200": {"schema": {"$ref": format!("#/definitions/{name}")}}}}});
        json!({"swagger": "2.0", "info": {"title": "x"},
            "paths": {"/apis/a/v1/x": refers("X"), "/apis/b/v1/y": refers("Y"), "/version": refers("V")},
            "definitions": {"X": {"properties": {"n": {"$ref": "#/definitions/N"}}}, "N": {"type": "string"},
                "Y": {}, "V": {}, "Unused": {}}})
    }

    #[test]
    fn a_document_is_reduced_to_the_paths_of_its_group_version() {
        let spec = Spec::read(document().to_string().as_bytes(), "/apis/a/v1/", "h".into()).unwrap();
        assert_eq!(spec.paths.keys().collect::<Vec<_>>(), ["/apis/a/v1/x"]);
        // Parts that were never referenced stay.
        assert_eq!(spec.definitions.keys().collect::<Vec<_>>(), ["N", "Unused", "X"]);
        assert!(Spec::read(b"[]", "/", String::new()).is_err());
        assert!(Spec::read("[".repeat(200).as_bytes(), "/", String::new()).is_err());
    }

    #[test]
    fn a_definition_of_too_many_kinds_is_an_error() {
        let kinds =
            |count: usize| json!({"definitions": {"X": {KINDS: (0..count).collect::<Vec<_>>()}}}).to_string();
        assert!(Spec::read(kinds(MAX_KINDS).as_bytes(), "/", String::new()).is_ok());
        let why = Spec::read(kinds(MAX_KINDS + 1).as_bytes(), "/", String::new()).unwrap_err();
        assert_eq!(why, "definition \"X\" names more than 1000 kinds");
    }

    #[test]
    fn references_follow_a_new_name() {
        let mut spec = Spec::read(document().to_string().as_bytes(), "/apis/a/v1/", "h".into()).unwrap();
        spec.rename(&[("N".into(), "N_v2".into())], &[]);
        assert_eq!(spec.definitions["X"]["properties"]["n"]["$ref"], "#/definitions/N_v2");
        assert!(spec.definitions.contains_key("N_v2") && !spec.definitions.contains_key("N"));
    }

    #[test]
    fn definitions_that_differ_in_their_kinds_are_the_same() {
        let (one, other) = (json!({"type": "object", KINDS: [1]}), json!({"type": "object", KINDS: [1, 2]}));
        assert!(is_same(&one, &other) && is_same(&other, &json!({"type": "object"})));
        assert!(
            !is_same(&one, &json!({"type": "string"})) && !is_same(&one, &json!({"type": "object", "x": 1}))
        );
        assert_eq!(further_kinds(&one, &other), [json!(2)]);
    }
}
