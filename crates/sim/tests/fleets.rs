//! One controller for many clusters: they join, are cut off, change their address, leave and come back.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use serde_json::{Value, json};
use setpoint::client::{DeleteOptions, Patch, Subresource};
use setpoint::clusters::{Connect, Connection, Fleet, KubeconfigSecrets, TooManyClusters};
use setpoint::prelude::*;
use setpoint::{Runnable, Runtime};
use setpoint_sim::{Fault, Members, OnCall, Running, TestCluster, World};

/// Connects to the API server that the kubeconfig consists of.
struct ToMembers(Members);

impl Connect for ToMembers {
    fn connect<'a>(
        &'a self,
        _: &'a str,
        kubeconfig: &'a str,
        _: &'a Runtime,
    ) -> BoxFuture<'a, Result<Connection, String>> {
        let connected = self.0.connect(kubeconfig).ok_or_else(|| format!("there is no host {kubeconfig}"));
        async { connected.map(|(client, source)| Connection { client, source }) }.boxed()
    }
}

/// Every namespace that wants to be greeted gets a greeting that names its cluster.
fn greeter(context: &Context) -> Controller {
    Controller::for_::<Namespace>(context, "greeter").owns::<ConfigMap>().run(greet)
}

async fn greet(namespace: Cached<Namespace>, context: Context) -> Result<(), ReconcileError> {
    let Some(word) = namespace.meta().label("greeting") else { return Ok(()) };
    let mut metadata = namespace.owned("greeting");
    metadata.namespace = Some(namespace.name().to_owned());
    let text = format!("{word}, {}", context.cluster().unwrap_or("no cluster"));
    let data = Some([("text".to_owned(), text)].into());
    context.ensure(&ConfigMap { metadata, data, ..ConfigMap::default() }).await?;
    Ok(())
}

fn parts(context: &Context, members: &Members) -> Vec<Box<dyn Runnable>> {
    let fleet = Fleet::new(context);
    let secrets = KubeconfigSecrets::in_namespace("default").connecting(ToMembers(members.clone()));
    let joining = secrets.join(context, &fleet);
    let greeters = fleet.controller(context, "greeter", greeter).workers(2);
    vec![Box::new(joining), Box::new(greeters), Box::new(fleet)]
}

/// Runs a test in a world with the API servers `east`, `west` and `north`, of which the first two have joined.
fn with_fleet(faults: impl IntoIterator<Item = Fault>, test: impl AsyncFnOnce(&Running, &Members)) {
    let members = Members::default();
    let built = members.clone();
    let cluster = TestCluster::new().faults(faults).with(move |context| parts(context, &built));
    cluster.run(async |cluster| {
        for name in ["east", "west", "north"] {
            members.start(cluster, name).await;
        }
        for name in ["east", "west"] {
            join(cluster, name, name).await;
        }
        test(cluster, &members).await;
    });
}

fn secrets() -> Kind {
    Kind::new("", "v1", "Secret", "secrets", true)
}

fn namespaces() -> Kind {
    Kind::new("", "v1", "Namespace", "namespaces", false)
}

fn config_maps() -> Kind {
    Kind::new("", "v1", "ConfigMap", "configmaps", true)
}

fn data(host: &str) -> Value {
    json!({"data": {"kubeconfig": ByteString(host.as_bytes().to_vec())}})
}

async fn join(world: &World, name: &str, host: &str) {
    let labels = json!({"sigs.k8s.io/multicluster-runtime-kubeconfig": "true"});
    let mut secret = data(host);
    secret["metadata"] = json!({"name": name, "labels": labels});
    world.create(&secrets(), Some("default"), secret).await;
}

async fn readdress(world: &World, name: &str, host: &str) {
    let key = Key::namespaced("default", name);
    let patched = world.client().patch(&secrets(), &key, Subresource::None, Patch::merge(&data(host))).await;
    patched.expect("the user's own patch");
}

async fn leave(world: &World, name: &str) {
    let key = Key::namespaced("default", name);
    let deleted = world.client().delete(&secrets(), &key, &DeleteOptions::default()).await;
    deleted.expect("the user's own delete");
}

/// Creates a namespace that wants to be greeted.
async fn arrive(members: &Members, cluster: &str, name: &str) {
    let namespace = json!({"metadata": {"name": name, "labels": {"greeting": "hello"}}});
    let created = members.client(cluster).create(&namespaces(), None, &namespace).await;
    created.expect("the user's own create");
}

async fn forget(members: &Members, cluster: &str, name: &str) {
    let key = Key::namespaced(name, "greeting");
    let deleted = members.client(cluster).delete(&config_maps(), &key, &DeleteOptions::default()).await;
    deleted.expect("the user's own delete");
}

async fn greeting(members: &Members, cluster: &str, name: &str) -> Option<String> {
    let found = members.find(cluster, &config_maps(), &Key::namespaced(name, "greeting")).await?;
    found["data"]["text"].as_str().map(str::to_owned)
}

async fn until_greeted(world: &World, members: &Members, cluster: &str, name: &str, text: &str) {
    for _ in 0..600 {
        if greeting(members, cluster, name).await.as_deref() == Some(text) {
            return;
        }
        world.pass(Duration::from_millis(100)).await;
    }
    panic!("{name} in {cluster} was not greeted with {text}: {:?}", greeting(members, cluster, name).await);
}

const MINUTE: Duration = Duration::from_secs(60);

#[test]
fn one_controller_reconciles_the_objects_of_every_cluster() {
    with_fleet([], async |world, members| {
        for cluster in ["east", "west"] {
            arrive(members, cluster, "shop").await;
        }
        until_greeted(world, members, "east", "shop", "hello, east").await;
        until_greeted(world, members, "west", "shop", "hello, west").await;
        forget(members, "east", "shop").await;
        until_greeted(world, members, "east", "shop", "hello, east").await;
        arrive(members, "north", "shop").await;
        world.pass(MINUTE).await;
        assert_eq!(greeting(members, "north", "shop").await, None, "it has not joined");
    });
}

