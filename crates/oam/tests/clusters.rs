//! Applications in several clusters, in virtual time: where components go, drift, clusters that come and go, and crashes.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures::FutureExt;
use futures::future::LocalBoxFuture;
use serde_json::{Value, json};
use setpoint::client::{DeleteOptions, Patch, Subresource};
use setpoint::{Context, Key, Kind, Runnable};
use setpoint_oam::{Connect, Connection, Credential, Options, selected};
use setpoint_sim::{Members, TestCluster, World};

use super::*;

thread_local! {
    /// The API servers of the world that runs on this thread: there is one world at a time.
    static FLEET: Members = Members::default();
}

fn fleet() -> Members {
    FLEET.with(Clone::clone)
}

/// Leads from `https://east.test` to the API server `east`.
struct ToFleet(Members);

impl Connect for ToFleet {
    fn connect(&self, credential: &Credential) -> Result<Connection, String> {
        let name = credential.endpoint.trim_start_matches("https://").trim_end_matches(".test");
        let (client, source) = self.0.connect(name).ok_or("no such host")?;
        Ok(Connection { client, source })
    }
}

fn build(context: &Context) -> Vec<Box<dyn Runnable>> {
    let mut options = Options::default();
    options.connect = Some(Arc::new(ToFleet(fleet())));
    // The other controllers have nothing to do with clusters.
    let entries = selected(&["application-controller"]).expect("it exists");
    entries.iter().flat_map(|entry| entry.parts(context, &options)).collect()
}

fn in_fleet(test: impl AsyncFnOnce(&World, &Members)) {
    TestCluster::new().with(build).starting_from(&installed()).run(async |world| {
        let fleet = begin_fleet(world).await;
        test(world, &fleet).await;
    });
}

/// Starts and registers two clusters.
async fn begin_fleet(world: &World) -> Members {
    let fleet = fleet();
    for name in ["east", "west"] {
        fleet.start(world, name).await;
        register(world, name, name).await;
    }
    fleet
}

fn secrets() -> Kind {
    Kind::new("", "v1", "Secret", "secrets", true)
}

fn secret_key(name: &str) -> Key {
    Key::namespaced("vela-system", name)
}

fn data(host: &str) -> Value {
    json!({"endpoint": STANDARD.encode(format!("https://{host}.test")), "token": STANDARD.encode("t")})
}

async fn register(world: &World, name: &str, host: &str) {
    let labels = json!({"cluster.core.oam.dev/cluster-credential-type": "ServiceAccountToken", "side": name});
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "labels": labels}, "data": data(host)});
    world.create(&secrets(), Some("vela-system"), secret).await;
}

async fn unregister(world: &World, name: &str) {
    let deleted = world.client().delete(&secrets(), &secret_key(name), &DeleteOptions::default()).await;
    deleted.expect("the user's own delete");
}

fn topology(clusters: &[&str]) -> Value {
    json!({"name": "place", "type": "topology", "properties": {"clusters": clusters}})
}

/// An application that is a ConfigMap in several clusters.
fn spread(value: &str, clusters: &[&str]) -> Value {
    json!({"components": [config("a", value)], "policies": [topology(clusters)]})
}

async fn respec(world: &World, name: &str, spec: Value) {
    patch(world, &applications(), name, json!({"spec": spec})).await;
}

async fn delete_app(world: &World, name: &str) {
    let deleted = world.client().delete(&applications(), &key(name), &DeleteOptions::default()).await;
    deleted.expect("the user's own delete");
}

async fn value_in(fleet: &Members, cluster: &str) -> Option<String> {
    let found = fleet.find(cluster, &config_maps(), &key("a")).await?;
    found["data"]["value"].as_str().map(str::to_owned)
}

/// Waits until a ConfigMap of a cluster has a value, or is gone.
async fn until_in(world: &World, fleet: &Members, cluster: &str, expected: Option<&str>) {
    for _ in 0..600 {
        if value_in(fleet, cluster).await.as_deref() == expected {
            return;
        }
        world.pass(Duration::from_secs(1)).await;
    }
    let app = world.list(&applications(), None).await;
    panic!("{cluster} has {:?}, not {expected:?}: {app:?}", value_in(fleet, cluster).await);
}

