//! A minimal controller: every namespace labelled `greet: "true"` gets a ConfigMap `greeting`.
//! `docs/guide/first-controller.md` walks through it.

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use serde_json::json;
use setpoint::handler::enqueue_self;
use setpoint::reconcile::ErrorContext;
use setpoint::{Client, Context, Key, Kind, Lister, Outcome, ReconcileError, Reconciler, Runnable};

/// The name of the controller in logs, metrics and health checks.
pub const NAME: &str = "greeter";

struct Greeter {
    client: Client,
    namespaces: Lister<Namespace>,
    maps: Lister<ConfigMap>,
}

impl Reconciler for Greeter {
    type Key = Key;

    async fn reconcile(&self, key: &Key) -> Result<Outcome, ReconcileError> {
        // Observe: what is wanted, and what exists.
        let Some(namespace) = self.namespaces.get(key)? else { return Ok(Outcome::Settled) };
        let wanted = namespace.meta().label("greet") == Some("true");
        let greeting = Key::namespaced(key.name(), "greeting");
        let there = self.maps.get(&greeting)?.is_some();
        // Act on the difference, if there is one.
        if wanted && !there && !namespace.meta().is_being_deleted() {
            let body =
                json!({"metadata": {"name": "greeting"}, "data": {"text": format!("hello, {}", key.name())}});
            let created = self.client.create(&Kind::of::<ConfigMap>(), Some(key.name()), &body).await;
            match created {
                Err(error) if error.is_already_exists() => {}
                created => created.map(drop).attempting(format!("greet namespace {key}"))?,
            }
        }
        Ok(Outcome::Settled)
    }
}

/// Returns the runnables for a manager: caches that feed a queue, and its workers.
pub fn runnables(context: &Context) -> Vec<Box<dyn Runnable>> {
    let namespaces = context.informers.of::<Namespace>();
    let maps = context.informers.of::<ConfigMap>();
    let queue = context.queue(NAME);
    namespaces.add_handler(enqueue_self(&queue));
    // If a greeting changes or is deleted, reconcile its namespace.
    maps.add_handler({
        let queue = queue.clone();
        move |event: &setpoint::Event| {
            if let (Some(namespace), "greeting") =
                (event.object().key().namespace(), event.object().key().name())
            {
                queue.add(Key::cluster(namespace));
            }
        }
    });
    let greeter =
        Greeter { client: context.client.clone(), namespaces: namespaces.lister(), maps: maps.lister() };
    vec![Box::new(context.controller(NAME, queue, greeter).waits_for(&namespaces).waits_for(&maps))]
}
