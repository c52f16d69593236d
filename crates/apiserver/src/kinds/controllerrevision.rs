//! ControllerRevisions: immutable snapshots of a controller's rollout state.

use serde_json::Value;

use super::{APPS, entry, metadata};
use crate::field::{Errors, Path};
use crate::json::Json;
use crate::kind::{Kind, Scope};
use crate::strategy::{Lifecycle, NameRule, Semantics, Validation};
use crate::table::Column;
use crate::validation::{immutable, nonnegative};

pub fn kind() -> Kind {
    Kind {
        columns: vec![
            Column::name(),
            Column::text("Controller", "Controller of the object", |revision, _| controller(revision).into()),
            Column::text("Revision", REVISION, |revision, _| revision.count("revision").into()),
            Column::age(),
        ],
        semantics: Semantics { counts_generations: false, ..Semantics::default() },
        ..entry(&APPS, "ControllerRevision", "controllerrevisions", ControllerRevision)
    }
}

const REVISION: &str = "revision indicates the revision of the state represented by Data.";

/// Formats the controller: `statefulset.apps/web`.
fn controller(revision: &Value) -> String {
    let owners = revision.at("metadata").list("ownerReferences");
    let Some(owner) = owners.iter().find(|owner| owner.flag("controller")) else { return "<none>".into() };
    let kind = owner.text("kind").to_lowercase();
    match owner.text("apiVersion").split_once('/') {
        Some((group, _)) => format!("{kind}.{group}/{}", owner.text("name")),
        None => format!("{kind}/{}", owner.text("name")),
    }
}

struct ControllerRevision;

impl Lifecycle for ControllerRevision {}

impl Validation for ControllerRevision {
    fn validate(&self, revision: &Value) -> Errors {
        let mut errors = Errors::default();
        metadata::new(revision, &mut errors);
        check_revision(revision, &mut errors);
        let path = Path::root("data");
        match revision.at("data") {
            Value::Object(_) => {}
            Value::Null => errors.required(&path, "data is mandatory"),
            _ => errors.required(&path, "data must be a valid JSON object"),
        }
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Errors {
        let mut errors = Errors::default();
        metadata::change(new, &mut errors);
        metadata::whole(new, Scope::Namespaced, NameRule::Subdomain, &mut errors);
        check_revision(new, &mut errors);
        immutable(new.at("data"), old.at("data"), &Path::root("data"), &mut errors);
        errors
    }
}

fn check_revision(revision: &Value, errors: &mut Errors) {
    nonnegative(revision.count("revision"), &Path::root("revision"), errors);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::check;
    use serde_json::json;

    #[test]
    fn a_revision_has_a_number_and_data_that_never_changes() {
        check::create(&ControllerRevision, json!({"revision": 0, "data": {}}), &[]);
        check::create(
            &ControllerRevision,
            json!({"revision": -1, "data": []}),
            &["Invalid revision", "Required data"],
        );
        check::create(&ControllerRevision, json!({"revision": 1}), &["Required data"]);
        check::update(
            &ControllerRevision,
            json!({"data": {"a": 1}}),
            &json!({"data": {}}),
            &["Invalid data"],
        );
    }

    #[test]
    fn the_controller_is_shown_with_its_group() {
        let owned = json!({"metadata": {"ownerReferences": [
            {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web", "controller": true}]}});
        assert_eq!(controller(&owned), "statefulset.apps/web");
        assert_eq!(controller(&json!({})), "<none>");
    }
}
