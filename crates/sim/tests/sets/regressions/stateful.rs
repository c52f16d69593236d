//! StatefulSets.

use std::time::Duration;

use futures::FutureExt;
use futures::future::LocalBoxFuture;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use serde_json::{Value, json};
use setpoint::client::PropagationPolicy;
use setpoint_sim::{History, World};
use setpoint_store::EventKind;

use super::{another_image, delete, each_pod, is_leaving, is_ready, ready, runs, set_status, small, uid};
use crate::sets::scenarios::{anything, count, create, patch, until};

pub(crate) fn stateful(replicas: u32, strategy: Value) -> Value {
    let labels = json!({"app": "db"});
    let annotations = json!({"node.setpoint.dev/ready-after": "5s"});
    json!({"spec": {
        "replicas": replicas, "serviceName": "db", "selector": {"matchLabels": &labels}, "updateStrategy": strategy,
        "template": {"metadata": {"labels": &labels, "annotations": annotations}, "spec": small()["spec"]},
    }})
}

/// A set is scaled up while its first pod takes time to terminate.
fn grown(world: &World) -> LocalBoxFuture<'_, ()> {
    async move {
        let mut slow = stateful(1, json!({}));
        let template = &mut slow["spec"]["template"];
        template["spec"]["terminationGracePeriodSeconds"] = json!(30);
        template["metadata"]["annotations"]["node.setpoint.dev/terminate-after"] = json!("20s");
        create::<StatefulSet>(world, "db", slow).await;
        until::<StatefulSet>(world, "db", ready(1)).await;
        delete::<Pod>(world, "db-0", PropagationPolicy::Background).await;
        patch::<StatefulSet>(world, "db", json!({"spec": {"replicas": 2}})).await;
        until::<StatefulSet>(world, "db", ready(2)).await;
    }
    .boxed_local()
}

fn second_beside_a_ready_first(history: &History) -> Result<(), String> {
    let mut first_is_up = false;
    each_pod(history, |change, pod| {
        if pod["metadata"]["name"] == "db-0" {
            first_is_up = change != EventKind::Deleted && is_ready(pod) && !is_leaving(pod);
        }
        let second = pod["metadata"]["name"] == "db-1" && change == EventKind::Created;
        if second && !first_is_up { Err("db-1 comes while db-0 is not up".into()) } else { Ok(()) }
    })
}

#[test]
fn an_ordered_set_waits_for_a_terminating_pod_before_it_creates_the_next() {
    runs(&["statefulset"], grown, second_beside_a_ready_first);
}

/// A set of two pods that take a minute to get ready. The first is deleted when the second has been created.
fn interrupted(world: &World) -> LocalBoxFuture<'_, ()> {
    async move {
        let mut slow = stateful(2, json!({}));
        slow["spec"]["template"]["metadata"]["annotations"]["node.setpoint.dev/ready-after"] = json!("60s");
        create::<StatefulSet>(world, "db", slow).await;
        until::<Pod>(world, "db-1", |_| true).await;
        let before = uid::<Pod>(world, "db-0").await;
        delete::<Pod>(world, "db-0", PropagationPolicy::Background).await;
        until::<Pod>(world, "db-0", |pod| pod["metadata"]["uid"] != before).await;
        until::<Pod>(world, "db-1", |pod| !is_ready(pod)).await;
    }
    .boxed_local()
}

#[test]
fn a_deleted_pod_is_created_again_while_one_after_it_is_not_ready() {
    runs(&["statefulset"], interrupted, anything);
}

fn in_order(world: &World) -> LocalBoxFuture<'_, ()> {
    async move {
        create::<StatefulSet>(world, "db", stateful(2, json!({}))).await;
        until::<StatefulSet>(world, "db", ready(2)).await;
    }
    .boxed_local()
}

#[test]
fn an_ordered_set_waits_for_a_pod_to_be_ready_before_it_creates_the_next() {
    runs(&["statefulset"], in_order, second_beside_a_ready_first);
}

/// The template changes for a set with minReadySeconds of a minute.
fn unhurried(world: &World) -> LocalBoxFuture<'_, ()> {
    async move {
        let mut parallel = stateful(2, json!({}));
        parallel["spec"]["podManagementPolicy"] = json!("Parallel");
        parallel["spec"]["minReadySeconds"] = json!(60);
        create::<StatefulSet>(world, "db", parallel).await;
        until::<StatefulSet>(world, "db", |db| count(db, "availableReplicas") == 2).await;
        let (first, second) = (uid::<Pod>(world, "db-0").await, uid::<Pod>(world, "db-1").await);
        patch::<StatefulSet>(world, "db", another_image()).await;
        until::<Pod>(world, "db-1", |pod| pod["metadata"]["uid"] != second && is_ready(pod)).await;
        world.pass(Duration::from_secs(45)).await;
        assert_eq!(uid::<Pod>(world, "db-0").await, first, "db-1 is not available yet");
        until::<Pod>(world, "db-0", |pod| pod["metadata"]["uid"] != first).await;
    }
    .boxed_local()
}

