//! Manifests, CRDs and charts of well-known projects behave as in v1.34.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::client::{Answer, Api};
use crate::custom::{DEFINITIONS, definition};

const FOOS: &str = "/apis/e.com/v1/namespaces/default/foos";
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
const API_SERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";

/// Returns a CRD whose spec has these properties.
fn with_spec(properties: Value) -> Value {
    let spec = json!({"type": "object", "properties": properties});
    definition(json!({"type": "object", "properties": {"spec": spec}}))
}

fn foo(version: &str, name: &str, spec: Value) -> Value {
    let api_version = format!("e.com/{version}");
    json!({"apiVersion": api_version, "kind": "Foo", "metadata": {"name": name}, "spec": spec})
}

async fn apply(api: &Api, path: &str, object: &Value) -> Answer {
    let apply = [("content-type", "application/apply-patch+yaml")];
    api.ask(Method::PATCH, &format!("{path}?fieldManager=m&force=true"), &apply, object.to_string()).await
}

async fn post_yaml(api: &Api, path: &str, text: &str) -> Answer {
    api.ask(Method::POST, path, &[("content-type", "application/yaml")], text.to_owned()).await
}

/// Runs the server's background work.
fn maintained(api: &Api) -> CancellationToken {
    let (server, stop) = (api.server.clone(), CancellationToken::new());
    let ending = stop.clone();
    tokio::spawn(async move { server.maintain(ending).await });
    stop
}

#[tokio::test(start_paused = true)]
async fn rules_on_the_keys_of_maps_are_cheap() {
    let api = Api::start().await;
    let rules = ["!k.contains('*')", "k.matches('^[a-z]+$')", "k.find('a') == ''", "k.split('-').size() > 0"];
    for rule in rules {
        let labels = json!({"type": "object", "maxProperties": 100, "additionalProperties": {"type": "string"},
            "x-kubernetes-validations": [{"rule": format!("self.all(k, {rule})")}]});
        api.post(DEFINITIONS, with_spec(json!({"labels": labels}))).await.created();
        api.delete(&format!("{DEFINITIONS}/foos.e.com")).await.ok();
        crate::custom::gone(&api, "foos.e.com").await;
    }
}

