//! Admission webhooks: when they are called, what they are sent, and how their responses are handled.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use setpoint_apiserver::Config;
use setpoint_apiserver::egress::EgressConfig;
use setpoint_apiserver::egress::in_process::{allow, deny, patch};

use crate::client::{Answer, Api};
use crate::extension::{Extension, Reply};

pub(crate) const MAPS: &str = "/api/v1/namespaces/default/configmaps";
pub(crate) const PODS: &str = "/api/v1/namespaces/default/pods";
const CONFIGURATIONS: &str = "/apis/admissionregistration.k8s.io/v1";

/// A server, and the extension that all webhooks call.
pub(crate) struct Hooked {
    pub(crate) api: Api,
    pub(crate) extension: Extension,
}

impl Hooked {
    /// Responds by the path of the webhook.
    pub(crate) async fn start(answer: impl Fn(&str, &Value) -> Value + Send + Sync + 'static) -> Self {
        Self::start_with(Extension::new(move |path, review| Reply::Json(answer(path, review)))).await
    }

    pub(crate) async fn start_with(extension: Extension) -> Self {
        Self::start_changed(extension, |config| config).await
    }

    pub(crate) async fn start_changed(extension: Extension, change: impl FnOnce(Config) -> Config) -> Self {
        let dial = Arc::new(extension.clone());
        let with_dial = |config: Config| {
            let egress = EgressConfig { dial, ..config.egress.clone() };
            Config { egress, ..config }
        };
        let api = Api::start_changed(|config| change(with_dial(config))).await;
        Self { api, extension }
    }

    /// Returns a webhook at this path, for ConfigMaps unless `other` overrides the rules.
    pub(crate) fn webhook(&self, path: &str, other: Value) -> Value {
        let name = path.trim_matches('/').replace('/', "-");
        let mut webhook = json!({
            "name": format!("{name}.hook.example"),
            "clientConfig": {
                "url": format!("https://ext.example{path}"),
                "caBundle": STANDARD.encode(&self.extension.authority),
            },
            "rules": [rule("", "configmaps", &["*"])],
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
        });
        webhook.as_object_mut().unwrap().extend(other.as_object().unwrap().clone());
        webhook
    }

    pub(crate) async fn configure(&self, sort: &str, name: &str, webhooks: &[Value]) -> Answer {
        let path = format!("{CONFIGURATIONS}/{sort}webhookconfigurations");
        self.api.post(&path, json!({"metadata": {"name": name}, "webhooks": webhooks})).await
    }

    /// Configures one validating webhook at `/v`.
    pub(crate) async fn validating(&self, other: Value) {
        self.configure("validating", "v", &[self.webhook("/v", other)]).await.created();
    }

    /// Configures one mutating webhook at `/m`.
    pub(crate) async fn mutating(&self, other: Value) {
        self.configure("mutating", "m", &[self.webhook("/m", other)]).await.created();
    }

    /// Returns the requests of the reviews so far.
    pub(crate) fn reviews(&self) -> Vec<Value> {
        self.extension.take().into_iter().map(|(_, mut review)| review["request"].take()).collect()
    }

    /// Returns the paths called so far.
    pub(crate) fn called(&self) -> Vec<String> {
        self.extension.take().into_iter().map(|(path, _)| path).collect()
    }

    /// Returns the only review so far.
    #[track_caller]
    pub(crate) fn review(&self) -> Value {
        let mut reviews = self.reviews();
        assert_eq!(reviews.len(), 1, "{reviews:?}");
        reviews.remove(0)
    }
}

pub(crate) fn rule(group: &str, resource: &str, operations: &[&str]) -> Value {
    json!({"apiGroups": [group], "apiVersions": ["*"], "resources": [resource], "operations": operations})
}

pub(crate) fn map(name: &str) -> Value {
    json!({"metadata": {"name": name}, "data": {"k": "v"}})
}

pub(crate) fn pod(name: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {
        "containers": [{"name": "c", "image": "i"}], "automountServiceAccountToken": false}})
}

