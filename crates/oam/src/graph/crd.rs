//! The CustomResourceDefinitions of graphs: for the definitions themselves, and for the kinds they define.

use serde_json::{Value, json};
use setpoint::Kind;

use super::label;
use super::parse::Graph;
use crate::digest;

/// The kind of definitions.
pub(crate) fn graph_kind() -> Kind {
    Kind::new("kro.run", "v1alpha1", "ResourceGraphDefinition", "resourcegraphdefinitions", false)
}

/// The kind of accepted definitions.
pub(crate) fn revision_kind() -> Kind {
    Kind::new("internal.kro.run", "v1alpha1", "GraphRevision", "graphrevisions", false)
}

/// Returns the CustomResourceDefinition of accepted definitions.
pub(crate) fn revision_crd() -> Value {
    let free = || json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let snapshot = json!({"type": "object", "required": ["name", "generation", "spec"], "properties": {
        "name": {"type": "string"}, "generation": {"type": "integer", "format": "int64"}, "spec": free(),
    }});
    let spec = json!({
        "type": "object", "required": ["revision", "snapshot"],
        "properties": {
            "revision": {"type": "integer", "format": "int64", "minimum": 1}, "snapshot": snapshot,
        },
        "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "spec is immutable"}],
    });
    let columns = [
        ("RGD", ".spec.snapshot.name", "string"),
        ("REVISION", ".spec.revision", "integer"),
        ("AGE", ".metadata.creationTimestamp", "date"),
    ];
    let names = json!({
        "kind": "GraphRevision", "listKind": "GraphRevisionList",
        "plural": "graphrevisions", "singular": "graphrevision", "shortNames": ["gr"],
    });
    object(
        "internal.kro.run",
        "Cluster",
        names,
        "v1alpha1",
        json!({"spec": spec, "status": free()}),
        &columns,
    )
}

/// Returns the CustomResourceDefinition of definitions.
pub(crate) fn definition_crd() -> Value {
    let free = || json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let fixed = |fields: &[&str]| -> Vec<Value> {
        let rule = |field: &&str| {
            json!({
                "rule": format!("has(self.{field}) == has(oldSelf.{field}) && (!has(self.{field}) || self.{field} == oldSelf.{field})"),
                "message": format!("{field} is immutable"),
            })
        };
        fields.iter().map(rule).collect()
    };
    let expressions = || json!({"type": "array", "items": {"type": "string"}});
    let resource = json!({
        "type": "object",
        "required": ["id"],
        "properties": {
            "id": {"type": "string"}, "template": free(), "externalRef": free(),
            "readyWhen": expressions(), "includeWhen": expressions(),
            "forEach": {"type": "array", "items": {"type": "object", "additionalProperties": {"type": "string"}}},
        },
    });
    let schema = json!({
        "type": "object",
        "required": ["apiVersion", "kind"],
        "properties": {
            "apiVersion": {"type": "string", "pattern": "^v[0-9]+(alpha[0-9]+|beta[0-9]+)?$"},
            "kind": {"type": "string", "pattern": "^[A-Z][a-zA-Z0-9]{0,62}$"},
            "group": {"type": "string"},
            "scope": {"type": "string", "enum": ["Namespaced", "Cluster"]},
            "spec": free(), "types": free(), "status": free(), "metadata": free(),
            "additionalPrinterColumns": {"type": "array", "items": free()},
        },
        "x-kubernetes-validations": fixed(&["apiVersion", "kind", "group", "scope"]),
    });
    let columns = [
        ("APIVERSION", ".spec.schema.apiVersion", "string"),
        ("KIND", ".spec.schema.kind", "string"),
        ("STATE", ".status.state", "string"),
        ("READY", ".status.conditions[?(@.type==\"Ready\")].status", "string"),
        ("AGE", ".metadata.creationTimestamp", "date"),
    ];
    let names = json!({
        "kind": "ResourceGraphDefinition", "listKind": "ResourceGraphDefinitionList",
        "plural": "resourcegraphdefinitions", "singular": "resourcegraphdefinition", "shortNames": ["rgd"],
    });
    let properties = json!({
        "spec": {"type": "object", "required": ["schema"], "properties": {
            "schema": schema, "resources": {"type": "array", "items": resource}}},
        "status": free(),
    });
    object("kro.run", "Cluster", names, "v1alpha1", properties, &columns)
}

/// Returns the CustomResourceDefinition of the kind that a graph defines.
pub(super) fn instance_crd(graph: &Graph, status: Value) -> Value {
    let columns = [
        ("STATE", ".status.state", "string"),
        ("READY", ".status.conditions[?(@.type==\"Ready\")].status", "string"),
        ("AGE", ".metadata.creationTimestamp", "date"),
    ];
    let names = json!({
        "kind": graph.kind, "listKind": format!("{}List", graph.kind),
        "plural": graph.plural(), "singular": graph.kind.to_lowercase(),
    });
    let properties = json!({
        "spec": graph.spec_schema,
        "status": status,
    });
    let scope = if graph.namespaced { "Namespaced" } else { "Cluster" };
    let mut crd = object(&graph.group, scope, names, &graph.version, properties, &columns);
    if let Some(more) = graph.columns.as_array() {
        crd["spec"]["versions"][0]["additionalPrinterColumns"] = json!(more);
    }
    crd["metadata"]["labels"] = json!({label::OWNED: "true", label::DEFINITION: graph.name});
    // Used to detect dropped fields of a schema.
    crd["metadata"]["annotations"] = json!({label::HASH: digest::hash(&crd["spec"])});
    crd
}

fn object(
    group: &str,
    scope: &str,
    names: Value,
    version: &str,
    properties: Value,
    columns: &[(&str, &str, &str)],
) -> Value {
    let columns: Vec<Value> = columns
        .iter()
        .map(|(name, path, kind)| json!({"name": name, "jsonPath": path, "type": kind}))
        .collect();
    let plural = names["plural"].as_str().unwrap_or_default().to_owned();
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {
            "group": group, "scope": scope, "names": names,
            "versions": [{
                "name": version, "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": properties}},
                "subresources": {"status": {}},
                "additionalPrinterColumns": columns,
            }],
        },
    })
}
