//! Plugins that a file configures: PodSecurity and ResourceQuota.

use serde_json::{Value, json};
use setpoint_apiserver::admission::{AdmissionConfiguration, configured_plugins};
use setpoint_apiserver::{Config, User};

use crate::client::Api;
use crate::extension::Temporary;

/// A server with one configured plugin.
async fn with_plugin(name: &str, configuration: Value) -> Api {
    let file = json!({"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AdmissionConfiguration",
        "plugins": [{"name": name, "configuration": configuration}]});
    let file = Temporary::new(&file.to_string());
    let configuration = AdmissionConfiguration::load(&file.path()).unwrap();
    let configured = |config: Config| {
        let admission = configured_plugins(&[], &[], &configuration).unwrap();
        Config { admission, ..config }
    };
    let api = Api::start_changed(configured).await;
    api.default_service_account().await;
    api
}

async fn with_pod_security(other: Value) -> Api {
    let mut configuration =
        json!({"apiVersion": "pod-security.admission.config.k8s.io/v1", "kind": "PodSecurityConfiguration"});
    configuration.as_object_mut().unwrap().extend(other.as_object().unwrap().clone());
    with_plugin("PodSecurity", configuration).await
}

async fn with_limits(limited: Value) -> Api {
    let configuration = json!({"apiVersion": "apiserver.config.k8s.io/v1", "kind": "ResourceQuotaConfiguration",
        "limitedResources": limited});
    with_plugin("ResourceQuota", configuration).await
}

const PODS: &str = "/api/v1/namespaces/default/pods";

fn privileged(name: &str, other: Value) -> Value {
    let container = json!({"name": "c", "image": "i", "securityContext": {"privileged": true}});
    let mut spec = json!({"containers": [container]});
    spec.as_object_mut().unwrap().extend(other.as_object().unwrap().clone());
    json!({"metadata": {"name": name}, "spec": spec})
}

#[tokio::test(start_paused = true)]
async fn namespaces_without_labels_have_the_configured_level() {
    let api = with_pod_security(
        json!({"defaults": {"enforce": "baseline", "enforce-version": "v1.30", "warn": "restricted"}}),
    )
    .await;
    let refused = api.post(PODS, privileged("a", json!({}))).await;
    assert!(refused.refusal().2.contains("violates PodSecurity \"baseline:v1.30\""), "{}", refused.text);
    let plain = json!({"metadata": {"name": "b"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let warned = api.post(PODS, plain).await;
    assert!(
        warned.code == 201
            && warned.warnings[0].contains("would violate PodSecurity \\\"restricted:latest\\\""),
        "{:?}",
        warned.warnings
    );
    let labels = json!({"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "privileged"}}});
    api.merge("/api/v1/namespaces/default", labels).await.ok();
    api.post(PODS, privileged("a", json!({}))).await.created();
}

#[tokio::test(start_paused = true)]
async fn users_namespaces_and_runtime_classes_are_exempt() {
    let mut api = with_pod_security(json!({"defaults": {"enforce": "restricted"}, "exemptions": {
        "usernames": ["ann"], "namespaces": ["free"], "runtimeClasses": ["sandbox"]}}))
    .await;
    assert_eq!(api.post(PODS, privileged("a", json!({}))).await.code, 403);
    api.post("/apis/node.k8s.io/v1/runtimeclasses", json!({"metadata": {"name": "sandbox"}, "handler": "s"}))
        .await
        .created();
    api.post(PODS, privileged("a", json!({"runtimeClassName": "sandbox"}))).await.created();
    let labels = json!({"pod-security.kubernetes.io/enforce": "baseline"});
    let made = api.post("/api/v1/namespaces", json!({"metadata": {"name": "free", "labels": labels}})).await;
    let warning = "299 - \"namespace \\\"free\\\" is exempt from Pod Security, and the policy (enforce=baseline:latest) will be ignored\"";
    assert_eq!((made.code, made.warnings), (201, vec![warning.to_owned()]));
    api.post("/api/v1/namespaces/free/serviceaccounts", json!({"metadata": {"name": "default"}}))
        .await
        .created();
    api.post("/api/v1/namespaces/free/pods", privileged("a", json!({}))).await.created();
    api.user = User::authenticated("ann", "", vec!["system:masters".into()]);
    api.post(PODS, privileged("b", json!({}))).await.created();
}

#[tokio::test(start_paused = true)]
async fn limited_resources_need_a_quota() {
    let api = with_limits(json!([{"resource": "persistentvolumeclaims", "matchContains": [".storageclass.storage.k8s.io/requests.storage"]}])).await;
    let claims = "/api/v1/namespaces/default/persistentvolumeclaims";
    let claim = |name: &str, class: Value| {
        let mut spec =
            json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
        spec.as_object_mut().unwrap().extend(class.as_object().unwrap().clone());
        json!({"metadata": {"name": name}, "spec": spec})
    };
    api.post(claims, claim("plain", json!({"storageClassName": ""}))).await.created();
    let gold = json!({"storageClassName": "gold"});
    let refused = api.post(claims, claim("a", gold.clone())).await;
    let message = "persistentvolumeclaims \"a\" is forbidden: insufficient quota to consume: \
                   gold.storageclass.storage.k8s.io/requests.storage";
    assert_eq!(refused.refusal(), (403, "Forbidden", message));
    let hard = json!({"gold.storageclass.storage.k8s.io/requests.storage": "2Gi"});
    let quotas = "/api/v1/namespaces/default/resourcequotas";
    api.post(quotas, json!({"metadata": {"name": "q"}, "spec": {"hard": hard}})).await.created();
    let used = json!({"gold.storageclass.storage.k8s.io/requests.storage": "0"});
    api.merge(&format!("{quotas}/q/status"), json!({"status": {"hard": hard, "used": used}})).await.ok();
    api.post(claims, claim("a", gold)).await.created();
}

#[tokio::test(start_paused = true)]
async fn limited_scopes_need_a_quota_with_the_scope() {
    let scope = json!({"scopeName": "PriorityClass", "operator": "In", "values": ["high"]});
    let api = with_limits(json!([{"resource": "pods", "matchScopes": [scope]}])).await;
    api.post(
        "/apis/scheduling.k8s.io/v1/priorityclasses",
        json!({"metadata": {"name": "high"}, "value": 10}),
    )
    .await
    .created();
    let pod = |name: &str, class: &str| {
        json!({"metadata": {"name": name}, "spec": {
        "priorityClassName": class, "containers": [{"name": "c", "image": "i"}]}})
    };
    api.post(PODS, pod("low", "")).await.created();
    let refused = api.post(PODS, pod("a", "high")).await;
    let message = "insufficient quota to match these scopes: [{PriorityClass In [high]}]";
    assert_eq!((refused.code, refused.refusal().2), (500, message));
    let quotas = "/api/v1/namespaces/default/resourcequotas";
    let spec = json!({"hard": {"pods": "1"}, "scopeSelector": {"matchExpressions": [scope]}});
    api.post(quotas, json!({"metadata": {"name": "q"}, "spec": spec})).await.created();
    let status = json!({"status": {"hard": {"pods": "1"}, "used": {"pods": "0"}}});
    api.merge(&format!("{quotas}/q/status"), status).await.ok();
    api.post(PODS, pod("a", "high")).await.created();
    assert_eq!(api.post(PODS, pod("b", "high")).await.code, 403);
}
