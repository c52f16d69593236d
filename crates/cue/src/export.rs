//! Export: evaluated values as JSON and as trees, with all errors.

use serde_json::Value as Json;

use crate::data::atom_to_json;
use crate::error::{Error, ErrorKind, Errors};
use crate::eval::Evaluator;
use crate::eval::node::{Bottom, NodeId, Value};
use crate::introspect;
use crate::syntax::ast::Marker;
use crate::tree::{Attribute, Tree, TreeValue};

/// Returns a value as JSON.
pub(crate) fn to_json(evaluator: &mut Evaluator, id: NodeId) -> Result<Json, Errors> {
    to_tree(evaluator, id).map(|tree| tree.to_json())
}

/// Returns a value as a tree.
pub(crate) fn to_tree(evaluator: &mut Evaluator, id: NodeId) -> Result<Tree, Errors> {
    let mut exporter = Exporter { evaluator, errors: Vec::new() };
    let tree = exporter.node(id, 0);
    exporter.finish()?;
    Ok(tree.unwrap_or(Tree {
        value: TreeValue::Scalar(Json::Null),
        comments: Vec::new(),
        attributes: Vec::new(),
    }))
}

/// Looks for conflicts everywhere in a value.
pub(crate) fn validate(evaluator: &mut Evaluator, id: NodeId) -> Result<(), Errors> {
    let mut exporter = Exporter { evaluator, errors: Vec::new() };
    exporter.check(id, 0);
    exporter.finish()
}

struct Exporter<'a> {
    evaluator: &'a mut Evaluator,
    errors: Vec<Error>,
}

/// The maximum depth of an exported value. Recursive structures are detected long before.
const MAX_DEPTH: usize = 100;

