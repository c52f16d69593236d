//! Deployments in a whole control plane.

use std::time::Duration;

use serde_json::{Value, json};

use super::cluster::{TestCluster, cluster, condition, text};

const CONTROLLERS: &[&str] = &["deployment", "replicaset", "garbagecollector"];

fn deployment(replicas: i32) -> Value {
    json!({
        "metadata": {"name": "web"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": "a"}},
            "template": {
                "metadata": {"labels": {"app": "a"}},
                "spec": {"containers": [{"name": "c", "image": "i:1"}]},
            },
        },
    })
}

fn image(image: &str) -> Value {
    json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": image}]}}}})
}

/// Returns the ReplicaSets as `image × size`, by revision.
async fn sets(cluster: &TestCluster<'_>) -> Vec<String> {
    let mut sets = cluster.all("ReplicaSet").await;
    let revision = |set: &Value| text(&set["metadata"]["annotations"]["deployment.kubernetes.io/revision"]);
    sets.sort_by_key(revision);
    let describe = |set: &Value| {
        let image = text(&set["spec"]["template"]["spec"]["containers"][0]["image"]);
        format!("{}: {image} × {}", revision(set), set["spec"]["replicas"])
    };
    sets.iter().map(describe).collect()
}

/// Makes pods ready, step by step, until the rollout is complete.
async fn roll_out(cluster: &TestCluster<'_>) {
    for _ in 0..30 {
        let before = cluster.world.revision();
        cluster.make_all_ready().await;
        if cluster.world.revision() == before {
            return;
        }
    }
    panic!("the rollout does not end: {:?}", sets(cluster).await);
}

#[test]
fn a_deployment_runs_its_template() {
    cluster(CONTROLLERS, async |cluster| {
        cluster.create("Deployment", deployment(3)).await;
        assert_eq!(sets(cluster).await, ["1: i:1 × 3"]);
        let web = cluster.get("Deployment", "web").await;
        assert_eq!(condition(&web, "Progressing").unwrap(), "True ReplicaSetUpdated");
        assert_eq!(condition(&web, "Available").unwrap(), "False MinimumReplicasUnavailable");
        assert_eq!(web["metadata"]["annotations"]["deployment.kubernetes.io/revision"], "1");

        roll_out(cluster).await;
        let web = cluster.get("Deployment", "web").await;
        assert_eq!(condition(&web, "Progressing").unwrap(), "True NewReplicaSetAvailable");
        assert_eq!(condition(&web, "Available").unwrap(), "True MinimumReplicasAvailable");
        let mut status = web["status"].clone();
        status.as_object_mut().unwrap().remove("conditions");
        let expected = json!({
            "observedGeneration": 1, "replicas": 3, "updatedReplicas": 3, "readyReplicas": 3, "availableReplicas": 3,
        });
        assert_eq!(status, expected);
        let set = cluster.names("ReplicaSet").await.remove(0);
        assert_eq!(
            cluster.events("ScalingReplicaSet").await,
            [format!("Scaled up replica set {set} from 0 to 3")]
        );
    });
}

#[test]
fn a_settled_deployment_makes_no_writes() {
    cluster(CONTROLLERS, async |cluster| {
        cluster.create("Deployment", deployment(3)).await;
        roll_out(cluster).await;
        let before = cluster.world.revision();
        cluster.world.pass(Duration::from_secs(3600)).await;
        assert_eq!(cluster.world.revision(), before);
    });
}

#[test]
fn a_new_template_rolls_out_and_back() {
    cluster(CONTROLLERS, async |cluster| {
        cluster.create("Deployment", deployment(4)).await;
        roll_out(cluster).await;
        cluster.patch("Deployment", "web", image("i:2")).await;
        assert_eq!(sets(cluster).await, ["1: i:1 × 3", "2: i:2 × 2"], "one more and one fewer at a time");
        roll_out(cluster).await;
        assert_eq!(sets(cluster).await, ["1: i:1 × 0", "2: i:2 × 4"]);

        cluster.patch("Deployment", "web", image("i:1")).await;
        roll_out(cluster).await;
        assert_eq!(sets(cluster).await, ["2: i:2 × 0", "3: i:1 × 4"]);
        let history: Vec<_> = cluster.all("ReplicaSet").await;
        let back = history.iter().find(|set| set["spec"]["replicas"] == 4).unwrap();
        assert_eq!(back["metadata"]["annotations"]["deployment.kubernetes.io/revision-history"], "1");
    });
}

#[test]
fn a_rollout_that_fails_keeps_the_old_pods_and_times_out() {
    cluster(CONTROLLERS, async |cluster| {
        let mut impatient = deployment(4);
        impatient["spec"]["progressDeadlineSeconds"] = json!(60);
        cluster.create("Deployment", impatient).await;
        roll_out(cluster).await;
        cluster.patch("Deployment", "web", image("broken")).await;
        cluster.world.pass(Duration::from_secs(70)).await;
        assert_eq!(sets(cluster).await, ["1: i:1 × 3", "2: broken × 2"]);
        let web = cluster.get("Deployment", "web").await;
        assert_eq!(condition(&web, "Progressing").unwrap(), "False ProgressDeadlineExceeded");
        assert_eq!(condition(&web, "Available").unwrap(), "True MinimumReplicasAvailable");

        cluster.patch("Deployment", "web", image("i:1")).await;
        roll_out(cluster).await;
        assert_eq!(sets(cluster).await, ["2: broken × 0", "3: i:1 × 4"]);
        assert_eq!(
            condition(&cluster.get("Deployment", "web").await, "Progressing").unwrap(),
            "True NewReplicaSetAvailable"
        );
    });
}

