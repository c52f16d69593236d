//! Expressions of policies and webhooks: compiled once, evaluated within a request's cost budget.
//!
//! Invariants:
//! - an expression that does not compile fails by itself; others are evaluated;
//! - once the budget is spent, nothing further is evaluated.

use std::time::Duration;

use serde_json::Value;
use setpoint_clock::Clock;

use super::variables::{Declarations, Needs, Scope};
use crate::cel::{CALL_LIMIT, EvalError, Program, Type, Val, Variables};
use crate::json::Json;
use crate::kinds::admissionregistration::expressions::{Compiler, ExtraVariables};

/// Total CEL cost budget of a policy's expressions per request, as in v1.34.
pub(super) const BUDGET: u64 = 10_000_000;
/// The match conditions of one policy or webhook together may cost this much for one request, as in v1.34.
const CONDITIONS_BUDGET: u64 = BUDGET / 4;
/// v1.34's message when the budget is spent.
pub(in crate::admission) const OUT_OF_BUDGET: &str =
    "validation failed due to running out of cost budget, no further validation rules will be run";

/// A compiled expression.
pub(super) struct Expression {
    pub(super) text: String,
    pub(super) program: Result<Program, String>,
    /// The variables that it refers to.
    needs: Needs,
}

/// Why an expression has no value.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// This expression failed; others may be evaluated.
    Failed(String),
    /// The budget is spent.
    OutOfBudget,
}

impl Failure {
    pub(super) fn message(self) -> String {
        match self {
            Self::Failed(why) => why,
            Self::OutOfBudget => OUT_OF_BUDGET.into(),
        }
    }
}

impl Expression {
    pub(super) fn compile(
        text: &str,
        compiler: &Compiler,
        declared: &Declarations,
        about: ExtraVariables,
        types: &[Type],
    ) -> Self {
        let program = compiler.compile(text, about, types);
        let needs = program.as_ref().map_or_else(|_| Needs::default(), |program| declared.needs_of(program));
        Self { text: text.to_owned(), program, needs }
    }
}

/// The evaluation of several expressions about one request, with one budget.
pub(super) struct Evaluation {
    scope: Scope,
    left: u64,
}

impl Evaluation {
    pub(super) fn new(declared: &Declarations, values: Variables, budget: u64) -> Self {
        Self { scope: Scope::new(declared, values, budget), left: budget }
    }

    /// Returns the remaining budget.
    pub(super) fn left(&self) -> u64 {
        self.left
    }

    /// Evaluates an expression, and charges it and the variables that it needed to the budget.
    pub(super) fn evaluate(&mut self, expression: &Expression) -> Result<Val, Failure> {
        let program = match &expression.program {
            Ok(program) => program,
            Err(why) => return Err(Failure::Failed(format!("compilation error: {why}"))),
        };
        self.scope.prepare(&expression.needs);
        let limit = CALL_LIMIT.min(self.left);
        let (value, cost) = program.evaluate(self.scope.values(), limit);
        let is_cut_short = limit < CALL_LIMIT && value == Err(EvalError::TooExpensive);
        let cost = cost.saturating_add(self.scope.take_cost());
        self.left = match self.left.checked_sub(cost) {
            Some(left) if !is_cut_short => left,
            _ => return Err(Failure::OutOfBudget),
        };
        value.map_err(|why| {
            Failure::Failed(format!("expression '{}' resulted in error: {why}", expression.text))
        })
    }

    /// Like `evaluate`, and returns how long it took.
    pub(super) fn timed(
        &mut self,
        expression: &Expression,
        clock: &Clock,
    ) -> (Result<Val, Failure>, Duration) {
        let began = clock.instant();
        let value = self.evaluate(expression);
        (value, clock.instant() - began)
    }
}

/// Match conditions of a policy or a webhook.
pub(in crate::admission) struct Conditions {
    conditions: Vec<Expression>,
    declared: Declarations,
}

/// Why match conditions neither hold nor exclude a request.
#[derive(Debug)]
pub(in crate::admission) struct Undecided {
    pub(in crate::admission) failures: Vec<String>,
    /// How many conditions failed; none if the budget was spent.
    pub(in crate::admission) failed: usize,
}

impl Conditions {
    /// Compiles the conditions of a webhook.
    pub(in crate::admission) fn of_webhook(conditions: &[Value]) -> Self {
        let about = ExtraVariables { authorizer: true, ..ExtraVariables::default() };
        Self::new(conditions, &Compiler::new(false), &Declarations::default(), about)
    }

    pub(super) fn new(
        conditions: &[Value],
        compiler: &Compiler,
        declared: &Declarations,
        about: ExtraVariables,
    ) -> Self {
        let compile = |one: &Value| {
            Expression::compile(one.text("expression"), compiler, declared, about, &[Type::Bool])
        };
        Self { conditions: conditions.iter().map(compile).collect(), declared: declared.clone() }
    }

    pub(in crate::admission) fn is_empty(&self) -> bool {
        self.conditions.is_empty()
    }

    /// Whether all hold for a request. A condition that does not hold takes precedence over failed ones.
    pub(in crate::admission) fn hold(&self, values: &Variables) -> Result<bool, Undecided> {
        let mut evaluation = Evaluation::new(&self.declared, values.clone(), CONDITIONS_BUDGET);
        let (mut failures, mut is_excluded) = (Vec::new(), false);
        for condition in &self.conditions {
            match evaluation.evaluate(condition) {
                Ok(value) => is_excluded |= value != Val::Bool(true),
                Err(Failure::Failed(why)) => failures.push(why),
                Err(spent @ Failure::OutOfBudget) => {
                    return Err(Undecided { failures: vec![spent.message()], failed: 0 });
                }
            }
        }
        match (is_excluded, failures.is_empty()) {
            (true, _) => Ok(false),
            (false, true) => Ok(true),
            (false, false) => Err(Undecided { failed: failures.len(), failures }),
        }
    }
}
