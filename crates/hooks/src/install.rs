//! Installs the kinds.

use std::time::Duration;

use setpoint::client::Subresource;
use setpoint::source::Selection;
use setpoint::{Client, ClientError, Clock, Key, Kind};

use crate::crds::definitions;
use crate::names::{composite_kind, decorator_kind, definition_kind, revision_kind};

/// How long a new kind may take until it is served.
const SERVED_WITHIN: Duration = Duration::from_secs(30);
const CHECK_EVERY: Duration = Duration::from_millis(50);
const FIELD_MANAGER: &str = "setpoint-operator";

/// Why the installation failed.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// The API server refused something.
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

/// Installs the kinds, or brings them up to date. Changes nothing if they are. Returns when they are served.
pub async fn install(client: &Client, clock: &Clock) -> Result<(), InstallError> {
    for definition in definitions() {
        let what = definition["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let key = Key::cluster(&what);
        let applied =
            client.apply(&definition_kind(), &key, Subresource::None, FIELD_MANAGER, definition).await;
        applied.map_err(|source| InstallError::Client { what, source })?;
    }
    for kind in [composite_kind(), decorator_kind(), revision_kind()] {
        served(client, clock, &kind).await?;
    }
    Ok(())
}

async fn served(client: &Client, clock: &Clock, kind: &Kind) -> Result<(), InstallError> {
    let give_up = clock.instant() + SERVED_WITHIN;
    loop {
        match client.list(kind, &Selection::default()).await {
            Ok(_) => return Ok(()),
            Err(error) if error.code() == Some(404) && clock.instant() < give_up => {
                clock.sleep(CHECK_EVERY).await
            }
            Err(error) if error.code() == Some(404) => return Err(InstallError::NotServed(kind.to_string())),
            Err(source) => return Err(InstallError::Client { what: kind.to_string(), source }),
        }
    }
}
