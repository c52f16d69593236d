//! The resolved tree: every name is bound, and syntactic sugar is removed. It is the input of the evaluator.
//!
//! A reference counts scopes outwards. Scopes are opened by structs, `for` and `let` clauses, values of patterns and
//! value aliases, at run time exactly as here.

use std::sync::Arc;

use crate::error::Position;
use crate::label::Label;
use crate::syntax::ast::{Marker, Meta};
use crate::value::{Atom, BoundOp, Kind};

#[derive(Debug)]
pub(crate) struct Expr {
    pub(crate) position: Position,
    pub(crate) kind: ExprKind,
}

#[derive(Debug)]
pub(crate) enum ExprKind {
    Atom(Atom),
    Basic(Kind),
    Top,
    Bottom,
    Struct(Arc<StructLit>),
    List(Arc<ListLit>),
    Reference(Reference),
    Import(Arc<str>),
    /// A builtin that needs no import.
    Builtin(&'static str),
    Select(Arc<Expr>, Label),
    Index(Arc<Expr>, Arc<Expr>),
    Slice(Arc<Expr>, Option<Arc<Expr>>, Option<Arc<Expr>>),
    Call(Arc<Expr>, Vec<Arc<Expr>>),
    /// Alternating literals and expressions; `bytes` for byte sequences.
    Interpolation(Vec<Part>, bool),
    Not(Arc<Expr>),
    Sign(bool, Arc<Expr>),
    Binary(&'static str, Arc<Expr>, Arc<Expr>),
    Bound(BoundOp, Arc<Expr>),
    And(Vec<Arc<Expr>>),
    Or(Arc<Disjunction>),
    /// Opens a scope whose value is the field itself.
    Alias(Arc<Expr>),
}

#[derive(Debug)]
pub(crate) enum Part {
    Literal(Vec<u8>),
    Expression(Arc<Expr>),
}

/// The binding of a name, `up` scopes outwards.
#[derive(Debug)]
pub(crate) enum Reference {
    /// A field of the struct.
    Field { up: usize, label: Label },
    /// A field of the whole instance that no scope of this file declares.
    Root { label: Label },
    /// A `let` of the struct.
    Let { up: usize, index: usize },
    /// The first or second variable of a clause.
    Variable { up: usize, index: usize },
    /// The value of the scope itself.
    Value { up: usize },
    /// The label of the scope's value.
    LabelOf { up: usize },
    /// The field with a computed label: an alias of a dynamic field.
    Dynamic { up: usize, label: Arc<Expr> },
}

/// Alternatives. `marked` if any is a default.
#[derive(Debug)]
pub(crate) struct Disjunction {
    pub(crate) alternatives: Vec<(bool, Arc<Expr>)>,
    pub(crate) marked: bool,
}

/// A struct literal.
#[derive(Debug)]
pub(crate) struct StructLit {
    pub(crate) position: Position,
    pub(crate) decls: Vec<Decl>,
    pub(crate) lets: Vec<Arc<Expr>>,
    /// Whether it has embeddings or comprehensions.
    pub(crate) embeds: bool,
    /// Whether it is a struct regardless of its embeddings.
    pub(crate) is_struct: bool,
    /// Whether it has an ellipsis.
    pub(crate) is_open: bool,
    /// Attributes that are declared inside it.
    pub(crate) meta: Option<Arc<Meta>>,
}

#[derive(Debug)]
pub(crate) enum Decl {
    Field(Field),
    Dynamic(Arc<Dynamic>),
    Pattern(Arc<Pattern>),
    Embed(Arc<Expr>),
    Comprehension(Arc<Comprehension>),
}

#[derive(Debug)]
pub(crate) struct Field {
    pub(crate) label: Label,
    pub(crate) marker: Marker,
    pub(crate) value: Arc<Expr>,
    pub(crate) meta: Arc<Meta>,
}

#[derive(Debug)]
pub(crate) struct Dynamic {
    pub(crate) label: Arc<Expr>,
    pub(crate) marker: Marker,
    pub(crate) value: Arc<Expr>,
    /// Whether the value has a scope of its own, for the alias of the label.
    pub(crate) scoped: bool,
    pub(crate) meta: Arc<Meta>,
}

/// `[pattern]: value`. The value has a scope of its own: the field that matches.
#[derive(Debug)]
pub(crate) struct Pattern {
    pub(crate) pattern: Arc<Expr>,
    pub(crate) value: Arc<Expr>,
    pub(crate) meta: Arc<Meta>,
}

#[derive(Debug)]
pub(crate) struct Comprehension {
    pub(crate) clauses: Vec<Clause>,
    pub(crate) body: Arc<StructLit>,
}

#[derive(Debug)]
pub(crate) enum Clause {
    For { has_key: bool, source: Arc<Expr> },
    If(Arc<Expr>),
    Let(Arc<Expr>),
}

#[derive(Debug)]
pub(crate) struct ListLit {
    pub(crate) position: Position,
    pub(crate) elements: Vec<Element>,
    /// `Some` for an open list, with the type of further elements.
    pub(crate) tail: Option<Option<Arc<Expr>>>,
    pub(crate) has_comprehension: bool,
}

#[derive(Debug)]
pub(crate) enum Element {
    Expr(Arc<Expr>),
    Comprehension(Arc<Comprehension>),
}
