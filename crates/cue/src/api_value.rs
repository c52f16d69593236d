//! The public view of an instance's values.

use serde_json::Value as Json;

use crate::error::{Error, ErrorKind, Errors, Position};
use crate::eval::node::{Key, NodeId, Value as Shape};
use crate::export;
use crate::instance::Instance;
use crate::introspect::{self, Schema};
use crate::label::Label;
use crate::path::{Path, Step};
use crate::show;
use crate::syntax::ast::Marker;
use crate::tree::{Attribute, Tree};
use crate::value::{Atom, Kind};

/// A value of an instance. Reading it evaluates what is needed.
#[derive(Clone, Copy, Debug)]
pub struct Value<'a> {
    instance: &'a Instance,
    node: NodeId,
}

/// The presence of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// Set: `a: 1`
    Set,
    /// Required: `a!: int`
    Required,
    /// Optional: `a?: int`
    Optional,
}

impl<'a> Value<'a> {
    pub(crate) fn new(instance: &'a Instance, node: NodeId) -> Self {
        Self { instance, node }
    }

    fn at(&self, node: NodeId) -> Self {
        Self { instance: self.instance, node }
    }

    /// Returns the path from the root of the instance.
    pub fn path(&self) -> String {
        self.instance.evaluator.borrow().path(self.node)
    }

    /// Returns the value at a path below. Unset optional fields are errors of kind [`ErrorKind::Absent`].
    pub fn lookup(&self, path: &str) -> Result<Self, Errors> {
        let path = Path::parse(path)?;
        let mut node = self.node;
        for step in &path.steps {
            node = self.step(node, step)?;
        }
        Ok(self.at(node))
    }

    fn step(&self, node: NodeId, step: &Step) -> Result<NodeId, Errors> {
        let mut evaluator = self.instance.evaluator.borrow_mut();
        let nowhere = evaluator.nowhere();
        let found = match step {
            Step::Label(label) => evaluator.lookup(node, label, &nowhere),
            Step::Index(index) => evaluator.element(node, *index as i128, &nowhere),
        };
        found.map_err(|bottom| {
            let mut error = (*bottom).clone();
            error.positions.retain(|position| *position != nowhere);
            error.into()
        })
    }

    /// Returns whether a path below has a value: not absent, not an error, not merely a type.
    pub fn has(&self, path: &str) -> bool {
        let Ok(value) = self.lookup(path) else { return false };
        let mut evaluator = self.instance.evaluator.borrow_mut();
        let nowhere = evaluator.nowhere();
        evaluator.has_value(value.node, &nowhere).unwrap_or(false)
    }

    /// Returns the error if the value itself is one: a conflict, or a missing value.
    pub fn error(&self) -> Option<Error> {
        let mut evaluator = self.instance.evaluator.borrow_mut();
        evaluator.evaluate(self.node);
        if let Some(stopped) = &evaluator.stopped {
            return Some((**stopped).clone());
        }
        let node = evaluator.default(self.node).unwrap_or(self.node);
        match &evaluator.shape(node).value {
            Shape::Bottom(bottom) => Some((**bottom).clone()),
            _ => evaluator.shape(node).incomplete.as_ref().map(|bottom| (**bottom).clone()),
        }
    }

    /// Returns the types that the value can have, defaults resolved.
    pub fn kind(&self) -> Kind {
        let mut evaluator = self.instance.evaluator.borrow_mut();
        evaluator.evaluate(self.node);
        introspect::kind(&mut evaluator, self.node)
    }

    /// Returns the value as JSON, with defaults resolved. Missing values are errors.
    pub fn to_json(&self) -> Result<Json, Errors> {
        export::to_json(&mut self.instance.evaluator.borrow_mut(), self.node)
    }

    /// Returns the value with its comments, attributes and open lists, with defaults resolved.
    pub fn to_tree(&self) -> Result<Tree, Errors> {
        export::to_tree(&mut self.instance.evaluator.borrow_mut(), self.node)
    }

    /// Returns the value as CUE text, with types and alternatives where it is not concrete.
    pub fn to_cue(&self) -> String {
        show::show(&mut self.instance.evaluator.borrow_mut(), self.node)
    }

    /// Checks the value and everything in it for conflicts. Missing values are not errors.
    pub fn validate(&self) -> Result<(), Errors> {
        export::validate(&mut self.instance.evaluator.borrow_mut(), self.node)
    }

