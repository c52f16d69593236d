//! Roles: lists of rules.

use serde_json::Value;

use super::{RBAC, entry};
use crate::field::{Errors, Path};
use crate::json::Json;
use crate::kind::{Kind, Scope};
use crate::kinds::metadata;
use crate::strategy::{Lifecycle, NameRule, Semantics, Validation};
use crate::validation::labels::{self, Values};

/// The kind of roles in a namespace.
pub fn role() -> Kind {
    Kind {
        semantics: Semantics {
            counts_generations: false,
            names: NameRule::PathSegment,
            create_on_update: true,
            ..Semantics::default()
        },
        ..entry(&RBAC, "Role", "roles", Role(Scope::Namespaced))
    }
}

/// The kind of roles for the cluster, or for any namespace they are bound in.
pub fn cluster_role() -> Kind {
    Kind {
        scope: Scope::Cluster,
        semantics: Semantics {
            counts_generations: false,
            names: NameRule::PathSegment,
            create_on_update: true,
            ..Semantics::default()
        },
        ..entry(&RBAC, "ClusterRole", "clusterroles", Role(Scope::Cluster))
    }
}

struct Role(Scope);

impl Lifecycle for Role {}

impl Validation for Role {
    fn validate(&self, role: &Value) -> Errors {
        let mut errors = Errors::default();
        metadata::new(role, &mut errors);
        self.check(role, Values::Checked, &mut errors);
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Errors {
        let selectors = |role: &Value| role.at("aggregationRule").list("clusterRoleSelectors").to_vec();
        let had_bad_values = selectors(old).iter().any(labels::has_bad_values);
        let values = if had_bad_values { Values::Unchecked } else { Values::Checked };
        let mut errors = Errors::default();
        // v1.34 validates a changed role as a whole, and then again as an update.
        for _ in 0..2 {
            metadata::whole(new, self.0, NameRule::PathSegment, &mut errors);
            self.check(new, values, &mut errors);
        }
        errors
    }
}

impl Role {
    fn check(&self, role: &Value, values: Values, errors: &mut Errors) {
        let path = Path::root("rules");
        for (index, rule) in role.list("rules").iter().enumerate() {
            check_rule(rule, self.0, &path.index(index), errors);
        }
        if role.has("aggregationRule") {
            check_aggregation(role.at("aggregationRule"), values, errors);
        }
    }
}

/// Checks that a rule is for either resources or paths, not both.
fn check_rule(rule: &Value, scope: Scope, path: &Path<'_>, errors: &mut Errors) {
    let has = |field: &str| !rule.list(field).is_empty();
    if !has("verbs") {
        errors.required(&path.child("verbs"), "verbs must contain at least one value");
    }
    if has("nonResourceURLs") {
        let path = path.child("nonResourceURLs");
        let mut refuse = |detail| errors.invalid(&path, rule.at("nonResourceURLs").clone(), detail);
        if scope == Scope::Namespaced {
            refuse("namespaced rules cannot apply to non-resource URLs");
        }
        if has("apiGroups") || has("resources") || has("resourceNames") {
            refuse("rules cannot apply to both regular resources and non-resource URLs");
        }
        return;
    }
    if !has("apiGroups") {
        errors.required(&path.child("apiGroups"), "resource rules must supply at least one api group");
    }
    if !has("resources") {
        errors.required(&path.child("resources"), "resource rules must supply at least one resource");
    }
}

fn check_aggregation(aggregation: &Value, values: Values, errors: &mut Errors) {
    let path = Path::root("aggregationRule");
    let path = path.child("clusterRoleSelectors");
    let selectors = aggregation.list("clusterRoleSelectors");
    if selectors.is_empty() {
        let detail = "at least one clusterRoleSelector required if aggregationRule is non-nil";
        errors.required(&path, detail);
    }
    for (index, selector) in selectors.iter().enumerate() {
        let path = path.index(index);
        let known = errors.0.len();
        labels::selector(selector, Values::Checked, &path, errors);
        let is_usable = errors.0.len() == known;
        if values == Values::Unchecked {
            errors.0.truncate(known);
            labels::selector(selector, values, &path, errors);
        }
        if !is_usable {
            errors.invalid(&path, Value::Null, "invalid label selector.");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::check;
    use serde_json::json;

    const CLUSTER: Role = Role(Scope::Cluster);
    const NAMESPACED: Role = Role(Scope::Namespaced);

    #[test]
    fn a_rule_is_about_objects_or_about_paths() {
        let pods = json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]});
        let paths = json!({"verbs": ["get"], "nonResourceURLs": ["/healthz"]});
        let both = json!({"verbs": ["get"], "apiGroups": [""], "nonResourceURLs": ["/healthz"]});
        check::create(&NAMESPACED, json!({"rules": [pods]}), &[]);
        check::create(&CLUSTER, json!({"rules": [pods, paths]}), &[]);
        check::create(&NAMESPACED, json!({"rules": [paths]}), &["Invalid rules[0].nonResourceURLs"]);
        check::create(&CLUSTER, json!({"rules": [both]}), &["Invalid rules[0].nonResourceURLs"]);
        check::create(
            &CLUSTER,
            json!({"rules": [{}]}),
            &["Required rules[0].verbs", "Required rules[0].apiGroups", "Required rules[0].resources"],
        );
    }

    #[test]
    fn an_aggregated_role_has_a_selector() {
        let selects = |selectors: Value| json!({"aggregationRule": {"clusterRoleSelectors": selectors}});
        check::create(&CLUSTER, selects(json!([{"matchLabels": {"a": "b"}}])), &[]);
        check::create(&CLUSTER, selects(json!([])), &["Required aggregationRule.clusterRoleSelectors"]);
        check::create(
            &CLUSTER,
            selects(json!([{"matchExpressions": [{"key": "a", "operator": "Near"}]}])),
            &[
                "Invalid aggregationRule.clusterRoleSelectors[0].matchExpressions[0].operator",
                "Invalid aggregationRule.clusterRoleSelectors[0]",
            ],
        );
    }
}
