//! The evaluator: an arena of nodes, evaluated on demand.
//!
//! [`Evaluator::evaluate`] determines the shape of one node: its kind of value and its fields. Fields are separate
//! nodes that are evaluated when they are needed. Reading a node while it, or its parent, is still being evaluated
//! creates a [`Dependency`](node::Dependency): results computed from it are discarded if the read turns out to have
//! been premature.

pub(crate) mod closed;
mod comprehension;
mod conflict;
mod deep;
mod disjunction;
pub(crate) mod env;
mod equality;
mod expand;
mod include;
mod lists;
mod lookup;
pub(crate) mod node;
pub(crate) mod operators;
mod patterns;
mod resolve;
mod settle;
mod structs;
mod tasks;
pub(crate) mod value_of;

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use closed::Group;
use node::{Bottom, Conjunct, Dependency, Key, Node, NodeId, Shape, State, Term, Ties, Value};
use patterns::Patterns;

use crate::error::{Error, ErrorKind, Position};
use crate::host::Packages;
use crate::ir;
use crate::label::Label;
use crate::limits::{Budget, Limits};
use crate::syntax::ast::Marker;

/// A value, or why there is none.
pub(crate) type Res<T> = Result<T, Bottom>;

/// A node that is being evaluated, and its reads so far.
#[derive(Debug)]
struct Frame {
    dependencies: Vec<Dependency>,
}

/// The state of an evaluation.
#[derive(Debug)]
pub(crate) struct Evaluator {
    nodes: Vec<Node>,
    pub(super) groups: Vec<Group>,
    frames: Vec<Frame>,
    pub(crate) budget: Budget,
    /// Increases when something was not found in a node that is still being evaluated.
    missing: u64,
    /// The fields that were not found in this way during the current task.
    missed: Vec<(NodeId, Label)>,
    pub(crate) root: NodeId,
    pub(crate) packages: Arc<Packages>,
    /// The roots of the imported host packages.
    imported: BTreeMap<String, NodeId>,
    patterns: Patterns,
    /// The validators that are running: a value is not checked while it is being checked.
    pub(super) validating: Vec<Position>,
    /// The limit that was reached. Nothing is evaluated after it.
    pub(crate) stopped: Option<Bottom>,
    nowhere: Position,
    /// The shape of nodes that have none.
    unknown: Shape,
}

impl Evaluator {
    pub(crate) fn new(limits: Limits, packages: Arc<Packages>) -> Self {
        let mut evaluator = Self {
            nodes: Vec::new(),
            groups: Vec::new(),
            frames: Vec::new(),
            budget: Budget::new(limits),
            missing: 0,
            missed: Vec::new(),
            root: NodeId(0),
            packages,
            imported: BTreeMap::new(),
            patterns: Patterns::default(),
            validating: Vec::new(),
            stopped: None,
            nowhere: Position { file: "".into(), line: 0, column: 0 },
            unknown: Shape::new(),
        };
        evaluator.root = evaluator.add_node(None, Key::Root);
        evaluator.node_mut(evaluator.root).marker = Marker::None;
        evaluator
    }

