//! Admission policies: users' rules for writes.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::{Value, json};
use setpoint_apiserver::auth::rbac::{RoleRef, Rule};
use setpoint_apiserver::auth::{Attributes, Authorizer, Decision, UserRules};
use setpoint_apiserver::{Config, User};
use setpoint_clock::Clock;

use crate::client::Api;
use crate::custom::{DEFINITIONS, definition};

pub(crate) const GROUP: &str = "/apis/admissionregistration.k8s.io/v1";
pub(crate) const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Starts a server with a policy for ConfigMaps and a binding.
pub(crate) async fn with_policy(policy: Value, binding: Value) -> Api {
    bind_policy(Api::start().await, policy, binding).await
}

pub(crate) async fn bind_policy(api: Api, policy: Value, binding: Value) -> Api {
    let rule = json!({
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "operations": ["CREATE", "UPDATE", "DELETE"],
        "resources": ["configmaps"],
    });
    let mut spec = json!({"failurePolicy": "Fail", "matchConstraints": {"resourceRules": [rule]}});
    spec.as_object_mut().unwrap().extend(policy.as_object().unwrap().clone());
    let policy = json!({"metadata": {"name": "p"}, "spec": spec});
    api.post(&format!("{GROUP}/validatingadmissionpolicies"), policy).await.created();
    let mut spec = json!({"policyName": "p", "validationActions": ["Deny"]});
    spec.as_object_mut().unwrap().extend(binding.as_object().unwrap().clone());
    let binding = json!({"metadata": {"name": "b"}, "spec": spec});
    api.post(&format!("{GROUP}/validatingadmissionpolicybindings"), binding).await.created();
    api
}

pub(crate) fn map(name: &str) -> Value {
    json!({"metadata": {"name": name}, "data": {"k": "v"}})
}

#[tokio::test(start_paused = true)]
async fn a_write_that_a_policy_denies_is_not_stored() {
    let validation = json!({"expression": "object == null || object.metadata.name != 'bad'"});
    let api = with_policy(json!({"validations": [validation]}), json!({})).await;
    let refused = api.post(MAPS, map("bad")).await;
    let why = "ValidatingAdmissionPolicy 'p' with binding 'b' denied request: failed expression: object == null || \
               object.metadata.name != 'bad'";
    let message = format!("configmaps \"bad\" is forbidden: {why}");
    assert_eq!(refused.refusal(), (422, "Invalid", message.as_str()));
    assert_eq!(refused.body["details"]["causes"], json!([{"message": why}]));
    api.post(MAPS, map("good")).await.created();
    api.post("/api/v1/namespaces/default/secrets", json!({"metadata": {"name": "bad"}})).await.created();
    let path = format!("{GROUP}/validatingadmissionpolicies/p");
    api.merge(&path, json!({"spec": {"validations": [{"expression": "true"}]}})).await.ok();
    api.post(MAPS, map("bad")).await.created();
}

#[tokio::test(start_paused = true)]
async fn a_policy_sees_the_change_the_request_and_the_namespace() {
    let validations = json!([
        {"expression": "request.operation != 'UPDATE' || object.data == oldObject.data", "reason": "Forbidden"},
        {"expression": "request.operation != 'DELETE' || oldObject.metadata.name != 'keep'"},
        {"expression": "namespaceObject.metadata.name == 'default' && request.userInfo.username == 'admin'"},
    ]);
    let api = with_policy(json!({"validations": validations}), json!({})).await;
    api.post(MAPS, map("keep")).await.created();
    let path = format!("{MAPS}/keep");
    assert_eq!(api.merge(&path, json!({"data": {"z": "1"}})).await.code, 403);
    api.merge(&path, json!({"metadata": {"labels": {"x": "y"}}})).await.ok();
    assert_eq!(api.delete(&path).await.code, 422);
}

