//! The audit policy: the level and the stages at which a request is recorded.
//!
//! The first matching rule applies. A request that no rule matches is not recorded.

use serde::{Deserialize, Serialize};

use super::policy_file::or_default;
use crate::auth::User;

/// How much of a request is recorded, in ascending order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Level {
    #[default]
    None,
    Metadata,
    Request,
    RequestResponse,
}

impl Level {
    pub(super) const ALL: [Self; 4] = [Self::None, Self::Metadata, Self::Request, Self::RequestResponse];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::None => "None",
            Self::Metadata => "Metadata",
            Self::Request => "Request",
            Self::RequestResponse => "RequestResponse",
        }
    }

    pub(super) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|level| level.name() == name)
    }
}

/// The stage of a request at which an event is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) enum Stage {
    RequestReceived,
    /// The headers are sent and the body follows: only for long-running requests.
    ResponseStarted,
    ResponseComplete,
    Panic,
}

impl Stage {
    pub(super) const ALL: [Self; 4] =
        [Self::RequestReceived, Self::ResponseStarted, Self::ResponseComplete, Self::Panic];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::RequestReceived => "RequestReceived",
            Self::ResponseStarted => "ResponseStarted",
            Self::ResponseComplete => "ResponseComplete",
            Self::Panic => "Panic",
        }
    }

    pub(super) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|stage| stage.name() == name)
    }
}

/// A set of stages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Stages(u8);

impl Stages {
    pub(super) fn has(self, stage: Stage) -> bool {
        self.0 & (1 << stage as u8) != 0
    }

    pub(super) fn joined(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl FromIterator<Stage> for Stages {
    fn from_iter<T: IntoIterator<Item = Stage>>(stages: T) -> Self {
        Self(stages.into_iter().fold(0, |all, stage| all | (1 << stage as u8)))
    }
}

/// Which requests to record, and how.
#[derive(Clone, Debug)]
pub struct Policy {
    pub(super) rules: Vec<Rule>,
}

/// A rule; empty lists match everything.
#[derive(Clone, Debug, Default)]
pub(super) struct Rule {
    pub(super) decision: Decision,
    pub(super) users: Vec<String>,
    pub(super) user_groups: Vec<String>,
    pub(super) verbs: Vec<String>,
    pub(super) resources: Vec<GroupResources>,
    pub(super) namespaces: Vec<String>,
    pub(super) non_resource_urls: Vec<String>,
}

/// How to record a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Decision {
    pub(super) level: Level,
    pub(super) omit_stages: Stages,
    pub(super) omit_managed_fields: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct GroupResources {
    #[serde(deserialize_with = "or_default")]
    pub(super) group: String,
    #[serde(deserialize_with = "or_default")]
    pub(super) resources: Vec<String>,
    #[serde(deserialize_with = "or_default")]
    pub(super) resource_names: Vec<String>,
}

/// The attributes that rules match.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Attributes<'a> {
    /// The authenticated user, not an impersonated one.
    pub(super) user: Option<&'a User>,
    pub(super) verb: &'a str,
    pub(super) path: &'a str,
    pub(super) object: Option<Object<'a>>,
}

/// The object or collection of a resource request.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Object<'a> {
    pub(super) group: &'a str,
    pub(super) version: &'a str,
    pub(super) resource: &'a str,
    pub(super) subresource: &'a str,
    pub(super) namespace: &'a str,
    pub(super) name: &'a str,
}

impl Policy {
    pub(super) fn decide(&self, request: &Attributes<'_>) -> Decision {
        let rule = self.rules.iter().find(|rule| rule.matches(request));
        rule.map(|rule| rule.decision).unwrap_or_default()
    }
}

fn has(list: &[String], text: &str) -> bool {
    list.iter().any(|one| one == text)
}

impl Rule {
    fn matches(&self, request: &Attributes<'_>) -> bool {
        let user_matches =
            self.users.is_empty() || request.user.is_some_and(|user| has(&self.users, &user.name));
        let is_in = |user: &User| user.groups.iter().any(|group| has(&self.user_groups, group));
        let group_matches = self.user_groups.is_empty() || request.user.is_some_and(is_in);
        let verb_matches = self.verbs.is_empty() || has(&self.verbs, request.verb);
        user_matches && group_matches && verb_matches && self.matches_target(request)
    }

    fn matches_target(&self, request: &Attributes<'_>) -> bool {
        if !self.namespaces.is_empty() || !self.resources.is_empty() {
            return request.object.is_some_and(|object| self.matches_object(&object));
        }
        let matches = |pattern: &String| path_matches(request.path, pattern);
        self.non_resource_urls.is_empty()
            || (request.object.is_none() && self.non_resource_urls.iter().any(matches))
    }

    fn matches_object(&self, object: &Object<'_>) -> bool {
        // Cluster-scoped resources have the namespace "".
        if !self.namespaces.is_empty() && !has(&self.namespaces, object.namespace) {
            return false;
        }
        self.resources.is_empty() || self.resources.iter().any(|resources| resources.matches(object))
    }
}

impl GroupResources {
    fn matches(&self, object: &Object<'_>) -> bool {
        if self.group != object.group {
            return false;
        }
        // Names do not restrict a whole group; validation rejects them there.
        let name_matches = self.resource_names.is_empty() || has(&self.resource_names, object.name);
        self.resources.is_empty()
            || (name_matches && self.resources.iter().any(|pattern| resource_matches(pattern, object)))
    }
}

