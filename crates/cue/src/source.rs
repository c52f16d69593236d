//! Parsed sources, which can be evaluated any number of times.

use std::sync::Arc;

use crate::error::{Errors, Position};
use crate::limits::Limits;
use crate::resolve::{self, Resolved};
use crate::syntax::{ast, format, parser};

/// A parsed file. Cheap to clone, and may be shared between threads.
///
/// ```
/// use setpoint_cue::Source;
///
/// let source = Source::parse("a.cue", "import \"strings\"\na:strings.ToUpper(\"x\")")?;
/// assert_eq!(source.imports().collect::<Vec<_>>(), ["strings"]);
/// assert!(Source::parse("b.cue", "a: {").unwrap_err().to_string().contains("b.cue:1:5"));
/// # Ok::<(), setpoint_cue::Errors>(())
/// ```
#[derive(Clone, Debug)]
pub struct Source(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    file: ast::File,
    resolved: Resolved,
}

impl Source {
    /// Parses a file with the default limits. The name appears in the positions of errors.
    pub fn parse(name: &str, text: &str) -> Result<Self, Errors> {
        Self::parse_with(name, text, &Limits::default())
    }

    /// Parses a file.
    pub fn parse_with(name: &str, text: &str, limits: &Limits) -> Result<Self, Errors> {
        let file = parser::parse(name, text, limits)?;
        let resolved = resolve::resolve(&file)?;
        Ok(Self(Arc::new(Inner { file, resolved })))
    }

    /// Returns the name of the file.
    pub fn name(&self) -> &str {
        &self.0.file.name
    }

    /// Returns the name in the package clause.
    pub fn package(&self) -> Option<&str> {
        self.0.file.package.as_deref()
    }

    /// Returns the paths that the file imports.
    pub fn imports(&self) -> impl Iterator<Item = &str> {
        self.0.resolved.imports.keys().map(String::as_str)
    }

    /// Returns the names that the file uses and does not declare, such as `context`.
    pub fn free_names(&self) -> impl Iterator<Item = (&str, &Position)> {
        self.0.resolved.free.iter().map(|(name, position)| (name.as_str(), position))
    }

    /// Returns the source in a uniform layout: tabs, one declaration to a line, comments kept.
    pub fn format(&self) -> String {
        format::file(&self.0.file)
    }

    pub(crate) fn resolved(&self) -> &Resolved {
        &self.0.resolved
    }
}
