//! Nothing is deleted, overwritten or written again that should not be.

use std::io::Write;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flate2::write::GzEncoder;
use serde_json::{Value, json};
use setpoint::client::{DeleteOptions, Patch, PropagationPolicy, Subresource};
use setpoint::{Key, Kind};
use setpoint_sim::{Fault, TestCluster, World};

use super::*;

fn trackers() -> Kind {
    Kind::new("core.oam.dev", "v1beta1", "ResourceTracker", "resourcetrackers", false)
}

fn revisions() -> Kind {
    Kind::new("core.oam.dev", "v1beta1", "ApplicationRevision", "applicationrevisions", true)
}

async fn uid(world: &World, kind: &Kind, name: &str) -> Value {
    world.get(kind, &key(name)).await.expect("it exists")["metadata"]["uid"].clone()
}

async fn annotate(world: &World, name: &str, annotation: &str, value: &str) {
    patch(world, &applications(), name, json!({"metadata": {"annotations": {annotation: value}}})).await;
}

async fn delete(world: &World, kind: &Kind, name: &str) {
    world.client().delete(kind, &key(name), &DeleteOptions::default()).await.expect("the user's own delete");
}

fn keeps(kind: &str, strategy: &str) -> Value {
    let rule = json!({"selector": {"resourceTypes": [kind]}, "strategy": strategy});
    json!([{"name": "gc", "type": "garbage-collect", "properties": {"rules": [rule]}}])
}

/// An edit is applied but not finished, and its status is lost. Then it is taken back.
#[test]
fn an_edit_whose_status_was_lost_deletes_nothing_when_it_is_taken_back() {
    in_cluster(async |cluster| {
        let whole = json!({"components": [config("a", "1"), config("b", "1")]});
        create_app(cluster, "pair", whole.clone()).await;
        let app = until_phase(cluster, "pair", "running").await;
        let b = uid(cluster, &config_maps(), "b").await;
        let apply = json!({"name": "a", "type": "apply-component", "properties": {"component": "a"}});
        let held = json!({"components": [config("a", "2")], "workflow": {"steps": [apply, {"name": "ask", "type": "suspend"}]}});
        patch(cluster, &applications(), "pair", json!({"spec": held})).await;
        until_phase(cluster, "pair", "workflowSuspending").await;
        let back = json!({"spec": {"components": whole["components"], "workflow": null},
            "metadata": {"labels": {"controller.core.oam.dev/pause": "true"}}});
        patch(cluster, &applications(), "pair", back).await;
        let lost = Patch::merge(&json!({"status": {"status": "running", "workflow": null}}));
        cluster.client().patch(&applications(), &key("pair"), Subresource::Status, lost).await.unwrap();
        let lost = Patch::merge(&json!({"status": app["status"]}));
        cluster.client().patch(&applications(), &key("pair"), Subresource::Status, lost).await.unwrap();
        let unpause = json!({"metadata": {"labels": {"controller.core.oam.dev/pause": null}}});
        patch(cluster, &applications(), "pair", unpause).await;
        cluster.pass(Duration::from_secs(120)).await;
        until_phase(cluster, "pair", "running").await;
        assert_eq!(uid(cluster, &config_maps(), "b").await, b);
        until_value(cluster, &config_maps(), "a", "/data/value", json!("1")).await;
    });
}

#[test]
fn the_record_of_a_later_version_replaces_the_earlier_one() {
    in_cluster(async |cluster| {
        let mut app = application("pub", json!({"components": [config("a", "1")]}));
        app["metadata"]["annotations"] = json!({"app.oam.dev/publishVersion": "v9"});
        cluster.create(app).await;
        until_phase(cluster, "pub", "running").await;
        annotate(cluster, "pub", "app.oam.dev/publishVersion", "v10").await;
        until(cluster, &trackers(), &Key::cluster("pub-v9-default"), |found| found.is_none()).await;
        assert!(cluster.get(&trackers(), &Key::cluster("pub-v10-default")).await.is_some());
        until_phase(cluster, "pub", "running").await;
        annotate(cluster, "pub", "app.oam.dev/publishVersion", "Version 11!").await;
        until(cluster, &trackers(), &Key::cluster("pub-v10-default"), |found| found.is_none()).await;
        assert!(cluster.get(&config_maps(), &key("a")).await.is_some());
    });
}

