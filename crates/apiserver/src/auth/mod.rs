//! Who asks, and whether they may.

mod authenticate;
mod authorize;
pub(crate) mod bootstrap;
pub(crate) mod impersonate;
pub(crate) mod legacy_tokens;
pub mod node;
mod node_graph;
pub mod rbac;
pub(crate) mod service_account;

pub use authenticate::{Authenticator, TokenFileError};
pub(crate) use authenticate::{Sender, Told};
pub(crate) use authorize::harmless;
pub use authorize::{Attributes, Authorizer, Decision, Held, MastersOnly};
pub use node::NodesAndRoles;
pub use rbac::Rbac;

use crate::names;

/// Who sent a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct User {
    pub name: String,
    pub uid: String,
    pub groups: Vec<String>,
    pub extra: std::collections::BTreeMap<String, Vec<String>>,
}

pub const MASTERS: &str = "system:masters";
pub const AUTHENTICATED: &str = "system:authenticated";
pub const UNAUTHENTICATED: &str = "system:unauthenticated";

impl User {
    /// A user who has shown who they are.
    pub fn authenticated(name: impl Into<String>, uid: impl Into<String>, groups: Vec<String>) -> Self {
        let mut user = Self { name: name.into(), uid: uid.into(), groups, ..Self::default() };
        if !user.is_in(AUTHENTICATED) {
            user.groups.push(AUTHENTICATED.into());
        }
        user
    }

    /// Somebody who has not said who they are.
    pub fn anonymous() -> Self {
        let groups = vec![UNAUTHENTICATED.into()];
        Self { name: "system:anonymous".into(), groups, ..Self::default() }
    }

    /// A part of this control plane, allowed everything.
    pub fn system(name: impl Into<String>) -> Self {
        Self::authenticated(name, "", vec![MASTERS.into()])
    }

    pub fn is_in(&self, group: &str) -> bool {
        self.groups.iter().any(|own| own == group)
    }
}

const SERVICE_ACCOUNT: &str = "system:serviceaccount:";

/// The user that a service account is.
pub fn service_account_name(namespace: &str, name: &str) -> String {
    format!("{SERVICE_ACCOUNT}{namespace}:{name}")
}

/// The groups that the service accounts of a namespace are in.
pub fn service_account_groups(namespace: &str) -> Vec<String> {
    vec!["system:serviceaccounts".into(), format!("system:serviceaccounts:{namespace}")]
}

/// The namespace and name of the service account that a user is.
pub fn split_service_account(user: &str) -> Option<(&str, &str)> {
    let (namespace, name) = user.strip_prefix(SERVICE_ACCOUNT)?.split_once(':')?;
    let is_valid = names::dns_label(namespace).is_empty() && names::dns_subdomain(name).is_empty();
    is_valid.then_some((namespace, name))
}
