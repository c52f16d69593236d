//! Messages: values of named types that expressions construct.
//!
//! Mutating admission policies have two such types. `Object` and the types below it, named after the path of a field
//! (`Object.spec.containers`), may have any fields. `JSONPatch` is an operation of a JSON patch.
//!
//! Whether the name of a type below `Object` matches its field is only checked once there is a value, as in v1.34.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::eval::EvalError;
use super::types::Type;
use super::value::Val;

/// The type of an apply configuration.
pub const OBJECT: &str = "Object";
/// The type of an operation of a JSON patch.
pub const JSON_PATCH: &str = "JSONPatch";

/// A value of a named type.
#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    pub name: Arc<str>,
    pub fields: BTreeMap<Arc<str>, Val>,
}

/// Returns whether there is a type of this name.
pub(super) fn is_type(name: &str) -> bool {
    name == JSON_PATCH
        || name == OBJECT
        || name.strip_prefix(OBJECT).is_some_and(|rest| rest.starts_with('.'))
}

/// Returns the type of a field. `None` if the type has no such field.
pub(super) fn field_type(name: &str, field: &str) -> Option<Type> {
    match (name, field) {
        (JSON_PATCH, "op" | "path" | "from") => Some(Type::String),
        (JSON_PATCH, "value") => Some(Type::Dyn),
        (JSON_PATCH, _) => None,
        _ => Some(Type::Dyn),
    }
}

impl Message {
    /// Creates a value. Types are checked beforehand, but those of dynamic values are only known now.
    pub(super) fn construct(name: &str, fields: BTreeMap<Arc<str>, Val>) -> Result<Val, EvalError> {
        let wrong = fields.iter().find(|(field, value)| {
            field_type(name, field) == Some(Type::String) && !matches!(value, Val::String(_))
        });
        if let Some((field, value)) = wrong {
            let why = format!("unexpected type {} for JSONPatchType '{field}' field", value.type_name());
            return Err(EvalError::Failed(why));
        }
        Ok(Val::Message(Arc::new(Self { name: name.into(), fields })))
    }

    /// Returns the text in a field, empty if it is unset.
    pub fn string(&self, field: &str) -> &str {
        match self.fields.get(field) {
            Some(Val::String(text)) => text,
            _ => "",
        }
    }

    pub(super) fn get(&self, field: &str) -> Val {
        match self.fields.get(field) {
            Some(value) => value.clone(),
            None if field_type(&self.name, field) == Some(Type::String) => Val::text(""),
            None => Val::Null,
        }
    }

    pub(super) fn has(&self, field: &str) -> bool {
        match self.fields.get(field) {
            Some(Val::String(text)) if &*self.name == JSON_PATCH && field != "value" => !text.is_empty(),
            found => found.is_some(),
        }
    }

    /// Returns v1.34's errors about messages inside this one whose type is not named after the field they are in.
    /// Shared parts are visited every time they occur, so the size of the value must be bounded beforehand.
    pub fn misplaced(&self) -> Vec<String> {
        let mut errors = Vec::new();
        self.check_places(&self.name, &mut errors);
        errors
    }

    fn check_places(&self, expected: &str, errors: &mut Vec<String>) {
        if errors.len() >= MAX_ERRORS {
            return;
        }
        if *self.name != *expected {
            errors.push(format!(
                "unexpected type name {:?}, expected {expected:?}, which matches field name path from root Object type",
                self.name
            ));
        }
        for (field, value) in &self.fields {
            check_places(value, &format!("{expected}.{field}"), errors);
        }
    }
}

/// The maximum number of misplaced messages that are reported.
const MAX_ERRORS: usize = 100;

