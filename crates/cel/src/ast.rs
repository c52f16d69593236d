//! The syntax tree, with macros expanded.

/// An expression, with an ID that is unique within its program and its position in the text.
#[derive(Clone, Debug)]
pub(super) struct Expr {
    pub(super) id: usize,
    /// The offset in characters where it starts, as used for positions in messages.
    pub(super) at: usize,
    /// The nesting depth, including this expression.
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

    /// Returns whether the value is always the result of a call to this function.
    pub(super) fn ends_in(&self, name: &str) -> bool {
        match &self.kind {
            Kind::Call { function, args, .. } if function == "_?_:_" => {
                args.iter().skip(1).all(|branch| branch.ends_in(name))
            }
            Kind::Call { function, .. } => function == name,
            _ => false,
        }
    }

    /// Returns whether `holds` is true for the expression or a subexpression. The recursion is bounded by the nesting
    /// depth.
    pub(super) fn any(&self, holds: &dyn Fn(&Self) -> bool) -> bool {
        holds(self) || self.kind.parts().into_iter().any(|part| part.any(holds))
    }
}

impl Expr {
    /// Collects the fields of a variable that are selected. Returns false if the variable is also used in other ways.
    pub(super) fn fields_of<'e>(&'e self, variable: &str, fields: &mut Vec<&'e str>) -> bool {
        match &self.kind {
            Kind::Ident(name) => name != variable,
            Kind::Select { operand, field, .. } if operand.is_ident(variable) => {
                fields.push(field);
                true
            }
            Kind::Call { target: None, function, args } if function == "_?._" => match args.as_slice() {
                [operand, Self { kind: Kind::Literal(Literal::String(field)), .. }]
                    if operand.is_ident(variable) =>
                {
                    fields.push(field);
                    true
                }
                args => args.iter().all(|arg| arg.fields_of(variable, fields)),
            },
            kind => kind.parts().into_iter().all(|part| part.fields_of(variable, fields)),
        }
    }
}

#[derive(Clone, Debug)]
pub(super) enum Kind {
    Literal(Literal),
    Ident(String),
    /// A field access or, with `is_test`, a check whether the field exists.
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
    /// The elements. The flag marks an element that is skipped if it is an empty optional.
    List(Vec<(Expr, bool)>),
    Map(Vec<(Expr, Expr, bool)>),
    /// A value of a named type: `Object.spec{replicas: 1}`.
    Message {
        name: String,
        fields: Vec<Initializer>,
    },
    Fold(Box<Fold>),
}

impl Kind {
    /// Returns the direct subexpressions.
    pub(super) fn parts(&self) -> Vec<&Expr> {
        match self {
            Self::Literal(_) | Self::Ident(_) => Vec::new(),
            Self::Select { operand, .. } => vec![operand],
            Self::Call { target, args, .. } => target.as_deref().into_iter().chain(args).collect(),
            Self::List(elements) => elements.iter().map(|(element, _)| element).collect(),
            Self::Map(entries) => entries.iter().flat_map(|(key, value, _)| [key, value]).collect(),
            Self::Message { fields, .. } => fields.iter().map(|field| &field.value).collect(),
            Self::Fold(fold) => {
                vec![&fold.range, &fold.init, &fold.condition, &fold.step, &fold.result]
            }
        }
    }

    /// Returns the depth of the deepest subexpression.
    pub(super) fn depth(&self) -> usize {
        self.parts().into_iter().map(|part| part.depth).max().unwrap_or(0)
    }
}

/// A field of a message and its value.
#[derive(Clone, Debug)]
pub(super) struct Initializer {
    /// Where the colon is, as used for positions in messages.
    pub(super) at: usize,
    pub(super) name: String,
    pub(super) value: Expr,
    /// Whether the field is left out if the value is an empty optional.
    pub(super) is_optional: bool,
}

/// A comprehension: the expansion of a macro over elements.
#[derive(Clone, Debug)]
pub(super) struct Fold {
    pub(super) var: String,
    /// The second variable: the values of a map or the items of a list. The first variable then has the keys or
    /// indexes.
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
