//! Authorization: decides whether a user may make a request.

use futures::future::BoxFuture;
use tokio_util::sync::CancellationToken;

use super::rbac::{MissingRole, RoleRef, Rule};
use super::{AUTHENTICATED, MASTERS, User};
use crate::request::ResourceTarget;
use crate::status::{Named, Status};

/// An authorization query.
#[derive(Clone, Debug)]
pub struct Attributes<'a> {
    pub user: &'a User,
    /// `get`, `list`, …; for non-resource paths, the HTTP method in lower case.
    pub verb: &'a str,
    pub path: &'a str,
    pub resource: Option<&'a ResourceTarget>,
}

/// An authorizer's verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Allow,
    /// No further authorizer is consulted.
    Deny,
    /// Leaves the decision to other authorizers; if none decides, the request is denied.
    NoOpinion,
}

/// An authorizer's decision. The reason may be empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    pub verdict: Verdict,
    pub reason: String,
    /// An error that occurred while deciding.
    pub error: Option<String>,
}

/// The rules that apply to a user.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserRules {
    pub rules: Vec<Rule>,
    /// Why the rules may be incomplete.
    pub errors: Vec<String>,
    /// Whether an authorizer is involved that cannot list its rules.
    pub is_incomplete: bool,
}

/// Decides what users may do.
pub trait Authorizer: Send + Sync + 'static {
    fn authorize<'a>(&'a self, attributes: &'a Attributes<'a>) -> BoxFuture<'a, Decision>;

    /// Returns what a user may do in a namespace, or cluster-wide.
    fn rules<'a>(&'a self, user: &'a User, namespace: Option<&'a str>) -> BoxFuture<'a, UserRules>;

    /// Like `rules`, but by RBAC roles only, whatever the authorizers: the rights a user may grant to others.
    fn role_rules<'a>(&'a self, user: &'a User, namespace: Option<&'a str>) -> BoxFuture<'a, UserRules> {
        self.rules(user, namespace)
    }

    /// Watches the authorizer's configuration and applies changes, until `stop`.
    fn follow(&self, _: CancellationToken) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }

    /// Returns the rules of a role bound in a namespace, or cluster-wide.
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

    /// Returns a verdict reached despite an error.
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

/// Works without roles: `system:masters` may do everything, everyone may read health and version, authenticated users
/// may use discovery and the self-review APIs.
#[derive(Clone, Copy, Debug, Default)]
pub struct MastersOnly;

/// Open to everyone, including anonymous users.
const PUBLIC: [&str; 5] = ["/healthz", "/livez", "/readyz", "/version", "/version/"];
/// Open to all authenticated users, including all subpaths.
const DISCOVERY: [&str; 3] = ["/api", "/apis", "/openapi"];
/// Reviews that users may create about themselves.
const SELF_REVIEWS: [&str; 3] = ["selfsubjectaccessreviews", "selfsubjectrulesreviews", "selfsubjectreviews"];

impl Authorizer for MastersOnly {
    fn authorize<'a>(&'a self, attributes: &'a Attributes<'a>) -> BoxFuture<'a, Decision> {
        let allowed =
            attributes.user.is_in(MASTERS) || attributes.is_public() || attributes.is_for_known_users();
        let decision = if allowed { Decision::allow("") } else { Decision::no_opinion("") };
        Box::pin(std::future::ready(decision))
    }

    fn rules<'a>(&'a self, user: &'a User, _: Option<&'a str>) -> BoxFuture<'a, UserRules> {
        let rules = if user.is_in(MASTERS) { Rule::full_authority().to_vec() } else { Vec::new() };
        Box::pin(std::future::ready(UserRules { rules, ..UserRules::default() }))
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

    /// Builds the `Forbidden` response for a denied request.
    pub fn forbidden(&self, reason: &str) -> Status {
        let reason = if reason.is_empty() { String::new() } else { format!(": {reason}") };
        let user = &self.user.name;
        let Some(target) = self.resource else {
            let why = format!("User {user:?} cannot {} path {:?}", self.verb, self.path);
            return Status::forbidden(Named::default(), "", escape_html(&why) + &reason).for_lack_of_rights();
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
        Status::forbidden(named, name, escape_html(&why) + &reason).for_lack_of_rights()
    }
}

/// Escapes text so that no browser takes it for markup.
pub(crate) fn escape_html(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
