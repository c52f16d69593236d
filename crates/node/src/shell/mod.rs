//! The supported subset of the shell language: its syntax tree. Pure.
//!
//! ```text
//!  list       pipeline ((";" | newline | "&&" | "||") pipeline)*
//!  pipeline   "!"? stage ("|" stage)*
//!  stage      (command | if | while | until | for | case | "{" list "}" | "(" list ")" | function) redirect*
//!  command    name=word* word*
//!  word       text, 'text', "text", $name, ${name…}, $(list), `list`, $((arithmetic))
//! ```
//!
//! Background jobs, job control and arrays are not supported. A script that uses them is not parsed.
//!
//! ```text
//!  lexer.rs   characters → tokens, with their words
//!  parser.rs  tokens → list
//! ```

mod lexer;
mod parser;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;

pub(crate) use parser::parse;

/// Pipelines in order, each with the required result of the one before.
pub(crate) type List = Vec<Item>;

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Item {
    pub(crate) when: When,
    pub(crate) pipeline: Pipeline,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum When {
    Always,
    Succeeded,
    Failed,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Pipeline {
    pub(crate) is_negated: bool,
    pub(crate) stages: Vec<Stage>,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Stage {
    pub(crate) step: Step,
    pub(crate) redirects: Vec<Redirect>,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Command(Command),
    /// Conditions with their branches, and the else branch.
    If(Vec<(List, List)>, List),
    While {
        is_until: bool,
        condition: List,
        body: List,
    },
    For {
        variable: String,
        /// The positional parameters, if there are none.
        words: Option<Vec<Word>>,
        body: List,
    },
    Case {
        subject: Word,
        arms: Vec<(Vec<Word>, List)>,
    },
    Group(List),
    Subshell(List),
    Function(String, Arc<Stage>),
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Command {
    pub(crate) assigned: Vec<(String, Word)>,
    pub(crate) words: Vec<Word>,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Redirect {
    /// 0, 1 or 2.
    pub(crate) stream: u8,
    pub(crate) target: Target,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Target {
    Read(Word),
    Write(Word),
    Append(Word),
    /// Where another stream goes.
    Same(u8),
    /// A here-document.
    Text(Word),
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Word {
    pub(crate) parts: Vec<Part>,
    /// A word with quotes exists even if it is empty.
    pub(crate) has_quotes: bool,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Text { text: String, is_quoted: bool },
    Expanded { expansion: Expansion, is_quoted: bool },
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Expansion {
    /// A variable, or a parameter such as `?`, `#` and `1`.
    Variable(String),
    /// `${#name}`.
    Length(String),
    /// `${name:-word}` and the others with an operator.
    Modified {
        name: String,
        operator: Operator,
        word: Word,
    },
    /// Command substitution.
    Printed(List),
    Arithmetic(Word),
}

/// What to do with a variable. Those with `or_empty` treat an empty variable as one that is not set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operator {
    /// `-`
    Default { or_empty: bool },
    /// `=`
    Assign { or_empty: bool },
    /// `+`
    Alternative { or_empty: bool },
    /// `?`
    Require { or_empty: bool },
    /// `#` and `##`
    WithoutPrefix { is_longest: bool },
    /// `%` and `%%`
    WithoutSuffix { is_longest: bool },
}

impl Word {
    /// Returns a word that stands for itself.
    pub(crate) fn literal(text: &str) -> Self {
        Self { parts: vec![Part::Text { text: text.to_owned(), is_quoted: true }], has_quotes: true }
    }

    /// Returns the word if it is literal and unquoted.
    pub(crate) fn bare(&self) -> Option<&str> {
        match &*self.parts {
            [Part::Text { text, is_quoted: false }] if !self.has_quotes => Some(text),
            _ => None,
        }
    }
}

/// Returns a script that runs one command.
pub(crate) fn command(words: &[String]) -> List {
    let words = words.iter().map(|word| Word::literal(word)).collect();
    let step = Step::Command(Command { words, ..Command::default() });
    let stages = vec![Stage { step, redirects: Vec::new() }];
    vec![Item { when: When::Always, pipeline: Pipeline { is_negated: false, stages } }]
}

/// Why a script is not parsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SyntaxError {
    /// It ends too early: the next line may complete it.
    Incomplete,
    Unexpected(String),
    Unsupported(&'static str),
}

impl fmt::Display for SyntaxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Incomplete => f.write_str("syntax error: unexpected end of file"),
            Self::Unexpected(word) => write!(f, "syntax error: unexpected {word:?}"),
            Self::Unsupported(what) => write!(f, "syntax error: a simulated shell does not support {what}"),
        }
    }
}

/// The maximum nesting depth of a script, which bounds the stack of its parser and of its drop.
const MAX_DEPTH: usize = 24;