async fn until_message(world: &World, name: &str, text: &str) {
    world
        .until(&applications(), &key(name), |app| {
            app.is_some_and(|app| app["status"].to_string().contains(text))
        })
        .await;
}

const EAST_IS_GONE: &str = "cluster east is unreachable";

#[test]
fn components_go_to_the_clusters_of_topologies_with_their_overrides() {
    in_fleet(async |world, fleet| {
        let more = json!({"name": "more", "type": "override", "properties": {"components": [
            {"name": "a", "properties": config("a", "2")["properties"]}]}});
        let spec = json!({"components": [config("a", "1")],
            "policies": [{"name": "e", "type": "topology", "properties": {"clusterLabelSelector": {"side": "east"}}},
                {"name": "w", "type": "topology", "properties": {"clusters": ["west"]}}, more],
            "workflow": {"steps": [
                {"name": "one", "type": "deploy", "properties": {"policies": ["e"]}},
                {"name": "two", "type": "deploy", "properties": {"policies": ["w", "more"]}}]}});
        create_app(world, "both", spec).await;
        let app = until_phase(world, "both", "running").await;
        assert_eq!(value_in(fleet, "east").await.as_deref(), Some("1"));
        assert_eq!(value_in(fleet, "west").await.as_deref(), Some("2"));
        assert!(world.get(&config_maps(), &key("a")).await.is_none(), "nothing is here");
        let clusters = |list: &Value| -> Vec<Value> {
            list.as_array().unwrap().iter().map(|one| one["cluster"].clone()).collect()
        };
        assert_eq!(clusters(&app["status"]["services"]), ["east", "west"]);
        assert_eq!(clusters(&app["status"]["appliedResources"]), ["east", "west"]);
        let trackers = Kind::new("core.oam.dev", "v1beta1", "ResourceTracker", "resourcetrackers", false);
        let tracker = &world.list(&trackers, None).await[0];
        assert_eq!(clusters(&tracker["spec"]["managedResources"]), ["east", "west"]);
        let live = fleet.find("east", &config_maps(), &key("a")).await.unwrap();
        assert_eq!(live["metadata"]["labels"]["app.oam.dev/cluster"], "east");
    });
}

#[test]
fn templates_see_their_cluster_and_control_plane_traits_stay_here() {
    in_fleet(async |world, fleet| {
        let definition = |kind: &str, name: &str, spec: Value| json!({"apiVersion": "core.oam.dev/v1beta1", "kind": kind, "metadata": {"name": name}, "spec": spec});
        let cue = |text: &str| json!({"cue": {"template": text}});
        let component = definition(
            "ComponentDefinition",
            "where",
            json!({"workload": {"definition": {"apiVersion": "v1", "kind": "ConfigMap"}}, "schematic": cue(
                "output: {apiVersion: \"v1\", kind: \"ConfigMap\", metadata: name: \"a\", data: value: \"\\(context.cluster) \\(context.clusterVersion.minor)\"}\nparameter: {}")}),
        );
        let note = definition(
            "TraitDefinition",
            "note",
            json!({"controlPlaneOnly": true, "schematic": cue(
                "outputs: note: {apiVersion: \"v1\", kind: \"ConfigMap\", metadata: name: \"note\", data: of: context.cluster}\nparameter: {}")}),
        );
        for (object, plural) in [(component, "componentdefinitions"), (note, "traitdefinitions")] {
            let kind = object["kind"].as_str().unwrap().to_owned();
            let kind = Kind::new("core.oam.dev", "v1beta1", &kind, plural, true);
            world.create(&kind, Some("default"), object).await;
        }
        let spec = json!({"components": [{"name": "a", "type": "where", "traits": [{"type": "note"}]}],
            "policies": [topology(&["east"])]});
        create_app(world, "here", spec).await;
        until_phase(world, "here", "running").await;
        assert_eq!(value_in(fleet, "east").await.as_deref(), Some("east 34"));
        let note =
            world.get(&config_maps(), &key("note")).await.expect("it is in the cluster of the application");
        assert_eq!(note["data"]["of"], "east");
        assert!(fleet.find("east", &config_maps(), &key("note")).await.is_none());
    });
}

