//! CompositeControllers: children, their changes, adoption and release, finalizers, status.

use std::sync::Mutex;
use std::time::Duration;

use super::*;
use setpoint_hooks::ApplyMode;

const HOUR: Duration = Duration::from_secs(3600);

#[test]
fn a_parent_gets_the_children_that_its_hook_returns() {
    let (hooks, _) = counted(maps);
    with_hooks(hooks, async |cluster| {
        create_controller(cluster, composite("maps", "InPlace")).await;
        create_thing(cluster, "a", json!({"count": 2, "value": "1"})).await;
        until_value(cluster, &things(), "a", "/status/children", json!(2)).await;
        let child = cluster.get(&config_maps(), &key("a-1")).await.expect("it was created");
        let owner = &child["metadata"]["ownerReferences"][0];
        assert_eq!(
            (&owner["kind"], &owner["controller"], &owner["blockOwnerDeletion"]),
            (&json!("Thing"), &json!(true), &json!(true))
        );
        assert_eq!(child["metadata"]["labels"]["controller-uid"], owner["uid"]);
        assert!(
            child["metadata"]["annotations"]["metacontroller.k8s.io/last-applied-configuration"].is_string()
        );
        until_value(cluster, &things(), "a", "/status/observedGeneration", json!(1)).await;

        patch(cluster, &things(), &key("a"), json!({"spec": {"count": 1, "value": "2"}})).await;
        gone(cluster, &config_maps(), "a-1").await;
        until_value(cluster, &config_maps(), "a-0", "/data/value", json!("2")).await;
        delete(cluster, &config_maps(), &key("a-0")).await;
        until_value(cluster, &config_maps(), "a-0", "/data/value", json!("2")).await;

        delete(cluster, &things(), &key("a")).await;
        gone(cluster, &config_maps(), "a-0").await;
    });
}

#[test]
fn an_unchanged_parent_causes_no_calls_and_no_writes() {
    for apply in [ApplyMode::Dynamic, ApplyMode::ServerSide] {
        let (hooks, calls) = counted(maps);
        with_options(Options { apply, ..Options::new(hooks) }, async |cluster| {
            create_controller(cluster, composite("maps", "InPlace")).await;
            create_thing(cluster, "a", json!({"count": 3, "value": "1"})).await;
            until_value(cluster, &things(), "a", "/status/children", json!(3)).await;
            cluster.pass(Duration::from_secs(60)).await;
            let before = (count(&calls), cluster.revision());
            cluster.pass(2 * HOUR).await;
            assert_eq!((count(&calls), cluster.revision()), before);
            assert!(before.0 < 10, "{} calls", before.0);
        });
    }
}

#[test]
fn a_resync_period_and_a_delay_in_the_answer_cause_calls() {
    for (period, delay) in [(Some(600), None), (None, Some(600))] {
        let (hooks, calls) = counted(move |request| {
            let mut answer = maps(request);
            answer["resyncAfterSeconds"] = json!(delay);
            answer
        });
        with_hooks(hooks, async |cluster| {
            let mut controller = composite("maps", "InPlace");
            controller["spec"]["resyncPeriodSeconds"] = json!(period);
            create_controller(cluster, controller).await;
            create_thing(cluster, "a", json!({})).await;
            until_value(cluster, &things(), "a", "/status/children", json!(1)).await;
            cluster.pass(Duration::from_secs(60)).await;
            let before = count(&calls);
            cluster.pass(HOUR).await;
            assert!((5..=7).contains(&(count(&calls) - before)), "{} calls", count(&calls) - before);
        });
    }
}

#[test]
fn drift_is_repaired_and_the_fields_of_others_stay() {
    for apply in [ApplyMode::Dynamic, ApplyMode::ServerSide] {
        let (hooks, _) = counted(maps);
        with_options(Options { apply, ..Options::new(hooks) }, async |cluster| {
            create_controller(cluster, composite("maps", "InPlace")).await;
            create_thing(cluster, "a", json!({"value": "1"})).await;
            until_value(cluster, &config_maps(), "a-0", "/data/value", json!("1")).await;
            let drift = json!({"data": {"value": "drifted", "foreign": "kept"}, "metadata": {"labels": {"own": "kept"}}});
            patch(cluster, &config_maps(), &key("a-0"), drift).await;
            until_value(cluster, &config_maps(), "a-0", "/data/value", json!("1")).await;
            let child = cluster.get(&config_maps(), &key("a-0")).await.expect("it is there");
            assert_eq!(
                (&child["data"]["foreign"], &child["metadata"]["labels"]["own"]),
                (&json!("kept"), &json!("kept"))
            );
        });
    }
}