#[tokio::test(start_paused = true)]
async fn a_webhook_sees_the_request_with_its_object() {
    let hooked = Hooked::start(|_, review| allow(review)).await;
    hooked.validating(json!({})).await;
    hooked.api.post(&format!("{MAPS}?fieldManager=me&dryRun=All"), map("a")).await.created();
    let heads = hooked.extension.take_heads();
    assert_eq!(heads[0].uri.query(), Some("timeout=10s"));
    assert_eq!(heads[0].headers["user-agent"], "kube-apiserver-admission");
    assert_eq!(heads[0].headers["content-type"], "application/json");
    assert!(heads[0].headers.get("authorization").is_none());
    let mut request = hooked.review();
    let object = request["object"].take();
    assert_eq!(object["metadata"]["managedFields"][0]["manager"], "me");
    assert_eq!(
        (&object["kind"], &object["data"], &object["metadata"]["creationTimestamp"]),
        (&json!("ConfigMap"), &json!({"k": "v"}), &json!("2025-01-01T00:00:00Z"))
    );
    request["uid"].take();
    let of_kind = json!({"group": "", "version": "v1", "kind": "ConfigMap"});
    let resource = json!({"group": "", "version": "v1", "resource": "configmaps"});
    let expected = json!({
        "uid": null, "object": null, "oldObject": null,
        "kind": of_kind, "resource": resource, "requestKind": of_kind, "requestResource": resource,
        "name": "a", "namespace": "default", "operation": "CREATE", "dryRun": true,
        "userInfo": {"username": "admin", "uid": "1", "groups": ["system:masters", "system:authenticated"]},
        "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1", "dryRun": ["All"], "fieldManager": "me"},
    });
    assert_eq!(request, expected);
}

#[tokio::test(start_paused = true)]
async fn a_denial_is_the_webhooks_own_status() {
    let status = json!({"code": 418, "reason": "Teapot", "message": "short",
        "metadata": {"resourceVersion": "7", "remainingItemCount": 3},
        "details": {"name": "x", "causes": [{"field": "f", "message": "m", "reason": "r"}]}});
    let answer = status.clone();
    let hooked = Hooked::start(move |_, review| {
        let mut denied = deny(review, "");
        denied["response"]["status"] = answer.clone();
        denied["response"]["warnings"] = json!(["careful", "", "bell\u{7}", "careful"]);
        denied
    })
    .await;
    hooked.validating(json!({})).await;
    let refused = hooked.api.post(MAPS, map("a")).await;
    assert_eq!(refused.warnings, ["299 - \"careful\""]);
    let message = "admission webhook \"v.hook.example\" denied the request: short";
    assert_eq!(refused.refusal(), (418, "Teapot", message));
    assert_eq!(refused.body["details"], status["details"]);
    assert_eq!(refused.body["metadata"], status["metadata"]);
    assert_eq!(hooked.api.get(&format!("{MAPS}/a")).await.code, 404);
}

/// Denies every request with this status.
async fn denying(status: Value) -> Answer {
    let hooked = Hooked::start(move |_, review| {
        let mut denied = deny(review, "");
        denied["response"]["status"] = status.clone();
        denied
    })
    .await;
    hooked.validating(json!({})).await;
    hooked.api.post(MAPS, map("a")).await
}

#[tokio::test(start_paused = true)]
async fn a_denial_is_passed_on_with_a_status_of_its_own() {
    let details = json!({"retryAfterSeconds": 100_000});
    let denied = denying(json!({"status": "Denied", "code": 403, "details": details})).await;
    let message = "admission webhook \"v.hook.example\" denied the request without explanation";
    assert_eq!(denied.refusal(), (403, "", message));
    assert_eq!((&denied.body["status"], &denied.body["details"]), (&json!("Denied"), &details));
    let success = denying(json!({"status": "Success"})).await;
    assert_eq!((success.code, &success.body["status"]), (400, &json!("Failure")));
}

#[tokio::test(start_paused = true)]
async fn a_denial_with_a_field_of_another_type_is_a_failed_call() {
    let failed = denying(json!({"code": "403", "message": "no"})).await;
    let why = "Internal error occurred: failed calling webhook \"v.hook.example\": failed to call webhook: json: \
               cannot unmarshal string into Go struct field Status.response.status.code of type int32";
    assert_eq!(failed.refusal(), (500, "InternalError", why));
}

