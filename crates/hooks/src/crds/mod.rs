//! The CustomResourceDefinitions of Metacontroller: the same names, schemas and defaults.
//!
//! One difference: the status of CompositeControllers and DecoratorControllers has conditions. Metacontroller never
//! writes a status.

mod schema;

use serde_json::{Value, json};

use crate::names::{GROUP, VERSION};
use schema::{composite, decorator, revision};

/// Returns all definitions, as objects to apply.
pub fn definitions() -> [Value; 3] {
    [
        definition("CompositeController", "compositecontrollers", &["cc", "cctl"], "Cluster", composite()),
        definition("ControllerRevision", "controllerrevisions", &[], "Namespaced", revision()),
        definition(
            "DecoratorController",
            "decoratorcontrollers",
            &["dec", "decorators"],
            "Cluster",
            decorator(),
        ),
    ]
}

fn definition(kind: &str, plural: &str, short: &[&str], scope: &str, schema: Value) -> Value {
    let mut names = json!({
        "kind": kind, "listKind": format!("{kind}List"), "plural": plural, "singular": kind.to_lowercase(),
    });
    if !short.is_empty() {
        names["shortNames"] = json!(short);
    }
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": format!("{plural}.{GROUP}"),
            "annotations": {"api-approved.kubernetes.io": "unapproved, request not yet submitted"},
        },
        "spec": {
            "group": GROUP, "names": names, "scope": scope,
            "versions": [{
                "name": VERSION, "served": true, "storage": true,
                "schema": {"openAPIV3Schema": schema},
                "subresources": {"status": {}},
            }],
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(definition: &Value) -> &Value {
        &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    }

    #[test]
    fn the_kinds_have_metacontrollers_names() {
        let [composite, revision, decorator] = definitions();
        assert_eq!(composite["spec"]["names"]["shortNames"], json!(["cc", "cctl"]));
        assert_eq!(decorator["spec"]["names"]["shortNames"], json!(["dec", "decorators"]));
        assert_eq!(
            (&revision["spec"]["scope"], &composite["spec"]["scope"]),
            (&json!("Namespaced"), &json!("Cluster"))
        );
    }

    #[test]
    fn defaults_and_required_fields_are_metacontrollers() {
        let [composite, revision, decorator] = definitions();
        assert_eq!(spec(&composite)["required"], json!(["parentResource"]));
        assert_eq!(spec(&decorator)["required"], json!(["resources"]));
        let revision = &revision["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        assert_eq!(revision["required"], json!(["metadata", "parentPatch"]));
        for definition in [&composite, &decorator] {
            let hook = &spec(definition)["properties"]["hooks"]["properties"]["sync"]["properties"];
            assert_eq!(hook["version"]["default"], "v1");
            let webhook = &hook["webhook"]["properties"];
            assert_eq!(webhook["timeout"]["format"], "duration");
            assert_eq!(webhook["responseUnMarshallMode"]["enum"], json!(["loose", "strict"]));
            assert_eq!(webhook["authorization"]["properties"]["type"]["default"], "Bearer");
            assert_eq!(
                webhook["caBundle"]["properties"]["secretRef"]["properties"]["key"]["default"],
                "ca.crt"
            );
        }
        let hooks = |definition: &Value| {
            spec(definition)["properties"]["hooks"]["properties"].as_object().unwrap().len()
        };
        assert_eq!((hooks(&composite), hooks(&decorator)), (5, 3));
    }
}
