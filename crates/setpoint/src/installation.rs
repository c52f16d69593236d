//! Installs kinds: writes their CustomResourceDefinitions and waits until they are served.

use std::time::Duration;

use serde_json::Value;

use crate::client::Subresource;
use crate::source::Selection;
use crate::{Client, ClientError, Clock, Key, Kind};

/// How long to wait until a new kind is served.
const SERVED_WITHIN: Duration = Duration::from_secs(30);
const CHECK_EVERY: Duration = Duration::from_millis(50);

/// Why kinds could not be installed.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// The API server rejected a request.
    #[error("cannot install {what}")]
    Client {
        /// What was being installed.
        what: String,
        /// Why it failed.
        source: ClientError,
    },
    /// A kind was accepted but is not served.
    #[error("{0} is not served although its definition was accepted")]
    NotServed(String),
}

/// Applies CustomResourceDefinitions as the field manager `manager`, and returns when all of `kinds` are served. Changes
/// nothing if they are up to date.
///
/// ```no_run
/// # async fn example(client: setpoint::Client, clock: setpoint::Clock) -> Result<(), Box<dyn std::error::Error>> {
/// use setpoint::Kind;
/// let definition = serde_json::json!({"metadata": {"name": "gadgets.example.com"}, "spec": {"group": "example.com"}});
/// let gadgets = Kind::new("example.com", "v1", "Gadget", "gadgets", true);
/// setpoint::install_kinds(&client, &clock, "gadget-operator", [definition], &[gadgets]).await?;
/// # Ok(()) }
/// ```
pub async fn install_kinds(
    client: &Client,
    clock: &Clock,
    manager: &str,
    definitions: impl IntoIterator<Item = Value>,
    kinds: &[Kind],
) -> Result<(), InstallError> {
    for definition in definitions {
        let what = definition["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let key = Key::cluster(&what);
        let applied = client.apply(&definition_kind(), &key, Subresource::None, manager, definition).await;
        applied.map_err(|source| InstallError::Client { what, source })?;
    }
    for kind in kinds {
        served(client, clock, kind).await?;
    }
    Ok(())
}

/// Waits until the API server serves a kind.
async fn served(client: &Client, clock: &Clock, kind: &Kind) -> Result<(), InstallError> {
    let give_up = clock.instant() + SERVED_WITHIN;
    loop {
        match client.list(kind, &Selection::default()).await {
            Ok(_) => return Ok(()),
            Err(error) if error.code() == Some(404) && clock.instant() < give_up => {
                clock.sleep(CHECK_EVERY).await;
            }
            Err(error) if error.code() == Some(404) => return Err(InstallError::NotServed(kind.to_string())),
            Err(source) => return Err(InstallError::Client { what: kind.to_string(), source }),
        }
    }
}

fn definition_kind() -> Kind {
    Kind::new("apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions", false)
}
