//! Unification of atoms, types and bounds.

use std::borrow::Cow;
use std::rc::Rc;

use super::node::{NodeId, Value};
use super::{Evaluator, Res};
use crate::error::{Error, ErrorKind, Position};
use crate::value::{Atom, Bound, BoundOp, Kind};

impl Evaluator {
    /// Unifies a node with an atom.
    pub(super) fn meet_atom(&mut self, id: NodeId, atom: Atom, at: Option<Position>) -> Res<()> {
        let known = self.shape(id).atom.clone();
        if let Some((known, known_at)) = known {
            if known.same(&atom) {
                return Ok(());
            }
            let message = format!("conflicting values {known} and {atom}");
            return Err(self.contradict(id, message, [known_at, at]));
        }
        let kind = atom.kind();
        if self.shape(id).kind.and(kind).is_none() {
            let message = format!("conflicting values {} and {atom}", self.describe_kind(id));
            let known_at = self.shape(id).kind_at.clone();
            let hint = format!("expected {}, got {}", self.shape(id).kind, kind);
            return Err(self.contradict_with(id, message, hint, [known_at, at]));
        }
        let shape = self.shape_mut(id);
        shape.kind = kind;
        shape.atom = Some((atom, at));
        Ok(())
    }

    /// Unifies a node with a type.
    pub(super) fn meet_kind(&mut self, id: NodeId, kind: Kind, at: Option<&Position>) -> Res<()> {
        let shape = self.shape(id);
        let both = shape.kind.and(kind);
        if both.is_none() {
            let known = match &shape.atom {
                Some((atom, _)) => atom.to_string(),
                None => self.describe_kind(id),
            };
            let known_at =
                shape.atom.as_ref().and_then(|(_, at)| at.clone()).or_else(|| shape.kind_at.clone());
            let hint = format!("expected {kind}, got {}", shape.kind);
            let message = format!("conflicting values {known} and {kind}");
            return Err(self.contradict_with(id, message, hint, [known_at, at.cloned()]));
        }
        let shape = self.shape_mut(id);
        if both != shape.kind {
            shape.kind = both;
            shape.kind_at = at.cloned();
        }
        Ok(())
    }

    fn describe_kind(&self, id: NodeId) -> String {
        self.shape(id).kind.to_string()
    }

    /// Unifies a node with a bound.
    pub(super) fn meet_bound(&mut self, id: NodeId, bound: Bound, at: &Position) -> Res<()> {
        let comparable = match bound.op {
            BoundOp::NotEqual => true,
            BoundOp::Match | BoundOp::NotMatch => matches!(bound.value, Atom::Text(_) | Atom::Bytes(_)),
            _ => matches!(bound.value, Atom::Number(_) | Atom::Text(_) | Atom::Bytes(_)),
        };
        if !comparable {
            let error =
                self.error(id, ErrorKind::Conflict, format!("{} cannot be used as a bound", bound.value));
            return Err(Rc::new(error.at(at)));
        }
        self.meet_kind(id, bound.kind(), Some(at))?;
        let bounds = &mut self.shape_mut(id).bounds;
        if !bounds.iter().any(|(known, _)| *known == bound) {
            bounds.push((bound, at.clone()));
        }
        Ok(())
    }

    pub(super) fn contradict(&self, id: NodeId, message: String, at: [Option<Position>; 2]) -> Rc<Error> {
        let mut error = self.error(id, ErrorKind::Conflict, message);
        for position in at.into_iter().flatten() {
            error = error.at(&position);
        }
        Rc::new(error)
    }

    fn contradict_with(
        &self,
        id: NodeId,
        message: String,
        hint: String,
        at: [Option<Position>; 2],
    ) -> Rc<Error> {
        let error = self.contradict(id, message, at);
        Rc::new((*error).clone().hint(hint))
    }

    /// Checks an atom against the type, bounds and validators of an evaluated node.
    pub(super) fn admits(&mut self, id: NodeId, atom: &Atom) -> Res<()> {
        match self.shape(id).value.clone() {
            Value::Bottom(bottom) => return Err(bottom),
            Value::Atom(own) if own.same(atom) => return Ok(()),
            Value::Atom(own) => {
                return Err(self.contradict(
                    id,
                    format!("conflicting values {own} and {atom}"),
                    [None, None],
                ));
            }
            _ => {}
        }
        if !self.shape(id).kind.contains(atom.kind()) {
            return Err(self.contradict(
                id,
                format!("conflicting values {} and {atom}", self.shape(id).kind),
                [None, None],
            ));
        }
        self.check_bounds(id, atom)?;
        self.check_validators(id, atom)
    }

