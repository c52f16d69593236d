//! Builtins that need no import: `len`, `and`, `or`, `div`, `mod`, `quo`, `rem`, `error`, `matchN`, `matchIf`.
//!
//! `close` is not here: it changes how its argument is unified, so the evaluator handles it.

use std::rc::Rc;

use super::{Args, Builtin, int};
use crate::data::Data;
use crate::error::{Error, ErrorKind};
use crate::eval::Res;
use crate::eval::node::{NodeId, Value};
use crate::eval::value_of::Val;
use crate::syntax::ast::Marker;
use crate::value::Atom;

pub(super) const TABLE: &[Builtin] = &[
    Builtin::new("len", 1, len),
    Builtin::new("and", 1, and),
    Builtin::new("or", 1, or),
    Builtin::new("div", 2, |args| divide(args, i128::checked_div_euclid)),
    Builtin::new("mod", 2, |args| divide(args, i128::checked_rem_euclid)),
    Builtin::new("quo", 2, |args| divide(args, i128::checked_div)),
    Builtin::new("rem", 2, |args| divide(args, i128::checked_rem)),
    Builtin::new("error", 1, error),
    Builtin::check("matchN", 3, match_n),
    Builtin::check("matchIf", 4, match_if),
];

fn len(args: &mut Args<'_>) -> Res<Val> {
    if let Val::Data(data) = args.value(0) {
        match &*data {
            Data::List(items) => return Ok(int(items.len())),
            Data::Struct(fields) => return Ok(int(fields.len())),
            Data::Atom(_) => {}
        }
    }
    let id = args.node(0);
    let id = args.evaluator.concrete(id, args.at)?;
    if let Some(incomplete) = &args.evaluator.shape(id).incomplete {
        return Err(incomplete.clone());
    }
    let shape = args.evaluator.shape(id);
    match &shape.value {
        Value::Atom(Atom::Text(text)) => Ok(int(text.len())),
        Value::Atom(Atom::Bytes(bytes)) => Ok(int(bytes.len())),
        Value::List => Ok(int(shape.elements.len())),
        Value::Struct => Ok(int(fields(args, id).len())),
        _ => args.fail(format!("{} has no length", args.evaluator.describe(id))),
    }
}

/// Returns the regular fields that are set.
pub(super) fn fields(args: &Args<'_>, id: NodeId) -> Vec<NodeId> {
    let arms = args.evaluator.shape(id).arms.iter();
    let set = arms
        .filter(|(label, arm)| label.is_regular() && args.evaluator.node(arm.node).marker == Marker::None);
    set.map(|(_, arm)| arm.node).collect()
}

fn and(args: &mut Args<'_>) -> Res<Val> {
    let items = args.items(0)?;
    Ok(Val::All(Rc::new(items)))
}

fn or(args: &mut Args<'_>) -> Res<Val> {
    let items = args.items(0)?;
    if items.is_empty() {
        return args.fail("empty list in call to or: no alternative is left");
    }
    Ok(Val::Either(Rc::new(items)))
}

fn divide(args: &mut Args<'_>, operation: fn(i128, i128) -> Option<i128>) -> Res<Val> {
    let (a, b) = (args.int(0)?, args.int(1)?);
    if b == 0 {
        return args.fail("division by zero");
    }
    match operation(a, b) {
        Some(result) => Ok(Val::Atom(Atom::int(result))),
        None => args.fail("number too large"),
    }
}

fn error(args: &mut Args<'_>) -> Res<Val> {
    let message = args.text(0)?;
    Err(Error::new(ErrorKind::User, message.to_string()).at(args.at).into())
}

/// Counts the values of a list that a value unifies with.
fn match_n(args: &mut Args<'_>) -> Res<Val> {
    let value = args.node(0);
    let mut count = 0;
    for constraint in args.items(2)? {
        count += i128::from(unifies(args, value, constraint)?);
    }
    let wanted = args.node(1);
    args.evaluator.evaluate(wanted);
    let number = args.evaluator.term(crate::eval::node::Term::Atom(Atom::int(count), args.at.clone()));
    unifies(args, number, wanted).map(Val::bool)
}

fn match_if(args: &mut Args<'_>) -> Res<Val> {
    let (value, condition) = (args.node(0), args.node(1));
    let branch = if unifies(args, value, condition)? { args.node(2) } else { args.node(3) };
    unifies(args, value, branch).map(Val::bool)
}

/// Returns whether two values have no conflict and leave nothing open that the first has settled.
fn unifies(args: &mut Args<'_>, value: NodeId, constraint: NodeId) -> Res<bool> {
    let both = args.evaluator.materialize(Val::All(Rc::new(vec![value, constraint])));
    if args.evaluator.deep_error(both).is_some() {
        return match &args.evaluator.stopped {
            Some(stopped) => Err(stopped.clone()),
            None => Ok(false),
        };
    }
    match args.evaluator.node_data(both, args.at) {
        Ok(_) => Ok(true),
        Err(bottom) if bottom.kind.is_incomplete() => Ok(false),
        Err(bottom) => Err(bottom),
    }
}