#[test]
fn a_cluster_that_leaves_is_left_alone_until_it_comes_back() {
    with_fleet([], async |world, members| {
        arrive(members, "east", "shop").await;
        until_greeted(world, members, "east", "shop", "hello, east").await;
        leave(world, "east").await;
        world.pass(MINUTE).await;
        forget(members, "east", "shop").await;
        arrive(members, "east", "new").await;
        world.pass(MINUTE).await;
        assert_eq!(greeting(members, "east", "shop").await, None);
        arrive(members, "west", "shop").await;
        until_greeted(world, members, "west", "shop", "hello, west").await;
        join(world, "east", "east").await;
        until_greeted(world, members, "east", "shop", "hello, east").await;
        until_greeted(world, members, "east", "new", "hello, east").await;
    });
}

#[test]
fn a_cluster_that_is_cut_off_holds_up_no_other() {
    with_fleet([], async |world, members| {
        arrive(members, "east", "shop").await;
        until_greeted(world, members, "east", "shop", "hello, east").await;
        for nth in 0..20 {
            arrive(members, "east", &format!("waiting-{nth}")).await;
        }
        members.link("east").cut();
        world.pass(MINUTE).await;
        for nth in 0..5 {
            arrive(members, "west", &format!("new-{nth}")).await;
        }
        // Two workers that wait for timeouts of 15 seconds would need minutes.
        world.pass(Duration::from_secs(2)).await;
        for nth in 0..5 {
            let text = greeting(members, "west", &format!("new-{nth}")).await;
            assert_eq!(text.as_deref(), Some("hello, west"));
        }
        members.link("east").mend();
        for nth in 0..20 {
            until_greeted(world, members, "east", &format!("waiting-{nth}"), "hello, east").await;
        }
    });
}

#[test]
fn another_kubeconfig_leads_to_another_cluster() {
    with_fleet([], async |world, members| {
        arrive(members, "east", "shop").await;
        until_greeted(world, members, "east", "shop", "hello, east").await;
        readdress(world, "east", "north").await;
        arrive(members, "north", "shop").await;
        until_greeted(world, members, "north", "shop", "hello, east").await;
        arrive(members, "east", "new").await;
        world.pass(MINUTE).await;
        assert_eq!(greeting(members, "east", "new").await, None, "nothing leads there");
    });
}

#[test]
fn a_kubeconfig_that_cannot_be_used_is_reported_and_others_are_not_affected() {
    with_fleet([], async |world, members| {
        join(world, "south", "nowhere").await;
        arrive(members, "west", "shop").await;
        until_greeted(world, members, "west", "shop", "hello, west").await;
        world.pass(Duration::from_secs(5)).await;
        let events = world.list(&Kind::new("", "v1", "Event", "events", true), Some("default")).await;
        let told = events.iter().find(|event| event["reason"] == "InvalidKubeconfig").expect("an event");
        assert_eq!(told["message"], "data.kubeconfig: there is no host nowhere");
        assert_eq!(told["involvedObject"]["name"], "south");
        readdress(world, "south", "north").await;
        arrive(members, "north", "shop").await;
        until_greeted(world, members, "north", "shop", "hello, south").await;
    });
}

#[test]
fn a_steady_state_writes_to_no_cluster() {
    with_fleet([], async |world, members| {
        arrive(members, "east", "shop").await;
        until_greeted(world, members, "east", "shop", "hello, east").await;
        world.pass(MINUTE).await;
        let writes = world.trace().writes().len();
        world.pass(Duration::from_secs(3600)).await;
        assert_eq!(world.trace().writes().len(), writes);
    });
}

#[test]
fn a_crash_around_any_write_changes_nothing_about_the_end() {
    for nth in 0..4 {
        for what in [OnCall::CrashBefore, OnCall::CrashAfter, OnCall::DropAfter] {
            with_fleet([Fault::Call { nth, what }], async |world, members| {
                for cluster in ["east", "west"] {
                    arrive(members, cluster, "shop").await;
                    arrive(members, cluster, "bank").await;
                }
                for (cluster, text) in [("east", "hello, east"), ("west", "hello, west")] {
                    until_greeted(world, members, cluster, "shop", text).await;
                    until_greeted(world, members, cluster, "bank", text).await;
                }
            });
        }
    }
}

#[test]
fn a_fleet_is_bounded() {
    let members = Members::default();
    let seen = Arc::new(std::sync::Mutex::new(None));
    let result = seen.clone();
    let built = members.clone();
    let cluster = TestCluster::new().with(move |context| {
        let fleet = Fleet::new(context);
        let mut last = Ok(());
        if built.connect("east").is_some() {
            for nth in 0..257 {
                let (client, source) = built.connect("east").expect("it has started");
                last = fleet.join(&format!("cluster-{nth}"), Connection { client, source });
            }
            let (client, source) = built.connect("east").expect("it has started");
            let again = fleet.join("cluster-0", Connection { client, source });
            *result.lock().expect("no panic") = Some((last, again, fleet.names().len()));
        }
        Vec::<Box<dyn Runnable>>::new()
    });
    cluster.run(async |cluster| {
        members.start(cluster, "east").await;
        cluster.restart().await;
        cluster.pass(Duration::from_secs(1)).await;
    });
    let seen = seen.lock().expect("no panic").take();
    assert_eq!(seen, Some((Err(TooManyClusters), Ok(()), 256)), "one of the same name is replaced");
}
