//! Decides whether a policy or a binding applies to a request.

use std::sync::{Arc, OnceLock};

use serde_json::Value;

use crate::admission::attributes::VersionedAttributes;
use crate::admission::{Operation, Review};
use crate::json::Json;
use crate::kind::Kind;
use crate::kinds::selector;
use crate::metadata;
use crate::registry::Served;

/// Matches a request against constraints (`matchConstraints`, `matchResources`), either as it is or converted to an
/// equivalent version. Fails if that depends on a namespace that does not exist.
pub(in crate::admission) fn matched(
    constraints: &Value,
    about: &VersionedAttributes<'_>,
) -> Result<Option<Matched>, String> {
    let wanted = constraints.at("namespaceSelector");
    let lacks_namespace = lacks_namespace(wanted, about);
    if !lacks_namespace && !in_namespace(wanted, about)
        || !is_selected(constraints.at("objectSelector"), about)
        || about.by_rules(constraints.list("excludeResourceRules"), constraints).is_some()
    {
        return Ok(None);
    }
    let matched = match constraints.list("resourceRules") {
        [] => Some(Matched::Exactly),
        rules => about.by_rules(rules, constraints),
    };
    match matched {
        Some(_) if lacks_namespace => {
            let namespace = about.review.namespace.unwrap_or_default();
            Err(format!("namespaces {namespace:?} not found"))
        }
        matched => Ok(matched),
    }
}

/// Whether constraints may match a request, regardless of its objects, which are not read.
pub(in crate::admission) fn may_match(constraints: &Value, review: &Review<'_>) -> bool {
    let rules = constraints.list("resourceRules");
    rules.is_empty() || rules.iter().any(|rule| is_named(rule, review))
}

/// How a request matches.
pub(in crate::admission) enum Matched {
    Exactly,
    As(Arc<Served>),
}

/// The other versions of the requested resource that have its subresource, computed on demand.
#[derive(Clone, Default)]
pub(in crate::admission) struct Equivalents(OnceLock<Vec<Arc<Served>>>);

impl Equivalents {
    fn of(&self, review: &Review<'_>) -> &[Arc<Served>] {
        self.0.get_or_init(|| {
            let (kind, subresource) = (&review.served.kind, review.subresource);
            let is_other = |other: &&Arc<Served>| {
                other.kind.stored_as == kind.stored_as
                    && other.kind.plural == kind.plural
                    && (&other.kind.group, &other.kind.version) != (&kind.group, &kind.version)
                    && subresource.is_none_or(|subresource| other.kind.has(subresource))
            };
            review.server.registry.snapshot().all().filter(is_other).cloned().collect()
        })
    }
}

/// Returns the first rule that matches a request for an object of this name or, with the match policy Equivalent,
/// another version of it.
pub(in crate::admission) fn by_rules(
    rules: &[Value],
    constraints: &Value,
    review: &Review<'_>,
    name: &str,
    equivalents: &Equivalents,
) -> Option<Matched> {
    if rules.iter().any(|rule| names(rule, &review.served.kind, review, name)) {
        return Some(Matched::Exactly);
    }
    if rules.is_empty() || constraints.text("matchPolicy") == "Exact" {
        return None;
    }
    // All versions have the same plural, so most rules can be excluded before other versions are computed.
    let by_rule = |rule: &Value| {
        let others = if is_named(rule, review) { equivalents.of(review) } else { &[] };
        others.iter().find(|other| names(rule, &other.kind, review, name))
    };
    rules.iter().find_map(by_rule).cloned().map(Matched::As)
}

fn has(rule: &Value, field: &str, word: &str) -> bool {
    rule.list(field).iter().any(|own| own == "*" || own == word)
}

/// Whether a rule matches the operation and the resource of a request, in any group and version.
fn is_named(rule: &Value, review: &Review<'_>) -> bool {
    let subresource = review.subresource.map_or("", |subresource| subresource.name());
    let is_own =
        |own: &Value| is_resource(own.as_str().unwrap_or_default(), &review.served.kind.plural, subresource);
    has(rule, "operations", review.operation.name()) && rule.list("resources").iter().any(is_own)
}

fn names(rule: &Value, kind: &Kind, review: &Review<'_>, name: &str) -> bool {
    let is_in_scope = match (rule.text("scope"), kind.is_namespaced()) {
        ("Namespaced", namespaced) => namespaced,
        ("Cluster", namespaced) => !namespaced,
        _ => true,
    };
    let wanted = rule.list("resourceNames");
    is_named(rule, review)
        && has(rule, "apiGroups", &kind.group)
        && has(rule, "apiVersions", &kind.version)
        && is_in_scope
        && (wanted.is_empty() || wanted.iter().any(|own| own == name))
}

/// Matches `pods`, `pods/status`, `pods/*`, `*/scale`, `*`, `*/*`.
fn is_resource(own: &str, plural: &str, part: &str) -> bool {
    let (resource, subresource) = own.split_once('/').unwrap_or((own, ""));
    (resource == "*" || resource == plural)
        && (subresource == part || subresource == "*" && own.contains('/'))
}

/// Whether the namespace selector matches. A namespace is selected by its own labels, a namespaced object by its
/// namespace's. Cluster-scoped objects always match.
pub(in crate::admission) fn in_namespace(wanted: &Value, about: &VersionedAttributes<'_>) -> bool {
    if selector::is_empty(wanted) {
        return true;
    }
    let review = about.review;
    let is_written =
        matches!(review.operation, Operation::Create | Operation::Update) && review.subresource.is_none();
    let namespace = match is_namespace(about) {
        true if is_written => &about.object,
        true => &about.old,
        false if review.namespace.is_none() => return true,
        false => &about.namespace,
    };
    selector::matches(wanted, metadata::of(namespace).at("labels"))
}

/// Whether a selector needs a namespace that does not exist.
pub(in crate::admission) fn lacks_namespace(wanted: &Value, about: &VersionedAttributes<'_>) -> bool {
    let has_namespace = about.review.namespace.is_some() && !is_namespace(about);
    !selector::is_empty(wanted) && has_namespace && about.namespace.is_null()
}

fn is_namespace(about: &VersionedAttributes<'_>) -> bool {
    let kind = &about.review.served.kind;
    kind.group.is_empty() && kind.plural == "namespaces"
}

/// Connect options have no labels, so no selector matches them.
pub(in crate::admission) fn is_selected(wanted: &Value, about: &VersionedAttributes<'_>) -> bool {
    let has_labels = about.review.operation != Operation::Connect;
    let is_it =
        |object: &Value| !object.is_null() && selector::matches(wanted, metadata::of(object).at("labels"));
    selector::is_empty(wanted) || has_labels && (is_it(&about.object) || is_it(&about.old))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resource_patterns_match_with_and_without_subresources() {
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
