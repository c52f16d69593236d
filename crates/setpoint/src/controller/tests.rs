//! Controllers built in a sentence, on a source that lists late.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::{self, BoxStream};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::client::fake;
use crate::prelude::*;
use crate::queue::Priority;
use crate::source::{ObjectList, Selection, Source, WatchItem};
use crate::{Clock, Rng, Runtime};

/// Lists fixed objects of each kind after a delay, then never changes.
struct Fixed {
    clock: Clock,
    objects: BTreeMap<&'static str, (Duration, Vec<Value>)>,
}

type Items = BoxStream<'static, Result<WatchItem, ClientError>>;

impl Source for Fixed {
    fn list<'a>(
        &'a self,
        kind: &'a Kind,
        _: &'a Selection,
    ) -> BoxFuture<'a, Result<ObjectList, ClientError>> {
        Box::pin(async {
            let (delay, objects) = self.objects.get(kind.plural()).cloned().unwrap_or_default();
            self.clock.sleep(delay).await;
            let objects =
                objects.iter().map(|it| Object::from_json(it.to_string().into()).expect("an object"));
            Ok(ObjectList { objects: objects.collect(), resource_version: "1".into(), undecodable: 0 })
        })
    }

    fn watch<'a>(
        &'a self,
        _: &'a Kind,
        _: &'a Selection,
        _: &'a str,
    ) -> BoxFuture<'a, Result<Items, ClientError>> {
        Box::pin(async { Ok(stream::pending().boxed()) })
    }
}

fn object(namespace: Option<&str>, name: &str) -> Value {
    json!({"metadata": {"name": name, "namespace": namespace, "uid": name, "resourceVersion": "1"}})
}

/// Runs a controller for a minute. Returns the requests it has made.
async fn requests<R: super::IntoRunnables>(
    objects: BTreeMap<&'static str, (Duration, Vec<Value>)>,
    build: impl FnOnce(&Context) -> R,
) -> Vec<fake::Received> {
    let clock = Clock::simulated("2025-01-01T00:00:00Z".parse().expect("a time"));
    let (client, log) = fake::client(fake::echo);
    let source = Arc::new(Fixed { clock: clock.clone(), objects });
    let manager =
        Manager::new(client, source, Runtime { clock: clock.clone(), rng: Rng::seeded(1) }).with(build);
    let stop = CancellationToken::new();
    let running = tokio::spawn(manager.run(stop.clone()));
    clock.sleep(Duration::from_secs(60)).await;
    stop.cancel();
    running.await.expect("no panic");
    log.all()
}

/// Creates a ConfigMap in every namespace that the caches show without one.
async fn greet(namespace: Cached<Namespace>, context: Context) -> Result<(), ReconcileError> {
    let key = Key::namespaced(namespace.name(), "greeting");
    if context.cached::<ConfigMap>(&key).await?.is_none() {
        context.api.create(&ConfigMap { metadata: key.metadata(), ..ConfigMap::default() }).await?;
    }
    Ok(())
}

fn world() -> BTreeMap<&'static str, (Duration, Vec<Value>)> {
    let greetings = ["a", "b"].map(|namespace| object(Some(namespace), "greeting")).to_vec();
    let namespaces = ["a", "b", "c"].map(|name| object(None, name)).to_vec();
    [("namespaces", (Duration::ZERO, namespaces)), ("configmaps", (Duration::from_secs(9), greetings))].into()
}

fn greetings(received: &[fake::Received]) -> Vec<&str> {
    received.iter().map(|one| one.target.as_str()).filter(|target| target.ends_with("configmaps")).collect()
}

const ONLY_C: [&str; 1] = ["/api/v1/namespaces/c/configmaps"];

#[tokio::test(start_paused = true)]
async fn no_key_is_reconciled_against_an_empty_cache() {
    let watched = requests(world(), |context: &Context| {
        Controller::for_::<Namespace>(context, "greeter")
            .watches(|map: &Cached<ConfigMap>| map.namespace().map(Key::cluster))
            .run(greet)
    });
    assert_eq!(greetings(&watched.await), ONLY_C);
    let read = requests(world(), |context: &Context| {
        Controller::for_::<Namespace>(context, "greeter").reads::<ConfigMap>().run(greet)
    });
    assert_eq!(greetings(&read.await), ONLY_C);
    let undeclared =
        requests(world(), |context: &Context| Controller::for_::<Namespace>(context, "greeter").run(greet));
    assert_eq!(greetings(&undeclared.await), ONLY_C);
}

struct Greeter {
    api: Api,
    namespaces: Lister<Namespace>,
    maps: Lister<ConfigMap>,
}

impl Reconciler for Greeter {
    type Key = Key;

