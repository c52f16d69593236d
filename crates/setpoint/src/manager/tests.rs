use std::sync::atomic::{AtomicU64, Ordering};

use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::{self, BoxStream};
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::json;

use super::*;
use crate::client::fake;
use crate::source::{ObjectList, Selection, WatchItem};
use crate::{
    ClientError, Clock, Controller, EventType, Key, Kind, Object, Outcome, Queue, ReconcileError, Reconciler,
    Rng,
};

/// Lists one ConfigMap after a delay, then never changes.
struct StaticSource {
    clock: Clock,
    lists_after: Duration,
}

type Items = BoxStream<'static, Result<WatchItem, ClientError>>;

impl Source for StaticSource {
    fn list<'a>(&'a self, _: &'a Kind, _: &'a Selection) -> BoxFuture<'a, Result<ObjectList, ClientError>> {
        Box::pin(async {
            self.clock.sleep(self.lists_after).await;
            Ok(ObjectList { objects: vec![config()], resource_version: "1".into(), undecodable: 0 })
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

/// Records an event about every ConfigMap, and requeues every minute.
struct EventReporter {
    clock: Clock,
    recorder: Recorder,
    calls: Arc<Mutex<Vec<String>>>,
}

impl Reconciler for EventReporter {
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
    let source = Arc::new(StaticSource { clock: clock.clone(), lists_after });
    let mut manager = Manager::new(client, source, Runtime { clock: clock.clone(), rng: Rng::seeded(1) });
    let context = manager.context().clone();
    let configs = context.informers.of::<ConfigMap>();
    let queue = Queue::new("teller", &context.runtime);
    configs.add_handler({
        let queue = queue.clone();
        move |event: &crate::Event| queue.add(event.object().key().clone())
    });
    let calls = Arc::<Mutex<Vec<String>>>::default();
    let teller =
        EventReporter { clock: clock.clone(), recorder: context.recorder("teller"), calls: calls.clone() };
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
        "[+]controllers ok\n[+]shutdown ok\n[-]teller failed: the cache of configmaps has not synced\nreadyz check failed\n"
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
    assert_eq!(log.lines().len(), 0, "work is in progress");
    stop.cancel();
    running.await.expect("no panic");
    assert_eq!(log.lines(), ["POST /api/v1/namespaces/shop/events"]);
    assert!(context.health.livez().ok, "a stopped runnable does not count as exited");
}

/// Runs in every replica, and notes when it is stopped.
struct Server(Clock, Arc<Mutex<Vec<String>>>);

impl Runnable for Server {
    fn name(&self) -> &str {
        "server"
    }

    fn run(self: Box<Self>, stop: CancellationToken) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            stop.cancelled().await;
            self.1.lock().push(format!("stopped at {}", self.0.now()));
        })
    }

    fn needs_leader(&self) -> bool {
        false
    }
}

#[tokio::test(start_paused = true)]
async fn what_runs_in_every_replica_serves_until_the_workers_have_drained() {
    let World { mut manager, clock, calls, .. } = world(Duration::ZERO);
    manager.add(Server(clock.clone(), calls.clone()));
    let stop = CancellationToken::new();
    let running = tokio::spawn(manager.run(stop.clone()));
    clock.sleep(Duration::from_millis(500)).await;
    stop.cancel();
    running.await.expect("no panic");
    assert_eq!(*calls.lock(), ["shop/a at 2025-01-01T00:00:00Z", "stopped at 2025-01-01T00:00:01Z"]);
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

/// Counts seconds in a spawned task, for as long as it lives.
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

/// Ends without being stopped, in the given way.
struct EndsEarly(fn());

impl Runnable for EndsEarly {
    fn name(&self) -> &str {
        "quitter"
    }

    fn run(self: Box<Self>, _: CancellationToken) -> BoxFuture<'static, ()> {
        Box::pin(async move { self.0() })
    }
}

