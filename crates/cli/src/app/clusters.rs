//! The clusters that an application has objects in, as a user of the local one reaches them.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use serde_json::Value;
use setpoint::discovery::{Discovered, discover};
use setpoint::{Client, Key};
use setpoint_oam::Credential;
use setpoint_oam::names::{LOCAL_CLUSTER, SYSTEM_NAMESPACE};
use setpoint_webhook::Tcp;

use super::connection::Connection;
use crate::cluster::secrets;
use crate::member_clusters;

/// How long another cluster may take to answer.
const WITHIN: Duration = Duration::from_secs(10);

/// Returns the cluster of a recorded object.
pub(super) fn cluster_of(entry: &Value) -> &str {
    entry["cluster"].as_str().filter(|name| !name.is_empty()).unwrap_or(LOCAL_CLUSTER)
}

/// A cluster that can be asked.
pub(super) struct Reached {
    pub(super) connection: Connection,
    pub(super) served: Discovered,
}

/// Connects to a cluster by its registered credential.
pub(super) async fn reached(hub: &Connection, name: &str) -> anyhow::Result<Reached> {
    let connection = match name {
        LOCAL_CLUSTER => hub.clone(),
        name => {
            let secret = hub.client.get(&secrets(), &Key::namespaced(SYSTEM_NAMESPACE, name)).await;
            let secret = secret.context("cannot read the credential of the cluster")?.decode()?;
            let credential = Credential::of_secret(&secret).map_err(anyhow::Error::msg)?;
            let kube = member_clusters::client(&credential, Arc::new(Tcp)).map_err(anyhow::Error::msg)?;
            let client = Client::new(kube.clone()).with_user_agent("setpoint").with_timeout(WITHIN);
            Connection { client, kube, namespace: hub.namespace.clone() }
        }
    };
    let served = discover(&connection.client).await.context("the cluster is unreachable")?;
    Ok(Reached { connection, served })
}
