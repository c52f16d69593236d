//! The schemas of a group version's kinds and all types they refer to: the structure from the table of types, the
//! descriptions from the types themselves.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::kind::Subresource;
use crate::registry::Served;
use crate::schema::{Field, ListKind, Scalar, Shape, Struct, Table, TypeId};

use super::custom;
use super::describe::Descriptions;
use super::endpoint::Endpoint;

pub(super) const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";
pub(super) const SCALE: &str = "io.k8s.api.autoscaling.v1.Scale";
pub(super) const BINDING: &str = "io.k8s.api.core.v1.Binding";
pub(super) const EVICTION: &str = "io.k8s.api.policy.v1.Eviction";
const TOKEN_REQUEST: &str = "io.k8s.api.authentication.v1.TokenRequest";

/// The OpenAPI version, which determines how to refer to a schema.
#[derive(Clone, Copy)]
pub(super) enum Dialect {
    V2,
    V3,
}

impl Dialect {
    pub(super) fn reference(self, name: &str) -> Value {
        match self {
            Self::V2 => json!({"$ref": format!("#/definitions/{name}")}),
            Self::V3 => json!({"$ref": format!("#/components/schemas/{name}")}),
        }
    }
}

/// Returns the schemas that some endpoints use, including those of custom kinds.
pub(super) fn of(endpoints: &[Endpoint], kinds: &[Arc<Served>]) -> Map<String, Value> {
    let mut roots: BTreeSet<String> =
        endpoints.iter().flat_map(Endpoint::schemas).map(str::to_owned).collect();
    roots.extend(custom::roots(kinds.iter()));
    let mut schemas = described(&roots);
    schemas.extend(kinds.iter().flat_map(|served| custom::described(Dialect::V3, &served.kind)));
    schemas
}

/// Returns all version 3 schemas reachable from some.
fn described(roots: &BTreeSet<String>) -> Map<String, Value> {
    let mut schemas = Map::new();
    each(Dialect::V3, roots, &mut |name, schema| _ = schemas.insert(name.to_owned(), schema.clone()));
    schemas
}

/// Visits all schemas reachable from some.
pub(super) fn each(dialect: Dialect, roots: &BTreeSet<String>, each: &mut dyn FnMut(&str, &Value)) {
    let table = Table::built_in();
    let names = reachable(table, roots.iter().filter_map(|name| table.by_name(name)));
    let descriptions = Descriptions::of(roots.iter().map(String::as_str));
    let writer = Writer { table, dialect, names: &names, descriptions: &descriptions };
    for (name, id) in names.values() {
        each(name, &writer.schema(name, *id));
    }
}

/// Returns the schema of a subresource that is not part of its kind.
pub(super) fn subresource_schema(subresource: Subresource) -> Option<&'static str> {
    match subresource {
        Subresource::Scale => Some(SCALE),
        Subresource::Binding => Some(BINDING),
        Subresource::Eviction => Some(EVICTION),
        Subresource::Token => Some(TOKEN_REQUEST),
        _ => None,
    }
}

/// Types with their own schemas, by number.
type Names<'t> = BTreeMap<TypeId, (&'t str, TypeId)>;

fn reachable<'t>(table: &'t Table, roots: impl Iterator<Item = TypeId>) -> Names<'t> {
    let mut found = Names::new();
    let mut open: Vec<TypeId> = roots.collect();
    while let Some(id) = open.pop() {
        let name = schema_name(table, id);
        if name.is_some_and(|name| found.insert(id, (name, id)).is_some()) {
            continue;
        }
        match table.shape(id) {
            Shape::Struct(fields) => open.extend(fields.fields.iter().map(|field| field.ty)),
            Shape::List(list) => open.push(list.item),
            Shape::Map(map) => open.push(map.value),
            Shape::Scalar(_) => {}
        }
    }
    found
}

