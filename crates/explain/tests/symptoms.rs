//! Situations with a symptom that is easier to see than the cause.

use serde_json::{Value, json};
use setpoint_explain::kinds::GroupKind;

use crate::recorded::{POD, Recorded, check, event, explain, pod, waiting};

const WIDGET: GroupKind = GroupKind::of("example.com", "Widget");

fn ready(name: &str) -> Value {
    json!({"name": name, "ready": true, "state": {"running": {"startedAt": "2025-06-01T11:00:00Z"}}})
}

/// A pod with these containers.
fn with_containers(names: &[&str], restart: &str, status: Value) -> Value {
    let mut pod = pod(status);
    let containers = names.iter().map(|name| json!({"name": name, "image": "shop"}));
    pod["spec"] =
        json!({"nodeName": "n", "restartPolicy": restart, "containers": containers.collect::<Vec<_>>()});
    pod
}

#[test]
fn digits_of_a_tag_are_no_status_codes() {
    for tag in ["1.401", "sha-429", "denied"] {
        let image = format!("registry.example.com/shop:{tag}");
        let mut pod = waiting("ErrImagePull", &format!("{image}: not found"));
        pod["spec"]["containers"][0]["image"] = json!(image);
        check(vec![pod], POD, "p", &["the registry has no such image"]);
    }
}

#[test]
fn a_container_that_has_succeeded_does_not_hide_one_that_is_not_ready() {
    let statuses = json!([
        {"name": "done", "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}},
        {"name": "web", "ready": false, "started": true, "state": {"running": {"startedAt": "2025-06-01T11:00:00Z"}}},
    ]);
    let mut pod = with_containers(
        &["done", "web"],
        "OnFailure",
        json!({"phase": "Running", "containerStatuses": statuses}),
    );
    pod["spec"]["containers"][1]["readinessProbe"] = json!({"httpGet": {"port": 80, "path": "/healthz"}});
    check(vec![pod], POD, "p", &["readiness probe of container web"]);
}

#[test]
fn a_pod_that_is_initialized_again_waits_for_its_init_container() {
    let crash = json!({"exitCode": 3, "reason": "Error"});
    let init = json!([{"name": "migrate", "restartCount": 4, "lastState": {"terminated": crash},
        "state": {"waiting": {"reason": "CrashLoopBackOff"}}}]);
    let main = json!([{"name": "web", "lastState": {"terminated": {"exitCode": 255}},
        "state": {"waiting": {"reason": "PodInitializing"}}}]);
    let status = json!({"phase": "Running", "initContainerStatuses": init, "containerStatuses": main});
    let mut pod = with_containers(&["web"], "Always", status);
    pod["spec"]["initContainers"] = json!([{"name": "migrate", "image": "shop"}]);
    check(vec![pod], POD, "p", &["init container migrate exits with code 3"]);
}

fn service(pods: Vec<Value>) -> Vec<Value> {
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s", "namespace": "shop", "uid": "s"},
        "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]}});
    let labelled = pods.into_iter().map(|mut pod| {
        pod["metadata"]["labels"] = json!({"app": "web"});
        pod
    });
    std::iter::once(service).chain(labelled).collect()
}

#[test]
fn a_service_of_pods_that_ended_selects_pods() {
    let objects = service(vec![pod(json!({"phase": "Succeeded"}))]);
    check(objects, GroupKind::of("", "Service"), "s", &["its selector matches 1 pod, which ended"]);
}

#[test]
fn a_service_whose_ready_pods_are_in_no_endpoint_slice() {
    let conditions =
        json!([{"type": "Ready", "status": "True", "lastTransitionTime": "2025-06-01T11:00:00Z"}]);
    let status = json!({"phase": "Running", "conditions": conditions, "containerStatuses": [ready("c")]});
    let mut objects = service(vec![pod(status)]);
    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": "kube-controller-manager", "namespace": "kube-system", "uid": "l"},
        "spec": {"holderIdentity": "a", "renewTime": "2025-06-01T11:00:00Z", "leaseDurationSeconds": 15}});
    let target = GroupKind::of("", "Service");
    check(objects.clone(), target.clone(), "s", &["no EndpointSlice lists them"]);
    objects.push(lease);
    check(objects.clone(), target.clone(), "s", &["kube-controller-manager is down"]);
    objects.push(json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {"name": "s-1", "namespace": "shop", "uid": "e", "labels": {"kubernetes.io/service-name": "s"}},
        "endpoints": [{"addresses": ["10.0.0.1"]}]}));
    check(objects, target, "s", &["has converged"]);
}

