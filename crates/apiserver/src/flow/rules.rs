//! Matches requests against FlowSchemas.

use serde::Deserialize;

use crate::auth::User;
use crate::request::ResourceTarget;

/// A rule of a FlowSchema: subjects and their requests.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Rule {
    #[serde(default)]
    subjects: Option<Vec<Subject>>,
    #[serde(default)]
    resource_rules: Option<Vec<ResourceRule>>,
    #[serde(default)]
    non_resource_rules: Option<Vec<PathRule>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Subject {
    kind: String,
    user: Option<Named>,
    group: Option<Named>,
    service_account: Option<Account>,
}

#[derive(Debug, Deserialize)]
struct Named {
    name: String,
}

#[derive(Debug, Deserialize)]
struct Account {
    #[serde(default)]
    namespace: String,
    #[serde(default)]
    name: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ResourceRule {
    verbs: ValueList,
    api_groups: ValueList,
    resources: ValueList,
    #[serde(default)]
    cluster_scope: bool,
    #[serde(default)]
    namespaces: Option<ValueList>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PathRule {
    verbs: ValueList,
    #[serde(rename = "nonResourceURLs")]
    non_resource_urls: Vec<String>,
}

/// A list of values, or `*` for all.
#[derive(Debug, Deserialize)]
struct ValueList(Vec<String>);

impl ValueList {
    fn has(&self, word: &str) -> bool {
        matches!(self.0.as_slice(), [only] if only == "*") || self.0.iter().any(|own| own == word)
    }

    /// Matches a resource, or `resource/subresource`.
    fn has_resource(&self, resource: &str, subresource: Option<&str>) -> bool {
        let Some(subresource) = subresource else { return self.has(resource) };
        let is_joined = |own: &String| {
            own.split_once('/').is_some_and(|(one, other)| one == resource && other == subresource)
        };
        matches!(self.0.as_slice(), [only] if only == "*") || self.0.iter().any(is_joined)
    }
}

/// A request, as seen by schemas.
#[derive(Clone, Copy)]
pub(super) struct Digest<'a> {
    pub(super) user: &'a User,
    pub(super) verb: &'a str,
    pub(super) path: &'a str,
    pub(super) resource: Option<&'a ResourceTarget>,
}

impl Rule {
    pub(super) fn matches(&self, request: &Digest<'_>) -> bool {
        let subjects = self.subjects.as_deref().unwrap_or_default();
        if !subjects.iter().any(|subject| subject.is(request.user)) {
            return false;
        }
        match request.resource {
            Some(target) => {
                let rules = self.resource_rules.as_deref().unwrap_or_default();
                rules.iter().any(|rule| rule.matches(request.verb, target))
            }
            None => {
                let rules = self.non_resource_rules.as_deref().unwrap_or_default();
                rules.iter().any(|rule| rule.matches(request.verb, request.path))
            }
        }
    }
}

impl Subject {
    fn is(&self, user: &User) -> bool {
        match self.kind.as_str() {
            "User" => self.user.as_ref().is_some_and(|named| named.name == "*" || named.name == user.name),
            "Group" => self.group.as_ref().is_some_and(|named| named.name == "*" || user.is_in(&named.name)),
            "ServiceAccount" => self.service_account.as_ref().is_some_and(|account| account.is(&user.name)),
            _ => false,
        }
    }
}

impl Account {
    fn is(&self, user: &str) -> bool {
        let rest = user.strip_prefix("system:serviceaccount:");
        let name = rest.and_then(|rest| rest.strip_prefix(&*self.namespace)?.strip_prefix(':'));
        name.is_some_and(|name| self.name == "*" || self.name == name)
    }
}

impl ResourceRule {
    fn matches(&self, verb: &str, target: &ResourceTarget) -> bool {
        self.verbs.has(verb)
            && self.resources.has_resource(&target.resource, target.subresource.as_deref())
            && self.api_groups.has(&target.group)
            && match &target.namespace {
                None => self.cluster_scope,
                Some(namespace) => self.namespaces.as_ref().is_some_and(|own| own.has(namespace)),
            }
    }
}

impl PathRule {
    fn matches(&self, verb: &str, path: &str) -> bool {
        self.verbs.has(verb) && self.non_resource_urls.iter().any(|url| covers(url, path))
    }
}

/// Whether a path is covered. As in v1.34, a path includes everything below it, with or without a trailing star.
fn covers(url: &str, path: &str) -> bool {
    if url == "*" || url == path {
        return true;
    }
    let prefix = url.strip_suffix('*').unwrap_or(url);
    match path.strip_prefix(prefix) {
        Some(rest) => prefix.ends_with('/') || rest.starts_with('/'),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn rule(value: serde_json::Value) -> Rule {
        serde_json::from_value(value).unwrap()
    }

    fn user(name: &str, groups: &[&str]) -> User {
        User {
            name: name.into(),
            groups: groups.iter().map(|group| (*group).into()).collect(),
            ..User::default()
        }
    }

    fn target(namespace: Option<&str>, resource: &str, subresource: Option<&str>) -> ResourceTarget {
        ResourceTarget {
            namespace: namespace.map(Into::into),
            resource: resource.into(),
            subresource: subresource.map(Into::into),
            ..ResourceTarget::default()
        }
    }

    fn of_all(subject: serde_json::Value, resource: serde_json::Value) -> Rule {
        rule(json!({"subjects": [subject], "resourceRules": [resource]}))
    }

    #[test]
    fn subjects_are_users_groups_and_accounts() {
        let any = json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "clusterScope": true});
        let nodes = target(None, "nodes", None);
        let check = |subject: serde_json::Value, user: &User, expected: bool| {
            let digest = Digest { user, verb: "get", path: "", resource: Some(&nodes) };
            assert_eq!(of_all(subject.clone(), any.clone()).matches(&digest), expected, "{subject} {user:?}");
        };
        let account = user("system:serviceaccount:a:robot", &["g"]);
        check(json!({"kind": "User", "user": {"name": "*"}}), &account, true);
        check(json!({"kind": "User", "user": {"name": "robot"}}), &account, false);
        check(json!({"kind": "Group", "group": {"name": "g"}}), &account, true);
        check(json!({"kind": "Group", "group": {"name": "h"}}), &account, false);
        for (namespace, name, expected) in
            [("a", "robot", true), ("a", "*", true), ("a", "rob", false), ("b", "*", false), ("", "*", false)]
        {
            let subject =
                json!({"kind": "ServiceAccount", "serviceAccount": {"namespace": namespace, "name": name}});
            check(subject, &account, expected);
        }
    }

