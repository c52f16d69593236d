//! Environments: the scopes that surround a conjunct, innermost first.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use super::node::NodeId;
use crate::ir;

/// A chain of scopes. `None` is outside every file.
pub(crate) type Env = Option<Rc<Scope>>;

/// One scope.
#[derive(Debug)]
pub(crate) struct Scope {
    pub(crate) up: Env,
    pub(crate) kind: ScopeKind,
}

#[derive(Debug)]
pub(crate) enum ScopeKind {
    /// A struct literal that is being unified into a node.
    Struct { node: NodeId, literal: Arc<ir::StructLit>, lets: RefCell<Vec<Option<NodeId>>> },
    /// The value of a pattern, a dynamic field or an alias.
    Value(NodeId),
    /// The variables of a clause.
    Variables([Option<NodeId>; 2]),
}

pub(crate) fn structure(up: &Env, node: NodeId, literal: &Arc<ir::StructLit>) -> Env {
    let lets = RefCell::new(vec![None; literal.lets.len()]);
    Some(Rc::new(Scope { up: up.clone(), kind: ScopeKind::Struct { node, literal: literal.clone(), lets } }))
}

pub(crate) fn value(up: &Env, node: NodeId) -> Env {
    Some(Rc::new(Scope { up: up.clone(), kind: ScopeKind::Value(node) }))
}

pub(crate) fn variables(up: &Env, variables: [Option<NodeId>; 2]) -> Env {
    Some(Rc::new(Scope { up: up.clone(), kind: ScopeKind::Variables(variables) }))
}

/// Returns the scope `up` levels outwards.
pub(crate) fn outward(env: &Env, up: usize) -> Option<Rc<Scope>> {
    let mut scope = env.clone()?;
    for _ in 0..up {
        scope = scope.up.clone()?;
    }
    Some(scope)
}