    pub(crate) fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.0 as usize]
    }

    pub(crate) fn node_mut(&mut self, id: NodeId) -> &mut Node {
        &mut self.nodes[id.0 as usize]
    }

    /// Returns the shape of a node. A node that is not evaluated, or no longer, could be anything.
    pub(crate) fn shape(&self, id: NodeId) -> &Shape {
        self.node(id).shape.as_deref().unwrap_or(&self.unknown)
    }

    pub(crate) fn shape_mut(&mut self, id: NodeId) -> &mut Shape {
        self.node_mut(id).shape.get_or_insert_with(|| Box::new(Shape::new()))
    }

    pub(crate) fn add_node(&mut self, parent: Option<NodeId>, key: Key) -> NodeId {
        let id = NodeId(self.nodes.len() as u32);
        self.nodes.push(Node::new(id, parent, key));
        id
    }

    /// Adds a node for an anonymous value.
    pub(crate) fn anonymous(&mut self, conjunct: Conjunct) -> NodeId {
        let id = self.add_node(None, Key::Anonymous);
        let node = self.node_mut(id);
        node.marker = Marker::None;
        node.conjuncts.push(conjunct);
        id
    }

    pub(crate) fn term(&mut self, term: Term) -> NodeId {
        self.anonymous(Conjunct { term, env: None, ties: Ties::default() })
    }

    /// Adds a conjunct to a node that may have been evaluated before.
    pub(crate) fn add_conjunct(&mut self, id: NodeId, conjunct: Conjunct) {
        let node = self.node_mut(id);
        node.conjuncts.push(conjunct);
        node.version += 1;
        self.forget(id);
    }

    /// Discards the evaluation of a node.
    pub(crate) fn forget(&mut self, id: NodeId) {
        let node = self.node_mut(id);
        if node.state == State::Done {
            node.state = State::Fresh;
            node.shape = None;
        }
        node.deep = None;
    }

    /// Charges steps, and remembers the limit when it is reached.
    pub(crate) fn charge(&mut self, steps: usize) -> Res<()> {
        if let Some(stopped) = &self.stopped {
            return Err(stopped.clone());
        }
        let charged = self.budget.charge(steps).and_then(|()| self.budget.nodes(self.nodes.len()));
        charged.map_err(|error| self.stop(error))
    }

    /// Charges a string that is created.
    pub(crate) fn charge_text(&mut self, bytes: usize) -> Res<()> {
        self.budget.text(bytes).map_err(|error| self.stop(error))
    }

    /// Checks that the evaluation may create this many more values.
    pub(crate) fn charge_values(&mut self, values: usize) -> Res<()> {
        let charged = self.budget.nodes(self.nodes.len().saturating_add(values));
        charged.map_err(|error| self.stop(error))
    }

    pub(crate) fn stop(&mut self, error: Error) -> Bottom {
        let bottom = Rc::new(error);
        self.stopped.get_or_insert(bottom).clone()
    }

    pub(super) fn enter(&mut self, id: NodeId) -> Res<()> {
        self.charge(1)?;
        self.budget.enter().map_err(|mut error| {
            error.path = self.path(id);
            self.stop(error)
        })
    }

    /// Evaluates the shape of a node. Does nothing if it is done, or in progress further up the stack.
    pub(crate) fn evaluate(&mut self, id: NodeId) {
        let state = self.node(id).state;
        match state {
            State::Expanding => return,
            State::Done if self.still_holds(id) => return,
            State::Done => self.forget(id),
            State::Fresh => {}
        }
        if let Err(bottom) = self.enter(id) {
            return self.fail(id, bottom);
        }
        self.frames.push(Frame { dependencies: Vec::new() });
        let node = self.node_mut(id);
        node.state = State::Expanding;
        node.was_read = false;
        node.deep = None;
        node.shape = Some(Box::new(Shape::new()));
        self.work_out(id);
        self.finish(id);
        self.budget.leave();
    }

    fn work_out(&mut self, id: NodeId) {
        if let Some(refused) = self.node(id).refused.clone() {
            self.shape_mut(id).error = Some(refused);
        } else {
            self.expand(id);
        }
        if self.shape(id).undecided.is_some() && !self.node(id).is_alternative {
            self.explore(id);
        } else {
            self.settle(id);
        }
    }

    /// Marks a node as an error without evaluating it.
    fn fail(&mut self, id: NodeId, bottom: Bottom) {
        let mut shape = Shape::new();
        shape.value = Value::Bottom(bottom.clone());
        shape.error = Some(bottom);
        let node = self.node_mut(id);
        node.shape = Some(Box::new(shape));
        node.state = State::Done;
    }

    fn finish(&mut self, id: NodeId) {
        let node = self.node_mut(id);
        node.state = State::Done;
        node.forward = None;
        if node.was_read {
            node.version += 1;
        }
        let frame = self.frames.pop().unwrap_or(Frame { dependencies: Vec::new() });
        let mut kept = frame.dependencies;
        kept.retain(|dependency| self.node(dependency.owner).state == State::Expanding);
        self.inherit(&kept);
        self.node_mut(id).dependencies = kept;
    }

    /// Passes dependencies on to the node being evaluated.
    fn inherit(&mut self, dependencies: &[Dependency]) {
        let Some(frame) = self.frames.last_mut() else { return };
        for dependency in dependencies {
            if !frame.dependencies.contains(dependency) {
                frame.dependencies.push(*dependency);
            }
        }
    }

    /// Returns whether the inputs of a node are unchanged.
    fn still_holds(&mut self, id: NodeId) -> bool {
        if self.node(id).dependencies.is_empty() {
            return true;
        }
        let mut dependencies = std::mem::take(&mut self.node_mut(id).dependencies);
        let holds =
            dependencies.iter().all(|dependency| self.node(dependency.node).version == dependency.version);
        dependencies.retain(|dependency| self.node(dependency.owner).state == State::Expanding);
        if holds {
            self.inherit(&dependencies);
            self.node_mut(id).dependencies = dependencies;
        }
        holds
    }

    /// Records that the node being evaluated has read from `node` while `owner` was incomplete.
    pub(super) fn depend(&mut self, owner: NodeId, node: NodeId) {
        let version = self.node(node).version;
        self.inherit(&[Dependency { owner, node, version }]);
    }

    /// Returns the path of a node, such as `output.spec.ports[0]`.
    pub(crate) fn path(&self, id: NodeId) -> String {
        let mut parts = Vec::new();
        let mut at = Some(id);
        while let Some(id) = at {
            let node = self.node(id);
            match &node.key {
                Key::Label(label) => parts.push(label.to_string()),
                Key::Index(index) => parts.push(format!("[{index}]")),
                Key::Root | Key::Anonymous => {}
            }
            at = node.parent;
        }
        parts.reverse();
        let mut path = String::new();
        for part in parts {
            if !path.is_empty() && !part.starts_with('[') {
                path.push('.');
            }
            path.push_str(&part);
        }
        path
    }

    /// Returns the position of a conjunct.
    pub(crate) fn place(&self, conjunct: &Conjunct) -> Option<Position> {
        match &conjunct.term {
            Term::Expr(expr) => Some(expr.position.clone()),
            Term::Literal(literal) => Some(literal.position.clone()),
            Term::Atom(_, position) => Some(position.clone()),
            _ => None,
        }
    }

    pub(crate) fn nowhere(&self) -> Position {
        self.nowhere.clone()
    }

    /// Returns the root of a host package, which is part of the same arena.
    pub(crate) fn import(&mut self, path: &str) -> Option<NodeId> {
        if let Some(root) = self.imported.get(path) {
            return Some(*root);
        }
        let package = self.packages.clone().get(path)?;
        let id = self.add_node(None, Key::Anonymous);
        let node = self.node_mut(id);
        node.marker = Marker::None;
        let literals = package.literals();
        node.conjuncts.extend(literals.into_iter().map(|literal: Arc<ir::StructLit>| Conjunct {
            term: Term::Literal(literal),
            env: None,
            ties: Ties::default(),
        }));
        self.imported.insert(path.to_owned(), id);
        Some(id)
    }

    pub(crate) fn error(&self, id: NodeId, kind: ErrorKind, message: impl Into<String>) -> Error {
        let mut error = Error::new(kind, message);
        error.path = self.path(id);
        error
    }
}
