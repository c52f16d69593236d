//! ValidatingAdmissionPolicyBindings: where a policy applies, with which params and actions.

use serde_json::Value;

use super::{ADMISSION_REGISTRATION, binding};
use crate::field::{Errors, Path};
use crate::json::Json;
use crate::kind::{Kind, Scope};
use crate::kinds::entry;
use crate::metadata;
use crate::strategy::{Lifecycle, NameRule, Semantics, Validation};
use crate::validation::Seen;

pub fn kind() -> Kind {
    Kind {
        scope: Scope::Cluster,
        categories: vec!["api-extensions".into()],
        columns: binding::columns(),
        semantics: Semantics { unconditional_update: false, ..Semantics::default() },
        ..entry(
            &ADMISSION_REGISTRATION,
            "ValidatingAdmissionPolicyBinding",
            "validatingadmissionpolicybindings",
            ValidatingAdmissionPolicyBinding,
        )
    }
}

const ACTIONS: [&str; 3] = ["Audit", "Deny", "Warn"];

struct ValidatingAdmissionPolicyBinding;

impl Lifecycle for ValidatingAdmissionPolicyBinding {
    fn default(&self, binding: &mut Value) {
        binding::default(binding);
    }
}

impl Validation for ValidatingAdmissionPolicyBinding {
    fn validate(&self, binding: &Value) -> Errors {
        let mut errors = Errors::default();
        check_spec(binding.at("spec"), &mut errors);
        errors
    }

    fn validate_update(&self, new: &Value, _: &Value) -> Errors {
        let mut errors = metadata::validate(new, false, NameRule::Subdomain);
        check_spec(new.at("spec"), &mut errors);
        errors
    }
}

fn check_spec(spec: &Value, errors: &mut Errors) {
    let path = Path::root("spec");
    binding::check(spec, &path, errors);
    check_actions(spec.list("validationActions"), &path.child("validationActions"), errors);
}

fn check_actions(actions: &[Value], path: &Path<'_>, errors: &mut Errors) {
    let mut seen = Seen::new();
    for (index, action) in actions.iter().filter_map(Value::as_str).enumerate() {
        if !ACTIONS.contains(&action) {
            errors.not_supported(&path.index(index), action, &ACTIONS);
        }
        if seen.again(action) {
            errors.duplicate(&path.index(index), action);
        }
    }
    if seen.has(&"Deny") && seen.has(&"Warn") {
        let detail = "must not contain both Deny and Warn (repeating the same validation failure information in the API response and headers serves no purpose)";
        errors.invalid(path, actions.to_vec(), detail);
    }
    if actions.is_empty() {
        errors.required(path, "at least one validation action is required");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::JsonMut;
    use crate::kinds::check;
    use serde_json::json;

    fn binding(change: impl FnOnce(&mut Value)) -> Value {
        let mut binding = json!({"spec": {"policyName": "p", "validationActions": ["Deny"]}});
        change(binding.object_mut("spec"));
        binding
    }

    #[test]
    fn a_binding_names_a_policy_and_its_actions() {
        check::create(&ValidatingAdmissionPolicyBinding, binding(|_| ()), &[]);
        check::create(
            &ValidatingAdmissionPolicyBinding,
            json!({"spec": {}}),
            &["Required spec.policyName", "Required spec.validationActions"],
        );
        check::create(
            &ValidatingAdmissionPolicyBinding,
            binding(|spec| spec.set("validationActions", json!(["Deny", "Warn", "X", "Deny"]))),
            &[
                "NotSupported spec.validationActions[2]",
                "Duplicate spec.validationActions[3]",
                "Invalid spec.validationActions",
            ],
        );
    }
}
