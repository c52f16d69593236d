//! Evaluated values as CUE text: types, bounds and alternatives included.

use crate::eval::Evaluator;
use crate::eval::node::{Mode, NodeId, Value};
use crate::introspect;
use crate::syntax::ast::Marker;

/// The maximum depth of the output.
const MAX_DEPTH: usize = 40;

/// Returns a value as CUE.
pub(crate) fn show(evaluator: &mut Evaluator, id: NodeId) -> String {
    let mut out = String::new();
    node(evaluator, id, 0, &mut out);
    out
}

fn node(evaluator: &mut Evaluator, id: NodeId, depth: usize, out: &mut String) {
    evaluator.evaluate(id);
    let id = evaluator.only(id);
    if depth > MAX_DEPTH || evaluator.stopped.is_some() {
        return out.push('…');
    }
    match evaluator.shape(id).value.clone() {
        Value::Bottom(bottom) => out.push_str(&format!("_|_ // {}", bottom.message.replace('\n', " "))),
        Value::Atom(_) | Value::Constraint => out.push_str(&evaluator.describe(id)),
        Value::Struct => structure(evaluator, id, depth, out),
        Value::List => list(evaluator, id, depth, out),
        Value::Disjunction => {
            let mut alternatives = evaluator.shape(id).alternatives.clone();
            alternatives.sort_by_key(|(_, mode)| *mode != Mode::Default);
            for (index, (alternative, mode)) in alternatives.into_iter().enumerate() {
                out.push_str(if index > 0 { " | " } else { "" });
                out.push_str(if mode == Mode::Default { "*" } else { "" });
                node(evaluator, alternative, depth + 1, out);
            }
        }
    }
}

fn structure(evaluator: &mut Evaluator, id: NodeId, depth: usize, out: &mut String) {
    let pad = "\t".repeat(depth + 1);
    let arms = evaluator.shape(id).arms.iter().map(|(label, arm)| (label.to_string(), arm.node));
    let arms: Vec<_> = arms.collect();
    if arms.is_empty() {
        return out.push_str("{}");
    }
    out.push_str("{\n");
    for (label, child) in arms {
        let marker = match evaluator.node(child).marker {
            Marker::None => "",
            Marker::Required => "!",
            Marker::Optional => "?",
        };
        out.push_str(&format!("{pad}{label}{marker}: "));
        node(evaluator, child, depth + 1, out);
        out.push('\n');
    }
    out.push_str(&"\t".repeat(depth));
    out.push('}');
}

fn list(evaluator: &mut Evaluator, id: NodeId, depth: usize, out: &mut String) {
    let elements = evaluator.shape(id).elements.clone();
    out.push('[');
    for (index, element) in elements.iter().enumerate() {
        out.push_str(if index > 0 { ", " } else { "" });
        node(evaluator, *element, depth + 1, out);
    }
    if evaluator.shape(id).is_open_list() {
        out.push_str(if elements.is_empty() { "..." } else { ", ..." });
        if let Some(rest) = introspect::rest(evaluator, id) {
            node(evaluator, rest, depth + 1, out);
        }
    }
    out.push(']');
}
