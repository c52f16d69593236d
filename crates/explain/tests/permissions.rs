//! What may not be read is unknown.

use serde_json::json;
use setpoint_explain::kinds::GroupKind;
use setpoint_explain::model::State;

use crate::recorded::{Recorded, explain};

#[test]
fn a_forbidden_list_is_unknown_with_the_missing_permission() {
    let meta = |name: &str| {
        json!({"name": name, "namespace": "shop", "uid": name, "generation": 1,
        "creationTimestamp": "2025-06-01T10:00:00Z"})
    };
    let status = json!({"observedGeneration": 1, "replicas": 1, "updatedReplicas": 1});
    let web = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta("web"), "spec": {"replicas": 1}, "status": status});
    let recorded = Recorded { objects: vec![web], forbidden: vec!["ReplicaSet"] };
    let explanation = explain(&recorded, &GroupKind::of("apps", "Deployment"), "web");
    assert_ne!(explanation.state, State::Converged);
    assert_eq!(explanation.unknown, ["list ReplicaSet.apps: User \"jane\" cannot list resource"]);
}

#[test]
fn a_target_that_may_not_be_read_is_unknown() {
    let recorded = Recorded { objects: Vec::new(), forbidden: vec!["Pod"] };
    let explanation = explain(&recorded, &GroupKind::of("", "Pod"), "p");
    assert_eq!((explanation.state, explanation.found), (State::Unknown, false));
    assert_eq!(explanation.unknown.len(), 1);
}

/// Without permission to read nodes, the message of the scheduler is all there is.
#[test]
fn an_unschedulable_pod_is_explained_by_its_message() {
    let message = "0/3 nodes are available: 3 Insufficient cpu. preemption: 0/3 nodes are available: 3 No preemption victims";
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "shop", "uid": "p"},
        "spec": {"containers": []}, "status": {"phase": "Pending", "conditions": [
            {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}]}});
    let recorded = Recorded { objects: vec![pod], forbidden: vec!["Node"] };
    let explanation = explain(&recorded, &GroupKind::of("", "Pod"), "p");
    assert!(explanation.headline.contains("3 Insufficient cpu"), "{}", explanation.headline);
    assert_eq!(explanation.unknown.len(), 1, "{:?}", explanation.unknown);
}
