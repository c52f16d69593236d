//! What validating and mutating policies have in common: params, constraints, conditions, variables.

use serde_json::Value;

use super::expressions::{Compiler, ExtraVariables};
use super::matching::{self, FAILURE_POLICIES, check_resources, default_resources};
use crate::cel::Type;
use crate::cel::escape::RESERVED;
use crate::field::{Errors, Path};
use crate::json::{Json, JsonMut};
use crate::names;
use crate::table::Column;
use crate::validation::optional_choice;

const PARAM_KIND: &str = "ParamKind specifies the kind of resources used to parameterize this policy";

pub(super) fn param_kind_column() -> Column {
    Column::text("ParamKind", PARAM_KIND, |policy, _| {
        let kind = policy.at("spec").at("paramKind");
        match kind.is_null() {
            true => "<unset>".into(),
            false => format!("{}/{}", kind.text("apiVersion"), kind.text("kind")).into(),
        }
    })
}

pub(super) fn default(policy: &mut Value) {
    let Some(spec) = policy.at_mut("spec") else {
        return policy.object_mut("spec").or_insert("failurePolicy", "Fail");
    };
    spec.or_insert("failurePolicy", "Fail");
    if let Some(resources) = spec.at_mut("matchConstraints") {
        default_resources(resources);
    }
}

/// What the expressions of a policy are about.
pub(crate) fn about(spec: &Value) -> ExtraVariables {
    ExtraVariables { parameters: spec.has("paramKind"), authorizer: true, patch_types: false }
}

/// Validates the failure policy, the kind of the params and the constraints.
pub(super) fn check_basics(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    if !spec.has("failurePolicy") {
        errors.required(&path.child("failurePolicy"), "");
    }
    optional_choice(spec, "failurePolicy", &FAILURE_POLICIES, path, errors);
    if spec.has("paramKind") {
        check_kind(spec.at("paramKind"), &path.child("paramKind"), errors);
    }
    let constraints = path.child("matchConstraints");
    match spec.has("matchConstraints") {
        false => errors.required(&constraints, ""),
        true => {
            check_resources(spec.at("matchConstraints"), &constraints, errors);
            if spec.at("matchConstraints").list("resourceRules").is_empty() {
                errors.required(&constraints.child("resourceRules"), "");
            }
        }
    }
}

/// Validates the match conditions, unless an update leaves them and what they are about unchanged. They cannot use the
/// policy's variables.
pub(super) fn check_conditions(spec: &Value, old: Option<&Value>, path: &Path<'_>, errors: &mut Errors) {
    let are_same = old.is_some_and(|old| {
        ["paramKind", "matchConditions"].iter().all(|field| old.at(field) == spec.at(field))
    });
    if are_same {
        return;
    }
    let (plain, about) = (Compiler::new(false), about(spec));
    let check = |text: &str, path: &Path<'_>, errors: &mut Errors| {
        plain.check(text, about, &[Type::Bool], path, errors);
    };
    matching::check_conditions(spec, check, path, errors);
}

pub(super) fn check_variables(spec: &Value, compiler: &mut Compiler, path: &Path<'_>, errors: &mut Errors) {
    let (about, path) = (about(spec), path.child("variables"));
    for (index, variable) in spec.list("variables").iter().enumerate() {
        check_variable(variable, compiler, about, &path.index(index), errors);
    }
}

/// Validates the kind of the params: a group version, and a name that may contain upper case letters.
fn check_kind(kind: &Value, path: &Path<'_>, errors: &mut Errors) {
    let (api_version, name) = (kind.text("apiVersion"), kind.text("kind"));
    let version_path = path.child("apiVersion");
    let parts: Vec<&str> = api_version.split('/').collect();
    match parts.as_slice() {
        [""] => errors.required(&version_path, ""),
        [version] => check_group_version("", version, api_version, &version_path, errors),
        [group, version] => check_group_version(group, version, api_version, &version_path, errors),
        _ => {
            let detail = format!("unexpected GroupVersion string: {api_version}");
            errors.invalid(&version_path, api_version, detail);
        }
    }
    let complaints = names::dns_1035_label(&name.to_lowercase());
    if name.is_empty() {
        errors.required(&path.child("kind"), "");
    } else if !complaints.is_empty() {
        let detail = format!("may have mixed case, but should otherwise match: {}", complaints.join(","));
        errors.invalid(&path.child("kind"), name, detail);
    }
}

fn check_group_version(group: &str, version: &str, both: &str, path: &Path<'_>, errors: &mut Errors) {
    let complaints = names::dns_subdomain(group);
    if !group.is_empty() && !complaints.is_empty() {
        errors.invalid(path, group, complaints.join(","));
    }
    let complaints = names::dns_1035_label(version);
    if version.is_empty() {
        errors.invalid(path, both, "version must be specified");
    } else if !complaints.is_empty() {
        errors.invalid(path, version, complaints.join(","));
    }
}

fn check_variable(
    variable: &Value,
    compiler: &mut Compiler,
    about: ExtraVariables,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let name = variable.text("name");
    if name.trim().is_empty() {
        errors.required(&path.child("name"), "name is not specified");
    } else if !is_cel_name(name) {
        errors.invalid(&path.child("name"), name, "must be a valid CEL identifier");
    }
    let (text, path) = (variable.text("expression"), path.child("expression"));
    match text.trim() {
        "" => errors.required(&path, "expression is not specified"),
        _ => {
            if let Err(why) = compiler.declare(name, text, about) {
                errors.invalid(&path, text, why);
            }
        }
    }
}

fn is_cel_name(name: &str) -> bool {
    let inner = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    !name.starts_with(|c: char| c.is_ascii_digit()) && name.bytes().all(inner) && !RESERVED.contains(&name)
}