#[test]
fn an_object_is_in_one_record_when_its_rule_is_removed() {
    in_cluster(async |cluster| {
        let policies = keeps("ConfigMap", "onAppDelete");
        create_app(cluster, "ruled", json!({"components": [config("a", "1")], "policies": policies})).await;
        until_phase(cluster, "ruled", "running").await;
        let changed = json!({"spec": {"components": [config("a", "2")], "policies": []}});
        patch(cluster, &applications(), "ruled", changed).await;
        until_value(cluster, &config_maps(), "a", "/data/value", json!("2")).await;
        until_phase(cluster, "ruled", "running").await;
        cluster.pass(Duration::from_secs(30)).await;
        let before = cluster.get(&config_maps(), &key("a")).await;
        cluster.pass(Duration::from_secs(900)).await;
        assert_eq!(cluster.get(&config_maps(), &key("a")).await, before);
        patch(cluster, &applications(), "ruled", json!({"spec": {"components": [config("c", "1")]}})).await;
        gone(cluster, &config_maps(), "a").await;
    });
}

#[test]
fn an_application_runs_on_without_its_definition() {
    in_cluster(async |cluster| {
        cluster.create(examples::greeting()).await;
        create_app(cluster, "ada", examples::greets(json!({"who": "Ada"}))).await;
        until_phase(cluster, "ada", "running").await;
        let definitions =
            Kind::new("core.oam.dev", "v1beta1", "ComponentDefinition", "componentdefinitions", true);
        delete(cluster, &definitions, "greeting").await;
        cluster.pass(Duration::from_secs(5)).await;
        delete(cluster, &config_maps(), "hi").await;
        until_value(cluster, &config_maps(), "hi", "/data/words", json!("hello Ada")).await;
        until_phase(cluster, "ada", "running").await;
        patch(cluster, &applications(), "ada", json!({"spec": examples::greets(json!({"who": "Bob"}))}))
            .await;
        let app = until_phase(cluster, "ada", "rendering").await;
        assert!(app["status"]["conditions"].to_string().contains("not found"));
        assert!(cluster.get(&config_maps(), &key("hi")).await.is_some());
    });
}

#[test]
fn a_policy_that_cannot_be_read_deletes_nothing_that_it_kept() {
    in_cluster(async |cluster| {
        let policies = keeps("ConfigMap", "never");
        create_app(cluster, "keeper", json!({"components": [config("a", "1")], "policies": policies})).await;
        until_phase(cluster, "keeper", "running").await;
        let broken = json!([{"name": "gc", "type": "garbage-collect", "properties": {"rules": "all"}}]);
        patch(cluster, &applications(), "keeper", json!({"spec": {"policies": broken}})).await;
        delete(cluster, &applications(), "keeper").await;
        gone(cluster, &applications(), "keeper").await;
        let kept = cluster.get(&config_maps(), &key("a")).await.expect("it stays");
        assert!(kept["metadata"]["labels"]["app.oam.dev/name"].is_null());
    });
}

#[test]
fn an_object_whose_group_cannot_be_discovered_is_not_taken_for_gone() {
    in_cluster(async |cluster| {
        create_app(cluster, "away", json!({"components": [worker("a")]})).await;
        until_phase(cluster, "away", "running").await;
        cluster.faults().add(Fault::Dead { group: "apps" });
        cluster.restart().await;
        delete(cluster, &applications(), "away").await;
        cluster.pass(Duration::from_secs(120)).await;
        assert!(cluster.get(&applications(), &key("away")).await.is_some());
        cluster.faults().calm();
        gone(cluster, &applications(), "away").await;
        gone(cluster, &deployments(), "a").await;
    });
}

/// Refuses the deletion of a ConfigMap.
async fn protect(world: &World, name: &str) {
    let kind =
        |kind: &str, plural: &str| Kind::new("admissionregistration.k8s.io", "v1", kind, plural, false);
    let policy = json!({"metadata": {"name": "protect"}, "spec": {
        "matchConstraints": {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["DELETE"], "resources": ["configmaps"]}]},
        "validations": [{"expression": format!("oldObject.metadata.name != '{name}'"), "message": "it is protected"}]}});
    let binding = json!({"metadata": {"name": "protect"}, "spec": {"policyName": "protect", "validationActions": ["Deny"]}});
    world.create(&kind("ValidatingAdmissionPolicy", "validatingadmissionpolicies"), None, policy).await;
    world
        .create(&kind("ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings"), None, binding)
        .await;
    world.pass(Duration::from_secs(1)).await;
}

