//! Mutating admission policies: what they change, in which order, and what comes of failures.

use http::Method;
use serde_json::{Value, json};
use setpoint_apiserver::egress::in_process::{allow, patch};
use setpoint_apiserver::{Config, Features, kinds};

use crate::client::{Answer, Api};
use crate::custom::{DEFINITIONS, definition};
use crate::extension::{Extension, Reply};
use crate::webhooks::{Hooked, MAPS, PODS, map, pod, rule};

const GROUP: &str = "/apis/admissionregistration.k8s.io/v1beta1";

/// Enables mutating policies.
pub(crate) fn with_policies(config: Config) -> Config {
    config.with_features(Features::enabled_by(|name| name == "MutatingAdmissionPolicy"))
}

pub(crate) async fn start() -> Api {
    let api = Api::start_changed(with_policies).await;
    api.default_service_account().await;
    api
}

pub(crate) fn json_patch(expression: &str) -> Value {
    json!({"patchType": "JSONPatch", "jsonPatch": {"expression": expression}})
}

pub(crate) fn configuration(expression: &str) -> Value {
    json!({"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}})
}

/// Adds an entry to the data of a config map.
fn add(key: &str, value: &str) -> Value {
    json_patch(&format!("[JSONPatch{{op: 'add', path: '/data/{key}', value: {value}}}]"))
}

/// Writes a policy for config maps, unless `other` says otherwise, and a binding of the same name.
pub(crate) async fn bind(api: &Api, name: &str, mutations: Value, other: Value, binding: Value) {
    let mut spec = json!({
        "matchConstraints": {"resourceRules": [rule("", "configmaps", &["CREATE", "UPDATE"])]},
        "failurePolicy": "Fail",
        "reinvocationPolicy": "Never",
        "mutations": mutations,
    });
    spec.as_object_mut().unwrap().extend(other.as_object().unwrap().clone());
    let policy = json!({"metadata": {"name": name}, "spec": spec});
    api.post(&format!("{GROUP}/mutatingadmissionpolicies"), policy).await.created();
    let mut spec = json!({"policyName": name});
    spec.as_object_mut().unwrap().extend(binding.as_object().unwrap().clone());
    let binding = json!({"metadata": {"name": name}, "spec": spec});
    api.post(&format!("{GROUP}/mutatingadmissionpolicybindings"), binding).await.created();
}

/// A server with one policy `p`.
async fn with_mutations(mutations: Value) -> Api {
    let api = start().await;
    bind(&api, "p", mutations, json!({}), json!({})).await;
    api
}

fn about_pods() -> Value {
    json!({"matchConstraints": {"resourceRules": [rule("", "pods", &["CREATE"])]}})
}

/// The message of a failure of the policy `p`.
fn denied(why: &str) -> String {
    format!("policy 'p' with binding 'p' denied request: {why}")
}

#[track_caller]
fn assert_denied(refused: &Answer, reason: &str, message: &str) {
    assert_eq!(refused.refusal(), (403, reason, message));
    assert_eq!(refused.body["details"]["causes"], json!([{"message": message}]));
}

#[tokio::test(start_paused = true)]
async fn a_policy_is_served_with_its_defaults_in_both_versions() {
    let api = with_mutations(json!([add("a", "'b'")])).await;
    let path =
        |version: &str| format!("/apis/admissionregistration.k8s.io/{version}/mutatingadmissionpolicies/p");
    let policy = api.get(&path("v1beta1")).await.ok();
    let constraints = &policy["spec"]["matchConstraints"];
    assert_eq!(constraints["matchPolicy"], "Equivalent");
    assert_eq!(constraints["resourceRules"][0]["scope"], "*");
    assert_eq!((&constraints["objectSelector"], &policy["metadata"]["generation"]), (&json!({}), &json!(1)));
    let older = api.get(&path("v1alpha1")).await.ok();
    assert_eq!(
        (&older["apiVersion"], &older["spec"]),
        (&json!("admissionregistration.k8s.io/v1alpha1"), &policy["spec"])
    );
    let changed = json!({"spec": {"reinvocationPolicy": "IfNeeded"}});
    assert_eq!(api.merge(&path("v1alpha1"), changed).await.ok()["metadata"]["generation"], 2);
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
    let table = api.get_as(table, &path("v1beta1")).await.ok();
    let columns: Vec<&str> = table["columnDefinitions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|column| column["name"].as_str().unwrap())
        .collect();
    assert_eq!(columns, ["Name", "Mutations", "ParamKind", "Age"]);
    assert_eq!(table["rows"][0]["cells"], json!(["p", 1, "<unset>", "0s"]));
    let protobuf = api.get_as("application/vnd.kubernetes.protobuf", &path("v1beta1")).await;
    assert!(protobuf.code == 200 && protobuf.text.contains("JSONPatch{op: 'add'"), "{}", protobuf.text);
    let binding = api.get(&format!("{GROUP}/mutatingadmissionpolicybindings")).await.ok();
    assert_eq!(binding["items"][0]["spec"], json!({"policyName": "p"}));
}

#[tokio::test(start_paused = true)]
async fn policies_do_nothing_and_are_not_served_while_the_feature_is_off() {
    let on = with_mutations(json!([add("a", "'b'")])).await;
    let off = on.restart().await;
    assert_eq!(off.get(&format!("{GROUP}/mutatingadmissionpolicies")).await.code, 404);
    assert_eq!(off.post(MAPS, map("a")).await.created()["data"], json!({"k": "v"}));
    // The plugin is inactive although the kinds are served.
    let inactive = |config: Config| {
        let kinds = kinds::with(&Features::enabled_by(|name| name == "MutatingAdmissionPolicy"));
        Config { kinds, ..config }
    };
    let off = Api::start_configured(off.store, off.clock, inactive).await;
    off.get(&format!("{GROUP}/mutatingadmissionpolicies/p")).await.ok();
    assert_eq!(off.post(MAPS, map("b")).await.created()["data"], json!({"k": "v"}));
}

#[tokio::test(start_paused = true)]
async fn a_policy_is_validated_as_in_v1_34() {
    let api = start().await;
    let refused = |spec: Value| {
        let api = &api;
        async move {
            let mut whole = json!({
                "matchConstraints": {"resourceRules": [rule("", "configmaps", &["CREATE"])]},
                "reinvocationPolicy": "Never",
            });
            whole.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
            let policy = json!({"metadata": {"name": "p"}, "spec": whole});
            let refused = api.post(&format!("{GROUP}/mutatingadmissionpolicies"), policy).await;
            assert_eq!(refused.code, 422, "{}", refused.text);
            refused.body["details"]["causes"]
                .as_array()
                .unwrap()
                .iter()
                .map(|cause| {
                    format!("{}: {}", cause["field"].as_str().unwrap(), cause["message"].as_str().unwrap())
                })
                .collect::<Vec<_>>()
                .join("; ")
        }
    };
    let syntax = "Invalid value: \"[JSONPatch{op: \\\"add\\\"\": compilation failed: ERROR: <input>:1:21: Syntax error: \
                  mismatched input '<EOF>' expecting {'}', ','}\n | [JSONPatch{op: \"add\"\n | ....................^";
    for (spec, expected) in [
        (json!({"mutations": []}), "spec.mutations: Required value: mutations must contain at least one item".to_owned()),
        (
            json!({"mutations": [json_patch("[JSONPatch{op: \"add\"")]}),
            format!("spec.mutations[0].jsonPatch.expression: {syntax}"),
        ),
        (
            json!({"mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": "[]"},
                "applyConfiguration": {"expression": "Object{}"}}]}),
            "spec.mutations[0].jsonPatch.expression: Invalid value: \"[]\": must evaluate to list(JSONPatch) but got \
             list(dyn); spec.mutations[0].applyConfiguration: Invalid value: \"{applyConfiguration}\": must not be \
             specified when patchType is JSONPatch".to_owned(),
        ),
        (
            json!({"mutations": [add("a", "'b'")], "matchConstraints": {"resourceRules": [rule("", "pods", &["DELETE"])]}}),
            "spec.matchConstraints.resourceRules.operations: Unsupported value: \"DELETE\": supported values: \"*\", \
             \"CONNECT\", \"CREATE\", \"UPDATE\"".to_owned(),
        ),
        (
            json!({"mutations": [{"patchType": "Merge", "jsonPatch": {"expression": "[]"}}]}),
            "spec.mutations[0].patchType: Unsupported value: \"Merge\": supported values: \"ApplyConfiguration\", \
             \"JSONPatch\"".to_owned(),
        ),
    ] {
        assert_eq!(refused(spec).await, expected);
    }
}

