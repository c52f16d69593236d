//! The controllers themselves: they start, restart and stop with their objects, and say what is wrong with them.

use std::time::Duration;

use super::*;

async fn not_ready(world: &World, kind: &Kind, controller: Value) -> Value {
    let name = name_of(&controller).to_owned();
    world.create(kind, None, controller).await;
    until_condition(world, kind, &name, "Ready", "False").await
}

#[test]
fn a_controller_follows_its_spec_and_stops_with_its_object() {
    let (hooks, calls) = counted(maps);
    let hooks = hooks.on("http://hooks/other", |request| {
        let mut answer = maps(&request);
        answer["status"]["other"] = json!(true);
        answer
    });
    with_hooks(hooks, async |cluster| {
        create_controller(cluster, composite("maps", "InPlace")).await;
        create_thing(cluster, "a", json!({})).await;
        until_value(cluster, &things(), "a", "/status/children", json!(1)).await;
        let other = json!({"spec": {"hooks": {"sync": {"webhook": {"url": "http://hooks/other"}}}}});
        patch(cluster, &composites(), &Key::cluster("maps"), other).await;
        until_value(cluster, &things(), "a", "/status/other", json!(true)).await;
        let before = count(&calls);
        delete(cluster, &composites(), &Key::cluster("maps")).await;
        cluster.pass(Duration::from_secs(60)).await;
        create_thing(cluster, "b", json!({})).await;
        cluster.pass(Duration::from_secs(60)).await;
        assert_eq!(count(&calls), before);
        assert!(cluster.get(&config_maps(), &key("b-0")).await.is_none());
        for reason in ["Starting", "Started", "Stopping", "Stopped"] {
            assert!(!messages(cluster, "maps", reason).await.is_empty(), "{reason}");
        }
        create_controller(cluster, composite("maps", "InPlace")).await;
        until_value(cluster, &things(), "b", "/status/children", json!(1)).await;
    });
}

#[test]
fn a_hook_that_hangs_does_not_hold_up_a_changed_controller() {
    let hooks = Functions::new()
        .replying(SYNC, |_| std::future::pending())
        .on("http://hooks/other", |request| maps(&request));
    with_hooks(hooks, async |cluster| {
        let mut controller = composite("maps", "InPlace");
        controller["spec"]["hooks"]["sync"]["webhook"]["timeout"] = json!("1h");
        create_controller(cluster, controller).await;
        create_thing(cluster, "a", json!({})).await;
        cluster.pass(Duration::from_secs(5)).await;
        let other = json!({"spec": {"hooks": {"sync": {"webhook": {"url": "http://hooks/other"}}}}});
        patch(cluster, &composites(), &Key::cluster("maps"), other).await;
        cluster.pass(Duration::from_secs(2)).await;
        assert!(cluster.get(&config_maps(), &key("a-0")).await.is_some());
    });
}

#[test]
fn only_controllers_with_the_chosen_labels_run() {
    let (hooks, calls) = counted(maps);
    let selector = "team=shop".parse().expect("a selector");
    with_options(Options { selector, ..Options::new(hooks) }, async |cluster| {
        World::create(cluster, &composites(), None, composite("maps", "InPlace")).await;
        create_thing(cluster, "a", json!({})).await;
        cluster.pass(Duration::from_secs(60)).await;
        assert_eq!(count(&calls), 0);
        let label = |team: Value| json!({"metadata": {"labels": {"team": team}}});
        patch(cluster, &composites(), &Key::cluster("maps"), label(json!("shop"))).await;
        until_value(cluster, &things(), "a", "/status/children", json!(1)).await;
        patch(cluster, &composites(), &Key::cluster("maps"), label(Value::Null)).await;
        cluster.pass(Duration::from_secs(60)).await;
        create_thing(cluster, "b", json!({})).await;
        cluster.pass(Duration::from_secs(60)).await;
        assert!(cluster.get(&config_maps(), &key("b-0")).await.is_none());
    });
}

