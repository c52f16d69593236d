//! `grep`.
//!
//! Invariant: searching counts as work, by the size of the compiled pattern and the searched text.

use regex::bytes::{Regex, RegexBuilder};

use crate::process::{Done, Io, Shell, Stop};

/// The maximum size of compiled patterns, and their maximum cost per byte of text. A pattern of 1 MiB has some 30,000
/// states, of which a byte can visit all.
const SIZES: [(usize, usize); 3] = [(16 << 10, 4), (128 << 10, 32), (1 << 20, 256)];

/// How much is printed at once.
const PRINTED_AT_ONCE: usize = 32 << 10;

/// In the worst case, each match of `-o` searches the rest of the line again. Most search less.
const OFTEN_UNREAD: usize = 8;

impl Shell {
    pub(super) async fn grep(&mut self, command: &str, arguments: &[String], io: &Io) -> Done {
        let Some(search) = Search::of(command, arguments) else {
            return self.usage(io, "grep: unrecognized option or pattern").await.map(|_| 2);
        };
        let (mut is_found, mut failed) = (false, false);
        let names = if search.names.is_empty() { vec!["-".to_owned()] } else { search.names.clone() };
        for name in &names {
            let Some(content) = self.content("grep", name, io).await? else {
                failed = true;
                continue;
            };
            let prefix = if names.len() > 1 && !search.has('h') { format!("{name}:") } else { String::new() };
            let matches = self.matches(&search, &content, &prefix, io).await?;
            is_found |= matches > 0;
            if search.has('q') && is_found {
                return Ok(0);
            }
            match (search.has('q'), search.has('l'), search.has('c')) {
                (false, true, _) if matches > 0 => self.print(io, format!("{name}\n")).await?,
                (false, false, true) => self.print(io, format!("{prefix}{matches}\n")).await?,
                _ => {}
            }
        }
        Ok(if failed { 2 } else { i32::from(!is_found) })
    }

    /// Prints the lines that match, unless only their number is wanted, which it returns.
    async fn matches(&mut self, search: &Search, text: &[u8], prefix: &str, io: &Io) -> Result<usize, Stop> {
        let (mut printed, mut count) = (Vec::new(), 0);
        let lines = text.strip_suffix(b"\n").unwrap_or(text).split(|byte| *byte == b'\n');
        for (at, line) in lines.enumerate().filter(|_| !text.is_empty()) {
            self.machine.owe(line.len().saturating_mul(search.cost));
            self.pay().await?;
            if search.pattern.is_match(line) == search.has('v') {
                continue;
            }
            count += 1;
            if ['q', 'l', 'c'].into_iter().any(|quiet| search.has(quiet)) {
                continue;
            }
            let number = if search.has('n') { format!("{}:", at + 1) } else { String::new() };
            let start = format!("{prefix}{number}");
            let mut from = 0;
            while let Some((found, rest)) = search.next(line, from) {
                for part in [start.as_bytes(), found, b"\n"] {
                    printed.extend_from_slice(part);
                }
                if printed.len() > PRINTED_AT_ONCE {
                    self.print(io, std::mem::take(&mut printed)).await?;
                }
                self.machine.owe((line.len() - from).saturating_mul(search.cost) / OFTEN_UNREAD);
                self.pay().await?;
                let Some(rest) = rest else { break };
                from = rest;
            }
        }
        self.print(io, printed).await?;
        Ok(count)
    }
}

/// The pattern of `grep`.
struct Search {
    flags: String,
    pattern: Regex,
    /// The cost of a byte of text, in copied bytes.
    cost: usize,
    names: Vec<String>,
}

impl Search {
    fn of(command: &str, arguments: &[String]) -> Option<Self> {
        let (mut letters, mut others, mut pattern) = (String::new(), Vec::new(), None);
        let mut words = arguments.iter();
        while let Some(word) = words.next() {
            match word.strip_prefix('-') {
                Some("e") => pattern = Some(words.next()?.clone()),
                Some("-") => others.extend(words.by_ref().cloned()),
                Some(found) if !found.is_empty() => {
                    if found.chars().any(|letter| !"ivcqnEFoxwlhHs".contains(letter)) {
                        return None;
                    }
                    letters.push_str(found);
                }
                _ => others.push(word.clone()),
            }
        }
        let text = match pattern {
            Some(pattern) => pattern,
            None if others.is_empty() => return None,
            None => others.remove(0),
        };
        let is_literal = command == "fgrep" || letters.contains('F');
        let is_extended = command == "egrep" || letters.contains('E');
        let mut text = match (is_literal, is_extended) {
            (true, _) => regex::escape(&text),
            (false, true) => text,
            (false, false) => extended(&text),
        };
        if letters.contains('x') {
            text = format!("^(?:{text})$");
        }
        if letters.contains('w') {
            text = format!("\\b(?:{text})\\b");
        }
        let (pattern, cost) = compiled(&text, letters.contains('i'))?;
        Some(Self { flags: letters, pattern, cost, names: others })
    }

    /// Returns the next part of a matching line to print, and where to continue.
    fn next<'l>(&self, line: &'l [u8], from: usize) -> Option<(&'l [u8], Option<usize>)> {
        if !self.has('o') || self.has('v') {
            return Some((line, None));
        }
        let found = self.pattern.find_at(line, from)?;
        // An empty match is followed by the next character.
        let next = if found.is_empty() { found.end() + 1 } else { found.end() };
        Some((found.as_bytes(), (next <= line.len()).then_some(next)))
    }

    fn has(&self, letter: char) -> bool {
        self.flags.contains(letter)
    }
}

/// Compiles a pattern. `None` if it is malformed or too large.
fn compiled(text: &str, ignores_case: bool) -> Option<(Regex, usize)> {
    SIZES.into_iter().find_map(|(size, cost)| {
        let mut builder = RegexBuilder::new(text);
        builder.case_insensitive(ignores_case).size_limit(size).dfa_size_limit(size);
        Some((builder.build().ok()?, cost))
    })
}

/// Turns a basic regular expression into an extended one: `\(`, `\|` and others are the operators, not `(` and `|`.
fn extended(basic: &str) -> String {
    let mut extended = String::new();
    let mut characters = basic.chars();
    while let Some(c) = characters.next() {
        match c {
            '(' | ')' | '|' | '{' | '}' | '+' | '?' => extended.extend(['\\', c]),
            '\\' => match characters.next() {
                Some(operator @ ('(' | ')' | '|' | '{' | '}' | '+' | '?')) => extended.push(operator),
                Some(other) => extended.extend(['\\', other]),
                None => extended.push('\\'),
            },
            other => extended.push(other),
        }
    }
    extended
}
