//! Resource graphs.

use serde_json::{Value, json};
use setpoint::client::DeleteOptions;
use setpoint::{Key, Kind};

use super::*;

pub(super) fn graphs() -> Kind {
    Kind::new("kro.run", "v1alpha1", "ResourceGraphDefinition", "resourcegraphdefinitions", false)
}

pub(super) fn stands() -> Kind {
    Kind::new("kro.run", "v1alpha1", "Newsstand", "newsstands", true)
}

pub(super) fn newsstand() -> Value {
    json!({"apiVersion": "kro.run/v1alpha1", "kind": "ResourceGraphDefinition", "metadata": {"name": "newsstand"}, "spec": {
        "schema": {
            "apiVersion": "v1alpha1", "kind": "Newsstand",
            "spec": {
                "papers": "[]string | required=true minItems=1",
                "copies": "integer | default=2 minimum=1 maximum=9",
                "public": "boolean | default=false",
            },
            "status": {
                "shelves": "${size(shelf)}",
                "open": "${desk.status.availableReplicas == desk.spec.replicas}",
            },
        },
        "resources": [
            {"id": "shelf", "forEach": [{"paper": "${schema.spec.papers}"}], "template": {
                "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "${schema.metadata.name}-${paper}"},
                "data": {"copies": "${string(schema.spec.copies)}"}}},
            {"id": "desk", "readyWhen": ["${desk.status.availableReplicas == desk.spec.replicas}"], "template": {
                "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "${schema.metadata.name}"},
                "spec": {
                    "replicas": "${schema.spec.copies}",
                    "selector": {"matchLabels": {"stand": "${schema.metadata.name}"}},
                    "template": {
                        "metadata": {"labels": {"stand": "${schema.metadata.name}"}},
                        "spec": {"containers": [{"name": "desk", "image": "registry.local/desk",
                            "env": [{"name": "SHELVES", "value": "${shelf.map(s, s.metadata.name).join(',')}"}]}]},
                    }}}},
            {"id": "door", "includeWhen": ["${schema.spec.public}"], "template": {
                "apiVersion": "v1", "kind": "Service", "metadata": {"name": "${desk.metadata.name}"},
                "spec": {"selector": "${desk.spec.selector.matchLabels}", "ports": [{"port": 80}]}}},
        ],
    }})
}

async fn open(cluster: &setpoint_sim::Running) {
    cluster.create(newsstand()).await;
    until(cluster, &graphs(), &Key::cluster("newsstand"), |graph| {
        graph.is_some_and(|graph| graph["status"]["state"] == "Active")
    })
    .await;
    let corner = json!({"apiVersion": "kro.run/v1alpha1", "kind": "Newsstand", "metadata": {"name": "corner"}, "spec": {"papers": ["morning", "evening"]}});
    cluster.client().create(&stands(), Some("default"), &corner).await.expect("an instance is accepted");
    until_value(cluster, &stands(), "corner", "/status/state", json!("ACTIVE")).await;
}

#[test]
fn an_instance_becomes_objects_in_order() {
    in_cluster(async |cluster| {
        open(cluster).await;
        let graph = cluster.get(&graphs(), &Key::cluster("newsstand")).await.unwrap();
        assert_eq!(graph["status"]["topologicalOrder"], json!(["shelf", "desk", "door"]));
        let desk = cluster.get(&deployments(), &key("corner")).await.unwrap();
        assert_eq!(
            desk["spec"]["template"]["spec"]["containers"][0]["env"][0]["value"],
            "corner-morning,corner-evening"
        );
        assert!(cluster.get(&services(), &key("corner")).await.is_none());
        let corner = cluster.get(&stands(), &key("corner")).await.unwrap();
        assert_eq!((&corner["status"]["shelves"], &corner["status"]["open"]), (&json!(2), &json!(true)));
    });
}

#[test]
fn items_and_resources_come_and_go_with_the_spec() {
    in_cluster(async |cluster| {
        open(cluster).await;
        patch(cluster, &stands(), "corner", json!({"spec": {"papers": ["morning"], "public": true}})).await;
        gone(cluster, &config_maps(), "corner-evening").await;
        until(cluster, &services(), &key("corner"), |service| service.is_some()).await;
        patch(cluster, &stands(), "corner", json!({"spec": {"public": false}})).await;
        gone(cluster, &services(), "corner").await;
        let many = json!({"apiVersion": "kro.run/v1alpha1", "kind": "Newsstand", "metadata": {"name": "many"}, "spec": {"papers": ["x"], "copies": 12}});
        assert!(cluster.client().create(&stands(), Some("default"), &many).await.unwrap_err().is_invalid());
    });
}

#[test]
fn a_broken_definition_is_refused_and_instances_go_on() {
    in_cluster(async |cluster| {
        open(cluster).await;
        let mut broken = newsstand();
        broken["spec"]["resources"][1]["template"]["spec"]["replicas"] = "${schemas.spec.copies}".into();
        let update = json!({"spec": {"resources": broken["spec"]["resources"]}});
        let none = setpoint::client::Subresource::None;
        let patch = setpoint::client::Patch::merge(&update);
        cluster.client().patch(&graphs(), &Key::cluster("newsstand"), none, patch).await.unwrap();
        let inactive =
            |graph: Option<&Value>| graph.is_some_and(|graph| graph["status"]["state"] == "Inactive");
        until(cluster, &graphs(), &Key::cluster("newsstand"), inactive).await;
        let graph = cluster.get(&graphs(), &Key::cluster("newsstand")).await.unwrap();
        assert!(graph["status"].to_string().contains("spec.resources[1].template.spec.replicas"));
        until_value(cluster, &stands(), "corner", "/status/state", json!("ACTIVE")).await;
        cluster.client().delete(&stands(), &key("corner"), &DeleteOptions::default()).await.unwrap();
        gone(cluster, &stands(), "corner").await;
        gone(cluster, &deployments(), "corner").await;
    });
}

#[test]
fn an_instance_can_be_deleted_without_its_definition() {
    in_cluster(async |cluster| {
        open(cluster).await;
        cluster
            .client()
            .delete(&graphs(), &Key::cluster("newsstand"), &DeleteOptions::default())
            .await
            .unwrap();
        cluster.client().delete(&stands(), &key("corner"), &DeleteOptions::default()).await.unwrap();
        gone(cluster, &stands(), "corner").await;
        for name in ["corner-morning", "corner-evening"] {
            assert!(cluster.get(&config_maps(), &key(name)).await.is_none(), "{name}");
        }
        assert!(cluster.get(&deployments(), &key("corner")).await.is_none());
    });
}