#[tokio::test(start_paused = true)]
async fn a_policy_for_one_version_applies_to_all() {
    let validation =
        json!({"expression": "object.apiVersion != 'e.com/v1' || request.requestKind.version == 'v1'"});
    let rule =
        json!({"apiGroups": ["e.com"], "apiVersions": ["v1"], "operations": ["*"], "resources": ["foos"]});
    let constraints = |policy: &str| json!({"resourceRules": [rule.clone()], "matchPolicy": policy});
    let policy = json!({"validations": [validation], "matchConstraints": constraints("Equivalent")});
    let api = with_policy(policy, json!({})).await;
    let mut two = definition(json!({"type": "object"}));
    let other = json!({"name": "v2", "served": true, "storage": false, "schema": {"openAPIV3Schema": {"type": "object"}}});
    two["spec"]["versions"].as_array_mut().unwrap().push(other);
    api.post(DEFINITIONS, two).await.created();
    let foo = |version: &str| json!({"apiVersion": format!("e.com/{version}"), "kind": "Foo", "metadata": {"generateName": "a"}});
    let path = |version: &str| format!("/apis/e.com/{version}/namespaces/default/foos");
    api.post(&path("v1"), foo("v1")).await.created();
    assert_eq!(api.post(&path("v2"), foo("v2")).await.code, 422);
    let policies = format!("{GROUP}/validatingadmissionpolicies/p");
    api.merge(&policies, json!({"spec": {"matchConstraints": constraints("Exact")}})).await.ok();
    api.post(&path("v2"), foo("v2")).await.created();
}