    async fn reconcile(&self, key: &Key) -> Result<Outcome, ReconcileError> {
        let greeting = Key::namespaced(key.name(), "greeting");
        if self.namespaces.get(key)?.is_some() && self.maps.get(&greeting)?.is_none() {
            self.api.create(&ConfigMap { metadata: greeting.metadata(), ..ConfigMap::default() }).await?;
        }
        Ok(Outcome::Settled)
    }
}

#[tokio::test(start_paused = true)]
async fn a_reconciler_made_from_the_wiring_waits_for_its_listers() {
    let received = requests(world(), |context: &Context| {
        Controller::for_::<Namespace>(context, "greeter").run_with(|wiring| Greeter {
            api: wiring.context().api.clone(),
            namespaces: wiring.lister(),
            maps: wiring.lister(),
        })
    });
    assert_eq!(greetings(&received.await), ONLY_C);
}

#[tokio::test(start_paused = true)]
async fn functions_get_the_key_the_object_or_the_encoded_object() {
    let seen = Arc::<Mutex<Vec<String>>>::default();
    let (by_key, by_kind) = (seen.clone(), seen.clone());
    let received = requests(world(), |context: &Context| -> Vec<Box<dyn Runnable>> {
        let keys = Controller::for_::<Namespace>(context, "keys").run(move |key: Key, context: Context| {
            by_key.lock().push(format!("{} {key}", context.name()));
            async { Ok::<_, ReconcileError>(Outcome::Settled) }
        });
        let namespaces = Kind::of::<Namespace>();
        let objects = Controller::for_kind(context, "objects", &namespaces).run(
            move |object: Object, context: Context| {
                by_kind.lock().push(format!("{} {}", context.name(), object.key()));
                async { Ok::<_, ReconcileError>(()) }
            },
        );
        vec![Box::new(keys), Box::new(objects)]
    });
    assert!(received.await.is_empty());
    let mut seen = seen.lock().clone();
    seen.sort();
    assert_eq!(seen, ["keys a", "keys b", "keys c", "objects a", "objects b", "objects c"]);
}

#[tokio::test(start_paused = true)]
async fn predicates_apply_to_the_kind_named_just_before() {
    let seen = Arc::<Mutex<Vec<String>>>::default();
    let calls = seen.clone();
    let mut objects = world();
    objects.insert("secrets", (Duration::ZERO, vec![object(Some("elsewhere"), "tls")]));
    let received = requests(objects, |context: &Context| {
        Controller::for_::<Namespace>(context, "namespaces")
            .when(|event: &crate::Event| event.object().key().name() != "a")
            .watches(|map: &Cached<ConfigMap>| map.namespace().map(Key::cluster))
            .when(|_: &crate::Event| false)
            .watches(|secret: &Cached<Secret>| secret.namespace().map(Key::cluster))
            .priority(Priority::High)
            .run(move |key: Key, _: Context| {
                calls.lock().push(key.to_string());
                async { Ok::<_, ReconcileError>(()) }
            })
    });
    assert!(received.await.is_empty());
    let mut seen = seen.lock().clone();
    seen.sort();
    assert_eq!(seen, ["b", "c", "elsewhere"]);
}

#[tokio::test(start_paused = true)]
async fn a_finalizer_is_set_first_and_released_after_cleanup() {
    let mut deleted = object(None, "old");
    deleted["metadata"]["deletionTimestamp"] = "2025-01-01T00:00:00Z".into();
    deleted["metadata"]["finalizers"] = json!(["example.com/greeting"]);
    let mut foreign = object(None, "foreign");
    foreign["metadata"]["deletionTimestamp"] = "2025-01-01T00:00:00Z".into();
    let namespaces = vec![object(None, "new"), deleted, foreign];
    let received = requests([("namespaces", (Duration::ZERO, namespaces))].into(), |context: &Context| {
        Controller::for_::<Namespace>(context, "greeter")
            .finalizer("example.com/greeting", say_goodbye)
            .run(greet)
            .workers(1)
    });
    let lines: Vec<String> = received
        .await
        .iter()
        .map(|one| format!("{} {} {}", one.method, one.target, finalizers(one)))
        .collect();
    let expected = [
        "PATCH /api/v1/namespaces/new [\"example.com/greeting\"]",
        "POST /api/v1/namespaces/new/configmaps null",
        "POST /api/v1/namespaces/old/secrets null",
        "PATCH /api/v1/namespaces/old null",
    ];
    assert_eq!(lines, expected);
}

fn finalizers(received: &fake::Received) -> Value {
    received.json()["metadata"]["finalizers"].clone()
}

async fn say_goodbye(namespace: Cached<Namespace>, context: Context) -> Result<(), ReconcileError> {
    let key = Key::namespaced(namespace.name(), "goodbye");
    context.api.create(&Secret { metadata: key.metadata(), ..Secret::default() }).await?;
    Ok(())
}
