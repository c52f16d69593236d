//! Related objects: what customize hooks ask for.

use super::*;

/// The sum of the values of all related ConfigMaps.
fn total(request: &Value) -> Value {
    let related = request["related"]["ConfigMap.v1"].as_object().cloned().unwrap_or_default();
    let names: Vec<&String> = related.keys().collect();
    json!({"status": {"related": names}, "children": []})
}

fn customizing(version: &str) -> Value {
    let mut controller = composite("sums", "InPlace");
    controller["spec"]["hooks"]["sync"]["version"] = json!(version);
    controller["spec"]["hooks"]["customize"] = json!({"version": version, "webhook": {"url": CUSTOMIZE}});
    controller
}

async fn create_map(world: &World, namespace: &str, name: &str, colour: &str) {
    let mut map = config_map(name, &json!("1"));
    map["metadata"]["labels"] = json!({"colour": colour});
    world.create(&config_maps(), Some(namespace), map).await;
}

/// Hooks whose rule is in the parent, and the number of calls of the customize hook.
fn hooks() -> (Functions, Arc<AtomicUsize>) {
    let calls = Arc::new(AtomicUsize::new(0));
    let counter = calls.clone();
    let hooks = Functions::new().on(SYNC, |request| total(&request)).on(CUSTOMIZE, move |request| {
        counter.fetch_add(1, Ordering::Relaxed);
        let mut rule = request["parent"]["spec"].clone();
        rule["apiVersion"] = "v1".into();
        rule["resource"] = "configmaps".into();
        json!({"relatedResources": [rule]})
    });
    (hooks, calls)
}

#[test]
fn a_hook_sees_related_objects_and_their_changes() {
    let (hooks, calls) = hooks();
    with_hooks(hooks, async |cluster| {
        create_controller(cluster, customizing("v1")).await;
        create_map(cluster, "default", "a", "red").await;
        create_map(cluster, "kube-system", "a", "red").await;
        create_thing(cluster, "t", json!({"labelSelector": {"matchLabels": {"colour": "red"}}})).await;
        until_value(cluster, &things(), "t", "/status/related", json!(["a"])).await;
        create_map(cluster, "default", "b", "red").await;
        until_value(cluster, &things(), "t", "/status/related", json!(["a", "b"])).await;
        patch(cluster, &config_maps(), &key("a"), json!({"metadata": {"labels": {"colour": "blue"}}})).await;
        until_value(cluster, &things(), "t", "/status/related", json!(["b"])).await;
        assert_eq!(count(&calls), 1, "the answer is kept for a generation");
        patch(
            cluster,
            &things(),
            &key("t"),
            json!({"spec": {"labelSelector": {"matchLabels": {"colour": "blue"}}}}),
        )
        .await;
        until_value(cluster, &things(), "t", "/status/related", json!(["a"])).await;
        assert_eq!(count(&calls), 2);
    });
}

#[test]
fn version_2_sees_other_namespaces() {
    let (hooks, _) = hooks();
    with_hooks(hooks, async |cluster| {
        create_controller(cluster, customizing("v2")).await;
        create_map(cluster, "default", "a", "red").await;
        create_map(cluster, "kube-system", "b", "red").await;
        create_thing(cluster, "named", json!({"namespace": "kube-system", "names": ["b"]})).await;
        until_value(cluster, &things(), "named", "/status/related", json!(["kube-system/b"])).await;
        let zone = json!({"namespaceSelector": {"matchLabels": {"zone": "system"}}});
        create_thing(cluster, "zoned", zone).await;
        until_value(cluster, &things(), "zoned", "/status/related", json!([])).await;
        let namespaces = Kind::new("", "v1", "Namespace", "namespaces", false);
        let labels = json!({"metadata": {"labels": {"zone": "system"}}});
        patch(cluster, &namespaces, &Key::cluster("kube-system"), labels).await;
        let has_b = |parent: Option<&Value>| {
            let names = parent.and_then(|parent| parent["status"]["related"].as_array());
            names.is_some_and(|names| names.contains(&json!("kube-system/b")))
        };
        World::until(cluster, &things(), &key("zoned"), has_b).await;
    });
}

#[test]
fn a_rule_for_another_namespace_is_an_error_in_version_1() {
    let (hooks, _) = hooks();
    with_hooks(hooks, async |cluster| {
        create_controller(cluster, customizing("v1")).await;
        create_thing(cluster, "t", json!({"namespace": "kube-system"})).await;
        cluster.pass(std::time::Duration::from_secs(60)).await;
        let message = &messages(cluster, "t", "SyncError").await[0];
        assert!(message.contains("needs version v2 of the hook"), "{message}");
    });
}

#[test]
fn the_rules_of_an_object_without_generations_follow_its_changes() {
    let hooks = Functions::new()
        .on(SYNC, |request| {
            let related = request["related"]["ConfigMap.v1"].as_object().cloned().unwrap_or_default();
            let names: Vec<String> = related.into_iter().map(|(name, _)| name).collect();
            json!({"annotations": {"related": names.join(",")}})
        })
        .on(CUSTOMIZE, |request| {
            let name = &request["parent"]["data"]["wants"];
            json!({"relatedResources": [{"apiVersion": "v1", "resource": "configmaps", "names": [name]}]})
        });
    with_hooks(hooks, async |cluster| {
        create_map(cluster, "default", "red", "red").await;
        create_map(cluster, "default", "blue", "blue").await;
        let hook = |url: &str| json!({"webhook": {"url": url}});
        let selector = json!({"matchLabels": {"follows": "yes"}});
        let controller = json!({
            "apiVersion": "metacontroller.k8s.io/v1alpha1", "kind": "DecoratorController",
            "metadata": {"name": "following"},
            "spec": {
                "resources": [{"apiVersion": "v1", "resource": "configmaps", "labelSelector": selector}],
                "hooks": {"sync": hook(SYNC), "customize": hook(CUSTOMIZE)},
            },
        });
        create_controller(cluster, controller).await;
        let follower = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"wants": "red"},
            "metadata": {"name": "follower", "labels": {"follows": "yes"}}});
        make(cluster, &config_maps(), follower).await;
        until_value(cluster, &config_maps(), "follower", "/metadata/annotations/related", json!("red")).await;
        patch(cluster, &config_maps(), &key("follower"), json!({"data": {"wants": "blue"}})).await;
        until_value(cluster, &config_maps(), "follower", "/metadata/annotations/related", json!("blue"))
            .await;
    });
}
