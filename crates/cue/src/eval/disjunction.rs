//! Disjunctions: trying alternatives and keeping the valid ones.
//!
//! A node with a disjunction is evaluated once for every combination of alternatives, each time as a separate node with
//! fixed choices. Choices are numbered in the order in which disjunctions are met, which depends on the choices before
//! them only. While an alternative is tried, the node forwards to it.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use super::Evaluator;
use super::node::{Bottom, Key, Mode, Node, NodeId, State, Undecided, Value};
use crate::error::{Error, ErrorKind};

/// One choice of a combination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Choice {
    /// The disjunction of the choice.
    disjunction: usize,
    index: usize,
    mode: Mode,
    /// The earlier choice that its disjunction is nested in.
    within: Option<usize>,
}

/// The results of the alternatives.
#[derive(Default)]
struct Found {
    kept: Vec<(NodeId, Vec<Choice>)>,
    tried: Vec<Vec<Choice>>,
    errors: Vec<Bottom>,
}

impl Evaluator {
    /// Tries the alternatives of a node and decides its value.
    pub(super) fn explore(&mut self, id: NodeId) {
        let first = self.shape_mut(id).undecided.take().unwrap_or_default();
        let mut found = Found::default();
        let mut pending = branches(&[], &first);
        while let Some(choices) = pending.pop() {
            found.tried.push(choices.clone());
            if found.tried.len() > self.budget.limits().disjuncts {
                self.too_many(id);
            }
            if self.stopped.is_some() {
                break;
            }
            let alternative = self.alternative(id, choices.iter().map(|choice| choice.index).collect());
            self.node_mut(id).forward = Some(alternative);
            self.node_mut(id).version += 1;
            self.evaluate(alternative);
            match self.shape_mut(alternative).undecided.take() {
                Some(undecided) if self.shape(alternative).error.is_none() => {
                    pending.extend(branches(&choices, &undecided));
                }
                _ => self.keep(alternative, choices, &mut found),
            }
        }
        self.node_mut(id).forward = None;
        self.node_mut(id).version += 1;
        let merged = self.merge(&found);
        self.conclude(id, merged, &found.errors);
    }

    /// Creates a node with the same conjuncts and these choices.
    fn alternative(&mut self, id: NodeId, choices: Vec<usize>) -> NodeId {
        let origin = self.node(id);
        let (parent, key, marker, source) = (origin.parent, origin.key.clone(), origin.marker, origin.origin);
        let (conjuncts, meta) = (origin.conjuncts.clone(), origin.meta.clone());
        let alternative = self.add_node(parent, Key::Anonymous);
        let node: &mut Node = self.node_mut(alternative);
        (node.key, node.marker, node.origin) = (key, marker, source);
        (node.conjuncts, node.meta) = (conjuncts, meta);
        (node.choices, node.is_alternative) = (choices, true);
        alternative
    }

    /// Keeps an alternative unless it is an error.
    fn keep(&mut self, alternative: NodeId, choices: Vec<Choice>, found: &mut Found) {
        if let Value::Bottom(bottom) = &self.shape(alternative).value {
            found.errors.push(bottom.clone());
        } else if let Some(incomplete) = self.shape(alternative).incomplete.clone() {
            found.errors.push(incomplete);
        } else if let Some(bottom) = self.deep_error(alternative) {
            found.errors.push(bottom);
        } else {
            found.kept.push((alternative, choices));
        }
    }

    /// Merges equal alternatives; the strongest mode wins.
    fn merge(&mut self, found: &Found) -> Vec<(NodeId, Mode)> {
        let mut merged: Vec<(NodeId, Mode)> = Vec::new();
        if self.stopped.is_some() {
            return merged;
        }
        let modes = Modes::new(found);
        for (alternative, choices) in &found.kept {
            let mode = modes.of(choices);
            let known = (0..merged.len()).find(|index| self.is_same(merged[*index].0, *alternative));
            match known {
                Some(index) => merged[index].1 = merged[index].1.stronger(mode),
                None => merged.push((*alternative, mode)),
            }
        }
        merged
    }

    fn conclude(&mut self, id: NodeId, alternatives: Vec<(NodeId, Mode)>, errors: &[Bottom]) {
        let value = match (&self.stopped, alternatives.is_empty()) {
            (Some(stopped), _) => Value::Bottom(stopped.clone()),
            (None, true) => Value::Bottom(self.all_failed(id, errors)),
            (None, false) => Value::Disjunction,
        };
        let shape = self.shape_mut(id);
        shape.error = None;
        if let Value::Bottom(bottom) = &value {
            shape.error = Some(bottom.clone());
        }
        shape.value = value;
        shape.alternatives = alternatives;
        shape.queue = Vec::new();
        shape.tasks = Vec::new();
    }

    /// Explains why all alternatives have failed.
    fn all_failed(&self, id: NodeId, errors: &[Bottom]) -> Bottom {
        let incomplete = errors.iter().find(|bottom| bottom.kind.is_incomplete());
        if let Some(bottom) = incomplete {
            return bottom.clone();
        }
        if let [only] = errors {
            return only.clone();
        }
        let mut reasons: Vec<String> = Vec::new();
        for bottom in errors {
            let reason = bottom.message.clone();
            if !reasons.contains(&reason) && reasons.len() < 6 {
                reasons.push(reason);
            }
        }
        let message = format!("none of {} alternatives fits: {}", errors.len(), reasons.join("; "));
        let mut error = self.error(id, ErrorKind::Conflict, message);
        for position in errors.iter().flat_map(|bottom| bottom.positions.first()) {
            error = error.at(position);
        }
        Rc::new(error)
    }

