//! A mutating policy with its compiled expressions.

use serde_json::Value;

use crate::admission::policy::expression::{BUDGET, Conditions, Evaluation, Expression, Failure};
use crate::admission::policy::source::Compile;
use crate::admission::policy::variables::Declarations;
use crate::cel::{Val, Variables};
use crate::json::Json;
use crate::kinds::admissionregistration::expressions::{Compiler, ExtraVariables};
use crate::kinds::admissionregistration::mutatingadmissionpolicy::patch_type;
use crate::kinds::admissionregistration::policy;

/// The compiled expressions of a policy.
pub(in crate::admission::policy) struct Mutations {
    declared: Declarations,
    pub(super) conditions: Conditions,
    pub(super) mutations: Vec<Mutation>,
    /// Whether it may be called again in the second round (`reinvocationPolicy: IfNeeded`).
    pub(super) is_reinvoked: bool,
}

/// A change to the object.
pub(super) struct Mutation {
    pub(super) patch: Patch,
    expression: Expression,
}

/// The patch type of a mutation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Patch {
    Apply,
    Json,
}

impl Compile for Mutations {
    fn compile(spec: &Value) -> Self {
        let (mut compiler, about) = (Compiler::new(true), policy::about(spec));
        let declared = Declarations::compile(spec.list("variables"), &mut compiler, about);
        let about_patch = ExtraVariables { patch_types: true, ..about };
        let mutation = |mutation: &Value| {
            let written = mutation.text("patchType");
            let (field, ty) = patch_type(written)?;
            let text = mutation.at(field).text("expression");
            let expression = Expression::compile(text, &compiler, &declared, about_patch, &[ty]);
            let patch = if field == "jsonPatch" { Patch::Json } else { Patch::Apply };
            Some(Mutation { patch, expression })
        };
        Self {
            conditions: Conditions::new(spec.list("matchConditions"), &compiler, &declared, about),
            // Validation rejects all others.
            mutations: spec.list("mutations").iter().filter_map(mutation).collect(),
            is_reinvoked: spec.text("reinvocationPolicy") == "IfNeeded",
            declared,
        }
    }
}

impl Mutations {
    /// Evaluates a mutation. Each has its own budget, as in v1.34.
    pub(super) fn evaluate(&self, mutation: &Mutation, values: &Variables) -> Result<Val, String> {
        if let Err(why) = &mutation.expression.program {
            return Err(why.clone());
        }
        let mut evaluation = Evaluation::new(&self.declared, values.clone(), BUDGET);
        evaluation.evaluate(&mutation.expression).map_err(Failure::message)
    }
}
