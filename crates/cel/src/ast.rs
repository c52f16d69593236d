//! Expressions, after macros have been written out.

/// An expression. Its number is its own within a program, and where it stands is that in the text.
#[derive(Clone, Debug)]
pub(super) struct Expr {
    pub(super) id: usize,
    /// The letter at which it starts, as positions in messages count them.
    pub(super) at: usize,
    /// How many expressions it nests, itself included.
    pub(super) depth: usize,
    pub(super) kind: Kind,
}

#[derive(Clone, Debug)]
pub(super) enum Kind {
    Literal(Literal),
    Ident(String),
    /// A field; or, for a test, whether there is one.
    Select {
        operand: Box<Expr>,
        field: String,
        is_test: bool,
    },
    Call {
        target: Option<Box<Expr>>,
        function: String,
        args: Vec<Expr>,
    },
    /// Elements, and whether each is left out if it is an empty optional.
    List(Vec<(Expr, bool)>),
    Map(Vec<(Expr, Expr, bool)>),
    Fold(Box<Fold>),
}

impl Kind {
    /// The deepest of the expressions that it consists of.
    pub(super) fn depth(&self) -> usize {
        let deepest =
            |parts: &mut dyn Iterator<Item = &Expr>| parts.map(|part| part.depth).max().unwrap_or(0);
        match self {
            Self::Literal(_) | Self::Ident(_) => 0,
            Self::Select { operand, .. } => operand.depth,
            Self::Call { target, args, .. } => deepest(&mut target.as_deref().into_iter().chain(args)),
            Self::List(elements) => deepest(&mut elements.iter().map(|(element, _)| element)),
            Self::Map(entries) => deepest(&mut entries.iter().flat_map(|(key, value, _)| [key, value])),
            Self::Fold(fold) => {
                deepest(&mut [&fold.range, &fold.init, &fold.condition, &fold.step, &fold.result].into_iter())
            }
        }
    }
}

/// What a macro over the elements of something comes to.
#[derive(Clone, Debug)]
pub(super) struct Fold {
    pub(super) var: String,
    /// The second variable: values of a map or items of a list, the first then being keys or indexes.
    pub(super) var2: Option<String>,
    pub(super) range: Expr,
    pub(super) accu: String,
    pub(super) init: Expr,
    pub(super) condition: Expr,
    pub(super) step: Expr,
    pub(super) result: Expr,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Literal {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    String(String),
    Bytes(Vec<u8>),
}