    fn too_many(&mut self, id: NodeId) {
        let limit = self.budget.limits().disjuncts;
        let message = format!("evaluation was stopped: more than {limit} combinations of alternatives");
        let mut error = Error::new(ErrorKind::Limit, message);
        error.path = self.path(id);
        self.stop(
            error.hint("unify fewer disjunctions, or give them fields that tell their alternatives apart"),
        );
    }

    /// Follows a node to the only remaining alternative.
    pub(crate) fn only(&self, id: NodeId) -> NodeId {
        let node = self.node(id);
        match node.shape.as_deref() {
            Some(shape) if node.state == State::Done && shape.alternatives.len() == 1 => {
                shape.alternatives[0].0
            }
            _ => id,
        }
    }

    /// Follows a node to its default.
    pub(crate) fn default(&self, id: NodeId) -> Option<NodeId> {
        let shape = self.shape(id);
        if !matches!(shape.value, Value::Disjunction) {
            return Some(id);
        }
        let choices = defaults(&shape.alternatives);
        match choices.as_slice() {
            [only] => Some(*only),
            _ => None,
        }
    }
}

/// Returns the remaining alternatives if a value must be chosen.
pub(crate) fn defaults(alternatives: &[(NodeId, Mode)]) -> Vec<NodeId> {
    let of = |wanted: Mode| alternatives.iter().filter(move |(_, mode)| *mode == wanted).map(|(id, _)| *id);
    let marked: Vec<NodeId> = of(Mode::Default).collect();
    if !marked.is_empty() {
        return marked;
    }
    alternatives.iter().map(|(id, _)| *id).collect()
}

/// Returns the choices that continue a combination, the first last: they are taken from the end.
fn branches(choices: &[Choice], undecided: &Undecided) -> Vec<Vec<Choice>> {
    let continued = undecided.modes.iter().enumerate().rev().map(|(index, mode)| {
        let next = Choice { disjunction: undecided.identity, index, mode: *mode, within: undecided.within };
        choices.iter().copied().chain([next]).collect()
    });
    continued.collect()
}

/// The disjunctions around a choice and their choices, innermost first.
type ChoicePath = Vec<(usize, usize)>;

/// Decides whether a combination is a default, following the specification's pairs of value and default.
struct Modes {
    /// The disjunctions, with their path, that have an alternative with its own default.
    with_default: BTreeSet<(usize, ChoicePath)>,
    /// The choice inside an alternative, if it is the same in all remaining combinations.
    inside: BTreeMap<ChoicePath, Option<ChoicePath>>,
}

impl Modes {
    fn new(found: &Found) -> Self {
        let mut with_default = BTreeSet::new();
        // Failed combinations count as well: an eliminated default is still a default.
        for choices in &found.tried {
            for at in (0..choices.len()).filter(|at| choices[*at].mode != Mode::Maybe) {
                let mut outer = choices[at].within;
                while let Some(level) = outer {
                    with_default.insert((choices[level].disjunction, path(choices, choices[level].within)));
                    outer = choices[level].within;
                }
            }
        }
        let mut inside: BTreeMap<ChoicePath, Option<ChoicePath>> = BTreeMap::new();
        for (_, choices) in &found.kept {
            for level in 0..choices.len() {
                let nested = (level + 1..choices.len()).filter(|at| is_inside(choices, *at, level));
                let own: ChoicePath = nested.map(|at| (choices[at].disjunction, choices[at].index)).collect();
                let known = inside.entry(path(choices, Some(level))).or_insert_with(|| Some(own.clone()));
                if known.as_ref() != Some(&own) {
                    *known = None;
                }
            }
        }
        Self { with_default, inside }
    }

    /// Combines the modes of independent disjunctions.
    fn of(&self, choices: &[Choice]) -> Mode {
        let roots = (0..choices.len()).filter(|level| choices[*level].within.is_none());
        roots.fold(Mode::Maybe, |mode, level| mode.combine(self.level(choices, level)))
    }

    /// Returns the mode of one disjunction with those nested in the alternative that was taken.
    fn level(&self, choices: &[Choice], level: usize) -> Mode {
        let own = choices[level].mode;
        // Where an alternative is itself a disjunction of which one value is left, that value is what is marked:
        // `*((*1 | int) & 2) | string` has the default 2.
        let is_last = || matches!(self.inside.get(&path(choices, Some(level))), Some(Some(_)));
        if own == Mode::Default && is_last() {
            return own;
        }
        let nested = (level + 1..choices.len()).filter(|at| choices[*at].within == Some(level));
        let mode = nested.fold(own, |mode, at| mode.combine(self.level(choices, at)));
        // If another alternative has a default, an alternative without one is not a default.
        let beside = (choices[level].disjunction, path(choices, choices[level].within));
        if mode == Mode::Maybe && self.with_default.contains(&beside) { Mode::Not } else { mode }
    }
}

/// Returns the path of a choice, itself included.
fn path(choices: &[Choice], level: Option<usize>) -> ChoicePath {
    let mut path = Vec::new();
    let mut at = level;
    while let Some(level) = at {
        path.push((choices[level].disjunction, choices[level].index));
        at = choices[level].within;
    }
    path
}

/// Returns whether a choice is nested, directly or not, in another.
fn is_inside(choices: &[Choice], at: usize, level: usize) -> bool {
    let mut within = choices[at].within;
    while let Some(outer) = within {
        if outer == level {
            return true;
        }
        within = choices[outer].within;
    }
    false
}
