//! Pod security in namespaces, the effect of classes on objects, and restrictions on certificates.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use setpoint_apiserver::admission::plugins;
use setpoint_apiserver::{Config, User};

use crate::client::Api;

fn pod(name: &str, context: Value) -> Value {
    let container = json!({"name": "c", "image": "i", "securityContext": context});
    json!({"metadata": {"name": name}, "spec": {"containers": [container]}})
}

/// Creates a namespace with these labels, and the service account for its pods.
async fn namespace(api: &Api, name: &str, labels: Value) -> String {
    let labels: serde_json::Map<String, Value> = labels
        .as_object()
        .unwrap()
        .iter()
        .map(|(mode, level)| (format!("pod-security.kubernetes.io/{mode}"), level.clone()))
        .collect();
    api.post("/api/v1/namespaces", json!({"metadata": {"name": name, "labels": labels}})).await.created();
    let path = format!("/api/v1/namespaces/{name}");
    api.post(&format!("{path}/serviceaccounts"), json!({"metadata": {"name": "default"}})).await.created();
    path
}

#[tokio::test(start_paused = true)]
async fn a_namespace_refuses_pods_beyond_its_level_and_warns_of_their_makers() {
    let api = Api::start().await;
    let path = namespace(&api, "n", json!({"enforce": "baseline"})).await;
    let pods = format!("{path}/pods");
    let refused = api.post(&pods, pod("a", json!({"privileged": true}))).await;
    let violation = "privileged (container \"c\" must not set securityContext.privileged=true)";
    let message = format!("pods \"a\" is forbidden: violates PodSecurity \"baseline:latest\": {violation}");
    assert_eq!(refused.refusal(), (403, "Forbidden", message.as_str()));
    api.post(&pods, pod("a", json!({}))).await.created();
    let template =
        json!({"metadata": {"labels": {"a": "b"}}, "spec": pod("x", json!({"privileged": true}))["spec"]});
    let deployment = json!({
        "metadata": {"name": "d"},
        "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template},
    });
    let created = api.post("/apis/apps/v1/namespaces/n/deployments", deployment).await;
    assert_eq!(created.code, 201);
    assert_eq!(created.warnings.len(), 1);
    assert!(created.warnings[0].contains("would violate PodSecurity"), "{:?}", created.warnings);
}

