//! Regular expressions as in v1.34: the classes `\d`, `\w`, `\s` and `\b` are ASCII only, and counted repetitions are
//! limited to 1000, with nested counts multiplied.
//!
//! Patterns come from users, so the size of a compiled pattern and of the cache is bounded.

use std::sync::Arc;

use parking_lot::Mutex;
use regex::{Regex, RegexBuilder};

mod cache;
mod repeats;

use cache::Cache;
use repeats::Repeats;

/// Size limits of a compiled program. They are tried in turn, which gives the approximate size of a program. Programs
/// above the last limit are rejected.
const PROGRAM_BYTES: [usize; 4] = [16 << 10, 128 << 10, 1 << 20, 4 << 20];
/// The size limit of a lazily built automaton during matching. Without enough room, matching is slower.
const AUTOMATON_BYTES: usize = 64 << 10;
/// The maximum nesting depth of groups, because the compiler is recursive.
const DEPTH: u32 = 250;

static COMPILED: Mutex<Cache> = Mutex::new(Cache::new());

/// Compiles a pattern, or returns the error message.
pub fn compile(pattern: &str) -> Result<Arc<Regex>, String> {
    if let Some(compiled) = COMPILED.lock().get(pattern) {
        return Ok(compiled);
    }
    let (compiled, bytes) = build(&in_ascii(pattern)?)?;
    let compiled = Arc::new(compiled);
    COMPILED.lock().insert(pattern, compiled.clone(), bytes);
    Ok(compiled)
}

/// Compiles a pattern. Also returns its maximum size in bytes: the programs for both directions and as much again to
/// run them, and an automaton for each direction.
fn build(pattern: &str) -> Result<(Regex, usize), String> {
    for size in PROGRAM_BYTES {
        let mut builder = RegexBuilder::new(pattern);
        builder.size_limit(size).dfa_size_limit(AUTOMATON_BYTES).nest_limit(DEPTH);
        match builder.build() {
            Ok(compiled) => return Ok((compiled, 4 * size + 2 * AUTOMATON_BYTES)),
            Err(regex::Error::CompiledTooBig(_)) => {}
            Err(why) => return Err(problem(&why)),
        }
    }
    Err("expression too large".into())
}

/// Returns the reason a pattern is invalid: the last line of the parser's message.
fn problem(why: &regex::Error) -> String {
    let text = why.to_string();
    match text.lines().last().unwrap_or_default().trim_start_matches("error: ") {
        deep if deep.starts_with("exceed the maximum number of nested") => {
            "expression nests too deeply".into()
        }
        other => other.to_owned(),
    }
}

/// Rewrites the pattern with ASCII classes. Fails if it has too many repetitions.
fn in_ascii(pattern: &str) -> Result<String, String> {
    let mut result = String::with_capacity(pattern.len());
    let mut repeats = Repeats::default();
    let mut is_in_class = false;
    let mut rest = pattern;
    while let Some(letter) = rest.chars().next() {
        if let Some(named) = named_class(rest).filter(|_| is_in_class) {
            result.push_str(named);
            rest = &rest[named.len()..];
            continue;
        }
        if !is_in_class && letter == '{' {
            match repeats.count(rest)? {
                Some(length) => {
                    result.push_str(&rest[..length]);
                    rest = &rest[length..];
                }
                // Braces that are not a repetition are literal.
                None => {
                    result.push_str("\\{");
                    rest = &rest[1..];
                }
            }
            continue;
        }
        if !is_in_class {
            repeats.see(letter);
        }
        rest = &rest[letter.len_utf8()..];
        match letter {
            '\\' => match rest.chars().next() {
                Some(escaped) => {
                    result.push_str(&written_out(escaped, is_in_class));
                    rest = &rest[escaped.len_utf8()..];
                    let braces = rest.find('}').filter(|_| matches!(escaped, 'p' | 'P' | 'x'));
                    if let Some(end) = braces.filter(|_| rest.starts_with('{')) {
                        result.push_str(&rest[..=end]);
                        rest = &rest[end + 1..];
                    }
                }
                None => result.push('\\'),
            },
            '[' if is_in_class => result.push_str("\\["),
            '[' => {
                is_in_class = true;
                result.push('[');
                if let Some(tail) = rest.strip_prefix('^') {
                    result.push('^');
                    rest = tail;
                }
                // A bracket that comes first is literal.
                if let Some(tail) = rest.strip_prefix(']') {
                    result.push_str("\\]");
                    rest = tail;
                }
            }
            ']' => {
                is_in_class = false;
                result.push(']');
            }
            '&' | '~' if is_in_class => result.extend(['\\', letter]),
            letter => result.push(letter),
        }
    }
    Ok(result)
}

