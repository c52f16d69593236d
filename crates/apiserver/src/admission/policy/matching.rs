//! Decides whether a policy or a binding applies to a request.

use std::sync::Arc;

use serde_json::Value;

use super::About;
use crate::json::Json;
use crate::kind::Kind;
use crate::kinds::selector;
use crate::metadata;
use crate::registry::Served;

/// Matches a request against constraints (`matchConstraints`, `matchResources`), either as it is or converted to an
/// equivalent version.
pub(in crate::admission) fn matched(constraints: &Value, about: &About<'_>) -> Option<Matched> {
    let all = |field: &str, kind: &Kind| constraints.list(field).iter().any(|rule| names(rule, kind, about));
    let kind = &about.review.served.kind;
    let is_exact = constraints.list("resourceRules").is_empty() || all("resourceRules", kind);
    let others = match constraints.text("matchPolicy") {
        "Exact" => Vec::new(),
        _ if is_exact && constraints.list("excludeResourceRules").is_empty() => Vec::new(),
        _ => others(about),
    };
    let matched = match is_exact {
        true => Matched::Exactly,
        false => Matched::As(others.iter().find(|other| all("resourceRules", &other.kind)).cloned()?),
    };
    let is_excluded = all("excludeResourceRules", kind)
        || others.iter().any(|other| all("excludeResourceRules", &other.kind));
    let is_meant = !is_excluded
        && in_namespace(constraints.at("namespaceSelector"), about)
        && is_selected(constraints.at("objectSelector"), about);
    is_meant.then_some(matched)
}

/// How a request matches.
pub(in crate::admission) enum Matched {
    Exactly,
    As(Arc<Served>),
}

/// Returns the other served versions of the request's resource.
fn others(about: &About<'_>) -> Vec<Arc<Served>> {
    let kind = &about.review.served.kind;
    let registry = about.review.server.registry.snapshot();
    let is_other = |other: &&Arc<Served>| {
        other.kind.stored_as == kind.stored_as
            && (&other.kind.group, &other.kind.version) != (&kind.group, &kind.version)
    };
    registry.all().filter(is_other).cloned().collect()
}

fn names(rule: &Value, kind: &Kind, about: &About<'_>) -> bool {
    let has = |field: &str, word: &str| rule.list(field).iter().any(|own| own == "*" || own == word);
    let scope = match (rule.text("scope"), kind.is_namespaced()) {
        ("Namespaced", namespaced) => namespaced,
        ("Cluster", namespaced) => !namespaced,
        _ => true,
    };
    let object = if about.object.is_null() { &about.old } else { &about.object };
    let name = match about.review.name.as_str() {
        "" => metadata::of(object).text("name"),
        name => name,
    };
    let wanted = rule.list("resourceNames");
    has("operations", about.operation())
        && has("apiGroups", &kind.group)
        && has("apiVersions", &kind.version)
        && scope
        && rule
            .list("resources")
            .iter()
            .any(|own| is_resource(own.as_str().unwrap_or_default(), &kind.plural, about.part()))
        && (wanted.is_empty() || wanted.iter().any(|own| own == name))
}

/// Matches `pods`, `pods/status`, `pods/*`, `*/scale`, `*`, `*/*`.
fn is_resource(own: &str, plural: &str, part: &str) -> bool {
    let (resource, subresource) = own.split_once('/').unwrap_or((own, ""));
    (resource == "*" || resource == plural)
        && (subresource == part || subresource == "*" && own.contains('/'))
}

/// Matches a namespace, and the objects in it, by the namespace's labels; other cluster-scoped objects always match.
fn in_namespace(wanted: &Value, about: &About<'_>) -> bool {
    if selector::is_empty(wanted) {
        return true;
    }
    let kind = &about.review.served.kind;
    let namespace = match kind.group.is_empty() && kind.plural == "namespaces" {
        true if about.object.is_null() => &about.old,
        true => &about.object,
        false if about.review.namespace.is_none() => return true,
        false => &about.namespace,
    };
    selector::matches(wanted, metadata::of(namespace).at("labels"))
}

fn is_selected(wanted: &Value, about: &About<'_>) -> bool {
    let is_it =
        |object: &Value| !object.is_null() && selector::matches(wanted, metadata::of(object).at("labels"));
    selector::is_empty(wanted) || is_it(&about.object) || is_it(&about.old)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resource_is_named_with_or_without_its_parts() {
        for (own, plural, part, expected) in [
            ("pods", "pods", "", true),
            ("pods", "pods", "status", false),
            ("pods/status", "pods", "status", true),
            ("pods/*", "pods", "status", true),
            ("*", "pods", "", true),
            ("*", "pods", "status", false),
            ("*/*", "pods", "status", true),
            ("*/scale", "deployments", "scale", true),
            ("secrets", "pods", "", false),
        ] {
            assert_eq!(is_resource(own, plural, part), expected, "{own} {plural}/{part}");
        }
    }
}