#[test]
fn children_are_recreated_or_left_alone_by_strategy() {
    for apply in [ApplyMode::Dynamic, ApplyMode::ServerSide] {
        let (hooks, _) = counted(maps);
        with_options(Options { apply, ..Options::new(hooks) }, async |cluster| {
            create_controller(cluster, composite("maps", "Recreate")).await;
            create_thing(cluster, "a", json!({"value": "1"})).await;
            until_value(cluster, &things(), "a", "/status/children", json!(1)).await;
            let uid =
                cluster.get(&config_maps(), &key("a-0")).await.expect("a child")["metadata"]["uid"].clone();
            cluster.pass(Duration::from_secs(60)).await;
            assert_eq!(
                cluster.get(&config_maps(), &key("a-0")).await.expect("a child")["metadata"]["uid"],
                uid
            );
            patch(cluster, &things(), &key("a"), json!({"spec": {"value": "2"}})).await;
            until_value(cluster, &config_maps(), "a-0", "/data/value", json!("2")).await;
            let child = cluster.get(&config_maps(), &key("a-0")).await.expect("a child");
            assert_ne!(child["metadata"]["uid"], uid);

            let strategy = json!([{"apiVersion": "v1", "resource": "configmaps"}]);
            patch(
                cluster,
                &composites(),
                &Key::cluster("maps"),
                json!({"spec": {"childResources": strategy}}),
            )
            .await;
            cluster.pass(Duration::from_secs(60)).await;
            patch(cluster, &things(), &key("a"), json!({"spec": {"value": "3"}})).await;
            cluster.pass(Duration::from_secs(60)).await;
            until_value(cluster, &config_maps(), "a-0", "/data/value", json!("2")).await;
            delete(cluster, &config_maps(), &key("a-0")).await;
            until_value(cluster, &config_maps(), "a-0", "/data/value", json!("3")).await;
        });
    }
}

#[test]
fn a_child_with_immutable_fields_is_recreated_if_a_new_one_is_valid() {
    for apply in [ApplyMode::Dynamic, ApplyMode::ServerSide] {
        let (hooks, _) = counted(|request| {
            let mut answer = maps(request);
            answer["children"][0]["immutable"] = json!(true);
            let field = request["parent"]["spec"]["field"].as_str().unwrap_or("field").to_owned();
            answer["children"][0]["data"][field] = json!("1");
            answer
        });
        with_options(Options { apply, ..Options::new(hooks) }, async |cluster| {
            create_controller(cluster, composite("maps", "Recreate")).await;
            create_thing(cluster, "a", json!({"value": "1"})).await;
            until_value(cluster, &config_maps(), "a-0", "/data/value", json!("1")).await;
            patch(cluster, &things(), &key("a"), json!({"spec": {"value": "2"}})).await;
            until_value(cluster, &config_maps(), "a-0", "/data/value", json!("2")).await;
            if apply == ApplyMode::ServerSide {
                patch(cluster, &things(), &key("a"), json!({"spec": {"field": "not valid!"}})).await;
                cluster.pass(Duration::from_secs(60)).await;
                until_value(cluster, &config_maps(), "a-0", "/data/value", json!("2")).await;
                assert!(messages(cluster, "a", "SyncError").await[0].contains("compare ConfigMap"));
            }
        });
    }
}

#[test]
fn a_cluster_scoped_child_of_a_namespaced_parent_comes_back() {
    let (hooks, _) = counted(|request| {
        let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {"name": name_of(&request["parent"])}, "rules": []});
        json!({"status": {}, "children": [role]})
    });
    with_hooks(hooks, async |cluster| {
        let roles = Kind::new("rbac.authorization.k8s.io", "v1", "ClusterRole", "clusterroles", false);
        let mut controller = composite("roles", "InPlace");
        controller["spec"]["childResources"] =
            json!([{"apiVersion": "rbac.authorization.k8s.io/v1", "resource": "clusterroles"}]);
        create_controller(cluster, controller).await;
        create_thing(cluster, "a", json!({})).await;
        World::until(cluster, &roles, &Key::cluster("a"), |role| role.is_some()).await;
        cluster.pass(Duration::from_secs(60)).await;
        delete(cluster, &roles, &Key::cluster("a")).await;
        cluster.pass(Duration::from_secs(5)).await;
        assert!(cluster.get(&roles, &Key::cluster("a")).await.is_some());
    });
}

