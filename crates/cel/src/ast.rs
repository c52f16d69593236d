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

impl Expr {
    pub(super) fn is_ident(&self, name: &str) -> bool {
        matches!(&self.kind, Kind::Ident(found) if found == name)
    }

    pub(super) fn is_text(&self, text: &str) -> bool {
        matches!(&self.kind, Kind::Literal(Literal::String(found)) if found == text)
    }

    /// Whether its value is always what a call of this function returns.
    pub(super) fn ends_in(&self, name: &str) -> bool {
        match &self.kind {
            Kind::Call { function, args, .. } if function == "_?_:_" => {
                args.iter().skip(1).all(|branch| branch.ends_in(name))
            }
            Kind::Call { function, .. } => function == name,
            _ => false,
        }
    }

    /// Whether this holds of the expression or of a part of it. Expressions nest to a bounded depth.
    pub(super) fn any(&self, holds: &dyn Fn(&Self) -> bool) -> bool {
        holds(self) || self.kind.parts().into_iter().any(|part| part.any(holds))
    }
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
    /// The expressions that it consists of.
    fn parts(&self) -> Vec<&Expr> {
        match self {
            Self::Literal(_) | Self::Ident(_) => Vec::new(),
            Self::Select { operand, .. } => vec![operand],
            Self::Call { target, args, .. } => target.as_deref().into_iter().chain(args).collect(),
            Self::List(elements) => elements.iter().map(|(element, _)| element).collect(),
            Self::Map(entries) => entries.iter().flat_map(|(key, value, _)| [key, value]).collect(),
            Self::Fold(fold) => {
                vec![&fold.range, &fold.init, &fold.condition, &fold.step, &fold.result]
            }
        }
    }

    /// The deepest of the expressions that it consists of.
    pub(super) fn depth(&self) -> usize {
        self.parts().into_iter().map(|part| part.depth).max().unwrap_or(0)
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