#[test]
fn a_recreate_has_no_two_templates_at_once() {
    cluster(CONTROLLERS, async |cluster| {
        let mut recreate = deployment(2);
        recreate["spec"]["strategy"] = json!({"type": "Recreate"});
        cluster.create("Deployment", recreate).await;
        roll_out(cluster).await;
        // A pod on a node takes a while to terminate.
        let pod = cluster.names("Pod").await.remove(0);
        cluster.patch("Pod", &pod, json!({"metadata": {"finalizers": ["test/hold"]}})).await;
        cluster.patch("Deployment", "web", image("i:2")).await;
        assert_eq!(sets(cluster).await, ["1: i:1 × 0"]);
        cluster.world.pass(Duration::from_secs(60)).await;
        assert_eq!(sets(cluster).await, ["1: i:1 × 0"], "the old pod has not ended");
        cluster
            .patch("Pod", &pod, json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["test/hold"]}}))
            .await;
        assert_eq!(sets(cluster).await, ["1: i:1 × 0", "2: i:2 × 2"]);
    });
}

#[test]
fn a_paused_deployment_scales_but_does_not_roll() {
    cluster(CONTROLLERS, async |cluster| {
        cluster.create("Deployment", deployment(2)).await;
        roll_out(cluster).await;
        cluster.patch("Deployment", "web", json!({"spec": {"paused": true}})).await;
        let web = cluster.get("Deployment", "web").await;
        assert_eq!(condition(&web, "Progressing").unwrap(), "Unknown DeploymentPaused");
        cluster.patch("Deployment", "web", image("i:2")).await;
        cluster.patch("Deployment", "web", json!({"spec": {"replicas": 3}})).await;
        assert_eq!(sets(cluster).await, ["1: i:1 × 3"]);
        cluster.patch("Deployment", "web", json!({"spec": {"paused": false}})).await;
        roll_out(cluster).await;
        assert_eq!(sets(cluster).await, ["1: i:1 × 0", "2: i:2 × 3"]);
    });
}

#[test]
fn history_is_kept_up_to_its_limit() {
    cluster(CONTROLLERS, async |cluster| {
        let mut forgetful = deployment(1);
        forgetful["spec"]["revisionHistoryLimit"] = json!(1);
        cluster.create("Deployment", forgetful).await;
        for version in 2..5 {
            roll_out(cluster).await;
            cluster.patch("Deployment", "web", image(&format!("i:{version}"))).await;
        }
        roll_out(cluster).await;
        assert_eq!(sets(cluster).await, ["3: i:3 × 0", "4: i:4 × 1"]);
    });
}

#[test]
fn a_set_of_its_template_is_adopted_instead_of_made() {
    cluster(CONTROLLERS, async |cluster| {
        cluster.create("Deployment", deployment(2)).await;
        roll_out(cluster).await;
        let set = cluster.names("ReplicaSet").await.remove(0);
        let pods = cluster.names("Pod").await;
        cluster.delete("Deployment", "web", setpoint::client::PropagationPolicy::Orphan).await;
        assert!(cluster.get("ReplicaSet", &set).await["metadata"]["ownerReferences"].is_null());
        cluster.create("Deployment", deployment(2)).await;
        assert_eq!((cluster.names("ReplicaSet").await, cluster.names("Pod").await), (vec![set], pods));
    });
}

#[test]
fn a_name_that_is_taken_changes_the_hash() {
    cluster(CONTROLLERS, async |cluster| {
        cluster.create("Deployment", deployment(1)).await;
        let set = cluster.names("ReplicaSet").await.remove(0);
        cluster.delete("Deployment", "web", setpoint::client::PropagationPolicy::Orphan).await;
        let another = json!({"spec": {"replicas": 0, "template": {"metadata": {"annotations": {"x": "1"}}}}});
        cluster.patch("ReplicaSet", &set, another).await;
        cluster.patch("ReplicaSet", &set, json!({"metadata": {"labels": {"app": "free"}}})).await;
        cluster.create("Deployment", deployment(1)).await;
        roll_out(cluster).await;
        assert_eq!(cluster.get("Deployment", "web").await["status"]["collisionCount"], 1);
        assert_eq!(cluster.names("ReplicaSet").await.len(), 2);
        assert_eq!(cluster.get("Deployment", "web").await["status"]["availableReplicas"], 1);
    });
}

#[test]
fn a_rollback_by_annotation_is_carried_out_once() {
    cluster(CONTROLLERS, async |cluster| {
        cluster.create("Deployment", deployment(1)).await;
        roll_out(cluster).await;
        cluster.patch("Deployment", "web", image("i:2")).await;
        roll_out(cluster).await;
        let ask = json!({"metadata": {"annotations": {"deprecated.deployment.rollback.to": "0"}}});
        cluster.patch("Deployment", "web", ask).await;
        roll_out(cluster).await;
        assert_eq!(sets(cluster).await, ["2: i:2 × 0", "3: i:1 × 1"]);
        assert_eq!(
            cluster.events("DeploymentRollback").await,
            ["Rolled back deployment \"web\" to revision 1"]
        );
        let web = cluster.get("Deployment", "web").await;
        assert!(web["metadata"]["annotations"]["deprecated.deployment.rollback.to"].is_null());
    });
}
