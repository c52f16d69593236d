//! Label selectors in text form, as for `kubectl -l`: `app=shop,tier in (api, web),!canary`.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;
use std::str::FromStr;

use super::{LabelSelector, Operator, Requirement};

/// An invalid label selector: the part that is wrong, and what was expected there.
///
/// ```
/// let error = "app=shop,tier in web".parse::<setpoint::LabelSelector>().unwrap_err();
/// assert_eq!(error.to_string(), "invalid label selector at \"tier in web\": expected values in parentheses");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid label selector at {part:?}: {expected}")]
pub struct SelectorError {
    part: String,
    expected: &'static str,
}

impl FromStr for LabelSelector {
    type Err = SelectorError;

    /// Parses requirements separated by commas. An empty text selects everything.
    ///
    /// ```
    /// let selector: setpoint::LabelSelector = "app=shop,tier notin (batch),!canary".parse()?;
    /// assert!(selector.matches(&[("app", "shop"), ("tier", "web")].into_iter().collect()));
    /// assert_eq!(selector.to_string(), "app=shop,!canary,tier notin (batch)");
    /// # Ok::<(), setpoint::selector::SelectorError>(())
    /// ```
    fn from_str(text: &str) -> Result<Self, SelectorError> {
        if text.trim().is_empty() {
            return Ok(Self::default());
        }
        let (mut labels, mut expressions) = (BTreeMap::new(), Vec::new());
        for part in parts(text) {
            let (sign, requirement) =
                requirement(part).map_err(|expected| SelectorError { part: part.into(), expected })?;
            match labels.entry(requirement.key.clone()) {
                // A second value for a label is an additional requirement, so it must not replace the first.
                Entry::Vacant(label) if sign == RequirementSyntax::Equal => {
                    label.insert(requirement.values[0].clone());
                }
                _ => expressions.push(requirement),
            }
        }
        expressions.sort_by(|a, b| a.key.cmp(&b.key));
        Ok(Self { match_labels: labels.into_iter().collect(), match_expressions: expressions.into() })
    }
}

/// The syntax of a requirement.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RequirementSyntax {
    Equal,
    Unequal,
    In,
    NotIn,
    Present,
    Absent,
}

impl RequirementSyntax {
    fn operator(self) -> Operator {
        match self {
            Self::Equal | Self::In => Operator::In,
            Self::Unequal | Self::NotIn => Operator::NotIn,
            Self::Present => Operator::Exists,
            Self::Absent => Operator::DoesNotExist,
        }
    }
}

/// Splits at commas outside of parentheses.
fn parts(text: &str) -> impl Iterator<Item = &str> {
    let mut inside = false;
    let outer = move |character| {
        inside = if inside { character != ')' } else { character == '(' };
        character == ',' && !inside
    };
    text.split(outer).map(str::trim)
}

fn requirement(part: &str) -> Result<(RequirementSyntax, Requirement), &'static str> {
    let (key, sign, rest) = split(part);
    let key = valid_key(key).ok_or(KEY)?;
    let values: Box<[Box<str>]> = match sign {
        RequirementSyntax::Present if !rest.is_empty() => {
            return Err("expected =, ==, !=, in or notin after the key");
        }
        RequirementSyntax::Present | RequirementSyntax::Absent => Box::default(),
        RequirementSyntax::Equal | RequirementSyntax::Unequal => [valid_value(rest).ok_or(VALUE)?].into(),
        RequirementSyntax::In | RequirementSyntax::NotIn => {
            let list = rest.strip_prefix('(').and_then(|rest| rest.strip_suffix(')'));
            let values = list.ok_or("expected values in parentheses")?.split(',').map(valid_value);
            values.collect::<Option<_>>().ok_or(VALUE)?
        }
    };
    Ok((sign, Requirement { key, operator: sign.operator(), values }))
}

