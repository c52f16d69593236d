//! Bindings: grant roles to subjects.

use serde_json::Value;

use super::{GROUP, RBAC, entry};
use crate::field::{Errors, Path};
use crate::json::{Json, JsonMut};
use crate::kind::{Kind, Scope};
use crate::kinds::metadata;
use crate::names;
use crate::strategy::{Lifecycle, NameRule, Semantics, Validation};
use crate::table::Column;
use crate::validation::{add_invalid, dns_subdomain};

/// The kind that grants a role or cluster role in one namespace.
pub fn role_binding() -> Kind {
    let column = Column::text("Role", ROLE, role);
    let subjects =
        ["Users in the roleBinding", "Groups in the roleBinding", "ServiceAccounts in the roleBinding"];
    Kind {
        columns: columns(column, subjects),
        semantics: Semantics {
            counts_generations: false,
            names: NameRule::PathSegment,
            create_on_update: true,
            ..Semantics::default()
        },
        ..entry(&RBAC, "RoleBinding", "rolebindings", Binding(Scope::Namespaced))
    }
}

/// The kind that grants a cluster role everywhere.
pub fn cluster_role_binding() -> Kind {
    let column = Column::text("Role", CLUSTER_ROLE, role);
    let subjects = [
        "Users in the clusterRoleBinding",
        "Groups in the clusterRoleBinding",
        "ServiceAccounts in the clusterRoleBinding",
    ];
    Kind {
        scope: Scope::Cluster,
        columns: columns(column, subjects),
        semantics: Semantics {
            counts_generations: false,
            names: NameRule::PathSegment,
            create_on_update: true,
            ..Semantics::default()
        },
        ..entry(&RBAC, "ClusterRoleBinding", "clusterrolebindings", Binding(Scope::Cluster))
    }
}

const ROLE: &str = "RoleRef can reference a Role in the current namespace or a ClusterRole in the global namespace. If the RoleRef cannot be resolved, the Authorizer must return an error.";
const CLUSTER_ROLE: &str = "RoleRef can only reference a ClusterRole in the global namespace. If the RoleRef cannot be resolved, the Authorizer must return an error.";

