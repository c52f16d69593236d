//! Errors: a message, positions in the source, a path, and a hint.
//!
//! The kinds of "not a value" are kept apart: a conflict can never be repaired by adding data, an incomplete value can.

use std::fmt;
use std::sync::Arc;

/// A position in a source file. Lines and columns start at 1; columns count characters.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// The name of the file, as given to the parser.
    pub file: Arc<str>,
    /// The line.
    pub line: u32,
    /// The column.
    pub column: u32,
}

impl Position {
    /// Creates a position.
    pub(crate) fn new(file: &Arc<str>, line: u32, column: u32) -> Self {
        Self { file: file.clone(), line, column }
    }
}

impl fmt::Display for Position {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}:{}:{}", self.file, self.line, self.column)
    }
}

/// The kind of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The text is not valid CUE.
    Syntax,
    /// A name cannot be resolved, or a construct is used where it is not allowed.
    Reference,
    /// Values conflict. More data cannot fix it.
    Conflict,
    /// The template raised the error with `error(…)`.
    User,
    /// A structure contains itself, so it would be infinite.
    StructuralCycle,
    /// A value is missing. It may still be supplied.
    Incomplete,
    /// A field that is optional and unset, or does not exist, was used.
    Absent,
    /// Values depend on each other, and none of them is set.
    Cycle,
    /// A limit was reached: the evaluation was stopped.
    Limit,
}

impl ErrorKind {
    /// Returns whether more data could still turn the error into a value.
    pub fn is_incomplete(self) -> bool {
        matches!(self, Self::Incomplete | Self::Absent | Self::Cycle)
    }
}

/// One error.
///
/// `Display` gives the path, the message, the hint and the positions on one line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Error {
    /// What kind of error it is.
    pub kind: ErrorKind,
    /// The path of the value, such as `output.spec.replicas`. Empty for syntax errors.
    pub path: String,
    /// The message.
    pub message: String,
    /// The hint, if there is one.
    pub hint: Option<String>,
    /// The positions in the source, the most relevant first.
    pub positions: Vec<Position>,
    /// Whether the message has the path where the error occurred, because `path` is where it has an effect.
    pub(crate) relayed: bool,
}

impl Error {
    /// Creates an error without path and hint.
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            path: String::new(),
            message: message.into(),
            hint: None,
            positions: Vec::new(),
            relayed: false,
        }
    }

    pub(crate) fn at(mut self, position: &Position) -> Self {
        if self.positions.len() < MAX_POSITIONS && !self.positions.contains(position) {
            self.positions.push(position.clone());
        }
        self
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Returns the first position.
    pub fn position(&self) -> Option<&Position> {
        self.positions.first()
    }
}

/// The maximum number of positions of an error: two that conflict, and the references that led there.
const MAX_POSITIONS: usize = 6;

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.path.is_empty() {
            write!(out, "{}: ", self.path)?;
        }
        write!(out, "{}", self.message)?;
        if let Some(hint) = &self.hint {
            write!(out, "; {hint}")?;
        }
        if !self.positions.is_empty() {
            let places: Vec<String> = self.positions.iter().map(Position::to_string).collect();
            write!(out, " ({})", places.join(", "))?;
        }
        Ok(())
    }
}

/// Several errors, at least one. `Display` gives one line each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Errors(Vec<Error>);

impl Errors {
    /// The maximum number of collected errors.
    pub(crate) const MAX: usize = 20;

    pub(crate) fn new(errors: Vec<Error>) -> Option<Self> {
        (!errors.is_empty()).then_some(Self(errors))
    }

    /// Returns the errors, in source order of the values.
    pub fn all(&self) -> &[Error] {
        &self.0
    }

    /// Returns the first error.
    pub fn first(&self) -> &Error {
        &self.0[0]
    }
}

impl From<Error> for Errors {
    fn from(error: Error) -> Self {
        Self(vec![error])
    }
}

impl std::error::Error for Errors {}

impl fmt::Display for Errors {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<String> = self.0.iter().map(Error::to_string).collect();
        out.write_str(&lines.join("\n"))
    }
}
