//! Legacy token Secrets, and the tracking of their use.

use std::time::Duration;

use base64::Engine;
use serde_json::{Value, json};
use setpoint_apiserver::TokenSigner;
use tokio_util::sync::CancellationToken;

use crate::client::Api;
use crate::reviews::{start, whose};

const ACCOUNT: &str = "/api/v1/namespaces/default/serviceaccounts/default";
const SECRETS: &str = "/api/v1/namespaces/default/secrets";
const RECORD: &str =
    "/api/v1/namespaces/kube-system/configmaps/kube-apiserver-legacy-service-account-token-tracking";
const LAST_USED: &str = "kubernetes.io/legacy-token-last-used";
const INVALID_SINCE: &str = "kubernetes.io/legacy-token-invalid-since";

/// Returns a token of the default account, as a Secret named `t` would contain it.
pub(crate) async fn token(api: &Api, signer: &TokenSigner) -> String {
    let account = api.get(ACCOUNT).await.ok();
    let claims = json!({
        "iss": "kubernetes/serviceaccount",
        "sub": "system:serviceaccount:default:default",
        "kubernetes.io/serviceaccount/namespace": "default",
        "kubernetes.io/serviceaccount/secret.name": "t",
        "kubernetes.io/serviceaccount/service-account.name": "default",
        "kubernetes.io/serviceaccount/service-account.uid": account["metadata"]["uid"],
    });
    signer.sign(&claims).unwrap()
}

/// Stores a token in a Secret named `t`.
pub(crate) async fn keep(api: &Api, token: &str) {
    let data = base64::engine::general_purpose::STANDARD.encode(token);
    api.post(SECRETS, json!({"metadata": {"name": "t"}, "data": {"token": data}})).await.created();
}

async fn labels(api: &Api) -> Value {
    api.get(&format!("{SECRETS}/t")).await.ok()["metadata"]["labels"].clone()
}

#[tokio::test(start_paused = true)]
async fn a_secret_token_is_valid_until_its_secret_is_deleted() {
    let (api, signer) = start().await;
    let token = token(&api, &signer).await;
    let invalidated = "[invalid bearer token, Token has been invalidated]";
    assert_eq!(whose(&api, &token).await["error"], invalidated);
    keep(&api, &token).await;
    assert_eq!(whose(&api, &token).await["authenticated"], true);
    api.delete(&format!("{SECRETS}/t")).await.ok();
    assert_eq!(whose(&api, &token).await["error"], invalidated);
}

#[tokio::test(start_paused = true)]
async fn the_day_a_token_was_last_used_is_written_on_its_secret_once_a_day() {
    let (api, signer) = start().await;
    let token = token(&api, &signer).await;
    keep(&api, &token).await;
    whose(&api, &token).await;
    assert_eq!(labels(&api).await[LAST_USED], "2025-01-01");
    let before = api.get(&format!("{SECRETS}/t")).await.ok()["metadata"]["resourceVersion"].clone();
    tokio::time::sleep(Duration::from_secs(3600)).await;
    whose(&api, &token).await;
    let after = api.get(&format!("{SECRETS}/t")).await.ok()["metadata"]["resourceVersion"].clone();
    assert_eq!(before, after, "the day has not changed");
    tokio::time::sleep(Duration::from_secs(24 * 3600)).await;
    whose(&api, &token).await;
    assert_eq!(labels(&api).await[LAST_USED], "2025-01-02");
}

#[tokio::test(start_paused = true)]
async fn an_invalidated_token_is_rejected_until_its_label_is_removed() {
    let (api, signer) = start().await;
    let token = token(&api, &signer).await;
    keep(&api, &token).await;
    let label = |value: Value| json!({"metadata": {"labels": {INVALID_SINCE: value}}});
    api.merge(&format!("{SECRETS}/t"), label(json!("2024-12-31"))).await.ok();
    let refused = whose(&api, &token).await;
    let why = "the token in secret default/t for service account default/default has been marked invalid.";
    assert!(refused["error"].as_str().unwrap().contains(why), "{refused}");
    assert_eq!(labels(&api).await[LAST_USED], "2025-01-01", "the token was still used");
    api.merge(&format!("{SECRETS}/t"), label(Value::Null)).await.ok();
    assert_eq!(whose(&api, &token).await["authenticated"], true);
}

#[tokio::test(start_paused = true)]
async fn only_tokens_made_for_their_account_are_discouraged() {
    let (api, signer) = start().await;
    let token = token(&api, &signer).await;
    keep(&api, &token).await;
    let review = json!({"spec": {"token": token}});
    let reviews = "/apis/authentication.k8s.io/v1/tokenreviews";
    assert_eq!(api.post(reviews, review.clone()).await.warnings, Vec::<String>::new());
    api.merge(ACCOUNT, json!({"secrets": [{"name": "t"}]})).await.ok();
    tokio::time::sleep(Duration::from_secs(10)).await;
    let warned = api.post(reviews, review).await.warnings;
    assert!(warned[0].contains("instead of auto-generated secret-based tokens"), "{warned:?}");
    let measured = api.get("/metrics").await.text;
    for name in ["auto", "manual"] {
        assert!(measured.contains(&format!("serviceaccount_legacy_{name}_token_uses_total 1\n")), "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_tracking_start_date_is_recorded_and_recreated() {
    let (api, _) = start().await;
    assert_eq!(api.get(RECORD).await.ok()["data"], json!({"since": "2025-01-01"}));
    let stop = CancellationToken::new();
    let (server, ending) = (api.server.clone(), stop.clone());
    let maintaining = tokio::spawn(async move { server.maintain(ending).await });
    tokio::time::sleep(Duration::from_secs(24 * 3600)).await;
    api.merge(RECORD, json!({"data": {"since": "long ago", "more": "x"}})).await.ok();
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(api.get(RECORD).await.ok()["data"], json!({"since": "2025-01-02", "more": "x"}));
    api.delete(RECORD).await.ok();
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(api.get(RECORD).await.ok()["data"], json!({"since": "2025-01-02"}));
    api.delete(RECORD).await.ok();
    tokio::time::sleep(Duration::from_secs(20 * 60)).await;
    assert_eq!(api.get(RECORD).await.code, 404, "servers that disagree do not overwrite each other");
    tokio::time::sleep(Duration::from_secs(11 * 60)).await;
    api.get(RECORD).await.ok();
    stop.cancel();
    maintaining.await.unwrap();
}
