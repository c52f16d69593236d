//! Rolling update strategies: one child after the other, by ControllerRevisions.

use std::time::Duration;

use super::*;
use setpoint_hooks::ApplyMode;

/// Children with a status that the test sets: things of another kind.
fn parts() -> Kind {
    Kind::new("example.com", "v1", "Part", "parts", true)
}

fn rolling(method: &str) -> Value {
    let mut controller = composite("rolling", method);
    controller["spec"]["childResources"] = json!([{"apiVersion": "example.com/v1", "resource": "parts", "updateStrategy": {
        "method": method, "statusChecks": {"conditions": [{"type": "Ready", "status": "True"}]}}}]);
    controller
}

fn hook(request: &Value) -> Value {
    let parent = &request["parent"];
    let child = |nth| {
        json!({"apiVersion": "example.com/v1", "kind": "Part", "metadata": {"name": format!("{}-{nth}", name_of(parent))},
            "spec": {"value": parent["spec"]["value"]}})
    };
    json!({"status": {"phase": "Known"}, "children": (0..3).rev().map(child).collect::<Vec<_>>()})
}

/// Returns the values of the three children.
async fn values(world: &World) -> Vec<String> {
    let mut values = Vec::new();
    for nth in 0..3 {
        let child = world.get(&parts(), &key(&format!("a-{nth}"))).await;
        values.push(
            child.map_or_else(
                || "-".into(),
                |child| child["spec"]["value"].as_str().unwrap_or("?").to_owned(),
            ),
        );
    }
    values
}

async fn set_ready(world: &World, name: &str, status: &str) {
    let patch = json!({"status": {"conditions": [{"type": "Ready", "status": status}]}});
    let patched = world.client().patch(&parts(), &key(name), Subresource::Status, Patch::merge(&patch)).await;
    patched.expect("the user's own patch");
}

async fn until_reason(world: &World, reason: &str) {
    let is_it = |parent: Option<&Value>| {
        let conditions = parent.and_then(|parent| parent["status"]["conditions"].as_array());
        conditions.into_iter().flatten().any(|one| one["type"] == "Updated" && one["reason"] == reason)
    };
    world.until(&things(), &key("a"), is_it).await;
}

async fn begin(world: &World, method: &str) {
    define(world, definition("Part", "parts", true)).await;
    create_controller(world, rolling(method)).await;
    create_thing(world, "a", json!({"value": "1"})).await;
    until_reason(world, "OnLatestRevision").await;
    world.pass(Duration::from_secs(10)).await;
    for nth in 0..3 {
        set_ready(world, &format!("a-{nth}"), "True").await;
    }
    world.pass(Duration::from_secs(10)).await;
    assert_eq!(values(world).await, ["1", "1", "1"]);
    assert_eq!(world.list(&revisions(), Some("default")).await.len(), 1);
}

#[test]
fn one_child_after_the_other_is_updated_in_the_order_of_the_answer() {
    let (hooks, _) = counted(hook);
    with_hooks(hooks, async |cluster| {
        begin(cluster, "RollingInPlace").await;
        set_ready(cluster, "a-1", "False").await;
        patch(cluster, &things(), &key("a"), json!({"spec": {"value": "2"}})).await;
        until_reason(cluster, "RolloutWaiting").await;
        cluster.pass(Duration::from_secs(600)).await;
        assert_eq!(values(cluster).await, ["1", "2", "2"], "a-1 is not ready, so a-0 waits");
        assert_eq!(cluster.list(&revisions(), Some("default")).await.len(), 2);
        set_ready(cluster, "a-1", "True").await;
        until_reason(cluster, "OnLatestRevision").await;
        cluster.pass(Duration::from_secs(60)).await;
        assert_eq!(values(cluster).await, ["2", "2", "2"]);
        assert_eq!(cluster.list(&revisions(), Some("default")).await.len(), 1);
        let before = cluster.revision();
        cluster.pass(Duration::from_secs(3600)).await;
        assert_eq!(cluster.revision(), before, "a steady state makes no writes");
    });
}

#[test]
fn children_are_recreated_one_after_the_other() {
    let (hooks, _) = counted(hook);
    with_hooks(hooks, async |cluster| {
        begin(cluster, "RollingRecreate").await;
        patch(cluster, &things(), &key("a"), json!({"spec": {"value": "2"}})).await;
        for (nth, expected) in [(2, ["1", "1", "2"]), (1, ["1", "2", "2"]), (0, ["2", "2", "2"])] {
            cluster.pass(Duration::from_secs(60)).await;
            assert_eq!(values(cluster).await, expected);
            set_ready(cluster, &format!("a-{nth}"), "True").await;
        }
        until_reason(cluster, "OnLatestRevision").await;
    });
}

