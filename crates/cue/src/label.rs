//! Labels of fields: regular, definitions, hidden fields, hidden definitions.

use std::fmt;
use std::sync::Arc;

use crate::syntax::lexer::is_letter;

/// The kind of a label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum LabelKind {
    Regular,
    Definition,
    Hidden,
    HiddenDefinition,
}

/// The label of a field. `#x` and `"#x"` are different labels.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Label {
    pub(crate) name: Arc<str>,
    pub(crate) kind: LabelKind,
}

impl std::hash::Hash for Label {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl Label {
    /// Returns the label of an unquoted name.
    pub(crate) fn ident(name: &str) -> Self {
        let kind = if name.starts_with("_#") {
            LabelKind::HiddenDefinition
        } else if name.starts_with('#') {
            LabelKind::Definition
        } else if name.starts_with('_') {
            LabelKind::Hidden
        } else {
            LabelKind::Regular
        };
        Self { name: name.into(), kind }
    }

    /// Returns the label of a quoted name.
    pub(crate) fn regular(name: impl Into<Arc<str>>) -> Self {
        Self { name: name.into(), kind: LabelKind::Regular }
    }

    pub(crate) fn is_regular(&self) -> bool {
        self.kind == LabelKind::Regular
    }

    pub(crate) fn is_definition(&self) -> bool {
        matches!(self.kind, LabelKind::Definition | LabelKind::HiddenDefinition)
    }

    pub(crate) fn is_hidden(&self) -> bool {
        matches!(self.kind, LabelKind::Hidden | LabelKind::HiddenDefinition)
    }
}

/// Returns whether a regular label can be written without quotes.
pub(crate) fn is_plain(name: &str) -> bool {
    let mut letters = name.chars();
    let starts = letters.next().is_some_and(|first| is_letter(first) && first != '_');
    starts && letters.all(|letter| is_letter(letter) || letter.is_numeric())
}

impl fmt::Display for Label {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_regular() && !is_plain(&self.name) {
            return write!(out, "{}", quoted(&self.name));
        }
        out.write_str(&self.name)
    }
}

/// Writes a string as a literal.
pub(crate) fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for letter in text.chars() {
        match letter {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            letter if letter.is_control() => out.push_str(&format!("\\U{:08x}", letter as u32)),
            letter => out.push(letter),
        }
    }
    out.push('"');
    out
}
