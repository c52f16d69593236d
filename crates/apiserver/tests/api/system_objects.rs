//! The server's own objects, and its rules for namespaces.

use std::time::Duration;

use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::client::Api;
use crate::custom::{definition, gone};

const API_SERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";
const CLAIMS: &str = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims";

#[tokio::test(start_paused = true)]
async fn every_version_of_a_group_has_an_api_service() {
    let api = Api::start().await;
    let apps = api.get(&format!("{API_SERVICES}/v1.apps")).await.ok();
    assert_eq!(apps["spec"]["groupPriorityMinimum"], 17800);
    assert_eq!(apps["status"]["conditions"][0]["reason"], "Local");
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    api.post(definitions, definition(json!({"type": "object"}))).await.created();
    let custom = api.get(&format!("{API_SERVICES}/v1.e.com")).await.ok();
    assert_eq!(custom["spec"]["groupPriorityMinimum"], 1000);
    api.delete(&format!("{definitions}/foos.e.com")).await.ok();
    gone(&api, "foos.e.com").await;
    assert_eq!(api.get(&format!("{API_SERVICES}/v1.e.com")).await.code, 404);
    api.get(&format!("{API_SERVICES}/v1.apps")).await.ok();
}

#[tokio::test(start_paused = true)]
async fn system_objects_are_created_once_at_startup() {
    let api = Api::start().await.restart().await;
    for path in [
        "/apis/scheduling.k8s.io/v1/priorityclasses/system-node-critical",
        "/apis/flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations/exempt",
        "/apis/networking.k8s.io/v1/servicecidrs/kubernetes",
        "/apis/networking.k8s.io/v1/ipaddresses/10.0.0.1",
    ] {
        api.get(path).await.ok();
    }
    let schema = api.get("/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas/catch-all").await.ok();
    assert_eq!(schema["status"]["conditions"][0]["status"], "False");
    assert_eq!(schema["metadata"]["generation"], 1);
}

#[tokio::test(start_paused = true)]
async fn admin_access_to_devices_requires_a_labelled_namespace() {
    let api = Api::start().await;
    let exactly = json!({"deviceClassName": "c", "adminAccess": true});
    let claim = json!({"metadata": {"name": "a"},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}});
    let refused = api.post(CLAIMS, claim.clone()).await;
    assert_eq!(refused.body["details"]["causes"][0]["field"], "spec.devices.requests[0].adminAccess");
    let label = json!({"metadata": {"labels": {"resource.kubernetes.io/admin-access": "true"}}});
    api.merge("/api/v1/namespaces/default", label).await.ok();
    api.post(CLAIMS, claim).await.created();
}

#[tokio::test(start_paused = true)]
async fn mandatory_objects_are_recreated() {
    let api = Api::start().await;
    let stop = CancellationToken::new();
    let (server, ending) = (api.server.clone(), stop.clone());
    let maintaining = tokio::spawn(async move { server.maintain(ending).await });
    let soon = [
        "/api/v1/namespaces/default/services/kubernetes",
        "/apis/networking.k8s.io/v1/servicecidrs/kubernetes",
    ];
    let later = ["/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas/exempt"];
    let never = [format!("{API_SERVICES}/v1.apps")];
    let never = never.each_ref().map(String::as_str);
    for path in soon.iter().chain(&later).chain(&never) {
        api.delete(path).await.ok();
        assert_eq!(api.get(path).await.code, 404, "{path}");
    }
    api.clock.sleep(Duration::from_secs(11)).await;
    for path in soon {
        api.get(path).await.ok();
    }
    api.clock.sleep(Duration::from_secs(60)).await;
    api.get(later[0]).await.ok();
    assert_eq!(api.get(never[0]).await.code, 404);
    let before = api.server.revision();
    api.clock.sleep(Duration::from_secs(120)).await;
    assert_eq!(api.server.revision(), before, "a steady state makes no writes");
    stop.cancel();
    maintaining.await.unwrap();
}