#[test]
fn drift_is_reverted_in_every_cluster() {
    in_fleet(async |world, fleet| {
        create_app(world, "app", spread("1", &["east", "west"])).await;
        until_phase(world, "app", "running").await;
        let change = Patch::merge(&json!({"data": {"value": "9"}}));
        let east = fleet.client("east");
        east.patch(&config_maps(), &key("a"), Subresource::None, change).await.expect("a change by others");
        world.pass(Duration::from_secs(2)).await;
        assert_eq!(value_in(fleet, "east").await.as_deref(), Some("1"));
        let west = fleet.client("west");
        west.delete(&config_maps(), &key("a"), &DeleteOptions::default()).await.expect("a delete by others");
        world.pass(Duration::from_secs(2)).await;
        assert_eq!(value_in(fleet, "west").await.as_deref(), Some("1"));
    });
}

#[test]
fn an_update_reaches_the_other_clusters_and_the_unreachable_one_once_it_is_back() {
    in_fleet(async |world, fleet| {
        create_app(world, "app", spread("1", &["east", "west"])).await;
        until_phase(world, "app", "running").await;
        fleet.link("east").cut();
        respec(world, "app", spread("2", &["east", "west"])).await;
        until_in(world, fleet, "west", Some("2")).await;
        until_message(world, "app", EAST_IS_GONE).await;
        // Far longer than ten attempts take.
        world.pass(Duration::from_secs(7200)).await;
        let app = world.get(&applications(), &key("app")).await.unwrap();
        assert_eq!(app["status"]["status"], "runningWorkflow", "{}", app["status"]);
        assert_eq!(value_in(fleet, "east").await.as_deref(), Some("1"));
        fleet.link("east").mend();
        world.pass(Duration::from_secs(60)).await;
        assert_eq!(value_in(fleet, "east").await.as_deref(), Some("2"));
        until_phase(world, "app", "running").await;
    });
}

#[test]
fn a_running_application_reports_an_unreachable_cluster_and_keeps_the_others() {
    in_fleet(async |world, fleet| {
        create_app(world, "app", spread("1", &["east", "west"])).await;
        create_app(
            world,
            "other",
            json!({"components": [config("b", "1")], "policies": [topology(&["west"])]}),
        )
        .await;
        until_phase(world, "app", "running").await;
        until_phase(world, "other", "running").await;
        fleet.link("east").cut();
        world.pass(Duration::from_secs(60)).await;
        let app = until_phase(world, "app", "unhealthy").await;
        let services = &app["status"]["services"];
        assert!(services[0]["message"].as_str().unwrap().starts_with(EAST_IS_GONE), "{services}");
        assert_eq!((&services[0]["healthy"], &services[1]["healthy"]), (&json!(false), &json!(true)));
        let condition = app["status"]["conditions"].to_string();
        assert!(condition.contains("StateKeep") && condition.contains(EAST_IS_GONE), "{condition}");
        assert_eq!(until_phase(world, "other", "running").await["status"]["status"], "running");
        let revision = world.revision();
        world.pass(Duration::from_secs(600)).await;
        let events = world.list(&Kind::new("", "v1", "Event", "events", true), None).await;
        assert!(events.len() < 20, "an outage is not a flood of events");
        assert!(world.revision() - revision < 5, "a cluster that stays away causes no writes");
        let west = fleet.client("west");
        west.delete(&config_maps(), &key("a"), &DeleteOptions::default()).await.expect("a delete by others");
        until_in(world, fleet, "west", Some("1")).await;
        fleet.link("east").mend();
        until_phase(world, "app", "running").await;
    });
}

#[test]
fn an_application_that_is_deleted_waits_for_its_unreachable_cluster() {
    in_fleet(async |world, fleet| {
        create_app(world, "app", spread("1", &["east", "west"])).await;
        until_phase(world, "app", "running").await;
        fleet.link("east").cut();
        delete_app(world, "app").await;
        until_in(world, fleet, "west", None).await;
        until_message(world, "app", EAST_IS_GONE).await;
        world.pass(Duration::from_secs(3600)).await;
        assert_eq!(value_in(fleet, "east").await.as_deref(), Some("1"));
        fleet.link("east").mend();
        gone(world, &applications(), "app").await;
        assert_eq!(value_in(fleet, "east").await, None);
    });
}

