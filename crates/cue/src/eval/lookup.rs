//! Reading nodes: fields, elements, concrete values, and their descriptions.

use std::rc::Rc;

use super::node::{Bottom, NodeId, State, Term, Value};
use super::{Evaluator, Res};
use crate::error::{ErrorKind, Position};
use crate::label::Label;
use crate::syntax::ast::Marker;
use crate::value::Kind;

impl Evaluator {
    /// Returns the node that currently represents one that may be in progress: the alternative being tried, the
    /// default, or itself.
    fn standing(&mut self, id: NodeId, at: &Position) -> Res<NodeId> {
        let mut id = id;
        loop {
            self.evaluate(id);
            if let Some(stopped) = &self.stopped {
                return Err(stopped.clone());
            }
            if self.node(id).state == State::Done {
                return self.default(id).ok_or_else(|| self.ambiguous(id, at));
            }
            match self.node(id).forward {
                Some(forward) if forward != id => {
                    self.node_mut(id).was_read = true;
                    self.depend(id, id);
                    id = forward;
                }
                _ => return Ok(id),
            }
        }
    }

    /// Returns a field.
    pub(crate) fn lookup(&mut self, id: NodeId, label: &Label, at: &Position) -> Res<NodeId> {
        self.charge(1)?;
        let base = self.standing(id, at)?;
        let found = self.shape(base).arms.get(label).map(|arm| arm.node);
        let in_progress = self.node(base).state == State::Expanding;
        if let Some(child) = found {
            if in_progress {
                self.depend(base, child);
            }
            return if self.node(child).marker == Marker::None {
                Ok(child)
            } else {
                Err(self.optional(child, at))
            };
        }
        if in_progress {
            self.missing += 1;
            self.missed.push((base, label.clone()));
            self.depend(base, base);
        } else if let Value::Bottom(bottom) = &self.shape(base).value {
            return Err(bottom.clone());
        }
        Err(self.undefined(base, label, at, in_progress))
    }

    fn optional(&self, child: NodeId, at: &Position) -> Bottom {
        let (message, hint) = match self.node(child).marker {
            Marker::Required => ("the required field is not set", "set it"),
            _ => ("the field is optional and not set", "test it with `!= _|_` first"),
        };
        self.error(child, ErrorKind::Absent, message).at(at).hint(hint).into()
    }

    fn undefined(&mut self, base: NodeId, label: &Label, at: &Position, in_progress: bool) -> Bottom {
        let shape = self.shape(base);
        let is_struct = matches!(shape.value, Value::Struct) || shape.has_struct || in_progress;
        let could_be = shape.kind.contains(Kind::STRUCT);
        if !is_struct && !could_be {
            let message = format!("{} has no fields, so not `{label}`", self.describe(base));
            return self.error(base, ErrorKind::Conflict, message).at(at).into();
        }
        if !is_struct {
            let message = format!("`{label}` is not known: {} is not concrete", self.describe(base));
            return self.error(base, ErrorKind::Incomplete, message).at(at).into();
        }
        let incomplete = shape.incomplete.clone();
        if let Some(incomplete) = incomplete {
            return incomplete;
        }
        let kind = match !in_progress && self.refuses(base, label) {
            true => ErrorKind::Conflict,
            false => ErrorKind::Absent,
        };
        let error = self.error(base, kind, format!("undefined field `{label}`")).at(at);
        match self.similar(base, label) {
            Some(similar) => error.hint(format!("did you mean `{similar}`?")).into(),
            None => error.into(),
        }
    }

    /// Returns a field whose name differs by case or by one letter.
    fn similar(&self, base: NodeId, label: &Label) -> Option<String> {
        let names = self.shape(base).arms.keys().map(|known| known.to_string());
        crate::similar::closest(&label.to_string(), names)
    }

    /// Returns an element of a list.
    pub(crate) fn element(&mut self, id: NodeId, index: i128, at: &Position) -> Res<NodeId> {
        let id = self.concrete(id, at)?;
        if !matches!(self.shape(id).value, Value::List) {
            let message = format!("{} cannot be indexed with {index}", self.describe(id));
            return Err(self.error(id, ErrorKind::Conflict, message).at(at).into());
        }
        if index < 0 {
            let message = format!("invalid index {index}: an index must not be negative");
            return Err(self.error(id, ErrorKind::Conflict, message).at(at).into());
        }
        let shape = self.shape(id);
        if let Some(element) = usize::try_from(index).ok().and_then(|index| shape.elements.get(index)) {
            return Ok(*element);
        }
        let kind = if shape.is_open_list() { ErrorKind::Incomplete } else { ErrorKind::Conflict };
        let message =
            format!("index {index} is out of range: the list has {} elements", shape.elements.len());
        Err(self.error(id, kind, message).at(at).into())
    }