/// Returns the name of a type's own schema: structs, and scalars with special rules.
fn schema_name(table: &Table, id: TypeId) -> Option<&str> {
    match table.shape(id) {
        Shape::Struct(fields) => Some(&fields.name),
        Shape::Scalar(Scalar::Time) => Some("io.k8s.apimachinery.pkg.apis.meta.v1.Time"),
        Shape::Scalar(Scalar::MicroTime) => Some("io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime"),
        Shape::Scalar(Scalar::Quantity) => Some("io.k8s.apimachinery.pkg.api.resource.Quantity"),
        Shape::Scalar(Scalar::IntOrString) => Some("io.k8s.apimachinery.pkg.util.intstr.IntOrString"),
        Shape::Scalar(Scalar::Raw) => Some("io.k8s.apimachinery.pkg.runtime.RawExtension"),
        Shape::Scalar(Scalar::Fields) => Some("io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1"),
        Shape::Scalar(Scalar::Any) => {
            OF_ANYTHING.into_iter().find(|name| table.by_name(name) == Some(id)).or(Some(OF_ANYTHING[0]))
        }
        _ => None,
    }
}

/// Types whose values may be anything.
const OF_ANYTHING: [&str; 4] = [
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSON",
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrArray",
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrBool",
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrStringArray",
];

struct Writer<'a> {
    table: &'a Table,
    dialect: Dialect,
    names: &'a Names<'a>,
    descriptions: &'a Descriptions,
}

impl Writer<'_> {
    fn schema(&self, name: &str, id: TypeId) -> Value {
        let mut schema = match self.table.shape(id) {
            Shape::Struct(fields) => self.object(fields),
            Shape::Scalar(scalar) => scalar_schema(self.dialect, *scalar),
            _ => Map::new(),
        };
        if let Some(description) = self.descriptions.of_type(name) {
            schema.insert("description".into(), description.into());
        }
        Value::Object(schema)
    }

    fn object(&self, of: &Struct) -> Map<String, Value> {
        let mut schema = Map::new();
        schema.insert("type".into(), "object".into());
        if !of.fields.is_empty() {
            let properties = of.fields.iter().map(|field| (field.name.to_string(), self.property(of, field)));
            schema.insert("properties".into(), Value::Object(properties.collect()));
        }
        let required: Vec<&str> =
            of.fields.iter().filter(|field| field.required).map(|field| &*field.name).collect();
        if !required.is_empty() {
            schema.insert("required".into(), required.into());
        }
        if of.atomic {
            schema.insert("x-kubernetes-map-type".into(), "atomic".into());
        }
        if !of.kinds.is_empty() {
            schema.insert(
                "x-kubernetes-group-version-kind".into(),
                of.kinds.iter().map(|kind| gvk(kind)).collect(),
            );
        }
        schema
    }

    fn property(&self, of: &Struct, field: &Field) -> Value {
        let mut facts = Map::new();
        if let Some(description) = self.descriptions.of_field(&of.name, &field.name) {
            facts.insert("description".into(), description.into());
        }
        if let Some(default) = self.default_of(field) {
            facts.insert("default".into(), default);
        }
        if let (false, Shape::Scalar(_)) = (field.values.is_empty(), self.table.shape(field.ty)) {
            facts.insert("enum".into(), field.values.iter().map(|value| Value::from(&**value)).collect());
        }
        let PatchFacts { strategy, key } = PatchFacts::of(field);
        if let Some(key) = key {
            facts.insert("x-kubernetes-patch-merge-key".into(), key.into());
        }
        if let Some(strategy) = strategy {
            facts.insert("x-kubernetes-patch-strategy".into(), strategy.into());
        }
        self.typed(field.ty, facts, &field.values)
    }

    /// Writes a value of a type, with additional facts.
    fn typed(&self, id: TypeId, mut facts: Map<String, Value>, item_values: &[Box<str>]) -> Value {
        if let Some((name, _)) = self.names.get(&id) {
            return self.refer(name, facts);
        }
        match self.table.shape(id) {
            Shape::List(list) => {
                facts.insert("type".into(), "array".into());
                facts.insert("items".into(), self.item(list.item, item_values));
                match &list.kind {
                    ListKind::Atomic if !list.is_marked => {}
                    ListKind::Atomic => _ = facts.insert("x-kubernetes-list-type".into(), "atomic".into()),
                    ListKind::Set => _ = facts.insert("x-kubernetes-list-type".into(), "set".into()),
                    ListKind::Map(keys) => {
                        let keys = keys.iter().map(|key| Value::from(&**key)).collect();
                        facts.insert("x-kubernetes-list-type".into(), "map".into());
                        facts.insert("x-kubernetes-list-map-keys".into(), keys);
                    }
                }
            }
            Shape::Map(map) => {
                facts.insert("type".into(), "object".into());
                facts.insert("additionalProperties".into(), self.item(map.value, item_values));
                if map.atomic {
                    facts.insert("x-kubernetes-map-type".into(), "atomic".into());
                }
            }
            Shape::Scalar(scalar) => facts.extend(scalar_schema(self.dialect, *scalar)),
            Shape::Struct(_) => {}
        }
        Value::Object(facts)
    }

    /// Writes the items of a list or the values of a map, which are present even if empty.
    fn item(&self, id: TypeId, values: &[Box<str>]) -> Value {
        let mut facts = Map::new();
        if let Some(default) = self.zero(id) {
            facts.insert("default".into(), default);
        }
        if !values.is_empty() {
            facts.insert("enum".into(), values.iter().map(|value| Value::from(&**value)).collect());
        }
        self.typed(id, facts, &[])
    }

    /// Writes a reference. Version 3 wraps one that has siblings, version 2 does not.
    fn refer(&self, name: &str, mut facts: Map<String, Value>) -> Value {
        let mut reference = self.dialect.reference(name);
        match self.dialect {
            Dialect::V3 if !facts.is_empty() => {
                facts.insert("allOf".into(), json!([reference]));
                return Value::Object(facts);
            }
            Dialect::V2 => {
                facts.remove("default");
                if let Some(fields) = reference.as_object_mut() {
                    fields.extend(facts);
                }
            }
            Dialect::V3 => {}
        }
        reference
    }

    /// Returns the zero value; version 2 has none.
    fn zero(&self, id: TypeId) -> Option<Value> {
        match self.dialect {
            Dialect::V2 => None,
            Dialect::V3 => self.table.zero_of(id),
        }
    }

    /// Returns the default; version 2 has none.
    fn default_of(&self, field: &Field) -> Option<Value> {
        match self.dialect {
            Dialect::V2 => None,
            Dialect::V3 => self.table.default_of(field),
        }
    }
}

