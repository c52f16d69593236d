//! The ConfigMap with the addresses of all Applications of a namespace.
//!
//! It belongs to no single Application, so only this operator removes entries. That is what its finalizer is for.

use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::json;
use setpoint::client::{Patch, Subresource};
use setpoint::prelude::*;

use crate::Application;

/// The name of the ConfigMap.
pub const DIRECTORY: &str = "applications";

/// Adds the address at which pods in the cluster reach an Application.
pub(crate) async fn add(application: &Cached<Application>, context: &Context) -> Result<(), ReconcileError> {
    let (name, namespace) = (application.name(), application.namespace().unwrap_or_default());
    let address = format!("{name}.{namespace}.svc:{}", application.spec.port);
    let listed = context.cached::<ConfigMap>(&application.key().sibling(DIRECTORY)).await?;
    match listed.as_ref().and_then(|map| map.data.as_ref()?.get(name)) {
        Some(known) if *known == address => Ok(()),
        _ => write(application, context, Some(&address)).await,
    }
}

/// Removes the entry of an Application.
pub(crate) async fn remove(application: Cached<Application>, context: Context) -> Result<(), ReconcileError> {
    write(&application, &context, None).await
}

async fn write(
    application: &Cached<Application>,
    context: &Context,
    address: Option<&str>,
) -> Result<(), ReconcileError> {
    let (kind, key) = (Kind::of::<ConfigMap>(), application.key().sibling(DIRECTORY));
    let data = json!({application.name(): address});
    let patch = Patch::merge(&json!({"data": data}));
    let patched = context.client.patch(&kind, &key, Subresource::None, patch).await.optional();
    if patched.attempting(|| format!("update the directory {key}"))?.is_none() && address.is_some() {
        let directory = json!({"metadata": key.metadata(), "data": data});
        context.api.of_kind(&kind).create(&directory).await?;
    }
    Ok(())
}
