//! Encodes whole documents as JSON: objects and lists of built-in kinds, and kinds that only occur in responses
//! (tables, partial object metadata, discovery), with their fields in v1.34's order.

use serde_json::{Map, Value};

use super::Schema;
use super::encode::{write, write_plain};

/// Appends a document: an object or list of a built-in kind, or of one that only occurs in responses. All others,
/// including custom resources, have sorted keys.
pub(crate) fn write_document(document: &Value, into: &mut Vec<u8>) {
    let kind = document.get("kind").and_then(Value::as_str).unwrap_or_default();
    match ANSWERS.iter().find(|(name, _)| *name == kind) {
        Some((_, form)) if is_meta(document) => write_form(form, document, into),
        _ => match schema_of(document) {
            Some(schema) => write(&schema, document, into),
            None => write_plain(into, document),
        },
    }
}

/// Returns the type of a document by its kind and version.
fn schema_of(document: &Value) -> Option<Schema> {
    let text = |field: &str| document.get(field).and_then(Value::as_str);
    let (kind, api_version) = (text("kind")?, text("apiVersion").unwrap_or("v1"));
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    Schema::built_in_kind(group, version, kind)
}

/// Whether a document belongs to a group of response kinds.
fn is_meta(document: &Value) -> bool {
    let api_version = document.get("apiVersion").and_then(Value::as_str).unwrap_or_default();
    api_version.starts_with("meta.k8s.io/") || api_version.starts_with("apidiscovery.k8s.io/")
}

