//! StatefulSets.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::FutureExt;
use futures::future::LocalBoxFuture;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::PersistentVolume;
use serde_json::{Value, json};
use setpoint::Kind;
use setpoint_sim::{History, World};
use setpoint_store::EventKind;

use super::scenarios::{count, create, parts, patch, survives, until};

const CONTROLLERS: &[&str] = &["statefulset", "persistentvolume-binder"];

fn set(replicas: usize) -> Value {
    let labels = json!({"app": "web"});
    let claim = json!({"metadata": {"name": "data"}, "spec": {
        "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
    json!({"spec": {
        "replicas": replicas, "serviceName": "web", "selector": {"matchLabels": &labels},
        "template": {"metadata": {"labels": &labels}, "spec": {"containers": [{"name": "c", "image": "a"}]}},
        "volumeClaimTemplates": [claim],
    }})
}

/// A volume for each of the claims.
async fn volumes(world: &World) {
    for claim in ["data-web-0", "data-web-1"] {
        let spec = json!({"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"},
            "hostPath": {"path": "/tmp/data"}, "claimRef": {"namespace": "default", "name": claim}});
        let volume = json!({"metadata": {"name": claim}, "spec": spec});
        world.create(&Kind::of::<PersistentVolume>(), None, volume).await;
    }
}

fn settled(replicas: u64) -> impl Fn(&Value) -> bool {
    move |set| {
        let observed = set["status"]["observedGeneration"] == set["metadata"]["generation"];
        let all = ["replicas", "readyReplicas", "updatedReplicas"]
            .iter()
            .all(|field| count(set, field) == replicas);
        observed && all && set["status"]["currentRevision"] == set["status"]["updateRevision"]
    }
}

fn updated(world: &World) -> LocalBoxFuture<'_, ()> {
    async move {
        volumes(world).await;
        create::<StatefulSet>(world, "web", set(2)).await;
        until::<StatefulSet>(world, "web", settled(2)).await;
        let containers = json!([{"name": "c", "image": "b"}]);
        patch::<StatefulSet>(
            world,
            "web",
            json!({"spec": {"template": {"spec": {"containers": containers}}}}),
        )
        .await;
        until::<StatefulSet>(world, "web", settled(2)).await;
        patch::<StatefulSet>(world, "web", json!({"spec": {"replicas": 1}})).await;
        until::<StatefulSet>(world, "web", settled(1)).await;
    }
    .boxed_local()
}

/// One pod per name at a time, the second only next to a first that has been ready. Claims stay.
fn one_of_each(history: &History) -> Result<(), String> {
    let mut pods: BTreeMap<String, String> = BTreeMap::new();
    for (change, object) in history.changes() {
        let (name, uid) = (object["metadata"]["name"].to_string(), object["metadata"]["uid"].to_string());
        match (object["kind"].as_str(), change) {
            (Some("PersistentVolumeClaim"), EventKind::Deleted) => {
                return Err(format!("claim {name} is gone"));
            }
            (Some("Pod"), EventKind::Deleted) => _ = pods.remove(&name),
            (Some("Pod"), EventKind::Created) => {
                if let Some(other) = pods.insert(name.clone(), uid) {
                    return Err(format!("another pod {name} beside {other}"));
                }
                if name.contains("web-1") && !pods.keys().any(|name| name.contains("web-0")) {
                    return Err(format!("{name} before the first"));
                }
            }
            _ => {}
        }
    }
    Ok(())
}

#[test]
fn a_stateful_set_under_staleness_has_one_pod_of_each_ordinal_and_keeps_its_claims() {
    survives("statefulset", CONTROLLERS, updated, one_of_each);
}

#[test]
fn a_restart_with_a_settled_set_writes_nothing() {
    World::simulate(1, parts(CONTROLLERS), Vec::new(), async |world| {
        volumes(world).await;
        create::<StatefulSet>(world, "web", set(2)).await;
        until::<StatefulSet>(world, "web", settled(2)).await;
        world.pass(Duration::from_secs(5)).await;
        let writes = || {
            let kinds = ["StatefulSet", "Pod", "PersistentVolumeClaim", "ControllerRevision"];
            let ours = |object: &Value| kinds.contains(&object["kind"].as_str().unwrap_or(""));
            world.history().changes().filter(|(_, object)| ours(object)).count()
        };
        let before = writes();
        world.restart().await;
        world.pass(Duration::from_secs(600)).await;
        assert_eq!(writes(), before, "{}", world.trace().text());
    });
}