#[test]
fn one_object_that_cannot_be_deleted_does_not_keep_the_others() {
    in_cluster(async |cluster| {
        create_app(cluster, "pair", json!({"components": [config("a-stays", "1"), config("b-goes", "1")]}))
            .await;
        until_phase(cluster, "pair", "running").await;
        protect(cluster, "a-stays").await;
        delete(cluster, &applications(), "pair").await;
        gone(cluster, &config_maps(), "b-goes").await;
        let told = |app: Option<&Value>| {
            app.is_some_and(|app| app["status"]["conditions"].to_string().contains("it is protected"))
        };
        until(cluster, &applications(), &key("pair"), told).await;
        let bindings = Kind::new(
            "admissionregistration.k8s.io",
            "v1",
            "ValidatingAdmissionPolicyBinding",
            "validatingadmissionpolicybindings",
            false,
        );
        cluster
            .client()
            .delete(&bindings, &Key::cluster("protect"), &DeleteOptions::default())
            .await
            .unwrap();
        gone(cluster, &applications(), "pair").await;
        gone(cluster, &config_maps(), "a-stays").await;
    });
}

#[test]
fn records_whose_names_would_be_the_same_are_kept_apart() {
    in_cluster(async |cluster| {
        let namespaces = Kind::new("", "v1", "Namespace", "namespaces", false);
        for (name, namespace) in [("a-b", "c"), ("a", "b-c")] {
            cluster
                .create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}))
                .await;
            until(cluster, &namespaces, &Key::cluster(namespace), |found| found.is_some()).await;
            let mut app = application(
                name,
                json!({"components": [config("x", "1")], "policies": keeps("ConfigMap", "onAppDelete")}),
            );
            app["metadata"]["namespace"] = namespace.into();
            cluster.create(app).await;
            let running = |app: Option<&Value>| app.is_some_and(|app| app["status"]["status"] == "running");
            until(cluster, &applications(), &Key::namespaced(namespace, name), running).await;
        }
        let first = Key::namespaced("c", "a-b");
        cluster.client().delete(&applications(), &first, &DeleteOptions::default()).await.unwrap();
        until(cluster, &applications(), &first, |app| app.is_none()).await;
        assert!(cluster.get(&config_maps(), &Key::namespaced("c", "x")).await.is_none());
        assert!(cluster.get(&config_maps(), &Key::namespaced("b-c", "x")).await.is_some());
    });
}

#[test]
fn failing_updates_leave_few_revisions_and_records() {
    in_cluster(async |cluster| {
        create_app(cluster, "unlucky", json!({"components": [config("a", "1")]})).await;
        until_phase(cluster, "unlucky", "running").await;
        for round in 0..15 {
            let mut broken = worker("bad");
            broken["properties"]["cpu"] = format!("nonsense {round}").into();
            let spec = json!({"components": [config("a", "1"), config(&format!("c{round}"), "1"), broken]});
            patch(cluster, &applications(), "unlucky", json!({"spec": spec})).await;
            until(cluster, &config_maps(), &key(&format!("c{round}")), |found| found.is_some()).await;
        }
        assert!(cluster.list(&revisions(), Some("default")).await.len() <= 5);
        assert!(cluster.list(&trackers(), None).await.len() <= 10);
        patch(cluster, &applications(), "unlucky", json!({"spec": {"components": [config("a", "1")]}})).await;
        for round in 0..15 {
            gone(cluster, &config_maps(), &format!("c{round}")).await;
        }
        assert!(cluster.get(&config_maps(), &key("a")).await.is_some());
    });
}

#[test]
fn an_application_does_not_inherit_the_revisions_of_its_predecessor() {
    in_cluster(async |cluster| {
        let spec = json!({"components": [config("a", "1")]});
        create_app(cluster, "again", spec.clone()).await;
        until_phase(cluster, "again", "running").await;
        let orphan =
            DeleteOptions { propagation: Some(PropagationPolicy::Orphan), ..DeleteOptions::default() };
        cluster.client().delete(&applications(), &key("again"), &orphan).await.unwrap();
        gone(cluster, &applications(), "again").await;
        assert!(cluster.get(&revisions(), &key("again-v1")).await.is_some());
        create_app(cluster, "again", spec).await;
        let app = until_phase(cluster, "again", "running").await;
        assert_eq!(app["status"]["latestRevision"]["name"], "again-v2");
    });
}

