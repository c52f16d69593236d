//! The availability of APIServices, and the APIServices of the server's own groups.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use futures::FutureExt;
use serde_json::{Value, json};
use setpoint_apiserver::aggregation::{AggregationConfig, ClusterTrust, FrontProxyTrust};
use setpoint_apiserver::tls::Authority;
use setpoint_apiserver::{Config, kinds};
use setpoint_clock::Clock;
use tokio_util::sync::CancellationToken;

use crate::client::Api;
use crate::custom::{DEFINITIONS, definition};
use crate::extension_server::{
    API_SERVICES, Aggregated, ExtensionServer, NAME, SERVICES, SLICES, ok, reply, resources,
};

async fn plain() -> Aggregated {
    Aggregated::start_changed(|_, _| ok(&resources()), |config| config).await
}

#[tokio::test(start_paused = true)]
async fn the_available_condition_gives_the_reason_and_follows_changes() {
    let aggregated = plain().await;
    let api = &aggregated.api;
    let created = api.post(API_SERVICES, aggregated.api_service("ext.example.com", "v1")).await.created();
    assert_eq!(created["status"], json!({}));
    let check = async |status: &str, reason: &str, message: &str| {
        let condition = aggregated.until_that(NAME, |condition| condition["reason"] == reason).await;
        assert_eq!((&condition["status"], &condition["message"]), (&json!(status), &json!(message)));
        condition["lastTransitionTime"].as_str().unwrap().to_owned()
    };
    let first = check("False", "ServiceNotFound", "service/ext in \"default\" is not present").await;
    let mut service = aggregated.service();
    service["spec"]["ports"][0]["port"] = 444.into();
    tokio::time::sleep(Duration::from_secs(5)).await;
    api.post(SERVICES, service).await.created();
    let still =
        check("False", "ServicePortError", "service/ext in \"default\" is not listening on port 443").await;
    assert_eq!(first, still, "the status has not changed");
    let port = json!({"spec": {"ports": [{"name": "https", "port": 443}]}});
    api.merge(&format!("{SERVICES}/ext"), port).await.ok();
    check("False", "EndpointsNotFound", "cannot find endpointslices for service/ext in \"default\"").await;
    let mut slice = aggregated.slice();
    slice["endpoints"][0]["conditions"]["ready"] = false.into();
    api.post(SLICES, slice).await.created();
    let missing = "endpointslices for service/ext in \"default\" have no addresses with port name \"https\"";
    check("False", "MissingEndpoints", missing).await;
    ExtensionServer::set(&aggregated.extension.refuses, true);
    let ready = json!({"endpoints": [{"addresses": ["192.0.2.7"], "conditions": {"ready": true}}]});
    api.merge(&format!("{SLICES}/ext"), ready).await.ok();
    let url = "https://192.0.2.7:8443/apis/ext.example.com/v1";
    let refused = format!(
        "failing or missing response from {url}: Get \"{url}\": dial tcp 192.0.2.7:8443: connect: connection refused"
    );
    check("False", "FailedDiscoveryCheck", &refused).await;
    ExtensionServer::set(&aggregated.extension.refuses, false);
    let passed = check("True", "Passed", "all checks passed").await;
    assert_ne!(passed, first);
    api.delete(&format!("{SERVICES}/ext")).await.ok();
    check("False", "ServiceNotFound", "service/ext in \"default\" is not present").await;
    // Without its Service it is local.
    let local = json!({"spec": {"service": null, "caBundle": null}});
    api.merge(&format!("{API_SERVICES}/{NAME}"), local).await.ok();
    check("True", "Local", "Local APIServices are always available").await;
}

