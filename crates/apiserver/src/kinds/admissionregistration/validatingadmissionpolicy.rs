//! ValidatingAdmissionPolicies: validation rules for requests.

use serde_json::{Value, json};

use super::expressions::{Compiler, ExtraVariables};
use super::{ADMISSION_REGISTRATION, policy};
use crate::cel::Type;
use crate::field::{Errors, Path};
use crate::json::Json;
use crate::kind::{Kind, Scope, Subresource};
use crate::kinds::entry;
use crate::metadata;
use crate::strategy::{Lifecycle, NameRule, Semantics, Validation};
use crate::table::Column;
use crate::validation::{Seen, conditions, optional_choice, qualified_name};

pub fn kind() -> Kind {
    Kind {
        scope: Scope::Cluster,
        categories: vec!["api-extensions".into()],
        subresources: vec![Subresource::Status],
        columns: vec![
            Column::name(),
            Column::integer("Validations", VALIDATIONS, |policy, _| {
                policy.at("spec").list("validations").len().into()
            }),
            policy::param_kind_column(),
            Column::age(),
        ],
        semantics: Semantics { unconditional_update: false, ..Semantics::with_status(|| json!({})) },
        ..entry(
            &ADMISSION_REGISTRATION,
            "ValidatingAdmissionPolicy",
            "validatingadmissionpolicies",
            ValidatingAdmissionPolicy,
        )
    }
}

const VALIDATIONS: &str =
    "Validations indicates the number of validation rules defined in this configuration";
const REASONS: [&str; 3] = ["Forbidden", "Invalid", "RequestEntityTooLarge"];
const MAX_AUDIT_ANNOTATIONS: usize = 20;
const AUDIT_EXPRESSION_BYTES: usize = 5 << 10;

struct ValidatingAdmissionPolicy;

impl Lifecycle for ValidatingAdmissionPolicy {
    fn default(&self, policy: &mut Value) {
        policy::default(policy);
    }

    fn resets(&self, subresource: Option<Subresource>) -> Option<&'static [&'static [&'static str]]> {
        Some(match subresource {
            None => &[&["status"]],
            Some(_) => &[&["spec"], &["metadata"]],
        })
    }
}

impl Validation for ValidatingAdmissionPolicy {
    fn validate(&self, policy: &Value) -> Errors {
        let mut errors = Errors::default();
        check_spec(policy, None, &mut errors);
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Errors {
        let mut errors = metadata::validate(new, false, NameRule::Subdomain);
        check_spec(new, Some(old.at("spec")), &mut errors);
        errors
    }

    fn validate_status_update(&self, new: &Value, _: &Value) -> Errors {
        let mut errors = Errors::default();
        check_status(new.at("status"), &mut errors);
        errors
    }
}

fn check_spec(policy: &Value, old: Option<&Value>, errors: &mut Errors) {
    let (spec, path) = (policy.at("spec"), Path::root("spec"));
    policy::check_basics(spec, &path, errors);
    policy::check_conditions(spec, old, &path, errors);
    let about = policy::about(spec);
    let mut compiler = Compiler::new(!spec.list("variables").is_empty());
    policy::check_variables(spec, &mut compiler, &path, errors);
    check_rules(policy, &compiler, about, &path, errors);
}

fn check_rules(
    policy: &Value,
    compiler: &Compiler,
    about: ExtraVariables,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let (validations, annotations) = ("validations", "auditAnnotations");
    let spec = policy.at("spec");
    if spec.list(validations).is_empty() && spec.list(annotations).is_empty() {
        for field in [validations, annotations] {
            let detail = "validations or auditAnnotations must contain at least one item";
            errors.required(&path.child(field), detail);
        }
        return;
    }
    let validations_path = path.child(validations);
    for (index, validation) in spec.list(validations).iter().enumerate() {
        check_validation(validation, compiler, about, &validations_path.index(index), errors);
    }
    check_annotations(policy, compiler, about, &path.child(annotations), errors);
}

fn check_validation(
    validation: &Value,
    compiler: &Compiler,
    about: ExtraVariables,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let text = validation.text("expression");
    match text.trim() {
        "" => errors.required(&path.child("expression"), "expression is not specified"),
        _ => compiler.check(text, about, &[Type::Bool], &path.child("expression"), errors),
    }
    check_message_expression(validation.text("messageExpression"), compiler, about, path, errors);
    let message = validation.text("message");
    if !message.is_empty() && message.trim().is_empty() {
        errors.invalid(&path.child("message"), message, "must be non-empty if specified");
    }
    if message.trim().contains(['\n', '\r']) {
        errors.invalid(&path.child("message"), message, "must not contain line breaks");
    }
    optional_choice(validation, "reason", &REASONS, path, errors);
}

/// Validates a `messageExpression`; it must not use the authorizer.
fn check_message_expression(
    text: &str,
    compiler: &Compiler,
    about: ExtraVariables,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let path = path.child("messageExpression");
    if !text.trim().is_empty() {
        let about = ExtraVariables { authorizer: false, ..about };
        compiler.check(text, about, &[Type::String], &path, errors);
    } else if !text.is_empty() {
        errors.invalid(&path, text, "must be non-empty if specified");
    }
}

fn check_annotations(
    policy: &Value,
    compiler: &Compiler,
    about: ExtraVariables,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let annotations = policy.at("spec").list("auditAnnotations");
    if annotations.len() > MAX_AUDIT_ANNOTATIONS {
        let detail = format!("must not have more than {MAX_AUDIT_ANNOTATIONS} auditAnnotations");
        errors.invalid(path, annotations.to_vec(), detail);
    }
    let name = policy.at("metadata").text("name");
    let mut seen = Seen::new();
    for (index, annotation) in annotations.iter().enumerate() {
        let path = path.index(index);
        let (key, key_path) = (annotation.text("key"), path.child("key"));
        match name {
            "" => errors.invalid(&key_path, key, "requires metadata.name be non-empty"),
            name => qualified_name(&format!("{name}/{key}"), &key_path, errors),
        }
        let expression = annotation.text("valueExpression").trim();
        let expression_path = path.child("valueExpression");
        if expression.is_empty() {
            errors.required(&expression_path, "valueExpression is not specified");
        } else if expression.len() > AUDIT_EXPRESSION_BYTES {
            let detail = format!("must not exceed {AUDIT_EXPRESSION_BYTES} bytes in length");
            errors.required(&expression_path, detail);
        } else {
            compiler.check(expression, about, &[Type::String, Type::Null], &expression_path, errors);
        }
        if seen.again(key) {
            errors.duplicate(&key_path, key);
        }
    }
}

fn check_status(status: &Value, errors: &mut Errors) {
    let path = Path::root("status");
    let warnings = path.child("typeChecking");
    let warnings = warnings.child("expressionWarnings");
    for (index, warning) in status.at("typeChecking").list("expressionWarnings").iter().enumerate() {
        let path = warnings.index(index);
        if warning.text("warning").is_empty() {
            errors.required(&path.child("warning"), "");
        }
        if warning.text("fieldRef").trim().is_empty() {
            errors.required(&path.child("fieldRef"), "");
        }
    }
    conditions(status.list("conditions"), &path.child("conditions"), errors);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::JsonMut;
    use crate::kinds::check;

    fn policy(change: impl FnOnce(&mut Value)) -> Value {
        let rule = json!({"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"]});
        let mut policy = json!({"metadata": {"name": "p"}, "spec": {"matchConstraints": {"resourceRules": [rule]},
            "validations": [{"expression": "true"}]}});
        change(policy.object_mut("spec"));
        policy
    }

