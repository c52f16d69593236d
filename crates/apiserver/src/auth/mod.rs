//! Authentication and authorization: who sends a request, and whether they may.
//!
//! ```text
//!  request ─► front proxy │ client certificate │ bearer token ─► user ─► impersonation ─► authorizers
//!                                   │                                                      │
//!       token file, service accounts, bootstrap tokens, JWT issuers, webhook   Node, RBAC, webhooks, always
//! ```
//!
//! Invariants:
//! - an invalid credential is never treated as no credential: it results in 401, not in an anonymous user;
//! - an authorizer that fails allows nothing;
//! - headers that name a user are ignored unless the request comes with a front proxy's verified certificate.

mod access_review;
mod access_webhook;
mod aggregate;
mod always;
mod authenticate;
mod authorization_config;
mod authorize;
pub(crate) mod bootstrap;
mod bootstrap_tokens;
mod config_file;
mod expiring;
mod front_proxy;
pub(crate) mod impersonate;
mod jwt;
pub(crate) mod legacy_tokens;
mod match_conditions;
pub(crate) mod metrics;
pub mod node;
pub mod rbac;
mod reload;
pub(crate) mod service_account;
pub(crate) mod store_view;
mod token_cache;
mod token_file;
mod token_webhook;
mod union;

pub use access_webhook::WebhookOptions;
pub(crate) use aggregate::aggregate;
pub use authenticate::{Anonymous, AuthenticationError, Authenticator};
pub use authorization_config::{AuthorizationConfig, AuthorizerKind, KubeconfigSource};
pub(crate) use authorize::escape_html;
pub use authorize::{Attributes, Authorizer, Decision, MastersOnly, UserRules, Verdict};
pub use config_file::ConfigError;
pub use front_proxy::FrontProxy;
pub use jwt::{JwtConfig, OidcFlags};
pub use metrics::AuthMetrics;
pub use node::Nodes;
pub use rbac::Rbac;
pub use service_account::ServiceAccounts;
pub use token_file::TokenFileError;
pub use token_webhook::TokenWebhook;
pub use union::{Authorizers, Outbound};

use crate::names;

/// The user who sent a request.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct User {
    pub name: String,
    pub uid: String,
    pub groups: Vec<String>,
    pub extra: std::collections::BTreeMap<String, Vec<String>>,
}

const ANONYMOUS: &str = "system:anonymous";
pub const MASTERS: &str = "system:masters";
pub const AUTHENTICATED: &str = "system:authenticated";
pub const UNAUTHENTICATED: &str = "system:unauthenticated";

impl User {
    /// Creates an authenticated user.
    pub fn authenticated(name: impl Into<String>, uid: impl Into<String>, groups: Vec<String>) -> Self {
        let mut user = Self { name: name.into(), uid: uid.into(), groups, ..Self::default() };
        if !user.is_in(AUTHENTICATED) {
            user.groups.push(AUTHENTICATED.into());
        }
        user
    }

    /// Returns the user of requests without credentials.
    pub fn anonymous() -> Self {
        let groups = vec![UNAUTHENTICATED.into()];
        Self { name: ANONYMOUS.into(), groups, ..Self::default() }
    }

    /// Creates the user of a control plane component, with full access.
    pub fn system(name: impl Into<String>) -> Self {
        Self::authenticated(name, "", vec![MASTERS.into()])
    }

    /// Adds the user to `system:authenticated`, unless they are anonymous.
    #[must_use]
    pub(crate) fn known(mut self) -> Self {
        if self.name != ANONYMOUS && !self.is_in(AUTHENTICATED) && !self.is_in(UNAUTHENTICATED) {
            self.groups.push(AUTHENTICATED.into());
        }
        self
    }

    pub fn is_in(&self, group: &str) -> bool {
        self.groups.iter().any(|own| own == group)
    }
}

const SERVICE_ACCOUNT: &str = "system:serviceaccount:";

/// Returns the user name of a service account.
pub fn service_account_name(namespace: &str, name: &str) -> String {
    format!("{SERVICE_ACCOUNT}{namespace}:{name}")
}

/// Returns the groups of the service accounts in a namespace.
pub fn service_account_groups(namespace: &str) -> Vec<String> {
    vec!["system:serviceaccounts".into(), format!("system:serviceaccounts:{namespace}")]
}

/// Splits a service account's user name into namespace and name.
pub fn split_service_account(user: &str) -> Option<(&str, &str)> {
    let (namespace, name) = user.strip_prefix(SERVICE_ACCOUNT)?.split_once(':')?;
    let is_valid = names::dns_label(namespace).is_empty() && names::dns_subdomain(name).is_empty();
    is_valid.then_some((namespace, name))
}
