//! StorageVersionMigrations: resources to rewrite in the current storage version. Served if the feature is enabled.

use serde_json::{Value, json};

use super::{STORAGE_MIGRATION, entry, metadata};
use crate::field::{Errors, Path};
use crate::json::Json;
use crate::kind::{Deprecation, Kind, Scope, Subresource};
use crate::strategy::{Lifecycle, Semantics, Validation};
use crate::table::Column;
use crate::validation::has_condition;

pub fn kind() -> Kind {
    Kind {
        scope: Scope::Cluster,
        subresources: vec![Subresource::Status],
        columns: vec![
            Column::name(),
            Column::text("Resource", "Fully qualified resource to migrate", |migration, _| {
                let resource = migration.at("spec").at("resource");
                let parts = [resource.text("resource"), resource.text("version"), resource.text("group")];
                parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(".").into()
            }),
        ],
        deprecation: Some(Deprecation { warning: DEPRECATED.into(), removed_release: "1.36" }),
        semantics: Semantics {
            counts_generations: false,
            unconditional_update: false,
            ..Semantics::with_strict_status(|| json!({}))
        },
        ..entry(
            &STORAGE_MIGRATION,
            "StorageVersionMigration",
            "storageversionmigrations",
            StorageVersionMigration,
        )
    }
}

const DEPRECATED: &str =
    "storagemigration.k8s.io/v1alpha1 StorageVersionMigration is deprecated in v1.33+, unavailable in v1.36+";

struct StorageVersionMigration;

impl Lifecycle for StorageVersionMigration {}

impl Validation for StorageVersionMigration {
    fn validate(&self, migration: &Value) -> Errors {
        let mut errors = Errors::default();
        metadata::new(migration, &mut errors);
        check(migration, &mut errors);
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Errors {
        let mut errors = Errors::default();
        check(new, &mut errors);
        metadata::change(new, &mut errors);
        for field in ["group", "version", "resource"] {
            let of = |migration: &Value| migration.at("spec").at("resource").text(field).to_owned();
            if of(new) != of(old) {
                errors.invalid(&Path::root(field), of(new), "field is immutable");
            }
        }
        errors
    }

    fn validate_status_update(&self, new: &Value, old: &Value) -> Errors {
        let mut errors = Errors::default();
        metadata::change(new, &mut errors);
        check_status(new.at("status"), old.at("status"), &mut errors);
        errors
    }
}

fn check(migration: &Value, errors: &mut Errors) {
    let resource = migration.at("spec").at("resource");
    let spec = Path::root("spec");
    let path = spec.child("resource");
    for field in ["resource", "version"] {
        if resource.text(field).is_empty() {
            errors.required(&path.child(field), format!("{field} is required"));
        }
    }
}

/// Checks that a migration either succeeds or fails, once, and that its resource version does not change.
fn check_status(new: &Value, old: &Value, errors: &mut Errors) {
    let path = Path::root("status");
    let (version, before) = (new.text("resourceVersion"), old.text("resourceVersion"));
    if !version.is_empty() && version.parse::<i64>().is_err() {
        let detail = format!(
            "failed to parse resource version {version:?}: strconv.ParseInt: parsing {version:?}: invalid syntax"
        );
        errors.invalid(&path.child("resourceVersion"), version, detail);
    }
    if !before.is_empty() && version != before {
        errors.invalid(&path.child("resourceVersion"), version, "field is immutable");
    }
    let conditions = path.child("conditions");
    let mut add_invalid = |wrong: bool, detail: &str| {
        if wrong {
            errors.invalid(&conditions, new.at("conditions").clone(), detail);
        }
    };
    let (succeeded, failed, running) =
        (has_condition(new, "Succeeded"), has_condition(new, "Failed"), has_condition(new, "Running"));
    add_invalid(succeeded && failed, "Both success and failed conditions cannot be true at the same time");
    add_invalid(succeeded && running, "Running condition cannot be true when success condition is true");
    add_invalid(failed && running, "Running condition cannot be true when failed condition is true");
    add_invalid(
        has_condition(old, "Succeeded") && !succeeded,
        "Success condition cannot be set to false once it is true",
    );
    add_invalid(
        has_condition(old, "Failed") && !failed,
        "Failed condition cannot be set to false once it is true",
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::check as checking;

    #[test]
    fn the_resource_of_a_migration_is_immutable() {
        let of = |version: &str| json!({"spec": {"resource": {"version": version, "resource": "secrets"}}});
        checking::create(&StorageVersionMigration, of("v1"), &[]);
        checking::create(&StorageVersionMigration, of(""), &["Required spec.resource.version"]);
        checking::update(&StorageVersionMigration, of("v2"), &of("v1"), &["Invalid version"]);
    }

    #[test]
    fn a_migration_ends_once() {
        let status = |types: &[&str], version: &str| {
            let conditions: Vec<_> = types.iter().map(|of| json!({"type": of, "status": "True"})).collect();
            json!({"status": {"conditions": conditions, "resourceVersion": version}})
        };
        let check = |new: Value, old: Value, wrong: usize| {
            assert_eq!(
                StorageVersionMigration.validate_status_update(&new, &old).0.len(),
                wrong,
                "{new} {old}"
            );
        };
        check(status(&["Running"], "5"), status(&[], ""), 0);
        check(status(&["Running", "Succeeded"], "5"), status(&[], "5"), 1);
        check(status(&["Succeeded", "Failed"], "5"), status(&[], "5"), 1);
        check(status(&[], "5"), status(&["Succeeded"], "5"), 1);
        check(status(&[], "6"), status(&[], "5"), 1);
        check(status(&[], "x"), status(&[], ""), 1);
    }
}
