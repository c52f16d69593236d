//! Operators and calls.

use std::rc::Rc;
use std::sync::Arc;

use super::env::Env;
use super::expand::mistake;
use super::node::{Conjunct, NodeId, State, Term, Validator, Value};
use super::value_of::Val;
use super::{Evaluator, Res};
use crate::builtins::Function;
use crate::data::Data;
use crate::error::{ErrorKind, Position};
use crate::ir::{self, ExprKind};
use crate::number::{Number, NumberError};
use crate::value::{Atom, BoundOp};

impl Evaluator {
    pub(super) fn not(&mut self, operand: &Arc<ir::Expr>, env: &Env) -> Res<Val> {
        let value = self.eval(operand, env)?;
        match self.atom(&value, &operand.position)? {
            Atom::Bool(value) => Ok(Val::bool(!value)),
            other => {
                Err(mistake(ErrorKind::Conflict, format!("`!` needs a bool, not {other}"), &operand.position))
            }
        }
    }

    pub(super) fn sign(&mut self, negative: bool, operand: &Arc<ir::Expr>, env: &Env) -> Res<Val> {
        let value = self.eval(operand, env)?;
        let Atom::Number(number) = self.atom(&value, &operand.position)? else {
            return Err(mistake(ErrorKind::Conflict, "a sign needs a number", &operand.position));
        };
        let number = if negative { arithmetic(number.negate(), &operand.position)? } else { number };
        Ok(Val::Atom(Atom::Number(number)))
    }

    pub(super) fn binary(
        &mut self,
        op: &'static str,
        left: &Arc<ir::Expr>,
        right: &Arc<ir::Expr>,
        env: &Env,
        at: &Position,
    ) -> Res<Val> {
        match op {
            "==" | "!=" => {
                let bottom = |expr: &ir::Expr| matches!(expr.kind, ExprKind::Bottom);
                if bottom(left) || bottom(right) {
                    let tested = if bottom(left) { right } else { left };
                    let exists = self.exists(tested, env)?;
                    return Ok(Val::bool(exists == (op == "!=")));
                }
                self.equality(op, left, right, env, at)
            }
            "&&" | "||" => self.logic(op, left, right, env),
            "+" | "-" | "*" | "/" => {
                let (a, b) = (self.eval(left, env)?, self.eval(right, env)?);
                self.arithmetic(op, &a, &b, at)
            }
            _ => self.comparison(op, left, right, env, at),
        }
    }

    /// Returns whether an expression has a value.
    fn exists(&mut self, expr: &Arc<ir::Expr>, env: &Env) -> Res<bool> {
        match self.eval(expr, env) {
            Ok(Val::Node(id)) => self.has_value(id, &expr.position),
            Ok(_) => Ok(true),
            Err(bottom) if matches!(bottom.kind, ErrorKind::Cycle | ErrorKind::Limit) => Err(bottom),
            Err(_) => Ok(false),
        }
    }

    fn equality(
        &mut self,
        op: &str,
        left: &Arc<ir::Expr>,
        right: &Arc<ir::Expr>,
        env: &Env,
        at: &Position,
    ) -> Res<Val> {
        let (a, b) = (self.eval(left, env)?, self.eval(right, env)?);
        let equal = match (&a, &b) {
            (Val::Atom(a), Val::Atom(b)) => a == b,
            _ => {
                let (a, b) = (self.materialize(a), self.materialize(b));
                self.is_equal(a, b, at)?
            }
        };
        Ok(Val::bool(equal == (op == "==")))
    }

    fn logic(&mut self, op: &str, left: &Arc<ir::Expr>, right: &Arc<ir::Expr>, env: &Env) -> Res<Val> {
        let a = self.truth(op, left, env)?;
        if a == (op == "||") {
            return Ok(Val::bool(a));
        }
        self.truth(op, right, env).map(Val::bool)
    }

    fn truth(&mut self, op: &str, expr: &Arc<ir::Expr>, env: &Env) -> Res<bool> {
        let value = self.eval(expr, env)?;
        match self.atom(&value, &expr.position)? {
            Atom::Bool(value) => Ok(value),
            other => {
                Err(mistake(ErrorKind::Conflict, format!("`{op}` needs bools, not {other}"), &expr.position))
            }
        }
    }

