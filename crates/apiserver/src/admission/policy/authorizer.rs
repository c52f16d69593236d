//! `authorizer` in expressions: whether the user of a request may do something else as well.

use std::fmt;
use std::sync::Arc;

use futures::FutureExt;

use super::About;
use crate::auth::{
    Attributes, Authorizer, Decision, User, Verdict, service_account_groups, service_account_name,
};
use crate::cel::{Foreign, Val};
use crate::request::ResourceTarget;

/// Somebody, and what has been said so far of what they might do.
#[derive(Clone)]
struct Check {
    authorizer: Arc<dyn Authorizer>,
    user: User,
    what: What,
}

#[derive(Clone)]
enum What {
    /// Nothing yet.
    Anything,
    Path(String),
    Group(String),
    Resource(ResourceTarget),
}

/// What the authorizer has said.
#[derive(Debug)]
struct Decided(Decision);

/// The authorizer of a request's user.
pub(super) fn authorizer(about: &About<'_>) -> Val {
    check(about, What::Anything)
}

/// The same about what the request itself is about: all that is missing is a verb.
pub(super) fn request_resource(about: &About<'_>) -> Val {
    let review = about.review;
    let some = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    let target = ResourceTarget {
        group: review.served.kind.group.clone(),
        version: "*".into(),
        resource: review.served.kind.plural.clone(),
        namespace: review.namespace.map(Into::into),
        name: some(&review.name),
        subresource: some(about.part()),
        ..ResourceTarget::default()
    };
    check(about, What::Resource(target))
}

fn check(about: &About<'_>, what: What) -> Val {
    let review = about.review;
    let (authorizer, user) = (review.server.authorizer.clone(), review.user.clone());
    Val::Foreign(Arc::new(Check { authorizer, user, what }))
}

impl Check {
    fn with(&self, what: What) -> Val {
        Val::Foreign(Arc::new(Self { what, ..self.clone() }))
    }

    fn with_target(&self, target: &ResourceTarget, field: &str, value: &str) -> Val {
        let mut target = target.clone();
        let some = Some(value.to_owned()).filter(|value| !value.is_empty());
        match field {
            "subresource" => target.subresource = some,
            "namespace" => target.namespace = some,
            "name" => target.name = some,
            "fieldSelector" => target.field_selector = value.to_owned(),
            "labelSelector" => target.label_selector = value.to_owned(),
            _ => {}
        }
        self.with(What::Resource(target))
    }

    fn decide(&self, verb: &str) -> Val {
        let (path, resource) = match &self.what {
            What::Path(path) => (path.as_str(), None),
            What::Resource(target) => ("", Some(target)),
            What::Anything | What::Group(_) => ("", None),
        };
        let attributes = Attributes { user: &self.user, verb, path, resource };
        // Roles are in memory. Expressions cannot wait, so an authorizer that has to be waited for fails.
        let decision = self.authorizer.authorize(&attributes).now_or_never();
        let unknown = || Decision::failed(Verdict::NoOpinion, "the authorizer did not answer at once");
        Val::Foreign(Arc::new(Decided(decision.unwrap_or_else(unknown))))
    }
}

fn word(args: &[Val], at: usize) -> Result<&str, String> {
    match args.get(at) {
        Some(Val::String(text)) => Ok(text),
        _ => Err("no such overload".into()),
    }
}

impl Foreign for Check {
    fn type_name(&self) -> &str {
        match &self.what {
            What::Anything => "kubernetes.authorization.Authorizer",
            What::Path(_) => "kubernetes.authorization.PathCheck",
            What::Group(_) => "kubernetes.authorization.GroupCheck",
            What::Resource(_) => "kubernetes.authorization.ResourceCheck",
        }
    }

    fn call(&self, function: &str, args: &[Val]) -> Result<Val, String> {
        let first = word(args, 0)?;
        match (&self.what, function) {
            (What::Anything, "path") => Ok(self.with(What::Path(first.to_owned()))),
            (What::Anything, "group") => Ok(self.with(What::Group(first.to_owned()))),
            (What::Anything, "serviceAccount") => {
                let name = service_account_name(first, word(args, 1)?);
                let user = User::authenticated(name, "", service_account_groups(first));
                Ok(Val::Foreign(Arc::new(Self { user, ..self.clone() })))
            }
            (What::Group(group), "resource") => Ok(self.with(What::Resource(ResourceTarget {
                group: group.clone(),
                version: "*".into(),
                resource: first.to_owned(),
                ..ResourceTarget::default()
            }))),
            (What::Path(_) | What::Resource(_), "check") => Ok(self.decide(first)),
            (What::Resource(target), field) => Ok(self.with_target(target, field, first)),
            _ => Err("no such overload".into()),
        }
    }
}

impl Foreign for Decided {
    fn type_name(&self) -> &str {
        "kubernetes.authorization.Decision"
    }

    fn call(&self, function: &str, _: &[Val]) -> Result<Val, String> {
        match function {
            "allowed" => Ok(Val::Bool(self.0.is_allowed())),
            "reason" => Ok(Val::text(self.0.reason())),
            "errored" => Ok(Val::Bool(self.0.error.is_some())),
            "error" => Ok(Val::text(self.0.error.as_deref().unwrap_or_default())),
            _ => Err("no such overload".into()),
        }
    }
}

impl fmt::Debug for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct(self.type_name()).field("user", &self.user.name).finish_non_exhaustive()
    }
}
