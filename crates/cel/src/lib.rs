//! The Common Expression Language, as Kubernetes v1.34 has it.
//!
//! ```text
//!  text ─► lexer ─► parser: macros written out ─► check: types, overloads ─► estimate: the most it can cost
//!                                                        │
//!                                             values ─► eval: every step paid for ─► value
//! ```
//!
//! An [`Environment`] declares variables; [`Environment::compile`] makes a [`Program`], which knows its type,
//! what it uses and what it can cost, and is evaluated as often as needed. Rules of custom resources and
//! admission policies both come this way.
//!
//! What always holds:
//! - evaluation ends: an expression has no loops but over values, and stops when its budget is spent;
//! - the same expression on the same values gives the same value at the same cost.

pub mod admission;
mod ast;
mod check;
mod cost;
mod declarations;
pub mod device;
pub mod duration;
pub mod escape;
mod estimate;
mod estimate_path;
mod eval;
pub mod formats;
mod lexer;
mod libraries;
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
pub use types::{Declared, Object, Type};
pub use value::{Foreign, Identity, Key, List, Val};

use ast::Kind;
use check::Checked;
use lexer::Mistake;

/// One evaluation may cost this much, as in v1.34.
pub const CALL_LIMIT: u64 = 1_000_000;

/// What an expression can refer to.
#[derive(Clone, Debug, Default)]
pub struct Environment {
    variables: BTreeMap<String, Arc<Declared>>,
}

/// An expression that has been checked.
#[derive(Debug)]
pub struct Program {
    checked: Checked,
    max_cost: u64,
}

/// Why a text is no expression of this environment, in v1.34's words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct CompileError(String);

impl Environment {
    pub fn new() -> Self {
        Self::default()
    }

    /// The environment with one more variable.
    pub fn with(mut self, name: &str, declared: Arc<Declared>) -> Self {
        self.variables.insert(name.to_owned(), declared);
        self
    }

    pub fn compile(&self, text: &str) -> Result<Program, CompileError> {
        let expr = parser::parse(text).map_err(|mistakes| CompileError::of(text, &mistakes))?;
        let types =
            self.variables.iter().map(|(name, declared)| (name.clone(), declared.ty.clone())).collect();
        let checked = check::check(expr, &types).map_err(|mistakes| CompileError::of(text, &mistakes))?;
        let max_cost = estimate::estimate(&checked, &self.variables).max;
        Ok(Program { checked, max_cost })
    }
}

impl Program {
    /// The type of its values.
    pub fn output(&self) -> &Type {
        &self.checked.ty
    }

    /// What evaluating it can cost at most.
    pub fn max_cost(&self) -> u64 {
        self.max_cost
    }

    /// Whether it refers to a variable.
    pub fn uses(&self, variable: &str) -> bool {
        self.checked.used.iter().any(|used| used == variable)
    }

    /// Whether it selects a field of a variable: `variable.field`, `variable.?field` or `has(variable.field)`.
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

    /// Whether its value is what a call of this function returns, in every case.
    pub fn ends_in(&self, function: &str) -> bool {
        self.checked.expr.ends_in(function)
    }

    /// Its value, and what it cost, which is never much more than `limit`.
    pub fn evaluate(&self, variables: &Variables, limit: u64) -> (Result<Val, EvalError>, u64) {
        eval::evaluate(&self.checked.expr, variables, limit)
    }
}

impl CompileError {
    /// Each mistake with the line it is in and where.
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

/// The examples of the README are tested with the others.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
