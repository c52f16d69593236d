//! With all faults, the same objects are kept and deleted.

use futures::FutureExt;
use futures::future::LocalBoxFuture;
use setpoint::Key;
use setpoint::client::PropagationPolicy::{self, Background, Foreground, Orphan};
use setpoint_cluster::Components;
use setpoint_sim::{Scenario, World, check_all};

use super::cluster::{TestCluster, kind, owner};

/// Crashes before and after every write, hides or delays every event, then tries combinations.
#[track_caller]
fn check(name: &'static str, script: for<'a> fn(&'a World) -> LocalBoxFuture<'a, ()>) {
    let parts = Components {
        controllers: setpoint_controllers::selected(&["garbagecollector"]).expect("known controllers"),
        ..Components::default()
    };
    let report = check_all(&Scenario { name, parts, start: None, script, always: |_| Ok(()) }, 7, 60);
    let report = report.unwrap_or_else(|failure| panic!("{failure:?}"));
    assert!(report.writes > 0 && report.events > 0 && report.plans > 60, "{report:?}");
}

/// `a` owns `b`, which owns `c`. `d` is owned by `a` and `e`. Then `a` is deleted.
async fn delete_owner(world: &World, propagation: PropagationPolicy) {
    let cluster = TestCluster { world };
    cluster.pass(1).await;
    let a = cluster.config_map("a", &[]).await;
    let e = cluster.config_map("e", &[]).await;
    let b = cluster.config_map("b", &[owner("a", &a, true)]).await;
    cluster.config_map("c", &[owner("b", &b, true)]).await;
    cluster.config_map("d", &[owner("a", &a, true), owner("e", &e, false)]).await;
    cluster.delete("ConfigMap", "a", propagation).await;
    gone(world, "a").await;
}

async fn gone(world: &World, name: &str) {
    world.until(&kind("ConfigMap"), &Key::namespaced("default", name), |object| object.is_none()).await;
}

#[test]
fn in_the_background() {
    check("background", |world| {
        async {
            delete_owner(world, Background).await;
            gone(world, "c").await;
        }
        .boxed_local()
    });
}

#[test]
fn in_the_foreground() {
    check("foreground", |world| delete_owner(world, Foreground).boxed_local());
}

#[test]
fn without_the_dependents() {
    check("orphan", |world| delete_owner(world, Orphan).boxed_local());
}
