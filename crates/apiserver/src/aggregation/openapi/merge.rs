//! Merges version 2 documents, as v1.34 does: the first document with a path wins, and a definition or parameter that
//! differs from another one of the same name is renamed to `NAME_v2`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Map, Value};

use super::spec::{Spec, further_kinds, is_same};

/// The parts of a document that others can conflict with. This server's own parts are visited in sequence and
/// not kept.
#[derive(Default)]
pub(crate) struct Destination {
    paths: BTreeSet<String>,
    definitions: BTreeSet<String>,
    parameters: BTreeSet<String>,
    /// This server's own definitions and parameters whose names others have, or may get.
    own_definitions: BTreeMap<String, Value>,
    own_parameters: BTreeMap<String, Value>,
}

/// The parts of other documents, ready to be written after this server's own.
#[derive(Default)]
pub(crate) struct Additions {
    pub(crate) paths: Map<String, Value>,
    pub(crate) definitions: Map<String, Value>,
    pub(crate) parameters: Map<String, Value>,
    /// The kinds to add to this server's own definitions.
    pub(crate) kinds: BTreeMap<String, Vec<Value>>,
}

impl Destination {
    /// Records a path of this server.
    pub(crate) fn path(&mut self, path: &str) {
        self.paths.insert(path.to_owned());
    }

    /// Records a definition of this server; it is kept if another document has one of the same name.
    pub(crate) fn definition(&mut self, name: &str, value: &Value, specs: &[Arc<Spec>]) {
        self.definitions.insert(name.to_owned());
        if specs.iter().any(|spec| spec.definitions.contains_key(stem(name))) {
            self.own_definitions.insert(name.to_owned(), value.clone());
        }
    }

    /// Records a parameter of this server.
    pub(crate) fn parameter(&mut self, name: &str, value: &Value, specs: &[Arc<Spec>]) {
        self.parameters.insert(name.to_owned());
        if specs.iter().any(|spec| spec.parameters.contains_key(stem(name))) {
            self.own_parameters.insert(name.to_owned(), value.clone());
        }
    }

    /// Merges other documents, in their order.
    pub(crate) fn merge(mut self, specs: &[Arc<Spec>]) -> Additions {
        let mut additions = Additions::default();
        for spec in specs {
            self.add(Spec::clone(spec), &mut additions);
        }
        additions
    }

    fn add(&mut self, mut spec: Spec, additions: &mut Additions) {
        if spec.paths.keys().any(|path| self.paths.contains(path)) {
            let known = &self.paths;
            spec.retain_paths(|path| !known.contains(path));
        }
        if spec.paths.is_empty() {
            return;
        }
        self.rename_conflicts(&mut spec, additions);
        self.paths.extend(spec.paths.keys().cloned());
        additions.paths.extend(spec.paths);
        for (name, value) in spec.definitions {
            self.add_definition(name, value, additions);
        }
        for (name, value) in spec.parameters {
            if self.parameters.insert(name.clone()) {
                additions.parameters.insert(name, value);
            }
        }
    }

    /// Renames definitions and parameters that differ from others of the same name.
    fn rename_conflicts(&self, spec: &mut Spec, additions: &Additions) {
        let definitions = Section {
            names: &self.definitions,
            own: &self.own_definitions,
            added: &additions.definitions,
            is_same,
        };
        let parameters = Section {
            names: &self.parameters,
            own: &self.own_parameters,
            added: &additions.parameters,
            is_same: |one, other| one == other,
        };
        let (definitions, parameters) =
            (definitions.renames(&spec.definitions), parameters.renames(&spec.parameters));
        spec.rename(&definitions, &parameters);
    }

    /// Adds a definition, or its kinds to the same one.
    fn add_definition(&mut self, name: String, value: Value, additions: &mut Additions) {
        if let Some(own) = self.own_definitions.get(&name) {
            let further = further_kinds(own, &value);
            let known = additions.kinds.entry(name).or_default();
            let new = further.into_iter().filter(|kind| !known.contains(kind)).collect::<Vec<_>>();
            known.extend(new);
        } else if let Some(added) = additions.definitions.get_mut(&name) {
            let further = further_kinds(added, &value);
            add_kinds(added, &further);
        } else {
            self.definitions.insert(name.clone());
            additions.definitions.insert(name, value);
        }
    }
}