#[tokio::test(start_paused = true)]
async fn a_json_patch_is_applied_with_all_its_operations() {
    let api = with_mutations(json!([json_patch(
        "[JSONPatch{op: 'test', path: '/data/k', value: 'v'}, \
          JSONPatch{op: 'replace', path: '/data/k', value: 'w'}, \
          JSONPatch{op: 'copy', from: '/data/k', path: '/data/c'}, \
          JSONPatch{op: 'move', from: '/data/c', path: '/data/m'}, \
          JSONPatch{op: 'remove', path: '/data/k'}, \
          JSONPatch{op: 'add', path: '/metadata/labels', value: {'k8s.io/x': 'y'}}, \
          JSONPatch{op: 'add', path: '/metadata/labels/' + jsonpatch.escapeKey('k8s.io/y'), value: 'z'}]",
    )]))
    .await;
    let made = api.post(MAPS, map("a")).await.created();
    assert_eq!(made["data"], json!({"m": "w"}));
    assert_eq!(made["metadata"]["labels"], json!({"k8s.io/x": "y", "k8s.io/y": "z"}));
}

#[tokio::test(start_paused = true)]
async fn an_integer_that_a_double_cannot_hold_is_patched_as_a_text() {
    let api = with_mutations(json!([add("n", "9007199254740993")])).await;
    assert_eq!(api.post(MAPS, map("a")).await.created()["data"]["n"], "9007199254740993");
}