/// Splits a requirement into key, operator and the rest.
fn split(part: &str) -> (&str, RequirementSyntax, &str) {
    if let Some(key) = part.strip_prefix('!') {
        return (key, RequirementSyntax::Absent, "");
    }
    for (text, sign) in [
        ("!=", RequirementSyntax::Unequal),
        ("==", RequirementSyntax::Equal),
        ("=", RequirementSyntax::Equal),
    ] {
        if let Some((key, value)) = part.split_once(text) {
            return (key, sign, value);
        }
    }
    let (key, rest) = part.split_once(char::is_whitespace).unwrap_or((part, ""));
    let rest = rest.trim_start();
    for (text, sign) in [("notin", RequirementSyntax::NotIn), ("in", RequirementSyntax::In)] {
        if let Some(values) = rest.strip_prefix(text) {
            return (key, sign, values.trim_start());
        }
    }
    (key, RequirementSyntax::Present, rest)
}

const KEY: &str =
    "expected a label key: an optional DNS prefix and /, then up to 63 letters, digits, -, _ or .";
const VALUE: &str = "expected a label value: up to 63 letters, digits, -, _ or ., beginning and ending with a letter or digit";

fn valid_key(key: &str) -> Option<Box<str>> {
    let key = key.trim();
    let (prefix, name) = key.rsplit_once('/').map_or((None, key), |(prefix, name)| (Some(prefix), name));
    let prefixed = prefix.is_none_or(|prefix| prefix.len() <= 253 && prefix.split('.').all(is_dns_label));
    (prefixed && is_name(name)).then(|| key.into())
}

fn valid_value(value: &str) -> Option<Box<str>> {
    Some(value.trim()).filter(|value| value.is_empty() || is_name(value)).map(Box::from)
}

fn is_name(text: &str) -> bool {
    let edge = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    let inner = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.".contains(byte);
    bytes.len() <= 63 && edge(bytes.first()) && edge(bytes.last()) && bytes.iter().all(inner)
}

fn is_dns_label(text: &str) -> bool {
    is_name(text)
        && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
}

impl fmt::Display for LabelSelector {
    /// Formats the selector for a list or a watch.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for (key, value) in self.match_labels.iter() {
            write!(f, "{separator}{key}={value}")?;
            separator = ",";
        }
        for requirement in &self.match_expressions {
            write!(f, "{separator}{requirement}")?;
            separator = ",";
        }
        Ok(())
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, operator, values } = self;
        match operator {
            Operator::In => write!(f, "{key} in ({})", values.join(",")),
            Operator::NotIn => write!(f, "{key} notin ({})", values.join(",")),
            Operator::Exists => f.write_str(key),
            Operator::DoesNotExist => write!(f, "!{key}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_selector_is_read_and_written() {
        let check = |text: &str, expected: &str| {
            let selector: LabelSelector = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!(selector.to_string(), expected, "{text}");
            assert_eq!(expected.parse::<LabelSelector>().as_ref(), Ok(&selector), "{expected}");
        };
        check("", "");
        check("  ", "");
        check("a=b", "a=b");
        check(" a == b , c= ", "a=b,c=");
        check("example.com/a=b", "example.com/a=b");
        check("a!=b", "a notin (b)");
        check("a", "a");
        check("!a", "!a");
        check("a in (b, c),d notin (e)", "a in (b,c),d notin (e)");
        check("x in(),y", "x in (),y");
        check("a=1,a=2", "a=1,a in (2)");
    }

    #[test]
    fn invalid_selectors_are_named() {
        let check = |text: &str, part: &str| {
            let error = text.parse::<LabelSelector>().expect_err(text);
            assert_eq!(error.part, part, "{error}");
        };
        check(",", "");
        check("a=b,", "");
        check("a=b,c d", "c d");
        check("a=b c", "a=b c");
        check("a in b", "a in b");
        check("a in (b", "a in (b");
        check("-a", "-a");
        check("Up.Case/a=b", "Up.Case/a=b");
        check("a=-b", "a=-b");
        check("a>1", "a>1");
    }

    #[test]
    fn two_values_for_one_label_select_nothing() {
        let selector: LabelSelector = "a=1,a=2".parse().expect("a selector");
        assert!(!selector.matches(&[("a", "1")].into_iter().collect()));
        assert!(!selector.matches(&[("a", "2")].into_iter().collect()));
    }
}
