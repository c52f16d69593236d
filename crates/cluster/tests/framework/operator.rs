//! An operator as its author would write it. For every ConfigMap labelled `greet`, it maintains a greeting next to it,
//! records an event about it, and leaves a note when the ConfigMap is deleted.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::{Value, json};
use setpoint::finalizer::{Finalizer, FinalizerAction};
use setpoint::handler::{enqueue_controller, enqueue_self};
use setpoint::reconcile::ErrorContext;
use setpoint::source::Selection;
use setpoint::{
    Client, Clock, Controller, EventType, Key, Kind, Lister, Manager, Outcome, Queue, ReconcileError,
    Reconciler, Recorder, owner,
};
use setpoint_cluster::{Cluster, InProcessSource};
use tokio_util::sync::CancellationToken;

use super::{cluster, config_maps};

const FINALIZER: &str = "example.com/greeter";

struct Greeter {
    client: Client,
    kind: Kind,
    maps: Lister<ConfigMap>,
    finalizer: Finalizer,
    recorder: Recorder,
}

impl Reconciler for Greeter {
    type Key = Key;

    async fn reconcile(&self, key: &Key) -> Result<Outcome, ReconcileError> {
        let Some(map) = self.maps.get(key)? else { return Ok(Outcome::Settled) };
        if map.meta().labels.get("greet").is_none() {
            return Ok(Outcome::Settled);
        }
        match self.finalizer.action(map.object()) {
            FinalizerAction::Nothing => {}
            FinalizerAction::CleanUp => {
                self.say_goodbye(key).await?;
                self.finalizer.release(map.object()).await.attempting("release the map")?;
            }
            FinalizerAction::Ensure | FinalizerAction::Reconcile => {
                let map = self.finalizer.ensure(map.object()).await.attempting("hold the map")?;
                let greeting = key.sibling(format!("{}-greeting", key.name()));
                if self.maps.get(&greeting)?.is_none() {
                    let body = json!({
                        "metadata": {
                            "name": greeting.name(),
                            "ownerReferences": [owner::controller_ref(&self.kind, map.meta())],
                        },
                        "data": {"text": format!("hello, {}", key.name())},
                    });
                    self.client.create(&self.kind, key.namespace(), &body).await.attempting("greet")?;
                    self.recorder.event(&self.kind, &map, EventType::Normal, "Greeted", "Said hello");
                }
            }
        }
        Ok(Outcome::Settled)
    }
}

impl Greeter {
    async fn say_goodbye(&self, key: &Key) -> Result<(), ReconcileError> {
        let body = json!({"metadata": {"name": format!("{}-goodbye", key.name())}});
        match self.client.create(&self.kind, key.namespace(), &body).await {
            Err(error) if error.is_already_exists() => Ok(()),
            said => said.map(drop).attempting("say goodbye"),
        }
    }
}

fn manager(cluster: &Cluster) -> Manager {
    let source = Arc::new(InProcessSource::new(cluster.api().clone(), setpoint_cluster::identity::admin()));
    let mut manager = Manager::new(cluster.client(), source, cluster.runtime().clone());
    let context = manager.context().clone();
    let maps = context.informers.of::<ConfigMap>();
    let queue = Queue::new("greeter", &context.runtime);
    maps.add_handler(enqueue_self(&queue));
    maps.add_handler(enqueue_controller(&queue, &config_maps()));
    let greeter = Greeter {
        client: context.client.clone(),
        kind: config_maps(),
        maps: maps.lister(),
        finalizer: Finalizer::new(context.client.clone(), config_maps(), FINALIZER),
        recorder: context.recorder("greeter"),
    };
    manager.add(Controller::new("greeter", queue, greeter).workers(2).waits_for(&maps));
    manager
}

