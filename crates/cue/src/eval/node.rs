//! Nodes: the values of an evaluation, in an arena. A node is a list of conjuncts, and later their unification.

use std::rc::Rc;
use std::sync::Arc;

use indexmap::IndexMap;

use super::closed::{Closer, Embedding, Members};
use super::env::Env;
use crate::data::Data;
use crate::error::{Error, Position};
use crate::ir;
use crate::label::Label;
use crate::syntax::ast::{Marker, Meta};
use crate::value::{Atom, Bound, Kind};

/// The index of a node in the arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct NodeId(pub(crate) u32);

/// An error as a value.
pub(crate) type Bottom = Rc<Error>;

/// The key of a node in its parent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Key {
    Root,
    Anonymous,
    Label(Label),
    Index(usize),
}

/// The content of a conjunct.
#[derive(Clone, Debug)]
pub(crate) enum Term {
    Expr(Arc<ir::Expr>),
    Literal(Arc<ir::StructLit>),
    Data(Arc<Data>),
    Atom(Atom, Position),
    Node(NodeId),
    /// The elements of a list.
    Items(Rc<Vec<NodeId>>),
    /// Alternatives that were computed by `or`.
    Either(Rc<Vec<NodeId>>),
    Validator(Rc<Validator>),
    /// A struct of existing nodes.
    Fields(Rc<[(Label, NodeId); 2]>),
}

/// A builtin that checks values, such as `strings.MinRunes(3)`.
#[derive(Clone, Debug)]
pub(crate) struct Validator {
    pub(crate) name: String,
    pub(crate) builtin: &'static crate::builtins::Builtin,
    pub(crate) arguments: Vec<super::value_of::Val>,
    pub(crate) position: Position,
}

/// One of the values that are unified into a node.
#[derive(Clone, Debug)]
pub(crate) struct Conjunct {
    pub(crate) term: Term,
    pub(crate) env: Env,
    pub(crate) ties: Ties,
}

/// The origin of a conjunct.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ties {
    /// The groups and scopes that it belongs to: evidence that its fields are allowed.
    pub(crate) members: Members,
    pub(crate) embedding: Embedding,
    /// The references that were followed.
    pub(crate) chain: Option<Rc<Link>>,
    /// Whether it refers to a node that contains it.
    pub(crate) cyclic: bool,
    /// The choice of an alternative that it is part of.
    pub(crate) within: Option<usize>,
}

/// A reference that was followed.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) target: NodeId,
    pub(crate) next: Option<Rc<Link>>,
    pub(crate) length: usize,
}

/// Whether an alternative is a default. The spec's pairs of value and default, element by element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Its disjunction has no default.
    Maybe,
    Default,
    Not,
}

impl Mode {
    pub(crate) fn combine(self, other: Self) -> Self {
        match (self, other) {
            (Self::Not, _) | (_, Self::Not) => Self::Not,
            (Self::Default, _) | (_, Self::Default) => Self::Default,
            _ => Self::Maybe,
        }
    }

    /// Returns the mode of two equal alternatives.
    pub(crate) fn stronger(self, other: Self) -> Self {
        match (self, other) {
            (Self::Default, _) | (_, Self::Default) => Self::Default,
            (Self::Maybe, _) | (_, Self::Maybe) => Self::Maybe,
            _ => Self::Not,
        }
    }
}

/// A disjunction that needs a choice.
#[derive(Clone, Debug, Default)]
pub(crate) struct Undecided {
    pub(crate) modes: Vec<Mode>,
    /// Its identity; only compared.
    pub(crate) identity: usize,
    /// The choice that it is nested in.
    pub(crate) within: Option<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Fresh,
    Expanding,
    Done,
}

/// A value that was read while it, or its parent, was still being evaluated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Dependency {
    /// The node that was being evaluated.
    pub(crate) owner: NodeId,
    pub(crate) node: NodeId,
    pub(crate) version: u32,
}

#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) parent: Option<NodeId>,
    /// The node that this one is an alternative of, or itself.
    pub(crate) origin: NodeId,
    pub(crate) key: Key,
    pub(crate) conjuncts: Vec<Conjunct>,
    pub(crate) meta: Vec<Arc<Meta>>,
    pub(crate) marker: Marker,
    /// An error set by the parent, such as a field that is not allowed.
    pub(crate) refused: Option<Bottom>,
    /// Which alternatives to take, in the order in which disjunctions are met.
    pub(crate) choices: Vec<usize>,
    pub(crate) is_alternative: bool,
    pub(crate) state: State,
    /// Increases when earlier reads of the node may be outdated.
    pub(crate) version: u32,
    pub(crate) dependencies: Vec<Dependency>,
    /// Whether the value was read while it was being evaluated.
    pub(crate) was_read: bool,
    /// The alternative that is being tried.
    pub(crate) forward: Option<NodeId>,
    pub(crate) shape: Option<Box<Shape>>,
    /// The first conflict in it or below it, once known.
    pub(crate) deep: Option<Option<Bottom>>,
}

