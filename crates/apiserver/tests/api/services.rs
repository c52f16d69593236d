//! Addresses and ports of Services.

use serde_json::{Value, json};

use crate::client::Api;

const SERVICES: &str = "/api/v1/namespaces/default/services";

fn service(name: &str, spec: Value) -> Value {
    let mut service =
        json!({"metadata": {"name": name}, "spec": {"ports": [{"port": 80}], "selector": {"app": "a"}}});
    for (field, value) in spec.as_object().unwrap() {
        service["spec"][field] = value.clone();
    }
    service
}

async fn create(api: &Api, name: &str, spec: Value) -> Value {
    api.post(SERVICES, service(name, spec)).await.created()["spec"].clone()
}

#[tokio::test(start_paused = true)]
async fn a_service_gets_an_address_of_the_range() {
    let api = Api::start().await;
    let spec = create(&api, "a", json!({})).await;
    let address: std::net::Ipv4Addr = spec["clusterIP"].as_str().unwrap().parse().unwrap();
    assert_eq!(address.octets()[..2], [10, 0]);
    assert_eq!(spec["clusterIPs"], json!([spec["clusterIP"]]));
    assert_eq!((&spec["ipFamilies"], &spec["ipFamilyPolicy"]), (&json!(["IPv4"]), &json!("SingleStack")));
    let kubernetes = api.get(&format!("{SERVICES}/kubernetes")).await.ok();
    assert_eq!(kubernetes["spec"]["clusterIP"], "10.0.0.1");
}

#[tokio::test(start_paused = true)]
async fn an_address_is_held_until_its_service_is_gone() {
    let api = Api::start().await;
    create(&api, "a", json!({"clusterIP": "10.0.77.21"})).await;
    let refused = api.post(SERVICES, service("b", json!({"clusterIP": "10.0.77.21"}))).await;
    assert_eq!(
        refused.refusal().2,
        "Service \"b\" is invalid: spec.clusterIPs: Invalid value: [\"10.0.77.21\"]: failed to allocate IP \
         10.0.77.21: provided IP is already allocated"
    );
    api.delete(&format!("{SERVICES}/a")).await.ok();
    create(&api, "b", json!({"clusterIP": "10.0.77.21"})).await;
    for outside in ["192.168.0.1", "10.0.0.0", "10.0.255.255"] {
        let refused = api.post(SERVICES, service("c", json!({"clusterIP": outside}))).await;
        assert!(refused.refusal().2.contains("does not match the current range"), "{outside}: {refused:?}");
    }
    let dry = service("c", json!({"clusterIP": "10.0.77.22"}));
    api.post(&format!("{SERVICES}?dryRun=All"), dry.clone()).await.created();
    api.post(SERVICES, dry).await.created();
}

#[tokio::test(start_paused = true)]
async fn a_failed_create_releases_its_address() {
    let api = Api::start().await;
    let bad = service("Bad_Name", json!({"clusterIP": "10.0.77.30"}));
    assert_eq!(api.post(SERVICES, bad).await.code, 422);
    create(&api, "good", json!({"clusterIP": "10.0.77.30"})).await;
    let taken = service("good", json!({"clusterIP": "10.0.77.31"}));
    assert_eq!(api.post(SERVICES, taken).await.code, 409);
    create(&api, "other", json!({"clusterIP": "10.0.77.31"})).await;
}

#[tokio::test(start_paused = true)]
async fn headless_and_external_services_have_no_address() {
    let api = Api::start().await;
    let headless = create(&api, "a", json!({"clusterIP": "None"})).await;
    assert_eq!((&headless["clusterIPs"], &headless["ipFamilies"]), (&json!(["None"]), &json!(["IPv4"])));
    let bare = create(&api, "b", json!({"clusterIP": "None", "selector": null})).await;
    assert_eq!(
        (&bare["ipFamilies"], &bare["ipFamilyPolicy"]),
        (&json!(["IPv4", "IPv6"]), &json!("RequireDualStack"))
    );
    let external =
        create(&api, "c", json!({"type": "ExternalName", "externalName": "x.example.com", "ports": []}))
            .await;
    assert_eq!((&external["clusterIP"], &external["ipFamilies"]), (&Value::Null, &Value::Null));
    for spec in [
        json!({"ipFamilies": ["IPv6"]}),
        json!({"ipFamilyPolicy": "RequireDualStack"}),
        json!({"clusterIP": "fd00::1"}),
    ] {
        assert_eq!(api.post(SERVICES, service("d", spec.clone())).await.code, 422, "{spec}");
    }
}