#[tokio::test(start_paused = true)]
async fn validating_webhooks_run_concurrently_and_all_results_count() {
    let hooked = Hooked::start(|path, review| {
        let mut answer = if path == "/b" { deny(review, "no") } else { allow(review) };
        answer["response"]["warnings"] = json!([path]);
        answer
    })
    .await;
    let webhooks = ["/a", "/b", "/c"].map(|path| hooked.webhook(path, json!({})));
    hooked.configure("validating", "v", &webhooks).await.created();
    let refused = hooked.api.post(MAPS, map("a")).await;
    assert_eq!(refused.refusal().2, "admission webhook \"b.hook.example\" denied the request: no");
    assert_eq!(refused.warnings.len(), 3);
}

#[tokio::test(start_paused = true)]
async fn rules_and_selectors_choose_requests() {
    let hooked = Hooked::start(|_, review| allow(review)).await;
    let labels = json!({"t": "1"});
    let namespace = json!({"metadata": {"name": "chosen", "labels": labels}});
    hooked.api.post("/api/v1/namespaces", namespace).await.created();
    let class = json!({"metadata": {"name": "class"}, "value": 1});
    let selected = json!({"matchLabels": {"t": "1"}});
    let scoped = |scope: &str| {
        json!({"rules": [{"apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"], "operations": ["CREATE"],
            "scope": scope}]})
    };
    let everything = json!({"rules": [rule("*", "*", &["*"])], "namespaceSelector": selected});
    let classes = "/apis/scheduling.k8s.io/v1/priorityclasses";
    let mut labelled = map("a");
    labelled["metadata"]["labels"] = labels.clone();
    for (webhook, path, body, expected) in [
        (json!({}), MAPS, map("a"), 1),
        (json!({"rules": []}), MAPS, map("a"), 0),
        (json!({"rules": [rule("", "configmaps", &["UPDATE"])]}), MAPS, map("a"), 0),
        (json!({"rules": [rule("", "configmaps/*", &["*"])]}), MAPS, map("a"), 1),
        (json!({"rules": [rule("", "configmaps/status", &["*"])]}), MAPS, map("a"), 0),
        (json!({"rules": [rule("apps", "*", &["*"])]}), MAPS, map("a"), 0),
        (scoped("Namespaced"), MAPS, map("a"), 1),
        (scoped("Cluster"), MAPS, map("a"), 0),
        (scoped("Cluster"), classes, class.clone(), 1),
        (scoped("Namespaced"), classes, class.clone(), 0),
        (json!({"objectSelector": selected}), MAPS, map("a"), 0),
        (json!({"objectSelector": selected}), MAPS, labelled, 1),
        (json!({"namespaceSelector": selected}), MAPS, map("a"), 0),
        (json!({"namespaceSelector": selected}), "/api/v1/namespaces/chosen/configmaps", map("a"), 1),
        (everything.clone(), classes, class.clone(), 1),
        (everything.clone(), "/api/v1/namespaces", json!({"metadata": {"name": "n", "labels": labels}}), 1),
        (everything, "/api/v1/namespaces", json!({"metadata": {"name": "o"}}), 0),
    ] {
        let configured = hooked.configure("validating", "v", &[hooked.webhook("/v", webhook.clone())]).await;
        configured.created();
        hooked.api.post(&format!("{path}?dryRun=All"), body.clone()).await.created();
        assert_eq!(hooked.reviews().len(), expected, "{webhook} {path} {body}");
        hooked.api.delete(&format!("{CONFIGURATIONS}/validatingwebhookconfigurations/v")).await.ok();
    }
}

#[tokio::test(start_paused = true)]
async fn an_object_is_shown_in_the_version_of_the_rule() {
    let hooked = Hooked::start(|_, review| {
        patch(review, &json!([{"op": "replace", "path": "/spec/maxReplicas", "value": 7}]))
    })
    .await;
    let rules = json!([{"apiGroups": ["autoscaling"], "apiVersions": ["v2"],
        "resources": ["horizontalpodautoscalers"], "operations": ["CREATE"]}]);
    let target = json!({"kind": "Deployment", "name": "d", "apiVersion": "apps/v1"});
    let scaler = |name: &str| json!({"metadata": {"name": name}, "spec": {"maxReplicas": 2, "scaleTargetRef": target}});
    let path = "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers";
    hooked.mutating(json!({"rules": rules.clone()})).await;
    let created = hooked.api.post(path, scaler("a")).await.created();
    assert_eq!(
        (&created["apiVersion"], &created["spec"]["maxReplicas"]),
        (&json!("autoscaling/v1"), &json!(7))
    );
    let request = hooked.review();
    assert_eq!(request["object"]["apiVersion"], "autoscaling/v2");
    assert_eq!(
        (&request["kind"]["version"], &request["requestKind"]["version"]),
        (&json!("v2"), &json!("v1"))
    );
    let exact = json!({"webhooks": [hooked.webhook("/m", json!({"rules": rules, "matchPolicy": "Exact"}))]});
    hooked.api.merge(&format!("{CONFIGURATIONS}/mutatingwebhookconfigurations/m"), exact).await.ok();
    hooked.api.post(path, scaler("b")).await.created();
    assert_eq!(hooked.reviews().len(), 0);
}