#[test]
fn a_service_of_a_workload_without_pods() {
    let deployment = |replicas: i64| {
        json!({"apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "web", "namespace": "shop", "uid": "d", "generation": 1},
            "spec": {"replicas": replicas, "template": {"metadata": {"labels": {"app": "web"}}}},
            "status": {"observedGeneration": 1, "conditions": [{"type": "ReplicaFailure", "status": "True",
                "reason": "FailedCreate", "message": "pods \"web-1\" is forbidden: exceeded quota: small, requested: pods=1"}]}})
    };
    let target = GroupKind::of("", "Service");
    let with = |replicas: i64| [service(Vec::new()), vec![deployment(replicas)]].concat();
    check(with(0), target.clone(), "s", &["Deployment web is scaled to 0", "kubectl scale deployment/web"]);
    check(with(2), target, "s", &["Deployment shop/web", "ResourceQuota small is exceeded"]);
}

#[test]
fn a_budget_that_never_allows_a_disruption_is_not_the_fault_of_its_pods() {
    let mut crashing = waiting("CrashLoopBackOff", "back-off");
    crashing["metadata"]["labels"] = json!({"app": "web"});
    let budget = json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": {"name": "b", "namespace": "shop", "uid": "b", "generation": 1},
        "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {"app": "web"}}},
        "status": {"observedGeneration": 1, "expectedPods": 1, "desiredHealthy": 1, "currentHealthy": 0, "disruptionsAllowed": 0}});
    let kind = GroupKind::of("policy", "PodDisruptionBudget");
    check(vec![budget, crashing], kind, "b", &["even if all pods are healthy (maxUnavailable: 0)"]);
}

#[test]
fn a_definition_whose_objects_do_not_go() {
    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com", "uid": "d", "deletionTimestamp": "2025-06-01T11:00:00Z",
            "finalizers": ["customresourcecleanup.apiextensions.k8s.io"]},
        "spec": {"group": "example.com", "names": {"kind": "Widget", "plural": "widgets"}}});
    let widget = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w", "namespace": "shop",
        "uid": "w", "deletionTimestamp": "2025-06-01T11:00:00Z", "finalizers": ["example.com/backup"]}});
    let kind = GroupKind::of("apiextensions.k8s.io", "CustomResourceDefinition");
    check(
        vec![definition, widget],
        kind,
        "widgets.example.com",
        &["Widget shop/w", "finalizer example.com/backup"],
    );
}

/// A custom resource, with an event of its controller.
fn widget(generation: i64, status: Value) -> Vec<Value> {
    let mut failing = event("SyncError", "sync hook: connection refused");
    failing["involvedObject"] = json!({"kind": "Widget", "name": "w", "namespace": "shop", "uid": "w"});
    let widget = json!({"apiVersion": "example.com/v1", "kind": "Widget", "spec": {"size": 1}, "status": status,
        "metadata": {"name": "w", "namespace": "shop", "uid": "w", "generation": generation,
            "creationTimestamp": "2025-06-01T11:00:00Z"}});
    vec![widget, failing]
}

#[test]
fn a_controller_that_only_says_in_events_why_it_fails() {
    let mut without_status = widget(1, Value::Null);
    check(without_status.clone(), WIDGET, "w", &["SyncError", "connection refused"]);
    check(widget(2, json!({"observedGeneration": 1})), WIDGET, "w", &["SyncError", "connection refused"]);
    without_status.truncate(1);
    check(without_status, WIDGET, "w", &["no controller has reported on it for 60m"]);
}

