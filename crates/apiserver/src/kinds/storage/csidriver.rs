//! CSIDrivers: what a volume driver requires from nodes.

use serde_json::{Value, json};

use super::STORAGE;
use crate::field::{Errors, Path};
use crate::json::{Json, JsonMut};
use crate::kind::{Kind, Scope};
use crate::kinds::{entry, metadata};
use crate::strategy::{Deletion, Lifecycle, Semantics, Validation};
use crate::table::{Cell, Column, or_none};
use crate::validation::{Seen, immutable, optional_choice};

pub fn kind() -> Kind {
    Kind {
        scope: Scope::Cluster,
        columns: vec![
            Column::name(),
            flag("AttachRequired", |driver, _| driver.at("spec").flag("attachRequired").into()),
            flag("PodInfoOnMount", |driver, _| driver.at("spec").flag("podInfoOnMount").into()),
            flag("StorageCapacity", |driver, _| driver.at("spec").flag("storageCapacity").into()),
            Column::text("TokenRequests", TOKENS, |driver, _| audiences(driver.at("spec"))),
            flag("RequiresRepublish", |driver, _| driver.at("spec").flag("requiresRepublish").into()),
            Column::text("Modes", "The kinds of volumes that the driver supports.", |driver, _| {
                let modes = driver.at("spec").list("volumeLifecycleModes").iter();
                or_none(&modes.filter_map(Value::as_str).collect::<Vec<_>>().join(","))
            }),
            Column::age(),
        ],
        semantics: Semantics {
            counts_generations: false,
            unconditional_update: false,
            deletion: Deletion::RETURNS_OBJECT,
            ..Semantics::default()
        },
        ..entry(&STORAGE, "CSIDriver", "csidrivers", CSIDriver)
    }
}

const TOKENS: &str = "The audiences of the service account tokens that the driver wants.";
const MIN_TOKEN_SECONDS: i64 = 600;
const MAX_TOKEN_SECONDS: i64 = 1 << 32;

const fn flag(name: &'static str, cell: Cell) -> Column {
    Column { data_type: "boolean", ..Column::text(name, "Whether the driver says so.", cell) }
}

fn audiences(spec: &Value) -> Value {
    if !spec.has("tokenRequests") {
        return "<unset>".into();
    }
    crate::table::joined(spec.list("tokenRequests"), "audience")
}

struct CSIDriver;

impl Lifecycle for CSIDriver {
    fn default(&self, driver: &mut Value) {
        let spec = driver.object_mut("spec");
        spec.or_insert("attachRequired", true);
        spec.or_insert("podInfoOnMount", false);
        spec.or_insert("storageCapacity", false);
        spec.or_insert("fsGroupPolicy", "ReadWriteOnceWithFSType");
        if spec.list("volumeLifecycleModes").is_empty() {
            spec.set("volumeLifecycleModes", json!(["Persistent"]));
        }
        spec.or_insert("requiresRepublish", false);
        spec.or_insert("seLinuxMount", false);
    }

    fn prepare_for_create(&self, driver: &mut Value) {
        drop_update_period(driver, &Value::Null);
    }

    /// Increments the generation, which, as in v1.34, counts from the first change on.
    fn prepare_for_update(&self, new: &mut Value, old: &Value) {
        drop_update_period(new, old);
        if new.at("spec") != old.at("spec") {
            let generation = old.at("metadata").count("generation");
            new.object_mut("metadata").set("generation", generation.wrapping_add(1));
        }
    }
}