    fn comparison(
        &mut self,
        op: &'static str,
        left: &Arc<ir::Expr>,
        right: &Arc<ir::Expr>,
        env: &Env,
        at: &Position,
    ) -> Res<Val> {
        let (a, b) = (self.eval(left, env)?, self.eval(right, env)?);
        let (a, b) = (self.atom(&a, &left.position)?, self.atom(&b, &right.position)?);
        let refused = |why: String| mistake(ErrorKind::Conflict, why, at);
        match BoundOp::of(op) {
            Some(BoundOp::Match) => self.is_match(&b, &a).map(Val::bool).map_err(refused),
            Some(BoundOp::NotMatch) => self.is_match(&b, &a).map(|found| Val::bool(!found)).map_err(refused),
            Some(bound) => match a.compare(&b) {
                Some(order) => Ok(Val::bool(bound.accepts(order))),
                None => Err(refused(format!("cannot compare {a} {op} {b}"))),
            },
            None => Err(refused(format!("unknown operator {op}"))),
        }
    }

    fn arithmetic(&mut self, op: &str, a: &Val, b: &Val, at: &Position) -> Res<Val> {
        if let Some(joined) = self.join(op, a, b, at)? {
            return Ok(joined);
        }
        let (a, b) = (self.atom(a, at)?, self.atom(b, at)?);
        match (op, &a, &b) {
            (_, Atom::Number(x), Atom::Number(y)) => {
                let result = match op {
                    "+" => x.add(*y),
                    "-" => x.subtract(*y),
                    "*" => x.multiply(*y),
                    _ => x.divide(*y),
                };
                Ok(Val::Atom(Atom::Number(arithmetic(result, at)?)))
            }
            ("+", Atom::Text(x), Atom::Text(y)) => {
                self.charge_text(x.len() + y.len())?;
                Ok(Val::text(format!("{x}{y}")))
            }
            ("+", Atom::Bytes(x), Atom::Bytes(y)) => {
                self.charge_text(x.len() + y.len())?;
                Ok(Val::Atom(Atom::Bytes([&x[..], &y[..]].concat().into())))
            }
            ("*", Atom::Number(count), text) | ("*", text, Atom::Number(count)) => {
                self.repeat(text, *count, at)
            }
            _ => Err(mistake(ErrorKind::Conflict, format!("invalid operands {a} {op} {b}"), at)
                .with_hint("both sides must be numbers, or for `+` both strings")),
        }
    }

    /// Joins lists with `+` and repeats them with `*`, as older CUE allowed.
    fn join(&mut self, op: &str, a: &Val, b: &Val, at: &Position) -> Res<Option<Val>> {
        let (Some(x), Some(y)) = (self.list_of(a, at)?, self.list_of(b, at)?) else {
            return Ok(None);
        };
        if op != "+" {
            return Ok(None);
        }
        self.charge(x.len() + y.len())?;
        Ok(Some(Val::Items(Rc::new([x, y].concat()))))
    }

    /// Returns the elements of a list.
    pub(crate) fn list_of(&mut self, value: &Val, at: &Position) -> Res<Option<Vec<NodeId>>> {
        let id = match value {
            Val::Node(id) => *id,
            Val::Items(items) => return Ok(Some(items.to_vec())),
            Val::Data(data) if matches!(**data, Data::List(_)) => self.materialize(value.clone()),
            _ => return Ok(None),
        };
        let id = self.concrete(id, at)?;
        if !matches!(self.shape(id).value, Value::List) {
            return Ok(None);
        }
        if let Some(incomplete) = &self.shape(id).incomplete {
            return Err(incomplete.clone());
        }
        Ok(Some(self.shape(id).elements.clone()))
    }