#[tokio::test(start_paused = true)]
async fn a_test_that_fails_skips_the_mutation_and_a_missing_path_is_an_error() {
    let skipped = "[JSONPatch{op: 'test', path: '/data/k', value: 'other'}, \
                    JSONPatch{op: 'add', path: '/data/a', value: '1'}]";
    let api = with_mutations(json!([json_patch(skipped), add("b", "'2'")])).await;
    assert_eq!(api.post(MAPS, map("a")).await.created()["data"], json!({"k": "v", "b": "2"}));
    let api = with_mutations(json!([json_patch("[JSONPatch{op: 'remove', path: '/data/none'}]")])).await;
    let refused = api.post(MAPS, map("a")).await;
    let why = "JSON Patch: error in remove for path: '/data/none': Unable to remove nonexistent key: none: missing value";
    assert_denied(&refused, "Invalid", &denied(why));
}

#[tokio::test(start_paused = true)]
async fn failures_are_refused_as_forbidden_for_the_reason_invalid_or_ignored() {
    let fails = add("a", "object.data.none");
    let api = with_mutations(json!([fails])).await;
    let refused = api.post(MAPS, map("a")).await;
    let text = "[JSONPatch{op: 'add', path: '/data/a', value: object.data.none}]";
    assert_denied(
        &refused,
        "Invalid",
        &denied(&format!("expression '{text}' resulted in error: no such key: none")),
    );
    assert_eq!(
        (&refused.body["details"]["kind"], &refused.body["details"]["name"]),
        (&json!("configmaps"), &json!("a"))
    );
    let api = start().await;
    let ignores = json!({"failurePolicy": "Ignore"});
    // Later mutations of the same policy still count.
    bind(&api, "p", json!([add("a", "'1'"), fails, add("b", "'2'")]), ignores, json!({})).await;
    assert_eq!(api.post(MAPS, map("a")).await.created()["data"], json!({"a": "1", "b": "2", "k": "v"}));
}

#[tokio::test(start_paused = true)]
async fn the_first_failure_is_the_message_and_all_are_causes() {
    let api = with_mutations(json!([add("a", "object.x"), add("b", "object.y")])).await;
    let refused = api.post(MAPS, map("a")).await;
    let causes = refused.body["details"]["causes"].as_array().unwrap();
    assert_eq!(causes.len(), 2);
    assert_eq!(causes[0]["message"], refused.body["message"]);
    assert!(causes[1]["message"].as_str().unwrap().ends_with("no such key: y"));
}

#[tokio::test(start_paused = true)]
async fn an_apply_configuration_is_merged_without_an_owner() {
    let api =
        with_mutations(json!([configuration("Object{metadata: Object.metadata{labels: {'a': 'b'}}}")])).await;
    let made = api.post(&format!("{MAPS}?fieldManager=m"), map("a")).await.created();
    assert_eq!(made["metadata"]["labels"], json!({"a": "b"}));
    let managed = made["metadata"]["managedFields"].as_array().unwrap();
    assert_eq!(managed.len(), 1);
    assert_eq!(managed[0]["fieldsV1"], json!({"f:data": {".": {}, "f:k": {}}}));
    // An update without the label gets it again, since the policy is still there.
    let updated = api.put(&format!("{MAPS}/a"), map("a")).await.ok();
    assert_eq!(updated["metadata"]["labels"], json!({"a": "b"}));
}

#[tokio::test(start_paused = true)]
async fn an_apply_configuration_adds_containers_and_changes_those_of_the_same_name() {
    let api = start().await;
    let text = "Object{spec: Object.spec{\
                  initContainers: [Object.spec.initContainers{name: 'side', image: 's', restartPolicy: 'Always'}], \
                  containers: [Object.spec.containers{name: 'c', env: [Object.spec.containers.env{name: 'X', value: '1'}]}]}}";
    bind(&api, "p", json!([configuration(text)]), about_pods(), json!({})).await;
    let made = api.post(PODS, pod("a")).await.created();
    let side = &made["spec"]["initContainers"][0];
    assert_eq!(
        (&side["name"], &side["restartPolicy"], &side["terminationMessagePolicy"]),
        (&json!("side"), &json!("Always"), &json!("File"))
    );
    let containers = made["spec"]["containers"].as_array().unwrap();
    assert_eq!(containers.len(), 1);
    assert_eq!(
        (&containers[0]["image"], &containers[0]["env"]),
        (&json!("i"), &json!([{"name": "X", "value": "1"}]))
    );
}

#[tokio::test(start_paused = true)]
async fn a_mismatched_type_name_fails_at_run_time() {
    for (mutation, root) in [
        (
            configuration("Object{spec: Object.spec{containers: [Object.spec.containers.item{name: 'c'}]}}"),
            "Object.spec.containers",
        ),
        (
            json_patch(
                "[JSONPatch{op: 'add', path: '/spec', value: Object.spec{containers: [Object.spec.containers.item{}]}}]",
            ),
            "Object.spec.containers",
        ),
    ] {
        let api = start().await;
        bind(&api, "p", json!([mutation]), about_pods(), json!({})).await;
        let why = format!(
            "type mismatch: unexpected type name \"Object.spec.containers.item\", expected {root:?}, which matches field \
             name path from root Object type"
        );
        assert_denied(&api.post(PODS, pod("a")).await, "Invalid", &denied(&why));
    }
}