#[tokio::test(start_paused = true)]
async fn rules_name_fields_by_reserved_words() {
    let api = Api::start().await;
    let mut named = with_spec(json!({"namespace": {"type": "string"}, "for": {"type": "integer"}}));
    let spec = &mut named["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
    spec["x-kubernetes-validations"] = json!([{"rule": "!has(self.namespace) || self.__namespace__ != 'bad'"}, {"rule": "self.?for.orValue(1) == 1"}]);
    api.post(DEFINITIONS, named).await.created();
    api.post(FOOS, foo("v1", "a", json!({"namespace": "good", "for": 1}))).await.created();
    for spec in [json!({"namespace": "bad"}), json!({"for": 2})] {
        assert_eq!(api.post(FOOS, foo("v1", "b", spec)).await.code, 422);
    }
}

#[tokio::test(start_paused = true)]
async fn a_rule_compares_an_optional_with_null() {
    let api = Api::start().await;
    let rule = "format.dns1123Label().validate(self) == null";
    let name = json!({"type": "string", "maxLength": 63, "x-kubernetes-validations": [{"rule": rule}]});
    api.post(DEFINITIONS, with_spec(json!({"name": name}))).await.created();
}

#[tokio::test(start_paused = true)]
async fn the_default_of_a_status_shows_at_once() {
    let api = Api::start().await;
    let status = json!({"type": "object", "default": {"phase": "New"},
        "properties": {"phase": {"type": "string"}, "since": {"type": "string", "default": "now"}}});
    let schema = json!({"type": "object", "properties": {"status": status, "spec": {"type": "object"}}});
    let mut defined = definition(schema);
    let version = &mut defined["spec"]["versions"][0];
    version["subresources"] = json!({"status": {}});
    version["additionalPrinterColumns"] =
        json!([{"name": "Phase", "type": "string", "jsonPath": ".status.phase"}]);
    api.post(DEFINITIONS, defined).await.created();
    let new = json!({"phase": "New", "since": "now"});
    assert_eq!(
        api.post(&format!("{FOOS}?dryRun=All"), foo("v1", "a", json!({}))).await.created()["status"],
        new
    );
    assert_eq!(api.post(FOOS, foo("v1", "a", json!({}))).await.created()["status"], new);
    let path = format!("{FOOS}/a");
    assert_eq!(api.get(&path).await.ok()["status"], new);
    assert_eq!(api.get_as(TABLE, &path).await.ok()["rows"][0]["cells"][1], "New");
    assert_eq!(apply(&api, &format!("{FOOS}/b"), &foo("v1", "b", json!({}))).await.created()["status"], new);
    let labelled = api.merge(&path, json!({"metadata": {"labels": {"a": "b"}}})).await.ok();
    assert_eq!((&labelled["status"], &labelled["metadata"]["generation"]), (&new, &json!(1)));
}

#[tokio::test(start_paused = true)]
async fn partial_metadata_of_a_daemon_set_omits_the_template_generation() {
    let api = Api::start().await;
    let template =
        json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let spec = json!({"selector": {"matchLabels": {"a": "b"}}, "template": template});
    let sets = "/apis/apps/v1/namespaces/default/daemonsets";
    let key = "deprecated.daemonset.template.generation";
    let created = api.post(sets, json!({"metadata": {"name": "x"}, "spec": spec})).await.created();
    assert_eq!(created["metadata"]["annotations"][key], "1");
    let path = format!("{sets}/x");
    let partial = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io";
    let partials = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";
    for metadata in [
        &api.get_as(TABLE, &path).await.ok()["rows"][0]["object"]["metadata"],
        &api.get_as(TABLE, sets).await.ok()["rows"][0]["object"]["metadata"],
        &api.get_as(partial, &path).await.ok()["metadata"],
        &api.get_as(partials, sets).await.ok()["items"][0]["metadata"],
    ] {
        assert_eq!(metadata["name"], "x");
        assert_eq!(metadata["annotations"], Value::Null);
    }
    let whole = api.get_as(TABLE, &format!("{path}?includeObject=Object")).await.ok();
    assert_eq!(whole["rows"][0]["object"]["metadata"]["annotations"][key], "1");
}

#[tokio::test(start_paused = true)]
async fn paths_of_managed_fields_escape_html() {
    let api = Api::start().await;
    let item = json!({"type": "object", "required": ["k"], "properties": {"k": {"type": "string"}}});
    let map = json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"], "items": item});
    let set = json!({"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}});
    api.post(DEFINITIONS, with_spec(json!({"map": map, "set": set}))).await.created();
    let spec = json!({"map": [{"k": "<&>"}], "set": ["<"]});
    let applied = apply(&api, &format!("{FOOS}/a"), &foo("v1", "a", spec.clone())).await.created();
    let owned = &applied["metadata"]["managedFields"][0]["fieldsV1"]["f:spec"];
    assert!(owned["f:map"].get(r#"k:{"k":"\u003c\u0026\u003e"}"#).is_some(), "{owned}");
    assert!(owned["f:set"].get(r#"v:"\u003c""#).is_some(), "{owned}");
    let again = apply(&api, &format!("{FOOS}/a"), &foo("v1", "a", spec)).await.ok();
    assert_eq!(again["metadata"]["resourceVersion"], applied["metadata"]["resourceVersion"]);
    let left = json!({"set": ["<"]});
    let less = apply(&api, &format!("{FOOS}/a"), &foo("v1", "a", left.clone())).await.ok();
    assert_eq!(less["spec"], left);
}

#[tokio::test(start_paused = true)]
async fn an_applied_null_is_checked_against_the_schema() {
    let api = Api::start().await;
    let nullable = json!({"type": "string", "nullable": true});
    let defaulted = json!({"type": "string", "default": "d"});
    let properties = json!({"s": {"type": "string"}, "n": nullable, "d": defaulted});
    api.post(DEFINITIONS, with_spec(properties)).await.created();
    for is_there in [false, true] {
        if is_there {
            let created = api.post(FOOS, foo("v1", "a", json!({"s": null}))).await.created();
            assert_eq!(created["spec"], json!({"d": "d"}), "a create drops it");
        }
        let refused = apply(&api, &format!("{FOOS}/a"), &foo("v1", "a", json!({"s": null}))).await;
        assert_eq!(refused.code, 422, "{}", refused.text);
        let cause = &refused.body["details"]["causes"][0];
        assert_eq!(cause["field"], "spec.s");
        assert_eq!(
            cause["message"],
            r#"Invalid value: "null": spec.s in body must be of type string: "null""#
        );
    }
    let fine =
        apply(&api, &format!("{FOOS}/b"), &foo("v1", "b", json!({"n": null, "d": null}))).await.created();
    assert_eq!(fine["spec"], json!({"n": null, "d": "d"}));
}

/// Returns a CRD with two versions, of which the first is stored. The spec of each has these properties.
fn two_versions(stored: Value, other: Value) -> Value {
    let version = |name: &str, properties: Value, is_stored: bool| {
        let spec = json!({"type": "object", "properties": properties});
        let schema = json!({"type": "object", "properties": {"spec": spec}});
        json!({"name": name, "served": true, "storage": is_stored, "schema": {"openAPIV3Schema": schema}})
    };
    let mut defined = definition(json!({}));
    defined["spec"]["versions"] = json!([version("v1", stored, true), version("v2", other, false)]);
    defined
}

#[tokio::test(start_paused = true)]
async fn the_defaults_of_the_stored_version_show_in_every_version() {
    let api = Api::start().await;
    let plain = json!({"d": {"type": "string"}});
    api.post(DEFINITIONS, two_versions(json!({"d": {"type": "string", "default": "x"}}), plain))
        .await
        .created();
    let second = FOOS.replace("/v1/", "/v2/");
    let spec = json!({"d": "x"});
    let made = foo("v2", "a", json!({}));
    assert_eq!(api.post(&format!("{second}?dryRun=All"), made.clone()).await.created()["spec"], spec);
    assert_eq!(api.post(&second, made).await.created()["spec"], spec);
    assert_eq!(api.get(&format!("{second}/a")).await.ok()["spec"], spec);
    assert_eq!(api.get(&format!("{FOOS}/a")).await.ok()["spec"], spec);
}

#[tokio::test(start_paused = true)]
async fn an_empty_list_needs_no_conversion_webhook() {
    let api = Api::start().await;
    let mut defined = two_versions(json!({}), json!({}));
    let service = json!({"namespace": "default", "name": "hook"});
    defined["spec"]["conversion"] = json!({"strategy": "Webhook",
        "webhook": {"conversionReviewVersions": ["v1"], "clientConfig": {"service": service}}});
    api.post(DEFINITIONS, defined).await.created();
    let second = FOOS.replace("/v1/", "/v2/");
    assert_eq!(api.get(&second).await.ok()["items"], json!([]));
    assert_eq!(api.get(&format!("{second}/a")).await.code, 404);
    assert_eq!(api.delete(&format!("{second}/a")).await.code, 404);
    let mut events = api.open_watch(&format!("{second}?watch=1")).await;
    api.post(FOOS, foo("v1", "a", json!({}))).await.created();
    let said = tokio::time::timeout(Duration::from_secs(5), events.next()).await;
    assert!(said.is_err(), "a watch skips objects it cannot convert: {said:?}");
    let why = |version: &str| {
        format!(
            "conversion webhook for e.com/{version}, Kind=Foo failed: Post \"https://hook.default.svc:443/?timeout=30s\": service \"hook\" not found"
        )
    };
    for (answer, version) in [
        (api.get(&second).await, "v1"),
        (api.get(&format!("{second}/a")).await, "v1"),
        (api.post(&second, foo("v2", "b", json!({}))).await, "v2"),
    ] {
        assert_eq!(answer.code, 500);
        let expected = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": why(version), "code": 500});
        assert_eq!(answer.body, expected);
    }
}

#[tokio::test(start_paused = true)]
async fn numbers_of_yaml_are_those_of_yaml_1_1() {
    let api = Api::start().await;
    let pods = "/api/v1/namespaces/default/pods?dryRun=All";
    api.default_service_account().await;
    let pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec:\n  containers: [{name: c, image: i}]\n  volumes:\n  - name: v\n    secret: {secretName: s, defaultMode: 0777}\n";
    let made = post_yaml(&api, pods, pod).await.created();
    assert_eq!(made["spec"]["volumes"][0]["secret"]["defaultMode"], 511);
    let classes = "/apis/scheduling.k8s.io/v1/priorityclasses";
    let class = "apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nmetadata: {name: a}\nvalue: 1e+06\n";
    assert_eq!(post_yaml(&api, classes, class).await.created()["value"], 1_000_000);
    let written = r#"{"metadata":{"name":"b","labels":{"a":"1e6"}},"value":1e6}"#;
    let refused = api.ask(Method::POST, classes, &[], written).await;
    let why = "json: cannot unmarshal number 1e6 into Go struct field PriorityClass.value of type int32";
    assert!(refused.code == 400 && refused.refusal().2.ends_with(why), "{}", refused.text);
}

#[tokio::test(start_paused = true)]
async fn a_block_scalar_without_a_last_newline_has_none() {
    let api = Api::start().await;
    let maps = "/api/v1/namespaces/default/configmaps";
    let map = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata:\n  k: |\n    one\n    two";
    assert_eq!(post_yaml(&api, maps, map).await.created()["data"]["k"], "one\ntwo");
    let ended = format!("{}\n", map.replace("name: a", "name: b"));
    assert_eq!(post_yaml(&api, maps, &ended).await.created()["data"]["k"], "one\ntwo\n");
    let apply = [("content-type", "application/apply-patch+yaml")];
    let path = format!("{maps}/c?fieldManager=m");
    let applied = api.ask(Method::PATCH, &path, &apply, map.replace("name: a", "name: c")).await.created();
    assert_eq!(applied["data"]["k"], "one\ntwo");
}

#[tokio::test(start_paused = true)]
async fn an_api_service_reports_why_it_is_unavailable() {
    let api = Api::start().await;
    let stop = maintained(&api);
    tokio::time::sleep(Duration::from_millis(1)).await;
    let spec = json!({"group": "x.io", "version": "v1", "groupPriorityMinimum": 1, "versionPriority": 1,
        "service": {"namespace": "default", "name": "x"}});
    api.post(API_SERVICES, json!({"metadata": {"name": "v1.x.io"}, "spec": spec})).await.created();
    let path = format!("{API_SERVICES}/v1.x.io");
    tokio::time::sleep(Duration::from_millis(1)).await;
    let shown = api.get(&path).await.ok();
    let condition = &shown["status"]["conditions"][0];
    assert_eq!(condition["message"], r#"service/x in "default" is not present"#);
    let mut owners = shown["metadata"]["managedFields"].as_array().unwrap().iter();
    assert!(owners.any(|owner| owner["manager"] == "kube-apiserver" && owner["subresource"] == "status"));
    let row = api.get_as(TABLE, &path).await.ok();
    assert_eq!(row["rows"][0]["cells"][2], "False (ServiceNotFound)");
    let services = "/api/v1/namespaces/default/services";
    let service = json!({"metadata": {"name": "x"}, "spec": {"ports": [{"port": 80}]}});
    api.post(services, service).await.created();
    let reason = async || {
        tokio::time::sleep(Duration::from_secs(11)).await;
        api.get(&path).await.ok()["status"]["conditions"][0]["reason"].clone()
    };
    assert_eq!(reason().await, "ServicePortError");
    api.merge(&format!("{services}/x"), json!({"spec": {"ports": [{"port": 443}]}})).await.ok();
    assert_eq!(reason().await, "EndpointsNotFound");
    let labels = json!({"kubernetes.io/service-name": "x"});
    let slice = json!({"metadata": {"name": "x", "labels": labels}, "addressType": "IPv4", "ports": [{"name": "", "port": 443}],
        "endpoints": [{"addresses": ["10.1.1.1"], "conditions": {"ready": false}}]});
    let slices = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
    api.post(slices, slice).await.created();
    assert_eq!(reason().await, "MissingEndpoints");
    let revision = api.server.revision();
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert_eq!(api.server.revision(), revision, "a steady state makes no writes");
    stop.cancel();
}

#[tokio::test(start_paused = true)]
async fn unpruned_applied_fields_increment_the_generation() {
    let api = Api::start().await;
    let volume = json!({"type": "object", "required": ["name"],
        "properties": {"name": {"type": "string"}, "emptyDir": {"type": "object"}}});
    let volumes = json!({"type": "array", "items": volume, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]});
    let template = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {"volumes": volumes}});
    api.post(DEFINITIONS, with_spec(json!({"template": template}))).await.created();
    let spec = json!({"template": {"volumes": [{"name": "data", "emptydir": {}}], "any": 1}});
    let created = api.post(FOOS, foo("v1", "a", spec.clone())).await.created();
    let pruned = json!({"template": {"volumes": [{"name": "data"}], "any": 1}});
    assert_eq!((&created["spec"], &created["metadata"]["generation"]), (&pruned, &json!(1)));
    let applied = apply(&api, &format!("{FOOS}/a"), &foo("v1", "a", spec)).await.ok();
    assert_eq!((&applied["spec"], &applied["metadata"]["generation"]), (&pruned, &json!(2)));
    assert_eq!(api.get(&format!("{FOOS}/a")).await.ok()["spec"], pruned);
}

#[tokio::test(start_paused = true)]
async fn the_labels_that_a_job_takes_over_belong_to_its_creator() {
    let api = Api::start().await;
    let template = |labels: Value| json!({"metadata": {"labels": labels}, "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}});
    let jobs = "/apis/batch/v1/namespaces/default/jobs";
    let job = json!({"metadata": {"name": "a"}, "spec": {"template": template(json!({"app": "x"}))}});
    let created = api.post(jobs, job).await.created();
    assert_eq!(created["metadata"]["labels"]["app"], "x");
    let owned = &created["metadata"]["managedFields"][0]["fieldsV1"]["f:metadata"];
    assert_eq!(*owned, json!({"f:labels": {".": {}, "f:app": {}}}));
    let job = json!({"metadata": {"name": "b"}, "spec": {"template": template(json!({}))}});
    let created = api.post(jobs, job).await.created();
    assert_eq!(created["metadata"]["managedFields"][0]["fieldsV1"]["f:metadata"], Value::Null);
}

#[tokio::test(start_paused = true)]
async fn an_invalid_certificate_causes_a_warning() {
    let api = Api::start().await;
    let secret = |name: &str, certificate: &str| {
        json!({"metadata": {"name": name}, "type": "kubernetes.io/tls",
            "stringData": {"tls.crt": certificate, "tls.key": "x"}})
    };
    let secrets = "/api/v1/namespaces/default/secrets";
    let made = api.post(secrets, secret("a", "x")).await;
    assert_eq!(made.warnings, [r#"299 - "tls: failed to find any PEM data in certificate input""#]);
    made.created();
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = rcgen::CertificateParams::new(vec!["a".to_owned()]).unwrap().self_signed(&key).unwrap();
    let made = api.post(secrets, secret("b", &certificate.pem())).await;
    assert_eq!(made.warnings, [r#"299 - "tls: failed to find any PEM data in key input""#]);
    let pair = json!({"stringData": {"tls.crt": certificate.pem(), "tls.key": key.serialize_pem()}});
    let fine = api.merge(&format!("{secrets}/b"), pair).await;
    assert_eq!((fine.code, fine.warnings.len()), (200, 0));
}

#[tokio::test(start_paused = true)]
async fn an_image_that_is_no_reference_is_not_the_latest() {
    let api = Api::start().await;
    api.default_service_account().await;
    let pods = "/api/v1/namespaces/default/pods";
    for (at, (image, policy)) in
        [("ko://knative.dev/x", "IfNotPresent"), ("knative.dev/x", "Always"), ("x:1", "IfNotPresent")]
            .into_iter()
            .enumerate()
    {
        let pod = json!({"metadata": {"name": format!("p{at}")}, "spec": {"containers": [{"name": "c", "image": image}]}});
        assert_eq!(
            api.post(pods, pod).await.created()["spec"]["containers"][0]["imagePullPolicy"],
            policy,
            "{image}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn columns_are_described_by_the_documentation_of_their_fields() {
    let api = Api::start().await;
    for (path, column, beginning) in [
        ("certificates.k8s.io/v1/certificatesigningrequests", 2, "Requested signer for the request."),
        ("storage.k8s.io/v1/csidrivers", 1, "attachRequired indicates this CSI volume driver"),
        ("storage.k8s.io/v1/csidrivers", 6, "volumeLifecycleModes defines what kind of volumes"),
        ("resource.k8s.io/v1/resourceslices", 1, "NodeName identifies the node which provides"),
        ("flowcontrol.apiserver.k8s.io/v1/flowschemas", 2, "`matchingPrecedence` is used to choose among"),
        (
            "flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations",
            5,
            "`queueLengthLimit` is the maximum number",
        ),
    ] {
        let table = api.get_as(TABLE, &format!("/apis/{path}")).await.ok();
        let description = table["columnDefinitions"][column]["description"].as_str().unwrap();
        assert!(description.starts_with(beginning), "{path}: {description}");
    }
}

#[tokio::test(start_paused = true)]
async fn answers_have_their_fields_in_the_order_of_v1_34() {
    let api = Api::start().await;
    api.config_map("a", json!({"x": "y"})).await;
    let maps = "/api/v1/namespaces/default/configmaps";
    let map = api.get(&format!("{maps}/a")).await.text;
    let beginning =
        r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a","namespace":"default","uid":"#;
    assert!(map.starts_with(beginning), "{map}");
    in_order(
        &map,
        &[
            "\"uid\"",
            "\"resourceVersion\"",
            "\"creationTimestamp\"",
            "\"labels\"",
            "\"managedFields\"",
            "\"data\"",
        ],
    );
    let list = api.get(maps).await.text;
    assert!(
        list.starts_with(r#"{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"#),
        "{list}"
    );
    in_order(
        &list,
        &["\"items\":[{\"metadata\":{\"name\":\"a\"", "\"resourceVersion\"", "\"managedFields\"", "\"data\""],
    );
    let missing = api.get(&format!("{maps}/b")).await.text;
    assert_eq!(
        missing,
        r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"configmaps \"b\" not found","reason":"NotFound","details":{"name":"b","kind":"configmaps"},"code":404}"#
    );
    let core = api.get("/api/v1").await.text;
    in_order(&core, &["{\"kind\":\"APIResourceList\",\"groupVersion\":\"v1\",\"resources\":[{\"name\":"]);
    in_order(&core, &["\"singularName\":", "\"namespaced\":", "\"kind\":", "\"verbs\":", "\"shortNames\":"]);
    assert!(
        api.get("/apis")
            .await
            .text
            .starts_with(r#"{"kind":"APIGroupList","apiVersion":"v1","groups":[{"name":"#)
    );
    assert!(api.get("/api").await.text.starts_with(r#"{"kind":"APIVersions","versions":["v1"],"#));
    let table = api.get_as(TABLE, maps).await.text;
    assert!(table.starts_with(r#"{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{"#), "{table}");
    in_order(
        &table,
        &[
            "\"columnDefinitions\":[{\"name\":",
            "\"rows\":[{\"cells\":",
            "\"object\":{\"kind\":",
            "\"apiVersion\":",
        ],
    );
    let pretty = api.get(&format!("{maps}/a?pretty=true")).await.text;
    assert!(pretty.starts_with("{\n  \"kind\": \"ConfigMap\",\n  \"apiVersion\": \"v1\",\n"), "{pretty}");
}

#[tokio::test(start_paused = true)]
async fn custom_resources_have_sorted_keys() {
    let api = Api::start().await;
    api.post(
        DEFINITIONS,
        definition(json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})),
    )
    .await
    .created();
    let mut object = foo("v1", "a", json!({"b": 1, "a": 2}));
    object["data"] = json!(1);
    object["metadata"]["labels"] = json!({"l": "v"});
    api.post(FOOS, object).await.created();
    let shown = api.get(&format!("{FOOS}/a")).await;
    let keys = [
        "{\"apiVersion\"",
        "\"data\"",
        "\"kind\"",
        "\"metadata\":{\"creationTimestamp\"",
        "\"generation\"",
        "\"labels\"",
        "\"managedFields\"",
        "\"name\":\"a\"",
        "\"namespace\"",
        "\"resourceVersion\"",
        "\"uid\"",
        "\"spec\":{\"a\"",
    ];
    in_order(&shown.text, &keys);
    let list = api.get(FOOS).await;
    assert_eq!(list.body["items"][0], shown.body);
    in_order(
        &list.text,
        &[
            "{\"apiVersion\":\"e.com/v1\",\"items\":[{\"apiVersion\"",
            "\"kind\":\"FooList\",\"metadata\":{\"continue\"",
        ],
    );
    let patched = api.merge(&format!("{FOOS}/a"), json!({"spec": {"c": 3}})).await;
    in_order(&patched.text, &keys);
    assert_ne!(patched.body["metadata"]["resourceVersion"], shown.body["metadata"]["resourceVersion"]);
}

/// Asserts that the parts occur in a text in this order.
#[track_caller]
fn in_order(text: &str, parts: &[&str]) {
    let mut rest = text;
    for part in parts {
        let at = rest.find(part).unwrap_or_else(|| panic!("{part} is not in the rest of {text}: {rest}"));
        rest = &rest[at + part.len()..];
    }
}

#[tokio::test(start_paused = true)]
async fn a_strategic_merge_patch_of_a_wrong_type_is_refused_in_the_words_of_the_converter() {
    let api = Api::start().await;
    api.config_map("a", json!({})).await;
    let path = "/api/v1/namespaces/default/configmaps/a";
    for (patch, shown, why) in [
        (json!({"data": {"k": 1}}), "map[data:map[k:1]]", "cannot convert int64 to string"),
        (json!({"data": "x"}), "map[data:x]", "cannot restore map from string"),
        (json!({"immutable": "x"}), "map[immutable:x]", "unrecognized type: bool"),
        (json!({"metadata": 1}), "map[metadata:1]", "cannot restore struct from: int64"),
    ] {
        let refused = api.patch("strategic-merge", path, patch).await;
        let message = format!(r#" "" is invalid: patch: Invalid value: {shown:?}: {why}"#);
        assert_eq!(refused.refusal(), (422, "Invalid", message.as_str()));
    }
}

/// An empty CA bundle is stored as one, and gone once the configuration has been through JSON.
#[tokio::test(start_paused = true)]
async fn the_first_patch_of_an_empty_ca_bundle_counts_in_the_generation() {
    let api = Api::start().await;
    for sort in ["mutating", "validating"] {
        let path = format!("/apis/admissionregistration.k8s.io/v1/{sort}webhookconfigurations");
        let webhook = |bundle: Value| {
            let mut client = json!({"service": {"namespace": "n", "name": "s"}});
            client.as_object_mut().unwrap().extend(bundle.as_object().unwrap().clone());
            json!({"name": "a.b.c", "clientConfig": client, "sideEffects": "None", "admissionReviewVersions": ["v1"]})
        };
        let empty = json!([webhook(json!({"caBundle": ""}))]);
        let made = api.post(&path, json!({"metadata": {"name": "a"}, "webhooks": empty})).await.created();
        let client = json!({"service": {"namespace": "n", "name": "s", "port": 443}});
        assert_eq!(
            (&made["metadata"]["generation"], &made["webhooks"][0]["clientConfig"]),
            (&json!(1), &client)
        );
        assert!(!made["metadata"]["managedFields"].to_string().contains("caBundle"));
        let one = format!("{path}/a");
        assert_eq!(api.get(&one).await.ok()["webhooks"][0]["clientConfig"], client);
        assert_eq!(api.get(&path).await.ok()["items"][0]["webhooks"][0]["clientConfig"], client);
        // The same again is no change.
        let mut same = made.clone();
        same["webhooks"][0]["clientConfig"]["caBundle"] = "".into();
        assert_eq!(
            api.put(&one, same).await.ok()["metadata"]["resourceVersion"],
            made["metadata"]["resourceVersion"]
        );
        let label = |value: &str| json!({"metadata": {"labels": {"x": value}}});
        assert_eq!(api.merge(&one, label("1")).await.ok()["metadata"]["generation"], 2);
        assert_eq!(api.merge(&one, label("2")).await.ok()["metadata"]["generation"], 2);
        let full = json!({"metadata": {"name": "b"}, "webhooks": [webhook(json!({}))]});
        api.post(&path, full).await.created();
        assert_eq!(api.merge(&format!("{path}/b"), label("1")).await.ok()["metadata"]["generation"], 1);
    }
}
