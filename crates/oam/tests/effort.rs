//! What an application costs: how many writes and reads it takes to deploy one, and to keep it.

use std::collections::BTreeMap;
use std::time::Duration;

use super::*;

/// Counts the calls that name one of these words, by verb and resource.
fn calls(world: &World, words: &[&str]) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for line in world.trace().text().lines() {
        let mut parts = line.split(' ').skip(1);
        let (Some(verb), Some(path)) = (parts.next(), parts.next()) else { continue };
        if let Some(word) = words.iter().find(|word| path.contains(**word)) {
            let part = if path.ends_with("/status") { " status" } else { "" };
            *counts.entry(format!("{verb} {word}{part}")).or_default() += 1;
        }
    }
    counts
}

#[test]
fn an_application_is_deployed_in_a_few_calls() {
    in_cluster(async |cluster| {
        let traits = json!([{"type": "scaler", "properties": {"replicas": 1}}, {"type": "labels", "properties": {"a": "b"}}]);
        let component = |name: &str| {
            let mut component = worker(name);
            component["traits"] = traits.clone();
            component
        };
        create_app(cluster, "shop", json!({"components": [component("front"), component("back")]})).await;
        cluster.pass(Duration::from_secs(120)).await;
        let calls = calls(
            cluster,
            &[
                "/applications/shop",
                "/applicationrevisions",
                "/resourcetrackers",
                "/deployments/front",
                "/deployments/back",
            ],
        );
        let most = [
            ("PATCH /applications/shop", 1),
            ("PUT /applications/shop status", 4),
            ("POST /applicationrevisions", 1),
            ("PATCH /applicationrevisions status", 1),
            ("POST /resourcetrackers", 1),
            ("PUT /resourcetrackers", 2),
        ];
        for (call, most) in most {
            let made = calls.get(call).copied().unwrap_or_default();
            assert!(made <= most, "{call}: {calls:#?}");
        }
        assert_eq!(cluster.get(&applications(), &key("shop")).await.unwrap()["status"]["status"], "running");
    });
}

#[test]
fn a_settled_application_makes_no_calls() {
    in_cluster(async |cluster| {
        create_app(cluster, "quiet", json!({"components": [worker("a"), config("b", "1")]})).await;
        cluster.pass(Duration::from_secs(120)).await;
        let of_application = [
            "/applications/quiet",
            "/applicationrevisions",
            "/resourcetrackers",
            "/deployments/a",
            "/configmaps/b",
        ];
        let before = calls(cluster, &of_application);
        assert!(before.contains_key("PUT /applications/quiet status"), "{before:?}");
        cluster.pass(Duration::from_secs(1800)).await;
        assert_eq!(calls(cluster, &of_application), before);
    });
}