#[test]
fn a_controller_that_runs_and_whose_hook_fails() {
    let conditions = json!([
        {"type": "Ready", "status": "True", "reason": "Started"},
        {"type": "HooksWorking", "status": "False", "reason": "HookFailing", "message": "sync hook: no answer within 10s"},
    ]);
    let controller = json!({"apiVersion": "metacontroller.k8s.io/v1alpha1", "kind": "CompositeController",
        "metadata": {"name": "c", "uid": "c"}, "spec": {}, "status": {"conditions": conditions}});
    let kind = GroupKind::of("metacontroller.k8s.io", "CompositeController");
    check(vec![controller], kind, "c", &["HookFailing", "no answer within 10s"]);
}

#[test]
fn a_change_of_a_moment_ago_is_not_overlooked() {
    let mut objects = widget(2, json!({"observedGeneration": 1}));
    objects.truncate(1);
    objects[0]["metadata"]["managedFields"] = json!([{"manager": "kubectl", "time": "2025-06-01T11:59:58Z"}]);
    let explanation = explain(&Recorded { objects, forbidden: Vec::new() }, &WIDGET, "w");
    assert!(!explanation.state.is_stuck(), "{}", explanation.headline);
}

#[test]
fn pods_of_the_previous_revision_are_not_the_problem_while_the_current_one_starts() {
    let owner =
        |kind: &str, name: &str| json!([{"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": name}]);
    let meta = |name: &str, revision: &str, owners: Value| {
        json!({"name": name, "namespace": "shop", "uid": name, "generation": 1, "creationTimestamp": "2025-06-01T11:00:00Z",
            "annotations": {"deployment.kubernetes.io/revision": revision}, "ownerReferences": owners})
    };
    let status = |all: i64| json!({"observedGeneration": 1, "replicas": all, "updatedReplicas": 1});
    let set = |name: &str, revision: &str, all: i64| {
        json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": meta(name, revision, owner("Deployment", "web")),
            "spec": {"replicas": all}, "status": status(all)})
    };
    let mut crashing = waiting("CrashLoopBackOff", "back-off");
    crashing["metadata"] = meta("old", "", owner("ReplicaSet", "web-1"));
    let mut starting = waiting("ContainerCreating", "");
    starting["metadata"] = meta("new", "", owner("ReplicaSet", "web-2"));
    starting["spec"]["volumes"] = json!([]);
    starting["status"]["conditions"] =
        json!([{"type": "PodScheduled", "status": "True", "lastTransitionTime": "2025-06-01T11:59:50Z"}]);
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta("web", "2", json!([])),
        "spec": {"replicas": 2}, "status": status(3)});
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    let objects = vec![node, deployment, set("web-1", "1", 2), set("web-2", "2", 1), crashing, starting];
    let explanation =
        explain(&Recorded { objects, forbidden: Vec::new() }, &GroupKind::of("apps", "Deployment"), "web");
    assert!(!explanation.state.is_stuck(), "{}", explanation.headline);
}

#[test]
fn a_namespace_that_no_controller_empties() {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "spec": {"finalizers": ["kubernetes"]},
        "metadata": {"name": "old", "uid": "n", "deletionTimestamp": "2025-06-01T11:00:00Z"},
        "status": {"phase": "Terminating"}});
    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": "kube-controller-manager", "namespace": "kube-system", "uid": "l"},
        "spec": {"holderIdentity": ""}});
    check(
        vec![namespace, lease],
        GroupKind::of("", "Namespace"),
        "old",
        &["kube-controller-manager is down"],
    );
}

#[test]
fn an_object_that_may_not_be_read_is_an_error() {
    let recorded = Recorded { objects: widget(1, Value::Null), forbidden: vec!["Widget"] };
    let explanation = explain(&recorded, &WIDGET, "w");
    assert!(!explanation.found && explanation.unknown[0].contains("cannot list resource"));
}
