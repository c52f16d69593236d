//! Tests a reconciler that reads its own writes, with a cache that is minutes behind.

use std::sync::Arc;
use std::time::Duration;

use http::{Method, Request, Response};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::client::Body;
use parking_lot::Mutex;
use setpoint::client::DeleteOptions;
use setpoint::metrics::Metrics;
use setpoint::reconcile::ErrorContext;
use setpoint::{
    Client, Clock, Controller, Informer, Key, Kind, Outcome, Queue, ReconcileError, Reconciler, Rng,
    Runnable, Runtime,
};
use tokio_util::sync::CancellationToken;

use crate::server::{Fault, Server};
use crate::{World, seconds};

/// How far the cache is behind.
const BEHIND: Duration = Duration::from_secs(600);

/// Wants one child, or none, and counts its own writes.
struct Parent {
    client: Client,
    children: Informer,
    wanted: Arc<Mutex<bool>>,
    done: Arc<Mutex<Vec<&'static str>>>,
}

impl Reconciler for Parent {
    type Key = Key;

    async fn reconcile(&self, key: &Key) -> Result<Outcome, ReconcileError> {
        let kind = Kind::of::<ConfigMap>();
        let child = self.children.objects().list(None).into_iter().next();
        let wanted = *self.wanted.lock();
        match (child, wanted) {
            (None, true) => {
                let child = serde_json::json!({"metadata": {"generateName": "child-"}});
                self.client.create(&kind, key.namespace(), &child).await.attempting("create the child")?;
                self.done.lock().push("create");
            }
            (Some(child), false) => {
                let delete = DeleteOptions::of_uid(&*child.meta().uid);
                self.client.delete(&kind, child.key(), &delete).await.attempting("delete the child")?;
                self.done.lock().push("delete");
            }
            _ => {}
        }
        Ok(Outcome::Settled)
    }
}

/// Creates a client whose creates and deletes change the server's state.
fn client(server: &Server) -> Client {
    let server = server.clone();
    let service = tower::service_fn(move |request: Request<Body>| {
        let reply = match *request.method() {
            Method::POST => server.put(&format!("child-{}", server.revision())).raw().to_vec(),
            _ => {
                server.delete(request.uri().path().rsplit('/').next().expect("a name"));
                b"{}".to_vec()
            }
        };
        async move { Ok::<_, std::convert::Infallible>(Response::new(Body::from(reply))) }
    });
    Client::new(kube::Client::new(service, "default"))
}

struct Family {
    world: World,
    queue: Queue<Key>,
    wanted: Arc<Mutex<bool>>,
    done: Arc<Mutex<Vec<&'static str>>>,
    metrics: Metrics,
}

async fn family(configure: impl FnOnce(Controller) -> Controller) -> Family {
    let server = Server::new();
    server.fault([Fault::Late(BEHIND)]);
    let mut world = World::synced(server).await;
    let clock = Clock::simulated("2025-01-01T00:00:00Z".parse().expect("a time"));
    let queue = Queue::new("parents", &Runtime { clock, rng: Rng::seeded(1) });
    let (wanted, done) = (Arc::new(Mutex::new(true)), Arc::<Mutex<Vec<_>>>::default());
    let parent = Parent {
        client: client(&world.server),
        children: world.informer.clone(),
        wanted: wanted.clone(),
        done: done.clone(),
    };
    let mut controller =
        configure(Controller::new("parents", queue.clone(), parent).waits_for(&world.informer));
    let metrics = Metrics::new();
    controller.observe(&metrics);
    world.tasks.spawn(Box::new(controller).run(CancellationToken::new()));
    Family { world, queue, wanted, done, metrics }
}

impl Family {
    /// Wakes the controller every few seconds for this long.
    async fn go_on(&self, time: Duration) {
        for _ in 0..time.as_secs() / 5 {
            self.queue.add(Key::namespaced("default", "parent"));
            seconds(5).await;
        }
    }

    fn done(&self) -> Vec<&'static str> {
        self.done.lock().clone()
    }
}

#[tokio::test(start_paused = true)]
async fn a_reconciler_never_acts_on_a_cache_older_than_its_own_writes() {
    let family = family(Controller::reads_own_writes).await;
    family.go_on(BEHIND * 2).await;
    assert_eq!(family.done(), ["create"]);
    assert!(family.metrics.encode().contains("controller_stale_cache_waits_total{controller=\"parents\"} "));
    *family.wanted.lock() = false;
    family.go_on(BEHIND * 2).await;
    assert_eq!(family.done(), ["create", "delete"]);
    assert!(family.world.cache().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_reconciler_that_does_not_read_its_own_writes_makes_them_again() {
    let family = family(|controller| controller).await;
    family.go_on(BEHIND / 2).await;
    assert!(family.done().len() > 10, "the other test is meaningful");
}
