//! VolumeAttributesClasses: the mutable attributes of volumes.

use serde_json::Value;

use super::{STORAGE, check_parameters, check_parameters_unchanged, check_provisioner};
use crate::field::{Errors, Path};
use crate::json::Json;
use crate::kind::{Kind, Scope};
use crate::kinds::{entry, metadata};
use crate::strategy::{Deletion, Lifecycle, NameRule, Semantics, Validation};
use crate::table::Column;

pub fn kind() -> Kind {
    Kind {
        scope: Scope::Cluster,
        short_names: vec!["vac".into()],
        columns: vec![
            Column::name(),
            Column::text("DriverName", "Name of the CSI driver This field is immutable.", |class, _| {
                class.text("driverName").into()
            }),
            Column::age(),
        ],
        semantics: Semantics {
            counts_generations: false,
            deletion: Deletion::RETURNS_OBJECT,
            ..Semantics::default()
        },
        ..entry(&STORAGE, "VolumeAttributesClass", "volumeattributesclasses", VolumeAttributesClass)
    }
}

struct VolumeAttributesClass;

impl Lifecycle for VolumeAttributesClass {}

impl Validation for VolumeAttributesClass {
    fn validate(&self, class: &Value) -> Errors {
        let mut errors = Errors::default();
        metadata::new(class, &mut errors);
        check(class, &mut errors);
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Errors {
        let mut errors = Errors::default();
        // Twice, as v1.34 does.
        metadata::whole(new, Scope::Cluster, NameRule::Subdomain, &mut errors);
        check(new, &mut errors);
        metadata::change(new, &mut errors);
        if new.text("driverName") != old.text("driverName") {
            errors.forbidden(&Path::root("driverName"), "updates to driverName are forbidden.");
        }
        check_parameters_unchanged(new, old, &mut errors);
        metadata::whole(new, Scope::Cluster, NameRule::Subdomain, &mut errors);
        check(new, &mut errors);
        errors
    }
}

fn check(class: &Value, errors: &mut Errors) {
    check_provisioner(class.text("driverName"), &Path::root("driverName"), errors);
    check_parameters(class, errors);
    if class.map("parameters").is_none_or(serde_json::Map::is_empty) {
        errors.required(&Path::root("parameters"), "must contain at least one key/value pair");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::check as checking;
    use serde_json::json;

    #[test]
    fn a_class_has_a_driver_and_parameters_and_keeps_them() {
        let class = json!({"driverName": "a.io", "parameters": {"iops": "1"}});
        checking::create(&VolumeAttributesClass, class.clone(), &[]);
        checking::create(&VolumeAttributesClass, json!({}), &["Required driverName", "Required parameters"]);
        let other = json!({"driverName": "b.io", "parameters": {"iops": "2"}});
        checking::update(
            &VolumeAttributesClass,
            other,
            &class,
            &["Forbidden driverName", "Forbidden parameters"],
        );
    }
}