    /// Returns the string, if the value is one.
    pub fn as_text(&self) -> Option<String> {
        match self.atom()? {
            Atom::Text(text) => Some(text.to_string()),
            _ => None,
        }
    }

    /// Returns the bool, if the value is one.
    pub fn as_bool(&self) -> Option<bool> {
        match self.atom()? {
            Atom::Bool(value) => Some(value),
            _ => None,
        }
    }

    fn atom(&self) -> Option<Atom> {
        let mut evaluator = self.instance.evaluator.borrow_mut();
        let nowhere = evaluator.nowhere();
        evaluator.atom(&crate::eval::value_of::Val::Node(self.node), &nowhere).ok()
    }

    /// Returns the fields of a struct: name, presence and value, in source order. Definitions and hidden fields are
    /// omitted. An incomplete struct has its known fields; see [`Value::error`].
    pub fn fields(&self) -> Vec<(String, Presence, Self)> {
        self.all_fields()
            .into_iter()
            .filter(|(label, ..)| label.is_regular())
            .map(|(label, presence, value)| (label.name.to_string(), presence, value))
            .collect()
    }

    /// Returns whether a struct has a regular field of this name, set or not.
    pub fn declares(&self, name: &str) -> bool {
        let mut evaluator = self.instance.evaluator.borrow_mut();
        evaluator.evaluate(self.node);
        let node = evaluator.default(self.node).unwrap_or(self.node);
        evaluator.shape(node).arms.contains_key(&Label::regular(name))
    }

    fn all_fields(&self) -> Vec<(Label, Presence, Self)> {
        let mut evaluator = self.instance.evaluator.borrow_mut();
        evaluator.evaluate(self.node);
        let node = evaluator.default(self.node).unwrap_or(self.node);
        let arms = evaluator.shape(node).arms.iter();
        let fields = arms.map(|(label, arm)| {
            let presence = match evaluator.node(arm.node).marker {
                Marker::None => Presence::Set,
                Marker::Required => Presence::Required,
                Marker::Optional => Presence::Optional,
            };
            (label.clone(), presence, self.at(arm.node))
        });
        fields.collect()
    }

    /// Returns the definitions of a struct, such as `#Apply`.
    pub fn definitions(&self) -> Vec<(String, Self)> {
        let fields = self.all_fields().into_iter().filter(|(label, ..)| label.is_definition());
        fields.map(|(label, _, value)| (label.name.to_string(), value)).collect()
    }

    /// Returns the elements of a list.
    pub fn elements(&self) -> Vec<Self> {
        let mut evaluator = self.instance.evaluator.borrow_mut();
        evaluator.evaluate(self.node);
        let node = evaluator.default(self.node).unwrap_or(self.node);
        evaluator.shape(node).elements.iter().map(|element| self.at(*element)).collect()
    }

    /// Returns the comments of the field's declarations, line by line, without slashes and surrounding blanks.
    pub fn comments(&self) -> Vec<String> {
        export::comments(&self.instance.evaluator.borrow(), self.node)
    }

    /// Returns the attributes of the field's declarations.
    pub fn attributes(&self) -> Vec<Attribute> {
        let mut evaluator = self.instance.evaluator.borrow_mut();
        evaluator.evaluate(self.node);
        export::attributes(&evaluator, self.node)
    }

    /// Returns the position of the value's first declaration.
    pub fn position(&self) -> Option<Position> {
        let evaluator = self.instance.evaluator.borrow();
        let conjuncts = &evaluator.node(self.node).conjuncts;
        conjuncts.iter().find_map(|conjunct| evaluator.place(conjunct))
    }

    /// Describes the value as a schema: types, defaults, alternatives, fields. Nothing has to be concrete.
    pub fn schema(&self) -> Result<Schema, Errors> {
        let mut evaluator = self.instance.evaluator.borrow_mut();
        let schema = introspect::schema(&mut evaluator, self.node);
        match &evaluator.stopped {
            Some(stopped) => Err((**stopped).clone().into()),
            None => Ok(schema),
        }
    }

    /// Returns the name of the field, if the value is one.
    pub fn name(&self) -> Option<String> {
        match &self.instance.evaluator.borrow().node(self.node).key {
            Key::Label(label) => Some(label.name.to_string()),
            _ => None,
        }
    }

    /// Returns whether the value is absent: it does not exist, or is optional and unset.
    pub fn is_absent(&self) -> bool {
        self.error().is_some_and(|error| error.kind == ErrorKind::Absent)
    }
}