#[tokio::test(start_paused = true)]
async fn an_apply_configuration_fits_the_schema_and_replaces_nothing_as_a_whole() {
    for (text, why) in [
        (
            "Object{spec: Object.spec{oops: 1}}",
            "failed to convert patch object to typed object: .spec.oops: field not declared in schema",
        ),
        (
            "Object{spec: Object.spec{containers: [Object.spec.containers{name: 'c', command: ['x']}]}}",
            "invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: .spec.containers[0].command",
        ),
    ] {
        let api = start().await;
        bind(&api, "p", json!([configuration(text)]), about_pods(), json!({})).await;
        let why = format!("error applying patch: {why}");
        assert_denied(&api.post(PODS, pod("a")).await, "Invalid", &denied(&why));
    }
}

/// An unknown field, or a value of the wrong type, is an internal error, whatever the failure policy is.
#[tokio::test(start_paused = true)]
async fn a_json_patch_that_leaves_no_object_of_the_kind_is_an_internal_error() {
    for (path, value, why) in [
        ("/spec/oops", "1", "strict decoding error: unknown field \"spec.oops\""),
        (
            "/spec/nodeName",
            "1",
            "json: cannot unmarshal number into Go struct field PodSpec.spec.nodeName of type string",
        ),
    ] {
        let api = start().await;
        let text = format!("[JSONPatch{{op: 'add', path: '{path}', value: {value}}}]");
        let other = json!({"failurePolicy": "Ignore", "matchConstraints": about_pods()["matchConstraints"]});
        bind(&api, "p", json!([json_patch(&text)]), other, json!({})).await;
        let message = format!("Internal error occurred: {why}");
        assert_eq!(api.post(PODS, pod("a")).await.refusal(), (500, "InternalError", message.as_str()));
    }
}

#[tokio::test(start_paused = true)]
async fn mutated_objects_are_validated() {
    let api = start().await;
    let text = "[JSONPatch{op: 'replace', path: '/spec/containers/0/image', value: ''}]";
    bind(&api, "p", json!([json_patch(text)]), about_pods(), json!({})).await;
    let refused = api.post(PODS, pod("a")).await;
    assert_eq!(
        refused.refusal(),
        (422, "Invalid", "Pod \"a\" is invalid: spec.containers[0].image: Required value")
    );
}

#[tokio::test(start_paused = true)]
async fn each_mutation_sees_the_result_of_the_previous_one() {
    let api = start().await;
    bind(&api, "a", json!([add("a", "'1'"), add("b", "object.data.a + '2'")]), json!({}), json!({})).await;
    bind(&api, "b", json!([add("c", "object.data.b + '3'")]), json!({}), json!({})).await;
    let data = &api.post(MAPS, map("x")).await.created()["data"];
    assert_eq!(*data, json!({"a": "1", "b": "12", "c": "123", "k": "v"}));
}

#[tokio::test(start_paused = true)]
async fn policies_see_what_others_added_to_a_custom_resource_until_it_is_pruned() {
    let api = start().await;
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
        "a": {"type": "string"}}}}});
    api.post(DEFINITIONS, definition(schema)).await.created();
    let about = json!({"matchConstraints": {"resourceRules": [rule("e.com", "foos", &["CREATE"])]}});
    let add = |path: &str, value: &str| {
        json_patch(&format!("[JSONPatch{{op: 'add', path: '/spec/{path}', value: {value}}}]"))
    };
    let mutations = json!([add("unknown", "'x'"), add("a", "object.spec.unknown + 'y'")]);
    bind(&api, "p", mutations, about, json!({})).await;
    let foo = json!({"apiVersion": "e.com/v1", "kind": "Foo", "metadata": {"name": "f"}, "spec": {}});
    let created = api.post("/apis/e.com/v1/namespaces/default/foos", foo).await.created();
    assert_eq!(created["spec"], json!({"a": "xy"}));
}

