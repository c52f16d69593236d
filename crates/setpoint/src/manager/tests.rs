use std::sync::atomic::{AtomicU64, Ordering};

use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::{self, BoxStream};
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::json;

use super::*;
use crate::client::fake;
use crate::source::{Listed, Selection, WatchItem};
use crate::{
    ClientError, Clock, Controller, EventType, Key, Kind, Object, Outcome, Queue, ReconcileError, Reconciler,
    Rng,
};

/// One ConfigMap, listed after a while; nothing ever changes.
struct Still {
    clock: Clock,
    lists_after: Duration,
}

type Items = BoxStream<'static, Result<WatchItem, ClientError>>;

impl Source for Still {
    fn list<'a>(&'a self, _: &'a Kind, _: &'a Selection) -> BoxFuture<'a, Result<Listed, ClientError>> {
        Box::pin(async {
            self.clock.sleep(self.lists_after).await;
            Ok(Listed { objects: vec![config()], resource_version: "1".into(), undecodable: 0 })
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

fn config() -> Object {
    let raw = json!({"metadata": {"name": "a", "namespace": "shop", "uid": "u", "resourceVersion": "1"}});
    Object::from_json(raw.to_string().into()).expect("an object")
}

/// Records an event about every ConfigMap and looks again every minute.
struct Teller {
    clock: Clock,
    recorder: Recorder,
    calls: Arc<Mutex<Vec<String>>>,
}

impl Reconciler for Teller {
    type Key = Key;

    async fn reconcile(&self, key: &Key) -> Result<Outcome, ReconcileError> {
        self.calls.lock().push(format!("{key} at {}", self.clock.now()));
        self.clock.sleep(Duration::from_secs(1)).await;
        self.recorder.event(&Kind::of::<ConfigMap>(), &config(), EventType::Normal, "Seen", "I saw it");
        Ok(Outcome::CheckAfter(Duration::from_secs(60)))
    }
}

struct World {
    manager: Manager,
    context: Context,
    clock: Clock,
    log: fake::Log,
    calls: Arc<Mutex<Vec<String>>>,
}

fn world(lists_after: Duration) -> World {
    let clock = Clock::simulated("2025-01-01T00:00:00Z".parse().expect("a time"));
    let (client, log) = fake::client(fake::echo);
    let source = Arc::new(Still { clock: clock.clone(), lists_after });
    let mut manager = Manager::new(client, source, Runtime { clock: clock.clone(), rng: Rng::seeded(1) });
    let context = manager.context().clone();
    let configs = context.informers.of::<ConfigMap>();
    let queue = Queue::new("teller", &context.runtime);
    configs.add_handler({
        let queue = queue.clone();
        move |event: &crate::Event| queue.add(event.object().key().clone())
    });
    let calls = Arc::<Mutex<Vec<String>>>::default();
    let teller = Teller { clock: clock.clone(), recorder: context.recorder("teller"), calls: calls.clone() };
    manager.add(Controller::new("teller", queue, teller).waits_for(&configs));
    World { manager, context, clock, log, calls }
}

#[tokio::test(start_paused = true)]
async fn workers_start_when_the_caches_have_synced() {
    let World { manager, clock, calls, context, .. } = world(Duration::from_secs(5));
    let running = tokio::spawn(manager.run(CancellationToken::new()));
    clock.sleep(Duration::from_secs(1)).await;
    assert_eq!(
        context.health.readyz().verbose(),
        "[+]controllers ok\n[-]teller failed: the cache of configmaps has not synced\nreadyz check failed\n"
    );
    clock.sleep(Duration::from_secs(29)).await;
    assert!(context.health.readyz().ok);
    assert!(
        context
            .metrics
            .encode()
            .contains(r#"running_managed_controllers{manager="setpoint",name="teller"} 1"#)
    );
    assert_eq!(*calls.lock(), ["shop/a at 2025-01-01T00:00:05Z"]);
    assert!(context.health.livez().ok);
    assert!(
        context.metrics.encode().contains(r#"workqueue_adds_total{controller="teller",name="teller"} 1"#)
    );
    running.abort();
}

#[tokio::test(start_paused = true)]
async fn a_stop_finishes_the_work_and_writes_its_events() {
    let World { manager, clock, log, context, .. } = world(Duration::ZERO);
    let stop = CancellationToken::new();
    let running = tokio::spawn(manager.run(stop.clone()));
    clock.sleep(Duration::from_millis(500)).await;
    assert_eq!(log.lines().len(), 0, "the work is under way");
    stop.cancel();
    running.await.expect("no panic");
    assert_eq!(log.lines(), ["POST /api/v1/namespaces/shop/events"]);
    assert!(context.health.livez().ok, "what was stopped did not end on its own");
}

#[tokio::test(start_paused = true)]
async fn a_stop_before_the_caches_have_synced_ends_at_once() {
    let World { manager, clock, calls, .. } = world(Duration::from_secs(3600));
    let stop = CancellationToken::new();
    let running = tokio::spawn(manager.run(stop.clone()));
    clock.sleep(Duration::from_secs(1)).await;
    stop.cancel();
    running.await.expect("no panic");
    assert_eq!((clock.now().to_string().as_str(), calls.lock().len()), ("2025-01-01T00:00:01Z", 0));
}

/// Counts the seconds, in a task of its own, as long as it lives.
struct Ticker(Clock, Arc<AtomicU64>);

impl Runnable for Ticker {
    fn name(&self) -> &str {
        "ticker"
    }

    fn run(self: Box<Self>, stop: CancellationToken) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let mut tasks = JoinSet::new();
            tasks.spawn(async move {
                loop {
                    self.0.sleep(Duration::from_secs(1)).await;
                    self.1.fetch_add(1, Ordering::Relaxed);
                }
            });
            stop.cancelled().await;
        })
    }
}

#[tokio::test(start_paused = true)]
async fn dropping_a_running_manager_ends_everything() {
    let World { mut manager, clock, calls, context, .. } = world(Duration::ZERO);
    drop(context); // and with it the client, whose buffer is a task too
    let ticks = Arc::new(AtomicU64::new(0));
    manager.add(Ticker(clock.clone(), ticks.clone()));
    let crashed =
        tokio::time::timeout(Duration::from_millis(90_500), manager.run(CancellationToken::new())).await;
    assert!(crashed.is_err());
    assert_eq!((calls.lock().len(), ticks.load(Ordering::Relaxed)), (2, 90));
    clock.sleep(Duration::from_secs(3600)).await;
    assert_eq!((calls.lock().len(), ticks.load(Ordering::Relaxed)), (2, 90));
    assert_eq!(tokio::runtime::Handle::current().metrics().num_alive_tasks(), 0, "no task survives");
}

/// Ends as told without being asked to.
struct Quitter(fn());

impl Runnable for Quitter {
    fn name(&self) -> &str {
        "quitter"
    }

    fn run(self: Box<Self>, _: CancellationToken) -> BoxFuture<'static, ()> {
        Box::pin(async move { self.0() })
    }
}