#[tokio::test(start_paused = true)]
async fn a_policy_for_the_scale_subresource_gets_a_scale() {
    let validation = json!({"expression": "object.kind == 'Scale' && request.kind.kind == 'Scale' && object.spec.replicas < 5"});
    let rule = json!({"apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["*"], "resources": ["deployments/scale"]});
    let policy = json!({"validations": [validation], "matchConstraints": {"resourceRules": [rule]}});
    let api = with_policy(policy, json!({})).await;
    let deployment = json!({"metadata": {"name": "a"}, "spec": {"selector": {"matchLabels": {"app": "a"}},
        "template": {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}});
    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    api.post(deployments, deployment).await.created();
    let scale = |replicas: i64| json!({"spec": {"replicas": replicas}});
    api.merge(&format!("{deployments}/a/scale"), scale(4)).await.ok();
    assert_eq!(api.merge(&format!("{deployments}/a/scale"), scale(5)).await.code, 422);
}

#[tokio::test(start_paused = true)]
async fn audit_annotations_are_validated() {
    let noted = |expression: &str| json!([{"key": "k", "valueExpression": expression}]);
    let policy = json!({"auditAnnotations": noted("string(object.data.k)")});
    let api = with_policy(policy, json!({"validationActions": ["Warn"]})).await;
    api.post(MAPS, map("a")).await.created();
    let path = format!("{GROUP}/validatingadmissionpolicies/p");
    api.merge(&path, json!({"spec": {"auditAnnotations": noted("string(object.data.none)")}})).await.ok();
    let refused = api.post(MAPS, map("b")).await;
    let why = "expression 'string(object.data.none)' resulted in error: no such key: none";
    assert!(refused.code == 422 && refused.text.contains(why), "{}", refused.text);
    api.merge(&path, json!({"spec": {"failurePolicy": "Ignore"}})).await.ok();
    api.post(MAPS, map("b")).await.created();
}

#[tokio::test(start_paused = true)]
async fn a_policy_sees_the_options_of_a_request() {
    let manager = "(has(request.options.fieldManager) ? request.options.fieldManager : '')";
    let name = "(has(request.name) ? request.name : '')";
    let validation = json!({
        "expression": "has(request.options.gracePeriodSeconds) && request.options.gracePeriodSeconds == 5",
        "messageExpression": format!("request.options.kind + ' [' + {name} + '] ' + {manager}"),
    });
    let api = with_policy(json!({"validations": [validation]}), json!({})).await;
    let refused = api.post(&format!("{MAPS}?fieldManager=me"), map("a")).await;
    assert!(refused.text.contains("denied request: CreateOptions [a] me"), "{}", refused.text);
    let path = format!("{GROUP}/validatingadmissionpolicybindings/b");
    let binding = api.get(&path).await.ok();
    api.delete(&path).await.ok();
    api.post(MAPS, map("a")).await.created();
    let mut again = json!({"metadata": {"name": "b"}});
    again["spec"] = binding["spec"].clone();
    api.post(&format!("{GROUP}/validatingadmissionpolicybindings"), again).await.created();
    let refused = api.delete(MAPS).await;
    assert!(
        refused.text.contains("denied request: DeleteOptions []"),
        "a collection has no name: {}",
        refused.text
    );
    api.delete_with(&format!("{MAPS}/a"), json!({"gracePeriodSeconds": 5})).await.ok();
}

#[tokio::test(start_paused = true)]
async fn a_binding_sets_the_scope_params_and_actions() {
    let elsewhere = json!({"matchResources": {"namespaceSelector": {"matchLabels": {"x": "y"}}}});
    let forbids = json!({"validations": [{"expression": "false", "message": "no"}]});
    let api = with_policy(forbids.clone(), elsewhere).await;
    api.post(MAPS, map("a")).await.created();
    let api = with_policy(forbids, json!({"validationActions": ["Warn"]})).await;
    let warned = api.post(MAPS, map("a")).await;
    assert_eq!(warned.code, 201);
    let warning = "299 - \"Validation failed for ValidatingAdmissionPolicy 'p' with binding 'b': no\"";
    assert_eq!(warned.warnings, [warning]);
    let by_parameters = json!({
        "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
        "validations": [{"expression": "object.metadata.name == params.data.name"}],
        "matchConditions": [{"name": "c", "expression": "object.metadata.name != 'limits'"}],
    });
    let reference = json!({"paramRef": {
        "name": "limits", "namespace": "default", "parameterNotFoundAction": "Deny"}});
    let api = with_policy(by_parameters, reference).await;
    let refused = api.post(MAPS, map("a")).await;
    assert!(refused.refusal().2.contains("no params found for policy binding"), "{}", refused.text);
}

fn webhook(name: &str, policy: &str) -> Value {
    let rule = json!({
        "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]});
    let hook = json!({
        "name": "h.example.com",
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "failurePolicy": policy,
        "clientConfig": {"service": {"namespace": "default", "name": "none"}},
        "rules": [rule],
        "matchConditions": [{"name": "c", "expression": "object.metadata.name == 'bad'"}],
    });
    json!({"metadata": {"name": name}, "webhooks": [hook]})
}

#[tokio::test(start_paused = true)]
async fn an_unreachable_webhook_with_failure_policy_fail_denies() {
    let api = Api::start().await;
    let path = format!("{GROUP}/mutatingwebhookconfigurations");
    api.post(&path, webhook("open", "Ignore")).await.created();
    api.post(MAPS, map("bad")).await.created();
    api.delete(&format!("{MAPS}/bad")).await.ok();
    api.post(&format!("{GROUP}/validatingwebhookconfigurations"), webhook("closed", "Fail")).await.created();
    let refused = api.post(MAPS, map("bad")).await;
    let message = "Internal error occurred: failed calling webhook \"h.example.com\": failed to call webhook: Post \
                   \"https://none.default.svc:443/?timeout=10s\": service \"none\" not found";
    assert_eq!(refused.refusal(), (500, "InternalError", message));
    api.post(MAPS, map("good")).await.created();
}

#[tokio::test(start_paused = true)]
async fn a_policy_checks_other_permissions_of_the_user() {
    let may = "authorizer.group('').resource('secrets').namespace('default').check('get').allowed()";
    let robot = "!authorizer.serviceAccount('default', 'robot').path('/metrics').check('get').allowed()";
    let validations = json!([{"expression": may, "reason": "Forbidden"}, {"expression": robot}]);
    let mut api = with_policy(json!({"validations": validations}), json!({})).await;
    api.post(MAPS, map("a")).await.created();
    api = api.restart_with_roles().await;
    let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create"]}]);
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let role = json!({"metadata": {"name": "r"}, "rules": rules});
    api.post(&format!("{rbac}/clusterroles"), role).await.created();
    let binding = json!({
        "metadata": {"name": "r"},
        "roleRef": {"kind": "ClusterRole", "name": "r"},
        "subjects": [{"kind": "User", "name": "ann"}],
    });
    api.post(&format!("{rbac}/clusterrolebindings"), binding).await.created();
    api.user = setpoint_apiserver::User::authenticated("ann", "", Vec::new());
    let refused = api.post(MAPS, map("b")).await;
    assert_eq!(refused.code, 403, "{}", refused.text);
    assert!(refused.text.contains("failed expression: authorizer.group"), "{}", refused.text);
}

#[tokio::test(start_paused = true)]
async fn a_policy_checks_permissions_on_the_requested_resource() {
    let validations = json!([
        {"expression": "authorizer.requestResource.check('create').allowed()"},
        {"expression": "request.name != 'b' || authorizer.requestResource.name('other').check('get').allowed()"},
        {"expression": "object.metadata.name != 'bad' || authorizer.serviceAccount('default', 'nobody')\
            .group('').resource('configmaps').namespace('default').check('get').allowed()"},
        {"expression": "authorizer.path('/healthz').check('get').allowed()"},
    ]);
    let api = with_policy(json!({"validations": validations}), json!({})).await;
    api.post(MAPS, map("a")).await.created();
    api.post(MAPS, map("b")).await.created();
    assert!(api.post(MAPS, map("bad")).await.refusal().2.contains("failed expression"));
}

/// The validation actions of a binding do not apply to missing params.
#[tokio::test(start_paused = true)]
async fn a_binding_without_its_parameters_refuses_even_if_it_only_warns() {
    let param_kind = json!({"apiVersion": "v1", "kind": "ConfigMap"});
    let policy = json!({"paramKind": param_kind, "validations": [{"expression": "true"}]});
    let reference = json!({"name": "none", "namespace": "default", "parameterNotFoundAction": "Deny"});
    for actions in [json!(["Warn"]), json!(["Audit"]), json!(["Deny"])] {
        let api =
            with_policy(policy.clone(), json!({"validationActions": actions, "paramRef": reference})).await;
        let refused = api.post(MAPS, map("a")).await;
        let message = "configmaps \"a\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: \
                       failed to configure binding: no params found for policy binding with `Deny` \
                       parameterNotFoundAction";
        assert_eq!(refused.refusal(), (422, "Invalid", message), "{actions}");
    }
}

/// Allows everything but secrets, after a second.
struct Slow(Clock);

impl Authorizer for Slow {
    fn authorize<'a>(&'a self, attributes: &'a Attributes<'a>) -> BoxFuture<'a, Decision> {
        let is_secret = attributes.resource.is_some_and(|target| target.resource == "secrets");
        let decision = if is_secret { Decision::no_opinion("") } else { Decision::allow("") };
        async move {
            self.0.sleep(Duration::from_secs(1)).await;
            decision
        }
        .boxed()
    }

    fn rules<'a>(&'a self, _: &'a User, _: Option<&'a str>) -> BoxFuture<'a, UserRules> {
        std::future::ready(UserRules::default()).boxed()
    }

    fn role<'a>(&'a self, _: &'a RoleRef, _: Option<&'a str>) -> BoxFuture<'a, Result<Vec<Rule>, String>> {
        std::future::ready(Err("no roles".into())).boxed()
    }
}

