//! Comprehensions: the environments that their clauses yield.

use std::sync::Arc;

use super::env::{self, Env};
use super::node::{Conjunct, NodeId, Term, Ties, Value};
use super::value_of::Val;
use super::{Evaluator, Res};
use crate::error::{Error, ErrorKind};
use crate::ir::{self, Clause};
use crate::syntax::ast::Marker;
use crate::value::Atom;

impl Evaluator {
    /// Returns an environment for each time that the body of a comprehension applies.
    pub(super) fn yields(&mut self, comprehension: &ir::Comprehension, env: &Env) -> Res<Vec<Env>> {
        let mut envs = vec![env.clone()];
        for clause in &comprehension.clauses {
            let mut next = Vec::new();
            for env in &envs {
                self.charge(1)?;
                self.clause(clause, env, &mut next)?;
            }
            envs = next;
        }
        Ok(envs)
    }

    fn clause(&mut self, clause: &Clause, env: &Env, next: &mut Vec<Env>) -> Res<()> {
        match clause {
            Clause::If(condition) => {
                if self.condition(condition, env)? {
                    next.push(env.clone());
                }
            }
            Clause::Let(expr) => {
                let conjunct =
                    Conjunct { term: Term::Expr(expr.clone()), env: env.clone(), ties: Ties::default() };
                let node = self.anonymous(conjunct);
                next.push(env::variables(env, [Some(node), None]));
            }
            Clause::For { has_key, source } => {
                for (key, value) in self.iterate(source, env)? {
                    self.charge(1)?;
                    let key = has_key.then(|| self.term(Term::Atom(key, source.position.clone())));
                    next.push(env::variables(env, [key, Some(value)]));
                }
            }
        }
        Ok(())
    }

    fn condition(&mut self, condition: &Arc<ir::Expr>, env: &Env) -> Res<bool> {
        let value = self.eval(condition, env)?;
        match self.atom(&value, &condition.position)? {
            Atom::Bool(value) => Ok(value),
            other => {
                let message = format!("the condition of `if` must be a bool, not {other}");
                Err(Error::new(ErrorKind::Conflict, message).at(&condition.position).into())
            }
        }
    }

    /// Returns the keys and values that `for` goes through.
    fn iterate(&mut self, source: &Arc<ir::Expr>, env: &Env) -> Res<Vec<(Atom, NodeId)>> {
        let value = self.eval(source, env)?;
        let id = self.materialize(value);
        let id = self.concrete(id, &source.position)?;
        match &self.shape(id).value {
            Value::Struct => {
                if let Some(incomplete) = &self.shape(id).incomplete {
                    return Err(incomplete.clone());
                }
                let arms = self.shape(id).arms.iter();
                let fields = arms
                    .filter(|(label, arm)| label.is_regular() && self.node(arm.node).marker == Marker::None);
                Ok(fields.map(|(label, arm)| (Atom::Text(label.name.clone()), arm.node)).collect())
            }
            Value::List => {
                let elements = self.shape(id).elements.iter().enumerate();
                Ok(elements.map(|(index, node)| (Atom::int(index as i128), *node)).collect())
            }
            _ => {
                let message = format!("`for` goes through a struct or a list, not {}", self.describe(id));
                Err(Error::new(ErrorKind::Conflict, message).at(&source.position).into())
            }
        }
    }

    /// Returns the elements of a list with comprehensions.
    pub(super) fn list_elements(
        &mut self,
        literal: &ir::ListLit,
        env: &Env,
        ties: &Ties,
    ) -> Res<Vec<Conjunct>> {
        let mut elements = Vec::new();
        for element in &literal.elements {
            match element {
                ir::Element::Expr(expr) => elements.push(Conjunct {
                    term: Term::Expr(expr.clone()),
                    env: env.clone(),
                    ties: ties.clone(),
                }),
                ir::Element::Comprehension(comprehension) => {
                    let body = &comprehension.body;
                    elements.extend(self.yields(comprehension, env)?.into_iter().map(|env| Conjunct {
                        term: Term::Literal(body.clone()),
                        env,
                        ties: ties.clone(),
                    }));
                }
            }
        }
        Ok(elements)
    }

    /// Returns a node with the value.
    pub(crate) fn materialize(&mut self, value: Val) -> NodeId {
        let nowhere = self.nowhere();
        match value {
            Val::Node(node) => node,
            Val::Atom(atom) => self.term(Term::Atom(atom, nowhere)),
            Val::Data(data) => self.term(Term::Data(data)),
            Val::Items(items) => self.term(Term::Items(items)),
            Val::Either(options) => self.term(Term::Either(options)),
            Val::Validator(validator) => self.term(Term::Validator(validator)),
            Val::All(nodes) => {
                let id = self.term(Term::Expr(self.top()));
                for node in nodes.iter() {
                    let term = Term::Node(*node);
                    self.node_mut(id).conjuncts.push(Conjunct { term, env: None, ties: Ties::default() });
                }
                id
            }
            Val::Function(function) => match function.validator(&nowhere) {
                Some(validator) => self.term(Term::Validator(validator)),
                None => self.term(Term::Expr(self.top())),
            },
        }
    }

    fn top(&self) -> Arc<ir::Expr> {
        Arc::new(ir::Expr { position: self.nowhere(), kind: ir::ExprKind::Top })
    }
}
