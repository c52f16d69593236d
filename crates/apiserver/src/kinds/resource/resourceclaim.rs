//! ResourceClaims: devices for pods.

use serde_json::Value;

use super::{RESOURCE, claim, status};
use crate::field::{Errors, Path};
use crate::json::{Json, JsonMut};
use crate::kind::{Kind, Scope, Subresource};
use crate::kinds::{entry, metadata};
use crate::strategy::{Deletion, Lifecycle, NameRule, Semantics, Validation};
use crate::table::Column;
use crate::validation::immutable;

pub fn kind() -> Kind {
    Kind {
        subresources: vec![Subresource::Status],
        columns: vec![
            Column::name(),
            Column::text("State", STATE, |claim, _| state(claim).into()),
            Column::age(),
        ],
        semantics: Semantics {
            counts_generations: false,
            deletion: Deletion::RETURNS_OBJECT,
            ..Semantics::with_strict_status(|| serde_json::json!({}))
        },
        ..entry(&RESOURCE, "ResourceClaim", "resourceclaims", ResourceClaim)
    }
}

const STATE: &str = "A summary of the current state (allocated, pending, reserved, etc.).";

fn state(claim: &Value) -> String {
    let (status, deleted) = (claim.at("status"), claim.at("metadata").has("deletionTimestamp"));
    let allocated = status.has("allocation");
    let states = [
        ("deleted", deleted),
        ("pending", !allocated && !deleted),
        ("allocated", allocated),
        ("reserved", allocated && !status.list("reservedFor").is_empty()),
    ];
    states.iter().filter(|(_, is)| *is).map(|(state, _)| *state).collect::<Vec<_>>().join(",")
}

struct ResourceClaim;

impl Lifecycle for ResourceClaim {
    fn default(&self, claim: &mut Value) {
        if let Some(spec) = claim.at_mut("spec") {
            claim::default(spec);
        }
    }

    fn prepare_for_create(&self, claim: &mut Value) {
        claim::drop_disabled(claim.object_mut("spec"));
    }

    fn prepare_for_update(&self, new: &mut Value, _: &Value) {
        claim::drop_disabled(new.object_mut("spec"));
    }

    fn prepare_for_status_update(&self, new: &mut Value, old: &Value) {
        status::prepare(new, old);
    }

    fn resets(&self, subresource: Option<Subresource>) -> Option<&'static [&'static [&'static str]]> {
        Some(match subresource {
            None => &[&["status"]],
            Some(_) => &[&["spec"]],
        })
    }
}

