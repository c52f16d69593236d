//! References: resolves an expression in its environment to a node.

use std::sync::Arc;

use super::env::{self, Env, Scope, ScopeKind};
use super::expand::mistake;
use super::node::{Conjunct, Key, NodeId, Term, Ties};
use super::value_of::Val;
use super::{Evaluator, Res};
use crate::error::{ErrorKind, Position};
use crate::ir::{self, ExprKind, Reference};
use crate::label::Label;
use crate::value::Atom;

impl Evaluator {
    /// Returns the node that a reference, selector or index resolves to.
    pub(super) fn resolve(&mut self, expr: &Arc<ir::Expr>, env: &Env) -> Res<NodeId> {
        match &expr.kind {
            ExprKind::Reference(reference) => self.reference(reference, env, &expr.position),
            ExprKind::Select(base, label) => {
                let base = self.base(base, env)?;
                self.lookup(base, label, &expr.position)
            }
            ExprKind::Index(base, index) => {
                let base = self.base(base, env)?;
                let value = self.eval(index, env)?;
                match self.atom(&value, &index.position)? {
                    Atom::Text(name) => self.lookup(base, &Label::regular(name), &expr.position),
                    Atom::Number(number) if number.is_int() => {
                        self.element(base, number.as_i128().unwrap_or(-1), &expr.position)
                    }
                    other => {
                        let message = format!("an index is an int or a string, not {other}");
                        Err(mistake(ErrorKind::Conflict, message, &index.position))
                    }
                }
            }
            _ => self.base(expr, env),
        }
    }

    /// Returns the node of any expression.
    fn base(&mut self, expr: &Arc<ir::Expr>, env: &Env) -> Res<NodeId> {
        let value = self.eval(expr, env)?;
        Ok(self.materialize(value))
    }

    fn reference(&mut self, reference: &Reference, env: &Env, at: &Position) -> Res<NodeId> {
        match reference {
            Reference::Field { up, label } => {
                let node = self.scope_node(env, *up, at)?;
                self.lookup(node, label, at)
            }
            Reference::Root { label } => self.lookup(self.root_of(env), label, at),
            Reference::Let { up, index } => self.let_node(env, *up, *index, at),
            Reference::Variable { up, index } => {
                match env::outward(env, *up).map(|scope| variable(&scope, *index)) {
                    Some(Some(node)) => Ok(node),
                    _ => Err(unbound(at)),
                }
            }
            Reference::Value { up } => self.scope_node(env, *up, at),
            Reference::LabelOf { up } => {
                let node = self.scope_node(env, *up, at)?;
                let atom = match &self.node(node).key {
                    Key::Label(label) => Atom::Text(label.name.clone()),
                    Key::Index(index) => Atom::int(*index as i128),
                    _ => return Err(unbound(at)),
                };
                Ok(self.term(Term::Atom(atom, at.clone())))
            }
            Reference::Dynamic { up, label } => {
                let scope = env::outward(env, *up).ok_or_else(|| unbound(at))?;
                let name = self.eval(label, &Some(scope))?;
                let Atom::Text(name) = self.atom(&name, &label.position)? else {
                    return Err(mistake(ErrorKind::Conflict, "a label must be a string", &label.position));
                };
                let node = self.scope_node(env, *up, at)?;
                self.lookup(node, &Label::regular(name), at)
            }
        }
    }

    /// Returns the root that names without a scope belong to.
    fn root_of(&self, env: &Env) -> NodeId {
        let mut scope = env.clone();
        let mut root = self.root;
        while let Some(at) = scope {
            if let ScopeKind::Struct { node, .. } = &at.kind
                && at.up.is_none()
            {
                root = *node;
            }
            scope = at.up.clone();
        }
        root
    }

    fn scope_node(&self, env: &Env, up: usize, at: &Position) -> Res<NodeId> {
        match env::outward(env, up).as_deref() {
            Some(Scope { kind: ScopeKind::Struct { node, .. } | ScopeKind::Value(node), .. }) => Ok(*node),
            _ => Err(unbound(at)),
        }
    }

    /// Returns the node of a `let`, one for each time that its struct is unified.
    fn let_node(&mut self, env: &Env, up: usize, index: usize, at: &Position) -> Res<NodeId> {
        let scope = env::outward(env, up).ok_or_else(|| unbound(at))?;
        let ScopeKind::Struct { literal, lets, node } = &scope.kind else { return Err(unbound(at)) };
        if let Some(known) = lets.borrow().get(index).copied().flatten() {
            return Ok(known);
        }
        let expr = literal.lets.get(index).ok_or_else(|| unbound(at))?.clone();
        let env = Some(scope.clone());
        let id = self.anonymous(Conjunct { term: Term::Expr(expr), env, ties: Ties::default() });
        self.node_mut(id).parent = Some(*node);
        if let Some(slot) = lets.borrow_mut().get_mut(index) {
            *slot = Some(id);
        }
        Ok(id)
    }

    /// Evaluates a selector into a package.
    pub(super) fn member(&mut self, path: &str, label: &Label, at: &Position) -> Res<Val> {
        if let Some(function) = crate::builtins::find(path, &label.name) {
            return Ok(Val::Function(function));
        }
        if let Some(value) = crate::builtins::constant(path, &label.name) {
            return Ok(Val::Atom(value));
        }
        if let Some(function) = self.packages.function(path, &label.name) {
            return Ok(Val::Function(crate::builtins::Function::host(path, &label.name, function)));
        }
        match self.import(path) {
            Some(root) => self.lookup(root, label, at).map(Val::Node),
            None if crate::builtins::is_package(path) => {
                let message = format!("package {path:?} has no `{label}` here");
                Err(mistake(ErrorKind::Reference, message, at))
            }
            None => Err(mistake(ErrorKind::Reference, format!("package {path:?} is not known"), at)),
        }
    }
}

fn variable(scope: &Scope, index: usize) -> Option<NodeId> {
    match &scope.kind {
        ScopeKind::Variables(variables) => variables.get(index).copied().flatten(),
        _ => None,
    }
}

fn unbound(at: &Position) -> super::node::Bottom {
    mistake(ErrorKind::Reference, "the name is not bound here", at)
}
