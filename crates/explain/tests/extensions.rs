//! What extends the API, certificates, leases, custom resources.

use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::{Value, json};
use setpoint::Kind;
use setpoint::client::{Patch, Subresource};
use setpoint_sim::Running;

use crate::situation::{
    cluster, container, global, merge, object, pass, patch_status, pod, situation, workload,
};

fn definition(plural: &str, kind: &str, short: &str) -> Value {
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let version = json!({"name": "v1", "served": true, "storage": true, "schema": schema, "subresources": {"status": {}}});
    let names =
        json!({"plural": plural, "kind": kind, "singular": kind.to_lowercase(), "shortNames": [short]});
    let spec = json!({"group": "example.com", "names": names, "scope": "Namespaced", "versions": [version]});
    global(
        "apiextensions.k8s.io/v1",
        "CustomResourceDefinition",
        &format!("{plural}.example.com"),
        json!({"spec": spec}),
    )
}

fn widgets() -> Kind {
    Kind::new("example.com", "v1", "Widget", "widgets", true)
}

/// Installs widgets and creates one with this status.
async fn widget(cluster: &Running, status: Value) {
    let definition: CustomResourceDefinition =
        serde_json::from_value(definition("widgets", "Widget", "wd")).expect("a definition");
    cluster.install(&definition).await;
    cluster.create(object("example.com/v1", "Widget", "w", json!({"spec": {"size": 1}}))).await;
    if !status.is_null() {
        patch_status(cluster, &widgets(), "w", json!({"status": status})).await;
    }
}

fn condition(kind: &str, status: &str, message: &str) -> Value {
    json!([{"type": kind, "status": status, "reason": "Because", "message": message, "lastTransitionTime": "2025-01-01T00:00:00Z"}])
}

situation!(
    a_custom_resource_that_is_not_ready,
    cluster(),
    "wd/w",
    ["Widget default/w", "Ready=False", "the database is down"],
    async |c| {
        widget(c, json!({"conditions": condition("Ready", "False", "the database is down")})).await;
    }
);

situation!(
    a_custom_resource_that_is_stalled,
    cluster(),
    "widgets.example.com/w",
    ["Widget default/w", "Stalled=True", "bad url"],
    async |c| {
        widget(c, json!({"conditions": condition("Stalled", "True", "bad url")})).await;
    }
);

situation!(
    a_custom_resource_that_is_being_reconciled,
    cluster(),
    "widget/w",
    ["Widget default/w", "Reconciling=True"],
    async |c| {
        widget(c, json!({"conditions": condition("Reconciling", "True", "fetching")})).await;
    }
);

situation!(
    a_custom_resource_that_its_controller_has_not_seen,
    cluster(),
    "widget/w",
    ["Widget default/w", "observedGeneration 0, generation 1"],
    async |c| {
        widget(c, json!({"observedGeneration": 0, "conditions": condition("Ready", "True", "fine")})).await;
    }
);

situation!(
    a_custom_resource_without_a_controller,
    cluster(),
    "widget/w",
    ["Widget default/w", "no status"],
    async |c| {
        widget(c, Value::Null).await;
    }
);

situation!(
    a_custom_resource_with_a_failed_phase,
    cluster(),
    "widget/w",
    ["Widget default/w", "is Failed", "no space"],
    async |c| {
        widget(c, json!({"phase": "Failed", "message": "no space"})).await;
    }
);

situation!(
    a_custom_resource_whose_pods_are_stuck,
    cluster().missing_image("widget:*"),
    "widget/w",
    ["Pod default/engine-", "widget:1"],
    async |c| {
        widget(c, json!({"conditions": condition("Ready", "False", "")})).await;
        let owner = c.get(&widgets(), &setpoint::Key::namespaced("default", "w")).await.expect("it is there");
        let pod = pod("p", json!({"containers": [container(json!({"image": "widget:1"}))]}));
        let mut engine = workload("Deployment", "engine", json!({"replicas": 1}), pod);
        let reference = json!([{"apiVersion": "example.com/v1", "kind": "Widget", "name": "w",
        "uid": owner["metadata"]["uid"], "controller": true}]);
        merge(&mut engine, json!({"metadata": {"ownerReferences": reference}}));
        c.create(engine).await;
    }
);

situation!(
    a_definition_whose_names_are_taken,
    cluster(),
    "crd/gadgets.example.com",
    ["CustomResourceDefinition gadgets.example.com", "names are not accepted"],
    async |c| {
        c.create(definition("widgets", "Widget", "wd")).await;
        pass(c, 10).await;
        c.create(definition("gadgets", "Widget", "gd")).await;
    }
);

