//! A whole cluster with one node, and helpers for a user's actions.

use std::time::Duration;

use futures::future::LocalBoxFuture;
use serde_json::{Value, json};
use setpoint::client::{Patch, Subresource};
use setpoint::{Key, Kind, View};
use setpoint_cluster::Components;
use setpoint_sim::{Depth, Fault, History, OnEvent, Scenario, World, check_at_depth};

pub(crate) type Script = for<'a> fn(&'a World) -> LocalBoxFuture<'a, ()>;

/// What must hold after every single change.
pub(crate) type Always = fn(&History) -> Result<(), String>;

/// The number of seeded fault combinations in addition to all single faults. A long search raises it.
fn combinations() -> usize {
    let raised = std::env::var("SETPOINT_SIM_COMBINATIONS").ok();
    raised.and_then(|text| text.parse().ok()).unwrap_or(5)
}

/// Controllers that every cluster needs to run pods: for service accounts and node conditions.
const UPKEEP: &[&str] = &["nodelifecycle", "serviceaccount"];

pub(crate) fn parts(controllers: &[&str]) -> Components {
    Components {
        controllers: setpoint_controllers::selected(&[controllers, UPKEEP].concat())
            .expect("known controllers"),
        scheduler: true,
        nodes: 1,
        ..Components::default()
    }
}

pub(crate) fn scenario(name: &'static str, controllers: &[&str], script: Script, always: Always) -> Scenario {
    Scenario { name, parts: parts(controllers), start: None, script, always }
}

/// Crashes between any two writes, hides or delays every event, then tries combinations (see [`Depth`]). The graph and
/// the counts must be the same.
#[track_caller]
pub(crate) fn survives(name: &'static str, controllers: &[&str], script: Script, always: Always) {
    let scenario = scenario(name, controllers, script, always);
    let report = check_at_depth(&scenario, 1, combinations(), Depth::from_env());
    let report = report.unwrap_or_else(|failure| panic!("{failure:?}"));
    println!("{name}: {} plans over {} writes and {} events", report.plans, report.writes, report.events);
}

/// Delays every event, and all that follow it in its watch. The invariant must hold.
pub(crate) fn tolerates_staleness(controllers: &[&str], script: Script, always: Always) {
    tolerates_staleness_with(&parts(controllers), script, always);
}

pub(crate) fn tolerates_staleness_with(parts: &Components, script: Script, always: Always) {
    let run = |faults: Vec<Fault>| {
        World::simulate(1, parts.clone(), faults.clone(), async |world| {
            script(world).await;
            let history = world.history();
            always(&history).unwrap_or_else(|why| panic!("{why} with {faults:?}\n{}", world.trace().text()));
            world.faults().seen().1
        })
    };
    let events = run(Vec::new());
    for nth in 0..events {
        run(vec![Fault::Event { nth, what: OnEvent::Delay(Duration::from_secs(20)) }]);
    }
}

pub(crate) fn anything(_: &History) -> Result<(), String> {
    Ok(())
}

pub(crate) fn key(name: &str) -> Key {
    Key::namespaced("default", name)
}

pub(crate) async fn create<K: View>(world: &World, name: &str, mut body: Value) {
    body["metadata"]["name"] = json!(name);
    world.create(&Kind::of::<K>(), Some("default"), body).await;
}

pub(crate) async fn patch<K: View>(world: &World, name: &str, patch: Value) {
    let patch = Patch::Merge(patch.to_string().into());
    let patched = world.client().patch(&Kind::of::<K>(), &key(name), Subresource::None, patch).await;
    patched.unwrap_or_else(|error| panic!("cannot patch {name}: {error}"));
}

/// Waits until `settled` holds for an object.
pub(crate) async fn until<K: View>(world: &World, name: &str, settled: impl Fn(&Value) -> bool) {
    world.until(&Kind::of::<K>(), &key(name), |object| object.is_some_and(&settled)).await;
}

pub(crate) fn holds(object: &Value, condition: &str) -> bool {
    let conditions = object["status"]["conditions"].as_array();
    conditions.is_some_and(|all| all.iter().any(|one| one["type"] == condition && one["status"] == "True"))
}

/// Returns a number in the status, or 0 if it is missing.
pub(crate) fn count(object: &Value, field: &str) -> u64 {
    object["status"][field].as_u64().unwrap_or(0)
}
