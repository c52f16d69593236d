//! Hooks in several replicas: each parent belongs to one of them, and to another one when that is gone.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use setpoint::config::ShardBy;
use setpoint::leader::ElectionConfig;
use setpoint::shard::ShardingOptions;
use setpoint_sim::Link;
use tokio_util::sync::CancellationToken;

use super::*;

const THINGS: usize = 12;

/// Which replicas have called the hook for a parent, by its name.
type Calls = Arc<Mutex<BTreeMap<String, Vec<&'static str>>>>;

/// Starts a replica whose hook notes that it was called.
fn start(world: &World, name: &'static str, calls: &Calls) -> (Link, CancellationToken) {
    let noted = calls.clone();
    let hooks = Functions::new().on(SYNC, move |request| {
        let parent = name_of(&request["parent"]).to_owned();
        noted.lock().expect("no panic").entry(parent).or_default().push(name);
        maps(&request)
    });
    let link = Link::new(world.clock());
    let mut manager = world.replica(&link, &TestCluster::new().parts());
    let election = ElectionConfig::new("default", "hooks", name);
    manager.shard(ShardingOptions { election, shards: 8, by: ShardBy::Hash }).expect("valid options");
    let context = manager.context().clone();
    for runnable in setpoint_hooks::runnables(&context, &Options::new(hooks)) {
        manager.add(runnable);
    }
    let stop = CancellationToken::new();
    tokio::spawn(manager.run(stop.clone()));
    (link, stop)
}

#[test]
fn each_parent_belongs_to_one_replica() {
    World::simulate(1, TestCluster::new().parts(), Vec::new(), async |world: &World| {
        setpoint_hooks::install(&world.client(), world.clock()).await.expect("everything installs");
        define(world, definition("Thing", "things", true)).await;
        let calls = Calls::default();
        let (_first, stop) = start(world, "first", &calls);
        let _second = start(world, "second", &calls);
        world.pass(Duration::from_secs(60)).await;
        create_controller(world, composite("maps", "InPlace")).await;
        for nth in 0..THINGS {
            create_thing(world, &format!("a{nth}"), json!({"value": "1"})).await;
        }
        for nth in 0..THINGS {
            until_value(world, &config_maps(), &format!("a{nth}-0"), "/data/value", json!("1")).await;
        }
        world.pass(Duration::from_secs(60)).await;
        let found = std::mem::take(&mut *calls.lock().expect("no panic"));
        let mut by_replica = BTreeMap::<&str, usize>::new();
        for (parent, mut callers) in found {
            callers.dedup();
            assert_eq!(callers.len(), 1, "{parent} was reconciled by {callers:?}");
            *by_replica.entry(callers[0]).or_default() += 1;
        }
        assert_eq!((by_replica.len(), by_replica.values().sum::<usize>()), (2, THINGS), "{by_replica:?}");

        stop.cancel();
        world.pass(Duration::from_secs(60)).await;
        for nth in 0..THINGS {
            patch(world, &things(), &key(&format!("a{nth}")), json!({"spec": {"value": "2"}})).await;
        }
        for nth in 0..THINGS {
            until_value(world, &config_maps(), &format!("a{nth}-0"), "/data/value", json!("2")).await;
        }
        let all = calls.lock().expect("no panic");
        let last = all.values().all(|callers| callers.last() == Some(&"second"));
        assert!(last, "the second replica has taken over: {all:?}");
    });
}