struct PatchFacts<'a> {
    strategy: Option<&'static str>,
    key: Option<&'a str>,
}

impl<'a> PatchFacts<'a> {
    fn of(field: &'a Field) -> Self {
        let strategy = match (field.patch.merge, field.patch.retain_keys) {
            (true, true) => Some("merge,retainKeys"),
            (true, false) => Some("merge"),
            (false, true) => Some("retainKeys"),
            (false, false) if field.patch.replace => Some("replace"),
            (false, false) => None,
        };
        Self { strategy, key: field.patch.key.as_deref() }
    }
}

fn scalar_schema(dialect: Dialect, scalar: Scalar) -> Map<String, Value> {
    let (ty, format) = match scalar {
        Scalar::String => ("string", None),
        Scalar::Bool => ("boolean", None),
        Scalar::Int32 => ("integer", Some("int32")),
        Scalar::Int64 => ("integer", Some("int64")),
        Scalar::Float => ("number", Some("double")),
        Scalar::Bytes => ("string", Some("byte")),
        Scalar::Time | Scalar::MicroTime => ("string", Some("date-time")),
        Scalar::Quantity => return one_of(dialect, ["string", "number"], None),
        Scalar::IntOrString => return one_of(dialect, ["integer", "string"], Some("int-or-string")),
        Scalar::Raw | Scalar::Fields => ("object", None),
        Scalar::Any => return Map::new(),
    };
    let mut schema = Map::new();
    schema.insert("type".into(), ty.into());
    if let Some(format) = format {
        schema.insert("format".into(), format.into());
    }
    schema
}

/// Writes alternative types. Version 2 cannot express them, so it uses a string.
fn one_of(dialect: Dialect, types: [&str; 2], format: Option<&str>) -> Map<String, Value> {
    let mut schema = Map::new();
    match dialect {
        Dialect::V2 => schema.insert("type".into(), "string".into()),
        Dialect::V3 => schema.insert("oneOf".into(), types.map(|ty| json!({"type": ty})).to_vec().into()),
    };
    if let Some(format) = format {
        schema.insert("format".into(), format.into());
    }
    schema
}

/// Formats `apps/v1/Deployment` for the extension.
fn gvk(kind: &str) -> Value {
    let mut parts = kind.splitn(3, '/');
    let mut part = || parts.next().unwrap_or_default();
    json!({"group": part(), "version": part(), "kind": part()})
}
