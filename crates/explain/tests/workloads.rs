//! Workloads: rollouts, quota, admission, jobs, autoscalers.

use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::core::v1::Namespace;
use serde_json::{Value, json};
use setpoint::Kind;
use setpoint_sim::{TestCluster, webhooks};

use crate::situation::{
    behaving, cluster, container, delete, deployment, explained, global, merge, object, pass, patch, pod,
    situation, workload,
};

fn requests(cpu: &str) -> Value {
    json!({"containers": [container(json!({"resources": {"requests": {"cpu": cpu}}}))]})
}

situation!(
    a_quota_that_is_exceeded,
    cluster(),
    "deployment/web",
    ["ResourceQuota default/small", "exceeded quota: small", "raise spec.hard"],
    async |c| {
        c.create(object("v1", "ResourceQuota", "small", json!({"spec": {"hard": {"pods": "1"}}}))).await;
        pass(c, 10).await;
        c.create(deployment("web", 3, pod("p", json!({})))).await;
    }
);

situation!(
    a_quota_that_asks_for_requests,
    cluster(),
    "deployment/web",
    ["ResourceQuota default/cpu", "must specify"],
    async |c| {
        c.create(object("v1", "ResourceQuota", "cpu", json!({"spec": {"hard": {"requests.cpu": "4"}}})))
            .await;
        pass(c, 10).await;
        c.create(deployment("web", 1, pod("p", json!({})))).await;
    }
);

situation!(
    a_limit_range_that_is_exceeded,
    cluster(),
    "deployment/web",
    ["ReplicaSet default/web-", "LimitRange", "maximum cpu usage per Container is 1"],
    async |c| {
        let limits = json!([{"type": "Container", "max": {"cpu": "1"}}]);
        c.create(object("v1", "LimitRange", "limits", json!({"spec": {"limits": limits}}))).await;
        let resources = json!({"resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "2"}}});
        c.create(deployment("web", 1, pod("p", json!({"containers": [container(resources)]})))).await;
    }
);

situation!(
    pod_security_that_forbids_it,
    cluster(),
    "deployment/web",
    ["ReplicaSet default/web-", "PodSecurity restricted", "runAsNonRoot"],
    async |c| {
        let labels = json!({"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}});
        patch(c, &Kind::of::<Namespace>(), "default", labels).await;
        c.create(deployment("web", 1, pod("p", json!({})))).await;
    }
);

situation!(
    a_policy_that_denies,
    cluster(),
    "deployment/web",
    ["ReplicaSet default/web-", "ValidatingAdmissionPolicy no-latest", "latest is not allowed"],
    async |c| {
        let rules = json!([{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}]);
        let validations = json!([{"expression": "false", "message": "latest is not allowed"}]);
        let spec = json!({"spec": {"failurePolicy": "Fail", "matchConstraints": {"resourceRules": rules}, "validations": validations}});
        c.create(global("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy", "no-latest", spec))
            .await;
        let binding = json!({"spec": {"policyName": "no-latest", "validationActions": ["Deny"]}});
        c.create(global(
            "admissionregistration.k8s.io/v1",
            "ValidatingAdmissionPolicyBinding",
            "no-latest",
            binding,
        ))
        .await;
        pass(c, 10).await;
        c.create(deployment("web", 1, pod("p", json!({})))).await;
    }
);

fn hook(service: &str) -> Value {
    let rules =
        json!([{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"]}]);
    let client = json!({"service": {"name": service, "namespace": "default", "path": "/"}});
    let webhook = json!({"name": "pods.policy.example", "clientConfig": client, "rules": rules, "sideEffects": "None",
        "admissionReviewVersions": ["v1"]});
    global(
        "admissionregistration.k8s.io/v1",
        "ValidatingWebhookConfiguration",
        "policy",
        json!({"webhooks": [webhook]}),
    )
}

fn denying() -> TestCluster {
    cluster().webhook("policy.default.svc", "/", |review| webhooks::deny(&review, "no owner label"))
}

situation!(
    a_webhook_that_denies,
    denying(),
    "deployment/web",
    ["ReplicaSet default/web-", "pods.policy.example", "no owner label"],
    async |c| {
        c.create(hook("policy")).await;
        c.create(deployment("web", 1, pod("p", json!({})))).await;
    }
);

situation!(
    a_webhook_whose_service_does_not_exist,
    cluster(),
    "deployment/web",
    ["Service default/policy", "does not exist"],
    async |c| {
        c.create(hook("policy")).await;
        c.create(deployment("web", 1, pod("p", json!({})))).await;
    }
);

situation!(
    a_service_account_that_does_not_exist,
    cluster(),
    "deployment/web",
    ["ServiceAccount default/robot", "does not exist"],
    async |c| {
        c.create(deployment("web", 1, pod("p", json!({"serviceAccountName": "robot"})))).await;
    }
);

situation!(
    a_priority_class_that_does_not_exist,
    cluster(),
    "deployment/web",
    ["PriorityClass high", "does not exist"],
    async |c| {
        c.create(deployment("web", 1, pod("p", json!({"priorityClassName": "high"})))).await;
    }
);

situation!(
    a_paused_rollout,
    cluster(),
    "deployment/web",
    ["Deployment default/web", "paused", "kubectl rollout resume"],
    async |c| {
        c.create(deployment("web", 1, pod("p", json!({})))).await;
        pass(c, 30).await;
        let change = json!({"spec": {"paused": true, "template": {"spec": {"containers": [{"name": "c", "image": "nginx:2"}]}}}});
        patch(c, &Kind::of::<Deployment>(), "web", change).await;
    }
);

/// The cause is the image, and the tree shows the deadline.
#[test]
fn a_rollout_past_its_deadline_names_what_keeps_it() {
    let (explanation, text) = explained(cluster().missing_image("shop:2"), "deployment/web", async |c| {
        let mut web = deployment("web", 2, pod("p", json!({})));
        merge(&mut web, json!({"spec": {"progressDeadlineSeconds": 30}}));
        c.create(web).await;
        pass(c, 30).await;
        let change =
            json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "shop:2"}]}}}});
        patch(c, &Kind::of::<Deployment>(), "web", change).await;
    });
    assert!(explanation.headline.contains("shop:2"), "{text}");
    assert!(explanation.root.summary.contains("ProgressDeadlineExceeded"), "{text}");
}

