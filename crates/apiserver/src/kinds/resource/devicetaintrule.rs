//! DeviceTaintRules: taints that administrators put on devices. Served if the feature is enabled.

use jiff::Timestamp;
use serde_json::Value;

use super::claim::{EFFECTS, MAX_SELECTORS};
use super::naming::{check_each, check_pool};
use super::{RESOURCE_V1ALPHA3, selector};
use crate::auth::User;
use crate::field::{Errors, Path};
use crate::json::{Json, JsonMut};
use crate::kind::{Kind, Scope};
use crate::kinds::{entry, metadata};
use crate::names;
use crate::strategy::{Deletion, Lifecycle, Semantics, Validation};
use crate::table::Column;
use crate::validation::{add_invalid, csi_driver_name, dns_label, dns_subdomain, qualified_name};

const KEY: &str = "The taint key to be applied to a device. Must be a label name.";
const VALUE: &str = "The taint value corresponding to the taint key. Must be a label value.";
const EFFECT: &str = "The effect of the taint on claims that do not tolerate the taint and through such claims on the pods using them.";
const ADDED: &str = "TimeAdded represents the time at which the taint was added. Added automatically during create or update if not set.";

pub fn kind() -> Kind {
    Kind {
        scope: Scope::Cluster,
        columns: vec![
            Column::name(),
            Column::text("Key", KEY, |rule, _| rule.at("spec").at("taint").text("key").into()),
            Column::text("Value", VALUE, |rule, _| rule.at("spec").at("taint").text("value").into()),
            Column::text("Effect", EFFECT, |rule, _| rule.at("spec").at("taint").text("effect").into()),
            Column::text("TimeAdded", ADDED, |rule, _| rule.at("spec").at("taint").text("timeAdded").into()),
            Column::age(),
        ],
        semantics: Semantics { deletion: Deletion::RETURNS_OBJECT, ..Semantics::default() },
        ..entry(&RESOURCE_V1ALPHA3, "DeviceTaintRule", "devicetaintrules", DeviceTaintRule)
    }
}

struct DeviceTaintRule;

impl Lifecycle for DeviceTaintRule {
    fn stamp(&self, rule: &mut Value, _: Option<&Value>, _: &User, now: Timestamp) {
        let taint = rule.object_mut("spec").object_mut("taint");
        taint.or_insert("timeAdded", crate::metadata::seconds(now));
    }
}

impl Validation for DeviceTaintRule {
    fn validate(&self, rule: &Value) -> Errors {
        let mut errors = Errors::default();
        metadata::new(rule, &mut errors);
        check(rule.at("spec"), &mut errors);
        errors
    }

    fn validate_update(&self, new: &Value, _: &Value) -> Errors {
        let mut errors = Errors::default();
        metadata::change(new, &mut errors);
        check(new.at("spec"), &mut errors);
        errors
    }
}

fn check(spec: &Value, errors: &mut Errors) {
    let path = Path::root("spec");
    let (selecting, of) = (spec.at("deviceSelector"), path.child("deviceSelector"));
    if selecting.has("deviceClassName") {
        dns_subdomain(selecting.text("deviceClassName"), &of.child("deviceClassName"), errors);
    }
    if selecting.has("driver") {
        csi_driver_name(selecting.text("driver"), &of.child("driver"), errors);
    }
    if selecting.has("pool") {
        check_pool(selecting.text("pool"), &of.child("pool"), errors);
    }
    if selecting.has("device") {
        dns_label(selecting.text("device"), &of.child("device"), errors);
    }
    check_each(selecting.list("selectors"), MAX_SELECTORS, &of.child("selectors"), errors, selector::check);
    check_taint(spec.at("taint"), &path.child("taint"), errors);
}

/// Validates a device taint, from a rule or from a driver.
pub(super) fn check_taint(taint: &Value, path: &Path<'_>, errors: &mut Errors) {
    let (value, effect) = (taint.text("value"), taint.text("effect"));
    qualified_name(taint.text("key"), &path.child("key"), errors);
    if !value.is_empty() {
        add_invalid(names::label_value(value), value, &path.child("value"), errors);
    }
    if effect.is_empty() {
        errors.required(&path.child("effect"), "");
    } else if !EFFECTS.contains(&effect) {
        errors.not_supported(&path.child("effect"), effect, &EFFECTS);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kinds::check as checking;

    #[test]
    fn a_rule_has_a_device_selector_and_a_taint() {
        let rule =
            |selector: Value, taint: Value| json!({"spec": {"deviceSelector": selector, "taint": taint}});
        let taint = json!({"key": "example.com/broken", "effect": "NoExecute"});
        checking::create(&DeviceTaintRule, rule(Value::Null, taint.clone()), &[]);
        checking::create(
            &DeviceTaintRule,
            rule(json!({"driver": "d.example.com", "pool": "p"}), taint.clone()),
            &[],
        );
        let wrong = &["Invalid spec.deviceSelector.device", "NotSupported spec.taint.effect"];
        let bad = json!({"key": "k", "effect": "PreferNoSchedule"});
        checking::create(&DeviceTaintRule, rule(json!({"device": "A_B"}), bad), wrong);
    }
}
