//! What several servers on one store tell each other and their clients: where they are, and who they are.
//!
//! ```text
//!  every 10 seconds   lease of this server's address, 15 s  ─►  Endpoints and EndpointSlice of the kubernetes Service
//!                     Lease of this server's identity       ─►  for clients that list the servers
//! ```
//!
//! Servers on a store of their own do neither: they are alone, and write nothing while nothing changes.
//!
//! As in v1.34, servers do not forward requests to each other: the gate `UnknownVersionInteroperabilityProxy` is off by
//! default, and so is `StorageVersionAPI`.

mod endpoints;
mod identity;

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use self::identity::Identity;
use crate::server::ApiServer;

pub(crate) use self::endpoints::kubernetes_endpoints;

/// How often leases are renewed, as in v1.34.
const RENEW_EVERY: Duration = Duration::from_secs(10);
/// How long it may take to withdraw this server's address, as in v1.34.
const WITHDRAW_WITHIN: Duration = Duration::from_secs(20);

impl ApiServer {
    /// Announces this server to clients and to the other servers, until `stop`. Withdraws its address as soon as the
    /// shutdown begins, so that clients choose another server.
    pub(crate) async fn announce(&self, stop: CancellationToken) {
        let server = &*self.0;
        if !server.store.is_shared() {
            return;
        }
        let mut identity = server.hostname.as_deref().map(|hostname| Identity::new(hostname, &server.rng));
        loop {
            if let Err(why) = endpoints::publish(server).await {
                tracing::warn!(why = why.message, "cannot update the endpoints of the kubernetes Service");
            }
            if let Some(identity) = &mut identity {
                identity.keep(server).await;
            }
            tokio::select! {
                biased;
                () = server.stopping.cancelled() => break,
                () = stop.cancelled() => break,
                () = server.clock.sleep(RENEW_EVERY) => {}
            }
        }
        tokio::select! {
            biased;
            withdrawn = endpoints::withdraw(server) => if let Err(why) = withdrawn {
                tracing::warn!(why = why.message, "cannot remove this server from the kubernetes Service");
            },
            () = server.clock.sleep(WITHDRAW_WITHIN) => {
                tracing::warn!("the store did not remove this server from the kubernetes Service in time");
            }
        }
    }
}
