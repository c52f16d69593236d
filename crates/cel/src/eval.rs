//! Evaluation. Every step is charged as in v1.34, and evaluation ends when the budget is spent.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::ast::{Expr, Fold, Initializer, Kind, Literal};
use super::libraries;
use super::message::Message;
use super::value::{Key, Val};
use super::work::Work;

/// An evaluation error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EvalError {
    #[error("{0}")]
    Failed(String),
    #[error("operation cancelled: actual cost limit exceeded")]
    TooExpensive,
}

impl EvalError {
    pub(super) fn no_overload() -> Self {
        Self::Failed("no such overload".into())
    }
}

/// The values of an expression's variables.
pub type Variables = BTreeMap<&'static str, Val>;

/// Evaluates an expression. Returns the result and its cost.
pub(super) fn evaluate(expr: &Expr, variables: &Variables, limit: u64) -> (Result<Val, EvalError>, u64) {
    let mut run = Run { variables, locals: Vec::new(), cost: 0, limit, work: Work::default() };
    let value = run.eval(expr);
    (value, run.cost)
}

struct Run<'v> {
    variables: &'v Variables,
    locals: Vec<(Arc<str>, Val)>,
    cost: u64,
    limit: u64,
    work: Work,
}

type Evaluated = Result<Val, EvalError>;