impl Exporter<'_> {
    fn finish(self) -> Result<(), Errors> {
        if let Some(stopped) = &self.evaluator.stopped {
            return Err((**stopped).clone().into());
        }
        Errors::new(self.errors).map_or(Ok(()), Err)
    }

    fn fail(&mut self, bottom: &Bottom) {
        self.push((**bottom).clone());
    }

    fn push(&mut self, error: Error) {
        if self.errors.len() < Errors::MAX && !self.errors.contains(&error) {
            self.errors.push(error);
        }
    }

    fn is_full(&self) -> bool {
        self.errors.len() >= Errors::MAX || self.evaluator.stopped.is_some()
    }

    fn too_deep(&mut self, id: NodeId, depth: usize) -> bool {
        if depth <= MAX_DEPTH {
            return false;
        }
        let error = self.evaluator.error(id, ErrorKind::Limit, format!("nested more than {MAX_DEPTH} deep"));
        self.push(error);
        true
    }

    /// Returns a concrete value. Records an error where there is none.
    fn node(&mut self, id: NodeId, depth: usize) -> Option<Tree> {
        self.evaluator.evaluate(id);
        if self.is_full() || self.too_deep(id, depth) {
            return None;
        }
        let Some(chosen) = self.evaluator.default(id) else {
            let error = self.ambiguous(id);
            self.push(error);
            return None;
        };
        if let Some(incomplete) = self.evaluator.shape(chosen).incomplete.clone() {
            self.fail(&incomplete);
            return None;
        }
        let value = match self.evaluator.shape(chosen).value.clone() {
            Value::Bottom(bottom) => {
                self.fail(&bottom);
                return None;
            }
            Value::Atom(atom) => match atom_to_json(&atom) {
                Ok(json) => TreeValue::Scalar(json),
                Err(mut error) => {
                    error.path = self.evaluator.path(id);
                    self.push(error);
                    return None;
                }
            },
            Value::Constraint | Value::Disjunction => {
                let error = self.incomplete(id, chosen);
                self.push(error);
                return None;
            }
            Value::List => self.list(chosen, depth),
            Value::Struct => self.fields(chosen, depth),
        };
        let comments = comments(self.evaluator, id);
        let attributes = attributes(self.evaluator, id);
        Some(Tree { value, comments, attributes })
    }

    fn list(&mut self, id: NodeId, depth: usize) -> TreeValue {
        let elements = self.evaluator.shape(id).elements.clone();
        let items = elements.into_iter().filter_map(|element| self.node(element, depth + 1)).collect();
        let open = self.evaluator.shape(id).is_open_list();
        let rest = if open { introspect::rest(self.evaluator, id) } else { None };
        let rest = rest.and_then(|rest| self.partial(rest, depth + 1)).map(Box::new);
        TreeValue::List { items, open, rest }
    }

    fn fields(&mut self, id: NodeId, depth: usize) -> TreeValue {
        let arms = self.evaluator.shape(id).arms.iter().map(|(label, arm)| (label.clone(), arm.node));
        let arms: Vec<_> = arms.collect();
        let mut fields = Vec::new();
        for (label, node) in arms {
            match self.evaluator.node(node).marker {
                Marker::Optional => {}
                Marker::Required if label.is_regular() => {
                    let bottom = self.evaluator.not_set(node);
                    self.fail(&bottom);
                }
                _ if !label.is_regular() => {
                    // Never exported and may be incomplete, but must not conflict.
                    if !label.is_definition()
                        && let Some(bottom) = self.evaluator.deep_error(node)
                    {
                        self.fail(&bottom);
                    }
                }
                _ => fields.extend(self.node(node, depth + 1).map(|tree| (label.name.to_string(), tree))),
            }
        }
        TreeValue::Struct(fields)
    }

    /// Returns the concrete part of a value.
    fn partial(&mut self, id: NodeId, depth: usize) -> Option<Tree> {
        let outer = std::mem::take(&mut self.errors);
        let tree = self.node(id, depth);
        self.errors = outer;
        tree
    }

    fn ambiguous(&mut self, id: NodeId) -> Error {
        let message = format!("incomplete value: {}", self.evaluator.describe(id));
        let error = self.evaluator.error(id, ErrorKind::Incomplete, message);
        self.placed(error, id).hint("choose one of the alternatives, or mark one as default with `*`")
    }

    fn incomplete(&mut self, id: NodeId, chosen: NodeId) -> Error {
        let message = format!("incomplete value {}", self.evaluator.describe(chosen));
        let mut error = self.evaluator.error(id, ErrorKind::Incomplete, message);
        if let Some(position) = &self.evaluator.shape(chosen).kind_at {
            error = error.at(position);
        }
        self.placed(error, id).hint("give it a concrete value or a default")
    }

    fn placed(&self, mut error: Error, id: NodeId) -> Error {
        for conjunct in &self.evaluator.node(id).conjuncts {
            if let Some(position) = self.evaluator.place(conjunct) {
                error = error.at(&position);
            }
        }
        error
    }

    /// Looks for conflicts, except in optional fields.
    fn check(&mut self, id: NodeId, depth: usize) {
        self.evaluator.evaluate(id);
        if self.is_full() || self.too_deep(id, depth) {
            return;
        }
        let id = self.evaluator.only(id);
        match self.evaluator.shape(id).value.clone() {
            Value::Bottom(bottom) if !bottom.kind.is_incomplete() => self.fail(&bottom),
            Value::List | Value::Struct => {
                let shape = self.evaluator.shape(id);
                let fields = shape.arms.values().map(|arm| arm.node);
                let fields = fields.filter(|node| self.evaluator.node(*node).marker != Marker::Optional);
                let children: Vec<NodeId> = fields.chain(shape.elements.iter().copied()).collect();
                for child in children {
                    self.check(child, depth + 1);
                }
            }
            _ => {}
        }
    }
}

/// Returns the comment lines of a field's declarations.
pub(crate) fn comments(evaluator: &Evaluator, id: NodeId) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for meta in &evaluator.node(id).meta {
        for comment in &meta.comments {
            let line = comment.trim().to_owned();
            if !lines.contains(&line) {
                lines.push(line);
            }
        }
    }
    lines
}

/// Returns the attributes of a field's declarations, and those declared inside its struct.
pub(crate) fn attributes(evaluator: &Evaluator, id: NodeId) -> Vec<Attribute> {
    let node = evaluator.node(id);
    let inside = node.shape.iter().flat_map(|shape| &shape.meta);
    let mut attributes: Vec<Attribute> = Vec::new();
    for (name, body) in node.meta.iter().chain(inside).flat_map(|meta| &meta.attributes) {
        let attribute = Attribute { name: name.clone(), body: body.clone() };
        if !attributes.contains(&attribute) {
            attributes.push(attribute);
        }
    }
    attributes
}