fn columns(role: Column, [users, groups, accounts]: [&'static str; 3]) -> Vec<Column> {
    vec![
        Column::name(),
        role,
        Column::age(),
        Column::text("Users", users, |binding, _| subjects(binding, "User")).wide(),
        Column::text("Groups", groups, |binding, _| subjects(binding, "Group")).wide(),
        Column::text("ServiceAccounts", accounts, |binding, _| subjects(binding, "ServiceAccount")).wide(),
    ]
}

fn role(binding: &Value, _: jiff::Timestamp) -> Value {
    let role = binding.at("roleRef");
    format!("{}/{}", role.text("kind"), role.text("name")).into()
}

fn subjects(binding: &Value, kind: &str) -> Value {
    let of_kind = binding.list("subjects").iter().filter(|subject| subject.text("kind") == kind);
    let shown = of_kind.map(|subject| match kind {
        "ServiceAccount" => format!("{}/{}", subject.text("namespace"), subject.text("name")),
        _ => subject.text("name").to_owned(),
    });
    shown.collect::<Vec<_>>().join(", ").into()
}

struct Binding(Scope);

impl Lifecycle for Binding {
    fn default(&self, binding: &mut Value) {
        binding.object_mut("roleRef").or_text("apiGroup", GROUP);
        for subject in binding.list_mut("subjects") {
            if matches!(subject.text("kind"), "User" | "Group") {
                subject.or_text("apiGroup", GROUP);
            }
        }
    }
}

impl Validation for Binding {
    fn validate(&self, binding: &Value) -> Errors {
        let mut errors = Errors::default();
        metadata::new(binding, &mut errors);
        self.check(binding, &mut errors);
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Errors {
        let mut errors = Errors::default();
        // v1.34 validates a changed binding as a whole, and then again as an update.
        for _ in 0..2 {
            metadata::whole(new, self.0, NameRule::PathSegment, &mut errors);
            self.check(new, &mut errors);
        }
        if new.at("roleRef") != old.at("roleRef") {
            errors.invalid(&Path::root("roleRef"), new.at("roleRef").clone(), "cannot change roleRef");
        }
        errors
    }
}

impl Binding {
    fn check(&self, binding: &Value, errors: &mut Errors) {
        self.check_role(binding.at("roleRef"), errors);
        let path = Path::root("subjects");
        for (index, subject) in binding.list("subjects").iter().enumerate() {
            self.check_subject(subject, &path.index(index), errors);
        }
    }

    fn check_role(&self, role: &Value, errors: &mut Errors) {
        let path = Path::root("roleRef");
        check_group(role, &path, errors);
        let kinds: &[&str] = match self.0 {
            Scope::Namespaced => &["Role", "ClusterRole"],
            Scope::Cluster => &["ClusterRole"],
        };
        if !kinds.contains(&role.text("kind")) {
            errors.not_supported(&path.child("kind"), role.text("kind"), kinds);
        }
        match role.text("name") {
            "" => errors.required(&path.child("name"), ""),
            name => add_invalid(names::path_segment(name), name, &path.child("name"), errors),
        }
    }

    fn check_subject(&self, subject: &Value, path: &Path<'_>, errors: &mut Errors) {
        let name = subject.text("name");
        if name.is_empty() {
            errors.required(&path.child("name"), "");
        }
        match subject.text("kind") {
            "User" | "Group" => check_group(subject, path, errors),
            "ServiceAccount" => {
                if !name.is_empty() {
                    dns_subdomain(name, &path.child("name"), errors);
                }
                if !subject.text("apiGroup").is_empty() {
                    errors.not_supported(&path.child("apiGroup"), subject.text("apiGroup"), &[""]);
                }
                if self.0 == Scope::Cluster && subject.text("namespace").is_empty() {
                    errors.required(&path.child("namespace"), "");
                }
            }
            other => {
                errors.not_supported(&path.child("kind"), other, &["ServiceAccount", "User", "Group"]);
            }
        }
    }
}

fn check_group(object: &Value, path: &Path<'_>, errors: &mut Errors) {
    if object.text("apiGroup") != GROUP {
        errors.not_supported(&path.child("apiGroup"), object.text("apiGroup"), &[GROUP]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::check;
    use serde_json::json;

    const CLUSTER: Binding = Binding(Scope::Cluster);
    const NAMESPACED: Binding = Binding(Scope::Namespaced);

    fn binding(kind: &str, subject: Value) -> Value {
        json!({"roleRef": {"kind": kind, "name": "r"}, "subjects": [subject]})
    }

    #[test]
    fn a_binding_gives_a_role_to_users_groups_and_accounts() {
        let user = json!({"kind": "User", "name": "a"});
        let account = json!({"kind": "ServiceAccount", "name": "a"});
        check::create(&NAMESPACED, binding("Role", user.clone()), &[]);
        check::create(&NAMESPACED, binding("ClusterRole", account.clone()), &[]);
        check::create(&CLUSTER, binding("Role", user.clone()), &["NotSupported roleRef.kind"]);
        check::create(&CLUSTER, binding("ClusterRole", account), &["Required subjects[0].namespace"]);
        check::create(
            &CLUSTER,
            binding("ClusterRole", json!({"kind": "Robot"})),
            &["Required subjects[0].name", "NotSupported subjects[0].kind"],
        );
        check::create(
            &NAMESPACED,
            json!({"roleRef": {"apiGroup": "x", "kind": "Role"}}),
            &["NotSupported roleRef.apiGroup", "Required roleRef.name"],
        );
    }

    #[test]
    fn the_role_of_a_binding_stays() {
        let user = json!({"kind": "User", "name": "a"});
        let old = binding("Role", user.clone());
        check::update(&NAMESPACED, binding("Role", json!({"kind": "Group", "name": "b"})), &old, &[]);
        check::update(&NAMESPACED, binding("ClusterRole", user), &old, &["Invalid roleRef"]);
    }

    #[test]
    fn a_table_names_the_subjects_by_kind() {
        let binding = json!({"subjects": [
            {"kind": "User", "name": "a"},
            {"kind": "User", "name": "b"},
            {"kind": "ServiceAccount", "name": "c", "namespace": "n"},
        ]});
        assert_eq!(subjects(&binding, "User"), "a, b");
        assert_eq!(subjects(&binding, "ServiceAccount"), "n/c");
        assert_eq!(subjects(&binding, "Group"), "");
    }
}