    /// Returns the node of a struct, list or atom, defaults resolved. Anything else is an error.
    pub(crate) fn concrete(&mut self, id: NodeId, at: &Position) -> Res<NodeId> {
        let id = self.standing(id, at)?;
        if self.node(id).state == State::Expanding {
            return self.in_progress(id, at);
        }
        match &self.shape(id).value {
            Value::Bottom(bottom) => Err(bottom.clone()),
            Value::Constraint => Err(self.not_concrete(id, at)),
            Value::Disjunction => Err(self.ambiguous(id, at)),
            Value::Atom(_) | Value::Struct | Value::List => Ok(id),
        }
    }

    /// Reads a node that is being evaluated: its atom is known if it has one.
    fn in_progress(&mut self, id: NodeId, at: &Position) -> Res<NodeId> {
        self.node_mut(id).was_read = true;
        self.depend(id, id);
        if let Some((atom, _)) = self.shape(id).atom.clone() {
            let node = self.term(Term::Atom(atom, at.clone()));
            self.evaluate(node);
            return Ok(node);
        }
        self.missing += 1;
        let error = self.error(id, ErrorKind::Cycle, "cycle: the value depends on itself").at(at);
        Err(error.hint("give one of the values that depend on each other").into())
    }

    /// Returns whether a node has a value. A mere type has none yet.
    pub(crate) fn has_value(&mut self, id: NodeId, at: &Position) -> Res<bool> {
        let standing = match self.standing(id, at) {
            Ok(standing) => standing,
            Err(bottom) => return unless_decisive(bottom),
        };
        if self.node(standing).state == State::Expanding {
            let shape = self.shape(standing);
            if shape.has_struct || !shape.lists.is_empty() {
                self.node_mut(standing).was_read = true;
                self.depend(standing, standing);
                return Ok(true);
            }
            return self.in_progress(standing, at).map(|_| true);
        }
        match &self.shape(standing).value {
            Value::Bottom(bottom) => unless_decisive(bottom.clone()),
            Value::Constraint | Value::Disjunction => Ok(false),
            Value::Atom(_) => Ok(true),
            Value::Struct | Value::List => {
                if self.shape(standing).incomplete.is_some() {
                    return Ok(false);
                }
                match self.deep_error(standing) {
                    Some(bottom) => unless_decisive(bottom),
                    None => Ok(true),
                }
            }
        }
    }

    fn ambiguous(&self, id: NodeId, at: &Position) -> Bottom {
        let message = format!("ambiguous: {}", self.describe(id));
        let error = self.error(id, ErrorKind::Incomplete, message).at(at);
        error.hint("choose one of the alternatives, or mark one as default with `*`").into()
    }

    /// Describes a value for a message.
    pub(crate) fn describe(&self, id: NodeId) -> String {
        let node = self.node(id);
        let Some(shape) = node.shape.as_deref().filter(|_| node.state == State::Done) else {
            return "a value that is not known yet".to_owned();
        };
        match &shape.value {
            Value::Bottom(bottom) => bottom.message.clone(),
            Value::Atom(atom) => atom.to_string(),
            Value::Struct => "a struct".to_owned(),
            Value::List => "a list".to_owned(),
            Value::Constraint => {
                let mut parts = Vec::new();
                let implied = shape.bounds.iter().map(|(bound, _)| bound.kind()).fold(Kind::ANY, Kind::and);
                if shape.kind != implied || shape.bounds.is_empty() {
                    parts.push(shape.kind.to_string());
                }
                parts.extend(shape.bounds.iter().map(|(bound, _)| bound.to_string()));
                parts.extend(shape.validators.iter().map(|validator| validator.to_string()));
                parts.join(" & ")
            }
            Value::Disjunction => {
                let shown =
                    shape.alternatives.iter().take(8).map(|(alternative, _)| self.describe(*alternative));
                let more = if shape.alternatives.len() > 8 { " | …" } else { "" };
                shown.collect::<Vec<_>>().join(" | ") + more
            }
        }
    }
}

/// An error means that there is no value, unless the value is part of a cycle or a limit was reached.
fn unless_decisive(bottom: Rc<crate::error::Error>) -> Res<bool> {
    match bottom.kind {
        ErrorKind::Cycle | ErrorKind::Limit => Err(bottom),
        _ => Ok(false),
    }
}