#[test]
fn a_definition_that_changes_without_its_version_is_told_so_once() {
    in_cluster(async |cluster| {
        let definitions =
            Kind::new("core.oam.dev", "v1beta1", "ComponentDefinition", "componentdefinitions", true);
        let mut greeting = examples::greeting();
        greeting["spec"]["version"] = "1.0.0".into();
        cluster.create(greeting).await;
        until_value(
            cluster,
            &definitions,
            "greeting",
            "/status/latestRevision/name",
            json!("greeting-v1.0.0"),
        )
        .await;
        let change = json!({"spec": {"schematic": {"cue": {"template": "output: {}"}}}});
        patch(cluster, &definitions, "greeting", change).await;
        until_value(cluster, &definitions, "greeting", "/status/conditions/0/status", json!("False")).await;
        cluster.pass(Duration::from_secs(10)).await;
        let before = cluster.get(&definitions, &key("greeting")).await;
        cluster.pass(Duration::from_secs(600)).await;
        assert_eq!(cluster.get(&definitions, &key("greeting")).await, before);
        patch(cluster, &definitions, "greeting", json!({"spec": {"version": "1.1.0"}})).await;
        until_value(
            cluster,
            &definitions,
            "greeting",
            "/status/latestRevision/name",
            json!("greeting-v1.1.0"),
        )
        .await;
        until_value(cluster, &definitions, "greeting", "/status/conditions", json!([])).await;
    });
}

#[test]
fn a_type_may_name_a_revision() {
    in_cluster(async |cluster| {
        cluster.create(examples::greeting()).await;
        let recorded =
            Kind::new("core.oam.dev", "v1beta1", "DefinitionRevision", "definitionrevisions", true);
        until(cluster, &recorded, &key("greeting-v1"), |found| found.is_some()).await;
        let hi = json!({"name": "hi", "type": "greeting@v1", "properties": {"who": "Ada"}});
        create_app(cluster, "ada", json!({"components": [hi]})).await;
        let app = until_phase(cluster, "ada", "running").await;
        assert_eq!(app["status"]["services"][0]["message"], "2 entries");
        let object = cluster.get(&config_maps(), &key("hi")).await.unwrap();
        assert_eq!(object["metadata"]["labels"]["workload.oam.dev/type"], "greeting");
    });
}

#[test]
fn built_in_definitions_that_users_have_edited_survive_an_installation() {
    in_cluster(async |cluster| {
        let traits = Kind::new("core.oam.dev", "v1beta1", "TraitDefinition", "traitdefinitions", true);
        let scaler = Key::namespaced("vela-system", "scaler");
        let edit = Patch::merge(&json!({"spec": {"schematic": {"cue": {"template": "parameter: {}"}}}}));
        cluster.client().patch(&traits, &scaler, Subresource::None, edit).await.unwrap();
        // The controller records revisions of all definitions.
        cluster.pass(Duration::from_secs(60)).await;
        let before = cluster.list(&traits, Some("vela-system")).await;
        install(cluster).await;
        assert_eq!(cluster.list(&traits, Some("vela-system")).await, before);
    });
}

fn acts_as(account: Value) -> Value {
    json!({"metadata": {"annotations": {"app.oam.dev/service-account-name": account}}})
}

#[test]
fn an_application_has_no_rights_but_those_of_its_service_account() {
    in_cluster(async |cluster| {
        let mut app = application("denied", json!({"components": [config("a", "1")]}));
        app["metadata"]["annotations"] = json!({"app.oam.dev/service-account-name": "deployer"});
        cluster.create(app).await;
        let app = until_phase(cluster, "denied", "workflowFailed").await;
        let message = app["status"]["workflow"]["steps"][0]["message"].as_str().unwrap();
        assert!(message.contains("system:serviceaccount:default:deployer"), "{message}");
        assert!(cluster.get(&config_maps(), &key("a")).await.is_none());
        create_app(cluster, "free", json!({"components": [config("b", "1")]})).await;
        until_phase(cluster, "free", "running").await;
        patch(cluster, &applications(), "free", acts_as(json!("deployer"))).await;
        delete(cluster, &applications(), "free").await;
        let told = |app: Option<&Value>| {
            app.is_some_and(|app| app["status"]["conditions"].to_string().contains("default:deployer"))
        };
        until(cluster, &applications(), &key("free"), told).await;
        cluster.pass(Duration::from_secs(60)).await;
        assert!(cluster.get(&config_maps(), &key("b")).await.is_some());
        patch(cluster, &applications(), "free", acts_as(json!(null))).await;
        gone(cluster, &applications(), "free").await;
        gone(cluster, &config_maps(), "b").await;
    });
}