#[test]
fn orphans_are_adopted_and_children_that_no_longer_match_released() {
    let (hooks, _) = counted(labelled);
    with_hooks(hooks, async |cluster| {
        let mut controller = composite("maps", "InPlace");
        controller["spec"]["generateSelector"] = json!(false);
        create_controller(cluster, controller).await;
        let mut orphan = config_map("a-0", &json!("old"));
        orphan["metadata"] = json!({"name": "a-0", "labels": {"app": "a"}});
        make(cluster, &config_maps(), orphan).await;
        create_thing(cluster, "a", json!({"value": "1", "selector": {"matchLabels": {"app": "a"}}})).await;
        until_value(cluster, &config_maps(), "a-0", "/metadata/ownerReferences/0/name", json!("a")).await;
        until_value(cluster, &config_maps(), "a-0", "/data/value", json!("1")).await;
        patch(cluster, &config_maps(), &key("a-0"), json!({"metadata": {"labels": {"app": "other"}}})).await;
        cluster.pass(Duration::from_secs(60)).await;
        let released = cluster.get(&config_maps(), &key("a-0")).await.expect("it stays");
        assert!(released["metadata"]["ownerReferences"].is_null(), "{released}");
    });
}

#[test]
fn a_parent_without_a_selector_and_children_that_do_not_match_it_are_errors() {
    let (hooks, _) = counted(maps);
    with_hooks(hooks, async |cluster| {
        let mut controller = composite("maps", "InPlace");
        controller["spec"]["generateSelector"] = json!(false);
        create_controller(cluster, controller).await;
        create_thing(cluster, "a", json!({})).await;
        create_thing(cluster, "b", json!({"selector": {"matchLabels": {"app": "b"}}})).await;
        cluster.pass(Duration::from_secs(60)).await;
        assert!(messages(cluster, "a", "SyncError").await[0].contains(".spec.selector must have"));
        assert!(messages(cluster, "b", "SyncError").await[0].contains("do not match the parent's selector"));
        assert!(cluster.get(&config_maps(), &key("b-0")).await.is_none());
    });
}

#[test]
fn children_of_undeclared_kinds_are_refused_with_a_reason_and_the_others_created() {
    let (hooks, _) = counted(|request| {
        let mut answer = maps(request);
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}});
        let elsewhere = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x", "namespace": "kube-system"}});
        answer["children"].as_array_mut().expect("a list").extend([secret, elsewhere]);
        answer
    });
    with_hooks(hooks, async |cluster| {
        create_controller(cluster, composite("maps", "InPlace")).await;
        create_thing(cluster, "a", json!({})).await;
        until_value(cluster, &things(), "a", "/status/children", json!(1)).await;
        cluster.pass(Duration::from_secs(60)).await;
        let message = &messages(cluster, "a", "SyncError").await[0];
        assert!(
            message.contains("children[1], Secret s of v1: spec.childResources does not have its kind"),
            "{message}"
        );
        assert!(message.contains("it is in the namespace kube-system"), "{message}");
    });
}

#[test]
fn a_parent_is_finalized_before_it_goes() {
    let finalizing = Arc::new(Mutex::new(Vec::new()));
    let seen = finalizing.clone();
    let hooks = Functions::new().on(SYNC, |request| maps(&request)).on(FINALIZE, move |request| {
        let left = request["children"]["ConfigMap.v1"].as_object().expect("a map").len();
        seen.lock().expect("no panic").push((request["finalizing"].clone(), left));
        json!({"children": [], "finalized": left == 0})
    });
    with_hooks(hooks, async |cluster| {
        let mut controller = composite("maps", "InPlace");
        controller["spec"]["hooks"]["finalize"] = json!({"webhook": {"url": FINALIZE}});
        controller["spec"]["parentResource"]["labelSelector"] = json!({"matchLabels": {"managed": "yes"}});
        create_controller(cluster, controller).await;
        let create = async |name: &str| {
            let mut parent = thing(name, json!({"count": 2}));
            parent["metadata"]["labels"] = json!({"managed": "yes"});
            make(cluster, &things(), parent).await;
            until_value(cluster, &things(), name, "/status/children", json!(2)).await;
            let finalizer = json!(["metacontroller.io/compositecontroller-maps"]);
            until_value(cluster, &things(), name, "/metadata/finalizers", finalizer).await;
        };
        create("a").await;
        delete(cluster, &things(), &key("a")).await;
        gone(cluster, &things(), "a").await;
        gone(cluster, &config_maps(), "a-0").await;
        let calls = finalizing.lock().expect("no panic").clone();
        assert_eq!((calls.first(), calls.last()), (Some(&(json!(true), 2)), Some(&(json!(true), 0))));

        create("b").await;
        patch(cluster, &things(), &key("b"), json!({"metadata": {"labels": {"managed": "no"}}})).await;
        gone(cluster, &config_maps(), "b-0").await;
        cluster.pass(Duration::from_secs(60)).await;
        let parent = cluster.get(&things(), &key("b")).await.expect("it stays");
        assert!(
            parent["metadata"]["finalizers"].is_null(),
            "it is finalized, because it is no longer selected"
        );
    });
}

