//! Static checks of a definition: every expression has the type of its field, according to the schemas of the
//! referenced kinds.
//!
//! An error names the path, the actual type and the expected one.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use setpoint_cel::{Declared, Type};

use super::expression::{Expression, Part, Template};
use super::parse::{Graph, Resource};
use super::types::{self, Schemas, fits, literal_fits, metadata, object};

/// Checks a definition. Returns the schema of its instances' status.
pub(super) fn check(graph: &Graph, schemas: &Schemas) -> Result<Value, String> {
    let mut names = BTreeMap::from([("schema".to_owned(), instance(graph))]);
    let mut kinds = BTreeMap::new();
    for resource in &graph.resources {
        let ty = schemas.of_kind(&resource.api_version, &resource.kind).ok_or_else(|| {
            format!("{}: the server does not serve {} {}", resource.path, resource.api_version, resource.kind)
        })?;
        let seen = if resource.is_list() { Type::list(ty.clone()) } else { ty.clone() };
        names.insert(resource.id.clone(), seen);
        kinds.insert(resource.id.as_str(), ty);
    }
    for resource in &graph.resources {
        let ty = kinds.remove(resource.id.as_str()).unwrap_or(Type::Dyn);
        Resources { names: &names, ty: &ty }.check(resource)?;
    }
    status(&graph.status, &Scope::new(&names))
}

/// Returns the type of `schema`: an instance without its status.
fn instance(graph: &Graph) -> Type {
    let spec = types::of_schema(&graph.spec_schema, "spec");
    let fields =
        [("apiVersion", Type::String), ("kind", Type::String), ("metadata", metadata()), ("spec", spec)];
    object(&graph.kind, fields)
}

/// The variables of an expression, as fields of its only variable.
struct Scope(std::sync::Arc<Declared>);

impl Scope {
    fn new(names: &BTreeMap<String, Type>) -> Self {
        Self(Declared::plain(object("scope", names.clone())).into())
    }

    fn type_of(&self, expression: &Expression, path: &str) -> Result<Type, String> {
        expression.type_in(&self.0).map_err(|why| format!("{path}: {why}"))
    }
}

struct Resources<'a> {
    names: &'a BTreeMap<String, Type>,
    ty: &'a Type,
}

impl Resources<'_> {
    fn check(&self, resource: &Resource) -> Result<(), String> {
        let path = &resource.path;
        let outer = Scope::new(self.names);
        let mut inner = self.names.clone();
        for (index, (name, list)) in resource.for_each.iter().enumerate() {
            let path = format!("{path}.forEach[{index}]");
            match outer.type_of(list, &path)? {
                Type::List(item) => drop(inner.insert(name.clone(), (*item).clone())),
                Type::Dyn => drop(inner.insert(name.clone(), Type::Dyn)),
                other => return Err(format!("{path}: {list} is {other}, expected a list")),
            }
        }
        let field = if resource.external { "externalRef" } else { "template" };
        let expected = if resource.external { &Type::Dyn } else { self.ty };
        template(&resource.template, expected, &Scope::new(&inner), &format!("{path}.{field}"))?;
        conditions(&resource.include_when, &outer, &format!("{path}.includeWhen"))?;
        let mut own = BTreeMap::from([("schema".to_owned(), self.names["schema"].clone())]);
        own.insert(resource.id.clone(), self.ty.clone());
        own.insert("each".to_owned(), self.ty.clone());
        conditions(&resource.ready_when, &Scope::new(&own), &format!("{path}.readyWhen"))
    }
}

fn conditions(list: &[Expression], scope: &Scope, path: &str) -> Result<(), String> {
    for (index, condition) in list.iter().enumerate() {
        let path = format!("{path}[{index}]");
        match scope.type_of(condition, &path)? {
            Type::Bool | Type::Dyn => {}
            other => return Err(format!("{path}: {condition} is {other}, expected bool")),
        }
    }
    Ok(())
}

/// Checks a template against the type of its field.
fn template(template: &Template, field: &Type, scope: &Scope, path: &str) -> Result<(), String> {
    let wrong = |what: &str| Err(format!("{path}: {what}, expected {field}"));
    match (template, field) {
        (Template::Fixed(value), _) if literal_fits(value, field) => Ok(()),
        (Template::Fixed(value), _) => wrong(&value.to_string()),
        (Template::Alone(expression), _) => match scope.type_of(expression, path)? {
            ty if fits(&ty, field) => Ok(()),
            ty => wrong(&format!("{expression} is {ty}")),
        },
        (Template::Text(parts), Type::String | Type::Dyn) => texts(parts, scope, path),
        (Template::Text(_), _) => wrong("a text"),
        (Template::List(items), Type::List(_) | Type::Dyn) => {
            let item = if let Type::List(item) = field { &**item } else { &Type::Dyn };
            let mut items = items.iter().enumerate();
            items.try_for_each(|(index, value)| {
                self::template(value, item, scope, &format!("{path}[{index}]"))
            })
        }
        (Template::List(_), _) => wrong("a list"),
        (Template::Object(fields), _) => fields.iter().try_for_each(|(name, value)| {
            let path = format!("{path}.{name}");
            match field {
                Type::Dyn => self::template(value, &Type::Dyn, scope, &path),
                Type::Map(_, values) => self::template(value, values, scope, &path),
                Type::Object(object) => match object.fields.get(name) {
                    Some(field) => self::template(value, &field.ty, scope, &path),
                    None => Err(format!("{path}: {} has no such field", object.name)),
                },
                _ => wrong("an object"),
            }
        }),
    }
}

/// Expressions inside a string result in strings.
fn texts(parts: &[Part], scope: &Scope, path: &str) -> Result<(), String> {
    for part in parts {
        let Part::Expression(expression) = part else { continue };
        match scope.type_of(expression, path)? {
            Type::String | Type::Dyn => {}
            other => return Err(format!("{path}: {expression} is {other}, expected string")),
        }
    }
    Ok(())
}

/// Returns the schema of the status, from the results of its expressions.
fn status(template: &Template, scope: &Scope) -> Result<Value, String> {
    let mut schema = field_schema(template, scope, "spec.schema.status")?;
    if !schema["properties"].is_object() {
        schema = json!({"type": "object", "properties": {}});
    }
    schema["properties"]["state"] = json!({"type": "string"});
    schema["properties"]["conditions"] = json!({"type": "array", "items": {
        "type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    schema["x-kubernetes-preserve-unknown-fields"] = true.into();
    Ok(schema)
}

fn field_schema(template: &Template, scope: &Scope, path: &str) -> Result<Value, String> {
    match template {
        Template::Alone(expression) => Ok(types::schema_of(&scope.type_of(expression, path)?)),
        Template::Text(parts) => texts(parts, scope, path).map(|()| json!({"type": "string"})),
        Template::Object(fields) => {
            let mut properties = Map::new();
            for (name, field) in fields {
                properties.insert(name.clone(), field_schema(field, scope, &format!("{path}.{name}"))?);
            }
            Ok(json!({"type": "object", "properties": properties}))
        }
        Template::List(items) => {
            for (index, item) in items.iter().enumerate() {
                field_schema(item, scope, &format!("{path}[{index}]"))?;
            }
            Ok(json!({"type": "array", "items": {"x-kubernetes-preserve-unknown-fields": true}}))
        }
        Template::Fixed(_) => Ok(json!({"x-kubernetes-preserve-unknown-fields": true})),
    }
}
