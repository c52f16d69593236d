//! What the bindings of validating and mutating policies have in common: the policy, its params, where it applies.

use serde_json::Value;

use super::matching::{check_resources, default_resources};
use crate::field::{Errors, Path};
use crate::json::{Json, JsonMut};
use crate::table::Column;
use crate::validation::labels::{self, Values};
use crate::validation::{dns_subdomain, path_segment};

const POLICY_NAME: &str = "PolicyName indicates the policy definition which the policy binding binded to";
const PARAM_REF: &str = "ParamRef indicates the param resource which sets the configration param";

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

pub(super) fn columns() -> Vec<Column> {
    vec![
        Column::name(),
        Column::text("PolicyName", POLICY_NAME, |binding, _| binding.at("spec").text("policyName").into()),
        Column::text("ParamRef", PARAM_REF, |binding, _| shown_parameters(binding.at("spec").at("paramRef"))),
        Column::age(),
    ]
}

pub(super) fn default(binding: &mut Value) {
    if let Some(resources) = binding.at_mut("spec").and_then(|spec| spec.at_mut("matchResources")) {
        default_resources(resources);
    }
}

pub(super) fn check(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::check::shown;
    use serde_json::json;

    #[test]
    fn parameters_are_chosen_by_name_or_by_labels() {
        let create = |value: Value, expected: &[&str]| {
            let mut errors = Errors::default();
            check(&json!({"policyName": "p", "paramRef": value}), &Path::root("spec"), &mut errors);
            assert_eq!(shown(&errors), expected);
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