    #[test]
    fn resources_are_in_namespaces_or_of_the_cluster() {
        let subject = json!({"kind": "Group", "group": {"name": "*"}});
        let user = user("u", &[]);
        let check = |rule: serde_json::Value, verb: &str, target: &ResourceTarget, expected: bool| {
            let digest = Digest { user: &user, verb, path: "", resource: Some(target) };
            assert_eq!(of_all(subject.clone(), rule).matches(&digest), expected, "{target:?}");
        };
        let pods = json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods", "pods/status"], "namespaces": ["a"]});
        check(pods.clone(), "get", &target(Some("a"), "pods", None), true);
        check(pods.clone(), "get", &target(Some("a"), "pods", Some("status")), true);
        check(pods.clone(), "get", &target(Some("a"), "pods", Some("log")), false);
        check(pods.clone(), "list", &target(Some("a"), "pods", None), false);
        check(pods.clone(), "get", &target(Some("b"), "pods", None), false);
        check(pods, "get", &target(None, "pods", None), false);
    }

    #[test]
    fn path_rules_match_subpaths() {
        for (url, path, expected) in [
            ("*", "/x", true),
            ("/healthz", "/healthz", true),
            ("/healthz", "/healthz/etcd", true),
            ("/healthz", "/healthzz", false),
            ("/healthz/*", "/healthz/etcd", true),
            ("/healthz/*", "/healthz", false),
            ("/", "/x", true),
        ] {
            assert_eq!(covers(url, path), expected, "{url} {path}");
        }
    }
}
