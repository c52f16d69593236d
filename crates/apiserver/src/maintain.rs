//! Background work of a server: compaction, CRDs, addresses and ports of services, token tracking, APIServices, the objects
//! and limits of priority and fairness, and what several servers tell each other.

use std::time::Duration;

use setpoint_store::Revision;
use tokio_util::sync::CancellationToken;

use crate::custom::definitions::DefinitionChanges;
use crate::flow::FlowController;
use crate::server::ApiServer;
use crate::services::repair;

/// How often to remove expired objects.
const EXPIRE_EVERY: Duration = Duration::from_secs(10);
const ROUNDS_PER_MINUTE: u32 = 6;
/// How often the addresses and ports of services are repaired: three minutes, as in v1.34.
const ROUNDS_PER_REPAIR: u32 = 18;
/// Minimum retention of history, as in v1.34: a watch or a page of a list may be this far behind.
const KEEP_HISTORY: Duration = Duration::from_secs(300);

impl ApiServer {
    /// Removes expired objects, compacts history, processes CRDs, maintains token tracking and recreates the server's
    /// own objects, until `stop`. Run it once beside the server.
    ///
    /// Also runs issuer discovery, and watches the configuration of authentication and authorization.
    pub async fn maintain(&self, stop: CancellationToken) {
        let server = &self.0;
        let following = server.authorizer.follow(stop.clone());
        let aggregating = self.aggregate(stop.clone());
        let announcing = self.announce(stop.clone());
        tokio::join!(
            self.clean(stop.clone()),
            server.authenticator.run(stop),
            following,
            aggregating,
            announcing
        );
    }

    /// Probes extension API servers and reads their documents, until `stop`. A part of
    /// [`maintain`](Self::maintain), for simulations that need no more of it.
    pub async fn aggregate(&self, stop: CancellationToken) {
        self.0.run_aggregation(stop).await;
    }

    async fn clean(&self, stop: CancellationToken) {
        let mut checkpoint: Revision = self.revision();
        let mut since_checkpoint = Duration::ZERO;
        let mut round = 0;
        let mut keeper = FlowController::new();
        let mut definitions = DefinitionChanges::default();
        let mut next = self.0.clock.instant();
        keeper.keep(&self.0).await;
        loop {
            next = next.max(self.0.clock.instant()) + EXPIRE_EVERY;
            loop {
                tokio::select! {
                    biased;
                    () = stop.cancelled() => return,
                    () = self.0.clock.sleep_until(next) => break,
                    () = keeper.changed(&self.0) => keeper.keep(&self.0).await,
                    () = definitions.next(&self.0) => self.0.reconcile_definitions().await,
                }
            }
            self.expire().await;
            if let Some(fair) = self.0.flow.as_ref().and_then(|flow| flow.fair()) {
                fair.adjust().await;
            }
            keeper.keep(&self.0).await;
            self.0.reconcile_definitions().await;
            self.0.keep_token_tracking().await;
            round = (round + 1) % ROUNDS_PER_REPAIR;
            self.recreate_system_objects(round % ROUNDS_PER_MINUTE != 0).await;
            if round == 0 {
                self.repair_services().await;
            }
            since_checkpoint += EXPIRE_EVERY;
            if since_checkpoint >= KEEP_HISTORY {
                self.compact(checkpoint).await;
                checkpoint = self.revision();
                since_checkpoint = Duration::ZERO;
            }
        }
    }

    async fn repair_services(&self) {
        if let Err(why) = repair::repair(&self.0).await {
            tracing::warn!(why = why.message, "cannot repair the addresses and ports of services");
        }
    }

    async fn expire(&self) {
        match self.0.store.expire(self.0.clock.now()).await {
            Ok(0) => {}
            Ok(removed) => tracing::debug!(removed, "removed expired objects"),
            Err(error) => tracing::warn!(%error, "cannot remove expired objects"),
        }
    }

    async fn compact(&self, revision: Revision) {
        if let Err(error) = self.0.store.compact(revision).await {
            tracing::warn!(%error, revision, "cannot compact old history");
        }
    }
}
