//! Who asks, and whether they may.

mod authenticate;
mod authorize;

pub use authenticate::{Authenticator, TokenFileError};
pub use authorize::{Attributes, Authorizer, Decision, MastersOnly};

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
