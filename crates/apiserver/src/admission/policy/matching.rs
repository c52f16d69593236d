//! What a policy or a binding is about.

use serde_json::Value;

use super::About;
use crate::json::Json;
use crate::kinds::selector;
use crate::metadata;

/// Whether constraints (`matchConstraints`, `matchResources`) take in a request.
pub(in crate::admission) fn matches(constraints: &Value, about: &About<'_>) -> bool {
    let rules = constraints.list("resourceRules");
    let is_named = rules.is_empty() || rules.iter().any(|rule| names(rule, about));
    let is_excluded = constraints.list("excludeResourceRules").iter().any(|rule| names(rule, about));
    is_named
        && !is_excluded
        && in_namespace(constraints.at("namespaceSelector"), about)
        && is_selected(constraints.at("objectSelector"), about)
}

fn names(rule: &Value, about: &About<'_>) -> bool {
    let kind = &about.review.served.kind;
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

/// `pods`, `pods/status`, `pods/*`, `*/scale`, `*`, `*/*`
fn is_resource(own: &str, plural: &str, part: &str) -> bool {
    let (resource, subresource) = own.split_once('/').unwrap_or((own, ""));
    (resource == "*" || resource == plural)
        && (subresource == part || subresource == "*" && own.contains('/'))
}

/// A namespace is chosen by its own labels, what is in it by the same; the rest of the cluster always.
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
