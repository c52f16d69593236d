//! The Common Expression Language (CEL), as in Kubernetes v1.34.
//!
//! ```text
//!  text ─► lexer ─► parser: macros expanded ─► check: types, overloads ─► estimate: maximum cost
//!                                                     │
//!                                          values ─► eval: every step charged ─► value
//! ```
//!
//! An [`Environment`] declares variables. [`Environment::compile`] creates a [`Program`], which knows its type, its
//! variables and its maximum cost, and can be evaluated any number of times. Validation rules of custom resources and
//! admission policies both work this way.
//!
//! Invariants:
//! - Evaluation terminates: the only loops are over values, and it stops when its budget is spent.
//! - The same expression with the same values gives the same result at the same cost.

pub mod admission;
mod ast;
mod check;
mod clauses;
mod cost;
mod declarations;
pub mod device;
pub mod duration;
pub mod escape;
mod estimate;
mod estimate_path;
mod eval;
pub mod formats;
mod json;
mod lexer;
mod libraries;
mod literals;
mod message;
pub mod names;
pub mod number;
mod parser;
pub mod pattern;
pub mod percent;
#[cfg(test)]
mod tests;
mod types;
mod value;
mod work;

use std::collections::BTreeMap;
use std::sync::Arc;

pub use eval::{EvalError, Variables};
pub use json::JsonLimit;
pub use message::{JSON_PATCH, Message, OBJECT};
pub use types::{Declared, Object, Type};
pub use value::{Foreign, Identity, Key, List, Val};

use ast::Kind;
use check::Checked;
use lexer::Mistake;

/// The cost limit of one evaluation, as in v1.34.
pub const CALL_LIMIT: u64 = 1_000_000;

/// The variables that an expression can use.
#[derive(Clone, Debug, Default)]
pub struct Environment {
    variables: BTreeMap<String, Arc<Declared>>,
    extensions: check::Extensions,
}

/// A type-checked expression.
#[derive(Debug)]
pub struct Program {
    checked: Checked,
    max_cost: u64,
}

/// A compile error, with v1.34's message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct CompileError(String);

impl Environment {
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a variable.
    pub fn with(mut self, name: &str, declared: Arc<Declared>) -> Self {
        self.variables.insert(name.to_owned(), declared);
        self
    }

    /// Adds the types and functions for the mutations of admission policies: `Object`, `JSONPatch` and
    /// `jsonpatch.escapeKey`.
    pub fn with_patch_types(mut self) -> Self {
        self.extensions.patch_types = true;
        self
    }

    /// Adds kro's functions for templates of resource graphs: `random`, `hash`, `json`, `base64`, and list and map
    /// edits. Literal lists and maps may mix types.
    pub fn with_graph_functions(mut self) -> Self {
        self.extensions.graph_functions = true;
        self
    }

    pub fn compile(&self, text: &str) -> Result<Program, CompileError> {
        let expr = parser::parse(text).map_err(|mistakes| CompileError::of(text, &mistakes))?;
        let types =
            self.variables.iter().map(|(name, declared)| (name.clone(), declared.ty.clone())).collect();
        let checked = check::check(expr, &types, self.extensions)
            .map_err(|mistakes| CompileError::of(text, &mistakes))?;
        let max_cost = estimate::estimate(&checked, &self.variables).max;
        Ok(Program { checked, max_cost })
    }
}

impl Program {
    /// Returns the type of the result.
    pub fn output(&self) -> &Type {
        &self.checked.ty
    }

    /// Returns the estimated maximum cost.
    pub fn max_cost(&self) -> u64 {
        self.max_cost
    }

    /// Returns whether the program uses a variable.
    pub fn uses(&self, variable: &str) -> bool {
        self.checked.used.iter().any(|used| used == variable)
    }

    /// Returns whether the program selects a field of a variable: `variable.field`, `variable.?field` or
    /// `has(variable.field)`.
    pub fn selects(&self, variable: &str, field: &str) -> bool {
        self.checked.expr.any(&|expr| match &expr.kind {
            Kind::Select { operand, field: selected, .. } => operand.is_ident(variable) && selected == field,
            Kind::Call { target: None, function, args } if function == "_?._" => match args.as_slice() {
                [operand, name] => operand.is_ident(variable) && name.is_text(field),
                _ => false,
            },
            _ => false,
        })
    }

    /// Returns the fields of a variable that the program selects. `None` if it also uses the variable as a whole.
    pub fn fields_of(&self, variable: &str) -> Option<Vec<&str>> {
        let mut fields = Vec::new();
        self.checked.expr.fields_of(variable, &mut fields).then_some(fields)
    }

    /// Returns whether the program can create lists, maps or messages.
    pub fn makes_values(&self) -> bool {
        self.checked.expr.any(&|expr| {
            matches!(
                expr.kind,
                Kind::List(_) | Kind::Map(_) | Kind::Message { .. } | Kind::Call { .. } | Kind::Fold(_)
            )
        })
    }

    /// Returns the nesting depth of the program, which determines the stack usage of an evaluation.
    pub fn depth(&self) -> usize {
        self.checked.expr.depth
    }

    /// Returns whether the result is always that of a call to this function.
    pub fn ends_in(&self, function: &str) -> bool {
        self.checked.expr.ends_in(function)
    }

    /// Evaluates the program. Returns the result and its cost, which never exceeds `limit` by much.
    pub fn evaluate(&self, variables: &Variables, limit: u64) -> (Result<Val, EvalError>, u64) {
        eval::evaluate(&self.checked.expr, variables, limit)
    }
}

impl CompileError {
    /// Formats each error with its line and position.
    fn of(text: &str, mistakes: &[Mistake]) -> Self {
        let shown: Vec<String> = mistakes.iter().map(|mistake| shown(text, mistake)).collect();
        Self(shown.join("\n"))
    }
}

fn shown(text: &str, mistake: &Mistake) -> String {
    let before: String = text.chars().take(mistake.at).collect();
    let line = before.matches('\n').count();
    let column = before.chars().rev().take_while(|letter| *letter != '\n').count();
    let source = text.lines().nth(line).unwrap_or_default().replace('\t', " ");
    let message = &mistake.message;
    format!("ERROR: <input>:{}:{}: {message}\n | {source}\n | {}^", line + 1, column + 1, ".".repeat(column))
}

/// Runs the README's examples as doc tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
