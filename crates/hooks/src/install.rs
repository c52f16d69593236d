//! Installs the kinds.

use setpoint::{Client, Clock, InstallError, install_kinds};

use crate::crds::definitions;
use crate::names::{composite_kind, decorator_kind, revision_kind};

const FIELD_MANAGER: &str = "setpoint-operator";

/// Installs or updates the CRDs. Changes nothing if they are up to date. Returns when they are served.
pub async fn install(client: &Client, clock: &Clock) -> Result<(), InstallError> {
    let kinds = [composite_kind(), decorator_kind(), revision_kind()];
    install_kinds(client, clock, FIELD_MANAGER, definitions(), &kinds).await
}