situation!(
    an_api_service_whose_service_does_not_exist,
    cluster(),
    "apiservice/v1.metrics.example.com",
    ["Service default/metrics", "does not exist"],
    async |c| {
        let spec = json!({"group": "metrics.example.com", "version": "v1", "groupPriorityMinimum": 100, "versionPriority": 10,
        "insecureSkipTLSVerify": true, "service": {"name": "metrics", "namespace": "default"}});
        c.create(global(
            "apiregistration.k8s.io/v1",
            "APIService",
            "v1.metrics.example.com",
            json!({"spec": spec}),
        ))
        .await;
        let available = json!({"status": {"conditions": [{"type": "Available", "status": "False", "reason": "ServiceNotFound",
        "message": "service/metrics in \"default\" is not present", "lastTransitionTime": "2025-01-01T00:00:00Z"}]}});
        let kind = Kind::new("apiregistration.k8s.io", "v1", "APIService", "apiservices", false);
        patch_status(c, &kind, "v1.metrics.example.com", available).await;
    }
);

situation!(
    a_webhook_without_endpoints,
    cluster(),
    "validatingwebhookconfiguration/policy",
    ["Service default/policy", "selects no pods"],
    async |c| {
        c.create(object(
            "v1",
            "Service",
            "policy",
            json!({"spec": {"selector": {"app": "policy"}, "ports": [{"port": 443}]}}),
        ))
        .await;
        let rules = json!([{"apiGroups": ["apps"], "apiVersions": ["v1"], "resources": ["deployments"], "operations": ["CREATE"]}]);
        let client = json!({"service": {"name": "policy", "namespace": "default"}});
        let webhook = json!({"name": "a.policy.example", "clientConfig": client, "rules": rules, "sideEffects": "None",
        "admissionReviewVersions": ["v1"]});
        c.create(global(
            "admissionregistration.k8s.io/v1",
            "ValidatingWebhookConfiguration",
            "policy",
            json!({"webhooks": [webhook]}),
        ))
        .await;
    }
);

/// A request for a client certificate, made with openssl.
const REQUEST: &str = include_str!("request.csr");

fn signing_request(signer: &str) -> Value {
    let spec = json!({"request": REQUEST.trim(), "signerName": signer, "usages": ["client auth"]});
    global("certificates.k8s.io/v1", "CertificateSigningRequest", "jane", json!({"spec": spec}))
}

async fn decide(cluster: &Running, kind: &str) {
    let condition =
        json!([{"type": kind, "status": "True", "reason": "ByHand", "message": "decided by hand"}]);
    let patch = Patch::merge(&json!({"status": {"conditions": condition}}));
    let kind = Kind::of::<CertificateSigningRequest>();
    let key = setpoint::Key::cluster("jane");
    cluster.client().patch(&kind, &key, Subresource::Approval, patch).await.expect("the request is decided");
}

situation!(
    a_certificate_that_nobody_approves,
    cluster(),
    "csr/jane",
    ["CertificateSigningRequest jane", "waits for approval", "kubectl certificate approve jane"],
    async |c| {
        c.create(signing_request("kubernetes.io/kube-apiserver-client")).await;
    }
);

situation!(
    a_certificate_that_was_denied,
    cluster(),
    "csr/jane",
    ["CertificateSigningRequest jane", "was denied"],
    async |c| {
        c.create(signing_request("example.com/signer")).await;
        decide(c, "Denied").await;
    }
);

situation!(
    a_certificate_without_a_signer,
    cluster(),
    "csr/jane",
    ["CertificateSigningRequest jane", "no signer example.com/signer"],
    async |c| {
        c.create(signing_request("example.com/signer")).await;
        decide(c, "Approved").await;
    }
);

situation!(
    a_component_that_is_down,
    cluster(),
    "lease/kube-system/kube-scheduler",
    ["Lease kube-system/kube-scheduler", "has expired", "kube-scheduler is down"],
    async |c| {
        expired(c, "kube-scheduler").await;
    }
);

async fn expired(cluster: &Running, name: &str) {
    let spec = json!({"holderIdentity": "host-1", "leaseDurationSeconds": 15, "renewTime": "2025-01-01T00:00:05.000000Z"});
    let mut lease = object("coordination.k8s.io/v1", "Lease", name, json!({"spec": spec}));
    merge(&mut lease, json!({"metadata": {"namespace": "kube-system"}}));
    cluster.create(lease).await;
}

situation!(
    a_pod_that_waits_for_a_scheduler_that_is_down,
    without_scheduler(),
    "pod/p",
    ["Lease kube-system/kube-scheduler", "has expired"],
    async |c| {
        expired(c, "kube-scheduler").await;
        c.create(pod("p", json!({}))).await;
    }
);

fn without_scheduler() -> setpoint_sim::TestCluster {
    setpoint_sim::TestCluster::new().all_controllers().nodes(1)
}

situation!(
    a_quota_that_is_exhausted,
    cluster(),
    "quota/small",
    ["ResourceQuota default/small", "exhausted", "secrets: 1 of 1 used"],
    async |c| {
        c.create(object("v1", "ResourceQuota", "small", json!({"spec": {"hard": {"secrets": "1"}}}))).await;
        c.create(object("v1", "Secret", "a", json!({}))).await;
    }
);