/// The fields of a response kind, which are not in the schema table.
enum Form {
    /// Fields in their order.
    Fields(&'static [(&'static str, Form)]),
    List(&'static Form),
    /// A type in the table.
    Type(&'static str),
    /// A nested document.
    Document,
    Plain,
}

const OBJECT_META: Form = Form::Type("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta");
const LIST_META: Form = Form::Type("io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta");

/// A row of a table.
static ROW: Form = Form::Fields(&[
    ("cells", Form::Plain),
    ("conditions", Form::List(&ROW_CONDITION)),
    ("object", Form::Document),
]);
static ROW_CONDITION: Form = Form::Fields(&[
    ("type", Form::Plain),
    ("status", Form::Plain),
    ("reason", Form::Plain),
    ("message", Form::Plain),
]);
static COLUMN: Form = Form::Fields(&[
    ("name", Form::Plain),
    ("type", Form::Plain),
    ("format", Form::Plain),
    ("description", Form::Plain),
    ("priority", Form::Plain),
]);
static GROUP: Form = Form::Fields(&[("metadata", OBJECT_META), ("versions", Form::List(&VERSION))]);
static VERSION: Form = Form::Fields(&[
    ("version", Form::Plain),
    ("resources", Form::List(&RESOURCE)),
    ("freshness", Form::Plain),
]);
static RESOURCE: Form = Form::Fields(&[
    ("resource", Form::Plain),
    ("responseKind", RESPONSE_KIND),
    ("scope", Form::Plain),
    ("singularResource", Form::Plain),
    ("verbs", Form::Plain),
    ("shortNames", Form::Plain),
    ("categories", Form::Plain),
    ("subresources", Form::List(&SUBRESOURCE)),
]);
static SUBRESOURCE: Form = Form::Fields(&[
    ("subresource", Form::Plain),
    ("responseKind", RESPONSE_KIND),
    ("acceptedTypes", Form::List(&ACCEPTED)),
    ("verbs", Form::Plain),
]);
static ACCEPTED: Form = RESPONSE_KIND;
const RESPONSE_KIND: Form =
    Form::Fields(&[("group", Form::Plain), ("version", Form::Plain), ("kind", Form::Plain)]);

static ANSWERS: [(&str, Form); 4] = [
    (
        "Table",
        Form::Fields(&[
            ("kind", Form::Plain),
            ("apiVersion", Form::Plain),
            ("metadata", LIST_META),
            ("columnDefinitions", Form::List(&COLUMN)),
            ("rows", Form::List(&ROW)),
        ]),
    ),
    (
        "PartialObjectMetadata",
        Form::Fields(&[("kind", Form::Plain), ("apiVersion", Form::Plain), ("metadata", OBJECT_META)]),
    ),
    (
        "PartialObjectMetadataList",
        Form::Fields(&[
            ("kind", Form::Plain),
            ("apiVersion", Form::Plain),
            ("metadata", LIST_META),
            ("items", Form::List(&Form::Document)),
        ]),
    ),
    (
        "APIGroupDiscoveryList",
        Form::Fields(&[
            ("kind", Form::Plain),
            ("apiVersion", Form::Plain),
            ("metadata", LIST_META),
            ("items", Form::List(&GROUP)),
        ]),
    ),
];

/// Appends a table row.
pub(crate) fn write_row(row: &Value, into: &mut Vec<u8>) {
    write_form(&ROW, row, into);
}

fn write_form(form: &Form, value: &Value, into: &mut Vec<u8>) {
    match (form, value) {
        (Form::Fields(fields), Value::Object(members)) => write_fields(fields, members, into),
        (Form::List(item), Value::Array(items)) => {
            into.push(b'[');
            for (at, value) in items.iter().enumerate() {
                if at > 0 {
                    into.push(b',');
                }
                write_form(item, value, into);
            }
            into.push(b']');
        }
        (Form::Type(name), value) => match Schema::built_in(name) {
            Some(schema) => write(&schema, value, into),
            None => write_plain(into, value),
        },
        (Form::Document, value) => write_document(value, into),
        _ => write_plain(into, value),
    }
}

fn write_fields(fields: &[(&str, Form)], members: &Map<String, Value>, into: &mut Vec<u8>) {
    let known = fields.iter().filter_map(|(name, form)| Some((*name, form, members.get(*name)?)));
    let is_known = |name: &str| fields.iter().any(|(known, _)| *known == name);
    let others = members.iter().filter(|(name, _)| !is_known(name));
    let others = others.map(|(name, value)| (name.as_str(), &Form::Plain, value));
    into.push(b'{');
    for (at, (name, form, value)) in known.chain(others).enumerate() {
        if at > 0 {
            into.push(b',');
        }
        write_plain(into, name);
        into.push(b':');
        write_form(form, value, into);
    }
    into.push(b'}');
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn text(document: &Value) -> String {
        let mut bytes = Vec::new();
        write_document(document, &mut bytes);
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn fields_of_built_in_kinds_have_the_order_of_their_declaration() {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"annotations": {"b": "1", "a": "2"}, "creationTimestamp": null, "labels": {}, "name": "a",
                "namespace": "n", "resourceVersion": "1", "uid": "u",
                "ownerReferences": [{"uid": "u", "name": "o", "kind": "K", "apiVersion": "v", "controller": true}]},
            "spec": {"containers": [{"image": "i", "name": "c", "ports": [{"containerPort": 1, "name": "p"}],
                "resources": {"limits": {"cpu": "1"}}}], "volumes": [{"emptyDir": {}, "name": "v"}]},
            "status": {"phase": "Pending"},
        });
        let expected = concat!(
            r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","namespace":"n","uid":"u","resourceVersion":"1","#,
            r#""creationTimestamp":null,"labels":{},"annotations":{"a":"2","b":"1"},"#,
            r#""ownerReferences":[{"apiVersion":"v","kind":"K","name":"o","uid":"u","controller":true}]},"#,
            r#""spec":{"volumes":[{"name":"v","emptyDir":{}}],"#,
            r#""containers":[{"name":"c","image":"i","ports":[{"name":"p","containerPort":1}],"#,
            r#""resources":{"limits":{"cpu":"1"}}}]},"status":{"phase":"Pending"}}"#,
        );
        assert_eq!(text(&pod), expected);
        let list = json!({"apiVersion": "v1", "kind": "PodList", "items": [{"spec": {}, "metadata": {}}],
            "metadata": {"remainingItemCount": 1, "resourceVersion": "1", "continue": "c"}});
        let expected = r#"{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"1","continue":"c","remainingItemCount":1},"items":[{"metadata":{},"spec":{}}]}"#;
        assert_eq!(text(&list), expected);
    }

    #[test]
    fn schemas_of_definitions_are_ordered_all_the_way_down() {
        let schema = json!({"type": "object", "description": "d", "properties": {"l": {"type": "array",
            "items": {"type": "object", "description": "i", "additionalProperties": {"type": "string", "format": "f"}}}}});
        let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "spec": {"versions": [{"schema": {"openAPIV3Schema": schema}}]}});
        let expected = concat!(
            r#"{"kind":"CustomResourceDefinition","apiVersion":"apiextensions.k8s.io/v1","spec":{"versions":[{"schema":"#,
            r#"{"openAPIV3Schema":{"description":"d","type":"object","properties":{"l":{"type":"array","#,
            r#""items":{"description":"i","type":"object","additionalProperties":{"type":"string","format":"f"}}}}}}}]}}"#,
        );
        assert_eq!(text(&definition), expected);
    }

    #[test]
    fn answers_have_their_order_and_custom_resources_sorted_keys() {
        let partial = json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": {"uid": "u", "name": "a"}});
        let row = json!({"object": partial, "cells": [1]});
        let column =
            json!({"description": "d", "format": "", "name": "Name", "priority": 0, "type": "string"});
        let table = json!({"apiVersion": "meta.k8s.io/v1", "kind": "Table", "metadata": {}, "columnDefinitions": [column], "rows": [row]});
        let expected = concat!(
            r#"{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{},"#,
            r#""columnDefinitions":[{"name":"Name","type":"string","format":"","description":"d","priority":0}],"#,
            r#""rows":[{"cells":[1],"object":{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","#,
            r#""metadata":{"name":"a","uid":"u"}}}]}"#,
        );
        assert_eq!(text(&table), expected);
        let resource = json!({"kind": "Foo", "apiVersion": "e.com/v1", "data": 1, "metadata": {"name": "a", "labels": {}}});
        let expected =
            r#"{"apiVersion":"e.com/v1","data":1,"kind":"Foo","metadata":{"labels":{},"name":"a"}}"#;
        assert_eq!(text(&resource), expected);
    }
}
