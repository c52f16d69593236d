//! Policies against a small OpenAPI document.

use serde_json::{Value, json};
use setpoint::Kind;
use setpoint::discovery::Discovered;

use super::check::{Checked, warnings};
use super::kinds;
use super::schema::of_kind;
use super::view::Policy;
use crate::workload::fixtures::cached;

fn deployment() -> Kind {
    Kind::new("apps", "v1", "Deployment", "deployments", true)
}

/// An OpenAPI document with references, a map and a loop.
fn document() -> Value {
    let of = |name: &str| json!({"allOf": [{"$ref": format!("#/components/schemas/{name}")}], "default": {}});
    json!({"components": {"schemas": {
        "Deployment": {
            "type": "object",
            "properties": {"metadata": of("Meta"), "spec": of("Spec")},
            "x-kubernetes-group-version-kind": [{"group": "apps", "version": "v1", "kind": "Deployment"}],
        },
        "Meta": {"type": "object", "properties": {
            "name": {"type": "string"}, "generateName": {"type": "string"},
            "labels": {"type": "object", "additionalProperties": {"type": "string"}},
        }},
        "Spec": {"type": "object", "properties": {
            "replicas": {"type": "integer"},
            "maxSurge": {"oneOf": [{"type": "integer"}, {"type": "string"}], "format": "int-or-string"},
            "inner": of("Spec"),
            "containers": {"type": "array", "items": {"type": "object", "properties": {"image": {"type": "string"}}}},
        }},
    }}})
}

fn found(spec: Value) -> Vec<(String, String)> {
    let policy = cached::<Policy>(json!({"metadata": {"name": "p"}, "spec": spec}));
    let object = of_kind(&document(), &deployment()).unwrap();
    let checked = [Checked { kind: deployment(), object }];
    warnings(&policy, &checked, None).into_iter().map(|one| (one.field_ref, one.warning)).collect()
}

#[test]
fn a_well_typed_expression_gives_no_warning() {
    for text in [
        "object.spec.replicas <= 5",
        "object.metadata.labels['a'] == 'b' && object.kind == 'Deployment'",
        "object.spec.containers.all(c, c.image.startsWith('x'))",
        "object.spec.maxSurge == 1 || object.spec.maxSurge == '25%'",
        "request.operation == 'CREATE' && authorizer.path('/x').check('get').allowed()",
    ] {
        assert_eq!(found(json!({"validations": [{"expression": text}]})), [], "{text}");
    }
}

#[test]
fn an_ill_typed_expression_is_reported_with_its_position() {
    let validation = json!({"expression": "object.spec.replicaz <= 5", "messageExpression": "object.spec.x"});
    let expected = [
        (
            "spec.validations[0].expression",
            "apps/v1, Kind=Deployment: ERROR: <input>:1:12: undefined field 'replicaz'\n \
             | object.spec.replicaz <= 5\n | ...........^\n",
        ),
        (
            "spec.validations[0].messageExpression",
            "apps/v1, Kind=Deployment: ERROR: <input>:1:12: undefined field 'x'\n | object.spec.x\n | ...........^\n",
        ),
    ];
    let expected = expected.map(|(field, text)| (field.to_owned(), text.to_owned()));
    assert_eq!(found(json!({"validations": [validation]})), expected);
}

#[test]
fn variables_have_the_types_of_their_expressions() {
    let spec = |text: &str| {
        let variables = json!([{"name": "n", "expression": "object.spec.replicas"}]);
        json!({"variables": variables, "validations": [{"expression": text}]})
    };
    assert_eq!(found(spec("variables.n > 1")), []);
    assert_eq!(found(spec("variables.n == 'a'")).len(), 1);
    assert_eq!(found(spec("variables.m == 1")).len(), 1);
}

#[test]
fn a_policy_applies_to_the_kinds_that_it_names() {
    let pods = Kind::new("", "v1", "Pod", "pods", true);
    let served = Discovered::of([(deployment(), vec![]), (pods.clone(), vec![])], []);
    let check = |groups: Value, resources: Value, expected: &[&Kind]| {
        let rule = json!({"apiGroups": groups, "apiVersions": ["v1"], "resources": resources});
        let spec = json!({"matchConstraints": {"resourceRules": [rule]}});
        let policy = cached::<Policy>(json!({"metadata": {"name": "p"}, "spec": spec}));
        assert_eq!(kinds::of(&policy, &served).iter().collect::<Vec<_>>(), expected, "{spec}");
    };
    check(json!(["apps", ""]), json!(["pods", "deployments"]), &[&pods, &deployment()]);
    check(json!(["*"]), json!(["pods"]), &[]);
    check(json!([""]), json!(["pods/status", "*", "pods"]), &[&pods]);
    check(json!([""]), json!(["ghosts"]), &[]);
}
