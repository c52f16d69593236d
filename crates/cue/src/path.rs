//! Paths: `a.b[0]."c d".#Def`.

use crate::error::{Error, ErrorKind};
use crate::label::Label;
use crate::syntax::lexer::is_letter;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Label(Label),
    Index(usize),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Path {
    pub(crate) steps: Vec<Step>,
}

impl Path {
    /// Parses a path. The empty path has no steps.
    pub(crate) fn parse(text: &str) -> Result<Self, Error> {
        let mut steps = Vec::new();
        let mut rest = text.trim();
        while !rest.is_empty() {
            let (step, tail) = step(rest).ok_or_else(|| invalid(text))?;
            steps.push(step);
            rest = match tail.strip_prefix('.') {
                Some("") => return Err(invalid(text)),
                Some(tail) => tail,
                None if tail.is_empty() || tail.starts_with('[') => tail,
                None => return Err(invalid(text)),
            };
        }
        Ok(Self { steps })
    }
}

fn invalid(text: &str) -> Error {
    let message = format!("{text:?} is not a path such as a.b[0].\"c d\"");
    Error::new(ErrorKind::Syntax, message)
}

fn step(text: &str) -> Option<(Step, &str)> {
    if let Some(inner) = text.strip_prefix('[') {
        let close = closing(inner)?;
        let (key, tail) = (&inner[..close], &inner[close + 1..]);
        let step = match key.strip_prefix('"') {
            Some(_) => Step::Label(Label::regular(unquoted(key)?)),
            None => Step::Index(key.trim().parse().ok()?),
        };
        return Some((step, tail));
    }
    if text.starts_with('"') {
        let end = string_end(text)?;
        return Some((Step::Label(Label::regular(unquoted(&text[..end])?)), &text[end..]));
    }
    // Names with dashes are accepted, as command lines have them.
    let is_part =
        |letter: char| is_letter(letter) || letter.is_numeric() || matches!(letter, '#' | '-' | '/');
    let end = text.find(|letter| !is_part(letter)).unwrap_or(text.len());
    (end > 0).then(|| (Step::Label(Label::ident(&text[..end])), &text[end..]))
}

fn closing(inner: &str) -> Option<usize> {
    let start = if inner.starts_with('"') { string_end(inner)? } else { 0 };
    inner[start..].find(']').map(|at| start + at)
}

/// Returns where a quoted string ends.
fn string_end(text: &str) -> Option<usize> {
    let mut escaped = false;
    for (at, letter) in text.char_indices().skip(1) {
        match letter {
            '"' if !escaped => return Some(at + 1),
            '\\' if !escaped => escaped = true,
            _ => escaped = false,
        }
    }
    None
}

fn unquoted(text: &str) -> Option<String> {
    serde_json::from_str(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_read_in_every_form() {
        let labels = |path: &str| -> Vec<String> {
            let steps = Path::parse(path).unwrap().steps;
            steps
                .iter()
                .map(|step| match step {
                    Step::Label(label) => label.name.to_string(),
                    Step::Index(index) => format!("[{index}]"),
                })
                .collect()
        };
        assert_eq!(labels("a.b[0][12].\"c d\".#E._f"), ["a", "b", "[0]", "[12]", "c d", "#E", "_f"]);
        assert_eq!(labels("a[\"x.y\"].z"), ["a", "x.y", "z"]);
        assert_eq!(labels(""), Vec::<String>::new());
        for wrong in ["a.", ".a", "a..b", "a[", "a[x]", "a]b", "\"a"] {
            assert!(Path::parse(wrong).is_err(), "{wrong}");
        }
    }
}
