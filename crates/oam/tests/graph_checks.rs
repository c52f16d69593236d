//! What a ResourceGraphDefinition is checked for, and what changes of one lead to.

use serde_json::{Value, json};
use setpoint::client::{DeleteOptions, Patch, Subresource};
use setpoint::{Key, Kind};
use setpoint_sim::World;

use super::*;

pub(super) fn graphs() -> Kind {
    Kind::new("kro.run", "v1alpha1", "ResourceGraphDefinition", "resourcegraphdefinitions", false)
}

pub(super) fn revisions() -> Kind {
    Kind::new("internal.kro.run", "v1alpha1", "GraphRevision", "graphrevisions", false)
}

pub(super) fn notes() -> Kind {
    Kind::new("kro.run", "v1alpha1", "Note", "notes", true)
}

/// A graph with a ConfigMap.
pub(super) fn note(data: Value) -> Value {
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "${schema.metadata.name}"}, "data": data});
    graph(json!([{"id": "map", "template": map}]))
}

fn graph(resources: Value) -> Value {
    json!({"apiVersion": "kro.run/v1alpha1", "kind": "ResourceGraphDefinition", "metadata": {"name": "note"}, "spec": {
        "schema": {"apiVersion": "v1alpha1", "kind": "Note", "spec": {
            "words": "string | default=hello", "pages": "integer | default=1"}},
        "resources": resources,
    }})
}

pub(super) async fn settled(world: &World, state: &str) -> Value {
    let name = Key::cluster("note");
    let is_settled = |graph: Option<&Value>| {
        graph.is_some_and(|graph| {
            let observed = &graph["status"]["conditions"][0]["observedGeneration"];
            graph["status"]["state"] == state && *observed == graph["metadata"]["generation"]
        })
    };
    world.until(&graphs(), &name, is_settled).await;
    world.get(&graphs(), &name).await.expect("it was there")
}

pub(super) async fn change(world: &World, graph: &Value) {
    let patch = json!({"spec": graph["spec"]});
    let patch = Patch::merge(&patch);
    world
        .client()
        .patch(&graphs(), &Key::cluster("note"), Subresource::None, patch)
        .await
        .expect("a change of the definition");
}

pub(super) async fn create_note(world: &World) {
    let note = json!({"apiVersion": "kro.run/v1alpha1", "kind": "Note", "metadata": {"name": "first"}});
    world.client().create(&notes(), Some("default"), &note).await.expect("an instance is accepted");
    until_value(world, &notes(), "first", "/status/state", json!("ACTIVE")).await;
}

fn problem(graph: &Value) -> String {
    let failed = graph["status"]["conditions"].as_array().into_iter().flatten();
    let failed =
        failed.filter(|condition| condition["status"] == "False").map(|condition| &condition["message"]);
    failed.map(|message| message.as_str().unwrap_or_default().to_owned()).next().unwrap_or_default()
}

