//! The `AlwaysAllow` and `AlwaysDeny` authorizers.

use futures::future::BoxFuture;

use super::User;
use super::authorize::{Attributes, Authorizer, Decision, UserRules};
use super::rbac::{MissingRole, RoleRef, Rule};

/// Allows every request, or none.
pub(super) enum Always {
    Allow,
    /// Returns no opinion, as v1.34 does, which has the same effect if it is the last authorizer.
    Deny,
}

impl Authorizer for Always {
    fn authorize<'a>(&'a self, _: &'a Attributes<'a>) -> BoxFuture<'a, Decision> {
        let decision = match self {
            Self::Allow => Decision::allow(""),
            Self::Deny => Decision::no_opinion("Everything is forbidden."),
        };
        Box::pin(std::future::ready(decision))
    }

    fn rules<'a>(&'a self, _: &'a User, _: Option<&'a str>) -> BoxFuture<'a, UserRules> {
        let rules = match self {
            Self::Allow => Rule::full_authority().to_vec(),
            Self::Deny => Vec::new(),
        };
        Box::pin(std::future::ready(UserRules { rules, ..UserRules::default() }))
    }

    fn role<'a>(&'a self, role: &'a RoleRef, _: Option<&'a str>) -> BoxFuture<'a, Result<Vec<Rule>, String>> {
        Box::pin(std::future::ready(Err(MissingRole::named(role).to_string())))
    }
}
