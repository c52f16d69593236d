//! Field errors and field paths.

use std::fmt;

use serde_json::Value;

/// The path of a value in an object. Built on the stack, formatted only for an error.
///
/// ```
/// use setpoint_apiserver::field::Path;
/// let spec = Path::root("spec");
/// let containers = spec.child("containers");
/// assert_eq!(containers.index(0).child("name").to_string(), "spec.containers[0].name");
/// assert_eq!(Path::root("metadata").child("labels").key("a/b").to_string(), "metadata.labels[a/b]");
/// ```
#[derive(Clone, Copy)]
pub struct Path<'a> {
    parent: Option<&'a Path<'a>>,
    segment: Segment<'a>,
}

#[derive(Clone, Copy)]
enum Segment<'a> {
    Child(&'a str),
    Index(usize),
    Key(&'a str),
}

impl<'a> Path<'a> {
    pub const fn root(name: &'a str) -> Self {
        Self { parent: None, segment: Segment::Child(name) }
    }

    pub const fn child<'b>(&'b self, name: &'b str) -> Path<'b> {
        Path { parent: Some(self), segment: Segment::Child(name) }
    }

    pub const fn index(&self, index: usize) -> Path<'_> {
        Path { parent: Some(self), segment: Segment::Index(index) }
    }

    pub const fn key<'b>(&'b self, key: &'b str) -> Path<'b> {
        Path { parent: Some(self), segment: Segment::Key(key) }
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(parent) = self.parent {
            parent.fmt(f)?;
        }
        match self.segment {
            // The whole object, as v1.34 writes it.
            Segment::Child("") => f.write_str("[]"),
            Segment::Child(name) if self.parent.is_some() => write!(f, ".{name}"),
            Segment::Child(name) => f.write_str(name),
            Segment::Index(index) => write!(f, "[{index}]"),
            Segment::Key(key) => write!(f, "[{key}]"),
        }
    }
}

/// The reasons in `details.causes`, under v1.34's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    Required,
    Invalid,
    NotSupported,
    Duplicate,
    Forbidden,
    TooLong,
    TooMany,
    NotFound,
    TypeInvalid,
    Internal,
}

/// An error about one field.
#[derive(Clone, Debug, PartialEq)]
pub struct FieldError {
    pub reason: Reason,
    pub field: String,
    /// The invalid value, if the message shows it.
    pub value: Option<Value>,
    pub detail: String,
}

/// Maximum length of a path in messages, and as a prefix of longer paths.
const SHOWN_PATH: usize = 1 << 10;

/// Truncates a path for display. Clients choose the names in it, and everything below repeats it: a name of a megabyte
/// would be copied for each of a hundred thousand fields.
pub(crate) fn shown_path(path: &str) -> &str {
    let mut end = path.len().min(SHOWN_PATH);
    while !path.is_char_boundary(end) {
        end -= 1;
    }
    &path[..end]
}

/// Maximum number of errors per object. Each takes about 300 bytes, twice in the response: 600 KB.
pub(crate) const MAX_ERRORS: usize = 1_000;
/// Maximum total bytes of their values and details: an error may show a whole list, and a body of 3 MiB has room for a
/// list in which every item is invalid.
const MAX_BYTES: usize = 4 << 20;

/// All errors of an object, in v1.34's order, up to a limit. An object with more is still rejected, and the response
/// lists the first ones.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Errors(pub Vec<FieldError>, Shown);

/// The number of bytes of values and details so far. Ignored when comparing errors.
#[derive(Clone, Copy, Debug, Default)]
struct Shown(usize);

impl PartialEq for Shown {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl From<Vec<FieldError>> for Errors {
    fn from(errors: Vec<FieldError>) -> Self {
        Self(errors, Shown::default())
    }
}

impl Errors {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether no more errors are recorded. Checks that show long values can stop then.
    pub fn is_full(&self) -> bool {
        self.0.len() >= MAX_ERRORS || self.1.0 >= MAX_BYTES
    }

    pub fn push(&mut self, reason: Reason, path: &Path<'_>, value: Option<Value>, detail: impl Into<String>) {
        if self.is_full() {
            return;
        }
        let detail = detail.into();
        self.1.0 += detail.len() + value.as_ref().map_or(0, weight);
        self.0.push(FieldError { reason, field: path.to_string(), value, detail });
    }

    pub fn required(&mut self, path: &Path<'_>, detail: impl Into<String>) {
        self.push(Reason::Required, path, None, detail);
    }

    pub fn invalid(&mut self, path: &Path<'_>, value: impl Into<Value>, detail: impl Into<String>) {
        self.push(Reason::Invalid, path, Some(value.into()), detail);
    }

    pub fn forbidden(&mut self, path: &Path<'_>, detail: impl Into<String>) {
        self.push(Reason::Forbidden, path, None, detail);
    }

    pub fn duplicate(&mut self, path: &Path<'_>, value: impl Into<Value>) {
        self.push(Reason::Duplicate, path, Some(value.into()), "");
    }

    /// Adds an error that lists `supported` in the given order, quoted.
    pub fn not_supported(&mut self, path: &Path<'_>, value: impl Into<Value>, supported: &[&str]) {
        let quoted: Vec<String> = supported.iter().map(|s| format!("{s:?}")).collect();
        self.push(
            Reason::NotSupported,
            path,
            Some(value.into()),
            format!("supported values: {}", quoted.join(", ")),
        );
    }

    pub fn extend(&mut self, other: Self) {
        self.0.extend(other.0);
        self.1.0 += other.1.0;
    }
}

/// Estimates the size of a value in bytes.
fn weight(value: &Value) -> usize {
    const NODE: usize = std::mem::size_of::<Value>();
    NODE + match value {
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(weight).sum(),
        Value::Object(fields) => fields.iter().map(|(name, value)| name.len() + weight(value)).sum(),
        _ => 0,
    }
}