#[tokio::test(start_paused = true)]
async fn a_probe_is_sent_by_the_aggregator_and_expects_success() {
    let code = Arc::new(AtomicUsize::new(404));
    let answering = code.clone();
    let aggregated = Aggregated::start_changed(
        move |_, _| {
            let code = answering.load(Ordering::SeqCst) as u16;
            std::future::ready(Ok(reply(code, &json!({})))).boxed()
        },
        |config| config,
    )
    .await;
    aggregated.expose().await;
    aggregated.api.post(API_SERVICES, aggregated.api_service("ext.example.com", "v1")).await.created();
    let url = "https://192.0.2.7:8443/apis/ext.example.com/v1";
    let condition = aggregated.until(NAME, "False").await;
    let expected = format!("failing or missing response from {url}: bad status from {url}: 404");
    assert_eq!(condition["message"], expected);
    let probe =
        aggregated.extension.take_all().into_iter().find(|one| one.head.uri.path() != "/apis").unwrap();
    assert_eq!(probe.header("x-remote-user"), ["system:kube-aggregator"]);
    assert_eq!(probe.header("x-remote-group"), ["system:masters"]);
    assert_eq!(probe.client.as_deref(), Some("front-proxy-client"));
    code.store(302, Ordering::SeqCst);
    let moved = |condition: &Value| condition["message"].as_str().unwrap_or("").ends_with(": 302");
    aggregated.until_that(NAME, moved).await;
    code.store(200, Ordering::SeqCst);
    aggregated.until(NAME, "True").await;
}

#[tokio::test(start_paused = true)]
async fn a_silent_server_times_out_after_five_seconds_without_delaying_others() {
    let aggregated = plain().await;
    aggregated.expose().await;
    ExtensionServer::set(&aggregated.extension.is_silent, true);
    let began = aggregated.api.clock.instant();
    for number in 0..12 {
        let service = aggregated.api_service(&format!("g{number}.example.com"), "v1");
        aggregated.api.post(API_SERVICES, service).await.created();
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    // Five checks at a time, each with five probes, and two reads of discovery documents.
    let open = aggregated.extension.connections();
    assert!((25..=27).contains(&open), "{open}");
    let condition = aggregated.until("v1.g0.example.com", "False").await;
    assert_eq!((aggregated.api.clock.instant() - began).as_secs(), 5);
    let message = condition["message"].as_str().unwrap();
    assert!(message.contains("context deadline exceeded (Client.Timeout exceeded"), "{message}");
    ExtensionServer::set(&aggregated.extension.is_silent, false);
    for number in 0..12 {
        aggregated.until(&format!("v1.g{number}.example.com"), "True").await;
    }
    for number in 0..12 {
        aggregated.api.delete(&format!("{API_SERVICES}/v1.g{number}.example.com")).await.ok();
    }
    aggregated.api.get("/apis/other/v1/x").await;
    aggregated.until_idle().await;
}

#[tokio::test(start_paused = true)]
async fn a_flapping_server_is_updated_at_most_once_per_check() {
    let is_up = Arc::new(AtomicBool::new(true));
    let flapping = is_up.clone();
    let aggregated = Aggregated::start_changed(
        move |head, _| {
            let is_probe = head.uri.path() == "/apis/ext.example.com/v1";
            let code = if is_probe && !flapping.load(Ordering::SeqCst) { 500 } else { 200 };
            std::future::ready(Ok(reply(code, &resources()))).boxed()
        },
        |config| config,
    )
    .await;
    aggregated.register().await;
    for round in 0..10 {
        is_up.store(round % 2 == 1, Ordering::SeqCst);
        aggregated.until(NAME, if round % 2 == 1 { "True" } else { "False" }).await;
    }
    let metrics = aggregated.api.get("/metrics").await.text;
    let counted = format!(
        "aggregator_unavailable_apiservice_total{{name=\"{NAME}\",reason=\"FailedDiscoveryCheck\"}} 5"
    );
    assert!(metrics.contains(&counted), "{metrics}");
    assert!(metrics.contains(&format!("aggregator_unavailable_apiservice{{name=\"{NAME}\"}} 0")));
    assert!(metrics.contains("aggregator_unavailable_apiservice{name=\"v1.apps\"} 0"));
    // In a steady state nothing is written.
    let before = aggregated.api.server.revision();
    aggregated.extension.take_all();
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert_eq!(aggregated.api.server.revision(), before);
    let probes = aggregated.extension.take_all();
    let probes = probes.iter().filter(|one| one.header("x-forwarded-host").is_empty()).count();
    assert!((5..=60).contains(&probes), "{probes} probes in five minutes");
    aggregated.api.delete(&format!("{API_SERVICES}/{NAME}")).await.ok();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!aggregated.api.get("/metrics").await.text.contains(&format!("apiservice{{name=\"{NAME}\"}}")));
}

