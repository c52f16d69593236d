//! Patterns and expressions that would take forever.

use http::Method;
use serde_json::{Value, json};

use crate::server::{POLITE, Server, Session};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";

fn definition(name: &str, field: &Value) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{name}s.bomb.test")},
        "spec": {
            "group": "bomb.test", "scope": "Namespaced", "names": {"plural": format!("{name}s"), "kind": name},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "properties": {"spec": field},
            }}}],
        },
    })
}

/// Malicious schemas.
fn fields() -> Vec<(&'static str, Value)> {
    let rule = |rule: &str| {
        json!({"type": "array", "items": {"type": "string"},
        "x-kubernetes-validations": [{"rule": rule}]})
    };
    vec![
        ("repeat", json!({"type": "string", "pattern": "((a{1000}){1000}){1000}"})),
        (
            "nested",
            json!({"type": "string", "pattern": format!("{}a{}", "(".repeat(5000), ")".repeat(5000))}),
        ),
        ("class", json!({"type": "string", "pattern": "(\\pL{500}){500}"})),
        ("loops", rule("self.all(a, self.all(b, self.all(c, self.all(d, a + b + c + d != ''))))")),
        ("maps", rule("self.map(a, self.map(b, self.map(c, a + b + c))).size() > 0")),
        ("deep", rule(&format!("{}true{}", "(".repeat(3000), ")".repeat(3000)))),
        ("long", rule(&vec!["self.size() > 0"; 20_000].join(" && "))),
        (
            "text",
            rule(
                "'x'.replace('x', 'xxxxxxxxxx').replace('x', 'xxxxxxxxxx').replace('x', self[0]).size() > 0 && \
            self.all(a, self.exists(b, a.matches(b)))",
            ),
        ),
    ]
}

async fn post(session: &mut Session, path: &str, object: &Value) -> u16 {
    session.send(Method::POST, path, POLITE, object.to_string().into()).await.0
}

pub(crate) async fn explode(server: &'static Server) {
    let mut session = server.session().await;
    for (name, field) in fields() {
        let code = post(&mut session, DEFINITIONS, &definition(name, &field)).await;
        assert!((400..500).contains(&code), "{name}: {code}");
    }
    run_dynamic_pattern(&mut session).await;
    run_policy(&mut session).await;
}

/// A pattern inside the object passes the schema. Matching it is bounded.
async fn run_dynamic_pattern(session: &mut Session) {
    let text = json!({"type": "string", "maxLength": 1000});
    let field = json!({"type": "object", "properties": {"a": text, "b": text},
        "x-kubernetes-validations": [{"rule": "self.a.matches(self.b)"}]});
    assert_eq!(post(session, DEFINITIONS, &definition("dynamic", &field)).await, 201);
    for (at, pattern) in
        ["(a{1000}){1000}", "((((a*)*)*)*)*b", "(\\pL{100}){100}", "[", "a{1001}"].iter().enumerate()
    {
        let object = json!({"apiVersion": "bomb.test/v1", "kind": "dynamic", "metadata": {"name": format!("d{at}")},
            "spec": {"a": "a".repeat(1000), "b": pattern}});
        let code = post(session, "/apis/bomb.test/v1/namespaces/default/dynamics", &object).await;
        assert!((400..500).contains(&code), "{pattern}: {code}");
    }
}

/// A policy that is too expensive is rejected when it is written, or denies the request when it exceeds its budget.
async fn run_policy(session: &mut Session) {
    let loops =
        "object.data.all(a, object.data.all(b, object.data.all(c, object.data.all(d, a + b + c + d != ''))))";
    let policy = json!({"metadata": {"name": "bomb"}, "spec": {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"],
            "operations": ["CREATE"], "resources": ["configmaps"]}],
            "objectSelector": {"matchLabels": {"bomb": "yes"}}},
        "validations": [{"expression": loops}],
    }});
    let code = post(session, POLICIES, &policy).await;
    if code != 201 {
        return assert!((400..500).contains(&code), "{code}");
    }
    let binding =
        json!({"metadata": {"name": "bomb"}, "spec": {"policyName": "bomb", "validationActions": ["Deny"]}});
    assert_eq!(post(session, &POLICIES.replace("policies", "policybindings"), &binding).await, 201);
    let data: Value =
        (0..500).map(|at| (format!("k{at}"), json!("v"))).collect::<serde_json::Map<_, _>>().into();
    let map = json!({"metadata": {"name": "big", "labels": {"bomb": "yes"}}, "data": data});
    let code = post(session, "/api/v1/namespaces/default/configmaps", &map).await;
    assert!((400..500).contains(&code), "{code}");
}
