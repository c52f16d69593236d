//! MutatingAdmissionPolicies: changes to requests, in two versions. Served if the feature is enabled.

use serde_json::Value;

use super::expressions::{Compiler, ExtraVariables};
use super::matching::check_mutable;
use super::{ADMISSION_REGISTRATION_V1ALPHA1, ADMISSION_REGISTRATION_V1BETA1, policy};
use crate::cel::{JSON_PATCH, OBJECT, Type};
use crate::field::{Errors, Path};
use crate::json::Json;
use crate::kind::{Conversion, Kind, Scope};
use crate::kinds::{Api, entry};
use crate::metadata;
use crate::strategy::{Lifecycle, NameRule, Semantics, Validation};
use crate::table::Column;

const MUTATIONS: &str = "Mutation indicates the number of mutations rules defined in this configuration";
const REINVOCATION_POLICIES: [&str; 2] = ["IfNeeded", "Never"];
const PATCH_TYPES: [&str; 2] = ["ApplyConfiguration", "JSONPatch"];

pub fn v1beta1() -> Kind {
    kind(&ADMISSION_REGISTRATION_V1BETA1)
}

pub fn v1alpha1() -> Kind {
    kind(&ADMISSION_REGISTRATION_V1ALPHA1)
}

fn kind(api: &Api) -> Kind {
    Kind {
        scope: Scope::Cluster,
        categories: vec!["api-extensions".into()],
        columns: vec![
            Column::name(),
            Column::integer("Mutations", MUTATIONS, |policy, _| {
                policy.at("spec").list("mutations").len().into()
            }),
            policy::param_kind_column(),
            Column::age(),
        ],
        conversion: Some(UNCHANGED),
        semantics: Semantics { unconditional_update: false, ..Semantics::default() },
        ..entry(api, "MutatingAdmissionPolicy", "mutatingadmissionpolicies", MutatingAdmissionPolicy)
    }
}

/// Both versions are alike. Either may be served alone, so each reads what the other has stored.
pub(super) const UNCHANGED: Conversion = Conversion { to_stored: |_| (), from_stored: |_| () };

/// What a mutation is described with, and the type its expression must have.
pub(crate) fn patch_type(patch: &str) -> Option<(&'static str, Type)> {
    match patch {
        "ApplyConfiguration" => Some(("applyConfiguration", Type::Message(OBJECT.into()))),
        "JSONPatch" => Some(("jsonPatch", Type::list(Type::Message(JSON_PATCH.into())))),
        _ => None,
    }
}

struct MutatingAdmissionPolicy;

impl Lifecycle for MutatingAdmissionPolicy {
    fn default(&self, policy: &mut Value) {
        policy::default(policy);
    }
}

