//! Reviews of users and permissions, and service account tokens.

use http::Method;
use serde_json::{Value, json};
use setpoint_apiserver::{TokenSigner, User};
use std::time::Duration;

use crate::client::Api;

const AUTHENTICATION: &str = "/apis/authentication.k8s.io/v1";
const AUTHORIZATION: &str = "/apis/authorization.k8s.io/v1";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const TOKENS: &str = "/api/v1/namespaces/default/serviceaccounts/default/token";

/// Starts a server with RBAC, and a key to sign tokens.
pub(crate) async fn start() -> (Api, TokenSigner) {
    let signer = TokenSigner::from_pem(&TokenSigner::generate_key().unwrap()).unwrap();
    let api = Api::start_with_tokens(signer.clone()).await;
    api.default_service_account().await;
    (api, signer)
}

/// Returns the user of a token. Lets time pass first, so that cached results expire.
pub(crate) async fn whose(api: &Api, token: &str) -> Value {
    tokio::time::sleep(Duration::from_secs(10)).await;
    let review = json!({"spec": {"token": token}});
    api.post(&format!("{AUTHENTICATION}/tokenreviews"), review).await.created()["status"].clone()
}

#[tokio::test(start_paused = true)]
async fn a_self_subject_review_returns_the_user() {
    let (mut api, _) = start().await;
    api.user = User::authenticated("ann", "7", vec!["dev".into()]);
    let path = format!("{AUTHENTICATION}/selfsubjectreviews");
    let response = api.post(&path, json!({})).await.created();
    let expected = json!({"username": "ann", "uid": "7", "groups": ["dev", "system:authenticated"]});
    assert_eq!(response["status"]["userInfo"], expected);
    assert_eq!(api.get(&path).await.code, 403);
}

#[tokio::test(start_paused = true)]
async fn users_review_their_own_access_and_admins_that_of_others() {
    let (mut api, _) = start().await;
    let rules = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]);
    let role = json!({"metadata": {"name": "r"}, "rules": rules});
    api.post(&format!("{RBAC}/namespaces/default/roles"), role).await.created();
    let binding = json!({
        "metadata": {"name": "b"},
        "roleRef": {"kind": "Role", "name": "r"},
        "subjects": [{"kind": "User", "name": "ann"}],
    });
    api.post(&format!("{RBAC}/namespaces/default/rolebindings"), binding).await.created();
    let asked = |verb: &str| json!({"verb": verb, "resource": "pods", "namespace": "default"});
    let by = "RBAC: allowed by RoleBinding \"b/default\" of Role \"r\" to User \"ann\"";
    for (verb, expected) in
        [("get", json!({"allowed": true, "reason": by})), ("delete", json!({"allowed": false}))]
    {
        let review = json!({"spec": {"user": "ann", "resourceAttributes": asked(verb)}});
        let path = format!("{AUTHORIZATION}/subjectaccessreviews");
        assert_eq!(api.post(&path, review.clone()).await.created()["status"], expected);
        let path = format!("{AUTHORIZATION}/namespaces/default/localsubjectaccessreviews");
        assert_eq!(api.post(&path, review).await.created()["status"], expected);
    }
    api.user = User::authenticated("ann", "", Vec::new());
    let review = json!({"spec": {"resourceAttributes": asked("get")}});
    let path = format!("{AUTHORIZATION}/selfsubjectaccessreviews");
    assert_eq!(api.post(&path, review).await.created()["status"]["allowed"], true);
    let path = format!("{AUTHORIZATION}/selfsubjectrulesreviews");
    let response = api.post(&path, json!({"spec": {"namespace": "default"}})).await.created();
    assert!(response["status"]["resourceRules"].as_array().unwrap().contains(&rules[0]), "{response}");
    assert_eq!(response["status"]["nonResourceRules"].as_array().unwrap().len(), 2, "{response}");
    let others = json!({"spec": {"user": "bob", "resourceAttributes": asked("get")}});
    assert_eq!(api.post(&format!("{AUTHORIZATION}/subjectaccessreviews"), others).await.code, 403);
}

#[tokio::test(start_paused = true)]
async fn an_incomplete_review_is_rejected() {
    let (api, _) = start().await;
    let path = format!("{AUTHORIZATION}/subjectaccessreviews");
    let both = json!({"resourceAttributes": {}, "nonResourceAttributes": {}, "user": "a"});
    for (spec, field) in [
        (json!({"user": "a"}), "spec.resourceAttributes"),
        (json!({"resourceAttributes": {}}), "spec.user"),
        (both, "spec.nonResourceAttributes"),
    ] {
        let refused = api.post(&path, json!({"spec": spec})).await.expect(422);
        assert_eq!(refused["details"]["causes"][0]["field"], field);
    }
    let path = format!("{AUTHORIZATION}/namespaces/default/localsubjectaccessreviews");
    let elsewhere = json!({"spec": {"user": "a", "resourceAttributes": {"namespace": "other"}}});
    let refused = api.post(&path, elsewhere).await.expect(422);
    assert_eq!(refused["details"]["causes"][0]["field"], "spec.resourceAttributes.namespace");
}

