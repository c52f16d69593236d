//! A small builder of OpenAPI schemas.

use serde_json::{Map, Value, json};

/// A schema under construction.
pub(super) struct Schema {
    value: Map<String, Value>,
}

fn of_type(name: &str) -> Schema {
    let mut value = Map::new();
    value.insert("type".into(), name.into());
    Schema { value }
}

pub(super) fn string() -> Schema {
    of_type("string")
}

pub(super) fn integer() -> Schema {
    let mut schema = of_type("integer");
    schema.value.insert("format".into(), "int64".into());
    schema
}

pub(super) fn boolean() -> Schema {
    of_type("boolean")
}

pub(super) fn time() -> Schema {
    let mut schema = string();
    schema.value.insert("format".into(), "date-time".into());
    schema
}

pub(super) fn object() -> Schema {
    of_type("object")
}

/// An object without validation. Null counts as empty: in YAML, a field is easily left without a value.
pub(super) fn any() -> Schema {
    let mut schema = object().nullable();
    schema.value.insert("x-kubernetes-preserve-unknown-fields".into(), true.into());
    schema
}

/// A list. Null counts as empty.
pub(super) fn array(items: Schema) -> Schema {
    let mut schema = of_type("array").nullable();
    schema.value.insert("items".into(), items.into_value());
    schema
}

pub(super) fn strings() -> Schema {
    array(string())
}

pub(super) fn map(values: Schema) -> Schema {
    let mut schema = object();
    schema.value.insert("additionalProperties".into(), values.into_value());
    schema
}

impl Schema {
    pub(super) fn field(mut self, name: &str, schema: Self) -> Self {
        let properties = self.value.entry("properties").or_insert_with(|| json!({}));
        properties[name] = schema.into_value();
        self
    }

    pub(super) fn required(mut self, name: &str, schema: Self) -> Self {
        let required = self.value.entry("required").or_insert_with(|| json!([]));
        if let Value::Array(names) = required {
            names.push(name.into());
        }
        self.field(name, schema)
    }

    fn nullable(mut self) -> Self {
        self.value.insert("nullable".into(), true.into());
        self
    }

    pub(super) fn one_of(mut self, values: &[&str]) -> Self {
        self.value.insert("enum".into(), json!(values));
        self
    }

    pub(super) fn into_value(self) -> Value {
        Value::Object(self.value)
    }
}