#[tokio::test(start_paused = true)]
async fn a_policy_waits_for_an_authorizer_that_does_not_answer_at_once() {
    let check =
        |resource: &str| format!("authorizer.group('').resource('{resource}').check('get').allowed()");
    let validations = json!([
        // If an unanswered check counted as a denial, these would pass.
        {"expression": format!("object.metadata.name != 'a' || !{}", check("pods"))},
        {"expression": format!("object.metadata.name != 'b' || (!{} && !{})", check("secrets"), check("nodes"))},
        {"expression": format!("object.metadata.name != 'c' || ({} && !{})", check("pods"), check("secrets"))},
    ]);
    let slow = |config: Config| Config { authorizer: Arc::new(Slow(config.clock.clone())), ..config };
    let api = Api::start_changed(slow).await;
    let api = bind_policy(api, json!({"validations": validations}), json!({})).await;
    for name in ["a", "b"] {
        assert_eq!(api.post(MAPS, map(name)).await.code, 422, "{name}");
    }
    api.post(MAPS, map("c")).await.created();
}

#[tokio::test(start_paused = true)]
async fn subresources_and_connections_reach_a_policy_as_their_own_kinds() {
    let rules = json!([{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "CONNECT"],
        "resources": ["pods/eviction", "pods/binding", "pods/exec"]}]);
    let message = json!({"expression": "false", "messageExpression":
        "request.operation + ' ' + request.kind.group + '/' + request.kind.kind + ' as ' + object.kind"});
    let policy = json!({"matchConstraints": {"resourceRules": rules}, "validations": [message]});
    let api = with_policy(policy, json!({})).await;
    let pod = "/api/v1/namespaces/default/pods/a";
    let named = json!({"metadata": {"name": "a"}, "target": {"name": "n"}});
    let eviction = api.post(&format!("{pod}/eviction"), json!({"metadata": {"name": "a"}})).await;
    let binding = api.post(&format!("{pod}/binding"), named).await;
    let exec = api.get(&format!("{pod}/exec?command=x")).await;
    for (refused, expected) in [
        (eviction, "CREATE policy/Eviction as Eviction"),
        (binding, "CREATE /Binding as Binding"),
        (exec, "CONNECT /PodExecOptions as PodExecOptions"),
    ] {
        let (code, _, message) = refused.refusal();
        assert!(code == 422 && message.ends_with(&format!("denied request: {expected}")), "{message}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_policy_is_evaluated_once_for_each_of_the_params_that_a_selector_finds() {
    let policy = json!({
        "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
        "matchConditions": [{"name": "c", "expression": "!has(object.metadata.labels)"}],
        "validations": [{"expression": "object.metadata.name != params.data.name", "messageExpression": "'not ' + params.data.name"}],
    });
    let reference =
        json!({"paramRef": {"selector": {"matchLabels": {"of": "p"}}, "parameterNotFoundAction": "Allow"}});
    let api = with_policy(policy, reference).await;
    api.post(MAPS, map("x")).await.created();
    for name in ["x", "y"] {
        let param =
            json!({"metadata": {"name": format!("p-{name}"), "labels": {"of": "p"}}, "data": {"name": name}});
        api.post(MAPS, param).await.created();
    }
    assert!(api.post(MAPS, map("y")).await.refusal().2.ends_with("denied request: not y"));
    api.post(MAPS, map("z")).await.created();
}

#[tokio::test(start_paused = true)]
async fn a_misconfigured_policy_denies_unless_failures_are_ignored() {
    let unknown = json!({"paramKind": {"apiVersion": "e.com/v1", "kind": "Nothing"}, "validations": [{"expression": "true"}]});
    let api = with_policy(unknown, json!({})).await;
    let refused = api.post(MAPS, map("a")).await;
    let why = "configmaps \"a\" is forbidden: ValidatingAdmissionPolicy 'p' denied request: failed to configure policy: \
               failed to find resource referenced by paramKind: 'e.com/v1, Kind=Nothing'";
    assert_eq!(refused.refusal(), (422, "Invalid", why));
    let path = format!("{GROUP}/validatingadmissionpolicies/p");
    api.merge(&path, json!({"spec": {"failurePolicy": "Ignore"}})).await.ok();
    api.post(MAPS, map("a")).await.created();
    let clusterwide = json!({
        "paramKind": {"apiVersion": "v1", "kind": "Namespace"}, "validations": [{"expression": "true"}]});
    let reference =
        json!({"paramRef": {"name": "default", "namespace": "default", "parameterNotFoundAction": "Deny"}});
    let api = with_policy(clusterwide, reference).await;
    let why = "failed to configure binding: paramRef.namespace must not be provided for a cluster-scoped `paramKind`";
    assert!(api.post(MAPS, map("a")).await.refusal().2.ends_with(why));
}

#[tokio::test(start_paused = true)]
async fn variables_are_evaluated_when_they_are_used() {
    let policy = json!({
        "variables": [{"name": "broken", "expression": "object.none"}, {"name": "uses", "expression": "variables.broken"}],
        "validations": [{"expression": "object.metadata.name != 'a' || variables.uses == 1"}],
    });
    let api = with_policy(policy, json!({})).await;
    api.post(MAPS, map("b")).await.created();
    let refused = api.post(MAPS, map("a")).await;
    let why = "composited variable \"uses\" fails to evaluate: composited variable \"broken\" fails to evaluate: no such \
               key: none";
    assert!(refused.refusal().2.ends_with(why), "{}", refused.text);
}

#[tokio::test(start_paused = true)]
async fn failed_validations_are_counted_by_enforcement_action() {
    let validations = json!([{"expression": "object == null || object.metadata.name != 'bad'"}]);
    let policy = json!({"validations": validations,
        "matchConditions": [{"name": "c", "expression": "request.operation == 'CREATE'"}]});
    let api = with_policy(policy, json!({"validationActions": ["Warn", "Audit"]})).await;
    api.post(MAPS, map("bad")).await.created();
    api.post(MAPS, map("good")).await.created();
    let path = format!("{GROUP}/validatingadmissionpolicies/p");
    let fails = json!([{"expression": "object.none == 1"}]);
    api.merge(&path, json!({"spec": {"failurePolicy": "Ignore", "validations": fails}})).await.ok();
    api.post(MAPS, map("other")).await.created();
    let metrics = api.get("/metrics").await.text;
    let name = "apiserver_validating_admission_policy_check_total{policy=\"p\",policy_binding=\"b\",error_type=\"invalid_error\"";
    for action in ["warn", "audit", "allow"] {
        let line = format!("{name},enforcement_action=\"{action}\"}} 1");
        assert!(metrics.contains(&line), "{line}");
    }
    let conditions = "apiserver_admission_match_condition_evaluation_seconds_count{name=\"p\",kind=\"policy\",\
                      type=\"validate\",operation=\"CREATE\"} 3";
    assert!(metrics.contains(conditions), "{conditions}");
}

/// Evaluated from within each other, a chain of variables would overflow the stack; printed, its type would not end.
#[tokio::test(start_paused = true)]
async fn a_policy_with_a_thousand_variables_is_evaluated() {
    let mut variables = vec![json!({"name": "v0", "expression": "1"})];
    variables.extend(
        (1..1000)
            .map(|at| json!({"name": format!("v{at}"), "expression": format!("variables.v{} + 1", at - 1)})),
    );
    let policy = json!({"variables": variables, "validations": [{"expression": "variables.v999 == 1000"}]});
    let api = with_policy(policy, json!({})).await;
    api.post(MAPS, map("a")).await.created();
    let nested: Vec<Value> =
        std::iter::once(json!({"name": "v0", "expression": "[1]"}))
            .chain((1..1000).map(
                |at| json!({"name": format!("v{at}"), "expression": format!("[variables.v{}]", at - 1)}),
            ))
            .collect();
    let refused = api
        .merge(&format!("{GROUP}/validatingadmissionpolicies/p"), json!({"spec": {"variables": nested}}))
        .await;
    assert!(
        refused.code == 422 && refused.text.contains("the type of the expression has more than 500 parts")
    );
}