#[tokio::test(start_paused = true)]
async fn a_requested_token_is_valid_until_it_expires() {
    let (api, _) = start().await;
    let made = api.post(TOKENS, json!({"spec": {"expirationSeconds": 600}})).await.created();
    assert_eq!(made["status"]["expirationTimestamp"], "2025-01-01T00:10:00Z");
    let token = made["status"]["token"].as_str().unwrap();
    let status = whose(&api, token).await;
    assert_eq!(status["authenticated"], true);
    assert_eq!(status["user"]["username"], "system:serviceaccount:default:default");
    let groups = ["system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated"];
    assert_eq!(status["user"]["groups"], json!(groups));
    tokio::time::sleep(Duration::from_secs(700)).await;
    let status = whose(&api, token).await;
    assert_eq!(status["error"], "[invalid bearer token, service account token has expired]");
    assert_eq!(api.post(TOKENS, json!({"spec": {"expirationSeconds": 1}})).await.code, 422);
}

#[tokio::test(start_paused = true)]
async fn a_request_for_a_token_names_the_account_it_is_sent_to_or_none() {
    let (api, _) = start().await;
    let named = |meta: Value| json!({"metadata": meta, "spec": {}});
    let refused = api.post(TOKENS, named(json!({"name": "other"}))).await.expect(422);
    assert_eq!(refused["details"]["causes"][0]["field"], "metadata.name");
    assert_eq!(api.post(TOKENS, named(json!({"namespace": "other"}))).await.code, 400);
    let made = api.post(TOKENS, named(json!({"name": "default", "namespace": "default"}))).await.created();
    assert_eq!(made["metadata"]["name"], "default");
}

#[tokio::test(start_paused = true)]
async fn a_token_is_for_its_audience_and_from_this_server() {
    let (api, _) = start().await;
    let made = api.post(TOKENS, json!({"spec": {"audiences": ["vault"]}})).await.created();
    let token = made["status"]["token"].as_str().unwrap();
    assert_eq!(whose(&api, token).await["authenticated"], Value::Null, "not for this server");
    let review = json!({"spec": {"token": token, "audiences": ["vault", "x"]}});
    let response = api.post(&format!("{AUTHENTICATION}/tokenreviews"), review).await.created();
    assert_eq!(response["status"]["audiences"], json!(["vault"]));
    let (elsewhere, _) = start().await;
    let foreign = elsewhere.post(TOKENS, json!({"spec": {}})).await.created();
    let status = whose(&api, foreign["status"]["token"].as_str().unwrap()).await;
    assert_eq!(status["error"], "[invalid bearer token, invalid signature]");
    assert_eq!(whose(&api, "nonsense").await["error"], "invalid bearer token");
}

#[tokio::test(start_paused = true)]
async fn a_token_is_invalid_once_its_bound_object_is_deleted() {
    let (api, _) = start().await;
    let pods = "/api/v1/namespaces/default/pods";
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    api.post(pods, pod.clone()).await.created();
    let bound = json!({"spec": {"boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "p"}}});
    let made = api.post(TOKENS, bound.clone()).await.created();
    let token = made["status"]["token"].as_str().unwrap();
    let response = whose(&api, token).await;
    assert_eq!(response["user"]["extra"]["authentication.kubernetes.io/pod-name"], json!(["p"]));
    api.delete_with(&format!("{pods}/p"), json!({"gracePeriodSeconds": 0})).await.ok();
    api.post(pods, pod).await.created();
    let error = whose(&api, token).await["error"].to_string();
    assert!(
        error.contains("does not match service account pod ref claim"),
        "another pod of this name: {error}"
    );
    let accounts = "/api/v1/namespaces/default/serviceaccounts/default";
    let made = api.post(TOKENS, bound).await.created();
    api.delete(accounts).await.ok();
    let status = whose(&api, made["status"]["token"].as_str().unwrap()).await;
    assert_eq!(status["authenticated"], Value::Null);
}

#[tokio::test(start_paused = true)]
async fn a_server_without_a_key_makes_no_tokens() {
    let api = Api::start().await;
    api.default_service_account().await;
    let refused = api.ask(Method::POST, TOKENS, &[], json!({"spec": {}}).to_string()).await;
    assert_eq!(refused.refusal().0, 503, "{}", refused.text);
}