pub(crate) fn widgets() -> Value {
    let schema = json!({"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object", "properties": {
        "size": {"type": "integer", "default": 3, "maximum": 9}, "color": {"type": "string"}}}}}});
    let version = |name: &str, storage: bool| {
        json!({"name": name, "served": true, "storage": storage, "schema": schema,
            "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size"}}})
    };
    json!({"metadata": {"name": "widgets.example.com"}, "spec": {
        "group": "example.com", "scope": "Namespaced",
        "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
        "versions": [version("v1", true), version("v2", false)]}})
}

#[tokio::test(start_paused = true)]
async fn custom_resources_are_reviewed_in_any_version_and_pruned() {
    let hooked = Hooked::start(|path, review| match path {
        "/m" => patch(review, &json!([
            {"op": "add", "path": "/spec/color", "value": "blue"}, {"op": "add", "path": "/spec/taste", "value": "sour"},
            {"op": "remove", "path": "/spec/size"}])),
        _ => allow(review),
    })
    .await;
    hooked.api.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", widgets()).await.created();
    let rules = json!([{"apiGroups": ["example.com"], "apiVersions": ["v2"], "resources": ["widgets", "widgets/*"],
        "operations": ["*"]}]);
    hooked
        .mutating(json!({"rules": rules.clone(), "matchConditions": [
        {"name": "create", "expression": "request.operation == 'CREATE'"}]}))
        .await;
    hooked.validating(json!({"rules": rules})).await;
    let path = "/apis/example.com/v1/namespaces/default/widgets";
    let widget = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": {"size": 5}});
    let created = hooked.api.post(path, widget).await.created();
    assert_eq!(created["spec"], json!({"color": "blue", "size": 3}));
    let shown: Vec<_> =
        hooked.reviews().iter().map(|review| review["object"]["apiVersion"].clone()).collect();
    assert_eq!(shown, ["example.com/v2", "example.com/v2"]);
    hooked.api.merge(&format!("{path}/w/status"), json!({"status": {"size": 1}})).await.ok();
    hooked.api.merge(&format!("{path}/w/scale"), json!({"spec": {"replicas": 4}})).await.ok();
    hooked.api.delete(&format!("{path}/w")).await.ok();
    let reviews = hooked.reviews();
    let summary = |review: &Value| {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        format!(
            "{} {} {}",
            text(&review["operation"]),
            text(&review["kind"]["kind"]),
            text(&review["subResource"])
        )
    };
    let summaries: Vec<String> = reviews.iter().map(summary).collect();
    assert_eq!(summaries, ["UPDATE Widget status", "UPDATE Scale scale", "DELETE Widget "]);
    assert_eq!(reviews[1]["object"]["spec"]["replicas"], 4);
}

