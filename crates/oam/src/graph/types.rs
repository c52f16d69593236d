//! CEL types of kinds, from the API server's OpenAPI documents, and which values are assignable to a field.
//!
//! Expressions are evaluated over plain JSON. Where JSON does not determine the type (times, numbers that may be
//! whole), it is dynamic.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Value, json};
use setpoint::client::Optional;
use setpoint::{Client, ClientError};
use setpoint_cel::{Declared, Object, Type};

/// The schemas of group versions. Only held while a definition is checked, and bounded by what the server serves.
#[derive(Default)]
pub(super) struct Schemas {
    documents: BTreeMap<String, Value>,
}

impl Schemas {
    /// Reads the documents of these group versions. Versions that are not served are omitted.
    pub(super) async fn read(client: &Client, api_versions: &BTreeSet<String>) -> Result<Self, ClientError> {
        let mut documents = BTreeMap::new();
        for api_version in api_versions {
            let path = match api_version.split_once('/') {
                None => vec!["openapi", "v3", "api", api_version.as_str()],
                Some((group, version)) => vec!["openapi", "v3", "apis", group, version],
            };
            let Some(document) = client.get_path(&path, &[]).await.optional()? else { continue };
            let document = serde_json::from_slice(&document)
                .map_err(|error| ClientError::InvalidResponse(Box::new(error)))?;
            documents.insert(api_version.clone(), document);
        }
        Ok(Self { documents })
    }

    /// Returns the type of a kind's objects. `None` if the server does not serve it.
    pub(super) fn of_kind(&self, api_version: &str, kind: &str) -> Option<Type> {
        let schemas = &self.documents.get(api_version)?["components"]["schemas"];
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let is_it = |(_, schema): &(&String, &Value)| {
            let named = schema["x-kubernetes-group-version-kind"].as_array();
            named
                .into_iter()
                .flatten()
                .any(|name| name["group"] == group && name["version"] == version && name["kind"] == kind)
        };
        let (name, schema) = schemas.as_object()?.iter().find(is_it)?;
        let mut reader = Reader { schemas, known: BTreeMap::new(), open: Vec::new() };
        Some(with_metadata(reader.plain(schema, name)))
    }
}

/// Returns the type of values of a schema without references.
pub(super) fn of_schema(schema: &Value, name: &str) -> Type {
    Reader { schemas: &Value::Null, known: BTreeMap::new(), open: Vec::new() }.plain(schema, name)
}

/// Every object has these, even if they are not in its schema.
fn with_metadata(ty: Type) -> Type {
    let Type::Object(object) = &ty else { return ty };
    let mut fields = object.fields.clone();
    let named = |field: &Declared| field.field("name").is_some();
    if !fields.get("metadata").is_some_and(named) {
        fields.insert("metadata".into(), Declared::plain(metadata()));
    }
    for name in ["apiVersion", "kind"] {
        fields.entry(name.to_owned()).or_insert_with(|| Declared::plain(Type::String));
    }
    Type::Object(Arc::new(Object { name: object.name.clone(), fields }))
}

/// Returns the type of `metadata`.
pub(super) fn metadata() -> Type {
    let texts = || Type::map(Type::String, Type::String);
    let mut fields = vec![
        ("labels", texts()),
        ("annotations", texts()),
        ("finalizers", Type::list(Type::String)),
        ("generation", Type::Int),
    ];
    fields.extend(
        ["name", "namespace", "generateName", "uid", "resourceVersion"].map(|name| (name, Type::String)),
    );
    let open = ["creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "ownerReferences"];
    fields.extend(open.map(|name| (name, Type::Dyn)));
    object("ObjectMeta", fields)
}

/// Returns an object with these fields.
pub(super) fn object<N: Into<String>>(name: &str, fields: impl IntoIterator<Item = (N, Type)>) -> Type {
    let fields = fields.into_iter().map(|(name, ty)| (name.into(), Declared::plain(ty))).collect();
    Type::Object(Arc::new(Object { name: name.to_owned(), fields }))
}

struct Reader<'a> {
    schemas: &'a Value,
    /// Types by the name of their schema: types are equal if they are the same.
    known: BTreeMap<&'a str, Type>,
    /// The enclosing schemas. A recursive schema accepts any value.
    open: Vec<&'a str>,
}

