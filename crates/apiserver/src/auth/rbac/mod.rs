//! RBAC: a request is allowed by the first matching rule of a role bound to the user.

mod rule;
mod view;

use std::sync::Arc;

use futures::future::BoxFuture;
use setpoint_store::{Error, Store};

use super::authorize::{Attributes, Authorizer, Decision, UserRules, Verdict};
use super::store_view::StoreView;
use super::{MASTERS, User};
pub(super) use view::View;

pub use rule::{Rule, RuleValues, compact, missing, quoted};
pub use view::{MissingRole, RoleRef};

/// Decides by the roles and bindings in a store. `system:masters` may do everything regardless.
pub struct Rbac {
    /// Loaded only when a user outside `system:masters` makes a request.
    view: StoreView<View>,
    /// Used instead of the store, if set.
    fixed: Option<Arc<View>>,
}

impl Rbac {
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self { view: StoreView::new(store), fixed: None }
    }

    /// Decides by these roles and bindings only, regardless of the store.
    pub(super) fn fixed(store: Arc<dyn Store>, view: Arc<View>) -> Self {
        Self { fixed: Some(view), ..Self::new(store) }
    }

    /// Runs `look` on the current roles and bindings.
    async fn with_view<T>(&self, look: impl FnOnce(&View) -> T) -> Result<T, Error> {
        match &self.fixed {
            Some(view) => Ok(look(view)),
            None => self.view.with(look).await,
        }
    }
}

fn unreadable(error: &Error) -> String {
    format!("RBAC: cannot read the roles: {error}")
}

fn decide(view: &View, attributes: &Attributes<'_>) -> Decision {
    let namespace = attributes.resource.and_then(|target| target.namespace.as_deref());
    let mut errors: Vec<String> = Vec::new();
    for grant in view.grants(attributes.user, namespace) {
        match view.rules_of(&grant) {
            Ok(rules) if rules.iter().any(|rule| rule.allows(attributes)) => {
                return Decision::allow(format!("RBAC: allowed by {grant}"));
            }
            Ok(_) => {}
            Err(missing) => note(&mut errors, &missing),
        }
    }
    let reason = match errors.as_slice() {
        [] => String::new(),
        [only] => format!("RBAC: {only}"),
        several => format!("RBAC: [{}]", several.join(", ")),
    };
    Decision::no_opinion(reason)
}

fn note(errors: &mut Vec<String>, missing: &MissingRole) {
    let text = missing.to_string();
    if !errors.contains(&text) {
        errors.push(text);
    }
}

fn held(view: &View, user: &User, namespace: Option<&str>) -> UserRules {
    let mut held = UserRules::default();
    for grant in view.grants(user, namespace) {
        match view.rules_of(&grant) {
            Ok(rules) => held.rules.extend_from_slice(rules),
            Err(missing) => note(&mut held.errors, &missing),
        }
    }
    held
}

impl Authorizer for Rbac {
    fn authorize<'a>(&'a self, attributes: &'a Attributes<'a>) -> BoxFuture<'a, Decision> {
        if attributes.user.is_in(MASTERS) {
            return Box::pin(std::future::ready(Decision::allow("")));
        }
        Box::pin(async move {
            let decision = self.with_view(|view| decide(view, attributes)).await;
            decision.unwrap_or_else(|error| Decision::failed(Verdict::NoOpinion, unreadable(&error)))
        })
    }

    fn rules<'a>(&'a self, user: &'a User, namespace: Option<&'a str>) -> BoxFuture<'a, UserRules> {
        Box::pin(async move {
            let held = self.with_view(|view| held(view, user, namespace)).await;
            held.unwrap_or_else(|error| UserRules {
                errors: vec![unreadable(&error)],
                ..UserRules::default()
            })
        })
    }

    fn role<'a>(
        &'a self,
        role: &'a RoleRef,
        namespace: Option<&'a str>,
    ) -> BoxFuture<'a, Result<Vec<Rule>, String>> {
        Box::pin(async move {
            let rules = self.with_view(|view| view.rules(role, namespace).map(<[Rule]>::to_vec)).await;
            rules.map_err(|error| unreadable(&error))?.map_err(|missing| missing.to_string())
        })
    }
}
