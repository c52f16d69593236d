//! The controllers' service accounts, as objects in `kube-system`.
//!
//! With `--use-service-account-credentials`, kube-controller-manager creates a controller's account when it first
//! requests a token for it. Controllers in this process need no token, but clients still expect the accounts. Existing
//! accounts are left alone.

use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::json;
use setpoint::{Client, ClientError, Clock, Key, Kind, Runnable};
use tokio_util::sync::CancellationToken;

use crate::identity::NAMESPACE;

/// The delay after a failure.
const RETRY: Duration = Duration::from_secs(1);

/// A runnable that creates the missing accounts once.
pub(crate) struct Accounts {
    pub(crate) client: Client,
    pub(crate) clock: Clock,
    pub(crate) names: Vec<&'static str>,
}

impl Accounts {
    async fn ensure(&self, name: &str) -> Result<(), ClientError> {
        let kind = Kind::new("", "v1", "ServiceAccount", "serviceaccounts", true);
        match self.client.get(&kind, &Key::namespaced(NAMESPACE, name)).await {
            Err(error) if error.is_not_found() => {}
            found => return found.map(drop),
        }
        let account = json!({"metadata": {"name": name, "namespace": NAMESPACE}});
        match self.client.create(&kind, Some(NAMESPACE), &account).await {
            Err(error) if error.is_already_exists() => Ok(()),
            created => created.map(drop),
        }
    }

    async fn ensure_all(&self) {
        for name in &self.names {
            while let Err(error) = self.ensure(name).await {
                tracing::warn!(account = name, %error, "cannot create the service account of a controller");
                self.clock.sleep(RETRY).await;
            }
        }
    }
}

impl Runnable for Accounts {
    fn name(&self) -> &str {
        "controller-accounts"
    }

    fn run(self: Box<Self>, stop: CancellationToken) -> BoxFuture<'static, ()> {
        async move {
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = self.ensure_all() => {}
            }
            stop.cancelled().await;
        }
        .boxed()
    }
}
