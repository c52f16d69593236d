//! Strings.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use regex::Regex;

use super::{Outcome, failed, formatted};
use crate::eval::EvalError;
use crate::pattern;
use crate::value::Val;

pub(super) fn call(function: &str, args: &[Val]) -> Option<Outcome> {
    Some(match (function, args) {
        ("matches", [Val::String(text), Val::String(pattern)]) => {
            compiled(pattern).map(|pattern| Val::Bool(pattern.is_match(text)))
        }
        ("contains", [Val::String(text), Val::String(part)]) => Ok(Val::Bool(text.contains(&**part))),
        ("startsWith", [Val::String(text), Val::String(part)]) => Ok(Val::Bool(text.starts_with(&**part))),
        ("endsWith", [Val::String(text), Val::String(part)]) => Ok(Val::Bool(text.ends_with(&**part))),
        ("find", [Val::String(text), Val::String(pattern)]) => {
            compiled(pattern).map(|pattern| Val::text(pattern.find(text).map_or("", |found| found.as_str())))
        }
        ("findAll", [Val::String(text), Val::String(pattern)]) => find_all(text, pattern, -1),
        ("findAll", [Val::String(text), Val::String(pattern), Val::Int(most)]) => {
            find_all(text, pattern, *most)
        }
        ("charAt", [Val::String(text), Val::Int(index)]) => char_at(text, *index),
        ("indexOf", [Val::String(text), Val::String(part)]) => index_of(text, part, 0),
        ("indexOf", [Val::String(text), Val::String(part), Val::Int(from)]) => index_of(text, part, *from),
        ("lastIndexOf", [Val::String(text), Val::String(part)]) => last_index_of(text, part, None),
        ("lastIndexOf", [Val::String(text), Val::String(part), Val::Int(to)]) => {
            last_index_of(text, part, Some(*to))
        }
        ("lowerAscii", [Val::String(text)]) => Ok(Val::text(text.to_ascii_lowercase())),
        ("upperAscii", [Val::String(text)]) => Ok(Val::text(text.to_ascii_uppercase())),
        ("replace", [Val::String(text), Val::String(old), Val::String(new)]) => {
            replace(text, old, new, usize::MAX)
        }
        ("replace", [Val::String(text), Val::String(old), Val::String(new), Val::Int(most)]) => {
            replace(text, old, new, usize::try_from(*most).unwrap_or(usize::MAX))
        }
        ("split", [Val::String(text), Val::String(separator)]) => Ok(split(text, separator, -1)),
        ("split", [Val::String(text), Val::String(separator), Val::Int(most)]) => {
            Ok(split(text, separator, *most))
        }
        ("substring", [Val::String(text), Val::Int(from)]) => substring(text, *from, None),
        ("substring", [Val::String(text), Val::Int(from), Val::Int(to)]) => substring(text, *from, Some(*to)),
        ("trim", [Val::String(text)]) => Ok(Val::text(text.trim())),
        ("join", [Val::List(list)]) => join(&list.items, ""),
        ("join", [Val::List(list), Val::String(separator)]) => join(&list.items, separator),
        ("jsonpatch.escapeKey", [Val::String(text)]) => {
            Ok(Val::text(text.replace('~', "~0").replace('/', "~1")))
        }
        ("strings.quote", [Val::String(text)]) => Ok(Val::text(format!("{text:?}"))),
        ("format", [Val::String(text), Val::List(values)]) => formatted::format(text, &values.items),
        _ => return None,
    })
}

pub(crate) fn from_base64(text: &str) -> Option<Vec<u8>> {
    STANDARD.decode(text).ok()
}

pub(crate) fn to_base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

fn compiled(text: &str) -> Result<Arc<Regex>, EvalError> {
    pattern::compile(text).map_err(|why| failed(format!("error parsing regexp: {why}: `{text}`")))
}

fn find_all(text: &str, pattern: &str, most: i64) -> Outcome {
    let pattern = compiled(pattern)?;
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    Ok(Val::list(pattern.find_iter(text).take(most).map(|found| Val::text(found.as_str())).collect()))
}

