//! MutatingAdmissionPolicyBindings: where a policy applies and with which params, in two versions. Served if the
//! feature is enabled.

use serde_json::Value;

use super::matching::check_mutable;
use super::mutatingadmissionpolicy::UNCHANGED;
use super::{ADMISSION_REGISTRATION_V1ALPHA1, ADMISSION_REGISTRATION_V1BETA1, binding};
use crate::field::{Errors, Path};
use crate::json::{Json, JsonMut};
use crate::kind::{Kind, Scope};
use crate::kinds::{Api, entry};
use crate::metadata;
use crate::strategy::{Lifecycle, NameRule, Semantics, Strategy, Validation};

pub fn v1beta1() -> Kind {
    kind(&ADMISSION_REGISTRATION_V1BETA1, MutatingAdmissionPolicyBinding { missing_params: None })
}

/// This version has a default for missing params.
pub fn v1alpha1() -> Kind {
    kind(&ADMISSION_REGISTRATION_V1ALPHA1, MutatingAdmissionPolicyBinding { missing_params: Some("Deny") })
}

fn kind(api: &Api, strategy: impl Strategy) -> Kind {
    Kind {
        scope: Scope::Cluster,
        categories: vec!["api-extensions".into()],
        columns: binding::columns(),
        conversion: Some(UNCHANGED),
        semantics: Semantics { unconditional_update: false, ..Semantics::default() },
        ..entry(api, "MutatingAdmissionPolicyBinding", "mutatingadmissionpolicybindings", strategy)
    }
}

struct MutatingAdmissionPolicyBinding {
    /// The default action if there are no params.
    missing_params: Option<&'static str>,
}

impl Lifecycle for MutatingAdmissionPolicyBinding {
    fn default(&self, binding: &mut Value) {
        binding::default(binding);
        let reference = binding.at_mut("spec").and_then(|spec| spec.at_mut("paramRef"));
        if let (Some(reference), Some(action)) = (reference, self.missing_params) {
            reference.or_insert("parameterNotFoundAction", action);
        }
    }
}

impl Validation for MutatingAdmissionPolicyBinding {
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
    check_mutable(spec.at("matchResources"), &path.child("matchResources"), errors);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::check;
    use serde_json::json;

    #[test]
    fn a_binding_names_a_policy_and_no_deletions() {
        let beta = MutatingAdmissionPolicyBinding { missing_params: None };
        check::create(&beta, json!({"spec": {"policyName": "p"}}), &[]);
        check::create(&beta, json!({"spec": {}}), &["Required spec.policyName"]);
        let rule = json!({"operations": ["DELETE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]});
        check::create(
            &beta,
            json!({"spec": {"policyName": "p", "matchResources": {"resourceRules": [rule]}}}),
            &["NotSupported spec.matchResources.resourceRules.operations"],
        );
    }

    #[test]
    fn missing_params_deny_by_default_in_the_older_version_only() {
        let binding = json!({"spec": {"policyName": "p", "paramRef": {"name": "a"}}});
        let required = "Required spec.paramRef.parameterNotFoundAction";
        check::create(&MutatingAdmissionPolicyBinding { missing_params: None }, binding.clone(), &[required]);
        check::create(&MutatingAdmissionPolicyBinding { missing_params: Some("Deny") }, binding, &[]);
    }
}