#[tokio::test(start_paused = true)]
async fn node_ports_are_handed_out_once() {
    let api = Api::start().await;
    let any = create(&api, "a", json!({"type": "NodePort"})).await;
    let port = any["ports"][0]["nodePort"].as_i64().unwrap();
    assert!((30000..=32767).contains(&port));
    create(&api, "b", json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": 30902}]})).await;
    for (wanted, words) in [(30902, "already allocated"), (80, "The range of valid ports is 30000-32767")] {
        let spec = json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": wanted}]});
        let refused = api.post(SERVICES, service("c", spec)).await;
        assert!(refused.refusal().2.contains(words), "{refused:?}");
        assert_eq!(refused.body["details"]["causes"][0]["field"], "spec.ports[0].nodePort");
    }
    let dns = json!({"type": "NodePort", "ports": [
        {"name": "udp", "port": 53, "protocol": "UDP"},
        {"name": "tcp", "port": 53, "protocol": "TCP"},
    ]});
    let both = create(&api, "d", dns).await;
    assert_eq!(both["ports"][0]["nodePort"], both["ports"][1]["nodePort"], "one number for both protocols");
}

#[tokio::test(start_paused = true)]
async fn allocations_survive_updates_and_are_released_when_unused() {
    let api = Api::start().await;
    let before = create(&api, "a", json!({"type": "NodePort"})).await;
    let put = service("a", json!({"type": "NodePort", "selector": {"app": "b"}}));
    let after = api.put(&format!("{SERVICES}/a"), put).await.ok();
    assert_eq!(after["spec"]["clusterIP"], before["clusterIP"]);
    assert_eq!(after["spec"]["ports"], before["ports"]);

    let port = before["ports"][0]["nodePort"].clone();
    let cluster = json!({"spec": {"type": "ClusterIP"}});
    let plain = api.merge(&format!("{SERVICES}/a"), cluster).await.ok();
    assert_eq!(plain["spec"]["ports"][0]["nodePort"], Value::Null);
    create(&api, "b", json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": port}]})).await;

    let local = json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local"});
    let balanced = create(&api, "c", local).await;
    assert!(balanced["healthCheckNodePort"].as_i64().unwrap() >= 30000);
}

#[tokio::test(start_paused = true)]
async fn a_restarted_server_restores_allocations() {
    let api = Api::start().await;
    create(&api, "a", json!({"clusterIP": "10.0.77.40"})).await;
    let again = api.restart().await;
    assert_eq!(again.post(SERVICES, service("b", json!({"clusterIP": "10.0.77.40"}))).await.code, 422);
    assert_eq!(again.get(&format!("{SERVICES}/kubernetes")).await.ok()["spec"]["clusterIP"], "10.0.0.1");
}

const ADDRESSES: &str = "/apis/networking.k8s.io/v1/ipaddresses";
const RANGES: &str = "/apis/networking.k8s.io/v1/servicecidrs";

#[tokio::test(start_paused = true)]
async fn every_address_in_use_has_an_object() {
    let api = Api::start().await;
    create(&api, "a", json!({"clusterIP": "10.0.77.40"})).await;
    let address = api.get(&format!("{ADDRESSES}/10.0.77.40")).await.ok();
    assert_eq!(
        address["spec"]["parentRef"],
        json!({"resource": "services", "namespace": "default", "name": "a"})
    );
    assert_eq!(address["metadata"]["labels"]["ipaddress.kubernetes.io/ip-family"], "IPv4");
    api.get(&format!("{ADDRESSES}/10.0.0.1")).await.ok();
    let external = json!({"spec": {"type": "ExternalName", "externalName": "a.io", "clusterIP": null, "clusterIPs": null}});
    api.merge(&format!("{SERVICES}/a"), external).await.ok();
    assert_eq!(api.get(&format!("{ADDRESSES}/10.0.77.40")).await.code, 404);
    create(&api, "b", json!({"clusterIP": "10.0.77.41"})).await;
    api.delete(&format!("{SERVICES}/b")).await.ok();
    assert_eq!(api.get(&format!("{ADDRESSES}/10.0.77.41")).await.code, 404);
}

#[tokio::test(start_paused = true)]
async fn a_recorded_address_is_taken() {
    let api = Api::start().await;
    let address = json!({"metadata": {"name": "10.0.77.50"},
        "spec": {"parentRef": {"resource": "things", "name": "x"}}});
    api.post(ADDRESSES, address).await.created();
    let refused = api.post(SERVICES, service("a", json!({"clusterIP": "10.0.77.50"}))).await;
    assert!(refused.refusal().2.contains("already allocated"), "{refused:?}");
    api.delete(&format!("{ADDRESSES}/10.0.77.50")).await.ok();
    create(&api, "a", json!({"clusterIP": "10.0.77.50"})).await;
}

#[tokio::test(start_paused = true)]
async fn a_range_that_is_ready_adds_addresses() {
    let api = Api::start().await;
    let own = api.get(&format!("{RANGES}/kubernetes")).await.ok();
    assert_eq!(own["spec"]["cidrs"], json!(["10.0.0.0/16"]));
    assert_eq!(own["status"]["conditions"][0]["status"], "True");
    let range = json!({"metadata": {"name": "more"}, "spec": {"cidrs": ["192.168.7.0/24"]}});
    api.post(RANGES, range).await.created();
    let wanted = service("a", json!({"clusterIP": "192.168.7.9"}));
    assert_eq!(api.post(SERVICES, wanted.clone()).await.code, 422);
    let ready = json!({"type": "Ready", "status": "True", "reason": "", "message": "", "lastTransitionTime": "2025-01-01T00:00:00Z"});
    api.merge(&format!("{RANGES}/more/status"), json!({"status": {"conditions": [ready]}})).await.ok();
    api.post(SERVICES, wanted).await.created();
}

#[tokio::test(start_paused = true)]
async fn startup_repairs_interrupted_allocations() {
    let api = Api::start().await;
    create(&api, "a", json!({"clusterIP": "10.0.77.60"})).await;
    api.delete(&format!("{ADDRESSES}/10.0.77.60")).await.ok();
    let orphan = json!({"metadata": {"name": "10.0.77.61", "labels": {"ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io"}},
        "spec": {"parentRef": {"resource": "services", "namespace": "default", "name": "gone"}}});
    api.post(ADDRESSES, orphan).await.created();
    let api = api.restart().await;
    api.get(&format!("{ADDRESSES}/10.0.77.60")).await.ok();
    // It might belong to a service that another server is about to store.
    api.get(&format!("{ADDRESSES}/10.0.77.61")).await.ok();
    api.clock.sleep(std::time::Duration::from_secs(60)).await;
    let api = api.restart().await;
    api.get(&format!("{ADDRESSES}/10.0.77.60")).await.ok();
    assert_eq!(api.get(&format!("{ADDRESSES}/10.0.77.61")).await.code, 404);
    create(&api, "b", json!({"clusterIP": "10.0.77.61"})).await;
}

/// Returns the IP families of a Service, and those of its addresses.
fn families(spec: &Value) -> (Vec<&str>, Vec<&str>) {
    let texts = |field: &str| -> Vec<&str> {
        spec[field].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
    };
    let of = |address: &&str| if address.contains(':') { "IPv6" } else { "IPv4" };
    (texts("ipFamilies"), texts("clusterIPs").iter().map(of).collect())
}

#[tokio::test(start_paused = true)]
async fn a_dual_stack_service_gets_the_requested_families() {
    let api = Api::start_dual_stack().await;
    for (name, asked, expected) in [
        ("plain", json!({}), vec!["IPv4"]),
        ("six", json!({"ipFamilies": ["IPv6"]}), vec!["IPv6"]),
        ("prefers", json!({"ipFamilyPolicy": "PreferDualStack"}), vec!["IPv4", "IPv6"]),
        (
            "requires",
            json!({"ipFamilyPolicy": "RequireDualStack", "ipFamilies": ["IPv6"]}),
            vec!["IPv6", "IPv4"],
        ),
        (
            "chosen",
            json!({"ipFamilyPolicy": "PreferDualStack", "clusterIPs": ["fd00::77", "10.0.77.1"], "clusterIP": "fd00::77"}),
            vec!["IPv6", "IPv4"],
        ),
    ] {
        let spec = create(&api, name, asked).await;
        assert_eq!(families(&spec), (expected.clone(), expected), "{name}: {spec}");
        assert_eq!(spec["clusterIP"], spec["clusterIPs"][0], "{name}");
    }
    let range = api.get("/apis/networking.k8s.io/v1/servicecidrs/kubernetes").await.ok();
    assert_eq!(range["spec"]["cidrs"], json!(["10.0.0.0/16", "fd00::/112"]));
    api.get("/apis/networking.k8s.io/v1/ipaddresses/fd00::77").await.ok();
    let refused = service("x", json!({"ipFamilies": ["IPv4", "IPv6"], "ipFamilyPolicy": "SingleStack"}));
    let refused = api.post(SERVICES, refused).await;
    assert!(refused.refusal().2.contains("when multiple IP families are specified"), "{refused:?}");
}

#[tokio::test(start_paused = true)]
async fn the_second_family_follows_the_family_policy() {
    let api = Api::start_dual_stack().await;
    let path = format!("{SERVICES}/a");
    let first = create(&api, "a", json!({})).await;
    let policy = |policy: &str| json!({"spec": {"ipFamilyPolicy": policy}});
    let both = api.merge(&path, policy("PreferDualStack")).await.ok()["spec"].clone();
    assert_eq!(families(&both), (vec!["IPv4", "IPv6"], vec!["IPv4", "IPv6"]));
    assert_eq!(both["clusterIPs"][0], first["clusterIP"], "the first one stays");
    let second =
        format!("/apis/networking.k8s.io/v1/ipaddresses/{}", both["clusterIPs"][1].as_str().unwrap());
    api.get(&second).await.ok();
    let fewer =
        api.merge(&path, json!({"spec": {"ipFamilies": ["IPv4"], "clusterIPs": [first["clusterIP"]]}})).await;
    assert!(fewer.refusal().2.contains("must be 'SingleStack' to release"), "{fewer:?}");
    let single = api.merge(&path, policy("SingleStack")).await.ok()["spec"].clone();
    assert_eq!(families(&single), (vec!["IPv4"], vec!["IPv4"]));
    api.get(&second).await.expect(404);
    let again = json!({"clusterIPs": [both["clusterIPs"][1]], "clusterIP": both["clusterIPs"][1]});
    create(&api, "b", again).await;
}

#[tokio::test(start_paused = true)]
async fn one_range_has_one_family() {
    let api = Api::start().await;
    let dual = service("a", json!({"ipFamilyPolicy": "RequireDualStack"}));
    let refused = api.post(SERVICES, dual).await;
    assert!(
        refused.refusal().2.contains("this cluster is not configured for dual-stack services"),
        "{refused:?}"
    );
    let spec = create(&api, "b", json!({"ipFamilyPolicy": "PreferDualStack"})).await;
    assert_eq!(families(&spec), (vec!["IPv4"], vec!["IPv4"]));
}