#[test]
fn what_a_topology_drops_is_deleted_even_if_its_cluster_was_away() {
    in_fleet(async |world, fleet| {
        create_app(world, "app", spread("1", &["east", "west"])).await;
        until_phase(world, "app", "running").await;
        respec(world, "app", spread("1", &["east"])).await;
        until_in(world, fleet, "west", None).await;
        fleet.link("east").cut();
        respec(world, "app", spread("1", &["west"])).await;
        until_in(world, fleet, "west", Some("1")).await;
        until_message(world, "app", EAST_IS_GONE).await;
        world.pass(Duration::from_secs(3600)).await;
        assert_eq!(value_in(fleet, "east").await.as_deref(), Some("1"), "it is still recorded");
        fleet.link("east").mend();
        until_in(world, fleet, "east", None).await;
        until_phase(world, "app", "running").await;
    });
}

#[test]
fn a_changed_credential_takes_effect_and_a_removed_one_forgets_nothing() {
    in_fleet(async |world, fleet| {
        create_app(world, "app", spread("1", &["east"])).await;
        until_phase(world, "app", "running").await;
        fleet.start(world, "moved").await;
        let change = Patch::merge(&json!({"data": data("moved")}));
        let changed = world.client().patch(&secrets(), &secret_key("east"), Subresource::None, change).await;
        changed.expect("the user's own patch");
        until_in(world, fleet, "moved", Some("1")).await;

        unregister(world, "east").await;
        until_message(world, "app", "virtualclusters.cluster.core.oam.dev \\\"east\\\" not found").await;
        world.pass(Duration::from_secs(3600)).await;
        assert_eq!(value_in(fleet, "moved").await.as_deref(), Some("1"));
        let moved = fleet.client("moved");
        moved.delete(&config_maps(), &key("a"), &DeleteOptions::default()).await.expect("a delete by others");
        register(world, "east", "moved").await;
        until_in(world, fleet, "moved", Some("1")).await;
        until_phase(world, "app", "running").await;

        let broken = Patch::merge(&json!({"data": {"endpoint": STANDARD.encode("ftp://x")}}));
        let changed = world.client().patch(&secrets(), &secret_key("east"), Subresource::None, broken).await;
        changed.expect("the user's own patch");
        until_message(world, "app", "data.endpoint: expected the https:// URL").await;

        unregister(world, "east").await;
        delete_app(world, "app").await;
        gone(world, &applications(), "app").await;
    });
}

#[test]
fn a_cluster_that_gets_another_name_keeps_its_objects() {
    in_fleet(async |world, fleet| {
        world.create(&applications(), Some("default"), application("app", spread("1", &["east"]))).await;
        until_phase(world, "app", "running").await;
        let before = fleet.find("east", &config_maps(), &key("a")).await.expect("it was deployed");
        register(world, "orient", "east").await;
        respec(world, "app", spread("2", &["orient"])).await;
        until_in(world, fleet, "east", Some("2")).await;
        until_phase(world, "app", "running").await;
        world.pass(Duration::from_secs(600)).await;
        let after = fleet.find("east", &config_maps(), &key("a")).await.expect("it stays");
        assert_eq!(after["metadata"]["uid"], before["metadata"]["uid"]);
        let labels = &after["metadata"]["labels"];
        assert_eq!(labels["app.oam.dev/cluster"], "orient");
    });
}