#[test]
fn a_child_that_is_lost_during_a_rollout_comes_back_as_it_was() {
    let (hooks, _) = counted(hook);
    with_hooks(hooks, async |cluster| {
        begin(cluster, "RollingInPlace").await;
        set_ready(cluster, "a-2", "False").await;
        patch(cluster, &things(), &key("a"), json!({"spec": {"value": "2"}})).await;
        cluster.pass(Duration::from_secs(60)).await;
        assert_eq!(values(cluster).await, ["1", "1", "2"]);
        delete(cluster, &parts(), &key("a-0")).await;
        cluster.pass(Duration::from_secs(60)).await;
        assert_eq!(values(cluster).await, ["1", "1", "2"]);
    });
}

#[test]
fn a_second_change_overtakes_the_first() {
    let (hooks, _) = counted(hook);
    with_hooks(hooks, async |cluster| {
        begin(cluster, "RollingInPlace").await;
        set_ready(cluster, "a-2", "False").await;
        patch(cluster, &things(), &key("a"), json!({"spec": {"value": "2"}})).await;
        cluster.pass(Duration::from_secs(60)).await;
        patch(cluster, &things(), &key("a"), json!({"spec": {"value": "3"}})).await;
        cluster.pass(Duration::from_secs(60)).await;
        assert_eq!(values(cluster).await, ["1", "1", "3"]);
        set_ready(cluster, "a-2", "True").await;
        until_reason(cluster, "OnLatestRevision").await;
        cluster.pass(Duration::from_secs(60)).await;
        assert_eq!(values(cluster).await, ["3", "3", "3"]);
        assert_eq!(cluster.list(&revisions(), Some("default")).await.len(), 1);
    });
}

#[test]
fn server_side_applies_are_rolled_out_one_after_the_other_too() {
    for method in ["RollingInPlace", "RollingRecreate"] {
        let (hooks, _) = counted(hook);
        let options = Options { apply: ApplyMode::ServerSide, ..Options::new(hooks) };
        with_options(options, async |cluster| {
            begin(cluster, method).await;
            set_ready(cluster, "a-2", "False").await;
            set_ready(cluster, "a-1", "False").await;
            patch(cluster, &things(), &key("a"), json!({"spec": {"value": "2"}})).await;
            cluster.pass(Duration::from_secs(60)).await;
            assert_eq!(values(cluster).await, ["1", "1", "2"], "{method}");
            set_ready(cluster, "a-2", "True").await;
            cluster.pass(Duration::from_secs(60)).await;
            assert_eq!(values(cluster).await, ["1", "2", "2"], "{method}");
            cluster.restart().await;
            cluster.pass(Duration::from_secs(60)).await;
            assert_eq!(values(cluster).await, ["1", "2", "2"], "{method}");
            set_ready(cluster, "a-1", "True").await;
            cluster.pass(Duration::from_secs(60)).await;
            set_ready(cluster, "a-0", "True").await;
            until_reason(cluster, "OnLatestRevision").await;
            assert_eq!(values(cluster).await, ["2", "2", "2"], "{method}");
        });
    }
}

#[test]
fn a_revision_that_only_removes_a_field_is_rolled_out_too() {
    for apply in [ApplyMode::Dynamic, ApplyMode::ServerSide] {
        let (hooks, _) = counted(|request| {
            let mut answer = hook(request);
            for child in answer["children"].as_array_mut().expect("a list") {
                child["spec"]["extra"] = request["parent"]["spec"]["extra"].clone();
                if child["spec"]["extra"].is_null() {
                    child["spec"].as_object_mut().expect("a map").remove("extra");
                }
            }
            answer
        });
        with_options(Options { apply, ..Options::new(hooks) }, async |cluster| {
            begin(cluster, "RollingInPlace").await;
            patch(cluster, &things(), &key("a"), json!({"spec": {"extra": "x"}})).await;
            until_value(cluster, &parts(), "a-0", "/spec/extra", json!("x")).await;
            until_reason(cluster, "OnLatestRevision").await;
            set_ready(cluster, "a-2", "False").await;
            patch(cluster, &things(), &key("a"), json!({"spec": {"extra": null}})).await;
            cluster.pass(Duration::from_secs(60)).await;
            let extra = async |name: &str| {
                cluster.get(&parts(), &key(name)).await.expect("a child")["spec"]["extra"].clone()
            };
            assert_eq!((extra("a-2").await, extra("a-1").await), (Value::Null, json!("x")), "{apply:?}");
            set_ready(cluster, "a-2", "True").await;
            cluster.pass(Duration::from_secs(60)).await;
            assert_eq!(extra("a-0").await, Value::Null);
        });
    }
}
