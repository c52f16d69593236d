//! A minimal controller: every namespace labelled `greet: "true"` gets a ConfigMap `greeting`.
//! `docs/guide/first-controller.md` walks through it.

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use setpoint::prelude::*;

/// Reconciles a namespace when it changes, and when one of its ConfigMaps does.
pub fn greeter(context: &Context) -> Controller {
    Controller::for_::<Namespace>(context, "greeter")
        .watches(|map: &Cached<ConfigMap>| map.namespace().map(Key::cluster))
        .run(greet)
}

async fn greet(namespace: Cached<Namespace>, context: Context) -> Result<(), ReconcileError> {
    // Observe: what is wanted, and what exists.
    let key = Key::namespaced(namespace.name(), "greeting");
    let wanted = namespace.meta().label("greet") == Some("true");
    let exists = context.cached::<ConfigMap>(&key).await?.is_some();
    // Act on the difference, if there is one.
    if wanted && !exists {
        let data = Some([("text".to_owned(), format!("hello, {}", namespace.name()))].into());
        let greeting = ConfigMap { metadata: key.metadata(), data, ..ConfigMap::default() };
        context.api.create(&greeting).await.ignore_already_exists()?;
    }
    Ok(())
}
