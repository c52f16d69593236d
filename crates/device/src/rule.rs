//! Taints set by DeviceTaintRules.
//!
//! Invariants:
//! - a rule applies to devices that match all of its criteria; without criteria to all devices, and with a missing
//!   class to none;
//! - a device for which an expression fails is not tainted.

use std::cell::OnceCell;
use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;
use setpoint::object::DecodeError;
use setpoint::{Cached, Context, Informer, Key, Lister, Object, null_is_empty};
use setpoint_cel::device::Device;

use crate::selector::{Expressions, Selector};
use crate::taint::Taint;

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Rule {
    spec: RuleSpec,
}

setpoint::view!(Rule of k8s_openapi::api::resource::v1alpha3::DeviceTaintRule);

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RuleSpec {
    #[serde(deserialize_with = "null_is_empty")]
    device_selector: Criteria,
    taint: Taint,
}

/// The criteria of a rule. Unset ones match everything.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Criteria {
    device_class_name: Option<String>,
    driver: Option<String>,
    pool: Option<String>,
    device: Option<String>,
    #[serde(deserialize_with = "null_is_empty")]
    selectors: Vec<Selector>,
}

/// The fields of a DeviceClass that rules use.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Class {
    spec: ClassSpec,
}

setpoint::view!(Class of k8s_openapi::api::resource::v1::DeviceClass);

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct ClassSpec {
    #[serde(deserialize_with = "null_is_empty")]
    selectors: Vec<Selector>,
}

/// The informers that rules depend on.
pub struct RuleSources {
    rules: Informer,
    classes: Informer,
}

impl RuleSources {
    pub fn of(context: &Context) -> Self {
        Self { rules: context.informers.of::<Rule>(), classes: context.informers.of::<Class>() }
    }

    pub fn all(&self) -> [&Informer; 2] {
        [&self.rules, &self.classes]
    }

    pub fn lister(&self, expressions: Expressions) -> RuleLister {
        RuleLister { rules: self.rules.lister(), classes: self.classes.lister(), expressions }
    }
}

/// Reads rules. Cheap to clone.
#[derive(Clone)]
pub struct RuleLister {
    rules: Lister<Rule>,
    classes: Lister<Class>,
    expressions: Expressions,
}

impl RuleLister {
    /// Builds a lister from fixed rules and classes.
    pub fn from_objects(rules: Vec<Object>, classes: Vec<Object>) -> Self {
        let expressions = Expressions::default();
        Self { rules: Lister::from_objects(rules), classes: Lister::from_objects(classes), expressions }
    }

    /// Whether there is any rule.
    pub fn any(&self) -> bool {
        !self.rules.objects().list(None).is_empty()
    }

    /// Returns the current rules, without those whose class is missing.
    pub fn read(&self) -> Result<Rules, DecodeError> {
        let mut rules = Vec::new();
        for rule in self.rules.list(None)? {
            let class = match &rule.spec.device_selector.device_class_name {
                None => None,
                Some(name) => match self.classes.get(&Key::cluster(name.as_str()))? {
                    None => continue,
                    class => class,
                },
            };
            rules.push((rule, class));
        }
        Ok(Rules { rules, expressions: self.expressions.clone() })
    }
}

/// A snapshot of rules and their classes.
#[derive(Clone)]
pub struct Rules {
    rules: Vec<(Cached<Rule>, Option<Cached<Class>>)>,
    expressions: Expressions,
}

/// The device to evaluate rules for.
pub struct Target<'a> {
    pub driver: &'a str,
    pub pool: &'a str,
    pub name: &'a str,
    pub attributes: &'a BTreeMap<String, Value>,
    pub capacity: &'a BTreeMap<String, Value>,
}