#[tokio::test(start_paused = true)]
async fn a_runnable_that_ends_fails_liveness_and_the_rest_continue() {
    for quit in [(|| ()) as fn(), || panic!("of fear")] {
        let World { mut manager, clock, calls, context, .. } = world(Duration::ZERO);
        manager.add(Box::new(EndsEarly(quit)) as Box<dyn Runnable>);
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
struct NeverEnds;

impl Runnable for NeverEnds {
    fn name(&self) -> &str {
        "stubborn"
    }

    fn run(self: Box<Self>, _: CancellationToken) -> BoxFuture<'static, ()> {
        Box::pin(std::future::pending())
    }
}

#[tokio::test(start_paused = true)]
async fn a_runnable_that_does_not_stop_is_aborted() {
    let World { mut manager, clock, .. } = world(Duration::ZERO);
    manager.add(NeverEnds);
    let stop = CancellationToken::new();
    stop.cancel();
    manager.run(stop).await;
    assert_eq!(clock.now().to_string(), "2025-01-01T00:00:45Z");
}

/// Becomes ready after a delay.
struct Slow {
    name: &'static str,
    clock: Clock,
    takes: Duration,
    log: Arc<Mutex<Vec<String>>>,
    ready: Arc<std::sync::atomic::AtomicBool>,
}

impl Slow {
    fn new(name: &'static str, takes: u64, world: &World, log: &Arc<Mutex<Vec<String>>>) -> Self {
        let (clock, takes) = (world.clock.clone(), Duration::from_secs(takes));
        Self { name, clock, takes, log: log.clone(), ready: Arc::default() }
    }
}

impl Runnable for Slow {
    fn name(&self) -> &str {
        self.name
    }

    fn run(self: Box<Self>, stop: CancellationToken) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            self.log.lock().push(format!("{} at {}", self.name, self.clock.now()));
            self.clock.sleep(self.takes).await;
            self.ready.store(true, Ordering::Relaxed);
            stop.cancelled().await;
        })
    }

    fn readiness(&self) -> Option<crate::health::Check> {
        let ready = self.ready.clone();
        Some(Arc::new(move || match ready.load(Ordering::Relaxed) {
            true => Ok(()),
            false => Err("not yet".into()),
        }))
    }
}

#[tokio::test(start_paused = true)]
async fn dependent_runnables_start_when_their_dependencies_are_ready() {
    let mut world = world(Duration::ZERO);
    let log = Arc::default();
    for (name, takes) in [("third", 1), ("second", 5), ("first", 10)] {
        let slow = Slow::new(name, takes, &world, &log);
        world.manager.add(slow);
    }
    let manager = &mut world.manager;
    manager.start_after("second", "first").expect("a possible order");
    manager.start_after("third", "second").expect("a possible order");
    assert_eq!(
        manager.start_after("first", "third"),
        Err(OrderError::Circle("first after third after second after first".into()))
    );
    assert_eq!(manager.start_after("fourth", "first"), Err(OrderError::Unknown("fourth".into())));
    assert_eq!(manager.start_after("first", "database"), Err(OrderError::Unknown("database".into())));
    manager.context().health.add_readyz("database", || Ok(()));
    manager.start_after("first", "database").expect("a check can be a dependency");
    let running = tokio::spawn(world.manager.run(CancellationToken::new()));
    world.clock.sleep(Duration::from_secs(60)).await;
    let started: Vec<String> = log.lock().clone();
    assert_eq!(
        started,
        ["first at 2025-01-01T00:00:00Z", "second at 2025-01-01T00:00:10Z", "third at 2025-01-01T00:00:15Z"]
    );
    running.abort();
}

#[tokio::test(start_paused = true)]
async fn a_stopping_manager_is_alive_but_neither_healthy_nor_ready() {
    let World { manager, clock, context, .. } = world(Duration::ZERO);
    let stop = CancellationToken::new();
    let running = tokio::spawn(manager.run(stop.clone()));
    clock.sleep(Duration::from_millis(500)).await;
    assert!(context.health.healthz().ok && context.health.readyz().ok);
    stop.cancel();
    clock.sleep(Duration::from_millis(100)).await;
    assert!(!running.is_finished(), "work is in progress");
    assert!(context.health.livez().ok);
    assert!(context.health.readyz().verbose().contains("[-]shutdown failed: stopping"));
    assert!(context.health.healthz().verbose().contains("[-]shutdown failed: stopping"));
    running.await.expect("no panic");
}

