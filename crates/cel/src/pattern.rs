//! Regular expressions as v1.34 reads them: its classes `\d`, `\w`, `\s` and `\b` know ASCII only.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use regex::Regex;

/// As many compiled patterns as are kept. One is mostly some 10 KB, so they are some 5 MB; when there are
/// more, all are forgotten and made anew.
const KEPT: usize = 512;

static COMPILED: Mutex<BTreeMap<String, Arc<Regex>>> = Mutex::new(BTreeMap::new());

/// A pattern, ready to be matched; fails with what is wrong with it.
pub fn compile(pattern: &str) -> Result<Arc<Regex>, String> {
    if let Some(compiled) = COMPILED.lock().get(pattern) {
        return Ok(compiled.clone());
    }
    let compiled = Regex::new(&in_ascii(pattern)).map_err(|why| last_line(&why))?;
    let compiled = Arc::new(compiled);
    let mut all = COMPILED.lock();
    if all.len() >= KEPT {
        all.clear();
    }
    all.insert(pattern.to_owned(), compiled.clone());
    Ok(compiled)
}

/// The last line of what the parser says is what is wrong.
fn last_line(why: &regex::Error) -> String {
    let text = why.to_string();
    text.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned()
}

/// The pattern with its classes written out.
fn in_ascii(pattern: &str) -> String {
    let mut result = String::with_capacity(pattern.len());
    let mut is_in_class = false;
    let mut rest = pattern;
    while let Some(letter) = rest.chars().next() {
        if let Some(named) = named_class(rest).filter(|_| is_in_class) {
            result.push_str(named);
            rest = &rest[named.len()..];
            continue;
        }
        rest = &rest[letter.len_utf8()..];
        match letter {
            '\\' => match rest.chars().next() {
                Some(escaped) => {
                    result.push_str(&written_out(escaped, is_in_class));
                    rest = &rest[escaped.len_utf8()..];
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
                // A bracket that comes first stands for itself.
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
    result
}

/// `[:alpha:]` at the beginning of a text.
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
}