    fn repeat(&mut self, text: &Atom, count: Number, at: &Position) -> Res<Val> {
        let bytes = match text {
            Atom::Text(text) => text.len(),
            Atom::Bytes(bytes) => bytes.len(),
            _ => return Err(mistake(ErrorKind::Conflict, format!("invalid operands {count} * {text}"), at)),
        };
        let Some(times) = count.as_usize() else {
            return Err(mistake(ErrorKind::Conflict, format!("cannot repeat {count} times"), at));
        };
        self.charge_text(bytes.saturating_mul(times))?;
        Ok(match text {
            Atom::Text(text) => Val::text(text.repeat(times)),
            Atom::Bytes(bytes) => Val::Atom(Atom::Bytes(bytes.repeat(times).into())),
            other => Val::Atom(other.clone()),
        })
    }

    pub(super) fn call(
        &mut self,
        function: &Arc<ir::Expr>,
        arguments: &[Arc<ir::Expr>],
        env: &Env,
        at: &Position,
    ) -> Res<Val> {
        if matches!(function.kind, ExprKind::Builtin("close")) {
            let call = ExprKind::Call(function.clone(), arguments.to_vec());
            let expr = Arc::new(ir::Expr { position: at.clone(), kind: call });
            let term = Term::Expr(expr);
            return Ok(Val::Node(self.anonymous(Conjunct {
                term,
                env: env.clone(),
                ties: Default::default(),
            })));
        }
        let called = self.eval(function, env)?;
        let Val::Function(called) = called else {
            return Err(mistake(
                ErrorKind::Conflict,
                "only builtins and functions of packages can be called",
                at,
            ));
        };
        let mut values = Vec::with_capacity(arguments.len());
        for argument in arguments {
            values.push(self.eval(argument, env)?);
        }
        self.charge(2)?;
        called.call(self, values, at)
    }

    /// A function as a value is a validator: `net.IPv4`.
    pub(super) fn function_as_value(
        &mut self,
        id: NodeId,
        function: &Function,
        conjunct: &Conjunct,
    ) -> Res<()> {
        let at = self.place(conjunct).unwrap_or_else(|| self.nowhere());
        match function.validator(&at) {
            Some(validator) => {
                self.liven(id, conjunct);
                self.shape_mut(id).validators.push(validator);
                Ok(())
            }
            None => {
                let message = format!("{} is a function: call it", function.name());
                Err(mistake(ErrorKind::Conflict, message, &at))
            }
        }
    }

    pub(super) fn validate_atom(&mut self, id: NodeId, validator: &Rc<Validator>, atom: &Atom) -> Res<()> {
        self.validate(id, validator, Val::Atom(atom.clone()), &atom.to_string())
    }

    /// Runs a validator of a struct or list. Its shape is complete, so it can be read before it is done.
    pub(super) fn validate_parts(&mut self, id: NodeId, validator: &Rc<Validator>) -> Res<()> {
        let value = if self.shape(id).lists.is_empty() { Value::Struct } else { Value::List };
        self.shape_mut(id).value = value;
        self.node_mut(id).state = State::Done;
        let result = self.validate(id, validator, Val::Node(id), "here");
        self.node_mut(id).state = State::Expanding;
        result
    }

    fn validate(&mut self, id: NodeId, validator: &Rc<Validator>, value: Val, shown: &str) -> Res<()> {
        let mut arguments = vec![value];
        arguments.extend(validator.arguments.iter().cloned());
        let at = validator.position.clone();
        if self.validating.contains(&at) {
            return Ok(());
        }
        self.validating.push(at.clone());
        let result = validator.builtin.run(self, arguments, &at);
        self.validating.pop();
        let result = result?;
        let why = match self.atom(&result, &at)? {
            Atom::Bool(true) => return Ok(()),
            _ => format!("invalid value {shown}: does not satisfy {validator}"),
        };
        Err(self.error(id, ErrorKind::Conflict, why).at(&at).into())
    }
}

/// Converts the failure of a calculation to an error.
pub(crate) fn arithmetic(result: Result<Number, NumberError>, at: &Position) -> Res<Number> {
    result.map_err(|why| mistake(ErrorKind::Conflict, why.to_string(), at))
}

/// Adds a hint to an error that is already shared.
trait WithHint {
    fn with_hint(self, hint: &str) -> Self;
}

impl WithHint for super::node::Bottom {
    fn with_hint(self, hint: &str) -> Self {
        Rc::new((*self).clone().hint(hint))
    }
}
