//! The schema of a CRD.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

/// `JSONSchemaProps`: a value's structure and constraints.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Props {
    pub id: String,
    #[serde(rename = "$schema")]
    pub schema: String,
    #[serde(rename = "$ref")]
    pub reference: Option<String>,
    pub description: String,
    /// `object`, `array`, `string`, …; empty if any type is allowed.
    #[serde(rename = "type")]
    pub ty: String,
    pub format: String,
    pub title: String,
    pub default: Option<Value>,
    pub maximum: Option<f64>,
    pub exclusive_maximum: bool,
    pub minimum: Option<f64>,
    pub exclusive_minimum: bool,
    pub max_length: Option<i64>,
    pub min_length: Option<i64>,
    pub pattern: String,
    pub max_items: Option<i64>,
    pub min_items: Option<i64>,
    pub unique_items: bool,
    pub multiple_of: Option<f64>,
    #[serde(rename = "enum")]
    pub values: Vec<Value>,
    pub max_properties: Option<i64>,
    pub min_properties: Option<i64>,
    pub required: Vec<String>,
    pub items: Option<Items>,
    pub all_of: Vec<Self>,
    pub one_of: Vec<Self>,
    pub any_of: Vec<Self>,
    pub not: Option<Box<Self>>,
    pub properties: BTreeMap<String, Self>,
    pub additional_properties: Option<OrBool>,
    pub pattern_properties: BTreeMap<String, Self>,
    pub dependencies: Option<BTreeMap<String, Value>>,
    pub additional_items: Option<OrBool>,
    pub definitions: BTreeMap<String, Self>,
    pub external_docs: Option<Value>,
    pub example: Option<Value>,
    pub nullable: bool,
    #[serde(rename = "x-kubernetes-preserve-unknown-fields")]
    pub preserve_unknown: Option<bool>,
    #[serde(rename = "x-kubernetes-embedded-resource")]
    pub embedded_resource: bool,
    #[serde(rename = "x-kubernetes-int-or-string")]
    pub int_or_string: bool,
    #[serde(rename = "x-kubernetes-list-map-keys")]
    pub list_map_keys: Vec<String>,
    #[serde(rename = "x-kubernetes-list-type")]
    pub list_type: Option<String>,
    #[serde(rename = "x-kubernetes-map-type")]
    pub map_type: Option<String>,
    #[serde(rename = "x-kubernetes-validations")]
    pub validations: Vec<Rule>,
    /// Whether some defaults may be in the metadata of embedded resources. Only set on complete schemas used to read
    /// objects.
    #[serde(skip)]
    pub has_embedded_defaults: bool,
}

/// `items`: one schema for all items, or one for each of the first items.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(untagged)]
pub enum Items {
    One(Box<Props>),
    Each(Vec<Props>),
}

/// A schema, or a boolean that allows or forbids any value.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(untagged)]
pub enum OrBool {
    Bool(bool),
    Schema(Box<Props>),
}

impl OrBool {
    pub fn schema(&self) -> Option<&Props> {
        match self {
            Self::Schema(props) => Some(props),
            Self::Bool(_) => None,
        }
    }

    pub fn allows(&self) -> bool {
        !matches!(self, Self::Bool(false))
    }
}

/// An entry of `x-kubernetes-validations`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Rule {
    pub rule: String,
    pub message: String,
    pub message_expression: String,
    pub reason: Option<String>,
    pub field_path: String,
    pub optional_old_self: Option<bool>,
}

impl Props {
    /// Parses a schema; fails with the parser's message.
    pub fn parse(schema: &Value) -> Result<Self, String> {
        Self::deserialize(schema).map_err(|why| why.to_string())
    }

    pub fn preserves_unknown(&self) -> bool {
        self.preserve_unknown == Some(true)
    }

    /// Returns the schema of all items.
    pub fn item(&self) -> Option<&Self> {
        match &self.items {
            Some(Items::One(item)) => Some(item),
            _ => None,
        }
    }

    /// Returns the schema of fields without a property.
    pub fn additional(&self) -> Option<&Self> {
        self.additional_properties.as_ref().and_then(OrBool::schema)
    }

    /// Returns the schema of a field: its property, or that of additional properties.
    pub fn field(&self, name: &str) -> Option<&Self> {
        self.properties.get(name).or_else(|| self.additional())
    }

    /// Whether this schema or any of its subschemas satisfies the predicate.
    pub fn any(&self, is_such: &mut dyn FnMut(&Self) -> bool) -> bool {
        is_such(self) || self.parts().any(|part| part.any(is_such))
    }

    /// Returns all direct subschemas.
    fn parts(&self) -> impl Iterator<Item = &Self> {
        let each = match &self.items {
            Some(Items::Each(each)) => each.as_slice(),
            _ => &[],
        };
        self.item()
            .into_iter()
            .chain(each)
            .chain(&self.all_of)
            .chain(&self.any_of)
            .chain(&self.one_of)
            .chain(self.not.as_deref())
            .chain(self.properties.values())
            .chain(self.additional())
            .chain(self.pattern_properties.values())
            .chain(self.additional_items.as_ref().and_then(OrBool::schema))
            .chain(self.definitions.values())
    }

    /// Prepares the schema for reading objects.
    pub fn for_objects(mut self) -> Self {
        self.has_embedded_defaults = self.has_defaults() && self.any(&mut |props| props.embedded_resource);
        self
    }

    /// Whether it defines any defaults.
    pub fn has_defaults(&self) -> bool {
        self.any(&mut |props| props.default.is_some())
    }
}

/// Whether a field is one that every resource has, whatever its schema says.
pub(crate) fn is_meta_field(name: &str) -> bool {
    matches!(name, "apiVersion" | "kind" | "metadata")
}
