//! Outgoing connections into the cluster: webhooks configured by objects, extension API servers, kubelets and pods.
//!
//! Users choose these addresses, so every connection goes through a [`Dial`] that rejects denied ones. Webhooks that
//! the operator configures in files (authentication, authorization, audit) do not use this path.

mod client_config;
mod resolver;

use std::sync::Arc;

pub use setpoint_webhook::in_process;
pub use setpoint_webhook::{Cidr, Dial, Dialed, GuardedTcp, HostUsers};

pub(crate) use client_config::client_config;
pub(crate) use resolver::ServiceResolver;

/// The settings of outgoing calls to extensions.
#[derive(Clone)]
pub struct EgressConfig {
    /// Opens the connections.
    pub dial: Arc<dyn Dial>,
    /// The server's credentials for mutating admission webhooks.
    pub mutating_users: HostUsers,
    /// The server's credentials for validating admission webhooks.
    pub validating_users: HostUsers,
    /// Whether Services are only resolved to endpoints (`--enable-aggregator-routing`). Services of type ExternalName
    /// then cannot be resolved.
    pub endpoint_routing: bool,
}

impl Default for EgressConfig {
    /// Over the network, except to link-local addresses, and without credentials.
    fn default() -> Self {
        Self {
            dial: Arc::new(GuardedTcp::new(Cidr::link_local())),
            mutating_users: HostUsers::default(),
            validating_users: HostUsers::default(),
            endpoint_routing: false,
        }
    }
}
