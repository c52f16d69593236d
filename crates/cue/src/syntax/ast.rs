//! The syntax tree. Names are not resolved yet, and chains of `&` and `|` are flat.

use std::sync::Arc;

use crate::error::Position;
use crate::number::Number;

/// A parsed file.
#[derive(Clone, Debug)]
pub(crate) struct File {
    pub(crate) name: Arc<str>,
    pub(crate) package: Option<String>,
    pub(crate) imports: Vec<Import>,
    pub(crate) decls: Vec<Decl>,
}

/// `import name "path:package"`
#[derive(Clone, Debug)]
pub(crate) struct Import {
    pub(crate) position: Position,
    /// The name in this file.
    pub(crate) name: String,
    /// Whether the name is explicit.
    pub(crate) renamed: bool,
    pub(crate) path: String,
}

/// Comments and attributes of a declaration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Meta {
    /// Comment lines directly before it, then those at the end of its line, without slashes.
    pub(crate) comments: Vec<String>,
    /// How many of the comments precede it.
    pub(crate) before: usize,
    /// Name and body of each attribute.
    pub(crate) attributes: Vec<(String, String)>,
}

impl Meta {
    pub(crate) fn is_empty(&self) -> bool {
        self.comments.is_empty() && self.attributes.is_empty()
    }
}

/// `?` and `!` after a label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Marker {
    Optional,
    Required,
    None,
}

/// A declaration in a struct or file.
#[derive(Clone, Debug)]
pub(crate) struct Decl {
    pub(crate) position: Position,
    pub(crate) meta: Meta,
    pub(crate) kind: DeclKind,
}

#[derive(Clone, Debug)]
pub(crate) enum DeclKind {
    Field {
        label: Label,
        marker: Marker,
        alias: Option<String>,
        value: Expr,
    },
    Let {
        name: String,
        value: Expr,
    },
    Embed(Expr),
    Comprehension(Comprehension),
    Ellipsis(Option<Expr>),
    /// An attribute of the enclosing struct; it is in `meta`.
    Attribute,
}

impl Decl {
    /// Returns whether the value is another field, without braces: `a: b: 1`.
    pub(crate) fn is_chain(&self) -> bool {
        match &self.kind {
            DeclKind::Field { value: Expr { position, kind: ExprKind::Struct(decls), .. }, .. } => {
                matches!(decls.as_slice(), [only] if only.position == *position)
            }
            _ => false,
        }
    }
}

/// The label of a field.
#[derive(Clone, Debug)]
pub(crate) enum Label {
    /// A name or keyword.
    Ident(String),
    /// A string, perhaps interpolated.
    Text(Expr),
    /// `(expr)`, with the name in `(X=expr)`.
    Dynamic(Option<String>, Expr),
    /// `[expr]`, with the name in `[X=expr]`.
    Pattern(Option<String>, Expr),
}

#[derive(Clone, Debug)]
pub(crate) struct Comprehension {
    pub(crate) position: Position,
    pub(crate) clauses: Vec<Clause>,
    pub(crate) body: Vec<Decl>,
}

#[derive(Clone, Debug)]
pub(crate) enum Clause {
    For { key: Option<String>, value: String, source: Expr },
    If(Expr),
    Let(String, Expr),
}

/// An expression. `depth` is the height of its tree, which the parser bounds.
#[derive(Clone, Debug)]
pub(crate) struct Expr {
    pub(crate) position: Position,
    pub(crate) depth: usize,
    pub(crate) kind: ExprKind,
}

#[derive(Clone, Debug)]
pub(crate) enum ExprKind {
    Ident(String),
    Null,
    Bool(bool),
    Number(Number),
    Text {
        parts: Vec<Part>,
        bytes: bool,
    },
    Bottom,
    Struct(Vec<Decl>),
    List(Vec<Element>),
    Unary(&'static str, Box<Expr>),
    Binary(&'static str, Box<Expr>, Box<Expr>),
    /// `a & b & c`
    And(Vec<Expr>),
    /// `a | b | c`
    Or(Vec<Expr>),
    Select(Box<Expr>, Selector),
    Index(Box<Expr>, Box<Expr>),
    Slice(Box<Expr>, Option<Box<Expr>>, Option<Box<Expr>>),
    Call(Box<Expr>, Vec<Expr>),
    Paren(Box<Expr>),
    /// `X=expr`
    Alias(String, Box<Expr>),
}

#[derive(Clone, Debug)]
pub(crate) enum Selector {
    Ident(String),
    Text(String),
}

#[derive(Clone, Debug)]
pub(crate) enum Part {
    Literal(Vec<u8>),
    Expression(Expr),
}

/// An element of a list.
#[derive(Clone, Debug)]
pub(crate) enum Element {
    Expr(Expr),
    Comprehension(Comprehension),
    Ellipsis(Option<Expr>),
}