#[tokio::test(start_paused = true)]
async fn an_update_shows_the_old_object() {
    let api = start().await;
    let text = "has(oldObject.metadata) && oldObject != null ? \
                [JSONPatch{op: 'add', path: '/data/was', value: oldObject.data.k}] : []";
    let updates = json!({"matchConstraints": {"resourceRules": [rule("", "configmaps", &["UPDATE"])]}});
    bind(&api, "p", json!([json_patch(text)]), updates, json!({})).await;
    api.post(MAPS, map("a")).await.created();
    let changed = api.merge(&format!("{MAPS}/a"), json!({"data": {"k": "w"}})).await.ok();
    assert_eq!(changed["data"], json!({"k": "w", "was": "v"}));
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_shows_the_change_and_stores_nothing() {
    let api = with_mutations(json!([add("a", "'b'")])).await;
    let shown = api.post(&format!("{MAPS}?dryRun=All"), map("a")).await.created();
    assert_eq!(shown["data"]["a"], "b");
    assert_eq!(api.get(&format!("{MAPS}/a")).await.code, 404);
}

#[tokio::test(start_paused = true)]
async fn variables_conditions_namespace_and_authorizer_are_available() {
    let api = start().await;
    let other = json!({
        "variables": [
            {"name": "user", "expression": "request.userInfo.username"},
            {"name": "unused", "expression": "object.none"},
            {"name": "who", "expression": "variables.user + '@' + namespaceObject.metadata.name"},
        ],
        "matchConditions": [{"name": "c", "expression": "object.metadata.name != 'skip'"}],
    });
    let may = "string(authorizer.requestResource.check('create').allowed())";
    bind(&api, "p", json!([add("who", "variables.who"), add("may", may)]), other, json!({})).await;
    assert_eq!(api.post(MAPS, map("skip")).await.created()["data"], json!({"k": "v"}));
    let data = &api.post(MAPS, map("a")).await.created()["data"];
    assert_eq!(*data, json!({"k": "v", "who": "admin@default", "may": "true"}));
}

#[tokio::test(start_paused = true)]
async fn a_condition_that_fails_refuses_the_request_or_skips_the_policy() {
    for (failure_policy, code) in [("Fail", 403), ("Ignore", 201)] {
        let api = start().await;
        let other = json!({"failurePolicy": failure_policy,
            "matchConditions": [{"name": "c", "expression": "object.none == 1"}]});
        bind(&api, "p", json!([add("a", "'b'")]), other, json!({})).await;
        let made = api.post(MAPS, map("a")).await;
        assert_eq!(made.code, code);
        match code {
            403 => assert_denied(
                &made,
                "Invalid",
                &denied("expression 'object.none == 1' resulted in error: no such key: none"),
            ),
            _ => assert_eq!(made.body["data"], json!({"k": "v"})),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_binding_sets_where_a_policy_applies() {
    let api = start().await;
    let selected = json!({"matchResources": {"objectSelector": {"matchLabels": {"go": "y"}}}});
    bind(&api, "p", json!([add("a", "'b'")]), json!({}), selected).await;
    assert_eq!(api.post(MAPS, map("a")).await.created()["data"], json!({"k": "v"}));
    let labelled = json!({"metadata": {"name": "b", "labels": {"go": "y"}}, "data": {"k": "v"}});
    assert_eq!(api.post(MAPS, labelled).await.created()["data"], json!({"a": "b", "k": "v"}));
    // Without a binding a policy does nothing.
    api.delete(&format!("{GROUP}/mutatingadmissionpolicybindings/p")).await.ok();
    let labelled = json!({"metadata": {"name": "c", "labels": {"go": "y"}}, "data": {"k": "v"}});
    assert_eq!(api.post(MAPS, labelled).await.created()["data"], json!({"k": "v"}));
}

fn param_kind() -> Value {
    json!({"paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
        "matchConditions": [{"name": "c", "expression": "!has(object.metadata.labels)"}]})
}

#[tokio::test(start_paused = true)]
async fn a_policy_is_applied_once_for_each_of_its_params() {
    let api = start().await;
    let reference =
        json!({"paramRef": {"selector": {"matchLabels": {"of": "p"}}, "parameterNotFoundAction": "Deny"}});
    let text = "[JSONPatch{op: 'add', path: '/data/' + params.metadata.name, value: params.data.color}]";
    bind(&api, "p", json!([json_patch(text)]), param_kind(), reference).await;
    let why =
        "failed to configure binding: no params found for policy binding with `Deny` parameterNotFoundAction";
    assert_denied(&api.post(MAPS, map("a")).await, "Forbidden", &denied(why));
    // They are themselves config maps, so the policy has to go while the first is created.
    let bindings = format!("{GROUP}/mutatingadmissionpolicybindings");
    let binding = api.get(&format!("{bindings}/p")).await.ok();
    api.delete(&format!("{bindings}/p")).await.ok();
    for (name, color) in [("x", "red"), ("y", "blue")] {
        let param = json!({"metadata": {"name": name, "labels": {"of": "p"}}, "data": {"color": color}});
        api.post(MAPS, param).await.created();
    }
    api.post(&bindings, json!({"metadata": {"name": "p"}, "spec": binding["spec"]})).await.created();
    let data = &api.post(MAPS, map("a")).await.created()["data"];
    assert_eq!(*data, json!({"k": "v", "x": "red", "y": "blue"}));
}

#[tokio::test(start_paused = true)]
async fn missing_params_skip_the_policy_if_they_are_optional() {
    let api = start().await;
    let reference =
        json!({"paramRef": {"name": "none", "namespace": "default", "parameterNotFoundAction": "Allow"}});
    bind(&api, "p", json!([add("a", "params.data.x")]), param_kind(), reference).await;
    assert_eq!(api.post(MAPS, map("a")).await.created()["data"], json!({"k": "v"}));
    let unknown = json!({"paramKind": {"apiVersion": "e.com/v1", "kind": "Nothing"}});
    bind(&api, "q", json!([add("a", "'b'")]), unknown, json!({})).await;
    let why = "policy \"q\" denied request: failed to configure policy: failed to find resource referenced by paramKind: \
               'e.com/v1, Kind=Nothing'";
    assert_denied(&api.post(MAPS, map("b")).await, "Forbidden", why);
}

/// A server with a webhook that answers by path, and mutating policies.
async fn hooked(answer: impl Fn(&str, &Value) -> Value + Send + Sync + 'static) -> Hooked {
    let extension = Extension::new(move |path, review| Reply::Json(answer(path, review)));
    Hooked::start_changed(extension, with_policies).await
}

fn patch_data(review: &Value, key: &str, value: &str) -> Value {
    patch(review, &json!([{"op": "add", "path": format!("/data/{key}"), "value": value}]))
}

#[tokio::test(start_paused = true)]
async fn policies_run_before_mutating_webhooks() {
    let hooked = hooked(|_, review| patch_data(review, "w", "2")).await;
    bind(&hooked.api, "p", json!([add("p", "'1'")]), json!({}), json!({})).await;
    hooked.mutating(json!({})).await;
    let made = hooked.api.post(MAPS, map("a")).await.created();
    assert_eq!(made["data"], json!({"k": "v", "p": "1", "w": "2"}));
    assert_eq!(hooked.review()["object"]["data"], json!({"k": "v", "p": "1"}));
}

#[tokio::test(start_paused = true)]
async fn a_policy_is_called_again_after_a_webhook_changed_the_object_if_it_asks_for_it() {
    for (reinvocation, expected) in [("IfNeeded", "vw"), ("Never", "v")] {
        let hooked = hooked(|_, review| patch_data(review, "k", "vw")).await;
        let other = json!({"reinvocationPolicy": reinvocation});
        bind(&hooked.api, "p", json!([add("seen", "object.data.k")]), other, json!({})).await;
        hooked.mutating(json!({})).await;
        let made = hooked.api.post(MAPS, map("a")).await.created();
        assert_eq!(made["data"], json!({"k": "vw", "seen": expected}), "{reinvocation}");
    }
}

/// v1.34 calls a policy again even if only the policy itself has patched the object.
#[tokio::test(start_paused = true)]
async fn a_policy_that_asks_for_it_is_called_twice_and_never_a_third_time() {
    let api = start().await;
    let grows = json_patch("[JSONPatch{op: 'replace', path: '/data/k', value: object.data.k + '!'}]");
    bind(&api, "p", json!([grows]), json!({"reinvocationPolicy": "IfNeeded"}), json!({})).await;
    assert_eq!(api.post(MAPS, map("a")).await.created()["data"]["k"], "v!!");
    let api = with_mutations(json!([grows])).await;
    assert_eq!(api.post(MAPS, map("a")).await.created()["data"]["k"], "v!");
}

#[tokio::test(start_paused = true)]
async fn a_webhook_is_called_again_after_a_policy_changed_the_object() {
    let hooked = hooked(|_, review| allow(review)).await;
    let grows = json_patch("[JSONPatch{op: 'replace', path: '/data/k', value: object.data.k + '!'}]");
    bind(&hooked.api, "p", json!([grows]), json!({"reinvocationPolicy": "IfNeeded"}), json!({})).await;
    hooked.mutating(json!({"reinvocationPolicy": "IfNeeded"})).await;
    hooked.api.post(MAPS, map("a")).await.created();
    let seen: Vec<String> =
        hooked.reviews().iter().map(|one| one["object"]["data"]["k"].to_string()).collect();
    assert_eq!(seen, ["\"v!\"", "\"v!!\""]);
}

#[tokio::test(start_paused = true)]
async fn a_mutating_policy_for_one_version_applies_to_all() {
    let api = start().await;
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
        "color": {"type": "string"}, "size": {"type": "integer", "default": 3},
        "tags": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"}}}}});
    let mut two = definition(schema.clone());
    two["spec"]["versions"]
        .as_array_mut()
        .unwrap()
        .push(json!({"name": "v2", "served": true, "storage": false, "schema": {"openAPIV3Schema": schema}}));
    api.post(DEFINITIONS, two).await.created();
    let rule =
        json!({"apiGroups": ["e.com"], "apiVersions": ["v1"], "operations": ["*"], "resources": ["foos"]});
    let constraints = json!({"matchConstraints": {"resourceRules": [rule]}});
    let text =
        "Object{spec: Object.spec{tags: [request.requestKind.version + ' as ' + request.kind.version]}}";
    let color = "[JSONPatch{op: 'add', path: '/spec/color', value: object.apiVersion}]";
    bind(&api, "p", json!([configuration(text), json_patch(color)]), constraints, json!({})).await;
    for version in ["v1", "v2"] {
        let foo = json!({"apiVersion": format!("e.com/{version}"), "kind": "Foo", "metadata": {"name": version},
            "spec": {"tags": ["own"]}});
        let made = api.post(&format!("/apis/e.com/{version}/namespaces/default/foos"), foo).await.created();
        assert_eq!(made["apiVersion"], format!("e.com/{version}"));
        let tags = json!(["own", format!("{version} as v1")]);
        assert_eq!(made["spec"], json!({"color": "e.com/v1", "size": 3, "tags": tags}));
    }
}

#[tokio::test(start_paused = true)]
async fn scales_and_connections_are_mutated_as_their_own_kinds() {
    let api = start().await;
    let deployment = json!({"metadata": {"name": "a"}, "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "a"}},
        "template": {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}});
    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    api.post(deployments, deployment).await.created();
    let scales =
        json!({"matchConstraints": {"resourceRules": [rule("apps", "deployments/scale", &["UPDATE"])]}});
    let text = "[JSONPatch{op: 'replace', path: '/spec/replicas', value: object.spec.replicas + 1}]";
    bind(&api, "p", json!([json_patch(text)]), scales, json!({})).await;
    let scaled = api.merge(&format!("{deployments}/a/scale"), json!({"spec": {"replicas": 4}})).await.ok();
    assert_eq!((&scaled["kind"], &scaled["spec"]["replicas"]), (&json!("Scale"), &json!(5)));
    let exec = json!({"matchConstraints": {"resourceRules": [rule("", "pods/exec", &["CONNECT"])]}});
    bind(&api, "q", json!([configuration("Object{stdin: true}")]), exec, json!({})).await;
    let refused = api.get("/api/v1/namespaces/default/pods/a/exec?command=x").await;
    let why = "policy 'q' with binding 'q' denied request: error applying patch: failed to convert patch object to typed \
               object: no corresponding type for /v1, Kind=PodExecOptions";
    assert_denied(&refused, "Invalid", why);
}

/// Policies cannot lock administrators out.
#[tokio::test(start_paused = true)]
async fn kinds_that_are_only_subresources_take_no_apply_configuration() {
    let api = start().await;
    let scales = json!({"matchConstraints": {"resourceRules": [rule("", "replicationcontrollers/scale", &["UPDATE"])]}});
    bind(&api, "p", json!([configuration("Object{spec: Object.spec{replicas: 2}}")]), scales, json!({}))
        .await;
    let controllers = "/api/v1/namespaces/default/replicationcontrollers";
    let template =
        json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let spec = json!({"replicas": 1, "selector": {"a": "b"}, "template": template});
    api.post(controllers, json!({"metadata": {"name": "a"}, "spec": spec})).await.created();
    let refused = api.merge(&format!("{controllers}/a/scale"), json!({"spec": {"replicas": 3}})).await;
    let why = "failed to convert patch object to typed object: no corresponding type for autoscaling/v1, Kind=Scale";
    let (code, reason, message) = refused.refusal();
    assert_eq!((code, reason), (403, "Invalid"));
    assert!(message.ends_with(&format!("error applying patch: {why}")), "{message}");
}

#[tokio::test(start_paused = true)]
async fn policies_do_not_apply_to_policies_and_reviews() {
    let api = start().await;
    let all = json!({"matchConstraints": {"resourceRules": [rule("*", "*", &["*"])]}});
    bind(&api, "p", json!([add("a", "object.none")]), all, json!({})).await;
    assert_eq!(api.post(MAPS, map("a")).await.code, 403);
    let review = json!({"spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}});
    api.post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", review).await.created();
    api.merge(&format!("{GROUP}/mutatingadmissionpolicies/p"), json!({"spec": {"failurePolicy": "Ignore"}}))
        .await
        .ok();
    api.post(MAPS, map("a")).await.created();
    api.delete(&format!("{GROUP}/mutatingadmissionpolicies/p")).await.ok();
}

#[tokio::test(start_paused = true)]
async fn binding_params_requires_permission_to_read_them() {
    let mut api = Api::start_changed(|config| with_policies(config).with_roles()).await;
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let rules = json!([{"apiGroups": ["admissionregistration.k8s.io"], "resources": ["*"], "verbs": ["*"]}]);
    api.post(&format!("{rbac}/clusterroles"), json!({"metadata": {"name": "r"}, "rules": rules}))
        .await
        .created();
    let binding = json!({"metadata": {"name": "r"}, "roleRef": {"kind": "ClusterRole", "name": "r"},
        "subjects": [{"kind": "User", "name": "ann"}]});
    api.post(&format!("{rbac}/clusterrolebindings"), binding).await.created();
    let kind = json!({"paramKind": {"apiVersion": "v1", "kind": "Secret"}});
    bind(&api, "p", json!([add("a", "'b'")]), kind.clone(), json!({})).await;
    api.user = setpoint_apiserver::User::authenticated("ann", "7", Vec::new());
    let spec = json!({"policyName": "p", "paramRef": {"name": "s", "namespace": "default", "parameterNotFoundAction": "Deny"}});
    let binding = json!({"metadata": {"name": "x"}, "spec": spec});
    let refused = api.post(&format!("{GROUP}/mutatingadmissionpolicybindings"), binding).await;
    let user = "&{ann 7 [system:authenticated] map[]}";
    let message = format!(
        "MutatingAdmissionPolicyBinding.admissionregistration.k8s.io \"x\" is invalid: spec.paramRef: Forbidden: user \
         {user} does not have \"get\" permission on the object referenced by paramRef"
    );
    assert_eq!(refused.refusal(), (422, "Invalid", message.as_str()));
    let constraints = json!({"resourceRules": [rule("", "configmaps", &["CREATE"])]});
    let mut spec = json!({"matchConstraints": constraints, "validations": [{"expression": "true"}]});
    spec.as_object_mut().unwrap().extend(kind.as_object().unwrap().clone());
    let policy = json!({"metadata": {"name": "x"}, "spec": spec});
    let path = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";
    let refused = api.post(path, policy.clone()).await;
    let message = format!(
        "ValidatingAdmissionPolicy.admissionregistration.k8s.io \"x\" is invalid: spec.paramKind: Forbidden: user {user} \
         must have \"get\" permission on all objects of the referenced paramKind (kind=Secret, apiVersion=v1)"
    );
    assert_eq!(refused.refusal(), (422, "Invalid", message.as_str()));
    let without = json!({"metadata": {"name": "y"}, "spec": {"matchConstraints": constraints,
        "validations": [{"expression": "true"}]}});
    api.post(path, without).await.created();
}

#[tokio::test(start_paused = true)]
async fn mutations_are_counted_by_policy_and_error() {
    let api = with_mutations(json!([add("a", "'b'"), add("b", "object.none")])).await;
    assert_eq!(api.post(MAPS, map("a")).await.code, 403);
    let metrics = api.ask(Method::GET, "/metrics", &[], "").await.text;
    for (error, count) in [("no_error", 1), ("invalid_error", 1)] {
        let name = "apiserver_mutating_admission_policy_check_total";
        let line = format!("{name}{{policy=\"p\",policy_binding=\"p\",error_type=\"{error}\"}} {count}");
        assert!(metrics.contains(&line), "{line}");
    }
    assert!(
        metrics.contains("apiserver_mutating_admission_policy_check_duration_seconds_bucket{policy=\"p\"")
    );
}

/// Policies that would take all memory or all time if nothing bounded them.
#[tokio::test(start_paused = true)]
async fn hostile_policies_are_bounded() {
    let doubling: Vec<Value> =
        std::iter::once(json!({"name": "v0", "expression": "['0123456789', '0123456789']"}))
            .chain((1..19).map(|at| {
                json!({"name": format!("v{at}"),
            "expression": format!("[dyn(variables.v{0}), dyn(variables.v{0})]", at - 1)})
            }))
            .collect();
    let copies = "[JSONPatch{op: 'add', path: '/metadata/annotations', value: {'a': 'x'}}] + lists.range(40).map(i, \
                  JSONPatch{op: 'copy', from: '/metadata', path: '/metadata/annotations/c' + string(i)})";
    let long = "lists.range(200).map(i, 'x'.replace('', '0123456789')).join('')";
    let wide = format!("[JSONPatch{{op: 'add', path: '/data/w', value: lists.range(2000).map(i, {long})}}]");
    let deep = (0..140).fold(
        "JSONPatch{op: 'add', path: '/metadata/annotations', value: {'a': 'x'}}".to_owned(),
        |all, at| {
            format!(
                "{all}, JSONPatch{{op: 'add', path: '/metadata{}', value: {{'a': {{}}}}}}",
                "/a".repeat(at + 1)
            )
        },
    );
    let many = "lists.range(12000).map(i, JSONPatch{op: 'test', path: '/data/k', value: 'v'})";
    for (name, variables, mutation, why) in [
        (
            "exponential",
            json!(doubling),
            add("a", "variables.v18"),
            "the result is larger than 3145728 bytes",
        ),
        (
            "exponential-object",
            json!(doubling),
            configuration("Object{data: {'a': variables.v18}}"),
            "the result is larger than 3145728 bytes",
        ),
        ("copies", json!([]), json_patch(copies), "JSON Patch: "),
        (
            "wide",
            json!([]),
            json_patch(&wide),
            "resulted in error: operation cancelled: actual cost limit exceeded",
        ),
        (
            "deep",
            json!([]),
            json_patch(&format!("[{deep}]")),
            "JSON Patch: the patched document would be nested",
        ),
        (
            "many",
            json!([]),
            json_patch(many),
            "JSON Patch: The allowed maximum operations in a JSON patch is 10000",
        ),
    ] {
        let api = start().await;
        bind(&api, "p", json!([mutation]), json!({"variables": variables}), json!({})).await;
        let refused = api.post(MAPS, map("a")).await;
        let (code, _, message) = refused.refusal();
        assert!(
            code == 403 && message.contains(why),
            "{name}: {code} {}",
            &message[..message.len().min(600)]
        );
    }
}

/// Each mutation is small; together they would grow the object without end.
#[tokio::test(start_paused = true)]
async fn an_object_that_grows_with_each_mutation_ends_at_the_size_of_a_request() {
    let api = start().await;
    let large = format!("'x'{}", ".replace('', '0123456789')".repeat(5));
    let grows: Vec<Value> = (0..12).map(|at| add(&format!("k{at}"), &large)).collect();
    bind(&api, "p", json!(grows), json!({}), json!({})).await;
    let refused = api.post(MAPS, map("a")).await;
    let message = refused.refusal().2;
    assert!(refused.code == 403 && message.contains("bytes, the limit is 3145728"), "{message:.300}");
}

#[tokio::test(start_paused = true)]
async fn the_paths_of_a_patch_are_within_its_limit() {
    let expression = "lists.range(5).map(i, JSONPatch{op: 'test', path: object.data.big, value: 'x'})";
    let api = with_mutations(json!([json_patch(expression)])).await;
    let big = format!("/{}", "x".repeat(900_000));
    let refused = api.post(MAPS, json!({"metadata": {"name": "a"}, "data": {"big": big}})).await;
    let why = "JSONPatch path: the result is larger than 3145728 bytes";
    assert_eq!(refused.refusal(), (403, "Invalid", denied(why).as_str()));
}
