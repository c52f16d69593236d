use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use futures::stream::{self, BoxStream, StreamExt};
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::client::fake;
use crate::handler::enqueue_self;
use crate::reconcile::ErrorContext;
use crate::source::{ObjectList, Selection, WatchItem};
use crate::{
    Client, ClientError, Controller, Key, Kind, Manager, Object, Outcome, Queue, ReconcileError, Reconciler,
    Rng, Runtime,
};

fn object(name: &str, version: u64) -> Object {
    let raw = json!({"metadata": {"name": name, "namespace": "shop", "uid": name, "resourceVersion": version.to_string()}});
    Object::from_json(raw.to_string().into()).expect("an object")
}

/// Two objects, a change every minute, a watch that expires after three, then a list that fails once.
struct ScriptedSource {
    clock: Clock,
    lists: Mutex<u64>,
}

type Items = BoxStream<'static, Result<WatchItem, ClientError>>;

impl Source for ScriptedSource {
    fn list<'a>(&'a self, _: &'a Kind, _: &'a Selection) -> BoxFuture<'a, Result<ObjectList, ClientError>> {
        let number = {
            let mut lists = self.lists.lock();
            *lists += 1;
            *lists
        };
        async move {
            self.clock.sleep(Duration::from_millis(30)).await;
            if number == 2 {
                return Err(ClientError::from_reply(503, &Default::default(), b""));
            }
            let version = number * 10;
            let objects = vec![object("a", version), object("b", version)];
            Ok(ObjectList { objects, resource_version: version.to_string(), undecodable: 0 })
        }
        .boxed()
    }

    fn watch<'a>(
        &'a self,
        _: &'a Kind,
        _: &'a Selection,
        version: &'a str,
    ) -> BoxFuture<'a, Result<Items, ClientError>> {
        let (clock, version) = (self.clock.clone(), version.parse::<u64>().expect("a version"));
        let changes = stream::iter(1..=3).then(move |number| {
            let clock = clock.clone();
            async move {
                clock.sleep(Duration::from_secs(60)).await;
                Ok(WatchItem::Modified(object(if number == 2 { "b" } else { "a" }, version + number)))
            }
        });
        let expired = stream::once(async { Err(ClientError::from_reply(410, &Default::default(), b"")) });
        async move { Ok(changes.chain(expired).boxed()) }.boxed()
    }
}

/// Writes to the objects it is called with, fails at random, and records everything.
struct Writer {
    client: Client,
    runtime: Runtime,
    greeting: &'static str,
    log: Arc<Mutex<Vec<String>>>,
}

impl Reconciler for Writer {
    type Key = Key;

    async fn reconcile(&self, key: &Key) -> Result<Outcome, ReconcileError> {
        self.log.lock().push(format!("{key} at {}", self.runtime.clock.now()));
        if self.runtime.rng.below(3) == 0 {
            return Err(ReconcileError::retry("be lucky"));
        }
        let patch = crate::client::Patch::merge(&json!({"data": {"greeting": self.greeting}}));
        let kind = Kind::of::<ConfigMap>();
        self.client.patch(&kind, key, crate::client::Subresource::None, patch).await.attempting("greet")?;
        Ok(Outcome::CheckAfter(Duration::from_secs(100)))
    }
}

/// Runs the controller for ten minutes and returns what it did.
async fn run(
    client: kube::Client,
    source: Arc<dyn Source>,
    clock: Clock,
    greeting: &'static str,
) -> Vec<String> {
    let runtime = Runtime { clock: clock.clone(), rng: Rng::seeded(7) };
    let mut manager = Manager::new(Client::new(client), source, runtime.clone());
    let context = manager.context().clone();
    let configs = context.informers.of::<ConfigMap>();
    let queue = Queue::new("writer", &runtime);
    configs.add_handler(enqueue_self(&queue));
    let log = Arc::<Mutex<Vec<String>>>::default();
    let writer = Writer { client: context.client.clone(), runtime, greeting, log: log.clone() };
    manager.add(Controller::new("writer", queue, writer).waits_for(&configs));
    let running = tokio::spawn(manager.run(CancellationToken::new()));
    clock.sleep(Duration::from_secs(600)).await;
    running.abort();
    std::mem::take(&mut *log.lock())
}

fn clock() -> Clock {
    Clock::simulated("2025-01-01T00:00:00Z".parse().expect("a time"))
}

/// Returns what the controller did, and the recording.
async fn recorded() -> (Vec<String>, String) {
    let clock = clock();
    let recording = Recording::new(clock.clone());
    let (client, _) = fake::client(|received| {
        let name = received.target.rsplit('/').next()?;
        Some((200, json!({"metadata": {"name": name, "namespace": "shop", "resourceVersion": "99"}})))
    });
    let source = recording.source(Arc::new(ScriptedSource { clock: clock.clone(), lists: Mutex::new(0) }));
    let did = run(recording.client(client.kube().clone()), source, clock, "hello").await;
    (did, recording.to_text())
}

#[tokio::test(start_paused = true)]
async fn a_replay_takes_a_controller_through_the_same_reconciles() {
    let (did, recording) = recorded().await;
    assert!(did.len() > 10, "{did:?}");
    let clock = clock();
    let replay = Replay::of(&recording, clock.clone()).expect("a recording");
    assert_eq!(run(replay.client(), replay.source(), clock, "hello").await, did);
    assert_eq!((replay.divergences(), replay.missing()), (Vec::new(), Vec::new()));
}

#[tokio::test(start_paused = true)]
async fn a_changed_controller_diverges_and_the_replay_reports_where() {
    let (_, recording) = recorded().await;
    let clock = clock();
    let replay = Replay::of(&recording, clock.clone()).expect("a recording");
    run(replay.client(), replay.source(), clock, "goodbye").await;
    let diverged = replay.divergences();
    assert!(diverged[0].ends_with(r#"{"data":{"greeting":"goodbye"}}"#), "{diverged:?}");
    assert!(replay.missing()[0].contains("hello"));
}

#[tokio::test(start_paused = true)]
async fn a_recording_is_bounded() {
    let recording = Recording::new(clock()).with_capacity(2);
    let source = recording.source(Arc::new(ScriptedSource { clock: clock(), lists: Mutex::new(2) }));
    for _ in 0..5 {
        source.list(&Kind::of::<ConfigMap>(), &Selection::default()).await.expect("a list");
    }
    assert!(recording.is_full() && recording.len() == 2);
}
