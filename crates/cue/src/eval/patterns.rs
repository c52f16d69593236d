//! Compiled regular expressions: few, small, and charged before they are built or used.
//!
//! Matching takes time proportional to the text and, in the worst case, to the automaton. Patterns that need a large
//! one are charged accordingly.

use std::collections::BTreeMap;

use regex::{Regex, RegexBuilder};

use super::{Evaluator, Res};

/// The maximum number of cached patterns: 64 of at most 512 KiB, with a cache of the same size, are 64 MiB.
const KEPT: usize = 64;
/// The automaton size of a typical pattern, such as one for DNS names, in bytes.
const SMALL: usize = 64 << 10;
/// The maximum automaton size, in bytes.
const LARGEST: usize = 512 << 10;
/// The cost of building a small and a large automaton, in steps of about a microsecond.
const BUILDING: [usize; 2] = [200, 10_000];
/// The number of text bytes per step, with a small and a large automaton.
const BYTES_PER_STEP: [usize; 2] = [64, 4];

/// Patterns by text.
#[derive(Debug, Default)]
pub(super) struct Patterns(BTreeMap<String, Pattern>);

#[derive(Clone, Debug)]
struct Pattern {
    built: Result<Regex, String>,
    /// Whether it needs a large automaton.
    large: bool,
}

impl Evaluator {
    /// Returns the compiled regular expression, to match a text of `length` bytes. The inner error says why the pattern
    /// is invalid.
    pub(crate) fn pattern(&mut self, text: &str, length: usize) -> Res<Result<Regex, String>> {
        let pattern = match self.patterns.0.get(text) {
            Some(known) => known.clone(),
            None => self.build(text)?,
        };
        self.charge(1 + length / BYTES_PER_STEP[usize::from(pattern.large)])?;
        Ok(pattern.built)
    }

    fn build(&mut self, text: &str) -> Res<Pattern> {
        self.charge(BUILDING[0] + text.len())?;
        let mut pattern = Pattern { built: compiled(text, SMALL), large: false };
        if pattern.built.is_err() {
            self.charge(BUILDING[1])?;
            pattern = Pattern { built: compiled(text, LARGEST), large: true };
        }
        if self.patterns.0.len() >= KEPT {
            self.patterns.0.clear();
        }
        self.patterns.0.insert(text.to_owned(), pattern.clone());
        Ok(pattern)
    }
}

fn compiled(text: &str, size: usize) -> Result<Regex, String> {
    let built = RegexBuilder::new(text).size_limit(size).dfa_size_limit(size).build();
    built.map_err(|error| format!("{} is not a regular expression: {error}", crate::label::quoted(text)))
}
