//! The URL paths of objects, escaped, because a name may contain any character.

use std::fmt::Write;

use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};

use super::Subresource;
use crate::{Key, Kind};

/// Characters that must be escaped in a path segment. `:` need not be, and names like `system:node` are common.
const SEGMENT: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'%')
    .add(b'/')
    .add(b'<')
    .add(b'>')
    .add(b'?')
    .add(b'[')
    .add(b'\\')
    .add(b']')
    .add(b'^')
    .add(b'`')
    .add(b'{')
    .add(b'|')
    .add(b'}');

impl Subresource {
    /// Returns the last path segment of a subresource.
    fn segment(self) -> Option<&'static str> {
        match self {
            Self::None => None,
            Self::Status => Some("status"),
            Self::Scale => Some("scale"),
            Self::Binding => Some("binding"),
            Self::Eviction => Some("eviction"),
            Self::Finalize => Some("finalize"),
            Self::Approval => Some("approval"),
            Self::Token => Some("token"),
        }
    }
}

/// `/api/v1/namespaces/{ns}/pods`
pub(super) fn collection(kind: &Kind, namespace: Option<&str>) -> String {
    // A cluster-scoped kind has no namespaces. Including one would address something else.
    let namespace = namespace.filter(|_| kind.namespaced());
    let mut path = String::with_capacity(128);
    path.push_str(if kind.group().is_empty() { "/api" } else { "/apis" });
    for segment in [kind.group(), kind.version()].into_iter().filter(|segment| !segment.is_empty()) {
        push(&mut path, segment);
    }
    if let Some(namespace) = namespace {
        path.push_str("/namespaces");
        push(&mut path, namespace);
    }
    push(&mut path, kind.plural());
    path
}

/// `/api/v1/namespaces/{ns}/pods/{name}/{subresource}`
pub(super) fn object(kind: &Kind, key: &Key, subresource: Subresource) -> String {
    let mut path = collection(kind, key.namespace());
    push(&mut path, key.name());
    if let Some(segment) = subresource.segment() {
        push(&mut path, segment);
    }
    path
}

/// `/{segment}/{segment}`
pub(super) fn of(segments: &[&str]) -> String {
    let mut path = String::new();
    segments.iter().for_each(|segment| push(&mut path, segment));
    path
}

/// Appends a query. Pairs without a value are omitted.
pub(super) fn with_query(mut path: String, pairs: &[(&str, Option<&str>)]) -> String {
    let given = || pairs.iter().filter_map(|(name, value)| value.map(|value| (name, value)));
    if given().next().is_some() {
        let mut query = form_urlencoded::Serializer::new(String::new());
        query.extend_pairs(given());
        path.push('?');
        path.push_str(&query.finish());
    }
    path
}

fn push(path: &mut String, segment: &str) {
    // Proxies that normalize paths would resolve "." and "..".
    match segment {
        "." => path.push_str("/%2E"),
        ".." => path.push_str("/%2E%2E"),
        _ => write!(path, "/{}", utf8_percent_encode(segment, SEGMENT)).expect("a String takes every write"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_addressed_by_its_kind_key_and_part() {
        let pod = Kind::new("", "v1", "Pod", "pods", true);
        let role = Kind::new("rbac.authorization.k8s.io", "v1", "ClusterRole", "clusterroles", false);
        let check = |kind: &Kind, key: Key, subresource: Subresource, expected: &str| {
            assert_eq!(object(kind, &key, subresource), expected)
        };
        check(&pod, Key::namespaced("a", "b"), Subresource::None, "/api/v1/namespaces/a/pods/b");
        check(&pod, Key::namespaced("a", "b"), Subresource::Eviction, "/api/v1/namespaces/a/pods/b/eviction");
        check(
            &pod,
            Key::namespaced("a", "x/y?z%#"),
            Subresource::None,
            "/api/v1/namespaces/a/pods/x%2Fy%3Fz%25%23",
        );
        check(
            &pod,
            Key::namespaced("a", ".."),
            Subresource::Status,
            "/api/v1/namespaces/a/pods/%2E%2E/status",
        );
        check(
            &role,
            Key::cluster("system:node é"),
            Subresource::None,
            "/apis/rbac.authorization.k8s.io/v1/clusterroles/system:node%20%C3%A9",
        );
    }

    #[test]
    fn a_query_contains_the_given_parameters() {
        let check = |pairs: &[(&str, Option<&str>)], expected: &str| {
            assert_eq!(with_query("/x".into(), pairs), expected)
        };
        check(&[("limit", None)], "/x");
        check(&[("labelSelector", Some("a in (b,c)")), ("limit", None)], "/x?labelSelector=a+in+%28b%2Cc%29");
    }
}
