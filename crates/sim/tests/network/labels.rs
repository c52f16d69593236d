//! Conflicting SELinux labels on a volume are reported, whatever happens.
//!
//! The only result is events, which the graph leaves out, so the script waits for them.

use futures::FutureExt;
use futures::future::LocalBoxFuture;
use serde_json::{Value, json};
use setpoint_sim::{Fault, Scenario, World, check_faults};

use super::scenarios::{create, found, parts, survives, until_all};

const CONTROLLERS: [&str; 2] = ["selinux-warning-controller", "persistentvolume-binder"];

async fn labelled(world: &World, name: &str, level: &str) {
    let mounts = json!([{"name": "v", "mountPath": "/v"}]);
    let containers = json!([{"name": "c", "image": "i", "volumeMounts": mounts}]);
    let volumes = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]);
    let context = json!({"seLinuxOptions": {"level": level}});
    let spec = json!({"containers": containers, "volumes": volumes, "securityContext": context});
    create(world, "Pod", name, json!({"spec": spec})).await;
}

fn has_conflict_event(events: &[Value], pod: &str) -> bool {
    let of_pod = |event: &&Value| event["involvedObject"]["name"] == pod;
    events.iter().filter(of_pod).any(|event| event["reason"] == "SELinuxLabelConflict")
}

/// The volume is created after one of its pods, and the driver that can label it after both.
fn conflict(world: &World) -> LocalBoxFuture<'_, ()> {
    async move {
        found(world).await;
        labelled(world, "one", "s0:c1,c2").await;
        let spec = json!({"accessModes": ["ReadWriteOncePod"], "volumeName": "v", "storageClassName": "",
            "resources": {"requests": {"storage": "1Gi"}}});
        create(world, "PersistentVolumeClaim", "c", json!({"spec": spec})).await;
        let spec = json!({"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOncePod"], "storageClassName": "",
            "csi": {"driver": "d.example", "volumeHandle": "h"}, "claimRef": {"namespace": "default", "name": "c"}});
        create(world, "PersistentVolume", "v", json!({"spec": spec})).await;
        labelled(world, "other", "s0:c3,c4").await;
        let spec = json!({"seLinuxMount": true, "attachRequired": false});
        create(world, "CSIDriver", "d.example", json!({"spec": spec})).await;
        until_all(world, "Event", |events| ["one", "other"].iter().all(|pod| has_conflict_event(events, pod))).await;
    }
    .boxed_local()
}

#[test]
fn label_conflicts_are_reported_whatever_is_seen_late_or_not_at_all() {
    survives("labels", &CONTROLLERS, conflict);
}

/// The controller makes no writes around which it could crash, so it crashes wherever it waits.
#[test]
fn label_conflicts_are_reported_wherever_the_manager_dies() {
    let script = conflict;
    let steps = World::simulate(1, parts(&CONTROLLERS), Vec::new(), async |world| {
        script(world).await;
        world.faults().steps()
    });
    let scenario =
        Scenario { name: "labels", parts: parts(&CONTROLLERS), start: None, script, always: |_| Ok(()) };
    let plans = (0..steps).map(|step| vec![Fault::Kill { step }]);
    check_faults(&scenario, 1, plans).unwrap_or_else(|failure| panic!("{failure:?}"));
}