impl Run<'_> {
    fn pay(&mut self, cost: u64) -> Result<(), EvalError> {
        self.cost = self.cost.saturating_add(cost);
        if self.cost > self.limit { Err(EvalError::TooExpensive) } else { Ok(()) }
    }

    fn eval(&mut self, expr: &Expr) -> Evaluated {
        match &expr.kind {
            Kind::Literal(literal) => Ok(constant(literal)),
            Kind::Ident(name) => self.ident(name),
            Kind::Select { operand, field, is_test } => self.select(operand, field, *is_test),
            Kind::Call { target, function, args } => self.call(target.as_deref(), function, args),
            Kind::List(elements) => self.list(elements),
            Kind::Map(entries) => self.map(entries),
            Kind::Message { name, fields } => self.message(name, fields),
            Kind::Fold(fold) => self.fold(fold),
        }
    }

    fn ident(&mut self, name: &str) -> Evaluated {
        self.pay(1)?;
        if let Some((_, value)) = self.locals.iter().rev().find(|(local, _)| **local == *name) {
            return Ok(value.clone());
        }
        match self.variables.get(name) {
            Some(value) => Ok(value.clone()),
            None if super::check::type_named(name).is_some() => Ok(Val::Type(name.into())),
            None => Err(EvalError::Failed(format!("no such attribute(s): {name}"))),
        }
    }

    fn select(&mut self, operand: &Expr, field: &str, is_test: bool) -> Evaluated {
        let value = self.eval(operand)?;
        if is_test {
            return Ok(Val::Bool(has(&value, field)?));
        }
        self.pay(1)?;
        if let Val::Optional(inner) = &value {
            return match inner {
                None => Ok(Val::NONE),
                Some(inner) => Ok(found(inner, &Key::String(field.into()))),
            };
        }
        get(&value, field)
    }

    fn list(&mut self, elements: &[(Expr, bool)]) -> Evaluated {
        let mut items = Vec::with_capacity(elements.len());
        for (element, is_optional) in elements {
            match self.eval(element)? {
                Val::Optional(value) if *is_optional => items.extend(value.map(|value| (*value).clone())),
                value => items.push(value),
            }
        }
        self.pay(LIST_COST)?;
        Ok(Val::list(items))
    }

    fn map(&mut self, entries: &[(Expr, Expr, bool)]) -> Evaluated {
        let mut map = BTreeMap::new();
        for (key, value, is_optional) in entries {
            let key = self.eval(key)?;
            let key = key.key().ok_or_else(|| EvalError::Failed("unsupported key type".into()))?;
            let value = match self.eval(value)? {
                Val::Optional(None) if *is_optional => continue,
                Val::Optional(Some(value)) if *is_optional => (*value).clone(),
                value => value,
            };
            if map.insert(key.clone(), value).is_some() {
                return Err(EvalError::Failed(format!("insert failed: key {key} already exists")));
            }
        }
        self.pay(MAP_COST)?;
        Ok(Val::Map(Arc::new(map)))
    }

    fn message(&mut self, name: &str, initializers: &[Initializer]) -> Evaluated {
        let mut fields = BTreeMap::new();
        for field in initializers {
            let value = match self.eval(&field.value)? {
                Val::Optional(None) if field.is_optional => continue,
                Val::Optional(Some(value)) if field.is_optional => (*value).clone(),
                value => value,
            };
            fields.insert(field.name.as_str().into(), value);
        }
        self.pay(MESSAGE_COST)?;
        Message::construct(name, fields)
    }

    fn call(&mut self, target: Option<&Expr>, function: &str, args: &[Expr]) -> Evaluated {
        match (function, args) {
            ("_&&_", [left, right]) => return self.logical(left, right, false),
            ("_||_", [left, right]) => return self.logical(left, right, true),
            ("_?_:_", [condition, then, otherwise]) => {
                return match self.eval(condition)? {
                    Val::Bool(true) => self.eval(then),
                    Val::Bool(false) => self.eval(otherwise),
                    _ => Err(EvalError::no_overload()),
                };
            }
            ("@not_strictly_false", [arg]) => {
                let value = self.eval(arg);
                if value == Err(EvalError::TooExpensive) {
                    return value;
                }
                self.pay(1)?;
                return Ok(Val::Bool(value != Ok(Val::Bool(false))));
            }
            ("_?._", [operand, field]) => return self.optional_select(operand, field),
            _ => {}
        }
        let mut values = Vec::with_capacity(args.len() + 1);
        for arg in target.into_iter().chain(args) {
            values.push(self.eval(arg)?);
        }
        self.work.note(function, &values)?;
        self.pay(super::cost::in_advance(function))?;
        let result = libraries::call(function, target.is_some(), &values)?;
        self.pay(super::cost::of_call(function, &values, &result))?;
        Ok(result)
    }

    /// Evaluates `&&` or `||`. An operand that decides the result does so even if the other one fails.
    fn logical(&mut self, left: &Expr, right: &Expr, settles: bool) -> Evaluated {
        let first = self.eval(left);
        match first {
            Ok(Val::Bool(value)) if value == settles => return first,
            Err(EvalError::TooExpensive) => return first,
            _ => {}
        }
        let second = self.eval(right);
        match (&first, &second) {
            (_, Ok(Val::Bool(value))) if *value == settles => second,
            (_, Err(EvalError::TooExpensive)) => second,
            (Ok(Val::Bool(_)), Ok(Val::Bool(_))) => Ok(Val::Bool(!settles)),
            (Err(_), _) => first,
            (_, Err(_)) => second,
            _ => Err(EvalError::no_overload()),
        }
    }

    fn optional_select(&mut self, operand: &Expr, field: &Expr) -> Evaluated {
        let value = self.eval(operand)?;
        self.pay(1)?;
        let Kind::Literal(Literal::String(field)) = &field.kind else { return Err(EvalError::no_overload()) };
        let key = Key::String(field.as_str().into());
        match &value {
            Val::Optional(None) => Ok(Val::NONE),
            Val::Optional(Some(inner)) => Ok(found(inner, &key)),
            Val::Foreign(foreign) => match foreign.field(field) {
                Some(value) => value.map(Val::some),
                None => Ok(Val::NONE),
            },
            value => Ok(found(value, &key)),
        }
    }

    fn fold(&mut self, fold: &Fold) -> Evaluated {
        let range = self.eval(&fold.range)?;
        let init = self.eval(&fold.init)?;
        let outer = self.locals.len();
        self.locals.push((fold.accu.as_str().into(), init));
        // Iterate lazily: if the first element decides the result, the comprehension must not cost as much as all of
        // them.
        let result = match &range {
            Val::List(list) if fold.var2.is_some() => {
                let pairs = (0i64..).zip(&list.items).map(|(index, item)| (Val::Int(index), item.clone()));
                self.steps(fold, pairs, outer)
            }
            Val::List(list) => {
                self.steps(fold, list.items.iter().map(|item| (item.clone(), Val::Null)), outer)
            }
            Val::Map(entries) | Val::Domains(entries) | Val::Escaped(entries) => {
                self.steps(fold, entries.iter().map(|(key, value)| (key.val(), value.clone())), outer)
            }
            _ => Err(EvalError::no_overload()),
        };
        let result = result.and_then(|()| {
            self.locals.truncate(outer + 1);
            self.eval(&fold.result)
        });
        self.locals.truncate(outer);
        result
    }

    fn steps(
        &mut self,
        fold: &Fold,
        pairs: impl Iterator<Item = (Val, Val)>,
        accu: usize,
    ) -> Result<(), EvalError> {
        let (var, var2): (Arc<str>, Option<Arc<str>>) =
            (fold.var.as_str().into(), fold.var2.as_deref().map(Into::into));
        let mut failure = None;
        for (first, second) in pairs {
            self.locals.truncate(accu + 1);
            self.locals.push((var.clone(), first));
            if let Some(var2) = &var2 {
                self.locals.push((var2.clone(), second));
            }
            match self.eval(&fold.condition)? {
                Val::Bool(true) => {}
                _ => break,
            }
            if self.appends(&fold.step, accu)? {
                continue;
            }
            match self.eval(&fold.step) {
                Ok(next) => {
                    failure = None;
                    self.locals[accu].1 = next;
                }
                Err(EvalError::TooExpensive) => return Err(EvalError::TooExpensive),
                // In `exists` and `all`, a later element may decide the result although this one failed.
                Err(why) if is_logical(&fold.step) => failure = failure.or(Some(why)),
                Err(why) => return Err(why),
            }
        }
        match (failure, &self.locals[accu].1) {
            (Some(why), value) if !settles(&fold.step, value) => Err(why),
            _ => Ok(()),
        }
    }

    /// Appends in place if the step is `result + [element]` or inserts an entry into the result, with or without a
    /// condition. Rebuilding the result for every element would take quadratic time.
    fn appends(&mut self, step: &Expr, accu: usize) -> Result<bool, EvalError> {
        let Kind::Call { function, args, .. } = &step.kind else { return Ok(false) };
        let (condition, more) = match (function.as_str(), args.as_slice()) {
            ("_?_:_", [condition, more, otherwise]) if is_accu(otherwise) => (Some(condition), more),
            _ => (None, step),
        };
        let Kind::Call { function, args, .. } = &more.kind else { return Ok(false) };
        let (function, [result, added @ ..]) = (function.as_str(), args.as_slice()) else { return Ok(false) };
        let is_gathered = match (function, added, &self.locals[accu].1) {
            ("_+_", [added], Val::List(_)) => matches!(added.kind, Kind::List(_)),
            ("cel.@mapInsert", _, Val::Map(_)) => true,
            _ => false,
        };
        if !is_gathered || !is_accu(result) {
            return Ok(false);
        }
        if let Some(condition) = condition {
            match self.eval(condition)? {
                Val::Bool(true) => {}
                Val::Bool(false) => {
                    self.pay(1)?;
                    return Ok(true);
                }
                _ => return Err(EvalError::no_overload()),
            }
        }
        let added = added.iter().map(|added| self.eval(added)).collect::<Result<Vec<_>, _>>()?;
        // One for the result and one for the call.
        self.pay(1 + 1)?;
        match (&mut self.locals[accu].1, added.as_slice()) {
            (Val::List(all), [Val::List(added)]) => {
                Arc::make_mut(all).items.extend(added.items.iter().cloned());
            }
            (Val::Map(all), added) => libraries::insert(Arc::make_mut(all), added)?,
            _ => return Err(EvalError::no_overload()),
        }
        Ok(true)
    }
}

