//! How apply merges a type: field by field, item by item, or as a whole.

use serde_json::{Map, Value};

use crate::schema::{Field, List, ListKind, Scalar, Schema, Shape, Struct, Table, TypeId};

use super::element;

/// A position in a schema. Below untyped values, types are deduced from values.
#[derive(Clone, Copy)]
pub(super) struct SchemaNode<'t> {
    pub(super) table: &'t Table,
    ty: Option<TypeId>,
    /// Whether this field merges field by field although its type is atomic.
    granular: bool,
}

/// How values merge.
pub(super) enum Merging<'t> {
    Struct(&'t Struct),
    Map,
    /// By item identity.
    Items(&'t List),
    /// Atomically.
    Whole,
}

impl<'t> SchemaNode<'t> {
    pub(super) fn root(schema: &'t Schema) -> Self {
        Self { table: schema.table(), ty: Some(schema.root()), granular: false }
    }

    pub(super) fn shape(self) -> Option<&'t Shape> {
        self.ty.map(|ty| self.table.shape(ty))
    }

    pub(super) fn merging(self) -> Merging<'t> {
        match self.shape() {
            Some(Shape::Struct(fields)) if !fields.atomic || self.granular => Merging::Struct(fields),
            Some(Shape::Map(map)) if !map.atomic => Merging::Map,
            Some(Shape::List(list)) if list.kind != ListKind::Atomic => Merging::Items(list),
            Some(Shape::Scalar(Scalar::Fields | Scalar::Any)) | None => Merging::Map,
            Some(_) => Merging::Whole,
        }
    }

    pub(super) fn declares(self, name: &str) -> bool {
        matches!(self.shape(), Some(Shape::Struct(fields)) if fields.field(name).is_some())
    }

    /// Returns a field of a struct.
    pub(super) fn field(self, field: &Field) -> Self {
        Self { ty: Some(field.ty), granular: field.granular, ..self }
    }

    /// Returns a field or map entry by name; undeclared ones are untyped.
    pub(super) fn named(self, name: &str) -> Self {
        match self.shape() {
            Some(Shape::Struct(fields)) => match fields.field(name) {
                Some(field) => self.field(field),
                None => Self { ty: None, granular: false, ..self },
            },
            Some(Shape::Map(map)) => Self { ty: Some(map.value), granular: false, ..self },
            _ => Self { ty: None, granular: false, ..self },
        }
    }

    pub(super) fn item(self, list: &List) -> Self {
        Self { ty: Some(list.item), granular: false, ..self }
    }

    pub(super) fn below(self, element: &str) -> Self {
        match (element::field_name(element), self.shape()) {
            (Some(name), _) => self.named(name),
            (_, Some(Shape::List(list))) => self.item(list),
            _ => Self { ty: None, granular: false, ..self },
        }
    }

    /// Returns the identity of a list item; fails if it has none.
    pub(super) fn identify(self, list: &List, item: &Value) -> Result<String, String> {
        match &list.kind {
            ListKind::Map(keys) => self.item(list).identify_by_keys(keys, item),
            _ => match item {
                Value::Object(_) => {
                    Err("associative list without keys has an element that's a map type".into())
                }
                Value::Array(_) => Err("not supported: associative list with lists as elements".into()),
                Value::Null => {
                    Err("associative list without keys has an element that's an explicit null".into())
                }
                scalar => Ok(element::value(scalar)),
            },
        }
    }

    fn identify_by_keys(self, keys: &[Box<str>], item: &Value) -> Result<String, String> {
        let fields = match item {
            Value::Object(fields) => fields,
            Value::Null => return Err("associative list with keys may not have a null element".into()),
            _ => return Err("associative list with keys may not have non-map elements".into()),
        };
        let value_of = |key: &str| fields.get(key).cloned().or_else(|| self.default_of(key));
        let found: Map<String, Value> =
            keys.iter().filter_map(|key| Some((key.to_string(), value_of(key)?))).collect();
        if found.is_empty() {
            return Err(format!(
                "associative list with keys has an element that omits all key fields {} (and doesn't have default values for any key fields)",
                quoted(keys)
            ));
        }
        Ok(element::key(found))
    }

    fn default_of(self, name: &str) -> Option<Value> {
        match self.shape() {
            Some(Shape::Struct(fields)) => self.table.default_of(fields.field(name)?),
            _ => None,
        }
    }
}

fn quoted(keys: &[Box<str>]) -> String {
    let keys: Vec<String> = keys.iter().map(|key| format!("{key:?}")).collect();
    format!("[{}]", keys.join(" "))
}

/// Returns an object's fields; null has none.
pub(super) fn entries(value: Option<&Value>) -> Option<&Map<String, Value>> {
    value.and_then(Value::as_object).filter(|fields| !fields.is_empty())
}

/// Returns a list's items; null has none.
pub(super) fn items(value: Option<&Value>) -> Option<&[Value]> {
    value.and_then(Value::as_array).map(Vec::as_slice).filter(|items| !items.is_empty())
}
