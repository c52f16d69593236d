//! Explanations end and stay small, whatever the cluster contains.

use serde_json::{Value, json};
use setpoint_explain::kinds::GroupKind;
use setpoint_explain::model::Node;

use crate::recorded::{Recorded, explain};

fn size(node: &Node) -> usize {
    1 + node.children.iter().map(size).sum::<usize>()
}

fn depth(node: &Node) -> usize {
    1 + node.children.iter().map(depth).max().unwrap_or_default()
}

/// Deployments that own each other, as a mistaken controller could make them.
#[test]
fn cycles_of_owners_end() {
    let owned = |name: &str, owner: &str, kind: &str| {
        json!({"apiVersion": "example.com/v1", "kind": kind,
        "metadata": {"name": name, "namespace": "shop", "uid": name, "deletionTimestamp": "2025-06-01T11:00:00Z",
            "finalizers": ["foregroundDeletion"],
            "ownerReferences": [{"apiVersion": "example.com/v1", "kind": kind, "name": owner, "uid": owner, "blockOwnerDeletion": true}]}})
    };
    let objects = vec![owned("a", "b", "Widget"), owned("b", "a", "Widget")];
    let explanation =
        explain(&Recorded { objects, forbidden: Vec::new() }, &GroupKind::of("example.com", "Widget"), "a");
    assert!(depth(&explanation.root) < 10);
}

fn deployment(replicas: usize) -> Vec<Value> {
    let owner = |kind: &str, name: &str| json!([{"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": name, "controller": true}]);
    let meta = |name: &str, owners: Value| {
        json!({"name": name, "namespace": "shop", "uid": name, "generation": 1,
        "creationTimestamp": "2025-06-01T10:00:00Z", "ownerReferences": owners})
    };
    let status = json!({"observedGeneration": 1, "replicas": replicas, "updatedReplicas": replicas});
    let mut objects = vec![
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta("web", json!([])), "spec": {"replicas": replicas}, "status": status}),
        json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": meta("web-1", owner("Deployment", "web")), "spec": {"replicas": replicas}, "status": status}),
    ];
    for number in 0..replicas {
        let name = format!("web-1-{number}");
        let reason = ["CrashLoopBackOff", "ImagePullBackOff", "CreateContainerError"][number % 3];
        let state = json!({"waiting": {"reason": reason, "message": "x".repeat(2_000)}});
        objects.push(
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": meta(&name, owner("ReplicaSet", "web-1")),
            "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "shop:1"}]},
            "status": {"phase": "Pending", "containerStatuses": [{"name": "c", "state": state}]}}),
        );
    }
    objects
}

#[test]
fn ten_thousand_pods_are_three_groups() {
    let recorded = Recorded { objects: deployment(10_000), forbidden: Vec::new() };
    let explanation = explain(&recorded, &GroupKind::of("apps", "Deployment"), "web");
    let pods = &explanation.root.children[0].children;
    assert_eq!(pods.iter().map(|pod| pod.more + 1).sum::<usize>(), 10_000);
    assert_eq!(pods.len(), 3);
    let text = serde_json::to_string(&explanation).expect("it encodes");
    assert!(size(&explanation.root) < 20 && text.len() < 20_000, "{}", text.len());
}

/// Hostile texts: escape sequences, and messages of megabytes.
#[test]
fn hostile_messages_are_harmless() {
    let message = format!("\u{1b}]0;owned\u{7}{}", "y".repeat(1_000_000));
    let widget = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w", "namespace": "shop"},
        "spec": {}, "status": {"conditions": [{"type": "Ready", "status": "False", "message": message}]}});
    let recorded = Recorded { objects: vec![widget], forbidden: Vec::new() };
    let explanation = explain(&recorded, &GroupKind::of("example.com", "Widget"), "w");
    let text = serde_json::to_string(&explanation).expect("it encodes");
    assert!(!text.contains("\\u001b") && text.len() < 10_000, "{}", text.len());
}

/// Fields of the wrong type are no reason to panic.
#[test]
fn malformed_objects_are_survived() {
    let kinds = [
        ("v1", "Pod"),
        ("apps/v1", "Deployment"),
        ("apps/v1", "StatefulSet"),
        ("apps/v1", "DaemonSet"),
        ("batch/v1", "Job"),
        ("batch/v1", "CronJob"),
        ("v1", "Service"),
        ("v1", "Node"),
        ("v1", "PersistentVolumeClaim"),
        ("v1", "PersistentVolume"),
        ("networking.k8s.io/v1", "Ingress"),
        ("autoscaling/v2", "HorizontalPodAutoscaler"),
        ("policy/v1", "PodDisruptionBudget"),
        ("v1", "ResourceQuota"),
        ("coordination.k8s.io/v1", "Lease"),
        ("core.oam.dev/v1beta1", "Application"),
    ];
    for (api_version, kind) in kinds {
        for odd in [json!(7), json!([1]), json!({"a": {"b": []}}), json!("x"), Value::Null] {
            let object = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "o", "namespace": "shop"},
                "spec": odd, "status": odd});
            let recorded = Recorded { objects: vec![object], forbidden: Vec::new() };
            explain(&recorded, &GroupKind::of_reference(api_version, kind), "o");
        }
    }
}
