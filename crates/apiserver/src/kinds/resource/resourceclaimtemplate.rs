//! ResourceClaimTemplates: templates for a new claim per pod.

use serde_json::Value;

use super::{RESOURCE, claim};
use crate::field::{Errors, Path};
use crate::json::{Json, JsonMut};
use crate::kind::{Kind, Scope};
use crate::kinds::{entry, metadata};
use crate::strategy::{Deletion, Lifecycle, NameRule, Semantics, Validation};
use crate::table::Column;
use crate::validation::immutable;
use crate::validation::labels::template_metadata;

pub fn kind() -> Kind {
    Kind {
        columns: vec![Column::name(), Column::age()],
        semantics: Semantics {
            counts_generations: false,
            deletion: Deletion::RETURNS_OBJECT,
            ..Semantics::default()
        },
        ..entry(&RESOURCE, "ResourceClaimTemplate", "resourceclaimtemplates", ResourceClaimTemplate)
    }
}

struct ResourceClaimTemplate;

impl Lifecycle for ResourceClaimTemplate {
    fn default(&self, template: &mut Value) {
        if let Some(spec) = template.at_mut("spec").and_then(|spec| spec.at_mut("spec")) {
            claim::default(spec);
        }
    }

    fn prepare_for_create(&self, template: &mut Value) {
        claim::drop_disabled(template.object_mut("spec").object_mut("spec"));
    }

    fn prepare_for_update(&self, new: &mut Value, _: &Value) {
        claim::drop_disabled(new.object_mut("spec").object_mut("spec"));
    }
}

impl Validation for ResourceClaimTemplate {
    fn validate(&self, template: &Value) -> Errors {
        let mut errors = Errors::default();
        metadata::new(template, &mut errors);
        check(template.at("spec"), &mut errors);
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Errors {
        let mut errors = Errors::default();
        // Twice, as v1.34 does.
        metadata::whole(new, Scope::Namespaced, NameRule::Subdomain, &mut errors);
        check(new.at("spec"), &mut errors);
        metadata::change(new, &mut errors);
        immutable(new.at("spec"), old.at("spec"), &Path::root("spec"), &mut errors);
        check(new.at("spec"), &mut errors);
        errors
    }
}

fn check(spec: &Value, errors: &mut Errors) {
    let path = Path::root("spec");
    template_metadata(spec.at("metadata"), &path.child("metadata"), errors);
    claim::check(spec.at("spec"), &path.child("spec"), errors);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::check as checking;
    use serde_json::json;

    #[test]
    fn a_template_is_checked_as_the_claims_made_of_it() {
        let request = |count: i64| json!({"name": "a", "exactly": {"deviceClassName": "c", "count": count}});
        let template = |count: i64| json!({"spec": {"metadata": {"labels": {"a": "b"}}, "spec": {"devices": {"requests": [request(count)]}}}});
        checking::create(&ResourceClaimTemplate, template(2), &[]);
        checking::create(
            &ResourceClaimTemplate,
            template(-1),
            &["Invalid spec.spec.devices.requests[0].exactly.count"],
        );
        let mut named = template(2);
        named["spec"]["metadata"] = json!({"name": "n", "uid": "u", "labels": {}});
        let fields = ["Forbidden spec.metadata.name", "Forbidden spec.metadata.uID"];
        checking::create(&ResourceClaimTemplate, named, &fields);
        checking::update(&ResourceClaimTemplate, template(3), &template(2), &["Invalid spec"]);
    }
}