pub(super) const LIST_COST: u64 = 10;
const MAP_COST: u64 = 30;
pub(super) const MESSAGE_COST: u64 = 40;

fn is_accu(expr: &Expr) -> bool {
    matches!(&expr.kind, Kind::Ident(name) if name == super::parser::ACCU)
}

fn is_logical(step: &Expr) -> bool {
    matches!(&step.kind, Kind::Call { function, .. } if function == "_&&_" || function == "_||_")
}

/// Returns whether no further element can change this value.
fn settles(step: &Expr, value: &Val) -> bool {
    match &step.kind {
        Kind::Call { function, .. } if function == "_&&_" => *value == Val::Bool(false),
        Kind::Call { function, .. } if function == "_||_" => *value == Val::Bool(true),
        _ => false,
    }
}

fn constant(literal: &Literal) -> Val {
    match literal {
        Literal::Null => Val::Null,
        Literal::Bool(on) => Val::Bool(*on),
        Literal::Int(number) => Val::Int(*number),
        Literal::Uint(number) => Val::Uint(*number),
        Literal::Double(number) => Val::Double(*number),
        Literal::String(text) => Val::text(text.as_str()),
        Literal::Bytes(bytes) => Val::Bytes(bytes.as_slice().into()),
    }
}

fn has(value: &Val, field: &str) -> Result<bool, EvalError> {
    match value {
        Val::Map(_) | Val::Domains(_) | Val::Escaped(_) => {
            Ok(value.at_key(&Key::String(field.into())).is_some())
        }
        Val::Message(message) => Ok(message.has(field)),
        Val::Foreign(foreign) => foreign.field(field).transpose().map(|value| value.is_some()),
        Val::Optional(None) => Ok(false),
        Val::Optional(Some(inner)) => has(inner, field),
        Val::List(_) => Err(EvalError::no_overload()),
        // Values without fields have no field.
        _ => Ok(false),
    }
}

pub(super) fn get(value: &Val, field: &str) -> Evaluated {
    match value {
        Val::Map(_) | Val::Domains(_) | Val::Escaped(_) => {
            let found = value.at_key(&Key::String(field.into()));
            found.ok_or_else(|| EvalError::Failed(format!("no such key: {field}")))
        }
        Val::Message(message) => Ok(message.get(field)),
        Val::Foreign(foreign) => {
            foreign.field(field).unwrap_or_else(|| Err(EvalError::Failed(format!("no such key: {field}"))))
        }
        Val::List(_) => Err(EvalError::no_overload()),
        _ => Err(EvalError::Failed(format!("no such key: {field}"))),
    }
}

/// Returns the value at a key as an optional.
pub(super) fn found(value: &Val, key: &Key) -> Val {
    value.at_key(key).map_or(Val::NONE, Val::some)
}