situation!(
    a_deployment_without_its_controller,
    TestCluster::new().controllers(&["serviceaccount"]),
    "deployment/web",
    ["Deployment default/web", "controller has not reconciled it"],
    async |c| {
        c.create(deployment("web", 1, pod("p", json!({})))).await;
    }
);

situation!(
    a_stateful_set_that_waits_for_an_ordinal,
    cluster().missing_image("db:*"),
    "statefulset/db",
    ["Pod default/db-0", "db:1"],
    async |c| {
        let pod = pod("p", json!({"containers": [container(json!({"image": "db:1"}))]}));
        c.create(workload("StatefulSet", "db", json!({"replicas": 3, "serviceName": "db"}), pod)).await;
    }
);

situation!(
    a_partition_that_holds_an_update_back,
    cluster(),
    "statefulset/db",
    ["StatefulSet default/db", "partition 2"],
    async |c| {
        let spec = json!({"replicas": 3, "serviceName": "db",
        "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 2}}});
        c.create(workload("StatefulSet", "db", spec, pod("p", json!({})))).await;
        pass(c, 60).await;
        let change =
            json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "nginx:2"}]}}}});
        patch(c, &Kind::of::<StatefulSet>(), "db", change).await;
    }
);

situation!(
    a_stateful_set_that_updates_on_delete,
    cluster(),
    "statefulset/db",
    ["StatefulSet default/db", "OnDelete"],
    async |c| {
        let spec = json!({"replicas": 1, "serviceName": "db", "updateStrategy": {"type": "OnDelete"}});
        c.create(workload("StatefulSet", "db", spec, pod("p", json!({})))).await;
        pass(c, 60).await;
        let change =
            json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "nginx:2"}]}}}});
        patch(c, &Kind::of::<StatefulSet>(), "db", change).await;
    }
);

