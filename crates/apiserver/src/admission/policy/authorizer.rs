//! The `authorizer` CEL variable: checks whether the request's user may do something else as well.
//!
//! Expressions cannot wait, but authorizers may have to: for roles still being loaded, or for a webhook. A check
//! without an immediate answer is an error and is recorded in [`Checks`]. The expressions are evaluated again once it
//! is answered, so no result is ever based on an unanswered check.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use parking_lot::Mutex;

use crate::admission::Review;
use crate::admission::attributes::VersionedAttributes;
use crate::auth::{Attributes, Authorizer, Decision, User, service_account_groups, service_account_name};
use crate::cel::{Foreign, Val};
use crate::chain::deadline_exceeded;
use crate::names;
use crate::request::ResourceTarget;
use crate::status::Status;

/// Maximum number of evaluations until all checks are answered, and of checks that one evaluation can leave open. A check
/// costs 350,000 of a budget of 10,000,000, so a policy can have at most 28.
const MAX_ROUNDS: usize = 32;
/// Above this number, answers are dropped between evaluations. A policy with thousands of params may make different
/// checks for each; at some 500 bytes, this is 5 MB.
const MAX_KNOWN: usize = 10_000;

/// An authorization query.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct AuthorizationCheck {
    user: User,
    verb: String,
    path: String,
    resource: Option<ResourceTarget>,
}

/// A request's authorization checks, answered and pending.
#[derive(Clone)]
pub(in crate::admission) struct Checks {
    authorizer: Arc<dyn Authorizer>,
    known: Arc<Mutex<BTreeMap<AuthorizationCheck, Decision>>>,
    open: Arc<Mutex<BTreeMap<AuthorizationCheck, BoxFuture<'static, Decision>>>>,
}

impl Checks {
    pub(in crate::admission) fn new(authorizer: Arc<dyn Authorizer>) -> Self {
        Self { authorizer, known: Arc::default(), open: Arc::default() }
    }

    /// Evaluates expressions until all their checks are answered, and returns the result. Fails if the client stops waiting
    /// for the request.
    pub(in crate::admission) async fn resolve_checks<T>(
        &self,
        review: &Review<'_>,
        evaluate: impl Fn() -> T,
    ) -> Result<T, Status> {
        self.forget_many();
        for _ in 1..MAX_ROUNDS {
            review.check_time()?;
            let outcome = evaluate();
            // An evaluation may take a tenth of a second, and a request may need thousands: yield to other tasks.
            tokio::task::yield_now().await;
            if !self.answer(review).await? {
                return Ok(outcome);
            }
        }
        review.check_time()?;
        Ok(evaluate())
    }

    fn forget_many(&self) {
        let mut known = self.known.lock();
        if known.len() > MAX_KNOWN {
            known.clear();
        }
    }

    /// Waits for pending checks; false if there were none.
    async fn answer(&self, review: &Review<'_>) -> Result<bool, Status> {
        let open = std::mem::take(&mut *self.open.lock());
        if open.is_empty() {
            return Ok(false);
        }
        let mut deciding: FuturesUnordered<_> =
            open.into_iter().map(|(check, deciding)| deciding.map(|decision| (check, decision))).collect();
        let all = async {
            while let Some((check, decision)) = deciding.next().await {
                self.known.lock().insert(check, decision);
            }
        };
        tokio::select! {
            biased;
            () = all => Ok(true),
            given_up = review.given_up() => Err(given_up),
            () = out_of_time(review) => Err(deadline_exceeded()),
        }
    }

    /// Returns the decision, if already known.
    fn decide(&self, check: AuthorizationCheck) -> Option<Decision> {
        if let Some(decision) = self.known.lock().get(&check) {
            return Some(decision.clone());
        }
        let mut open = self.open.lock();
        if open.len() >= MAX_ROUNDS || open.contains_key(&check) {
            return None;
        }
        let (authorizer, asked) = (self.authorizer.clone(), check.clone());
        let mut deciding = async move { authorizer.authorize(&asked.attributes()).await }.boxed();
        let decision = deciding.as_mut().now_or_never();
        if decision.is_none() {
            open.insert(check, deciding);
        }
        decision
    }
}

/// Waits until the request's time is up.
async fn out_of_time(review: &Review<'_>) {
    match review.time_left() {
        Some(left) => review.server.clock.sleep(left).await,
        None => std::future::pending().await,
    }
}

