//! Settling: decides the kind of value of a node once all conjuncts have been expanded.

use std::rc::Rc;

use super::node::{Bottom, NodeId, Value};
use super::{Evaluator, Res};
use crate::error::ErrorKind;
use crate::value::{Atom, Kind};

impl Evaluator {
    /// Decides the value of a node from its shape.
    pub(super) fn settle(&mut self, id: NodeId) {
        let value = match self.decide(id) {
            Ok(value) => value,
            Err(bottom) => {
                let bottom = self.located(id, bottom);
                self.shape_mut(id).error = Some(bottom.clone());
                Value::Bottom(bottom)
            }
        };
        if let Some(incomplete) = self.shape_mut(id).incomplete.take() {
            let incomplete = self.located(id, incomplete);
            self.shape_mut(id).incomplete = Some(incomplete);
        }
        let shape = self.shape_mut(id);
        shape.value = value;
        shape.queue = Vec::new();
        shape.tasks = Vec::new();
        shape.included = Vec::new();
    }

    fn decide(&mut self, id: NodeId) -> Res<Value> {
        if let Some(error) = self.shape(id).error.clone() {
            return Err(error);
        }
        self.check_assumptions(id)?;
        let shape = self.shape(id);
        if shape.is_cyclic && !shape.is_live {
            return Err(self.infinite(id));
        }
        if !shape.lists.is_empty() {
            self.join_lists(id)?;
            self.check_parts(id)?;
            return Ok(Value::List);
        }
        if shape.has_struct {
            self.check_closed(id);
            self.check_parts(id)?;
            return Ok(Value::Struct);
        }
        if let Some((atom, _)) = shape.atom.clone() {
            self.check_bounds(id, &atom)?;
            self.check_validators(id, &atom)?;
            return Ok(Value::Atom(atom));
        }
        self.decide_type(id)
    }

    /// Decides the value of a node without a concrete value.
    fn decide_type(&mut self, id: NodeId) -> Res<Value> {
        let shape = self.shape(id);
        if let Some(incomplete) = shape.incomplete.clone() {
            return Err(incomplete);
        }
        let unconstrained = shape.kind == Kind::ANY && shape.bounds.is_empty() && shape.validators.is_empty();
        if shape.has_braces && (unconstrained || !shape.arms.is_empty() && shape.kind.contains(Kind::STRUCT))
        {
            self.check_closed(id);
            return Ok(Value::Struct);
        }
        self.simplify_bounds(id);
        if let Some(atom) = self.check_range(id)? {
            self.check_bounds(id, &atom)?;
            return Ok(Value::Atom(atom));
        }
        Ok(Value::Constraint)
    }

    fn infinite(&self, id: NodeId) -> Bottom {
        let mut error =
            self.error(id, ErrorKind::StructuralCycle, "structural cycle: the value contains itself");
        for conjunct in &self.node(id).conjuncts {
            if let Some(position) = self.place(conjunct) {
                error = error.at(&position);
            }
        }
        Rc::new(error.hint("make the field optional, or add `null |` before the reference"))
    }

    /// Adds the path to an error without one, and the position of the first conjunct.
    fn located(&self, id: NodeId, bottom: Bottom) -> Bottom {
        let path = self.path(id);
        let is_own = bottom.path.is_empty() || bottom.path == path;
        if !is_own && (!bottom.kind.is_incomplete() || path.is_empty()) {
            return bottom;
        }
        let mut error = (*bottom).clone();
        if !is_own && !error.relayed {
            error.message = format!("{}: {}", error.path, error.message);
            error.relayed = true;
        }
        error.path = path;
        if error.positions.is_empty()
            && let Some(position) = self.node(id).conjuncts.iter().find_map(|conjunct| self.place(conjunct))
        {
            error = error.at(&position);
        }
        Rc::new(error)
    }

    /// Runs the validators of a struct or list that has no missing parts.
    fn check_parts(&mut self, id: NodeId) -> Res<()> {
        for validator in self.shape(id).validators.clone() {
            let checked = self.validate_parts(id, &validator);
            match checked {
                Err(bottom) if bottom.kind.is_incomplete() => {
                    self.shape_mut(id).incomplete.get_or_insert(bottom);
                }
                other => other?,
            }
        }
        Ok(())
    }

    pub(super) fn check_validators(&mut self, id: NodeId, atom: &Atom) -> Res<()> {
        for validator in self.shape(id).validators.clone() {
            self.validate_atom(id, &validator, atom)?;
        }
        Ok(())
    }
}