/// A field of a struct.
#[derive(Debug)]
pub(crate) struct Arm {
    pub(crate) node: NodeId,
    /// The members of each declaration.
    pub(crate) evidence: Vec<Members>,
}

/// A pattern constraint that applies to a struct.
#[derive(Clone, Debug)]
pub(crate) struct PatternRule {
    pub(crate) pattern: Arc<ir::Pattern>,
    pub(crate) env: Env,
    pub(crate) ties: Ties,
    /// The evaluated pattern. `None` if it accepts every label.
    pub(crate) matcher: Option<NodeId>,
}

/// One of the lists that are unified into a node.
#[derive(Clone, Debug)]
pub(crate) struct ListPart {
    pub(crate) elements: Vec<Conjunct>,
    /// `Some` if more elements may follow, with their type.
    pub(crate) tail: Option<Option<Conjunct>>,
    pub(crate) position: Option<Position>,
}

/// The remaining work for a node.
#[derive(Clone, Debug)]
pub(crate) enum Task {
    Expr(Conjunct),
    Dynamic(Arc<ir::Dynamic>, Env, Ties),
    Comprehension(Arc<ir::Comprehension>, Env, Ties),
    List(Arc<ir::ListLit>, Env, Ties),
}

/// The value of an evaluated node.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    Bottom(Bottom),
    Atom(Atom),
    /// A type, perhaps with bounds: see the shape.
    Constraint,
    Struct,
    List,
    /// Alternatives: see the shape.
    Disjunction,
}

/// The unification of a node's conjuncts, complete or in progress.
#[derive(Debug)]
pub(crate) struct Shape {
    pub(crate) value: Value,
    pub(crate) arms: IndexMap<Label, Arm>,
    pub(crate) patterns: Vec<PatternRule>,
    pub(crate) kind: Kind,
    /// The positions where the kind was narrowed.
    pub(crate) kind_at: Option<Position>,
    pub(crate) atom: Option<(Atom, Option<Position>)>,
    pub(crate) bounds: Vec<(Bound, Position)>,
    pub(crate) validators: Vec<Rc<Validator>>,
    /// A struct literal that is a struct regardless of its embeddings.
    pub(crate) has_struct: bool,
    /// A struct literal with only embeddings.
    pub(crate) has_braces: bool,
    pub(crate) closers: Vec<Closer>,
    /// Groups of which a struct literal takes part here.
    pub(crate) struct_groups: Vec<u32>,
    /// The members of each `...` and each `_`.
    pub(crate) opened: Vec<Members>,
    pub(crate) lists: Vec<ListPart>,
    pub(crate) elements: Vec<NodeId>,
    pub(crate) error: Option<Bottom>,
    pub(crate) incomplete: Option<Bottom>,
    pub(crate) alternatives: Vec<(NodeId, Mode)>,
    /// Alternatives of the next disjunction without a choice.
    pub(crate) undecided: Option<Undecided>,
    pub(crate) choices_met: usize,
    pub(crate) is_live: bool,
    pub(crate) is_cyclic: bool,
    /// References that were included, with their group.
    pub(crate) included: Vec<(NodeId, Option<u32>)>,
    /// Fields whose absence was a condition.
    pub(crate) assumed_absent: Vec<Label>,
    pub(crate) queue: Vec<Conjunct>,
    pub(crate) tasks: Vec<Task>,
    pub(crate) meta: Vec<Arc<Meta>>,
}

impl Shape {
    pub(crate) fn new() -> Self {
        Self {
            value: Value::Constraint,
            arms: IndexMap::new(),
            patterns: Vec::new(),
            kind: Kind::ANY,
            kind_at: None,
            atom: None,
            bounds: Vec::new(),
            validators: Vec::new(),
            has_struct: false,
            has_braces: false,
            closers: Vec::new(),
            struct_groups: Vec::new(),
            opened: Vec::new(),
            lists: Vec::new(),
            elements: Vec::new(),
            error: None,
            incomplete: None,
            alternatives: Vec::new(),
            undecided: None,
            choices_met: 0,
            is_live: false,
            is_cyclic: false,
            included: Vec::new(),
            assumed_absent: Vec::new(),
            queue: Vec::new(),
            tasks: Vec::new(),
            meta: Vec::new(),
        }
    }

    /// Returns whether more elements may follow those of the list.
    pub(crate) fn is_open_list(&self) -> bool {
        !self.lists.is_empty() && self.lists.iter().all(|part| part.tail.is_some())
    }
}

impl Node {
    pub(crate) fn new(id: NodeId, parent: Option<NodeId>, key: Key) -> Self {
        Self {
            parent,
            origin: id,
            key,
            conjuncts: Vec::new(),
            meta: Vec::new(),
            marker: Marker::Optional,
            refused: None,
            choices: Vec::new(),
            is_alternative: false,
            state: State::Fresh,
            version: 0,
            dependencies: Vec::new(),
            was_read: false,
            forward: None,
            shape: None,
            deep: None,
        }
    }
}