#[tokio::test(start_paused = true)]
async fn what_ends_on_its_own_is_not_alive_and_the_rest_goes_on() {
    for quit in [(|| ()) as fn(), || panic!("of fear")] {
        let World { mut manager, clock, calls, context, .. } = world(Duration::ZERO);
        manager.add(Box::new(Quitter(quit)) as Box<dyn Runnable>);
        let running = tokio::spawn(manager.run(CancellationToken::new()));
        clock.sleep(Duration::from_secs(90)).await;
        assert_eq!(
            context.health.livez().verbose(),
            "[-]controllers failed: ended on their own: quitter\nlivez check failed\n"
        );
        assert_eq!(calls.lock().len(), 2);
        running.abort();
    }
}

/// Never ends.
struct Stubborn;

impl Runnable for Stubborn {
    fn name(&self) -> &str {
        "stubborn"
    }

    fn run(self: Box<Self>, _: CancellationToken) -> BoxFuture<'static, ()> {
        Box::pin(std::future::pending())
    }
}

#[tokio::test(start_paused = true)]
async fn what_does_not_stop_is_stopped() {
    let World { mut manager, clock, .. } = world(Duration::ZERO);
    manager.add(Stubborn);
    let stop = CancellationToken::new();
    stop.cancel();
    manager.run(stop).await;
    assert_eq!(clock.now().to_string(), "2025-01-01T00:00:45Z");
}