impl<'a> Reader<'a> {
    fn read(&mut self, schema: &'a Value, name: &str) -> Type {
        let Some(reference) = reference(schema) else { return self.plain(schema, name) };
        if let Some(known) = self.known.get(reference) {
            return known.clone();
        }
        let Some(found) = self.schemas.get(reference).filter(|_| !self.open.contains(&reference)) else {
            return Type::Dyn;
        };
        self.open.push(reference);
        let ty = self.plain(found, reference);
        self.open.pop();
        self.known.insert(reference, ty.clone());
        ty
    }

    fn plain(&mut self, schema: &'a Value, name: &str) -> Type {
        let is_open = schema["x-kubernetes-int-or-string"] == true
            || schema["x-kubernetes-preserve-unknown-fields"] == true
            || schema.get("oneOf").is_some();
        match (schema["type"].as_str(), schema["format"].as_str().unwrap_or_default()) {
            _ if is_open => Type::Dyn,
            (Some("array"), _) => {
                Type::list(schema.get("items").map_or(Type::Dyn, |items| self.read(items, name)))
            }
            (Some("object"), _) => self.fields(schema, name),
            (Some("string"), "int-or-string" | "date" | "date-time") => Type::Dyn,
            (Some("string"), _) => Type::String,
            (Some("boolean"), _) => Type::Bool,
            (Some("integer"), _) => Type::Int,
            _ => Type::Dyn,
        }
    }

    fn fields(&mut self, schema: &'a Value, name: &str) -> Type {
        if let Some(values) = schema.get("additionalProperties").filter(|values| values.is_object()) {
            return Type::map(Type::String, self.read(values, name));
        }
        let Some(properties) = schema["properties"].as_object().filter(|properties| !properties.is_empty())
        else {
            return Type::Dyn;
        };
        let fields: Vec<(String, Type)> = properties
            .iter()
            .map(|(field, schema)| (field.clone(), self.read(schema, &format!("{name}.{field}"))))
            .collect();
        object(name, fields)
    }
}

/// Returns the name of the referenced schema.
fn reference(schema: &Value) -> Option<&str> {
    let wrapped = || match schema["allOf"].as_array().map(Vec::as_slice) {
        Some([only]) => only["$ref"].as_str(),
        _ => None,
    };
    schema["$ref"].as_str().or_else(wrapped)?.strip_prefix("#/components/schemas/")
}

/// Returns whether values of a type are assignable to a field.
pub(super) fn fits(actual: &Type, field: &Type) -> bool {
    match (actual, field) {
        (Type::Dyn | Type::Error | Type::Null | Type::Param(_), _) | (_, Type::Dyn) => true,
        (Type::Optional(actual), field) => fits(actual, field),
        (Type::Uint, Type::Int) => true,
        (Type::List(actual), Type::List(field)) => fits(actual, field),
        (Type::Map(_, actual), Type::Map(_, field)) => fits(actual, field),
        // The keys are only known at evaluation; the server checks them.
        (Type::Map(..), Type::Object(_)) => true,
        (Type::Object(actual), Type::Map(_, field)) => actual.fields.values().all(|one| fits(&one.ty, field)),
        (Type::Object(actual), Type::Object(field)) => {
            let has = |(name, one): (&String, &Declared)| {
                field.fields.get(name).is_some_and(|field| fits(&one.ty, &field.ty))
            };
            Arc::ptr_eq(actual, field) || actual.fields.iter().all(has)
        }
        (actual, field) => actual == field,
    }
}