#[tokio::test(start_paused = true)]
async fn a_configured_manager_keeps_to_its_rate_and_its_retries() {
    let clock = Clock::simulated("2025-01-01T00:00:00Z".parse().expect("a time"));
    let runtime = Runtime { clock: clock.clone(), rng: Rng::seeded(1) };
    let (client, log) = fake::client(fake::echo);
    let config = ControllerConfig::from_yaml(
        "controller: {clientQPS: 10, clientBurst: 2, maxRetries: 3, retryBackoff: 2s-4s, workers: 3}",
    )
    .expect("valid");
    let manager = Manager::configured("web", client.kube().clone(), "example:6443", runtime, config)
        .await
        .expect("made");
    let context = manager.context();
    let started = clock.instant();
    for nth in 0..5 {
        let body = json!({"metadata": {"name": format!("map-{nth}")}});
        context.client.create(&Kind::of::<ConfigMap>(), Some("shop"), &body).await.expect("echoed");
    }
    assert_eq!(clock.instant() - started, Duration::from_millis(300), "two at once, then ten a second");
    assert_eq!(log.all()[0].header("user-agent"), "web");
    let text = context.metrics.encode();
    let waited = r#"rest_client_rate_limiter_duration_seconds_count{host="example:6443",verb="POST"} 5"#;
    assert!(text.contains(waited), "{text}");
    let queue = context.queue::<Key>("web");
    let key = Key::cluster("a");
    let mut waits = Vec::new();
    for _ in 0..4 {
        queue.add_rate_limited(key.clone());
        waits.push(queue.state(&key).delayed_until.map_or(0, |until| (until - clock.instant()).as_secs()));
        queue.cancel_delay(&key);
    }
    assert_eq!(waits, [0, 2, 4, 4]);
}

#[tokio::test(start_paused = true)]
async fn concurrent_calls_are_limited() {
    let clock = Clock::simulated("2025-01-01T00:00:00Z".parse().expect("a time"));
    let service = tower::service_fn({
        let clock = clock.clone();
        move |_: http::Request<kube::client::Body>| {
            let clock = clock.clone();
            async move {
                clock.sleep(Duration::from_secs(1)).await;
                Ok::<_, std::convert::Infallible>(http::Response::new(kube::client::Body::from(
                    b"{}".to_vec(),
                )))
            }
        }
    });
    let client = Client::new(kube::Client::new(service, "default")).with_connections(2);
    let calls = (0..6).map(|_| client.get_path(&["version"], &[]));
    let started = clock.instant();
    futures::future::join_all(calls).await;
    assert_eq!(clock.instant() - started, Duration::from_secs(3), "six calls, two at a time");
}

#[tokio::test(start_paused = true)]
async fn caches_are_counted_and_shown_in_the_heap_profile() {
    let clock = Clock::simulated("2025-01-01T00:00:00Z".parse().expect("a time"));
    let (client, _) = fake::client(fake::echo);
    let source = Arc::new(StaticSource { clock: clock.clone(), lists_after: Duration::ZERO });
    let config = ControllerConfig::from_yaml("controller: {informerConfig: {cacheSize: 5}}").expect("valid");
    let runtime = Runtime { clock: clock.clone(), rng: Rng::seeded(1) };
    let manager = Manager::assemble(client, source, runtime, Metrics::new(), config, None);
    let context = manager.context().clone();
    let configs = context.informers.of::<ConfigMap>();
    let running = tokio::spawn(manager.run(CancellationToken::new()));
    configs.wait_for_sync().await;
    clock.sleep(Duration::from_secs(60)).await;
    let counted = r#"setpoint_informer_objects{group="",resource="configmaps"} 1"#;
    assert!(context.metrics.encode().contains(counted), "{}", context.metrics.encode());
    assert_eq!(context.informers.sizes()[0].bytes, config_size());
    let profile = heap(&context.informers).encode();
    assert!(String::from_utf8_lossy(&profile).contains("cache of configmaps"));
    running.abort();
}

fn config_size() -> usize {
    config().raw().len()
}