impl Validation for MutatingAdmissionPolicy {
    fn validate(&self, policy: &Value) -> Errors {
        let mut errors = Errors::default();
        check_spec(policy.at("spec"), None, &mut errors);
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Errors {
        let mut errors = metadata::validate(new, false, NameRule::Subdomain);
        check_spec(new.at("spec"), Some(old.at("spec")), &mut errors);
        errors
    }
}

fn check_spec(spec: &Value, old: Option<&Value>, errors: &mut Errors) {
    let path = Path::root("spec");
    policy::check_basics(spec, &path, errors);
    check_mutable(spec.at("matchConstraints"), &path.child("matchConstraints"), errors);
    policy::check_conditions(spec, old, &path, errors);
    let mut compiler = Compiler::new(true);
    policy::check_variables(spec, &mut compiler, &path, errors);
    check_mutations(spec, &compiler, &path.child("mutations"), errors);
    let path = path.child("reinvocationPolicy");
    match spec.text("reinvocationPolicy") {
        "" => errors.required(&path, ""),
        known if REINVOCATION_POLICIES.contains(&known) => {}
        other => errors.not_supported(&path, other, &REINVOCATION_POLICIES),
    }
}

fn check_mutations(spec: &Value, compiler: &Compiler, path: &Path<'_>, errors: &mut Errors) {
    if spec.list("mutations").is_empty() {
        errors.required(path, "mutations must contain at least one item");
    }
    let about = ExtraVariables { patch_types: true, ..policy::about(spec) };
    for (index, mutation) in spec.list("mutations").iter().enumerate() {
        check_mutation(mutation, compiler, about, &path.index(index), errors);
    }
}

/// Validates a mutation, which is described in exactly the way that its type says.
fn check_mutation(
    mutation: &Value,
    compiler: &Compiler,
    about: ExtraVariables,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let written = mutation.text("patchType");
    let Some((field, ty)) = patch_type(written) else {
        return match written {
            "" => errors.required(&path.child("patchType"), ""),
            other => errors.not_supported(&path.child("patchType"), other, &PATCH_TYPES),
        };
    };
    match mutation.has(field) {
        true => {
            let path = path.child(field);
            let path = path.child("expression");
            match mutation.at(field).text("expression").trim() {
                "" => errors.required(&path, ""),
                text => compiler.check(text, about, &[ty], &path, errors),
            }
        }
        false => {
            let detail = format!("must be specified when patchType is {written}");
            errors.required(&path.child(field), &detail);
        }
    }
    let others = ["applyConfiguration", "jsonPatch"].into_iter().filter(|other| *other != field);
    for other in others.filter(|other| mutation.has(other)) {
        let detail = format!("must not be specified when patchType is {written}");
        errors.invalid(&path.child(other), format!("{{{other}}}"), detail);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::JsonMut;
    use crate::kinds::check;
    use serde_json::json;

    const PATCH: &str = "[JSONPatch{op: 'add', path: '/data/a', value: 'b'}]";

    fn policy(change: impl FnOnce(&mut Value)) -> Value {
        let rule = json!({"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]});
        let mutation = json!({"patchType": "JSONPatch", "jsonPatch": {"expression": PATCH}});
        let mut policy = json!({"metadata": {"name": "p"}, "spec": {
            "matchConstraints": {"resourceRules": [rule]},
            "mutations": [mutation],
            "reinvocationPolicy": "Never",
        }});
        change(policy.object_mut("spec"));
        policy
    }

    fn mutated(mutation: Value) -> Value {
        policy(|spec| spec.set("mutations", json!([mutation])))
    }

    #[test]
    fn a_policy_is_about_something_and_changes_something() {
        check::create(&MutatingAdmissionPolicy, policy(|_| ()), &[]);
        check::create(
            &MutatingAdmissionPolicy,
            json!({"spec": {}}),
            &[
                "Required spec.matchConstraints",
                "Required spec.mutations",
                "Required spec.reinvocationPolicy",
            ],
        );
        check::create(
            &MutatingAdmissionPolicy,
            policy(|spec| {
                spec.set("reinvocationPolicy", "Sometimes");
                spec.set("failurePolicy", "Maybe");
            }),
            &["NotSupported spec.failurePolicy", "NotSupported spec.reinvocationPolicy"],
        );
    }

    #[test]
    fn deletions_cannot_be_changed() {
        let rule = json!({"operations": ["CREATE", "DELETE"], "apiGroups": [""], "apiVersions": ["v1"],
            "resources": ["pods"]});
        check::create(
            &MutatingAdmissionPolicy,
            policy(|spec| spec.set("matchConstraints", json!({"resourceRules": [rule]}))),
            &["NotSupported spec.matchConstraints.resourceRules.operations"],
        );
    }

    #[test]
    fn a_mutation_must_match_its_patch_type() {
        let path = "spec.mutations[0]";
        for (mutation, expected) in [
            (json!({}), vec![format!("Required {path}.patchType")]),
            (json!({"patchType": "Merge"}), vec![format!("NotSupported {path}.patchType")]),
            (json!({"patchType": "JSONPatch"}), vec![format!("Required {path}.jsonPatch")]),
            (
                json!({"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": " "}}),
                vec![format!("Required {path}.applyConfiguration.expression")],
            ),
            (
                json!({"patchType": "JSONPatch", "jsonPatch": {"expression": "[]"},
                    "applyConfiguration": {"expression": "Object{}"}}),
                vec![
                    format!("Invalid {path}.jsonPatch.expression"),
                    format!("Invalid {path}.applyConfiguration"),
                ],
            ),
        ] {
            let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
            check::create(&MutatingAdmissionPolicy, mutated(mutation), &expected);
        }
    }

    #[test]
    fn a_mutation_expression_must_return_its_patch_type() {
        let problem = |patch: &str, text: &str| {
            let (field, _) = patch_type(patch).unwrap();
            let mutation = json!({"patchType": patch, field: {"expression": text}});
            let mut policy = mutated(mutation);
            Lifecycle::default(&MutatingAdmissionPolicy, &mut policy);
            let errors = MutatingAdmissionPolicy.validate(&policy);
            if errors.is_empty() { String::new() } else { errors.to_string() }
        };
        for (patch, text, expected) in [
            ("JSONPatch", "\"text\"", "must evaluate to list(JSONPatch) but got string"),
            ("JSONPatch", "[]", "must evaluate to list(JSONPatch) but got list(dyn)"),
            ("ApplyConfiguration", "{\"a\": \"b\"}", "must evaluate to Object but got map(string, string)"),
            ("ApplyConfiguration", "Object.spec{}", "must evaluate to Object but got Object.spec"),
            ("ApplyConfiguration", "Object{spec: Object.spec{x: object.y}}", ""),
            ("JSONPatch", "object.a ? [JSONPatch{op: 'remove', path: '/a'}] : []", ""),
            ("JSONPatch", "[JSONPatch{op: 'add', path: '/' + jsonpatch.escapeKey('a/b'), value: 1}]", ""),
        ] {
            let problem = problem(patch, text);
            assert!(
                problem.ends_with(expected) && problem.is_empty() == expected.is_empty(),
                "{text}: {problem}"
            );
        }
    }

    #[test]
    fn mutations_see_variables_and_conditions_do_not() {
        check::create(
            &MutatingAdmissionPolicy,
            policy(|spec| {
                spec.set("variables", json!([{"name": "n", "expression": "object.metadata.name"}]));
                spec.set("matchConditions", json!([{"name": "c", "expression": "variables.n == 'a'"}]));
                let text = "[JSONPatch{op: 'add', path: '/data/a', value: variables.n}]";
                spec.set("mutations", json!([{"patchType": "JSONPatch", "jsonPatch": {"expression": text}}]));
            }),
            &["Invalid spec.matchConditions[0].expression"],
        );
    }
}