#[tokio::test(start_paused = true)]
async fn match_conditions_exclude_requests_and_fail_closed() {
    let hooked = Hooked::start(|_, review| allow(review)).await;
    let condition = |expression: &str| json!({"name": "c", "expression": expression});
    let broken = "object.data.none == 'x'";
    for (conditions, policy, expected) in [
        (
            vec!["object.metadata.name == 'a'", "request.userInfo.username == 'admin'", "oldObject == null"],
            "Fail",
            Ok(1),
        ),
        (vec!["object.metadata.name == 'b'"], "Fail", Ok(0)),
        (vec![broken], "Ignore", Ok(0)),
        (vec![broken, "false"], "Fail", Ok(0)),
        (vec!["!authorizer.group('').resource('configmaps').check('breakglass').allowed()"], "Fail", Ok(0)),
        (vec!["authorizer.requestResource.check('create').allowed()"], "Fail", Ok(1)),
        (
            vec![broken],
            "Fail",
            Err(
                "configmaps \"a\" is forbidden: expression 'object.data.none == 'x'' resulted in error: no such key: none",
            ),
        ),
    ] {
        let mut written: Vec<Value> = conditions.iter().map(|one| condition(one)).collect();
        for (index, one) in written.iter_mut().enumerate() {
            one["name"] = format!("c{index}").into();
        }
        let webhook = hooked.webhook("/v", json!({"matchConditions": written, "failurePolicy": policy}));
        hooked.configure("validating", "v", &[webhook]).await.created();
        let answer = hooked.api.post(&format!("{MAPS}?dryRun=All"), map("a")).await;
        match expected {
            Ok(calls) => {
                answer.created();
                assert_eq!(hooked.reviews().len(), calls, "{conditions:?}");
            }
            Err(message) => assert_eq!(answer.refusal(), (403, "Forbidden", message)),
        }
        hooked.api.delete(&format!("{CONFIGURATIONS}/validatingwebhookconfigurations/v")).await.ok();
    }
}

#[tokio::test(start_paused = true)]
async fn deletions_are_reviewed_by_both_sorts() {
    let hooked = Hooked::start(|_, review| match review["request"]["name"].as_str() {
        Some("kept") => deny(review, "stays"),
        Some("patched") => patch(review, &json!([{"op": "add", "path": "/data", "value": {}}])),
        _ => allow(review),
    })
    .await;
    for name in ["gone", "kept", "patched"] {
        hooked.api.config_map(name, json!({})).await;
    }
    hooked.validating(json!({"rules": [rule("", "*", &["DELETE"])]})).await;
    hooked.mutating(json!({"rules": [rule("", "*", &["DELETE"])]})).await;
    let options = json!({"gracePeriodSeconds": 3, "propagationPolicy": "Background"});
    hooked.api.delete_with(&format!("{MAPS}/gone"), options).await.ok();
    let [mutating, validating] = hooked.reviews().try_into().unwrap();
    assert_eq!((&mutating["object"], &mutating["oldObject"]["data"]["k"]), (&Value::Null, &json!("v")));
    assert_eq!(
        validating["options"],
        json!({"kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1",
        "gracePeriodSeconds": 3, "propagationPolicy": "Background"})
    );
    assert_eq!(hooked.api.delete(&format!("{MAPS}/kept")).await.refusal().0, 400);
    let patched = hooked.api.delete(&format!("{MAPS}/patched")).await;
    let message = "Internal error occurred: admission webhook \"m.hook.example\" attempted to modify the object, which is not supported for this operation";
    assert_eq!(patched.refusal(), (500, "InternalError", message));
    hooked.reviews();
    // A collection has one review per object, without a name.
    hooked.api.delete(MAPS).await.ok();
    let reviews = hooked.reviews();
    assert_eq!(reviews.len(), 4);
    assert!(reviews.iter().all(|review| review.get("name").is_none() && !review["oldObject"].is_null()));
    hooked.api.post("/api/v1/namespaces", json!({"metadata": {"name": "n"}})).await.created();
    hooked.api.delete("/api/v1/namespaces/n").await.ok();
    let review = hooked.reviews().remove(0);
    assert_eq!(review["namespace"], "n");
    assert_eq!(review["options"]["preconditions"]["uid"], review["oldObject"]["metadata"]["uid"]);
}

