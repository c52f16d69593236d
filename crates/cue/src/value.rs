//! Atoms, kinds and bounds: the values that are not structs, lists or disjunctions.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use crate::label::quoted;
use crate::number::Number;

/// A concrete value without parts.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Atom {
    Null,
    Bool(bool),
    Number(Number),
    Text(Arc<str>),
    Bytes(Arc<[u8]>),
}

impl Atom {
    pub(crate) fn text(text: impl Into<Arc<str>>) -> Self {
        Self::Text(text.into())
    }

    pub(crate) fn int(value: i128) -> Self {
        Self::Number(Number::int(value))
    }

    pub(crate) fn kind(&self) -> Kind {
        match self {
            Self::Null => Kind::NULL,
            Self::Bool(_) => Kind::BOOL,
            Self::Number(number) if number.is_int() => Kind::INT,
            Self::Number(_) => Kind::FLOAT,
            Self::Text(_) => Kind::STRING,
            Self::Bytes(_) => Kind::BYTES,
        }
    }

    /// Returns whether unifying the two gives one of them: 1 and 1.0 are different.
    pub(crate) fn same(&self, other: &Self) -> bool {
        self.kind() == other.kind() && self == other
    }

    /// Compares atoms that have an order.
    pub(crate) fn compare(&self, other: &Self) -> Option<Ordering> {
        match (self, other) {
            (Self::Number(a), Self::Number(b)) => Some(a.compare(b)),
            (Self::Text(a), Self::Text(b)) => Some(a.cmp(b)),
            (Self::Bytes(a), Self::Bytes(b)) => Some(a.cmp(b)),
            (Self::Text(a), Self::Bytes(b)) => Some(a.as_bytes().cmp(b)),
            (Self::Bytes(a), Self::Text(b)) => Some((**a).cmp(b.as_bytes())),
            _ => None,
        }
    }
}

impl fmt::Display for Atom {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => out.write_str("null"),
            Self::Bool(value) => write!(out, "{value}"),
            Self::Number(number) => write!(out, "{number}"),
            Self::Text(text) => out.write_str(&quoted(text)),
            Self::Bytes(bytes) => write!(out, "'{}'", bytes.escape_ascii()),
        }
    }
}

/// A set of basic types.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Kind(u16);

impl Kind {
    /// `null`
    pub const NULL: Self = Self(1);
    /// `bool`
    pub const BOOL: Self = Self(2);
    /// `int`
    pub const INT: Self = Self(4);
    /// `float`: decimals that are not integers
    pub const FLOAT: Self = Self(8);
    /// `string`
    pub const STRING: Self = Self(16);
    /// `bytes`
    pub const BYTES: Self = Self(32);
    /// Structs.
    pub const STRUCT: Self = Self(64);
    /// Lists.
    pub const LIST: Self = Self(128);
    /// `number`: [`Kind::INT`] or [`Kind::FLOAT`]
    pub const NUMBER: Self = Self(4 | 8);
    /// `_`: every type
    pub const ANY: Self = Self(255);
    /// No type.
    pub const NONE: Self = Self(0);

    /// Returns the types that are in both sets.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Returns the types that are in either set.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns whether every type of `other` is in this set.
    pub fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns whether the set is empty.
    pub fn is_none(self) -> bool {
        self.0 == 0
    }

    /// Returns the predeclared type of this name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Some(match name {
            "null" => Self::NULL,
            "bool" => Self::BOOL,
            "int" => Self::INT,
            "float" => Self::FLOAT,
            "number" => Self::NUMBER,
            "string" => Self::STRING,
            "bytes" => Self::BYTES,
            _ => return None,
        })
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::ANY {
            return out.write_str("_");
        }
        let mut names = Vec::new();
        let all = [
            (Self::NULL, "null"),
            (Self::BOOL, "bool"),
            (Self::NUMBER, "number"),
            (Self::INT, "int"),
            (Self::FLOAT, "float"),
            (Self::STRING, "string"),
            (Self::BYTES, "bytes"),
            (Self::STRUCT, "struct"),
            (Self::LIST, "list"),
        ];
        let mut left = *self;
        for (kind, name) in all {
            if left.contains(kind) && !kind.is_none() {
                names.push(name);
                left = Self(left.0 & !kind.0);
            }
        }
        out.write_str(&if names.is_empty() { "_|_".to_owned() } else { names.join(" | ") })
    }
}

impl fmt::Debug for Kind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Kind({self})")
    }
}

/// The operator of a bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BoundOp {
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
    NotEqual,
    Match,
    NotMatch,
}

impl BoundOp {
    pub(crate) fn of(op: &str) -> Option<Self> {
        Some(match op {
            "<" => Self::Less,
            "<=" => Self::LessEqual,
            ">" => Self::Greater,
            ">=" => Self::GreaterEqual,
            "!=" => Self::NotEqual,
            "=~" => Self::Match,
            "!~" => Self::NotMatch,
            _ => return None,
        })
    }

    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Less => "<",
            Self::LessEqual => "<=",
            Self::Greater => ">",
            Self::GreaterEqual => ">=",
            Self::NotEqual => "!=",
            Self::Match => "=~",
            Self::NotMatch => "!~",
        }
    }

    /// Returns whether an order satisfies the bound.
    pub(crate) fn accepts(self, order: Ordering) -> bool {
        match self {
            Self::Less => order.is_lt(),
            Self::LessEqual => order.is_le(),
            Self::Greater => order.is_gt(),
            Self::GreaterEqual => order.is_ge(),
            Self::NotEqual => order.is_ne(),
            Self::Match | Self::NotMatch => false,
        }
    }
}

/// A bound such as `>=1` or `=~"^a"`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Bound {
    pub(crate) op: BoundOp,
    pub(crate) value: Atom,
}

impl Bound {
    /// Returns the types that a value within the bound can have.
    pub(crate) fn kind(&self) -> Kind {
        match (self.op, &self.value) {
            (BoundOp::NotEqual, Atom::Null) => Kind(Kind::ANY.0 & !Kind::NULL.0),
            (BoundOp::NotEqual, Atom::Bool(_)) => Kind::BOOL,
            (_, Atom::Number(_)) => Kind::NUMBER,
            (_, Atom::Text(_)) => Kind::STRING,
            (_, Atom::Bytes(_)) => Kind::BYTES,
            _ => Kind::NONE,
        }
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}{}", self.op.text(), self.value)
    }
}
