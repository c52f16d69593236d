//! ReplicaSets in a whole control plane.

use std::time::Duration;

use serde_json::{Value, json};
use setpoint::client::PropagationPolicy;
use setpoint_sim::{Fault, OnCall};

use super::cluster::{TestCluster, cluster, cluster_with, condition, text};

const CONTROLLERS: &[&str] = &["replicaset", "garbagecollector"];

fn set(name: &str, replicas: i32) -> Value {
    json!({
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": "a"}},
            "template": template(),
        },
    })
}

fn template() -> Value {
    json!({"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}})
}

fn orphan(name: &str) -> Value {
    let mut pod = template();
    pod["metadata"]["name"] = json!(name);
    pod
}

async fn status(cluster: &TestCluster<'_>, name: &str) -> Value {
    let mut status = cluster.get("ReplicaSet", name).await["status"].clone();
    status.as_object_mut().map(|status| status.remove("conditions"));
    status
}

#[test]
fn a_set_has_as_many_pods_as_it_wants() {
    cluster(CONTROLLERS, async |cluster| {
        cluster.create("ReplicaSet", set("web", 5)).await;
        assert_eq!(cluster.pods_of("web").await.len(), 5);
        let created = cluster.events("SuccessfulCreate").await;
        assert!(created.len() == 5 && created.iter().all(|event| event.starts_with("Created pod: web-")));
        assert_eq!(
            status(cluster, "web").await,
            json!({"replicas": 5, "fullyLabeledReplicas": 5, "observedGeneration": 1})
        );

        cluster.make_all_ready().await;
        assert_eq!(status(cluster, "web").await["availableReplicas"], 5);
        cluster.patch("ReplicaSet", "web", json!({"spec": {"replicas": 2}})).await;
        assert_eq!(cluster.pods_of("web").await.len(), 2);
        assert_eq!(cluster.events("SuccessfulDelete").await.len(), 3);
        let expected = json!({
            "replicas": 2, "fullyLabeledReplicas": 2, "readyReplicas": 2, "availableReplicas": 2, "observedGeneration": 2,
        });
        assert_eq!(status(cluster, "web").await, expected);
    });
}

#[test]
fn a_settled_set_makes_no_writes() {
    cluster(CONTROLLERS, async |cluster| {
        cluster.create("ReplicaSet", set("web", 3)).await;
        cluster.make_all_ready().await;
        let before = cluster.world.revision();
        cluster.world.pass(Duration::from_secs(3600)).await;
        assert_eq!(cluster.world.revision(), before);
    });
}

#[test]
fn a_pod_that_is_lost_is_replaced() {
    cluster(CONTROLLERS, async |cluster| {
        cluster.create("ReplicaSet", set("web", 2)).await;
        cluster.make_all_ready().await;
        let pods = cluster.pods_of("web").await;
        cluster.delete("Pod", &text(&pods[0]["metadata"]["name"]), PropagationPolicy::Background).await;
        cluster.set_status(&text(&pods[1]["metadata"]["name"]), "Failed", "False").await;
        cluster.settle().await;
        let now = cluster.pods_of("web").await;
        assert_eq!(now.len(), 3, "the failed one stays until it is collected");
        assert_eq!(status(cluster, "web").await["replicas"], 2);
    });
}

#[test]
fn pods_with_the_lower_deletion_cost_go_first() {
    cluster(CONTROLLERS, async |cluster| {
        cluster.create("ReplicaSet", set("web", 3)).await;
        cluster.make_all_ready().await;
        let pods = cluster.names("Pod").await;
        for (pod, cost) in pods.iter().zip(["5", "-5", "0"]) {
            let annotation = json!({"controller.kubernetes.io/pod-deletion-cost": cost});
            cluster.patch("Pod", pod, json!({"metadata": {"annotations": annotation}})).await;
        }
        cluster.patch("ReplicaSet", "web", json!({"spec": {"replicas": 1}})).await;
        assert_eq!(cluster.names("Pod").await, [pods[0].clone()]);
    });
}

#[test]
fn matching_orphans_are_adopted_and_strays_released() {
    cluster(CONTROLLERS, async |cluster| {
        cluster.create("Pod", orphan("found")).await;
        cluster.create("ReplicaSet", set("web", 2)).await;
        assert_eq!(cluster.pods_of("web").await.len(), 2, "one was there");
        assert_eq!(cluster.get("Pod", "found").await["metadata"]["ownerReferences"][0]["controller"], true);

        cluster.patch("Pod", "found", json!({"metadata": {"labels": {"app": "b"}}})).await;
        assert!(cluster.get("Pod", "found").await["metadata"]["ownerReferences"].is_null());
        assert_eq!(cluster.pods_of("web").await.len(), 2, "and replaced");

        cluster.patch("Pod", "found", json!({"metadata": {"labels": {"app": "a"}}})).await;
        assert_eq!(cluster.pods_of("web").await.len(), 2, "adopted again, and one is too many");
    });
}

#[test]
fn two_sets_with_one_selector_do_not_fight() {
    cluster(CONTROLLERS, async |cluster| {
        cluster.create("ReplicaSet", set("one", 2)).await;
        cluster.create("ReplicaSet", set("two", 3)).await;
        assert_eq!((cluster.pods_of("one").await.len(), cluster.pods_of("two").await.len()), (2, 3));
        let before = cluster.world.revision();
        cluster.world.pass(Duration::from_secs(600)).await;
        assert_eq!(cluster.world.revision(), before);
    });
}

#[test]
fn orphaned_pods_find_a_new_owner() {
    cluster(CONTROLLERS, async |cluster| {
        cluster.create("ReplicaSet", set("old", 2)).await;
        let pods = cluster.names("Pod").await;
        cluster.delete("ReplicaSet", "old", PropagationPolicy::Orphan).await;
        assert_eq!(cluster.names("Pod").await, pods);
        cluster.create("ReplicaSet", set("new", 2)).await;
        assert_eq!(cluster.names("Pod").await, pods);
        assert_eq!(cluster.pods_of("new").await.len(), 2);
    });
}

#[test]
fn a_pod_is_available_after_min_ready_seconds_and_not_before() {
    cluster(CONTROLLERS, async |cluster| {
        let mut patient = set("web", 2);
        patient["spec"]["minReadySeconds"] = json!(30);
        cluster.create("ReplicaSet", patient).await;
        cluster.make_all_ready().await;
        assert_eq!(status(cluster, "web").await["readyReplicas"], 2);
        cluster.world.pass(Duration::from_secs(26)).await;
        assert!(status(cluster, "web").await["availableReplicas"].is_null());
        cluster.world.pass(Duration::from_secs(5)).await;
        assert_eq!(status(cluster, "web").await["availableReplicas"], 2);
    });
}

#[test]
fn a_rejected_pod_is_reported_and_retried_until_it_is_created() {
    // The first write creates the set's first pod.
    let quota = vec![Fault::Call { nth: 0, what: OnCall::Fail(403) }];
    cluster_with(&["replicaset"], quota, async |cluster| {
        cluster.create("ReplicaSet", set("web", 3)).await;
        assert_eq!(cluster.events("FailedCreate").await.len(), 1);
        assert_eq!(cluster.pods_of("web").await.len(), 3);
        assert_eq!(condition(&cluster.get("ReplicaSet", "web").await, "ReplicaFailure"), None, "it is over");
    });
}

#[test]
fn a_create_whose_answer_is_lost_creates_one_pod() {
    for what in [OnCall::DropBefore, OnCall::DropAfter] {
        let lost = vec![Fault::Call { nth: 0, what }];
        cluster_with(&["replicaset"], lost, async |cluster| {
            cluster.create("ReplicaSet", set("web", 3)).await;
            cluster.world.pass(Duration::from_secs(600)).await;
            assert_eq!(cluster.names("Pod").await.len(), 3, "{what:?}");
            assert_eq!(cluster.world.counts().0["pods"], (3, 0), "{what:?}");
        });
    }
}

#[test]
fn a_delete_whose_answer_is_lost_deletes_one_pod() {
    let settled = async |cluster: &TestCluster<'_>| {
        cluster.create("ReplicaSet", set("web", 3)).await;
        cluster.world.pass(Duration::from_secs(60)).await;
        cluster.world.faults().seen().0
    };
    // The next write after a settled set is the deletion.
    let nth = cluster(&["replicaset"], settled);
    cluster_with(&["replicaset"], vec![Fault::Call { nth, what: OnCall::DropAfter }], async |cluster| {
        settled(cluster).await;
        cluster.patch("ReplicaSet", "web", json!({"spec": {"replicas": 2}})).await;
        assert_eq!(cluster.world.counts().0["pods"], (3, 1));
    });
}

#[test]
fn a_thousand_pods_come_in_bursts() {
    cluster(&["replicaset"], async |cluster| {
        cluster.create("ReplicaSet", set("web", 1100)).await;
        assert_eq!(cluster.pods_of("web").await.len(), 1100);
        assert_eq!(status(cluster, "web").await["replicas"], 1100);
    });
}