/// Adds kinds to a definition.
pub(crate) fn add_kinds(definition: &mut Value, kinds: &[Value]) {
    if kinds.is_empty() {
        return;
    }
    if let Some(fields) = definition.as_object_mut() {
        let known = fields.entry(super::spec::KINDS).or_insert_with(|| Value::Array(Vec::new()));
        if let Value::Array(known) = known {
            known.extend_from_slice(kinds);
        }
    }
}

/// A section of the destination: definitions or parameters.
struct Section<'a> {
    names: &'a BTreeSet<String>,
    own: &'a BTreeMap<String, Value>,
    added: &'a Map<String, Value>,
    is_same: fn(&Value, &Value) -> bool,
}

impl Section<'_> {
    fn find(&self, name: &str) -> Option<&Value> {
        self.own.get(name).or_else(|| self.added.get(name))
    }

    /// Returns the new names of the parts that differ from others of their names. A part that was renamed before keeps
    /// its new name.
    fn renames(&self, parts: &Map<String, Value>) -> Vec<(String, String)> {
        let mut taken: BTreeSet<String> = BTreeSet::new();
        let mut renames = Vec::new();
        for (name, part) in parts {
            let is_same = |name: &str| self.find(name).is_some_and(|known| (self.is_same)(known, part));
            if !self.names.contains(name) || is_same(name) {
                continue;
            }
            let is_free =
                |new: &str| !self.names.contains(new) && !parts.contains_key(new) && !taken.contains(new);
            let candidates = (2_u32..).map(|number| format!("{name}_v{number}"));
            let new = candidates.into_iter().find(|new| is_same(new) || is_free(new)).unwrap_or_default();
            taken.insert(new.clone());
            renames.push((name.clone(), new));
        }
        renames
    }
}

/// Returns the name without the suffix of a renamed part.
fn stem(name: &str) -> &str {
    match name.rsplit_once("_v") {
        Some((stem, number)) if !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()) => {
            stem
        }
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn spec(path: &str, definitions: Value) -> Arc<Spec> {
        let names: Vec<Value> = definitions
            .as_object()
            .unwrap()
            .keys()
            .map(|name| json!({"$ref": format!("#/definitions/{name}")}))
            .collect();
        let document = json!({"paths": {path: {"refers": names}}, "definitions": definitions});
        Arc::new(Spec::read(document.to_string().as_bytes(), "/", path.into()).unwrap())
    }

    fn merged(specs: &[Arc<Spec>]) -> Additions {
        let mut destination = Destination::default();
        destination.path("/own");
        destination.definition("Meta", &json!({"type": "object"}), specs);
        destination.definition("Pod", &json!({"type": "object", "own": true}), specs);
        destination.merge(specs)
    }

    #[test]
    fn definitions_that_differ_get_another_name() {
        let same = json!({"type": "object", "x-kubernetes-group-version-kind": [{"kind": "A"}]});
        let one = spec("/apis/a", json!({"Meta": same, "Pod": {"type": "string"}, "New": {}}));
        let other = spec("/apis/b", json!({"Pod": {"type": "string"}, "New": {"type": "number"}}));
        let third = spec("/apis/c", json!({"Pod": {"type": "number"}}));
        let additions = merged(&[one, other, third]);
        assert_eq!(
            Value::Object(additions.definitions),
            json!({"Pod_v2": {"type": "string"}, "Pod_v3": {"type": "number"}, "New": {}, "New_v2": {"type": "number"}})
        );
        assert_eq!(additions.paths["/apis/b"]["refers"][1]["$ref"], "#/definitions/Pod_v2");
        assert_eq!(additions.paths["/apis/c"]["refers"][0]["$ref"], "#/definitions/Pod_v3");
        assert_eq!(additions.kinds["Meta"], [json!({"kind": "A"})]);
    }

    #[test]
    fn a_path_belongs_to_the_first_document_that_has_it() {
        let hostile = spec("/own", json!({"Evil": {}}));
        let one = spec("/apis/a", json!({"A": {"first": true}}));
        let late = spec("/apis/a", json!({"A": {"first": false}}));
        let additions = merged(&[hostile, one, late]);
        assert_eq!(additions.paths.keys().collect::<Vec<_>>(), ["/apis/a"]);
        assert_eq!(Value::Object(additions.definitions), json!({"A": {"first": true}}));
    }
}
