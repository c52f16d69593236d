//! API aggregation: group versions served by extension API servers, registered by APIServices.
//!
//! ```text
//!  APIService ─► view ─► route: a group version of this server, or of an extension server
//!      ▲                   │
//!      │                   └─► proxy ─► backends: resolve, connect ─► the extension server
//!  registration: the APIServices of this server's own groups             ▲
//!  availability: the condition Available ◄─── probes ────────────────────┤
//!  discovery, openapi: documents, cached and merged with this server's ◄─┘
//! ```
//!
//! Invariants:
//! - A request is authenticated, queued, authorized and audited before it is forwarded.
//! - An extension server sees this server's certificate and the user's identity, but no credentials.
//! - Cached documents of extension servers are bounded in size and time. They never replace this server's own, except for
//!   the group version that the APIService takes over.

mod availability;
mod backends;
mod changes;
mod documents;
mod fetch;
mod groups;
mod headers;
mod metrics;
mod openapi;
mod proxy;
mod registration;
mod run;
mod services;
mod trust;
mod work;

use std::sync::Arc;

use setpoint_clock::{Clock, Rng};
use setpoint_store::Store;

use crate::auth::store_view::StoreView;
use crate::egress::{EgressConfig, ServiceResolver};
use crate::request::Target;
use crate::server::Server;
use crate::status::Status;

use self::backends::Backends;
pub use self::backends::ProxyIdentity;
pub(crate) use self::groups::{Discovered, RemoteVersion};
pub(crate) use self::metrics::AggregationMetrics;
pub(crate) use self::openapi::{Additions, Destination, OpenApis, Spec, add_kinds, serve as openapi_serve};
pub(crate) use self::proxy::Forward;
use self::registration::Settling;
pub(crate) use self::registration::{reconcile_custom, register_built_in};
use self::services::Remote;
pub(crate) use self::services::{ApiService, ApiServices};
pub(crate) use self::trust::publish as publish_trust;
pub use self::trust::{ClusterTrust, FrontProxyTrust, TrustSource};

/// The settings of aggregation.
#[derive(Clone)]
pub struct AggregationConfig {
    /// The client certificate for extension API servers.
    pub identity: ProxyIdentity,
    /// Whether a redirect by an extension server is an error (`--aggregator-reject-forwarding-redirect`).
    pub rejects_redirects: bool,
    /// What extension servers need to authenticate requests; it is published in `kube-system`.
    pub trust: Option<TrustSource>,
}

impl Default for AggregationConfig {
    fn default() -> Self {
        Self { identity: ProxyIdentity::default(), rejects_redirects: true, trust: None }
    }
}

/// The server's state for aggregation.
pub(crate) struct Aggregation {
    pub(crate) services: StoreView<ApiServices>,
    pub(crate) metrics: AggregationMetrics,
    pub(crate) discovered: Discovered,
    pub(crate) openapi: OpenApis,
    backends: Backends,
    settling: Settling,
    rejects_redirects: bool,
    trust: Option<TrustSource>,
    clock: Clock,
}

impl Aggregation {
    pub(crate) fn new(
        config: AggregationConfig,
        egress: &EgressConfig,
        store: &Arc<dyn Store>,
        clock: &Clock,
        rng: &Rng,
    ) -> Self {
        let resolver = ServiceResolver::new(store.clone(), rng.fork(), egress.endpoint_routing);
        Self {
            services: StoreView::new(store.clone()),
            metrics: AggregationMetrics::default(),
            discovered: Discovered::default(),
            openapi: OpenApis::default(),
            backends: Backends::new(egress.dial.clone(), resolver, config.identity),
            settling: Settling::default(),
            rejects_redirects: config.rejects_redirects,
            trust: config.trust,
            clock: clock.clone(),
        }
    }
}

impl Server {
    /// Runs `look` on the current APIServices.
    pub(crate) async fn api_services<T>(&self, look: impl FnOnce(&ApiServices) -> T) -> Result<T, Status> {
        self.aggregation.services.with(look).await.map_err(|why| self.refusal(why))
    }

    /// Whether an APIService still names this extension server.
    async fn has_remote(&self, name: &str, remote: &Arc<Remote>) -> bool {
        let found = self.api_services(|services| services.get(name).and_then(|one| one.remote.clone()));
        found.await.is_ok_and(|found| found.as_ref() == Some(remote))
    }

    /// Returns the APIService whose extension server handles a request, if any.
    pub(crate) async fn remote_for(&self, target: &Target<'_>) -> Result<Option<Arc<ApiService>>, Status> {
        if target.path.starts_with("//") {
            return Ok(None);
        }
        let (group, version) = match (target.segment(0), target.segment(1), target.segment(2)) {
            (Some("api"), ..) => ("", "v1"),
            (Some("apis"), Some(group), Some(version)) => (group, version),
            (Some("openapi"), Some("v3"), Some(_)) => return self.remote_document(target).await,
            _ => return Ok(None),
        };
        self.api_services(|services| {
            self.aggregation.backends.keep(services);
            services.remote(group, version)
        })
        .await
    }

    /// Returns the APIService whose server has an OpenAPI document.
    async fn remote_document(&self, target: &Target<'_>) -> Result<Option<Arc<ApiService>>, Status> {
        let path = target.path.strip_prefix("/openapi/v3/").unwrap_or_default();
        let registry = self.registry.snapshot();
        self.api_services(|services| self.aggregation.openapi.owner(services, &registry, path)).await
    }
}
