//! Applies manifests: definitions first, then namespaces, everything else, and controllers last.

use std::time::Duration;

use anyhow::{Context, bail};
use serde_json::Value;
use setpoint::client::{IgnoreErrors, Subresource};
use setpoint::discovery::{Discovered, discover};
use setpoint::{Client, Clock, Key, Kind};

use super::NAME;

/// How long to wait until a new kind is served.
const SERVED_WITHIN: Duration = Duration::from_secs(30);
const CHECK_EVERY: Duration = Duration::from_millis(100);

/// The destination of objects.
pub(super) struct Namespace<'a> {
    /// The default namespace.
    pub(super) default: &'a str,
    /// Whether missing namespaces are created.
    pub(super) creates_missing: bool,
}

/// Applies manifests. Returns their number.
pub(super) async fn apply(
    client: &Client,
    clock: &Clock,
    namespace: &Namespace<'_>,
    manifests: &[Value],
) -> anyhow::Result<usize> {
    if manifests.is_empty() {
        return Ok(0);
    }
    let mut sorted: Vec<&Value> = manifests.iter().collect();
    sorted.sort_by_key(|manifest| rank(manifest));
    let mut known = Discovered::default();
    for manifest in &sorted {
        let kind = kind_of(client, clock, &mut known, manifest).await?;
        let name = manifest["metadata"]["name"].as_str().unwrap_or_default();
        let key = match kind.namespaced() {
            true => {
                Key::namespaced(manifest["metadata"]["namespace"].as_str().unwrap_or(namespace.default), name)
            }
            false => Key::cluster(name),
        };
        let apply = || client.apply(&kind, &key, Subresource::None, NAME, (*manifest).clone());
        let mut applied = apply().await;
        if let (Err(error), Some(missing), true) = (&applied, key.namespace(), namespace.creates_missing)
            && error.is_not_found()
        {
            create_namespace(client, missing).await?;
            applied = apply().await;
        }
        applied.with_context(|| format!("cannot apply {} {key}", kind.kind()))?;
    }
    Ok(sorted.len())
}

async fn create_namespace(client: &Client, name: &str) -> anyhow::Result<()> {
    let namespaces = Kind::new("", "v1", "Namespace", "namespaces", false);
    let body = serde_json::json!({"metadata": {"name": name}});
    let created = client.create(&namespaces, None, &body).await.ignore_already_exists();
    created.with_context(|| format!("cannot create the namespace {name}"))
}

fn rank(manifest: &Value) -> u8 {
    match manifest["kind"].as_str() {
        Some("CustomResourceDefinition") => 0,
        Some("Namespace") => 1,
        Some("CompositeController" | "DecoratorController") => 3,
        _ => 2,
    }
}

/// Returns the kind of a manifest. Waits for a kind that is not served yet.
async fn kind_of(
    client: &Client,
    clock: &Clock,
    known: &mut Discovered,
    manifest: &Value,
) -> anyhow::Result<Kind> {
    let text = |field: &str| manifest[field].as_str().unwrap_or_default();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    let give_up = clock.instant() + SERVED_WITHIN;
    loop {
        if let Some(kind) = known.kind(api_version, kind) {
            return Ok(kind.clone());
        }
        *known = discover(client).await.context("cannot discover the served kinds")?;
        if known.kind(api_version, kind).is_none() {
            if clock.instant() >= give_up {
                bail!(
                    "{kind} {}: the API server does not serve {kind} of {api_version}",
                    manifest["metadata"]["name"]
                );
            }
            clock.sleep(CHECK_EVERY).await;
        }
    }
}
