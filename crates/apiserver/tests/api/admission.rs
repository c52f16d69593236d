//! Admission: checks and changes before objects are stored.

use std::time::Duration;

use serde_json::{Value, json};

use crate::client::Api;

const PODS: &str = "/api/v1/namespaces/default/pods";
const TOKEN_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

fn pod(name: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i"}]}})
}

#[tokio::test(start_paused = true)]
async fn creating_in_a_missing_namespace_is_rejected() {
    let api = Api::start().await;
    let refused = api.post("/api/v1/namespaces/none/configmaps", json!({"metadata": {"name": "a"}})).await;
    assert_eq!(refused.refusal(), (404, "NotFound", "namespaces \"none\" not found"));
    assert_eq!(refused.body["details"]["kind"], "namespaces");
    let lease = json!({"metadata": {"name": "x"}});
    let path = "/apis/coordination.k8s.io/v1/namespaces/none/leases/x";
    assert_eq!(api.put(path, lease).await.code, 404);
}

#[tokio::test(start_paused = true)]
async fn a_pod_runs_as_a_service_account_and_reads_its_token() {
    let api = Api::start().await;
    api.default_service_account().await;
    let created = api.post(PODS, pod("a")).await.created();
    let spec = &created["spec"];
    assert_eq!(
        (&spec["serviceAccountName"], &spec["serviceAccount"]),
        (&json!("default"), &json!("default"))
    );
    let mount = &spec["containers"][0]["volumeMounts"][0];
    assert_eq!((&mount["mountPath"], &mount["readOnly"]), (&json!(TOKEN_PATH), &json!(true)));
    let volume = &spec["volumes"][0];
    assert_eq!(volume["name"], mount["name"]);
    assert!(mount["name"].as_str().unwrap().starts_with("kube-api-access-"));
    let sources = volume["projected"]["sources"].as_array().unwrap();
    assert_eq!(sources[0]["serviceAccountToken"]["expirationSeconds"], 3607);
    assert_eq!(sources[1]["configMap"]["name"], "kube-root-ca.crt");
    assert_eq!(sources[2]["downwardAPI"]["items"][0]["fieldRef"]["fieldPath"], "metadata.namespace");
}

#[tokio::test(start_paused = true)]
async fn the_token_is_mounted_only_where_it_is_wanted() {
    let api = Api::start().await;
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    let quiet = json!({
        "metadata": {"name": "quiet"},
        "automountServiceAccountToken": false,
        "imagePullSecrets": [{"name": "registry"}],
    });
    api.post(accounts, quiet).await.created();
    let mut wanted = pod("a");
    wanted["spec"]["serviceAccountName"] = "quiet".into();
    let without = api.post(PODS, wanted.clone()).await.created();
    assert_eq!(without["spec"]["volumes"], Value::Null);
    assert_eq!(without["spec"]["imagePullSecrets"], json!([{"name": "registry"}]));
    wanted["metadata"]["name"] = "b".into();
    wanted["spec"]["automountServiceAccountToken"] = true.into();
    let with = api.post(PODS, wanted).await.created();
    assert_eq!(with["spec"]["volumes"].as_array().unwrap().len(), 1, "the pod's value takes precedence");
    let mut mounted = pod("c");
    mounted["spec"]["serviceAccountName"] = "quiet".into();
    mounted["spec"]["automountServiceAccountToken"] = true.into();
    mounted["spec"]["volumes"] = json!([{"name": "mine", "emptyDir": {}}]);
    mounted["spec"]["containers"][0]["volumeMounts"] = json!([{"name": "mine", "mountPath": TOKEN_PATH}]);
    let own = api.post(PODS, mounted).await.created();
    assert_eq!(own["spec"]["volumes"].as_array().unwrap().len(), 1, "the mount path is taken");
}

#[tokio::test(start_paused = true)]
async fn a_pod_without_an_account_is_refused_but_the_default_one_is_waited_for() {
    let api = Api::start().await;
    let mut other = pod("a");
    other["spec"]["serviceAccountName"] = "other".into();
    let start = api.clock.now();
    assert_eq!(
        api.post(PODS, other).await.refusal(),
        (
            403,
            "Forbidden",
            "pods \"a\" is forbidden: error looking up service account default/other: serviceaccount \"other\" not \
             found"
        )
    );
    assert_eq!(api.clock.now(), start);
    let refused = api.post(PODS, json!({"metadata": {"generateName": "w-"}, "spec": pod("x")["spec"]})).await;
    assert!(refused.refusal().2.starts_with("pods \"w-\" is forbidden: error looking up service account"));
    assert!(api.clock.now() > start);
    let (waited, ()) = tokio::join!(api.post(PODS, pod("a")), async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        api.default_service_account().await;
    });
    assert_eq!(waited.code, 201);
}

#[tokio::test(start_paused = true)]
async fn priorities_are_resolved() {
    let api = Api::start().await;
    api.default_service_account().await;
    let created = api.post(PODS, pod("a")).await.created();
    assert_eq!(created["spec"]["priority"], 0);
    assert_eq!(created["spec"]["preemptionPolicy"], "PreemptLowerPriority");
    let mut critical = pod("b");
    critical["spec"]["priorityClassName"] = "system-node-critical".into();
    assert_eq!(api.post(PODS, critical).await.created()["spec"]["priority"], 2_000_001_000);
    for (field, value) in
        [("priorityClassName", json!("none")), ("priority", json!(5)), ("preemptionPolicy", json!("Never"))]
    {
        let mut wrong = pod("c");
        wrong["spec"][field] = value;
        assert_eq!(api.post(PODS, wrong).await.code, 403, "{field}");
    }
}

#[tokio::test(start_paused = true)]
async fn pods_tolerate_a_lost_node_for_a_while() {
    let api = Api::start().await;
    api.default_service_account().await;
    let created = api.post(PODS, pod("a")).await.created();
    let tolerations = created["spec"]["tolerations"].as_array().unwrap();
    let keys: Vec<&str> = tolerations.iter().map(|t| t["key"].as_str().unwrap()).collect();
    assert_eq!(keys, ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"]);
    assert!(tolerations.iter().all(|t| t["tolerationSeconds"] == 300 && t["effect"] == "NoExecute"));
    let mut tolerant = pod("b");
    tolerant["spec"]["tolerations"] = json!([{"operator": "Exists"}]);
    let created = api.post(PODS, tolerant).await.created();
    assert_eq!(created["spec"]["tolerations"].as_array().unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_new_node_is_tainted_and_a_claim_protected() {
    let api = Api::start().await;
    let node = api.post("/api/v1/nodes", json!({"metadata": {"name": "n"}})).await.created();
    let taint = json!([{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]);
    assert_eq!(node["spec"]["taints"], taint);
    let claim = json!({
        "metadata": {"name": "a"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    });
    let created = api.post("/api/v1/namespaces/default/persistentvolumeclaims", claim).await.created();
    assert_eq!(created["metadata"]["finalizers"], json!(["kubernetes.io/pvc-protection"]));
}