impl Validation for ResourceClaim {
    fn validate(&self, claim: &Value) -> Errors {
        let mut errors = Errors::default();
        metadata::new(claim, &mut errors);
        claim::check(claim.at("spec"), &Path::root("spec"), &mut errors);
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Errors {
        let mut errors = Errors::default();
        let path = Path::root("spec");
        // Twice, as v1.34 does.
        metadata::whole(new, Scope::Namespaced, NameRule::Subdomain, &mut errors);
        claim::check(new.at("spec"), &path, &mut errors);
        metadata::change(new, &mut errors);
        immutable(new.at("spec"), old.at("spec"), &path, &mut errors);
        claim::check(new.at("spec"), &path, &mut errors);
        errors
    }

    fn validate_status_update(&self, new: &Value, old: &Value) -> Errors {
        let mut errors = Errors::default();
        metadata::change(new, &mut errors);
        status::check_change(new, old, &mut errors);
        errors
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::check;
    use serde_json::json;

    fn claim(devices: Value) -> Value {
        json!({"spec": {"devices": devices}})
    }

    fn request(name: &str) -> Value {
        json!({"name": name, "exactly": {"deviceClassName": "c"}})
    }

    #[test]
    fn a_request_is_for_so_many_devices_of_a_class() {
        let path = "spec.devices.requests[0]";
        let create = |request: Value, expected: &[&str]| {
            check::create(&ResourceClaim, claim(json!({"requests": [request]})), expected);
        };
        create(request("a"), &[]);
        create(json!({"name": "a"}), &[&format!("Required {path}")]);
        create(json!({"name": "a", "exactly": {}}), &[&format!("Required {path}.exactly.deviceClassName")]);
        create(
            json!({"name": "A", "exactly": {"deviceClassName": "c", "allocationMode": "All", "count": 1, "selectors": [{}]}}),
            &[
                &format!("Invalid {path}.name"),
                &format!("Required {path}.exactly.selectors[0].cel"),
                &format!("Invalid {path}.exactly.count"),
            ],
        );
        create(
            json!({"name": "a", "exactly": {"deviceClassName": "c", "allocationMode": "X"}, "firstAvailable": [{"name": "b", "deviceClassName": "c"}]}),
            &[&format!("NotSupported {path}.exactly.allocationMode"), &format!("Invalid {path}")],
        );
    }

    #[test]
    fn requests_are_referred_to_by_name() {
        let devices = |constraint: Value| {
            let first = json!({"name": "b", "firstAvailable": [{"name": "x", "deviceClassName": "c"}]});
            claim(json!({"requests": [request("a"), first], "constraints": [constraint]}))
        };
        let path = "spec.devices.constraints[0]";
        let fine = json!({"requests": ["a", "b/x"], "matchAttribute": "a.io/numa"});
        check::create(&ResourceClaim, devices(fine), &[]);
        check::create(
            &ResourceClaim,
            devices(json!({"requests": ["c", "b/y", "a", "a"], "matchAttribute": "numa"})),
            &[
                &format!("Invalid {path}.requests[0]"),
                &format!("Invalid {path}.requests[1]"),
                &format!("Duplicate {path}.requests[3]"),
                &format!("Invalid {path}.matchAttribute"),
            ],
        );
        check::create(
            &ResourceClaim,
            claim(json!({"requests": [request("a"), request("a")]})),
            &["Duplicate spec.devices.requests[1].name"],
        );
    }

    #[test]
    fn the_spec_of_a_resource_claim_is_immutable() {
        let old = claim(json!({"requests": [request("a")]}));
        let new = claim(json!({"requests": [request("b")]}));
        check::update(&ResourceClaim, new, &old, &["Invalid spec"]);
    }

    #[test]
    fn devices_are_allocated_before_they_are_reserved() {
        let old = claim(json!({"requests": [request("a")]}));
        let with = |status: Value| {
            let mut claim = old.clone();
            claim.set("status", status);
            claim
        };
        let allocation =
            json!({"devices": {"results": [{"request": "a", "driver": "d.io", "pool": "p", "device": "x"}]}});
        let consumer = json!({"resource": "pods", "name": "p", "uid": "1"});
        let errors = |status: Value| check::shown(&ResourceClaim.validate_status_update(&with(status), &old));
        assert!(errors(json!({"allocation": allocation, "reservedFor": [consumer]})).is_empty());
        assert_eq!(errors(json!({"reservedFor": [consumer]})), ["Forbidden status.reservedFor"]);
        assert_eq!(
            errors(
                json!({"allocation": allocation, "devices": [{"driver": "d.io", "pool": "p", "device": "y"}]})
            ),
            ["Invalid status.devices[0]"]
        );
        let claim = with(json!({"allocation": allocation, "reservedFor": [consumer]}));
        assert_eq!((state(&claim).as_str(), state(&old).as_str()), ("allocated,reserved", "pending"));
    }

    #[test]
    fn device_status_is_removed_with_the_device() {
        let device = json!({"driver": "d.io", "pool": "p", "device": "x"});
        let old = json!({"status": {"allocation": {"devices": {"results": [device]}}, "devices": [device]}});
        let mut new = json!({"status": {"devices": [device]}});
        ResourceClaim.prepare_for_status_update(&mut new, &old);
        assert_eq!(new["status"], json!({}));
    }
}