impl Validation for CSIDriver {
    fn validate(&self, driver: &Value) -> Errors {
        let mut errors = Errors::default();
        metadata::new(driver, &mut errors);
        check_spec(driver.at("spec"), &mut errors);
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Errors {
        let mut errors = Errors::default();
        metadata::change(new, &mut errors);
        let (spec, old_spec) = (new.at("spec"), old.at("spec"));
        check_spec(spec, &mut errors);
        let path = Path::root("spec");
        immutable(
            spec.at("attachRequired"),
            old_spec.at("attachRequired"),
            &path.child("attachedRequired"),
            &mut errors,
        );
        let modes = "volumeLifecycleModes";
        immutable(spec.at(modes), old_spec.at(modes), &path.child(modes), &mut errors);
        errors
    }
}

/// Drops the field of mutable node allocatable, which v1.34 disables, unless already present.
fn drop_update_period(driver: &mut Value, old: &Value) {
    let field = "nodeAllocatableUpdatePeriodSeconds";
    if !old.at("spec").has(field) {
        driver.object_mut("spec").unset(field);
    }
}

fn check_spec(spec: &Value, errors: &mut Errors) {
    let path = Path::root("spec");
    for (field, named) in [
        ("attachRequired", "attachedRequired"),
        ("podInfoOnMount", "podInfoOnMount"),
        ("storageCapacity", "storageCapacity"),
    ] {
        if !spec.has(field) {
            errors.required(&path.child(named), "");
        }
    }
    let policies = ["File", "None", "ReadWriteOnceWithFSType"];
    optional_choice(spec, "fsGroupPolicy", &policies, &path, errors);
    check_tokens(spec.list("tokenRequests"), &path.child("tokenRequests"), errors);
    for mode in spec.list("volumeLifecycleModes").iter().filter_map(Value::as_str) {
        if !["Persistent", "Ephemeral"].contains(&mode) {
            errors.not_supported(&path.child("volumeLifecycleModes"), mode, &["Persistent", "Ephemeral"]);
        }
    }
    if !spec.has("seLinuxMount") {
        errors.required(&path.child("seLinuxMount"), "");
    }
    let period = "nodeAllocatableUpdatePeriodSeconds";
    if let Some(seconds) = spec.int(period).filter(|seconds| *seconds < 10) {
        errors.invalid(&path.child(period), seconds, "must be greater than or equal to 10 seconds");
    }
}

fn check_tokens(requests: &[Value], path: &Path<'_>, errors: &mut Errors) {
    let mut seen = Seen::new();
    for (index, request) in requests.iter().enumerate() {
        let path = path.index(index);
        let audience = request.text("audience");
        if seen.again(audience) {
            errors.duplicate(&path.child("audience"), audience);
            continue;
        }
        let path = path.child("expirationSeconds");
        match request.int("expirationSeconds") {
            Some(seconds) if seconds < MIN_TOKEN_SECONDS => {
                errors.invalid(&path, seconds, "may not specify a duration less than 10 minutes");
            }
            Some(seconds) if seconds > MAX_TOKEN_SECONDS => {
                errors.invalid(&path, seconds, "may not specify a duration larger than 2^32 seconds");
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::check;

    #[test]
    fn everything_has_a_default() {
        let mut driver = json!({});
        CSIDriver.default(&mut driver);
        check::create(&CSIDriver, json!({}), &[]);
        assert_eq!(
            driver,
            json!({"spec": {"attachRequired": true, "podInfoOnMount": false, "storageCapacity": false,
                "fsGroupPolicy": "ReadWriteOnceWithFSType", "volumeLifecycleModes": ["Persistent"],
                "requiresRepublish": false, "seLinuxMount": false}})
        );
    }

    #[test]
    fn tokens_have_audiences_of_their_own_and_live_long_enough() {
        check::create(
            &CSIDriver,
            json!({"spec": {"fsGroupPolicy": "X", "volumeLifecycleModes": ["Y"],
                "tokenRequests": [{"audience": "a", "expirationSeconds": 599}, {"audience": "a"}]}}),
            &[
                "NotSupported spec.fsGroupPolicy",
                "Invalid spec.tokenRequests[0].expirationSeconds",
                "Duplicate spec.tokenRequests[1].audience",
                "NotSupported spec.volumeLifecycleModes",
            ],
        );
    }

    #[test]
    fn attachment_and_modes_stay() {
        check::update(
            &CSIDriver,
            json!({"spec": {"attachRequired": false, "volumeLifecycleModes": ["Ephemeral"]}}),
            &json!({}),
            &["Invalid spec.attachedRequired", "Invalid spec.volumeLifecycleModes"],
        );
    }
}