situation!(
    a_daemon_set_that_no_node_matches,
    cluster(),
    "daemonset/agent",
    ["DaemonSet default/agent", "node selector disk=ssd"],
    async |c| {
        c.create(workload(
            "DaemonSet",
            "agent",
            json!({}),
            pod("p", json!({"nodeSelector": {"disk": "ssd"}})),
        ))
        .await;
    }
);

situation!(
    a_daemon_set_whose_pods_crash,
    cluster(),
    "daemonset/agent",
    ["Pod default/agent-", "exits with code 4"],
    async |c| {
        let pod = behaving("p", json!({"node.setpoint.dev/exit-code": "4"}), json!({}));
        c.create(workload("DaemonSet", "agent", json!({}), pod)).await;
    }
);

fn job(name: &str, spec: Value, pod: Value) -> Value {
    let mut template =
        json!({"metadata": {"annotations": pod["metadata"]["annotations"]}, "spec": pod["spec"]});
    merge(&mut template, json!({"spec": {"restartPolicy": "Never"}}));
    let mut whole = json!({"template": template});
    merge(&mut whole, spec);
    object("batch/v1", "Job", name, json!({"spec": whole}))
}

fn failing(code: &str) -> Value {
    behaving("p", json!({"node.setpoint.dev/exit-code": code}), json!({}))
}

situation!(
    a_job_at_its_backoff_limit,
    cluster(),
    "job/import",
    ["Job default/import", "BackoffLimitExceeded", "exits with code 5"],
    async |c| {
        c.create(job("import", json!({"backoffLimit": 1}), failing("5"))).await;
    }
);

situation!(
    a_job_past_its_deadline,
    cluster(),
    "job/import",
    ["Job default/import", "DeadlineExceeded"],
    async |c| {
        let pod = behaving("p", json!({"node.setpoint.dev/run-for": "forever"}), json!({}));
        c.create(job("import", json!({"activeDeadlineSeconds": 30}), pod)).await;
    }
);

situation!(
    a_job_with_failed_indexes,
    cluster(),
    "job/import",
    ["Job default/import", "FailedIndexes", "failed indexes"],
    async |c| {
        let spec = json!({"completions": 2, "parallelism": 2, "completionMode": "Indexed", "backoffLimitPerIndex": 0});
        c.create(job("import", spec, failing("6"))).await;
    }
);

situation!(
    a_job_that_its_failure_policy_fails,
    cluster(),
    "job/import",
    ["Job default/import", "pod failure policy"],
    async |c| {
        let rules = json!([{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}}]);
        c.create(job("import", json!({"podFailurePolicy": {"rules": rules}}), failing("42"))).await;
    }
);

situation!(a_suspended_job, cluster(), "job/import", ["Job default/import", "suspended"], async |c| {
    c.create(job("import", json!({"suspend": true}), pod("p", json!({})))).await;
});

situation!(
    a_job_whose_pods_cannot_be_created,
    cluster(),
    "job/import",
    ["ResourceQuota default/none", "exceeded quota"],
    async |c| {
        c.create(object("v1", "ResourceQuota", "none", json!({"spec": {"hard": {"pods": "0"}}}))).await;
        pass(c, 10).await;
        c.create(job("import", json!({}), pod("p", json!({})))).await;
    }
);

fn cron(spec: Value, job: Value) -> Value {
    let mut whole = json!({"schedule": "* * * * *", "jobTemplate": {"spec": job["spec"]}});
    merge(&mut whole, spec);
    object("batch/v1", "CronJob", "nightly", json!({"spec": whole}))
}

situation!(
    a_suspended_cron_job,
    cluster(),
    "cronjob/nightly",
    ["CronJob default/nightly", "suspended"],
    async |c| {
        c.create(cron(json!({"suspend": true}), job("j", json!({}), pod("p", json!({}))))).await;
    }
);

situation!(
    a_cron_job_that_forbids_concurrency,
    cluster(),
    "cronjob/nightly",
    ["CronJob default/nightly", "concurrencyPolicy is Forbid"],
    async |c| {
        let long = behaving("p", json!({"node.setpoint.dev/run-for": "forever"}), json!({}));
        c.create(cron(json!({"concurrencyPolicy": "Forbid"}), job("j", json!({}), long))).await;
        pass(c, 240).await;
    }
);