/// Matches a class such as `[:alpha:]` at the start of a text.
fn named_class(text: &str) -> Option<&str> {
    let name = text.strip_prefix("[:")?;
    let end = name.find(|letter: char| !letter.is_ascii_lowercase() && letter != '^')?;
    name[end..].starts_with(":]").then(|| &text[..end + 4])
}

fn written_out(escaped: char, is_in_class: bool) -> String {
    let class = match escaped.to_ascii_lowercase() {
        'd' => "0-9",
        'w' => "0-9A-Za-z_",
        's' => "\\t\\n\\f\\r ",
        'b' if !is_in_class => return format!("(?-u:\\{escaped})"),
        _ => return format!("\\{escaped}"),
    };
    match (escaped.is_ascii_uppercase(), is_in_class) {
        (false, true) => class.to_owned(),
        (false, false) => format!("[{class}]"),
        (true, _) => format!("[^{class}]"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_know_ascii_only() {
        let matches = |pattern: &str, text: &str| compile(pattern).unwrap().is_match(text);
        assert!(matches(r"^\d+$", "123") && !matches(r"^\d+$", "١٢٣"));
        assert!(matches(r"^[\w.-]+$", "a_b.c-1") && !matches(r"^[\w.-]+$", "é"));
        assert!(matches(r"^[^\s]+$", "é") && matches(r"^\S+$", "é"));
        assert!(
            matches(r"\bfoo\b", "a foo b") && matches("^[]a]+$", "]a") && matches("^[[:alpha:]]+$", "ab")
        );
        assert!(matches(r"^[a\D]+$", "a-") && matches("^[a[]$", "["));
        assert!(matches("^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$", "Pending") && matches("^[a-c:]+$", "a:"));
        assert!(matches("^[a-z&&~]+$", "a&~") && matches(r"^[\]\[]+$", "[]"));
        assert!(compile("(").is_err());
    }

    #[test]
    fn a_counted_repetition_goes_to_a_thousand() {
        for good in
            ["a{1000}", "(a{10}){100}", "(a{999}|b)c{1000}", "a{", "a{,3}", "a{x}", r"a\{1001}", "[{1001}]"]
        {
            assert!(compile(good).is_ok(), "{good}");
        }
        for bad in ["a{1001}", "a{0,1001}", "(a{500}){3}", "((a{10}){10}b){11}", "a{5,2}", "a{99999999999}"] {
            assert!(compile(bad).unwrap_err().starts_with("invalid repeat count"), "{bad}");
        }
        let matches = |pattern: &str, text: &str| compile(pattern).unwrap().is_match(text);
        assert!(
            matches("^a{,3}$", "a{,3}")
                && matches(r"^\x{41}\p{Greek}{2}$", "Aαβ")
                && matches("^a{2,}$", "aaa")
                && !matches("^a{2}$", "aaa")
        );
    }

    #[test]
    fn a_pattern_that_is_too_large_is_refused() {
        let large = r"(\pL\pN\pS\pM){1000}";
        assert_eq!(compile(large).unwrap_err(), "expression too large");
        let deep = format!("{}a{}", "(".repeat(5000), ")".repeat(5000));
        assert_eq!(compile(&deep).unwrap_err(), "expression nests too deeply");
    }
}