#[test]
fn templates_and_expressions_are_checked_against_the_schemas_of_their_kinds() {
    let deployment = |replicas: &str| {
        json!([{"id": "desk", "template": {"apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "${schema.metadata.name}"}, "spec": {"replicas": replicas}}}])
    };
    let map = |data: Value| json!([{"id": "map", "template": {"apiVersion": "v1", "kind": "ConfigMap", "data": data}}]);
    let mut unready = map(json!({}));
    unready[0]["readyWhen"] = json!(["${map.metadata.name}"]);
    let cases = [
        (
            deployment("${schema.spec.words}"),
            "spec.resources[0].template.spec.replicas: schema.spec.words is string, expected int",
        ),
        (deployment("many"), "spec.resources[0].template.spec.replicas: \"many\", expected int"),
        (
            map(json!({"a": "${schema.spec.word}"})),
            "spec.resources[0].template.data.a: schema.spec.word: undefined field 'word'",
        ),
        (map(json!({"a": "p-${schema.spec.pages}"})), "schema.spec.pages is int, expected string"),
        (
            json!([{"id": "a", "template": {"apiVersion": "v1", "kind": "ConfigMap", "date": {}}}]),
            "template.date: ",
        ),
        (
            json!([{"id": "a", "template": {"apiVersion": "v1", "kind": "Unheard"}}]),
            "does not serve v1 Unheard",
        ),
        (unready, "spec.resources[0].readyWhen[0]: map.metadata.name is string, expected bool"),
        (
            json!([{"id": "a", "forEach": [{"x": "${schema.spec.words}"}], "template": {"apiVersion": "v1", "kind": "ConfigMap"}}]),
            "forEach[0]: schema.spec.words is string, expected a list",
        ),
    ];
    in_cluster(async |cluster| {
        cluster.create(note(json!({"a": "${schema.spec.words}"}))).await;
        settled(cluster, "Active").await;
        for (resources, expected) in &cases {
            change(cluster, &graph(resources.clone())).await;
            let refused = settled(cluster, "Inactive").await;
            assert!(problem(&refused).contains(expected), "{}", problem(&refused));
        }
        change(cluster, &note(json!({"a": "again"}))).await;
        settled(cluster, "Active").await;
    });
}

#[test]
fn a_kind_of_others_is_not_taken_over() {
    let crd = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "notes.kro.run"},
        "spec": {"group": "kro.run", "scope": "Namespaced",
            "names": {"kind": "Note", "listKind": "NoteList", "plural": "notes", "singular": "note"},
            "versions": [{"name": "v1alpha1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"mine": {"type": "string"}}}}}]}});
    let crds = Kind::new(
        "apiextensions.k8s.io",
        "v1",
        "CustomResourceDefinition",
        "customresourcedefinitions",
        false,
    );
    in_cluster(async |cluster| {
        cluster.create(crd).await;
        cluster.create(note(json!({}))).await;
        let refused = settled(cluster, "Inactive").await;
        assert!(problem(&refused).contains("was not made by a resource graph"), "{}", problem(&refused));
        let crd = cluster.get(&crds, &Key::cluster("notes.kro.run")).await.unwrap();
        assert!(crd["spec"]["versions"][0]["schema"].to_string().contains("mine"));
    });
}

#[test]
fn fields_that_a_template_drops_are_removed() {
    in_cluster(async |cluster| {
        cluster.create(note(json!({"a": "${schema.spec.words}", "b": "old"}))).await;
        settled(cluster, "Active").await;
        create_note(cluster).await;
        until_value(cluster, &config_maps(), "first", "/data/b", json!("old")).await;
        change(cluster, &note(json!({"a": "${schema.spec.words}"}))).await;
        until(cluster, &config_maps(), &key("first"), |map| {
            map.is_some_and(|map| map["data"]["a"] == "hello" && map["data"].get("b").is_none())
        })
        .await;
    });
}

#[test]
fn a_change_that_breaks_instances_needs_an_annotation() {
    in_cluster(async |cluster| {
        cluster.create(note(json!({"a": "x"}))).await;
        settled(cluster, "Active").await;
        let mut other = note(json!({"a": "x"}));
        other["spec"]["schema"]["spec"] = json!({"words": "integer", "pages": "integer | default=1"});
        change(cluster, &other).await;
        let refused = settled(cluster, "Inactive").await;
        assert!(problem(&refused).contains("spec.words: the type changes from string to integer"));
        let allowed = json!({"metadata": {"annotations": {"kro.run/allow-breaking-changes": "true"}}});
        let patch = Patch::merge(&allowed);
        cluster.client().patch(&graphs(), &Key::cluster("note"), Subresource::None, patch).await.unwrap();
        settled(cluster, "Active").await;
    });
}

#[test]
fn every_accepted_definition_is_recorded_and_the_newest_five_are_kept() {
    in_cluster(async |cluster| {
        cluster.create(note(json!({"a": "0"}))).await;
        for round in 1..8 {
            settled(cluster, "Active").await;
            change(cluster, &note(json!({"a": round.to_string()}))).await;
        }
        let graph = settled(cluster, "Active").await;
        assert_eq!(graph["status"]["lastIssuedRevision"], 8);
        until(cluster, &revisions(), &Key::cluster("note-r00003"), |revision| revision.is_none()).await;
        for (name, exists) in [("note-r00004", true), ("note-r00008", true), ("note-r00002", false)] {
            assert_eq!(cluster.get(&revisions(), &Key::cluster(name)).await.is_some(), exists, "{name}");
        }
    });
}

#[test]
fn objects_that_labels_select_are_a_list() {
    let resources = json!([
        {"id": "others", "externalRef": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {
            "selector": {"matchLabels": {"of": "${schema.metadata.name}"}}}}},
        {"id": "map", "template": {"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "${schema.metadata.name}"},
            "data": {"names": "${others.map(o, o.metadata.name).join(',')}", "id": "${random.seededString(8, schema.metadata.name)}",
                "sum": "${base64.encode(hash.sha256(json.marshal({'a': schema.spec.pages})))}"}}},
    ]);
    in_cluster(async |cluster| {
        for name in ["x", "y"] {
            let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": {"of": "first"}}});
            cluster.client().create(&config_maps(), Some("default"), &map).await.unwrap();
        }
        cluster.create(graph(resources)).await;
        settled(cluster, "Active").await;
        create_note(cluster).await;
        let map = cluster.get(&config_maps(), &key("first")).await.unwrap();
        assert_eq!(
            (&map["data"]["names"], map["data"]["id"].as_str().map(str::len)),
            (&json!("x,y"), Some(8))
        );
        assert_eq!(map["data"]["sum"].as_str().map(str::len), Some(44));
        cluster.client().delete(&notes(), &key("first"), &DeleteOptions::default()).await.unwrap();
        gone(cluster, &notes(), "first").await;
        assert!(cluster.get(&config_maps(), &key("x")).await.is_some(), "what is only read stays");
    });
}