    #[test]
    fn a_policy_has_match_constraints_and_validations() {
        check::create(&ValidatingAdmissionPolicy, policy(|_| ()), &[]);
        check::create(
            &ValidatingAdmissionPolicy,
            json!({"spec": {}}),
            &[
                "Required spec.matchConstraints",
                "Required spec.validations",
                "Required spec.auditAnnotations",
            ],
        );
        check::create(
            &ValidatingAdmissionPolicy,
            policy(|spec| spec.set("matchConstraints", json!({}))),
            &["Required spec.matchConstraints.resourceRules"],
        );
    }

    #[test]
    fn parameters_are_of_a_kind() {
        let path = "spec.paramKind";
        for (api_version, kind, expected) in [
            ("v1", "ConfigMap", vec![]),
            ("", "", vec![format!("Required {path}.apiVersion"), format!("Required {path}.kind")]),
            ("a/b/c", "X_", vec![format!("Invalid {path}.apiVersion"), format!("Invalid {path}.kind")]),
            ("A/", "X", vec![format!("Invalid {path}.apiVersion"); 2]),
        ] {
            let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
            let set =
                |spec: &mut Value| spec.set("paramKind", json!({"apiVersion": api_version, "kind": kind}));
            check::create(&ValidatingAdmissionPolicy, policy(set), &expected);
        }
    }

    #[test]
    fn names_messages_and_reasons_are_in_form() {
        check::create(
            &ValidatingAdmissionPolicy,
            policy(|spec| {
                spec.set("variables", json!([{"name": "in", "expression": "1"}, {"name": " "}]));
                spec.set("validations", json!([{"message": "a\nb", "reason": "X"}]));
                spec.set("auditAnnotations", json!([{"key": "a", "valueExpression": "'x'"}, {"key": "a"}]));
                spec.set(
                    "matchConditions",
                    json!([{"name": "a", "expression": " "}, {"name": "a", "expression": "true"}]),
                );
            }),
            &[
                "Required spec.matchConditions[0].expression",
                "Duplicate spec.matchConditions[1].name",
                "Invalid spec.variables[0].name",
                "Required spec.variables[1].name",
                "Required spec.variables[1].expression",
                "Required spec.validations[0].expression",
                "Invalid spec.validations[0].message",
                "NotSupported spec.validations[0].reason",
                "Required spec.auditAnnotations[1].valueExpression",
                "Duplicate spec.auditAnnotations[1].key",
            ],
        );
    }

    #[test]
    fn expressions_are_compiled() {
        check::create(
            &ValidatingAdmissionPolicy,
            policy(|spec| {
                spec.set("matchConditions", json!([{"name": "a", "expression": "params.x"}]));
                spec.set("variables", json!([{"name": "n", "expression": "size(object.spec.items)"}]));
                spec.set("validations", json!([
                    {"expression": "variables.n < 3", "messageExpression": "'too many: ' + string(variables.n)"},
                    {"expression": "1 + 1"},
                    {"expression": "object.", "messageExpression": "1"}]));
            }),
            &[
                "Invalid spec.matchConditions[0].expression",
                "Invalid spec.validations[1].expression",
                "Invalid spec.validations[2].expression",
                "Invalid spec.validations[2].messageExpression",
            ],
        );
    }
}