#[tokio::test(start_paused = true)]
async fn subresources_are_reviewed_as_their_own_kinds() {
    let hooked = Hooked::start(|path, review| match (path, review["request"]["subResource"].as_str()) {
        ("/m", Some("scale")) => {
            patch(review, &json!([{"op": "replace", "path": "/spec/replicas", "value": 9}]))
        }
        _ => allow(review),
    })
    .await;
    let everything = json!({"rules": [rule("*", "*/*", &["*"])]});
    hooked.api.default_service_account().await;
    hooked.api.post(PODS, pod("a")).await.created();
    let template =
        json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let deployment = json!({"metadata": {"name": "d"}, "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template}});
    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    hooked.api.post(deployments, deployment).await.created();
    hooked.mutating(everything.clone()).await;
    hooked.validating(everything).await;
    let scaled =
        hooked.api.merge(&format!("{deployments}/d/scale"), json!({"spec": {"replicas": 5}})).await.ok();
    assert_eq!(scaled["spec"]["replicas"], 9);
    let [first, second] = hooked.reviews().try_into().unwrap();
    assert_eq!(first["kind"], json!({"group": "autoscaling", "version": "v1", "kind": "Scale"}));
    assert_eq!(
        (&first["resource"]["resource"], &first["subResource"]),
        (&json!("deployments"), &json!("scale"))
    );
    assert_eq!(
        (&second["object"]["spec"]["replicas"], &second["oldObject"]["spec"]["replicas"]),
        (&json!(9), &json!(1))
    );
    let binding = json!({"metadata": {"name": "a"}, "target": {"name": "n"}});
    hooked.api.post(&format!("{PODS}/a/binding"), binding).await.created();
    let review = hooked.reviews().remove(0);
    assert_eq!((&review["operation"], &review["kind"]["kind"]), (&json!("CREATE"), &json!("Binding")));
    hooked.api.merge(&format!("{PODS}/a/status"), json!({"status": {"reason": "r"}})).await.ok();
    let review = hooked.reviews().remove(0);
    assert_eq!((&review["operation"], &review["kind"]["kind"]), (&json!("UPDATE"), &json!("Pod")));
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "a"}});
    hooked.api.post(&format!("{PODS}/a/eviction"), eviction).await.created();
    let reviews = hooked.reviews();
    assert_eq!(reviews.len(), 2, "the deletion that follows is not reviewed");
    assert_eq!(reviews[1]["kind"], json!({"group": "policy", "version": "v1", "kind": "Eviction"}));
}

#[tokio::test(start_paused = true)]
async fn connections_are_reviewed_before_anything_else() {
    let hooked = Hooked::start(|_, review| deny(review, "no")).await;
    hooked.validating(json!({"rules": [rule("", "*/*", &["CONNECT"])]})).await;
    for (path, kind, options) in [
        (
            "pods/none/exec?command=a&command=b&stdin=true&tty=false&container=c",
            "PodExecOptions",
            json!({"command": ["a", "b"], "stdin": true, "container": "c"}),
        ),
        ("pods/none/attach?stdin=1", "PodAttachOptions", json!({"stdin": true})),
        ("pods/none/portforward?ports=80,81", "PodPortForwardOptions", json!({"ports": [80, 81]})),
        ("services/none/proxy/some/path/?x=y", "ServiceProxyOptions", json!({"path": "/some/path/"})),
        ("pods/none/proxy", "PodProxyOptions", json!({})),
    ] {
        let refused = hooked.api.get(&format!("/api/v1/namespaces/default/{path}")).await;
        assert_eq!(
            refused.refusal().2,
            "admission webhook \"v.hook.example\" denied the request: no",
            "{path}"
        );
        let review = hooked.review();
        let mut expected = json!({"apiVersion": "v1", "kind": kind});
        expected.as_object_mut().unwrap().extend(options.as_object().unwrap().clone());
        assert_eq!(review["object"], expected, "{path}");
        assert_eq!((&review["operation"], &review["options"]), (&json!("CONNECT"), &Value::Null));
    }
    hooked.api.get(&format!("{PODS}/none/log")).await;
    assert_eq!(hooked.reviews().len(), 0, "a log is read, not connected to");
}

#[tokio::test(start_paused = true)]
async fn webhooks_are_called_for_reviews_but_not_for_webhook_configurations() {
    let hooked = Hooked::start(|_, review| deny(review, "never")).await;
    let everything = json!({"rules": [rule("*", "*", &["*"])]});
    hooked.validating(everything.clone()).await;
    hooked.mutating(everything).await;
    let path = format!("{CONFIGURATIONS}/validatingwebhookconfigurations");
    hooked.configure("validating", "other", &[]).await.created();
    let review = json!({"spec": {"nonResourceAttributes": {"path": "/x", "verb": "get"}}});
    let refused = hooked.api.post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", review).await;
    assert_eq!(refused.refusal().0, 400);
    hooked.api.delete(&format!("{path}/v")).await.ok();
    hooked.api.delete(&format!("{CONFIGURATIONS}/mutatingwebhookconfigurations/m")).await.ok();
    hooked.api.post(MAPS, map("a")).await.created();
}

