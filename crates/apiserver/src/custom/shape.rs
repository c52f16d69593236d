//! Converts a CRD's schema to a table of types, for server-side apply.

use std::sync::Arc;

use super::props::Props;
use crate::schema::{Field, List, ListKind, Map, PatchRule, Scalar, Schema, Shape, Table, Type, TypeId};

const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

/// Builds the type of a custom resource: its schema, with kind, version and metadata.
pub(super) fn of_resource(name: &str, props: &Props) -> Schema {
    let mut writer = Writer { table: Table::default(), name };
    let root = writer.resource(props, false);
    Schema::new(Arc::new(writer.table), root)
}

struct Writer<'a> {
    table: Table,
    name: &'a str,
}

impl Writer<'_> {
    fn resource(&mut self, props: &Props, preserves: bool) -> TypeId {
        let preserves = preserves || props.preserves_unknown();
        let mut fields = self.fields(props, preserves);
        fields.retain(|field| !super::props::is_meta_field(&field.name));
        let text = self.table.add(Type::scalar(Scalar::String));
        for name in ["apiVersion", "kind"] {
            fields.push(field(name, text, None));
        }
        let built_in = Table::built_in();
        if let Some(meta) = built_in.by_name(OBJECT_META) {
            let meta = self.table.import(built_in, meta);
            fields.push(field("metadata", meta, None));
        }
        let is_open = preserves || props.properties.is_empty();
        self.table.add(Type::of_fields(self.name, fields, is_atomic(props), is_open))
    }

    /// Converts a value's schema. If it preserves unknown fields, so does everything below it.
    fn value(&mut self, props: &Props, preserves: bool) -> TypeId {
        let preserves = preserves || props.preserves_unknown();
        if props.int_or_string {
            return self.table.add(Type::scalar(Scalar::IntOrString));
        }
        if props.embedded_resource {
            return self.resource(props, preserves);
        }
        match props.ty.as_str() {
            "object" => self.object(props, preserves),
            "array" => self.list(props, preserves),
            "string" => self.table.add(Type::scalar(Scalar::String)),
            "boolean" => self.table.add(Type::scalar(Scalar::Bool)),
            "integer" => self.table.add(Type::scalar(Scalar::Int64)),
            "number" => self.table.add(Type::scalar(Scalar::Float)),
            _ if !props.properties.is_empty() => self.object(props, preserves),
            _ => self.table.add(Type::scalar(Scalar::Any)),
        }
    }

    fn object(&mut self, props: &Props, preserves: bool) -> TypeId {
        if let Some(additional) = props.additional() {
            let value = self.value(additional, preserves);
            let shape = Shape::Map(Map { key: "string".into(), value, atomic: is_atomic(props) });
            return self.table.add(Type { alias: None, shape });
        }
        let allows = props.additional_properties.as_ref().map(super::props::OrBool::allows);
        let is_open = allows.unwrap_or(preserves || props.properties.is_empty());
        let fields = self.fields(props, preserves);
        self.table.add(Type::of_fields(self.name, fields, is_atomic(props), is_open))
    }

    fn fields(&mut self, props: &Props, preserves: bool) -> Vec<Field> {
        let mut fields = Vec::with_capacity(props.properties.len());
        for (name, property) in &props.properties {
            let ty = self.value(property, preserves);
            fields.push(field(name, ty, property.default.clone()));
        }
        fields
    }

    fn list(&mut self, props: &Props, preserves: bool) -> TypeId {
        let item = match props.item() {
            Some(item) => self.value(item, preserves),
            None => self.table.add(Type::scalar(Scalar::Any)),
        };
        let kind = match props.list_type.as_deref() {
            Some("set") => ListKind::Set,
            Some("map") => ListKind::Map(props.list_map_keys.iter().map(|key| key.as_str().into()).collect()),
            _ => ListKind::Atomic,
        };
        let shape = Shape::List(List { item, kind, is_marked: props.list_type.is_some() });
        self.table.add(Type { alias: None, shape })
    }
}

fn is_atomic(props: &Props) -> bool {
    props.map_type.as_deref() == Some("atomic")
}

/// Builds a field. Custom fields have no zero values: absent is absent.
fn field(name: &str, ty: TypeId, default: Option<serde_json::Value>) -> Field {
    Field {
        name: name.into(),
        ty,
        required: false,
        pointer: true,
        omit_empty: true,
        omit_zero: false,
        keeps_empty: false,
        granular: false,
        patch: PatchRule::default(),
        values: Box::default(),
        default,
    }
}