/// Returns whether a literal is assignable to a field.
pub(super) fn literal_fits(value: &Value, field: &Type) -> bool {
    match (value, field) {
        (Value::Null, _) | (_, Type::Dyn) => true,
        (Value::Bool(_), Type::Bool) | (Value::String(_), Type::String) => true,
        (Value::Number(number), Type::Int) => number.is_i64() || number.is_u64(),
        (Value::Number(_), Type::Double) => true,
        (Value::Array(items), Type::List(field)) => items.iter().all(|item| literal_fits(item, field)),
        (Value::Object(fields), Type::Map(_, field)) => {
            fields.values().all(|value| literal_fits(value, field))
        }
        (Value::Object(fields), Type::Object(of)) => fields
            .iter()
            .all(|(name, value)| of.fields.get(name).is_some_and(|field| literal_fits(value, &field.ty))),
        _ => false,
    }
}

/// Returns the schema of a status field whose values have this type.
pub(super) fn schema_of(ty: &Type) -> Value {
    match ty {
        Type::Int | Type::Uint => json!({"type": "integer"}),
        Type::Double => json!({"type": "number"}),
        Type::Bool => json!({"type": "boolean"}),
        Type::String | Type::Bytes => json!({"type": "string"}),
        Type::List(items) => json!({"type": "array", "items": schema_of(items)}),
        Type::Map(_, values) => json!({"type": "object", "additionalProperties": schema_of(values)}),
        Type::Optional(of) => schema_of(of),
        _ => json!({"x-kubernetes-preserve-unknown-fields": true}),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schemas() -> Schemas {
        let document = json!({"components": {"schemas": {
            "Desk": {"type": "object", "x-kubernetes-group-version-kind": [{"group": "a.b", "version": "v1", "kind": "Desk"}],
                "properties": {
                    "spec": {"allOf": [{"$ref": "#/components/schemas/Spec"}]},
                    "port": {"type": "string", "format": "int-or-string"},
                }},
            "Spec": {"type": "object", "properties": {
                "size": {"type": "integer"}, "inner": {"$ref": "#/components/schemas/Spec"},
                "tags": {"type": "object", "additionalProperties": {"type": "string"}},
                "items": {"type": "array", "items": {"type": "boolean"}},
            }},
        }}});
        Schemas { documents: [("a.b/v1".to_owned(), document)].into() }
    }

    fn at<'a>(ty: &'a Type, path: &[&str]) -> &'a Type {
        path.iter().fold(ty, |ty, name| match ty {
            Type::Object(object) => &object.fields[*name].ty,
            other => panic!("{other} has no fields"),
        })
    }

    #[test]
    fn schemas_become_types_and_a_recursive_one_ends() {
        let desk = schemas().of_kind("a.b/v1", "Desk").unwrap();
        assert_eq!(*at(&desk, &["spec", "size"]), Type::Int);
        assert_eq!(*at(&desk, &["spec", "inner"]), Type::Dyn);
        assert_eq!(*at(&desk, &["spec", "tags"]), Type::map(Type::String, Type::String));
        assert_eq!((at(&desk, &["port"]), at(&desk, &["metadata", "name"])), (&Type::Dyn, &Type::String));
        assert!(schemas().of_kind("a.b/v1", "Chair").is_none());
    }

    #[test]
    fn values_fit_into_fields_of_their_type() {
        let desk = schemas().of_kind("a.b/v1", "Desk").unwrap();
        let spec = at(&desk, &["spec"]);
        for (value, expected) in [
            (json!({"size": 2, "tags": {"a": "b"}, "items": [true]}), true),
            (json!({"size": "2"}), false),
            (json!({"sice": 2}), false),
            (json!({"items": [1]}), false),
            (json!({"tags": null}), true),
        ] {
            assert_eq!(literal_fits(&value, spec), expected, "{value}");
        }
        assert!(fits(&object("x", [("size", Type::Int)]), spec));
        assert!(!fits(&object("x", [("size", Type::String)]), spec));
        assert!(!fits(&object("x", [("other", Type::Int)]), spec));
        assert!(fits(&Type::map(Type::String, Type::Dyn), spec));
        assert!(!fits(&Type::list(Type::String), &Type::list(Type::Bool)));
    }
}