#[test]
fn a_request_that_cannot_be_built_does_not_close_a_cluster() {
    in_fleet(async |world, fleet| {
        world.create(&applications(), Some("default"), application("app", spread("1", &["east"]))).await;
        until_phase(world, "app", "running").await;
        let endless = json!({"name": "long", "type": "k8s-objects", "properties": {"objects": [
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x".repeat(70_000)}}]}});
        let spec = json!({"components": [endless], "policies": [topology(&["east"])]});
        world.create(&applications(), Some("default"), application("hostile", spec)).await;
        world.pass(Duration::from_secs(20)).await;
        respec(world, "app", spread("2", &["east"])).await;
        world.pass(Duration::from_secs(2)).await;
        assert_eq!(value_in(fleet, "east").await.as_deref(), Some("2"));
    });
}

#[test]
fn a_cluster_that_is_not_registered_fails_the_step() {
    in_fleet(async |world, _| {
        create_app(world, "app", spread("1", &["north"])).await;
        let app = until_phase(world, "app", "workflowFailed").await;
        let message = app["status"]["workflow"]["steps"][0]["message"].to_string();
        assert!(message.contains("failed to get cluster north"), "{message}");
        let nowhere = json!({"name": "p", "type": "topology",
            "properties": {"clusterLabelSelector": {"side": "north"}, "allowEmpty": true}});
        create_app(world, "none", json!({"components": [config("a", "1")], "policies": [nowhere]})).await;
        until_phase(world, "none", "running").await;
    });
}

#[test]
fn steps_read_and_write_in_the_cluster_that_they_name() {
    in_fleet(async |world, fleet| {
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"value": "1"}});
        let copied = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "copy"}});
        let read = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "cluster": "east"});
        let steps = json!([
            {"name": "write", "type": "apply-object", "properties": {"cluster": "east", "value": object}},
            {"name": "read", "type": "read-object", "properties": read,
                "outputs": [{"name": "found", "valueFrom": "output.$returns.value.data"}]},
            {"name": "copy", "type": "apply-object", "properties": {"cluster": "west", "value": copied},
                "inputs": [{"from": "found", "parameterKey": "value.data"}]},
            {"name": "place", "type": "apply-component", "properties": {"component": "b", "cluster": "west"}},
        ]);
        create_app(world, "app", json!({"components": [config("b", "2")], "workflow": {"steps": steps}}))
            .await;
        until_phase(world, "app", "running").await;
        let copy = fleet.find("west", &config_maps(), &key("copy")).await.expect("it was copied");
        assert_eq!(copy["data"], json!({"value": "1"}));
        assert!(fleet.find("west", &config_maps(), &key("b")).await.is_some());
        delete_app(world, "app").await;
        gone(world, &applications(), "app").await;
        assert!(fleet.find("west", &config_maps(), &key("copy")).await.is_none());
        assert_eq!(value_in(fleet, "east").await, None);
    });
}

/// Deploys to two clusters, changes it, leaves one, and deletes it.
fn spreads(world: &World) -> LocalBoxFuture<'_, ()> {
    async move {
        let fleet = begin_fleet(world).await;
        create_app(world, "app", spread("1", &["east", "west"])).await;
        until_phase(world, "app", "running").await;
        respec(world, "app", spread("2", &["east", "local"])).await;
        until_in(world, &fleet, "west", None).await;
        until_in(world, &fleet, "east", Some("2")).await;
        until_phase(world, "app", "running").await;
        delete_app(world, "app").await;
        gone(world, &applications(), "app").await;
        until_in(world, &fleet, "east", None).await;
    }
    .boxed_local()
}

#[test]
fn crashes_around_every_write_to_any_cluster_end_in_the_same_objects() {
    let cluster = TestCluster::new().controllers(&["garbagecollector"]).with(build);
    crashes::survives(&cluster, "spreads", spreads);
}

async fn lead_to(world: &World, name: &str, host: &str) {
    let change = Patch::merge(&json!({"data": data(host)}));
    let changed = world.client().patch(&secrets(), &secret_key(name), Subresource::None, change).await;
    changed.expect("the user's own patch");
}

/// What is to be deleted in the former cluster is not forgotten because the new one does not have it.
#[test]
fn garbage_of_a_cluster_whose_name_leads_to_another_stays_recorded() {
    in_fleet(async |world, fleet| {
        let of = |components: Value| json!({"components": components, "policies": [topology(&["east"])]});
        create_app(world, "app", of(json!([config("a", "1"), config("b", "1")]))).await;
        until_phase(world, "app", "running").await;
        respec(world, "app", of(json!([config("a", "2")]))).await;
        until_phase(world, "app", "running").await;
        unregister(world, "west").await;
        lead_to(world, "east", "west").await;
        until_in(world, fleet, "west", Some("2")).await;
        until_message(world, "app", "cluster east is not the one that ConfigMap b was applied to").await;
        world.pass(Duration::from_secs(60)).await;
        assert!(fleet.find("east", &config_maps(), &key("b")).await.is_some());
        lead_to(world, "east", "east").await;
        for _ in 0..120 {
            world.pass(Duration::from_secs(1)).await;
            if fleet.find("east", &config_maps(), &key("b")).await.is_none() {
                return;
            }
        }
        panic!("it was forgotten");
    });
}