/// The maximum length of a string that a replacement or a list creates. Its cost is only known afterwards, and replacing every
/// character of a megabyte with another string could use all memory.
pub(super) const LONGEST: usize = 16 << 20;

fn replace(text: &str, old: &str, new: &str, most: usize) -> Outcome {
    let times = text.matches(old).take(most).count();
    let length = text.len().saturating_add(times.saturating_mul(new.len()));
    match length <= LONGEST {
        true => Ok(Val::text(text.replacen(old, new, most))),
        false => Err(EvalError::TooExpensive),
    }
}

fn char_at(text: &str, index: i64) -> Outcome {
    let letters = text.chars().count();
    match usize::try_from(index) {
        Ok(index) if index == letters => Ok(Val::text("")),
        Ok(index) if index < letters => Ok(Val::text(text.chars().skip(index).take(1).collect::<String>())),
        _ => Err(failed(format!("index out of range: {index}"))),
    }
}

fn index_of(text: &str, part: &str, from: i64) -> Outcome {
    let start = byte_of(text, from).ok_or_else(|| failed(format!("index out of range: {from}")))?;
    let found = text[start..].find(part).map(|at| letters_before(text, start + at));
    Ok(Val::Int(found.unwrap_or(-1)))
}

fn last_index_of(text: &str, part: &str, to: Option<i64>) -> Outcome {
    let end = match to {
        None => text.len(),
        Some(to) => byte_of(text, to).ok_or_else(|| failed(format!("index out of range: {to}")))?,
    };
    // A match may start at the end index and extend beyond it.
    let end = (end + part.len()).min(text.len());
    let end = (0..=end).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    let found = text[..end].rfind(part).map(|at| letters_before(text, at));
    Ok(Val::Int(found.unwrap_or(-1)))
}

/// Returns the byte offset of a character index. The index after the last character is the end of the text.
fn byte_of(text: &str, index: i64) -> Option<usize> {
    let ends = std::iter::once(text.len());
    text.char_indices().map(|(at, _)| at).chain(ends).nth(usize::try_from(index).ok()?)
}

fn letters_before(text: &str, at: usize) -> i64 {
    text[..at].chars().count() as i64
}

fn split(text: &str, separator: &str, most: i64) -> Val {
    let parts: Vec<String> = match (separator, usize::try_from(most)) {
        (_, Ok(0)) => Vec::new(),
        ("", Ok(most)) => {
            let mut parts: Vec<String> = text.chars().take(most - 1).map(String::from).collect();
            let rest: String = text.chars().skip(most - 1).collect();
            parts.extend(Some(rest).filter(|rest| !rest.is_empty()));
            parts
        }
        ("", Err(_)) => text.chars().map(String::from).collect(),
        (separator, Ok(most)) => text.splitn(most, separator).map(Into::into).collect(),
        (separator, Err(_)) => text.split(separator).map(Into::into).collect(),
    };
    Val::list(parts.into_iter().map(Val::text).collect())
}

fn substring(text: &str, from: i64, to: Option<i64>) -> Outcome {
    let letters: Vec<char> = text.chars().collect();
    let place = |index: i64| usize::try_from(index).ok().filter(|index| *index <= letters.len());
    let start = place(from).ok_or_else(|| failed(format!("index out of range: {from}")))?;
    let end = match to {
        None => letters.len(),
        Some(to) => place(to).ok_or_else(|| failed(format!("index out of range: {to}")))?,
    };
    match letters.get(start..end) {
        Some(part) => Ok(Val::text(part.iter().collect::<String>())),
        None => Err(failed(format!("invalid substring range. start: {start}, end: {end}"))),
    }
}

fn join(items: &[Val], separator: &str) -> Outcome {
    let texts: Option<Vec<&str>> = items.iter().map(Val::as_str).collect();
    texts.map(|texts| Val::text(texts.join(separator))).ok_or_else(EvalError::no_overload)
}
