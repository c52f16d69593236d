//! Conflicts anywhere in a value, which decide whether an alternative is valid and whether a struct is an error.

use super::node::{Bottom, NodeId, State, Value};
use super::{Evaluator, Frame};
use crate::syntax::ast::Marker;

impl Evaluator {
    /// Returns the first conflict in a value or below it. Missing values are not conflicts.
    pub(crate) fn deep_error(&mut self, id: NodeId) -> Option<Bottom> {
        self.evaluate(id);
        if self.node(id).state == State::Expanding {
            return None;
        }
        if let Some(known) = &self.node(id).deep
            && self.node(id).dependencies.is_empty()
        {
            return known.clone();
        }
        if let Err(bottom) = self.enter(id) {
            return Some(bottom);
        }
        self.frames.push(Frame { dependencies: Vec::new() });
        let found = self.search(id);
        let frame = self.frames.pop().map(|frame| frame.dependencies).unwrap_or_default();
        self.budget.leave();
        if frame.is_empty() {
            self.node_mut(id).deep = Some(found.clone());
        }
        self.inherit(&frame);
        found
    }

    fn search(&mut self, id: NodeId) -> Option<Bottom> {
        let value = self.shape(id).value.clone();
        match value {
            Value::Bottom(bottom) if !bottom.kind.is_incomplete() => Some(bottom),
            Value::Bottom(_) | Value::Atom(_) | Value::Constraint => None,
            Value::Disjunction => {
                let only = self.only(id);
                if only == id { None } else { self.deep_error(only) }
            }
            Value::Struct | Value::List => {
                let shape = self.shape(id);
                let fields = shape.arms.values().map(|arm| arm.node);
                let fields = fields.filter(|child| self.node(*child).marker != Marker::Optional);
                let children: Vec<NodeId> = fields.chain(shape.elements.iter().copied()).collect();
                children.into_iter().find_map(|child| self.deep_error(child))
            }
        }
    }
}
