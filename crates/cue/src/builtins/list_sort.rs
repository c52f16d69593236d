//! Sorting: `list.Sort` with a comparator, `list.Ascending` and `list.Descending`.
//!
//! A comparator is a struct `{x: _, y: _, less: …}`; `less` says whether `x` comes before `y`.

use std::rc::Rc;

use super::Args;
use crate::eval::Res;
use crate::eval::node::{Conjunct, NodeId, Term, Ties, Value};
use crate::eval::value_of::Val;
use crate::label::Label;
use crate::syntax::ast::Marker;
use crate::value::Atom;

const ASCENDING: &str = "list.Ascending";
const DESCENDING: &str = "list.Descending";

/// Returns the built-in comparators, which are names that [`sort`] recognizes.
pub(super) fn constant(name: &str) -> Option<Atom> {
    match name {
        "Ascending" => Some(Atom::text(ASCENDING)),
        "Descending" => Some(Atom::text(DESCENDING)),
        "Comparer" => Some(Atom::text("list.Comparer")),
        _ => None,
    }
}

pub(super) fn sort(args: &mut Args<'_>) -> Res<Val> {
    let items = args.items(0)?;
    let sorted = merge_sort(args, items)?;
    args.list_of_items(sorted)
}

pub(super) fn is_sorted(args: &mut Args<'_>) -> Res<Val> {
    let items = args.items(0)?;
    for pair in items.windows(2) {
        if less(args, pair[1], pair[0])? {
            return Ok(Val::bool(false));
        }
    }
    Ok(Val::bool(true))
}

/// Merge sort: stable, and an inconsistent comparator cannot make it fail.
fn merge_sort(args: &mut Args<'_>, items: Vec<NodeId>) -> Res<Vec<NodeId>> {
    let mut runs: Vec<Vec<NodeId>> = items.into_iter().map(|item| vec![item]).collect();
    while runs.len() > 1 {
        let mut merged = Vec::with_capacity(runs.len().div_ceil(2));
        let mut pairs = runs.into_iter();
        while let Some(a) = pairs.next() {
            merged.push(match pairs.next() {
                Some(b) => merge(args, a, b)?,
                None => a,
            });
        }
        runs = merged;
    }
    Ok(runs.pop().unwrap_or_default())
}

fn merge(args: &mut Args<'_>, a: Vec<NodeId>, b: Vec<NodeId>) -> Res<Vec<NodeId>> {
    let mut merged = Vec::with_capacity(a.len() + b.len());
    let (mut a, mut b) = (a.into_iter().peekable(), b.into_iter().peekable());
    while let (Some(x), Some(y)) = (a.peek().copied(), b.peek().copied()) {
        let from = if less(args, y, x)? { &mut b } else { &mut a };
        merged.extend(from.next());
    }
    merged.extend(a);
    merged.extend(b);
    Ok(merged)
}

/// Calls the comparator to decide whether `x` comes before `y`.
fn less(args: &mut Args<'_>, x: NodeId, y: NodeId) -> Res<bool> {
    args.evaluator.charge(1)?;
    if let Val::Atom(Atom::Text(name)) = args.value(1) {
        let (a, b) =
            (args.evaluator.atom(&Val::Node(x), args.at)?, args.evaluator.atom(&Val::Node(y), args.at)?);
        let Some(order) = a.compare(&b) else { return args.fail(format!("cannot compare {a} and {b}")) };
        return match &*name {
            ASCENDING => Ok(order.is_lt()),
            DESCENDING => Ok(order.is_gt()),
            _ => args.fail("the second argument must be a comparator"),
        };
    }
    let comparator = args.node(1);
    let pair = args.evaluator.materialize(Val::All(Rc::new(vec![comparator])));
    args.evaluator.evaluate(pair);
    let id = args.evaluator.default(pair).unwrap_or(pair);
    if !matches!(args.evaluator.shape(id).value, Value::Struct) {
        return args.fail("the second argument must be a comparator {x: _, y: _, less: …}");
    }
    let given = args.evaluator.add_node(None, crate::eval::node::Key::Anonymous);
    args.evaluator.node_mut(given).marker = Marker::None;
    let conjuncts = args.evaluator.node(pair).conjuncts.clone();
    args.evaluator.node_mut(given).conjuncts = conjuncts;
    let sides = crate::eval::value_of::pair_struct(args.evaluator, [("x", x), ("y", y)]);
    let term = Term::Node(sides);
    args.evaluator.node_mut(given).conjuncts.push(Conjunct { term, env: None, ties: Ties::default() });
    let answer = args.evaluator.lookup(given, &Label::ident("less"), args.at)?;
    match args.evaluator.atom(&Val::Node(answer), args.at)? {
        Atom::Bool(less) => Ok(less),
        other => args.fail(format!("`less` of a comparator must be a bool, not {other}")),
    }
}
