//! Tasks: conjuncts that need other values first.
//!
//! Tasks run in rounds until none makes progress. A task that depends on the absence of something in a node that is
//! still being evaluated waits for the last round, because another task may supply it.

use std::rc::Rc;

use super::expand::names_definition;
use super::node::{Bottom, Conjunct, NodeId, Task, Term};
use super::value_of::Val;
use super::{Evaluator, Res};
use crate::error::ErrorKind;
use crate::ir::ExprKind;
use crate::syntax::ast::Marker;
use crate::value::Bound;

impl Evaluator {
    /// Runs the tasks of a node. Those that cannot run leave it incomplete.
    pub(super) fn run_tasks(&mut self, id: NodeId) -> Res<()> {
        let mut last_round = false;
        loop {
            let tasks = std::mem::take(&mut self.shape_mut(id).tasks);
            if tasks.is_empty() {
                self.shape_mut(id).incomplete = None;
                return Ok(());
            }
            let mut blocked = Vec::new();
            let mut reason = None;
            let before = tasks.len();
            for task in tasks {
                if self.shape(id).undecided.is_some() {
                    return Ok(());
                }
                if let Some(bottom) = self.attempt(id, &task, last_round)? {
                    blocked.push(task);
                    reason.get_or_insert(bottom);
                }
                self.drain(id)?;
            }
            let progress = blocked.len() < before || !self.shape(id).tasks.is_empty();
            let shape = self.shape_mut(id);
            blocked.append(&mut shape.tasks);
            shape.tasks = blocked;
            if shape.undecided.is_some() {
                return Ok(());
            }
            if progress {
                last_round = false;
            } else if last_round {
                shape.incomplete = reason;
                return Ok(());
            } else {
                last_round = true;
            }
        }
    }

    /// Runs one task. Returns why it has to wait, if it has to.
    fn attempt(&mut self, id: NodeId, task: &Task, last_round: bool) -> Res<Option<Bottom>> {
        let missing = self.missing;
        self.missed.clear();
        let result = match task {
            Task::Expr(conjunct) => self.attempt_expression(id, conjunct),
            Task::Dynamic(field, env, ties) => self.dynamic(id, field, env, ties),
            Task::Comprehension(comprehension, env, ties) => {
                self.yields(comprehension, env).and_then(|envs| {
                    if self.missing != missing && !last_round {
                        return Err(self.premature(id));
                    }
                    self.assume(id);
                    for env in envs.into_iter().rev() {
                        let term = Term::Literal(comprehension.body.clone());
                        self.enqueue(id, Conjunct { term, env, ties: ties.clone() });
                    }
                    Ok(())
                })
            }
            Task::List(literal, env, ties) => self.list_elements(literal, env, ties).and_then(|elements| {
                if self.missing != missing && !last_round {
                    return Err(self.premature(id));
                }
                let like =
                    Conjunct { term: Term::Items(Rc::default()), env: env.clone(), ties: ties.clone() };
                self.list_part(id, literal, elements, &like)
            }),
        };
        match result {
            Ok(()) => Ok(None),
            Err(bottom) if bottom.kind.is_incomplete() => Ok(Some(bottom)),
            Err(bottom) => Err(bottom),
        }
    }

    /// Remembers the assumed absences, for [`Evaluator::check_assumptions`].
    fn assume(&mut self, id: NodeId) {
        let missed = std::mem::take(&mut self.missed);
        let own = missed.into_iter().filter(|(base, _)| *base == id).map(|(_, label)| label);
        self.shape_mut(id).assumed_absent.extend(own);
    }

    /// Rejects a field whose absence was a condition for something else.
    pub(super) fn check_assumptions(&self, id: NodeId) -> Res<()> {
        let shape = self.shape(id);
        let wrong = shape.assumed_absent.iter().find(|label| {
            shape.arms.get(*label).is_some_and(|arm| self.node(arm.node).marker == Marker::None)
        });
        match wrong {
            Some(label) => {
                let message = format!("circular condition: `{label}` is set depending on whether it is set");
                Err(Rc::new(self.error(id, ErrorKind::Cycle, message)))
            }
            None => Ok(()),
        }
    }

    fn premature(&self, id: NodeId) -> Bottom {
        let message = "the condition depends on fields of the struct that it adds to";
        Rc::new(self.error(id, ErrorKind::Cycle, message))
    }

    /// Evaluates an expression and unifies the node with the result.
    fn attempt_expression(&mut self, id: NodeId, conjunct: &Conjunct) -> Res<()> {
        let Term::Expr(expr) = &conjunct.term else { return Ok(()) };
        let expr = expr.clone();
        if let ExprKind::Bound(op, operand) = &expr.kind {
            let value = self.eval(operand, &conjunct.env)?;
            let value = self.atom(&value, &operand.position)?;
            self.liven(id, conjunct);
            return self.meet_bound(id, Bound { op: *op, value }, &expr.position);
        }
        let value = self.eval(&expr, &conjunct.env)?;
        let term = match value {
            Val::Node(target) => return self.include(id, target, conjunct, names_definition(&expr)),
            Val::Atom(atom) => Term::Atom(atom, expr.position.clone()),
            Val::Data(data) => Term::Data(data),
            Val::Items(items) => Term::Items(items),
            Val::Either(options) => Term::Either(options),
            Val::Validator(validator) => Term::Validator(validator),
            Val::All(nodes) => {
                for node in nodes.iter().rev() {
                    self.enqueue(id, Conjunct { term: Term::Node(*node), ..conjunct.clone() });
                }
                return Ok(());
            }
            Val::Function(function) => return self.function_as_value(id, &function, conjunct),
        };
        self.enqueue(id, Conjunct { term, env: None, ties: conjunct.ties.clone() });
        Ok(())
    }
}