/// Matches `pods`, `pods/log`, `*`, `*/status` and `pods/*`, which includes the resource itself.
fn resource_matches(pattern: &str, object: &Object<'_>) -> bool {
    let Object { resource, subresource, .. } = *object;
    if pattern == "*" {
        return true;
    }
    match pattern.split_once('/') {
        None => subresource.is_empty() && pattern == resource,
        Some(("*", of)) if !subresource.is_empty() && of == subresource => true,
        Some((of, "*")) if of == resource => true,
        Some((of, part)) => !subresource.is_empty() && of == resource && part == subresource,
    }
}

/// Matches a whole path, or a prefix with a trailing `*`.
fn path_matches(path: &str, pattern: &str) -> bool {
    let beginning = pattern.ends_with('*').then(|| pattern.trim_end_matches('*'));
    pattern == path || beginning.is_some_and(|beginning| path.starts_with(beginning))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    fn object<'a>(target: &'a str, namespace: &'a str, name: &'a str) -> Attributes<'a> {
        let (group, rest) = target.split_once(':').unwrap_or(("", target));
        let (resource, subresource) = rest.split_once('/').unwrap_or((rest, ""));
        let object = Object { group, version: "v1", resource, subresource, namespace, name };
        Attributes { verb: "get", object: Some(object), ..Attributes::default() }
    }

    fn of(group: &str, resources: &[&str], names: &[&str]) -> Rule {
        let resources =
            GroupResources { group: group.into(), resources: list(resources), resource_names: list(names) };
        Rule { resources: vec![resources], ..Rule::default() }
    }

    #[test]
    fn resources_match_by_group_name_and_pattern() {
        for (rule, request, expected) in [
            (of("", &["pods"], &[]), object("pods", "a", "b"), true),
            (of("", &["pods"], &[]), object("pods/log", "a", "b"), false),
            (of("", &["pods/log"], &[]), object("pods/log", "a", "b"), true),
            (of("", &["pods/log"], &[]), object("pods", "a", "b"), false),
            (of("", &["pods/*"], &[]), object("pods/log", "a", "b"), true),
            (of("", &["pods/*"], &[]), object("pods", "a", "b"), true),
            (of("", &["*/status"], &[]), object("pods/status", "a", "b"), true),
            (of("", &["*/status"], &[]), object("pods", "a", "b"), false),
            (of("", &["*"], &[]), object("pods/log", "a", "b"), true),
            (of("", &[], &[]), object("pods/log", "a", "b"), true),
            (of("apps", &[], &[]), object("pods", "a", "b"), false),
            (of("apps", &["deployments"], &[]), object("apps:deployments", "a", "b"), true),
            (of("", &["pods"], &["b"]), object("pods", "a", "b"), true),
            (of("", &["pods"], &["c"]), object("pods", "a", "b"), false),
            (of("", &["pods"], &["c"]), object("pods", "a", ""), false),
            (Rule { namespaces: list(&["a"]), ..Rule::default() }, object("pods", "a", "b"), true),
            (Rule { namespaces: list(&[""]), ..Rule::default() }, object("pods", "a", "b"), false),
            (Rule { namespaces: list(&[""]), ..Rule::default() }, object("nodes", "", "b"), true),
        ] {
            assert_eq!(rule.matches(&request), expected, "{rule:?} {request:?}");
        }
    }

    #[test]
    fn paths_match_whole_or_by_their_beginning() {
        for (pattern, path, expected) in [
            ("/healthz", "/healthz", true),
            ("/healthz", "/healthz/log", false),
            ("/healthz*", "/healthz/log", true),
            ("/healthz/*", "/healthz", false),
            ("*", "/anything", true),
        ] {
            let rule = Rule { non_resource_urls: list(&[pattern]), ..Rule::default() };
            let request = Attributes { verb: "get", path, ..Attributes::default() };
            assert_eq!(rule.matches(&request), expected, "{pattern} {path}");
            assert!(!rule.matches(&Attributes { path, ..object("pods", "a", "") }), "not for resources");
        }
    }

    #[test]
    fn users_groups_and_verbs_must_all_match() {
        let user = User::authenticated("jane", "", list(&["dev"]));
        let rule = |users: &[&str], groups: &[&str], verbs: &[&str]| Rule {
            users: list(users),
            user_groups: list(groups),
            verbs: list(verbs),
            ..Rule::default()
        };
        let request = Attributes { user: Some(&user), ..object("pods", "a", "") };
        assert!(rule(&["jane"], &["dev", "ops"], &["get"]).matches(&request));
        assert!(!rule(&["jim"], &[], &[]).matches(&request));
        assert!(!rule(&[], &["ops"], &[]).matches(&request));
        assert!(!rule(&[], &[], &["list"]).matches(&request));
        assert!(
            !rule(&["jane"], &[], &[]).matches(&object("pods", "a", "")),
            "the request is unauthenticated"
        );
    }

    #[test]
    fn the_first_matching_rule_applies_and_none_means_no_record() {
        let decision = |level| Decision { level, ..Decision::default() };
        let mut first = of("", &["pods"], &[]);
        first.decision = decision(Level::Metadata);
        let mut second = of("", &["*"], &[]);
        second.decision = decision(Level::Request);
        let policy = Policy { rules: vec![first, second] };
        assert_eq!(policy.decide(&object("pods", "a", "")).level, Level::Metadata);
        assert_eq!(policy.decide(&object("secrets", "a", "")).level, Level::Request);
        assert_eq!(policy.decide(&object("apps:deployments", "a", "")).level, Level::None);
    }
}