impl Rules {
    /// Returns the taints that rules set on a device. Calls `failed` if a rule's expression fails for it.
    pub fn taints<'a>(
        &'a self,
        device: &Target<'_>,
        mut failed: impl FnMut(&Cached<Rule>, String),
    ) -> Vec<&'a Taint> {
        // Built only if there are expressions.
        let facts = OnceCell::new();
        let facts = || facts.get_or_init(|| Device::new(device.driver, device.attributes, device.capacity));
        let mut taints = Vec::new();
        for (rule, class) in &self.rules {
            let criteria = &rule.spec.device_selector;
            if !criteria.names(device) {
                continue;
            }
            let of_class = class.as_ref().map_or(&[][..], |class| &class.spec.selectors);
            // Errors in a class are reported when devices of the class are requested.
            if !of_class.is_empty() && !self.expressions.all_match(of_class, facts()).unwrap_or(false) {
                continue;
            }
            match &criteria.selectors[..] {
                [] => taints.push(&rule.spec.taint),
                selectors => match self.expressions.all_match(selectors, facts()) {
                    Ok(true) => taints.push(&rule.spec.taint),
                    Ok(false) => {}
                    Err(error) => {
                        failed(rule, format!("selector #{}: runtime error: {}", error.at, error.why));
                    }
                },
            }
        }
        taints
    }
}

impl Criteria {
    /// Whether the name criteria match a device.
    fn names(&self, device: &Target<'_>) -> bool {
        let is =
            |wanted: &Option<String>, actual: &str| wanted.as_deref().is_none_or(|wanted| wanted == actual);
        is(&self.driver, device.driver) && is(&self.pool, device.pool) && is(&self.device, device.name)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(value: Value) -> Object {
        Object::from_json(value.to_string().into()).expect("an object")
    }

    fn class() -> Object {
        let cel = json!([{"cel": {"expression": "device.attributes['d.io'].model == 'a'"}}]);
        object(json!({"metadata": {"name": "model-a"}, "spec": {"selectors": cel}}))
    }

    /// Returns the number of taints that a rule with this selector sets on a device, and the reported errors.
    fn evaluated(selector: Value) -> (usize, Vec<String>) {
        let taint = json!({"key": "k", "effect": "NoExecute"});
        let spec = json!({"deviceSelector": selector, "taint": taint});
        let rules = vec![object(json!({"metadata": {"name": "r"}, "spec": spec}))];
        let rules = RuleLister::from_objects(rules, vec![class()]).read().expect("rules");
        let attributes = BTreeMap::from([("model".to_owned(), json!({"string": "a"}))]);
        let capacity = BTreeMap::new();
        let (driver, pool, name) = ("d.io", "p", "x");
        let target = Target { driver, pool, name, attributes: &attributes, capacity: &capacity };
        let mut errors = Vec::new();
        let count = rules.taints(&target, |_, why| errors.push(why)).len();
        (count, errors)
    }

    #[track_caller]
    fn check(selector: Value, expected: bool) {
        assert_eq!(evaluated(selector.clone()), (usize::from(expected), vec![]), "{selector}");
    }

    fn cel(expressions: &[&str]) -> Value {
        let one = |expression: &&str| json!({"cel": {"expression": expression}});
        json!({"selectors": expressions.iter().map(one).collect::<Vec<_>>()})
    }

    #[test]
    fn a_rule_selects_the_devices_that_match_all_its_criteria() {
        check(Value::Null, true);
        check(json!({}), true);
        check(json!({"driver": "d.io", "pool": "p", "device": "x"}), true);
        check(json!({"driver": "e.io"}), false);
        check(json!({"driver": "d.io", "pool": "q"}), false);
        check(json!({"device": "y"}), false);
        check(json!({"deviceClassName": "model-a"}), true);
        check(json!({"deviceClassName": "not-there"}), false);
        check(json!({"deviceClassName": "model-a", "device": "y"}), false);
        check(cel(&["device.attributes['d.io'].model == 'a'"]), true);
        check(cel(&["device.attributes['d.io'].model == 'b'"]), false);
        check(cel(&["device.driver == 'd.io'", "device.driver == 'e.io'"]), false);
    }

    #[test]
    fn a_failing_expression_taints_nothing_and_is_reported() {
        let (count, errors) =
            evaluated(cel(&["device.driver == 'd.io'", "device.attributes['d.io'].size > 1"]));
        assert_eq!((count, errors), (0, vec!["selector #1: runtime error: no such key: size".to_owned()]));
    }
}
