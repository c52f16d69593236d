//! Authentication and authorization over TLS.

use serde_json::json;
use setpoint_apiserver::User;

use crate::client::Api;

#[tokio::test(start_paused = true)]
async fn anonymous_users_see_only_health_and_version() {
    let mut api = Api::start().await;
    api.user = User::anonymous();
    for path in ["/livez", "/readyz", "/healthz", "/version"] {
        assert_eq!(api.get(path).await.code, 200, "{path}");
    }
    for (path, message) in [
        ("/apis", "forbidden: User \"system:anonymous\" cannot get path \"/apis\""),
        ("/livez/ping", "forbidden: User \"system:anonymous\" cannot get path \"/livez/ping\""),
        (
            "/api/v1/namespaces",
            "namespaces is forbidden: User \"system:anonymous\" cannot list resource \"namespaces\" in API group \
             \"\" at the cluster scope",
        ),
        (
            "/apis/apps/v1/namespaces/default/deployments/a/scale",
            "deployments.apps \"a\" is forbidden: User \"system:anonymous\" cannot get resource \
             \"deployments/scale\" in API group \"apps\" in the namespace \"default\"",
        ),
    ] {
        assert_eq!(api.get(path).await.refusal(), (403, "Forbidden", message), "{path}");
    }
}

#[tokio::test(start_paused = true)]
async fn known_users_discover_and_masters_do_everything() {
    let mut api = Api::start().await;
    api.user = User::authenticated("bob", "", Vec::new());
    for path in ["/api", "/apis/apps/v1", "/version", "/openapi/v3"] {
        assert_eq!(api.get(path).await.code, 200, "{path}");
    }
    let created = api.post("/api/v1/namespaces", json!({"metadata": {"name": "n"}})).await;
    assert_eq!(created.code, 403);
    api.user = User::system("root");
    api.post("/api/v1/namespaces", json!({"metadata": {"name": "n"}})).await.created();
}