#[test]
fn a_service_account_that_is_no_name_stops_the_application() {
    in_cluster(async |cluster| {
        let mut app = application("odd", json!({"components": [config("a", "1")]}));
        app["metadata"]["annotations"] = json!({"app.oam.dev/service-account-name": "a:b"});
        cluster.create(app).await;
        let app = until_phase(cluster, "odd", "rendering").await;
        assert!(app["status"]["conditions"][0]["message"].as_str().unwrap().contains("service-account-name"));
        assert!(cluster.get(&config_maps(), &key("a")).await.is_none());
    });
}

#[test]
fn nothing_is_deleted_while_an_object_cannot_be_written() {
    in_cluster(async |cluster| {
        create_app(cluster, "pair", json!({"components": [config("a", "1"), config("b", "1")]})).await;
        until_phase(cluster, "pair", "running").await;
        patch(cluster, &applications(), "pair", json!({"spec": {"components": [config("a", "2")]}})).await;
        until_phase(cluster, "pair", "running").await;
        let owner = |name: &str| json!({"metadata": {"labels": {"app.oam.dev/name": name}}});
        patch(cluster, &config_maps(), "a", owner("other")).await;
        cluster.pass(Duration::from_secs(60)).await;
        let app = cluster.get(&applications(), &key("pair")).await.unwrap();
        assert!(app["status"]["conditions"].to_string().contains("StateKeep"), "{app}");
        assert!(cluster.get(&config_maps(), &key("b")).await.is_some());
        patch(cluster, &config_maps(), "a", owner("pair")).await;
        gone(cluster, &config_maps(), "b").await;
    });
}

fn policies() -> Kind {
    Kind::new("core.oam.dev", "v1alpha1", "Policy", "policies", true)
}

/// Creates an application whose objects are kept by a Policy that its workflow names.
async fn create_kept(world: &World, name: &str) {
    // This is looked at when the object is collected. Other rules are recorded when it is applied.
    let rule = json!({"selector": {"resourceTypes": ["ConfigMap"]}, "propagation": "orphan"});
    let policy = json!({"apiVersion": "core.oam.dev/v1alpha1", "kind": "Policy",
        "metadata": {"name": format!("keep-{name}"), "namespace": "default"},
        "type": "garbage-collect", "properties": {"rules": [rule]}});
    world.create(&policies(), Some("default"), policy).await;
    world.pass(Duration::from_secs(1)).await;
    let step = json!({"name": "all", "type": "deploy", "properties": {"policies": [format!("keep-{name}")]}});
    create_app(world, name, json!({"components": [config(name, "1")], "workflow": {"steps": [step]}})).await;
    until_phase(world, name, "running").await;
}

#[test]
fn a_policy_that_the_workflow_names_counts_when_the_application_is_deleted() {
    in_cluster(async |cluster| {
        create_kept(cluster, "present").await;
        create_kept(cluster, "missing").await;
        delete(cluster, &policies(), "keep-missing").await;
        cluster.pass(Duration::from_secs(1)).await;
        for name in ["present", "missing"] {
            delete(cluster, &applications(), name).await;
            gone(cluster, &applications(), name).await;
            assert!(cluster.get(&config_maps(), &key(name)).await.is_some(), "{name}");
        }
    });
}

#[test]
fn an_application_that_has_applied_nothing_can_be_deleted_whatever_its_policies_are() {
    in_cluster(async |cluster| {
        let broken = json!([{"name": "gc", "type": "garbage-collect", "properties": {"rules": "all"}}]);
        create_app(cluster, "broken", json!({"components": [config("a", "1")], "policies": broken})).await;
        until_phase(cluster, "broken", "rendering").await;
        delete(cluster, &applications(), "broken").await;
        gone(cluster, &applications(), "broken").await;
    });
}

