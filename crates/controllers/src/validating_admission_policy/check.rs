//! Type-checks the expressions of a policy against the kinds it applies to.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;
use setpoint::Kind;
use setpoint_cel::admission::{Types, environment, object};
use setpoint_cel::{Declared, Environment, Type};

use super::view::Policy;

/// A kind and its types.
pub(super) struct Checked {
    pub(super) kind: Kind,
    pub(super) object: Declared,
}

/// A type error in an expression.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Warning {
    pub(super) field_ref: String,
    pub(super) warning: String,
}

/// Checks all expressions against all kinds.
pub(super) fn warnings(policy: &Policy, kinds: &[Checked], parameters: Option<&Declared>) -> Vec<Warning> {
    let environments: Vec<(String, Environment)> = kinds
        .iter()
        .map(|checked| (format_kind(&checked.kind), within(policy, checked, parameters)))
        .collect();
    let mut found = Vec::new();
    for (at, validation) in policy.spec.validations.iter().enumerate() {
        let fields =
            [("expression", &validation.expression), ("messageExpression", &validation.message_expression)];
        for (field, text) in fields.into_iter().filter(|(_, text)| !text.is_empty()) {
            let mistakes: Vec<String> = environments
                .iter()
                .filter_map(|(kind, environment)| {
                    environment.compile(text).err().map(|why| format!("{kind}: {why}\n"))
                })
                .collect();
            if !mistakes.is_empty() {
                let field_ref = format!("spec.validations[{at}].{field}");
                found.push(Warning { field_ref, warning: mistakes.join("\n") });
            }
        }
    }
    found
}

/// `apps/v1, Kind=Deployment`
fn format_kind(kind: &Kind) -> String {
    format!("{}/{}, Kind={}", kind.group(), kind.version(), kind.kind())
}

/// Returns the environment of expressions for this kind, including the policy's variables, each of which may refer to
/// earlier ones.
fn within(policy: &Policy, checked: &Checked, parameters: Option<&Declared>) -> Environment {
    let types = Types {
        object: Some(checked.object.clone()),
        parameters: parameters.cloned(),
        has_parameters: parameters.is_some(),
        has_authorizer: true,
    };
    let plain = environment(&types);
    let with = |variables: &BTreeMap<String, Declared>| {
        plain.clone().with("variables", Arc::new(object("kubernetes.variables", variables.clone())))
    };
    let mut variables = BTreeMap::new();
    for variable in &policy.spec.variables {
        let compiled = with(&variables).compile(&variable.expression);
        let ty = compiled.map_or(Type::Dyn, |program| program.output().clone());
        variables.insert(variable.name.clone(), Declared::plain(ty));
    }
    with(&variables)
}