#[tokio::test(start_paused = true)]
async fn an_api_service_that_is_deleted_while_it_is_checked_leaves_no_gauge() {
    let aggregated = plain().await;
    aggregated.register().await;
    let gauge = format!("apiservice{{name=\"{NAME}\"}}");
    assert!(aggregated.api.get("/metrics").await.text.contains(&gauge));
    ExtensionServer::set(&aggregated.extension.is_silent, true);
    // The next routine check begins, and takes five seconds to fail.
    for _ in 0..1200 {
        if aggregated.extension.connections() > 0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    aggregated.api.delete(&format!("{API_SERVICES}/{NAME}")).await.ok();
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert!(!aggregated.api.get("/metrics").await.text.contains(&gauge));
}

#[tokio::test(start_paused = true)]
async fn a_condition_written_by_a_client_is_corrected() {
    let aggregated = plain().await;
    aggregated.register().await;
    for name in [NAME, "v1.apps"] {
        let forged = json!({"status": {"conditions": [{"type": "Available", "status": "False",
            "lastTransitionTime": "2025-01-01T00:00:00Z", "reason": "Forged", "message": "x"}]}});
        let path = format!("{API_SERVICES}/{name}/status");
        aggregated.api.merge(&path, forged).await.ok();
        assert_ne!(aggregated.until(name, "True").await["reason"], "Forged");
    }
}

#[tokio::test(start_paused = true)]
async fn built_in_groups_are_registered_when_the_server_starts() {
    let api = Api::start_changed(|config| Config { kinds: kinds::all(), ..config }).await;
    let apps = format!("{API_SERVICES}/v1.apps");
    let managed = "kube-aggregator.kubernetes.io/automanaged";
    assert_eq!(api.get(&apps).await.ok()["metadata"]["labels"][managed], "onstart");
    assert_eq!(api.get(&format!("{API_SERVICES}/v1.apiregistration.k8s.io")).await.code, 404);
    // One that is still managed is put right at the next start, one that a user owns is not, and one for a version
    // that is no longer served goes.
    api.merge(&apps, json!({"spec": {"groupPriorityMinimum": 5}})).await.ok();
    let batch = format!("{API_SERVICES}/v1.batch");
    let owned = json!({"metadata": {"labels": {managed: null}}, "spec": {"groupPriorityMinimum": 5}});
    api.merge(&batch, owned).await.ok();
    let old = json!({"metadata": {"name": "v1beta1.batch", "labels": {managed: "onstart"}}, "spec": {
        "group": "batch", "version": "v1beta1", "groupPriorityMinimum": 1, "versionPriority": 1}});
    api.post(API_SERVICES, old).await.created();
    api.delete(&format!("{API_SERVICES}/v1.policy")).await.ok();
    assert_eq!(api.get("/apis/policy").await.ok()["name"], "policy", "it is still served");
    let listed = api.get("/apis").await.ok();
    assert!(listed["groups"].as_array().unwrap().iter().all(|group| group["name"] != "policy"));
    let api = api.restart().await;
    assert_eq!(api.get(&apps).await.ok()["spec"]["groupPriorityMinimum"], 17800);
    assert_eq!(api.get(&batch).await.ok()["spec"]["groupPriorityMinimum"], 5);
    assert_eq!(api.get(&format!("{API_SERVICES}/v1beta1.batch")).await.code, 404);
    assert_eq!(api.get(&format!("{API_SERVICES}/v1.policy")).await.ok()["spec"]["versionPriority"], 15);
}

#[tokio::test(start_paused = true)]
async fn a_users_api_service_keeps_the_group_version_of_a_crd() {
    let aggregated = plain().await;
    aggregated.expose().await;
    let api = &aggregated.api;
    let name = format!("{API_SERVICES}/v1.e.com");
    api.post(DEFINITIONS, definition(json!({"type": "object"}))).await.created();
    let managed = "kube-aggregator.kubernetes.io/automanaged";
    assert_eq!(api.get(&name).await.ok()["metadata"]["labels"][managed], "true");
    let foos = "/apis/e.com/v1/namespaces/default/foos";
    assert_eq!(api.get(foos).await.ok()["kind"], "FooList");
    // One that the server manages is put right, and one that was deleted comes back.
    api.merge(&name, json!({"spec": {"versionPriority": 1}})).await.ok();
    api.get(&name).await.ok();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(api.get(&name).await.ok()["spec"]["versionPriority"], 100);
    api.delete(&name).await.ok();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(api.get(&name).await.ok()["spec"]["versionPriority"], 100);
    // One that a user owns is left alone, and its extension server responds.
    let mut taken = aggregated.api_service("e.com", "v1");
    let found = api.get(&name).await.ok();
    taken["metadata"]["resourceVersion"] = found["metadata"]["resourceVersion"].clone();
    api.put(&name, taken).await.ok();
    aggregated.until("v1.e.com", "True").await;
    assert_eq!(api.get(foos).await.ok(), resources());
    let changed = json!({"spec": {"versions": [{"name": "v1", "served": true, "storage": true,
        "schema": {"openAPIV3Schema": {"type": "object", "description": "changed"}}}]}});
    api.merge(&format!("{DEFINITIONS}/foos.e.com"), changed).await.ok();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(api.get(&name).await.ok()["spec"]["service"].is_object());
    api.delete(&name).await.ok();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(api.get(&name).await.ok()["metadata"]["labels"][managed], "true");
    assert_eq!(api.get(foos).await.ok()["kind"], "FooList");
}

#[tokio::test(start_paused = true)]
async fn the_authentication_config_map_is_published_for_extension_servers() {
    let now = Clock::system().now();
    let pem = || Authority::generate(now).unwrap().identity().certificate.clone();
    let (clients, proxies, added) = (pem(), pem(), pem());
    let front_proxy = FrontProxyTrust {
        ca: proxies.clone(),
        allowed_names: vec!["front-proxy-client".into()],
        username_headers: vec!["X-Remote-User".into()],
        uid_headers: vec!["X-Remote-Uid".into()],
        group_headers: vec!["X-Remote-Group".into()],
        extra_prefixes: vec!["X-Remote-Extra-".into()],
    };
    let current = Arc::new(parking_lot::Mutex::new(clients.clone()));
    let reading = current.clone();
    let trust =
        move || ClusterTrust { client_ca: reading.lock().clone(), front_proxy: Some(front_proxy.clone()) };
    let trusting = |config: Config| {
        let aggregation = AggregationConfig { trust: Some(Arc::new(trust)), ..AggregationConfig::default() };
        Config { aggregation, ..config.with_roles() }
    };
    let api = Api::start_changed(trusting).await;
    let path = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";
    let data = api.get(path).await.ok()["data"].clone();
    let same = |found: &Value, expected: &str| {
        let squeezed = |text: &str| text.split_whitespace().collect::<String>();
        assert_eq!(squeezed(found.as_str().unwrap()), squeezed(expected));
    };
    same(&data["client-ca-file"], &clients);
    same(&data["requestheader-client-ca-file"], &proxies);
    for (key, expected) in [
        ("requestheader-allowed-names", r#"["front-proxy-client"]"#),
        ("requestheader-username-headers", r#"["X-Remote-User"]"#),
        ("requestheader-uid-headers", r#"["X-Remote-Uid"]"#),
        ("requestheader-group-headers", r#"["X-Remote-Group"]"#),
        ("requestheader-extra-headers-prefix", r#"["X-Remote-Extra-"]"#),
    ] {
        assert_eq!(data[key], expected);
    }
    let role = "/apis/rbac.authorization.k8s.io/v1/namespaces/kube-system/roles/extension-apiserver-authentication-reader";
    let rules = api.get(role).await.ok()["rules"].clone();
    assert_eq!(rules[0]["resourceNames"], json!(["extension-apiserver-authentication"]));
    let stop = CancellationToken::new();
    let (server, ending) = (api.server.clone(), stop.clone());
    let running = tokio::spawn(async move { server.aggregate(ending).await });
    tokio::time::sleep(Duration::from_secs(1)).await;
    api.delete(path).await.ok();
    tokio::time::sleep(Duration::from_secs(1)).await;
    same(&api.get(path).await.ok()["data"]["client-ca-file"], &clients);
    *current.lock() = added.clone();
    tokio::time::sleep(Duration::from_secs(61)).await;
    same(&api.get(path).await.ok()["data"]["client-ca-file"], &(clients + &added));
    let before = api.server.revision();
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert_eq!(api.server.revision(), before, "a steady state makes no writes");
    stop.cancel();
    running.await.unwrap();
}