#[tokio::test(start_paused = true)]
async fn a_configuration_applies_from_the_next_request() {
    let hooked = Hooked::start(|_, review| deny(review, "no")).await;
    let path = format!("{CONFIGURATIONS}/validatingwebhookconfigurations/v");
    hooked.api.post(MAPS, map("a")).await.created();
    hooked.validating(json!({})).await;
    assert_eq!(hooked.api.post(MAPS, map("b")).await.code, 400);
    let narrowed = json!({"webhooks": [hooked.webhook("/v", json!({"rules": []}))]});
    hooked.api.merge(&path, narrowed).await.ok();
    hooked.api.post(MAPS, map("b")).await.created();
    let widened = json!({"webhooks": [hooked.webhook("/v", json!({}))]});
    hooked.api.merge(&path, widened).await.ok();
    assert_eq!(hooked.api.post(MAPS, map("c")).await.code, 400);
    hooked.api.delete(&path).await.ok();
    hooked.api.post(MAPS, map("c")).await.created();
}

#[tokio::test(start_paused = true)]
async fn a_denial_ends_the_deletion_of_a_collection() {
    let hooked =
        Hooked::start(|_, review| match review["request"]["oldObject"]["metadata"]["name"].as_str() {
            Some("b") => deny(review, "stays"),
            _ => allow(review),
        })
        .await;
    for name in ["a", "b", "c", "d"] {
        hooked.api.config_map(name, json!({})).await;
    }
    hooked.validating(json!({"rules": [rule("", "configmaps", &["DELETE"])]})).await;
    assert_eq!(hooked.api.delete(MAPS).await.code, 400);
    let list = hooked.api.get(MAPS).await.ok();
    assert_eq!(crate::client::names(&list), ["b", "c", "d"]);
}

#[tokio::test(start_paused = true)]
async fn warnings_that_are_too_long_together_are_cut() {
    for (length, count, expected) in [(300, 1, (1, 300)), (243, 20, (17, 243)), (303, 20, (16, 256))] {
        let hooked = Hooked::start(move |_, review| {
            let mut answer = allow(review);
            let warnings = (0..count).map(|number| format!("{number:02}{}", "é".repeat(length - 2)));
            answer["response"]["warnings"] = warnings.collect::<Vec<_>>().into();
            answer
        })
        .await;
        hooked.validating(json!({})).await;
        let created = hooked.api.post(MAPS, map("a")).await;
        let characters = created.warnings[0].chars().count() - "299 - \"\"".len();
        assert_eq!((created.warnings.len(), characters), expected, "{count} of {length}");
    }
}

/// v1.34 marks such a pod first and removes it then, and both are deletions.
#[tokio::test(start_paused = true)]
async fn a_pod_deleted_without_grace_is_reviewed_when_it_is_marked_and_when_it_is_removed() {
    let hooked = Hooked::start(|_, review| allow(review)).await;
    hooked.api.default_service_account().await;
    hooked.validating(json!({"rules": [rule("", "pods", &["DELETE"])]})).await;
    hooked.api.post(PODS, pod("a")).await.created();
    hooked.api.delete(&format!("{PODS}/a?dryRun=All")).await.ok();
    assert_eq!(hooked.reviews().len(), 1);
    hooked.api.delete(&format!("{PODS}/a")).await.ok();
    let [marked, removed] = hooked.reviews().try_into().unwrap();
    let metadata = |review: &Value| review["oldObject"]["metadata"].clone();
    assert_eq!(metadata(&marked).get("deletionTimestamp"), None);
    assert_eq!(metadata(&removed)["deletionGracePeriodSeconds"], 0);
    // The pod is on no node, so there is nothing to wait for.
    assert_eq!(
        (&marked["options"]["gracePeriodSeconds"], &removed["options"]),
        (&json!(0), &marked["options"])
    );
    let mut placed = pod("b");
    placed["spec"]["nodeName"] = "n".into();
    hooked.api.post(PODS, placed).await.created();
    hooked.api.delete(&format!("{PODS}/b")).await.ok();
    assert_eq!(hooked.review()["options"]["gracePeriodSeconds"], 30);
    hooked.api.delete(&format!("{PODS}/b?gracePeriodSeconds=0")).await.ok();
    assert_eq!(hooked.reviews().len(), 2);
}
