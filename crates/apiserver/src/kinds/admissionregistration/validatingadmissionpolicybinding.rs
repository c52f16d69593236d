//! ValidatingAdmissionPolicyBindings: where a policy applies, with which params and actions.

use serde_json::Value;

use super::ADMISSION_REGISTRATION;
use super::matching::{check_resources, default_resources};
use crate::field::{Errors, Path};
use crate::json::{Json, JsonMut};
use crate::kind::{Kind, Scope};
use crate::kinds::entry;
use crate::metadata;
use crate::strategy::{Lifecycle, NameRule, Semantics, Validation};
use crate::table::Column;
use crate::validation::labels::{self, Values};
use crate::validation::{Seen, dns_subdomain, path_segment};

pub fn kind() -> Kind {
    Kind {
        scope: Scope::Cluster,
        categories: vec!["api-extensions".into()],
        columns: vec![
            Column::name(),
            Column::text("PolicyName", POLICY_NAME, |binding, _| {
                binding.at("spec").text("policyName").into()
            }),
            Column::text("ParamRef", PARAM_REF, |binding, _| {
                shown_parameters(binding.at("spec").at("paramRef"))
            }),
            Column::age(),
        ],
        semantics: Semantics { unconditional_update: false, ..Semantics::default() },
        ..entry(
            &ADMISSION_REGISTRATION,
            "ValidatingAdmissionPolicyBinding",
            "validatingadmissionpolicybindings",
            ValidatingAdmissionPolicyBinding,
        )
    }
}

const POLICY_NAME: &str = "PolicyName indicates the policy definition which the policy binding binded to";
const PARAM_REF: &str = "ParamRef indicates the param resource which sets the configration param";
const ACTIONS: [&str; 3] = ["Audit", "Deny", "Warn"];

fn shown_parameters(reference: &Value) -> Value {
    match (reference.text("namespace"), reference.text("name")) {
        (_, "") if reference.has("selector") => printed_selector(reference.at("selector")).into(),
        (_, "") => "<unset>".into(),
        // Whether the params are namespaced is unknown here.
        ("", name) => format!("*/{name}").into(),
        (namespace, name) => format!("{namespace}/{name}").into(),
    }
}

/// Formats a selector as v1.34 does here: as its Go struct.
fn printed_selector(selector: &Value) -> String {
    let pairs = selector.map("matchLabels").into_iter().flatten();
    let labels: String =
        pairs.map(|(key, value)| format!("{key}: {},", value.as_str().unwrap_or_default())).collect();
    let requirement = |expression: &Value| {
        let values: Vec<&str> = expression.list("values").iter().filter_map(Value::as_str).collect();
        let (key, operator) = (expression.text("key"), expression.text("operator"));
        format!("LabelSelectorRequirement{{Key:{key},Operator:{operator},Values:[{}],}},", values.join(" "))
    };
    let expressions: String = selector.list("matchExpressions").iter().map(requirement).collect();
    format!(
        "&LabelSelector{{MatchLabels:map[string]string{{{labels}}},MatchExpressions:[]LabelSelectorRequirement{{{expressions}}},}}"
    )
}

struct ValidatingAdmissionPolicyBinding;

impl Lifecycle for ValidatingAdmissionPolicyBinding {
    fn default(&self, binding: &mut Value) {
        if let Some(resources) = binding.at_mut("spec").and_then(|spec| spec.at_mut("matchResources")) {
            default_resources(resources);
        }
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
    match spec.text("policyName") {
        "" => errors.required(&path.child("policyName"), ""),
        name => dns_subdomain(name, &path.child("policyName"), errors),
    }
    if spec.has("paramRef") {
        check_parameters(spec.at("paramRef"), &path.child("paramRef"), errors);
    }
    if spec.has("matchResources") {
        check_resources(spec.at("matchResources"), &path.child("matchResources"), errors);
    }
    check_actions(spec.list("validationActions"), &path.child("validationActions"), errors);
}

fn check_parameters(reference: &Value, path: &Path<'_>, errors: &mut Errors) {
    let name = reference.text("name");
    let exclusive = "name and selector are mutually exclusive";
    if !name.is_empty() {
        path_segment(name, &path.child("name"), errors);
        if reference.has("selector") {
            errors.forbidden(&path.child("name"), exclusive);
        }
    }
    if reference.has("selector") {
        labels::selector(reference.at("selector"), Values::Checked, &path.child("selector"), errors);
        if !name.is_empty() {
            errors.forbidden(&path.child("selector"), exclusive);
        }
    }
    if name.is_empty() && !reference.has("selector") {
        errors.required(path, "one of name or selector must be specified");
    }
    let path = path.child("parameterNotFoundAction");
    match reference.text("parameterNotFoundAction") {
        "" => errors.required(&path, ""),
        "Allow" | "Deny" => {}
        other => errors.not_supported(&path, other, &["Deny", "Allow"]),
    }
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
    use crate::kinds::check;
    use serde_json::json;

    fn binding(change: impl FnOnce(&mut Value)) -> Value {
        let mut binding = json!({"spec": {"policyName": "p", "validationActions": ["Deny"]}});
        change(binding.object_mut("spec"));
        binding
    }

    #[test]
    fn a_binding_names_a_policy_and_what_comes_of_it() {
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

    #[test]
    fn parameters_are_chosen_by_name_or_by_labels() {
        let reference = |reference: Value| binding(|spec| spec.set("paramRef", reference));
        let create = |value: Value, expected: &[&str]| {
            check::create(&ValidatingAdmissionPolicyBinding, reference(value), expected);
        };
        create(json!({"name": "a", "parameterNotFoundAction": "Deny"}), &[]);
        create(json!({}), &["Required spec.paramRef", "Required spec.paramRef.parameterNotFoundAction"]);
        create(
            json!({"name": "a", "selector": {}, "parameterNotFoundAction": "X"}),
            &[
                "Forbidden spec.paramRef.name",
                "Forbidden spec.paramRef.selector",
                "NotSupported spec.paramRef.parameterNotFoundAction",
            ],
        );
    }

    #[test]
    fn parameters_are_shown_as_they_are_chosen() {
        for (reference, shown) in [
            (Value::Null, "<unset>"),
            (json!({"name": "a"}), "*/a"),
            (json!({"name": "a", "namespace": "n"}), "n/a"),
            (
                json!({"selector": {"matchLabels": {"a": "b"}}}),
                "&LabelSelector{MatchLabels:map[string]string{a: b,},MatchExpressions:[]LabelSelectorRequirement{},}",
            ),
        ] {
            assert_eq!(shown_parameters(&reference), shown);
        }
    }
}
