//! The `authorizer` CEL variable: checks whether the request's user may do something else as well.
//!
//! Expressions cannot wait, but authorizers may have to: for roles still being loaded, or for a webhook. A check
//! without an immediate answer is an error and is recorded in [`Checks`]. The expressions are evaluated again once it
//! is answered, so no result is ever based on an unanswered check.

use std::fmt;
use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::Mutex;

use crate::admission::attributes::VersionedAttributes;
use crate::auth::{Attributes, Authorizer, Decision, User, service_account_groups, service_account_name};
use crate::cel::{Foreign, Val};
use crate::request::ResourceTarget;

/// Maximum number of evaluations until all checks are answered. A check costs 350,000 of a budget of 10,000,000, so a
/// policy can have at most 28.
const ROUNDS: usize = 32;

/// An authorization query.
#[derive(Clone, PartialEq, Eq)]
struct Question {
    user: User,
    verb: String,
    path: String,
    resource: Option<ResourceTarget>,
}

/// A query that the authorizer has not answered yet.
type Open = (Question, BoxFuture<'static, Decision>);

/// A request's authorization checks, answered and pending.
#[derive(Clone)]
pub(in crate::admission) struct Checks {
    authorizer: Arc<dyn Authorizer>,
    known: Arc<Mutex<Vec<(Question, Decision)>>>,
    open: Arc<Mutex<Vec<Open>>>,
}

impl Checks {
    pub(in crate::admission) fn new(authorizer: Arc<dyn Authorizer>) -> Self {
        Self { authorizer, known: Arc::default(), open: Arc::default() }
    }

    /// Evaluates expressions until all their checks are answered, and returns the result.
    pub(in crate::admission) async fn settle<T>(&self, evaluate: impl Fn() -> T) -> T {
        for _ in 1..ROUNDS {
            let outcome = evaluate();
            if !self.answer().await {
                return outcome;
            }
        }
        evaluate()
    }

    /// Waits for pending checks; false if there were none.
    async fn answer(&self) -> bool {
        let open = std::mem::take(&mut *self.open.lock());
        let were_open = !open.is_empty();
        for (question, deciding) in open {
            let decision = deciding.await;
            self.known.lock().push((question, decision));
        }
        were_open
    }

    /// Returns the decision, if already known.
    fn decide(&self, question: Question) -> Option<Decision> {
        if let Some((_, decision)) = self.known.lock().iter().find(|(known, _)| *known == question) {
            return Some(decision.clone());
        }
        let mut open = self.open.lock();
        if open.iter().any(|(asked, _)| *asked == question) {
            return None;
        }
        let (authorizer, asked) = (self.authorizer.clone(), question.clone());
        let mut deciding = async move { authorizer.authorize(&asked.attributes()).await }.boxed();
        let decision = deciding.as_mut().now_or_never();
        if decision.is_none() {
            open.push((question, deciding));
        }
        decision
    }
}

impl Question {
    fn attributes(&self) -> Attributes<'_> {
        Attributes { user: &self.user, verb: &self.verb, path: &self.path, resource: self.resource.as_ref() }
    }
}

/// A CEL check under construction: a user, and the target chosen so far.
#[derive(Clone)]
struct Check {
    checks: Checks,
    user: User,
    what: What,
}

#[derive(Clone)]
enum What {
    /// No target chosen yet.
    Anything,
    Path(String),
    Group(String),
    Resource(Box<ResourceTarget>),
}

/// The decision, as a CEL value.
#[derive(Debug)]
struct Decided(Decision);

/// Builds the `authorizer` variable for the request's user.
pub(in crate::admission) fn authorizer(about: &VersionedAttributes<'_>) -> Val {
    check(about, What::Anything)
}

/// Builds `authorizer.requestResource`, which targets the request's own resource: only a verb is missing.
pub(in crate::admission) fn request_resource(about: &VersionedAttributes<'_>) -> Val {
    let review = about.review;
    let some = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    let target = ResourceTarget {
        group: review.served.kind.group.clone(),
        version: "*".into(),
        resource: review.served.kind.plural.clone(),
        namespace: review.namespace.map(Into::into),
        name: some(&review.name),
        subresource: some(about.subresource()),
        ..ResourceTarget::default()
    };
    check(about, What::Resource(Box::new(target)))
}

fn check(about: &VersionedAttributes<'_>, what: What) -> Val {
    let review = about.review;
    Val::Foreign(Arc::new(Check { checks: about.checks().clone(), user: review.user.clone(), what }))
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
        self.with(What::Resource(Box::new(target)))
    }

    fn decide(&self, verb: &str) -> Result<Val, String> {
        let (path, resource) = match &self.what {
            What::Path(path) => (path.clone(), None),
            What::Resource(target) => (String::new(), Some((**target).clone())),
            What::Anything | What::Group(_) => (String::new(), None),
        };
        let question = Question { user: self.user.clone(), verb: verb.to_owned(), path, resource };
        let decision = self.checks.decide(question).ok_or("the authorizer has not answered yet")?;
        Ok(Val::Foreign(Arc::new(Decided(decision))))
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
            (What::Group(group), "resource") => Ok(self.with(What::Resource(Box::new(ResourceTarget {
                group: group.clone(),
                version: "*".into(),
                resource: first.to_owned(),
                ..ResourceTarget::default()
            })))),
            (What::Path(_) | What::Resource(_), "check") => self.decide(first),
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