#[tokio::test(start_paused = true)]
async fn a_rising_level_names_the_pods_it_would_refuse() {
    let api = Api::start().await;
    let path = namespace(&api, "n", json!({})).await;
    for name in ["a", "b"] {
        api.post(&format!("{path}/pods"), pod(name, json!({"privileged": true}))).await.created();
    }
    let labels = json!({"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "baseline"}}});
    let changed = api.merge(&path, labels).await;
    assert_eq!(changed.code, 200);
    let expected = [
        "299 - \"existing pods in namespace \\\"n\\\" violate the new PodSecurity enforce level \\\"baseline:latest\\\"\"",
        "299 - \"a (and 1 other pod): privileged\"",
    ];
    assert_eq!(changed.warnings, expected);
    let wrong = json!({"metadata": {"labels": {"pod-security.kubernetes.io/enforce-version": "1.2"}}});
    let refused = api.merge(&path, wrong).await.expect(422);
    let field = "metadata.labels[pod-security.kubernetes.io/enforce-version]";
    assert_eq!(refused["details"]["causes"][0]["field"], field);
}

#[tokio::test(start_paused = true)]
async fn claims_without_a_class_get_the_newest_default() {
    let api = Api::start().await;
    let class = |name: &str| {
        let annotations = json!({"storageclass.kubernetes.io/is-default-class": "true"});
        json!({"metadata": {"name": name, "annotations": annotations}, "provisioner": "p"})
    };
    api.post("/apis/storage.k8s.io/v1/storageclasses", class("old")).await.created();
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    api.post("/apis/storage.k8s.io/v1/storageclasses", class("new")).await.created();
    let claim = |name: &str| {
        json!({
            "metadata": {"name": name},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
        })
    };
    let claims = "/api/v1/namespaces/default/persistentvolumeclaims";
    assert_eq!(api.post(claims, claim("a")).await.created()["spec"]["storageClassName"], "new");
    let mut none = claim("b");
    none["spec"]["storageClassName"] = "".into();
    assert_eq!(api.post(claims, none).await.created()["spec"]["storageClassName"], "");
}

#[tokio::test(start_paused = true)]
async fn a_claim_grows_only_if_its_class_allows_expansion() {
    let api = Api::start().await;
    let class = json!({"metadata": {"name": "fixed"}, "provisioner": "p"});
    api.post("/apis/storage.k8s.io/v1/storageclasses", class).await.created();
    let claims = "/api/v1/namespaces/default/persistentvolumeclaims";
    let claim = json!({
        "metadata": {"name": "a"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "fixed",
            "volumeName": "v",
            "resources": {"requests": {"storage": "1Gi"}},
        },
    });
    api.post(claims, claim).await.created();
    api.merge(&format!("{claims}/a/status"), json!({"status": {"phase": "Bound"}})).await.ok();
    let more = json!({"spec": {"resources": {"requests": {"storage": "2Gi"}}}});
    let refused = api.merge(&format!("{claims}/a"), more.clone()).await;
    assert!(
        refused.refusal().2.contains("only dynamically provisioned pvc can be resized"),
        "{}",
        refused.text
    );
    let path = "/apis/storage.k8s.io/v1/storageclasses/fixed";
    api.merge(path, json!({"allowVolumeExpansion": true})).await.ok();
    api.merge(&format!("{claims}/a"), more).await.ok();
}

#[tokio::test(start_paused = true)]
async fn a_runtime_class_sets_overhead_and_place() {
    let api = Api::start().await;
    api.default_service_account().await;
    let class = json!({
        "metadata": {"name": "vm"},
        "handler": "vm",
        "overhead": {"podFixed": {"cpu": "100m"}},
        "scheduling": {"nodeSelector": {"vm": "yes"}, "tolerations": [{"key": "vm", "operator": "Exists"}]},
    });
    api.post("/apis/node.k8s.io/v1/runtimeclasses", class).await.created();
    let pods = "/api/v1/namespaces/default/pods";
    let mut wanted = pod("a", json!({}));
    wanted["spec"]["runtimeClassName"] = "vm".into();
    let created = api.post(pods, wanted.clone()).await.created();
    assert_eq!(created["spec"]["overhead"], json!({"cpu": "100m"}));
    assert_eq!(created["spec"]["nodeSelector"], json!({"vm": "yes"}));
    let tolerations = created["spec"]["tolerations"].as_array().unwrap();
    assert!(tolerations.contains(&json!({"key": "vm", "operator": "Exists"})), "{tolerations:?}");
    wanted["metadata"]["name"] = "b".into();
    wanted["spec"]["overhead"] = json!({"cpu": "1"});
    assert_eq!(api.post(pods, wanted.clone()).await.code, 403);
    wanted["spec"]["runtimeClassName"] = "none".into();
    let refused = api.post(pods, wanted).await;
    let message = "pods \"b\" is forbidden: pod rejected: RuntimeClass \"none\" not found";
    assert_eq!(refused.refusal(), (403, "Forbidden", message));
    let mut bare = pod("c", json!({}));
    bare["spec"]["overhead"] = json!({"cpu": "1"});
    assert_eq!(api.post(pods, bare).await.code, 403, "overhead without a class");
}

/// A node may see its own pods and what they use, but not those of other nodes.
#[tokio::test(start_paused = true)]
async fn a_node_reads_objects_referenced_by_its_pods() {
    let mut api = Api::start_with_roles().await;
    api.default_service_account().await;
    for name in ["mine", "other"] {
        let secret = json!({"metadata": {"name": name}});
        api.post("/api/v1/namespaces/default/secrets", secret).await.created();
    }
    let mut running = pod("p", json!({}));
    running["spec"]["nodeName"] = "n1".into();
    running["spec"]["volumes"] = json!([{"name": "v", "secret": {"secretName": "mine"}}]);
    api.post("/api/v1/namespaces/default/pods", running).await.created();
    let secrets = "/api/v1/namespaces/default/secrets";
    for (node, path, code) in [
        ("n1", format!("{secrets}/mine"), 200),
        ("n1", format!("{secrets}/other"), 403),
        ("n1", secrets.to_owned(), 403),
        ("n2", format!("{secrets}/mine"), 403),
        ("n1", "/api/v1/namespaces/default/pods/p".into(), 200),
        ("n2", "/api/v1/namespaces/default/pods/p".into(), 403),
        ("n1", "/api/v1/pods?fieldSelector=spec.nodeName%3Dn1".into(), 200),
        ("n1", "/api/v1/pods?fieldSelector=spec.nodeName%3Dn2".into(), 403),
        ("n1", "/api/v1/pods?fieldSelector=metadata.name%21%3Dx%5C,spec.nodeName%3Dn1".into(), 403),
        // An escaped comma is part of a value, so these select almost everything.
        ("n1", "/api/v1/pods?fieldSelector=spec.nodeName!%3Da\\,spec.nodeName%3Dn1".into(), 403),
        ("n1", format!("{secrets}?fieldSelector=type!%3Da\\,metadata.name%3Dmine"), 403),
        ("n1", format!("{secrets}?fieldSelector=metadata.name%3Dmine"), 200),
        ("n1", format!("{secrets}?fieldSelector=metadata.name%3Dmine&watch=1&timeoutSeconds=1"), 200),
        ("n1", "/api/v1/nodes/n1".into(), 404),
        ("n1", "/api/v1/nodes/n2".into(), 403),
    ] {
        api.user = User::authenticated(format!("system:node:{node}"), "", vec!["system:nodes".into()]);
        let answer = api.get(&path).await;
        assert_eq!(answer.code, code, "{node} {path}: {}", answer.text);
    }
}

fn as_node(api: &mut Api, node: &str) {
    api.user = User::authenticated(format!("system:node:{node}"), "", vec!["system:nodes".into()]);
}

/// A node may also read what its pods' claims are bound to, and the secrets for mounting that.
#[tokio::test(start_paused = true)]
async fn a_node_reads_the_volumes_and_devices_of_its_pods() {
    let mut api = Api::start_with_roles().await;
    api.default_service_account().await;
    let core = "/api/v1/namespaces/default";
    let source = json!({"driver": "d", "volumeHandle": "h", "nodePublishSecretRef": {"name": "key", "namespace": "default"}});
    let volume = json!({"metadata": {"name": "v"}, "spec": {
        "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "csi": source,
        "claimRef": {"namespace": "default", "name": "c"}}});
    api.post("/api/v1/persistentvolumes", volume).await.created();
    api.post(&format!("{core}/secrets"), json!({"metadata": {"name": "key"}})).await.created();
    let mut pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}], "nodeName": "n1"}});
    pod["spec"]["volumes"] = json!([{"name": "data", "persistentVolumeClaim": {"claimName": "c"}}]);
    pod["spec"]["resourceClaims"] = json!([{"name": "gpu", "resourceClaimName": "r"}]);
    api.post(&format!("{core}/pods"), pod).await.created();
    for (node, path, code) in [
        ("n1", "/api/v1/persistentvolumes/v".into(), 200),
        ("n2", "/api/v1/persistentvolumes/v".into(), 403),
        ("n1", "/api/v1/persistentvolumes".into(), 403),
        ("n1", format!("{core}/secrets/key"), 200),
        ("n2", format!("{core}/secrets/key"), 403),
        ("n1", "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/r".into(), 404),
        ("n2", "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/r".into(), 403),
    ] {
        as_node(&mut api, node);
        let answer = api.get(&path).await;
        assert_eq!(answer.code, code, "{node} {path}: {}", answer.text);
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_evicts_its_own_pods() {
    let mut api = Api::start_with_nodes_held_back().await;
    api.default_service_account().await;
    let pods = "/api/v1/namespaces/default/pods";
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}], "nodeName": "n1"}});
    api.post(pods, pod).await.created();
    let eviction = |name: &str| json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}, "deleteOptions": {"gracePeriodSeconds": 0}});
    for (node, pod, code) in [("n2", "p", 403), ("n2", "none", 404), ("n1", "p", 201), ("n1", "p", 404)] {
        as_node(&mut api, node);
        let answer = api.post(&format!("{pods}/{pod}/eviction"), eviction(pod)).await;
        assert_eq!(answer.code, code, "{node} {pod}: {}", answer.text);
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_requests_tokens_for_its_pods_and_their_csi_drivers() {
    let mut api = Api::start_with_nodes_held_back().await;
    api.default_service_account().await;
    let core = "/api/v1/namespaces/default";
    let mut pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}], "nodeName": "n1"}});
    pod["spec"]["volumes"] = json!([{"name": "t", "projected": {"sources": [
        {"serviceAccountToken": {"audience": "vault", "path": "t"}}, {"serviceAccountToken": {"path": "u"}}]}}]);
    let uid = api.post(&format!("{core}/pods"), pod).await.created()["metadata"]["uid"].clone();
    let bound = json!({"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": uid});
    let request =
        |audiences: Value, bound: Value| json!({"spec": {"audiences": audiences, "boundObjectRef": bound}});
    let mut recreated = bound.clone();
    recreated["uid"] = "other".into();
    for (node, request, code, why) in [
        ("n1", request(json!([]), bound.clone()), 201, ""),
        ("n1", request(json!(["vault"]), bound.clone()), 201, ""),
        ("n1", request(json!([]), Value::Null), 403, "not bound to a pod"),
        ("n1", request(json!([]), recreated), 403, "does not match the UID in record"),
        ("n1", request(json!(["a", "b"]), bound.clone()), 403, "0 or 1 audiences"),
        (
            "n1",
            request(json!(["bank"]), bound.clone()),
            403,
            "audience \\\"bank\\\" not found in pod spec volume",
        ),
        ("n2", request(json!([]), bound), 403, "no relationship found"),
    ] {
        as_node(&mut api, node);
        let answer = api.post(&format!("{core}/serviceaccounts/default/token"), request.clone()).await;
        assert!(answer.code == code && answer.text.contains(why), "{node} {request}: {}", answer.text);
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_without_a_name_may_do_nothing_as_a_node() {
    let mut api = Api::start_with_nodes_held_back().await;
    api.post("/api/v1/namespaces/default/secrets", json!({"metadata": {"name": "s"}})).await.created();
    api.user = User::authenticated("system:node:", "", vec!["system:nodes".into()]);
    let why = "unknown node for user \"system:node:\"";
    for path in ["/api/v1/namespaces/default/secrets/s", "/api/v1/nodes", "/api/v1/services"] {
        let refused = api.get(path).await;
        assert_eq!(refused.code, 403, "{path}");
        assert!(refused.refusal().2.ends_with(why), "{path}: {}", refused.text);
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_loses_access_with_its_last_referencing_pod() {
    let mut api = Api::start_with_nodes_held_back().await;
    api.default_service_account().await;
    let maps = "/api/v1/namespaces/default/configmaps";
    api.post(maps, json!({"metadata": {"name": "m"}})).await.created();
    let masters = api.user.clone();
    let node = User::authenticated("system:node:n", "", vec!["system:nodes".into()]);
    let volumes = json!([{"name": "v", "configMap": {"name": "m"}}]);
    let pods = "/api/v1/namespaces/default/pods";
    for name in ["a", "b"] {
        let mut pod = pod(name, json!({}));
        pod["spec"]["nodeName"] = "n".into();
        pod["spec"]["volumes"] = volumes.clone();
        api.post(pods, pod).await.created();
    }
    for (gone, code) in [(None, 200), (Some("a"), 200), (Some("b"), 403)] {
        api.user = masters.clone();
        if let Some(name) = gone {
            api.delete_with(&format!("{pods}/{name}"), json!({"gracePeriodSeconds": 0})).await.ok();
        }
        api.user = node.clone();
        assert_eq!(api.get(&format!("{maps}/m")).await.code, code, "{gone:?}");
    }
}

/// A certificate request for this organization, in base64.
fn request_for(organization: rcgen::DnValue) -> String {
    let mut params = rcgen::CertificateParams::default();
    params.distinguished_name.push(rcgen::DnType::CommonName, "jane");
    params.distinguished_name.push(rcgen::DnType::OrganizationName, organization);
    let key = rcgen::KeyPair::generate().unwrap();
    STANDARD.encode(params.serialize_request(&key).unwrap().pem().unwrap())
}

#[tokio::test(start_paused = true)]
async fn no_encoding_of_a_subject_gets_a_certificate_of_the_masters() {
    use rcgen::DnValue;

    let api = Api::start().await;
    for (organization, code) in [
        (DnValue::Utf8String("dev".into()), 201),
        (DnValue::Utf8String("system:masters".into()), 403),
        (DnValue::TeletexString("system:masters".try_into().unwrap()), 403),
        (DnValue::BmpString("system:masters".try_into().unwrap()), 403),
        (DnValue::UniversalString("system:masters".try_into().unwrap()), 403),
    ] {
        let spec = json!({"signerName": "kubernetes.io/kube-apiserver-client", "usages": ["client auth"],
            "request": request_for(organization.clone())});
        let request = json!({"metadata": {"generateName": "r-"}, "spec": spec});
        let answer = api.post("/apis/certificates.k8s.io/v1/certificatesigningrequests", request).await;
        assert_eq!(answer.code, code, "{organization:?}: {}", answer.text);
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_whose_namespace_cannot_be_found_is_refused() {
    let disabled = ["NamespaceLifecycle", "ServiceAccount"].map(str::to_owned);
    let change = |config: Config| Config { admission: plugins(&[], &disabled).unwrap(), ..config };
    let api = Api::start_changed(change).await;
    let refused = api.post("/api/v1/namespaces/none/pods", pod("a", json!({}))).await;
    let message = "Internal error occurred: failed to lookup namespace \"none\"";
    assert_eq!(refused.refusal(), (500, "InternalError", message));
}