    pub(super) fn check_bounds(&mut self, id: NodeId, atom: &Atom) -> Res<()> {
        for (bound, at) in self.shape(id).bounds.clone() {
            self.charge(1)?;
            if !self
                .within(&bound, atom)
                .map_err(|message| Rc::new(self.error(id, ErrorKind::Conflict, message).at(&at)))?
            {
                let message = format!("invalid value {atom}: out of bound {bound}");
                let value_at = self.shape(id).atom.as_ref().and_then(|(_, at)| at.clone());
                return Err(self.contradict(id, message, [Some(at), value_at]));
            }
        }
        Ok(())
    }

    fn within(&mut self, bound: &Bound, atom: &Atom) -> Result<bool, String> {
        match bound.op {
            BoundOp::NotEqual => Ok(bound.value != *atom),
            BoundOp::Match => self.is_match(&bound.value, atom),
            BoundOp::NotMatch => self.is_match(&bound.value, atom).map(|matches| !matches),
            op => Ok(atom.compare(&bound.value).is_some_and(|order| op.accepts(order))),
        }
    }

    /// Returns whether a value matches a regular expression.
    pub(super) fn is_match(&mut self, pattern: &Atom, atom: &Atom) -> Result<bool, String> {
        let pattern = match pattern {
            Atom::Text(text) => text.to_string(),
            Atom::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            other => return Err(format!("a regular expression must be a string, not {other}")),
        };
        let text = match atom {
            Atom::Text(text) => Cow::Borrowed(&**text),
            Atom::Bytes(bytes) => String::from_utf8_lossy(bytes),
            other => return Err(format!("only strings match regular expressions, not {other}")),
        };
        let regex = self.pattern(&pattern, text.len()).map_err(|limit| limit.message.clone())??;
        Ok(regex.is_match(&text))
    }

    /// Drops bounds that are implied by others.
    pub(super) fn simplify_bounds(&mut self, id: NodeId) {
        let bounds = std::mem::take(&mut self.shape_mut(id).bounds);
        let follows = |index: usize| {
            let bound = &bounds[index].0;
            bounds.iter().enumerate().any(|(other, (stricter, _))| other != index && implies(stricter, bound))
        };
        let kept =
            (0..bounds.len()).filter(|index| !follows(*index)).map(|index| bounds[index].clone()).collect();
        self.shape_mut(id).bounds = kept;
    }

    /// Detects bounds that no number satisfies, or only one.
    pub(super) fn check_range(&mut self, id: NodeId) -> Res<Option<Atom>> {
        let bounds = self.shape(id).bounds.clone();
        let lower = tightest(&bounds, [BoundOp::Greater, BoundOp::GreaterEqual], true);
        let upper = tightest(&bounds, [BoundOp::Less, BoundOp::LessEqual], false);
        let (Some((low, low_at)), Some((high, high_at))) = (lower, upper) else { return Ok(None) };
        let Some(order) = low.value.compare(&high.value) else { return Ok(None) };
        let inclusive = low.op == BoundOp::GreaterEqual && high.op == BoundOp::LessEqual;
        if order.is_gt() || (order.is_eq() && !inclusive) {
            let message = format!("conflicting bounds {low} and {high}");
            return Err(self.contradict(id, message, [Some(low_at), Some(high_at)]));
        }
        let kind = self.shape(id).kind;
        Ok((order.is_eq() && kind == low.value.kind()).then_some(low.value))
    }
}

/// Returns whether `a` implies `b`. Different bounds never imply each other both ways.
fn implies(a: &Bound, b: &Bound) -> bool {
    use BoundOp::{Greater, GreaterEqual, Less, LessEqual, NotEqual};
    let Some(order) = a.value.compare(&b.value) else { return false };
    match (a.op, b.op) {
        (Less, Less) | (LessEqual, LessEqual) | (LessEqual, Less | NotEqual) => order.is_lt(),
        (Less, LessEqual | NotEqual) => order.is_le(),
        (Greater, Greater) | (GreaterEqual, GreaterEqual) | (GreaterEqual, Greater | NotEqual) => {
            order.is_gt()
        }
        (Greater, GreaterEqual | NotEqual) => order.is_ge(),
        _ => false,
    }
}

/// Returns the strictest lower or upper bound.
fn tightest(bounds: &[(Bound, Position)], ops: [BoundOp; 2], lower: bool) -> Option<(Bound, Position)> {
    let candidates = bounds.iter().filter(|(bound, _)| ops.contains(&bound.op));
    let mut best: Option<&(Bound, Position)> = None;
    for candidate in candidates {
        let replaces = best.is_none_or(|best| {
            let order = candidate.0.value.compare(&best.0.value);
            order.is_some_and(|order| if lower { order.is_gt() } else { order.is_lt() } || (order.is_eq() && candidate.0.op == ops[0]))
        });
        if replaces {
            best = Some(candidate);
        }
    }
    best.cloned()
}
