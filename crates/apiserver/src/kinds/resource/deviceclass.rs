//! DeviceClasses: types of devices and their configuration.

use serde_json::Value;

use super::claim::{MAX_CONFIGS, MAX_SELECTORS, check_configuration};
use super::naming::check_each;
use super::{RESOURCE, selector};
use crate::field::{Errors, Path};
use crate::json::{Json, JsonMut};
use crate::kind::{Kind, Scope};
use crate::kinds::{entry, metadata};
use crate::strategy::{Deletion, Lifecycle, Semantics, Validation};
use crate::table::Column;

pub fn kind() -> Kind {
    Kind {
        scope: Scope::Cluster,
        columns: vec![Column::name(), Column::age()],
        semantics: Semantics { deletion: Deletion::RETURNS_OBJECT, ..Semantics::default() },
        ..entry(&RESOURCE, "DeviceClass", "deviceclasses", DeviceClass)
    }
}

struct DeviceClass;

impl Lifecycle for DeviceClass {
    fn prepare_for_create(&self, class: &mut Value) {
        class.object_mut("spec").unset("extendedResourceName");
    }

    fn prepare_for_update(&self, new: &mut Value, _: &Value) {
        new.object_mut("spec").unset("extendedResourceName");
    }
}

impl Validation for DeviceClass {
    fn validate(&self, class: &Value) -> Errors {
        let mut errors = Errors::default();
        metadata::new(class, &mut errors);
        check(class.at("spec"), &mut errors);
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
    check_each(spec.list("selectors"), MAX_SELECTORS, &path.child("selectors"), errors, selector::check);
    check_each(spec.list("config"), MAX_CONFIGS, &path.child("config"), errors, check_configuration);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::check as checking;
    use serde_json::json;

    #[test]
    fn selectors_and_configuration_of_a_class_are_validated() {
        checking::create(&DeviceClass, json!({"spec": {}}), &[]);
        checking::create(
            &DeviceClass,
            json!({"spec": {"selectors": [{}], "config": [{}, {"opaque": {"driver": "d.io", "parameters": 1}}]}}),
            &[
                "Required spec.selectors[0].cel",
                "Required spec.config[0].opaque",
                "Invalid spec.config[1].opaque.parameters",
            ],
        );
    }
}