/// Records of objects that are applied once have no manifest by which a rule could select them.
#[test]
fn an_object_that_is_applied_once_and_lives_as_long_as_its_application_goes_with_it() {
    in_cluster(async |cluster| {
        let once = json!({"name": "once", "type": "apply-once", "properties": {"enable": true}});
        create_app(cluster, "once", json!({"components": [config("a", "1")], "policies": [once]})).await;
        until_phase(cluster, "once", "running").await;
        let mut both = keeps("ConfigMap", "onAppDelete");
        both.as_array_mut().unwrap().push(once);
        let changed = json!({"components": [config("b", "1")], "policies": both});
        patch(cluster, &applications(), "once", json!({"spec": changed})).await;
        until(cluster, &config_maps(), &key("b"), |found| found.is_some()).await;
        until_phase(cluster, "once", "running").await;
        cluster.pass(Duration::from_secs(30)).await;
        assert!(
            cluster.get(&config_maps(), &key("a")).await.is_some(),
            "it lives as long as the application"
        );
        delete(cluster, &applications(), "once").await;
        gone(cluster, &applications(), "once").await;
        for name in ["a", "b"] {
            assert!(cluster.get(&config_maps(), &key(name)).await.is_none(), "{name}");
        }
    });
}

#[test]
fn an_object_left_to_others_stays_deleted() {
    in_cluster(async |cluster| {
        let rule = json!({"selector": {"resourceTypes": ["ConfigMap"]}, "strategy": {"path": ["*"]}});
        let once =
            json!([{"name": "once", "type": "apply-once", "properties": {"enable": true, "rules": [rule]}}]);
        create_app(cluster, "lax", json!({"components": [config("a", "1")], "policies": once})).await;
        until_phase(cluster, "lax", "running").await;
        delete(cluster, &config_maps(), "a").await;
        cluster.pass(Duration::from_secs(900)).await;
        assert!(cluster.get(&config_maps(), &key("a")).await.is_none());
    });
}

/// A kind of two versions.
pub(super) async fn define_shelves(world: &World) {
    let version = |name: &str, stored: bool| {
        json!({"name": name, "served": true, "storage": stored, "schema": {"openAPIV3Schema": {
            "type": "object", "properties": {"spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}}})
    };
    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "shelves.shop.example"},
        "spec": {"group": "shop.example", "scope": "Namespaced",
            "names": {"kind": "Shelf", "plural": "shelves", "singular": "shelf"},
            "versions": [version("v1alpha1", false), version("v1", true)]}});
    world.create(&crds(), None, definition).await;
    let is_served = |found: Option<&Value>| {
        found.is_some_and(|found| found["status"]["conditions"].to_string().contains("Established"))
    };
    until(world, &crds(), &Key::cluster("shelves.shop.example"), is_served).await;
    world.pass(Duration::from_secs(2)).await;
}

fn crds() -> Kind {
    Kind::new("apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions", false)
}

pub(super) fn shelves() -> Kind {
    Kind::new("shop.example", "v1", "Shelf", "shelves", true)
}

/// The older version is no longer served.
pub(super) async fn drop_old_version(world: &World) {
    let key = Key::cluster("shelves.shop.example");
    let patch = Patch::Json(
        json!([{"op": "replace", "path": "/spec/versions/0/served", "value": false}]).to_string().into(),
    );
    world.client().patch(&crds(), &key, Subresource::None, patch).await.expect("the user's own patch");
    world.pass(Duration::from_secs(2)).await;
}

#[test]
fn an_object_outlives_the_version_it_was_written_in_and_failed_discovery() {
    in_cluster(async |cluster| {
        define_shelves(cluster).await;
        let shelf = json!({"apiVersion": "shop.example/v1alpha1", "kind": "Shelf", "metadata": {"name": "top"}, "spec": {}});
        let component = json!({"name": "top", "type": "k8s-objects", "properties": {"objects": [shelf]}});
        create_app(cluster, "shop", json!({"components": [component]})).await;
        until_phase(cluster, "shop", "running").await;
        drop_old_version(cluster).await;
        cluster.faults().add(Fault::Dead { group: "shop.example" });
        cluster.restart().await;
        delete(cluster, &applications(), "shop").await;
        cluster.pass(Duration::from_secs(120)).await;
        assert!(cluster.get(&applications(), &key("shop")).await.is_some(), "its object may exist");
        cluster.faults().calm();
        gone(cluster, &applications(), "shop").await;
        gone(cluster, &shelves(), "top").await;
    });
}

/// Another client creates an object after the controller has seen that there is none.
#[test]
fn an_object_that_appears_before_it_is_written_is_not_overwritten() {
    let cluster = TestCluster::new().controllers(&["garbagecollector"]).with(setpoint_oam::runnables);
    let slow = cluster.webhook("slow.example", "/x", |review| setpoint_sim::webhooks::allow(&review));
    slow.run(async |cluster| {
        install(cluster).await;
        let kind = Kind::new("admissionregistration.k8s.io", "v1", "ValidatingWebhookConfiguration", "validatingwebhookconfigurations", false);
        let webhook = json!({"name": "slow.example.com", "clientConfig": {"url": "https://slow.example/x"},
            "rules": [{"apiGroups": ["core.oam.dev"], "apiVersions": ["*"], "operations": ["CREATE", "UPDATE"], "resources": ["resourcetrackers"]}],
            "sideEffects": "None", "admissionReviewVersions": ["v1"], "timeoutSeconds": 30});
        cluster.client().create(&kind, None, &json!({"metadata": {"name": "slow"}, "webhooks": [webhook]})).await.unwrap();
        cluster.pass(Duration::from_secs(1)).await;
        let delay = setpoint_sim::OnReply::Delay(Duration::from_secs(10));
        cluster.faults().add(Fault::Replies { of: setpoint_sim::Callee::Webhook, what: delay });
        create_app(cluster, "late", json!({"components": [config("a", "mine")]})).await;
        // The record of the run takes ten seconds, and so does that of the object, which has been looked for by then.
        cluster.pass(Duration::from_secs(15)).await;
        let theirs = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "default"}, "data": {"value": "theirs"}});
        cluster.create(theirs).await;
        let app = until_phase(cluster, "late", "workflowFailed").await;
        assert!(app["status"].to_string().contains("not managed by any application"), "{app}");
        let found = cluster.get(&config_maps(), &key("a")).await.unwrap();
        assert_eq!((&found["data"]["value"], &found["metadata"]["labels"]), (&json!("theirs"), &Value::Null));
    });
}