situation!(
    a_cron_job_without_its_controller,
    TestCluster::new().controllers(&["serviceaccount"]),
    "cronjob/nightly",
    ["CronJob default/nightly", "missed the job"],
    async |c| {
        c.create(cron(json!({}), job("j", json!({}), pod("p", json!({}))))).await;
    }
);

situation!(
    a_cron_job_whose_last_job_failed,
    cluster(),
    "cronjob/nightly",
    ["Job default/nightly-", "BackoffLimitExceeded"],
    async |c| {
        c.create(cron(json!({}), job("j", json!({"backoffLimit": 0}), failing("7")))).await;
    }
);

fn scaler(target: &str, spec: Value) -> Value {
    let metric = json!([{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}}]);
    let reference = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": target});
    let mut whole =
        json!({"scaleTargetRef": reference, "minReplicas": 1, "maxReplicas": 3, "metrics": metric});
    merge(&mut whole, spec);
    object("autoscaling/v2", "HorizontalPodAutoscaler", "web", json!({"spec": whole}))
}

situation!(
    an_autoscaler_of_pods_without_requests,
    cluster(),
    "hpa/web",
    ["HorizontalPodAutoscaler default/web", "missing request for cpu"],
    async |c| {
        c.create(deployment("web", 1, pod("p", json!({})))).await;
        c.create(scaler("web", json!({}))).await;
    }
);

situation!(
    an_autoscaler_of_a_target_that_does_not_exist,
    cluster(),
    "hpa/web",
    ["HorizontalPodAutoscaler default/web", "Deployment default/wbe does not exist"],
    async |c| {
        c.create(scaler("wbe", json!({}))).await;
    }
);

situation!(
    an_autoscaler_at_its_maximum,
    cluster(),
    "hpa/web",
    ["HorizontalPodAutoscaler default/web", "maximum of 3"],
    async |c| {
        let busy = behaving("p", json!({"node.setpoint.dev/cpu-usage": "500%"}), requests("100m"));
        c.create(deployment("web", 1, busy)).await;
        c.create(scaler("web", json!({}))).await;
        pass(c, 400).await;
    }
);

situation!(
    an_autoscaler_that_is_disabled,
    cluster(),
    "hpa/web",
    ["HorizontalPodAutoscaler default/web", "scaled to 0"],
    async |c| {
        c.create(deployment("web", 0, pod("p", requests("100m")))).await;
        c.create(scaler("web", json!({}))).await;
    }
);

situation!(
    an_autoscaler_without_a_metrics_api,
    cluster().nodes(0),
    "hpa/web",
    ["HorizontalPodAutoscaler default/web", "metrics"],
    async |c| {
        c.create(deployment("web", 1, pod("p", requests("100m")))).await;
        c.create(scaler("web", json!({}))).await;
    }
);

// A dependent whose owner is gone is about to be deleted.
situation!(
    an_owner_that_does_not_exist,
    TestCluster::new().controllers(&["serviceaccount"]),
    "configmap/orphan",
    ["ConfigMap default/orphan", "owner Deployment web no longer exists"],
    async |c| {
        let owner = json!([{"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "5f1ce2e4-0000-4000-8000-000000000000"}]);
        c.create(object("v1", "ConfigMap", "orphan", json!({"metadata": {"ownerReferences": owner}}))).await;
    }
);

/// Converged objects are reported as converged; the command exits with code 0.
#[test]
fn a_deployment_that_is_ready_has_converged() {
    let (explanation, text) = explained(cluster(), "deployment/web", async |c| {
        c.create(deployment("web", 3, pod("p", json!({})))).await;
        c.create(deployment("gone", 1, pod("p", json!({})))).await;
        delete(c, &Kind::of::<Deployment>(), "gone", false).await;
    });
    assert_eq!(
        (explanation.state, explanation.cause),
        (setpoint_explain::model::State::Converged, None),
        "{text}"
    );
    assert!(explanation.headline.contains("3 of 3 pods are available"), "{text}");
    assert!(explanation.unknown.is_empty(), "{text}");
}