#[test]
fn a_controller_waits_for_its_kinds() {
    let (hooks, _) = counted(maps);
    with_hooks(hooks, async |cluster| {
        let mut controller = composite("maps", "InPlace");
        controller["spec"]["parentResource"]["resource"] = json!("widgets");
        let condition = not_ready(cluster, &composites(), controller).await;
        assert!(
            condition["message"].as_str().expect("a text").contains("can't find resource \"widgets\""),
            "{condition}"
        );
        define(cluster, definition("Widget", "widgets", true)).await;
        until_condition(cluster, &composites(), "maps", "Ready", "True").await;
        let widgets = Kind::new("example.com", "v1", "Widget", "widgets", true);
        let widget =
            json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": {}});
        make(cluster, &widgets, widget).await;
        until_value(cluster, &widgets, "w", "/status/children", json!(1)).await;
    });
}

#[test]
fn what_cannot_run_says_why() {
    let (hooks, _) = counted(maps);
    with_hooks(hooks, async |cluster| {
        define(cluster, definition("Plain", "plains", false)).await;
        let check = async |name: &str, change: fn(&mut Value), reason: &str, message: &str| {
            let mut controller = composite(name, "InPlace");
            change(&mut controller["spec"]);
            let condition = not_ready(cluster, &composites(), controller).await;
            assert_eq!(condition["reason"], reason, "{condition}");
            assert!(condition["message"].as_str().expect("a text").contains(message), "{condition}");
        };
        check(
            "plain",
            |spec| spec["parentResource"]["resource"] = json!("plains"),
            "ParentNotSupported",
            "does not have subresource 'Status'",
        )
        .await;
        check(
            "built-in",
            |spec| spec["parentResource"] = json!({"apiVersion": "apps/v1", "resource": "deployments"}),
            "ParentNotSupported",
            "is not a custom resource",
        )
        .await;
        check("hookless", |spec| spec["hooks"] = json!({}), "InvalidSpec", "spec.hooks.sync").await;
        check(
            "twice",
            |spec| {
                let map = spec["childResources"][0].clone();
                spec["childResources"].as_array_mut().expect("a list").push(map);
            },
            "InvalidSpec",
            "spec.childResources[1]",
        )
        .await;
        check(
            "nowhere",
            |spec| spec["hooks"]["sync"]["webhook"]["url"] = json!("http://hooks/none"),
            "HookNotReachable",
            "no such hook",
        )
        .await;
        check(
            "secret",
            |spec| {
                let secret = json!({"secretRef": {"name": "s", "namespace": "default", "key": "token"}});
                spec["hooks"]["sync"]["webhook"]["authorization"] = secret;
            },
            "CredentialsNotFound",
            "authorization: Secret default/s",
        )
        .await;
        let events = messages(cluster, "plain", "SyncError").await;
        assert!(events[0].contains("ignoring, CRD plains.example.com"), "{events:?}");
        assert!(!messages(cluster, "hookless", "CreateError").await.is_empty());
    });
}

#[test]
fn a_restarted_process_goes_on_without_writes() {
    let (hooks, _) = counted(maps);
    with_hooks(hooks, async |cluster| {
        create_controller(cluster, composite("maps", "InPlace")).await;
        create_thing(cluster, "a", json!({"count": 2})).await;
        until_value(cluster, &things(), "a", "/status/children", json!(2)).await;
        cluster.pass(Duration::from_secs(60)).await;
        let version =
            |object: Option<Value>| object.expect("it is there")["metadata"]["resourceVersion"].clone();
        let before = version(cluster.get(&things(), &key("a")).await);
        let child = version(cluster.get(&config_maps(), &key("a-0")).await);
        cluster.restart().await;
        cluster.pass(Duration::from_secs(60)).await;
        assert_eq!(version(cluster.get(&things(), &key("a")).await), before);
        assert_eq!(version(cluster.get(&config_maps(), &key("a-0")).await), child);
    });
}
