//! Equality: of values when alternatives are merged, and of concrete values for `==`.

use super::node::{NodeId, State, Value};
use super::{Evaluator, Res};
use crate::error::{ErrorKind, Position};
use crate::syntax::ast::Marker;

impl Evaluator {
    /// Returns whether two nodes are the same value, types and bounds included.
    pub(super) fn is_same(&mut self, a: NodeId, b: NodeId) -> bool {
        if a == b {
            return true;
        }
        self.evaluate(a);
        self.evaluate(b);
        let done = |evaluator: &Self, id| evaluator.node(id).state == State::Done;
        if !done(self, a) || !done(self, b) || self.enter(a).is_err() {
            return false;
        }
        let same = self.same_shape(a, b);
        self.budget.leave();
        same
    }

    fn same_shape(&mut self, a: NodeId, b: NodeId) -> bool {
        let (a, b) = (self.only(a), self.only(b));
        match (&self.shape(a).value, &self.shape(b).value) {
            (Value::Atom(a), Value::Atom(b)) => a.same(b),
            (Value::Constraint, Value::Constraint) => self.same_constraint(a, b),
            (Value::List, Value::List) => {
                let (x, y) = (self.shape(a), self.shape(b));
                if x.is_open_list() || y.is_open_list() || x.elements.len() != y.elements.len() {
                    return false;
                }
                let pairs: Vec<_> = x.elements.iter().copied().zip(y.elements.iter().copied()).collect();
                pairs.into_iter().all(|(x, y)| self.is_same(x, y))
            }
            (Value::Struct, Value::Struct) => self.same_struct(a, b),
            (Value::Disjunction, Value::Disjunction) => {
                let (x, y) = (self.shape(a).alternatives.clone(), self.shape(b).alternatives.clone());
                x.len() == y.len() && x.iter().zip(&y).all(|((x, m), (y, n))| m == n && self.is_same(*x, *y))
            }
            _ => false,
        }
    }

    fn same_constraint(&self, a: NodeId, b: NodeId) -> bool {
        let (a, b) = (self.shape(a), self.shape(b));
        let within = |x: &[(crate::value::Bound, Position)], y: &[(crate::value::Bound, Position)]| {
            x.iter().all(|(bound, _)| y.iter().any(|(other, _)| other == bound))
        };
        a.kind == b.kind
            && a.validators.is_empty()
            && b.validators.is_empty()
            && within(&a.bounds, &b.bounds)
            && within(&b.bounds, &a.bounds)
    }

    fn same_struct(&mut self, a: NodeId, b: NodeId) -> bool {
        let (x, y) = (self.shape(a), self.shape(b));
        let plain = x.patterns.is_empty() && y.patterns.is_empty() && x.arms.len() == y.arms.len();
        if !plain
            || x.incomplete.is_some()
            || y.incomplete.is_some()
            || self.is_closed(a) != self.is_closed(b)
        {
            return false;
        }
        let mut pairs = Vec::new();
        for (label, arm) in &x.arms {
            let Some(other) = y.arms.get(label) else { return false };
            if self.node(arm.node).marker != self.node(other.node).marker {
                return false;
            }
            pairs.push((arm.node, other.node));
        }
        pairs.into_iter().all(|(x, y)| self.is_same(x, y))
    }

    /// Compares two concrete values, defaults resolved. 1 and 1.0 are equal.
    pub(super) fn is_equal(&mut self, a: NodeId, b: NodeId, at: &Position) -> Res<bool> {
        let (a, b) = (self.concrete(a, at)?, self.concrete(b, at)?);
        self.enter(a)?;
        let equal = self.equal_parts(a, b, at);
        self.budget.leave();
        equal
    }

    fn equal_parts(&mut self, a: NodeId, b: NodeId, at: &Position) -> Res<bool> {
        match (&self.shape(a).value, &self.shape(b).value) {
            (Value::Atom(x), Value::Atom(y)) => Ok(x == y),
            (Value::List, Value::List) => {
                let (x, y) = (self.shape(a).elements.clone(), self.shape(b).elements.clone());
                if x.len() != y.len() {
                    return Ok(false);
                }
                for (x, y) in x.into_iter().zip(y) {
                    if !self.is_equal(x, y, at)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            (Value::Struct, Value::Struct) => self.equal_structs(a, b, at),
            _ => Ok(false),
        }
    }

    fn equal_structs(&mut self, a: NodeId, b: NodeId, at: &Position) -> Res<bool> {
        let fields = |evaluator: &Self, id: NodeId| -> Vec<_> {
            let arms = evaluator.shape(id).arms.iter();
            arms.filter(|(label, arm)| label.is_regular() && evaluator.node(arm.node).marker == Marker::None)
                .map(|(label, arm)| (label.clone(), arm.node))
                .collect()
        };
        for id in [a, b] {
            let arms = self.shape(id).arms.values();
            if let Some(arm) = arms.into_iter().find(|arm| self.node(arm.node).marker == Marker::Required) {
                return Err(self.not_set(arm.node));
            }
        }
        let (x, y) = (fields(self, a), fields(self, b));
        if x.len() != y.len() {
            return Ok(false);
        }
        for (label, node) in x {
            let Some((_, other)) = y.iter().find(|(known, _)| *known == label) else { return Ok(false) };
            if !self.is_equal(node, *other, at)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    pub(super) fn not_concrete(&self, id: NodeId, at: &Position) -> super::node::Bottom {
        let error = self.error(id, ErrorKind::Incomplete, format!("not concrete: {}", self.describe(id)));
        error.at(at).into()
    }
}