#[test]
fn a_parent_is_finalized_even_if_its_children_are_wrong() {
    let hooks = Functions::new().on(SYNC, |request| labelled(&request)).on(FINALIZE, |request| {
        let mut answer = maps(&request);
        answer["finalized"] = json!(true);
        answer
    });
    with_hooks(hooks, async |cluster| {
        let mut controller = composite("maps", "InPlace");
        controller["spec"]["generateSelector"] = json!(false);
        controller["spec"]["hooks"]["finalize"] = json!({"webhook": {"url": FINALIZE}});
        create_controller(cluster, controller).await;
        create_thing(cluster, "a", json!({"selector": {"matchLabels": {"app": "a"}}})).await;
        until_value(cluster, &things(), "a", "/status/children", json!(1)).await;
        delete(cluster, &things(), &key("a")).await;
        gone(cluster, &things(), "a").await;
    });
}

#[test]
fn a_finalizer_that_is_left_over_is_removed() {
    let (hooks, _) = counted(maps);
    with_hooks(hooks, async |cluster| {
        create_controller(cluster, composite("maps", "InPlace")).await;
        let mut parent = thing("a", json!({}));
        parent["metadata"]["finalizers"] =
            json!(["metacontroller.io/compositecontroller-maps", "example.com/own"]);
        make(cluster, &things(), parent).await;
        until_value(cluster, &things(), "a", "/metadata/finalizers", json!(["example.com/own"])).await;
    });
}

#[test]
fn events_and_conditions_of_an_answer_are_recorded_once() {
    let (hooks, _) = counted(|request| {
        let mut answer = maps(request);
        answer["events"] = json!([{"type": "Warning", "reason": "Grown", "message": "it has grown"}]);
        answer["conditions"] =
            json!([{"type": "Ready", "status": "True", "reason": "AllThere", "message": "m"}]);
        answer
    });
    with_hooks(hooks, async |cluster| {
        create_controller(cluster, composite("maps", "InPlace")).await;
        create_thing(cluster, "a", json!({})).await;
        until_value(cluster, &things(), "a", "/status/conditions/0/reason", json!("AllThere")).await;
        until_value(cluster, &things(), "a", "/status/children", json!(1)).await;
        cluster.pass(HOUR).await;
        assert_eq!(messages(cluster, "a", "Grown").await, ["it has grown"]);
        let events = cluster.list(&events(), Some("default")).await;
        let grown = events.iter().find(|event| event["reason"] == "Grown").expect("an event");
        assert_eq!((&grown["count"], &grown["type"]), (&json!(1), &json!("Warning")));
    });
}

#[test]
fn requests_have_the_maps_of_their_version() {
    for (version, name) in [("v1", "a-0"), ("v2", "default/a-0")] {
        let (hooks, _) = counted(move |request| {
            let mut answer = maps(request);
            answer["status"]["named"] = request["children"]["ConfigMap.v1"][name]["kind"].clone();
            answer["status"]["related"] = request["related"].clone();
            answer["status"]["controller"] = request["controller"]["metadata"]["name"].clone();
            answer
        });
        with_hooks(hooks, async |cluster| {
            let mut controller = composite("maps", "InPlace");
            controller["spec"]["hooks"]["sync"]["version"] = json!(version);
            create_controller(cluster, controller).await;
            create_thing(cluster, "a", json!({})).await;
            until_value(cluster, &things(), "a", "/status/named", json!("ConfigMap")).await;
            until_value(cluster, &things(), "a", "/status/controller", json!("maps")).await;
            until_value(cluster, &things(), "a", "/status/related", json!({})).await;
        });
    }
}

#[test]
fn status_changes_can_be_ignored() {
    let (hooks, calls) = counted(maps);
    with_hooks(hooks, async |cluster| {
        let mut controller = composite("maps", "InPlace");
        controller["spec"]["parentResource"]["ignoreStatusChanges"] = json!(true);
        create_controller(cluster, controller).await;
        create_thing(cluster, "a", json!({})).await;
        until_value(cluster, &things(), "a", "/status/children", json!(1)).await;
        cluster.pass(Duration::from_secs(60)).await;
        let before = count(&calls);
        let status = Patch::merge(&json!({"status": {"foreign": 1}}));
        cluster.client().patch(&things(), &key("a"), Subresource::Status, status).await.expect("a patch");
        cluster.pass(Duration::from_secs(60)).await;
        assert_eq!(count(&calls), before);
        patch(cluster, &things(), &key("a"), json!({"metadata": {"annotations": {"a": "b"}}})).await;
        cluster.pass(Duration::from_secs(60)).await;
        assert!(count(&calls) > before);
    });
}