impl AuthorizationCheck {
    fn attributes(&self) -> Attributes<'_> {
        Attributes { user: &self.user, verb: &self.verb, path: &self.path, resource: self.resource.as_ref() }
    }
}

/// A CEL check under construction: a user, and the target chosen so far.
#[derive(Clone)]
struct Check {
    checks: Checks,
    user: User,
    what: CheckTarget,
}

#[derive(Clone)]
enum CheckTarget {
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
    check(about, CheckTarget::Anything)
}

/// Builds `authorizer.requestResource`, which targets the request's own resource: only a verb is missing.
pub(in crate::admission) fn request_resource(about: &VersionedAttributes<'_>) -> Val {
    let review = about.review;
    let some = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    let target = ResourceTarget {
        group: review.served.kind.group.clone(),
        version: "*".into(),
        resource: review.served.kind.plural.clone(),
        namespace: some(about.namespace_name()),
        name: some(about.name()),
        subresource: some(about.subresource()),
        ..ResourceTarget::default()
    };
    check(about, CheckTarget::Resource(Box::new(target)))
}

fn check(about: &VersionedAttributes<'_>, what: CheckTarget) -> Val {
    let review = about.review;
    Val::Foreign(Arc::new(Check { checks: about.checks().clone(), user: review.user.clone(), what }))
}

impl Check {
    fn with(&self, what: CheckTarget) -> Val {
        Val::Foreign(Arc::new(Self { what, ..self.clone() }))
    }

    /// The same for a service account, which is only in the service account groups, as in v1.34.
    fn with_service_account(&self, namespace: &str, name: &str) -> Result<Val, String> {
        if !names::dns_subdomain(name).is_empty() {
            return Err("Invalid service account name".into());
        }
        if !names::dns_label(namespace).is_empty() {
            return Err("Invalid service account namespace".into());
        }
        let user = User {
            name: service_account_name(namespace, name),
            groups: service_account_groups(namespace),
            ..User::default()
        };
        Ok(Val::Foreign(Arc::new(Self { user, ..self.clone() })))
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
        self.with(CheckTarget::Resource(Box::new(target)))
    }

    fn decide(&self, verb: &str) -> Result<Val, String> {
        let (path, resource) = match &self.what {
            CheckTarget::Path(path) => (path.clone(), None),
            CheckTarget::Resource(target) => (String::new(), Some((**target).clone())),
            CheckTarget::Anything | CheckTarget::Group(_) => (String::new(), None),
        };
        let check = AuthorizationCheck { user: self.user.clone(), verb: verb.to_owned(), path, resource };
        let decision = self.checks.decide(check).ok_or("the authorizer has not answered yet")?;
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
            CheckTarget::Anything => "kubernetes.authorization.Authorizer",
            CheckTarget::Path(_) => "kubernetes.authorization.PathCheck",
            CheckTarget::Group(_) => "kubernetes.authorization.GroupCheck",
            CheckTarget::Resource(_) => "kubernetes.authorization.ResourceCheck",
        }
    }

    fn call(&self, function: &str, args: &[Val]) -> Result<Val, String> {
        let first = word(args, 0)?;
        match (&self.what, function) {
            (CheckTarget::Anything, "path") if first.trim().is_empty() => {
                Err("path must not be empty".into())
            }
            (CheckTarget::Anything, "path") => Ok(self.with(CheckTarget::Path(first.to_owned()))),
            (CheckTarget::Anything, "group") => Ok(self.with(CheckTarget::Group(first.to_owned()))),
            (CheckTarget::Anything, "serviceAccount") => self.with_service_account(first, word(args, 1)?),
            (CheckTarget::Group(_), "resource") if first.trim().is_empty() => {
                Err("resource must not be empty".into())
            }
            (CheckTarget::Group(group), "resource") => {
                Ok(self.with(CheckTarget::Resource(Box::new(ResourceTarget {
                    group: group.clone(),
                    version: "*".into(),
                    resource: first.to_owned(),
                    ..ResourceTarget::default()
                }))))
            }
            (CheckTarget::Path(_) | CheckTarget::Resource(_), "check") => self.decide(first),
            (CheckTarget::Resource(target), field) => Ok(self.with_target(target, field, first)),
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
