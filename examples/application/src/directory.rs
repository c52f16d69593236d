//! The ConfigMap with the addresses of all Applications of a namespace.
//!
//! It belongs to no single Application, so only this operator removes entries. That is what its finalizer is for.

use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::{Value, json};
use setpoint::client::{Patch, Subresource};
use setpoint::{Cached, Client, ClientError, Key, Kind};

use crate::Application;

/// The name of the ConfigMap.
pub const DIRECTORY: &str = "applications";

/// Returns the key of the ConfigMap for an Application.
pub(crate) fn key(application: &Key) -> Key {
    Key::namespaced(application.namespace().unwrap_or_default(), DIRECTORY)
}

/// Returns the address at which pods in the cluster reach an Application.
pub(crate) fn address(application: &Cached<Application>) -> String {
    let key = application.key();
    format!("{}.{}.svc:{}", key.name(), key.namespace().unwrap_or_default(), application.spec.port)
}

/// Sets an entry, or removes it (`None`).
pub(crate) async fn write(
    client: &Client,
    application: &Key,
    address: Option<&str>,
) -> Result<(), ClientError> {
    let (kind, key) = (Kind::of::<ConfigMap>(), key(application));
    let entry: Value = json!({"data": {application.name(): address}});
    match client.patch(&kind, &key, Subresource::None, Patch::merge(&entry)).await {
        Err(error) if error.is_not_found() && address.is_none() => Ok(()),
        Err(error) if error.is_not_found() => {
            let map = json!({"metadata": {"name": DIRECTORY}, "data": {application.name(): address}});
            client.create(&kind, key.namespace(), &map).await.map(drop)
        }
        written => written.map(drop),
    }
}
