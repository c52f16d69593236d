//! How the server reaches what users extend it with: the webhooks that objects in the cluster configure.
//!
//! Users choose these addresses, so every connection goes through a [`Dial`] that refuses some of them. Webhooks that the
//! operator of the server configures in files (authentication, authorization, audit) do not come this way.

mod resolver;

use std::sync::Arc;

pub use setpoint_webhook::in_process;
pub use setpoint_webhook::{Cidr, Dial, GuardedTcp, HostUsers};

pub(crate) use resolver::ServiceResolver;

/// The settings of outgoing calls to extensions.
#[derive(Clone)]
pub struct EgressConfig {
    /// Makes the connections.
    pub dial: Arc<dyn Dial>,
    /// Who the server is to mutating admission webhooks.
    pub mutating_users: HostUsers,
    /// Who the server is to validating admission webhooks.
    pub validating_users: HostUsers,
    /// Whether Services are only ever resolved to their endpoints (`--enable-aggregator-routing`): one of type
    /// ExternalName then has none.
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