/// Lists and maps have no names of their own.
fn check_places(value: &Val, expected: &str, errors: &mut Vec<String>) {
    match value {
        Val::Message(message) => message.check_places(expected, errors),
        Val::List(list) => list.items.iter().for_each(|item| check_places(item, expected, errors)),
        Val::Map(entries) => entries.values().for_each(|value| check_places(value, expected, errors)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CALL_LIMIT, Environment};

    fn evaluate(text: &str) -> Result<Val, String> {
        let program =
            Environment::new().with_patch_types().compile(text).map_err(|why| format!("compile: {why}"))?;
        program.evaluate(&BTreeMap::new(), CALL_LIMIT).0.map_err(|why| why.to_string())
    }

    #[test]
    fn a_message_has_the_type_it_names() {
        for (text, ty) in [
            ("Object{spec: Object.spec{replicas: 1 + 2}}", "Object"),
            ("[JSONPatch{op: 'add', path: '/a', value: {'b': [1]}}]", "list(JSONPatch)"),
            ("true ? [JSONPatch{op: 'remove', path: '/a'}] : []", "list(JSONPatch)"),
            ("[Object.a{}, Object.a{b: 1,}]", "list(Object.a)"),
            ("JSONPatch{op: 'add'}.op", "string"),
            ("jsonpatch.escapeKey('a/b~c')", "string"),
        ] {
            let program = Environment::new().with_patch_types().compile(text).unwrap();
            assert_eq!(program.output().to_string(), ty, "{text}");
        }
    }

    #[test]
    fn wrong_types_and_fields_are_found_when_compiling() {
        for (text, why) in [
            ("Thing{}", "ERROR: <input>:1:6: undeclared reference to 'Thing' (in container '')"),
            ("int{}", "ERROR: <input>:1:4: 'int' is not a message type"),
            (
                "JSONPatch{op: 1}",
                "ERROR: <input>:1:13: expected type of field 'op' is 'string' but provided type is 'int'",
            ),
            (
                "JSONPatch{oops: 1}",
                "ERROR: <input>:1:15: expected type of field 'oops' is '' but provided type is 'int'",
            ),
            (
                "[JSONPatch{op: \"add\"",
                "ERROR: <input>:1:21: Syntax error: mismatched input '<EOF>' expecting {'}', ','}",
            ),
        ] {
            let error = Environment::new().with_patch_types().compile(text).unwrap_err().to_string();
            assert!(error.starts_with(why), "{text}: {error}");
        }
        let error = Environment::new().compile("Object{}").unwrap_err().to_string();
        assert!(error.contains("undeclared reference to 'Object'"), "{error}");
        let error = Environment::new().compile("jsonpatch.escapeKey('a')").unwrap_err().to_string();
        assert!(error.contains("undeclared reference to 'jsonpatch'"), "{error}");
    }

    #[test]
    fn fields_are_read_back() {
        for text in [
            "Object{a: 1}.a == 1 && has(Object{a: 1}.a) && !has(Object{a: 1}.b)",
            "Object{?a: optional.none(), ?b: optional.of(2)} == Object{b: 2}",
            "JSONPatch{op: 'add', path: '/x'}.from == '' && dyn(Object{}) != Object.a{}",
            "jsonpatch.escapeKey('k8s.io/my~label') == 'k8s.io~1my~0label'",
        ] {
            assert_eq!(evaluate(text), Ok(Val::Bool(true)), "{text}");
        }
        let error = evaluate("JSONPatch{op: dyn(1)}").unwrap_err();
        assert_eq!(error, "unexpected type int for JSONPatchType 'op' field");
    }

    #[test]
    fn a_type_is_named_after_the_path_of_its_field() {
        let misplaced = |text: &str| match evaluate(text) {
            Ok(Val::Message(message)) => message.misplaced(),
            other => panic!("{other:?}"),
        };
        assert_eq!(misplaced("Object{spec: Object.spec{items: [Object.spec.items{a: 1}]}}"), [""; 0]);
        assert_eq!(misplaced("Object.spec{m: {'x': Object.spec.m{}}}"), [""; 0]);
        assert_eq!(
            misplaced("Object{spec: Object.spec{items: [Object.spec.items.item{a: 1}]}}"),
            [
                "unexpected type name \"Object.spec.items.item\", expected \"Object.spec.items\", which matches field \
              name path from root Object type"
            ]
        );
    }
}
