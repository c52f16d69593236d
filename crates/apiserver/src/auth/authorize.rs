//! Whether a user may do what they ask for.

use futures::future::BoxFuture;
use tokio_util::sync::CancellationToken;

use super::rbac::{MissingRole, RoleRef, Rule};
use super::{AUTHENTICATED, MASTERS, User};
use crate::request::ResourceTarget;
use crate::status::{Named, Status};

/// What is asked for.
#[derive(Clone, Debug)]
pub struct Attributes<'a> {
    pub user: &'a User,
    /// `get`, `list`, …; for other paths than those of objects the method in lower case.
    pub verb: &'a str,
    pub path: &'a str,
    pub resource: Option<&'a ResourceTarget>,
}

/// What an authorizer concludes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Allow,
    /// No other authorizer is asked.
    Deny,
    /// Others decide; if none does, the request is not allowed.
    NoOpinion,
}

/// What an authorizer has to say. The reason may be empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    pub verdict: Verdict,
    pub reason: String,
    /// What went wrong on the way to the verdict.
    pub error: Option<String>,
}

/// What a user may do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Held {
    pub rules: Vec<Rule>,
    /// Why this may not be all of it.
    pub errors: Vec<String>,
    /// Whether an authorizer decides that cannot list its rules.
    pub is_incomplete: bool,
}

/// Decides what users may do.
pub trait Authorizer: Send + Sync + 'static {
    fn authorize<'a>(&'a self, attributes: &'a Attributes<'a>) -> BoxFuture<'a, Decision>;

    /// What a user may do in a namespace, or in the whole cluster.
    fn rules<'a>(&'a self, user: &'a User, namespace: Option<&'a str>) -> BoxFuture<'a, Held>;

    /// The same by roles alone, whichever authorizers there are: what a user may grant to others.
    fn held_roles<'a>(&'a self, user: &'a User, namespace: Option<&'a str>) -> BoxFuture<'a, Held> {
        self.rules(user, namespace)
    }

    /// Keeps the authorizer as its configuration says, until `stop`.
    fn follow(&self, _: CancellationToken) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }

    /// What a role allows that is bound in a namespace, or in the whole cluster.
    fn role<'a>(
        &'a self,
        role: &'a RoleRef,
        namespace: Option<&'a str>,
    ) -> BoxFuture<'a, Result<Vec<Rule>, String>>;
}

impl Decision {
    pub fn allow(reason: impl Into<String>) -> Self {
        Self { verdict: Verdict::Allow, reason: reason.into(), error: None }
    }

    pub fn no_opinion(reason: impl Into<String>) -> Self {
        Self { verdict: Verdict::NoOpinion, reason: reason.into(), error: None }
    }

    /// A verdict that stands although something went wrong.
    pub fn failed(verdict: Verdict, error: impl Into<String>) -> Self {
        Self { verdict, reason: String::new(), error: Some(error.into()) }
    }

    pub fn is_allowed(&self) -> bool {
        self.verdict == Verdict::Allow
    }

    pub fn reason(&self) -> &str {
        &self.reason
    }
}

/// Without roles: `system:masters` may do everything, everybody may see whether and what the server is,
/// authenticated users may discover what it serves and ask what they may do.
#[derive(Clone, Copy, Debug, Default)]
pub struct MastersOnly;

/// Open to everybody, known or not.
const PUBLIC: [&str; 5] = ["/healthz", "/livez", "/readyz", "/version", "/version/"];
/// Open to everybody known, with everything below.
const DISCOVERY: [&str; 3] = ["/api", "/apis", "/openapi"];
/// What users ask about themselves.
const SELF_REVIEWS: [&str; 3] = ["selfsubjectaccessreviews", "selfsubjectrulesreviews", "selfsubjectreviews"];

impl Authorizer for MastersOnly {
    fn authorize<'a>(&'a self, attributes: &'a Attributes<'a>) -> BoxFuture<'a, Decision> {
        let allowed =
            attributes.user.is_in(MASTERS) || attributes.is_public() || attributes.is_for_known_users();
        let decision = if allowed { Decision::allow("") } else { Decision::no_opinion("") };
        Box::pin(std::future::ready(decision))
    }

    fn rules<'a>(&'a self, user: &'a User, _: Option<&'a str>) -> BoxFuture<'a, Held> {
        let rules = if user.is_in(MASTERS) { Rule::full_authority().to_vec() } else { Vec::new() };
        Box::pin(std::future::ready(Held { rules, ..Held::default() }))
    }

    fn role<'a>(&'a self, role: &'a RoleRef, _: Option<&'a str>) -> BoxFuture<'a, Result<Vec<Rule>, String>> {
        let missing = MissingRole::named(role).to_string();
        Box::pin(std::future::ready(Err(missing)))
    }
}

impl Attributes<'_> {
    fn reads_path(&self) -> bool {
        self.resource.is_none() && self.verb == "get"
    }

    fn is_public(&self) -> bool {
        self.reads_path() && PUBLIC.contains(&self.path)
    }

    fn is_for_known_users(&self) -> bool {
        let below = |root: &str| {
            self.path.strip_prefix(root).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let discovers = self.reads_path() && DISCOVERY.iter().any(|root| below(root));
        let reviews = self
            .resource
            .is_some_and(|target| self.verb == "create" && SELF_REVIEWS.contains(&target.resource.as_str()));
        self.user.is_in(AUTHENTICATED) && (discovers || reviews)
    }

    /// The answer to a request that is not allowed.
    pub fn forbidden(&self, reason: &str) -> Status {
        let reason = if reason.is_empty() { String::new() } else { format!(": {reason}") };
        let user = &self.user.name;
        let Some(target) = self.resource else {
            let why = format!("User {user:?} cannot {} path {:?}", self.verb, self.path);
            return Status::forbidden(Named::default(), "", harmless(&why) + &reason).for_lack_of_rights();
        };
        let resource = match &target.subresource {
            Some(subresource) => format!("{}/{subresource}", target.resource),
            None => target.resource.clone(),
        };
        let place = match &target.namespace {
            Some(namespace) => format!("in the namespace {namespace:?}"),
            None => "at the cluster scope".into(),
        };
        let why = format!(
            "User {user:?} cannot {} resource {resource:?} in API group {:?} {place}",
            self.verb, target.group
        );
        let named = Named { group: &target.group, resource: &target.resource };
        let name = target.named().unwrap_or("");
        Status::forbidden(named, name, harmless(&why) + &reason).for_lack_of_rights()
    }
}

/// The text as no browser takes it for markup.
pub(crate) fn harmless(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
