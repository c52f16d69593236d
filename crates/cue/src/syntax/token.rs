//! Tokens.

use crate::error::Position;
use crate::number::Number;

/// A token and its position.
#[derive(Clone, Debug)]
pub(crate) struct Token {
    pub(crate) kind: TokenKind,
    pub(crate) position: Position,
    /// Whether a line break or the start of the file comes before it.
    pub(crate) starts_line: bool,
}

/// The kind of a token.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum TokenKind {
    /// A name or keyword.
    Ident(String),
    Number(Number),
    /// A string or, with `bytes`, a byte sequence. More than one part means interpolation.
    Text {
        parts: Vec<TextPart>,
        bytes: bool,
    },
    /// An operator or punctuation.
    Op(&'static str),
    /// `_|_`
    Bottom,
    /// The text between `@` and the closing parenthesis: name and body.
    Attribute(String, String),
    /// A comment without its slashes.
    Comment(String),
    /// A comma; `auto` if it is a line break.
    Comma {
        auto: bool,
    },
    End,
}

/// A part of a string literal.
#[derive(Clone, Debug)]
pub(crate) enum TextPart {
    /// Literal bytes, UTF-8 in strings.
    Literal(Vec<u8>),
    /// The tokens of an interpolated expression.
    Expression(Vec<Token>),
}

impl PartialEq for TextPart {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Literal(a), Self::Literal(b)) => a == b,
            _ => false,
        }
    }
}

impl TokenKind {
    /// Describes the token for a message.
    pub(crate) fn describe(&self) -> String {
        match self {
            Self::Ident(name) => format!("`{name}`"),
            Self::Number(number) => format!("the number {number}"),
            Self::Text { bytes: false, .. } => "a string".to_owned(),
            Self::Text { .. } => "a byte sequence".to_owned(),
            Self::Op(op) => format!("`{op}`"),
            Self::Bottom => "`_|_`".to_owned(),
            Self::Attribute(name, _) => format!("the attribute @{name}"),
            Self::Comment(_) => "a comment".to_owned(),
            Self::Comma { auto: true } => "the end of the line".to_owned(),
            Self::Comma { .. } => "`,`".to_owned(),
            Self::End => "the end of the file".to_owned(),
        }
    }
}