#[test]
fn fields_that_a_component_drops_are_removed() {
    in_cluster(async |cluster| {
        let of = |data: Value| {
            let object =
                json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": data});
            json!({"components": [{"name": "a", "type": "k8s-objects", "properties": {"objects": [object]}}]})
        };
        create_app(cluster, "shrinks", of(json!({"x": "1", "y": "1"}))).await;
        until_phase(cluster, "shrinks", "running").await;
        patch(cluster, &config_maps(), "a", json!({"data": {"theirs": "1"}})).await;
        patch(cluster, &applications(), "shrinks", json!({"spec": of(json!({"x": "2"}))})).await;
        until_value(cluster, &config_maps(), "a", "/data/x", json!("2")).await;
        let found = cluster.get(&config_maps(), &key("a")).await.unwrap();
        assert_eq!(found["data"], json!({"x": "2", "theirs": "1"}));
    });
}

/// A record that KubeVela has compressed is not an empty one.
#[test]
fn objects_that_kubevela_has_recorded_are_deleted_with_the_application() {
    in_cluster(async |cluster| {
        create_app(cluster, "moved", json!({"components": [config("a", "1"), config("b", "1")]})).await;
        until_phase(cluster, "moved", "running").await;
        let pause = json!({"metadata": {"labels": {"controller.core.oam.dev/pause": "true"}}});
        patch(cluster, &applications(), "moved", pause).await;
        cluster.pass(Duration::from_secs(10)).await;
        let name = Key::cluster("moved-v1-default");
        let tracker = cluster.get(&trackers(), &name).await.unwrap();
        let mut encoder = GzEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(tracker["spec"]["managedResources"].to_string().as_bytes()).unwrap();
        let data = STANDARD.encode(encoder.finish().unwrap());
        let packed =
            json!({"spec": {"managedResources": null, "compression": {"type": "gzip", "data": data}}});
        let patched =
            cluster.client().patch(&trackers(), &name, Subresource::None, Patch::merge(&packed)).await;
        patched.expect("what KubeVela writes");
        delete(cluster, &applications(), "moved").await;
        gone(cluster, &applications(), "moved").await;
        for name in ["a", "b"] {
            assert!(cluster.get(&config_maps(), &key(name)).await.is_none(), "{name}");
        }
    });
}