#[test]
fn an_update_of_a_parallel_set_waits_for_min_ready_seconds() {
    runs(&["statefulset"], unhurried, anything);
}

/// After a partitioned update, a pod below the partition is deleted.
fn restarted(world: &World) -> LocalBoxFuture<'_, ()> {
    async move {
        let strategy = json!({"type": "RollingUpdate", "rollingUpdate": {"partition": 1}});
        create::<StatefulSet>(world, "db", stateful(2, strategy)).await;
        until::<StatefulSet>(world, "db", ready(2)).await;
        patch::<StatefulSet>(world, "db", another_image()).await;
        until::<StatefulSet>(world, "db", |db| ready(2)(db) && count(db, "updatedReplicas") == 1).await;
        let before = uid::<Pod>(world, "db-0").await;
        delete::<Pod>(world, "db-0", PropagationPolicy::Background).await;
        until::<Pod>(world, "db-0", |pod| pod["metadata"]["uid"] != before).await;
        until::<Pod>(world, "db-0", |pod| pod["spec"]["containers"][0]["image"] == "a").await;
    }
    .boxed_local()
}

#[test]
fn a_pod_below_the_partition_comes_back_with_the_old_template() {
    runs(&["statefulset"], restarted, anything);
}

/// The claim of a pod already exists and has a controller. The set's retention policy is Delete.
fn controlled(world: &World) -> LocalBoxFuture<'_, ()> {
    async move {
        let claim = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
        let controller = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "other", "uid": "other",
            "controller": true});
        let body = json!({"metadata": {"ownerReferences": [controller]}, "spec": &claim});
        create::<PersistentVolumeClaim>(world, "data-db-0", body).await;
        let mut set = stateful(1, json!({}));
        set["spec"]["volumeClaimTemplates"] = json!([{"metadata": {"name": "data"}, "spec": &claim}]);
        set["spec"]["persistentVolumeClaimRetentionPolicy"] = json!({"whenDeleted": "Delete"});
        create::<StatefulSet>(world, "db", set).await;
        until::<Pod>(world, "db-0", |_| true).await;
        world.pass(Duration::from_secs(30)).await;
        until::<PersistentVolumeClaim>(world, "data-db-0", |claim| {
            claim["metadata"]["ownerReferences"].as_array().is_some_and(|owners| owners.len() == 1)
        })
        .await;
    }
    .boxed_local()
}

#[test]
fn a_claim_that_another_object_controls_is_left_to_it() {
    runs(&["statefulset"], controlled, anything);
}

/// The strategy has a partition but no type.
fn partitioned(world: &World) -> LocalBoxFuture<'_, ()> {
    async move {
        create::<StatefulSet>(world, "db", stateful(2, json!({"rollingUpdate": {"partition": 1}}))).await;
        until::<StatefulSet>(world, "db", ready(2)).await;
        let kept = uid::<Pod>(world, "db-0").await;
        patch::<StatefulSet>(world, "db", another_image()).await;
        until::<StatefulSet>(world, "db", |db| ready(2)(db) && count(db, "updatedReplicas") == 1).await;
        world.pass(Duration::from_secs(120)).await;
        assert_eq!(uid::<Pod>(world, "db-0").await, kept, "below the partition nothing is updated");
    }
    .boxed_local()
}

#[test]
fn a_partition_holds_also_where_the_type_of_the_strategy_is_left_out() {
    runs(&["statefulset"], partitioned, anything);
}

/// A kubelet that shuts down gracefully leaves succeeded pods behind.
fn shut_down(world: &World) -> LocalBoxFuture<'_, ()> {
    async move {
        create::<StatefulSet>(world, "db", stateful(1, json!({}))).await;
        until::<StatefulSet>(world, "db", ready(1)).await;
        let before = uid::<Pod>(world, "db-0").await;
        set_status::<Pod>(world, "db-0", json!({"phase": "Succeeded"})).await;
        until::<Pod>(world, "db-0", |pod| pod["metadata"]["uid"] != before && is_ready(pod)).await;
    }
    .boxed_local()
}

#[test]
fn a_succeeded_pod_of_a_stateful_set_is_recreated() {
    runs(&["statefulset"], shut_down, anything);
}