/// Returns the ConfigMaps in the namespace that the greeter handles, as `name: text`.
async fn maps(client: &Client) -> Vec<String> {
    let selection = Selection { namespace: Some("default".into()), ..Selection::default() };
    let listed = client.list(&config_maps(), &selection).await.expect("listed");
    let text =
        |object: &setpoint::Object| object.decode::<Value>().expect("JSON")["data"]["text"].to_string();
    let own = listed.objects.iter().filter(|object| object.key().name().starts_with("web"));
    own.map(|object| format!("{}: {}", object.key().name(), text(object))).collect()
}

async fn soon(clock: &Clock) {
    clock.sleep(Duration::from_secs(2)).await;
}

#[tokio::test(start_paused = true)]
async fn an_operator_keeps_what_it_promises_through_restarts() {
    let cluster = cluster().await;
    let (client, clock) = (cluster.client(), cluster.runtime().clock.clone());
    let web = json!({"metadata": {"name": "web", "labels": {"greet": "yes"}}});
    let web = client.create(&config_maps(), Some("default"), &web).await.expect("created");

    let stop = CancellationToken::new();
    let running = tokio::spawn(manager(&cluster).run(stop.clone()));
    soon(&clock).await;
    assert_eq!(maps(&client).await, ["web: null", r#"web-greeting: "hello, web""#]);

    let greeting = web.key().sibling("web-greeting");
    client.delete(&config_maps(), &greeting, &Default::default()).await.expect("deleted");
    soon(&clock).await;
    assert_eq!(maps(&client).await.len(), 2, "a missing object is recreated");
    stop.cancel();
    running.await.expect("no panic");

    client.delete(&config_maps(), web.key(), &Default::default()).await.expect("marked");
    soon(&clock).await;
    assert_eq!(maps(&client).await.len(), 2, "no controller removes its finalizer");

    let crashing = tokio::spawn(manager(&cluster).run(CancellationToken::new()));
    soon(&clock).await;
    crashing.abort();
    let left = maps(&client).await;
    assert_eq!(left, ["web-goodbye: null", r#"web-greeting: "hello, web""#]);

    let version =
        cluster.client().list(&config_maps(), &Selection::default()).await.expect("listed").resource_version;
    let again = tokio::spawn(manager(&cluster).run(CancellationToken::new()));
    clock.sleep(Duration::from_secs(600)).await;
    again.abort();
    let now =
        cluster.client().list(&config_maps(), &Selection::default()).await.expect("listed").resource_version;
    assert_eq!(now, version, "a settled world makes no writes");
}

#[tokio::test(start_paused = true)]
async fn its_events_can_be_read_beside_the_object() {
    let cluster = cluster().await;
    let (client, clock) = (cluster.client(), cluster.runtime().clock.clone());
    let web = json!({"metadata": {"name": "web", "labels": {"greet": "yes"}}});
    client.create(&config_maps(), Some("default"), &web).await.expect("created");
    let running = tokio::spawn(manager(&cluster).run(CancellationToken::new()));
    for _ in 0..2 {
        soon(&clock).await;
        let greeting = Key::namespaced("default", "web-greeting");
        client.delete(&config_maps(), &greeting, &Default::default()).await.expect("deleted");
    }
    soon(&clock).await;
    running.abort();
    let selection =
        Selection { fields: Some("involvedObject.name=web,reason=Greeted".into()), ..Selection::default() };
    let events =
        client.list(&Kind::new("", "v1", "Event", "events", true), &selection).await.expect("listed");
    let [event] = &events.objects[..] else { panic!("one event with a count: {events:?}") };
    let event: Value = event.decode().expect("JSON");
    assert_eq!(
        (&event["count"], &event["message"], &event["type"]),
        (&json!(3), &json!("Said hello"), &json!("Normal"))
    );
    assert_eq!(event["reportingComponent"], "greeter");
    assert_eq!(
        (&event["firstTimestamp"], &event["lastTimestamp"]),
        (&json!("2025-01-01T00:00:00Z"), &json!("2025-01-01T00:00:04Z"))
    );
}
