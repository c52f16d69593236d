//! Semantic versions.

use std::cmp::Ordering;
use std::sync::Arc;

use super::{Outcome, failed};
use crate::value::Val;

/// A semantic version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Semver {
    numbers: [u64; 3],
    before: Vec<String>,
    build: String,
}

pub(super) fn call(function: &str, args: &[Val]) -> Option<Outcome> {
    Some(match (function, args) {
        ("semver", [Val::String(text)]) => made(text, false),
        ("semver", [Val::String(text), Val::Bool(is_lenient)]) => made(text, *is_lenient),
        ("isSemver", [Val::String(text)]) => Ok(Val::Bool(Semver::parse(text, false).is_some())),
        ("isSemver", [Val::String(text), Val::Bool(is_lenient)]) => {
            Ok(Val::Bool(Semver::parse(text, *is_lenient).is_some()))
        }
        ("major" | "minor" | "patch", [Val::Semver(version)]) => {
            let at = ["major", "minor", "patch"].iter().position(|name| *name == function).unwrap_or(0);
            Ok(Val::Int(i64::try_from(version.numbers[at]).unwrap_or(i64::MAX)))
        }
        ("isGreaterThan", [Val::Semver(a), Val::Semver(b)]) => Ok(Val::Bool(a.compare(b).is_gt())),
        ("isLessThan", [Val::Semver(a), Val::Semver(b)]) => Ok(Val::Bool(a.compare(b).is_lt())),
        ("compareTo", [Val::Semver(a), Val::Semver(b)]) => Ok(Val::Int(a.compare(b) as i64)),
        _ => return None,
    })
}

fn made(text: &str, is_lenient: bool) -> Outcome {
    match Semver::parse(text, is_lenient) {
        Some(version) => Ok(Val::Semver(Arc::new(version))),
        None => Err(failed(complaint(text))),
    }
}

/// Returns the error message for a string that is not a version.
fn complaint(text: &str) -> String {
    let parts: Vec<&str> = text.splitn(3, '.').collect();
    let [major, minor, patch] = parts.as_slice() else {
        let is_empty = text.is_empty();
        return if is_empty { "Version string empty" } else { "No Major.Minor.Patch elements found" }.into();
    };
    let patch = patch.split(['-', '+']).next().unwrap_or_default();
    let is_wrong = |part: &str| part.is_empty() || !part.bytes().all(|byte| byte.is_ascii_digit());
    for (name, part) in [("major", *major), ("minor", *minor), ("patch", patch)] {
        if is_wrong(part) {
            return format!("Invalid character(s) found in {name} number {part:?}");
        }
    }
    for (name, part) in [("Major", *major), ("Minor", *minor), ("Patch", patch)] {
        if part.len() > 1 && part.starts_with('0') {
            return format!("{name} number must not contain leading zeroes {part:?}");
        }
    }
    format!("{text:?} is no semantic version")
}

impl Semver {
    /// Parses a version. With `is_lenient`, accepts a leading `v`, leading zeros and missing parts.
    pub(crate) fn parse(text: &str, is_lenient: bool) -> Option<Self> {
        let text = if is_lenient { text.trim().trim_start_matches('v') } else { text };
        let (text, build) = text.split_once('+').unwrap_or((text, ""));
        let (numbers, before) =
            text.split_once('-').map_or((text, None), |(numbers, before)| (numbers, Some(before)));
        let mut parts: Vec<&str> = numbers.split('.').collect();
        if is_lenient && before.is_none() {
            parts.resize(parts.len().max(3), "0");
        }
        let number = |part: &str| {
            let is_plain = part == "0" || !part.starts_with('0') || is_lenient;
            let is_number = !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
            part.parse::<u64>().ok().filter(|_| is_number && is_plain)
        };
        let [major, minor, patch] = parts.as_slice() else { return None };
        let before: Vec<String> =
            before.map_or_else(Vec::new, |before| before.split('.').map(Into::into).collect());
        let is_word = |word: &str| {
            !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
        };
        let words_fit =
            before.iter().all(|word| is_word(word)) && (build.is_empty() || build.split('.').all(is_word));
        words_fit.then_some(())?;
        Some(Self { numbers: [number(major)?, number(minor)?, number(patch)?], before, build: build.into() })
    }

    fn compare(&self, other: &Self) -> Ordering {
        let order = self.numbers.cmp(&other.numbers);
        if order.is_ne() {
            return order;
        }
        match (self.before.is_empty(), other.before.is_empty()) {
            (true, true) => return Ordering::Equal,
            (true, false) => return Ordering::Greater,
            (false, true) => return Ordering::Less,
            (false, false) => {}
        }
        for (a, b) in self.before.iter().zip(&other.before) {
            let order = match (a.parse::<u64>(), b.parse::<u64>()) {
                (Ok(a), Ok(b)) => a.cmp(&b),
                (Ok(_), Err(_)) => Ordering::Less,
                (Err(_), Ok(_)) => Ordering::Greater,
                (Err(_), Err(_)) => a.cmp(b),
            };
            if order.is_ne() {
                return order;
            }
        }
        self.before.len().cmp(&other.before.len())
    }
}
