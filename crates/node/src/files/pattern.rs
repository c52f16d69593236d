//! Shell patterns of `*`, `?` and `[…]`. Pure.
//!
//! Invariant: matching takes no more steps than the product of the lengths of pattern and text, and that is
//! bounded.

/// The most steps of a match. Texts and patterns whose lengths have a larger product match nothing.
const MAX_STEPS: usize = 1 << 22;

/// Returns the most steps that a match takes.
pub(crate) fn steps(pattern: &str, text: &str) -> usize {
    pattern.len().saturating_mul(text.len()).min(MAX_STEPS)
}

/// Whether a text matches a pattern.
pub(crate) fn matches(pattern: &str, text: &str) -> bool {
    is_short(pattern, text) && matches_elements(&elements(pattern), text)
}

fn is_short(pattern: &str, text: &str) -> bool {
    pattern.len().saturating_mul(text.len()) <= MAX_STEPS
}

/// Removes the shortest or longest prefix that matches a pattern.
pub(crate) fn without_prefix<'t>(text: &'t str, pattern: &str, is_longest: bool) -> &'t str {
    if !is_short(pattern, text) {
        return text;
    }
    let characters = text.char_indices().map(|(at, c)| (c, at + c.len_utf8()));
    let end = boundary(&elements(pattern), characters, 0, is_longest);
    &text[end.unwrap_or(0)..]
}

/// Removes the shortest or longest suffix that matches a pattern.
pub(crate) fn without_suffix<'t>(text: &'t str, pattern: &str, is_longest: bool) -> &'t str {
    if !is_short(pattern, text) {
        return text;
    }
    let mut elements = elements(pattern);
    elements.reverse();
    let characters = text.char_indices().rev().map(|(at, c)| (c, at));
    let start = boundary(&elements, characters, text.len(), is_longest);
    &text[..start.unwrap_or(text.len())]
}

/// What stands for one character, or for any number of them.
#[derive(Debug, PartialEq, Eq)]
enum Element {
    /// `*`
    Star,
    /// `?`
    Any,
    Character(char),
    /// `[…]`, as ranges.
    Set {
        is_negated: bool,
        ranges: Vec<(char, char)>,
    },
}

impl Element {
    fn has(&self, c: char) -> bool {
        match self {
            Self::Star => false,
            Self::Any => true,
            Self::Character(own) => *own == c,
            Self::Set { is_negated, ranges } => {
                ranges.iter().any(|(low, high)| (*low..=*high).contains(&c)) != *is_negated
            }
        }
    }
}

/// Parses a pattern in one pass. Stars in a row are one.
fn elements(pattern: &str) -> Vec<Element> {
    let characters: Vec<char> = pattern.chars().collect();
    // A bracket after the last closing one stands for itself, so nothing looks for its end.
    let last_closing = characters.iter().rposition(|c| *c == ']').unwrap_or(0);
    let (mut elements, mut at) = (Vec::new(), 0);
    while let Some(first) = characters.get(at) {
        let (element, length) = match (first, characters.get(at + 1)) {
            ('*', _) => (Element::Star, 1),
            ('?', _) => (Element::Any, 1),
            ('\\', Some(escaped)) => (Element::Character(*escaped), 2),
            ('[', _) if at < last_closing => set(&characters[at + 1..])
                .map_or((Element::Character('['), 1), |(set, length)| (set, length + 1)),
            (first, _) => (Element::Character(*first), 1),
        };
        at += length;
        if element != Element::Star || elements.last() != Some(&Element::Star) {
            elements.push(element);
        }
    }
    elements
}

/// Parses a set after its opening bracket. Returns it with its length.
fn set(characters: &[char]) -> Option<(Element, usize)> {
    let is_negated = matches!(characters.first(), Some('!' | '^'));
    let inside = &characters[usize::from(is_negated)..];
    // A bracket right at the start is part of the set.
    let end = inside.iter().skip(1).position(|c| *c == ']')? + 1;
    let (mut ranges, mut at) = (Vec::new(), 0);
    while at < end {
        let (range, length) = match inside[at..end] {
            [low, '-', high, ..] => ((low, high), 3),
            _ => ((inside[at], inside[at]), 1),
        };
        ranges.push(range);
        at += length;
    }
    Some((Element::Set { is_negated, ranges }, usize::from(is_negated) + end + 1))
}

fn matches_elements(elements: &[Element], text: &str) -> bool {
    let text: Vec<char> = text.chars().collect();
    let (mut at, mut read) = (0, 0);
    // Where to continue if what follows the last star does not match.
    let mut star: Option<(usize, usize)> = None;
    while read < text.len() {
        match elements.get(at) {
            Some(Element::Star) => {
                star = Some((at + 1, read));
                at += 1;
            }
            Some(element) if element.has(text[read]) => (at, read) = (at + 1, read + 1),
            _ => {
                let Some((after, from)) = star else { return false };
                star = Some((after, from + 1));
                (at, read) = (after, from + 1);
            }
        }
    }
    elements[at..].iter().all(|element| *element == Element::Star)
}

/// Returns the first or last position up to which characters match. They come with the positions after them.
fn boundary(
    elements: &[Element],
    characters: impl Iterator<Item = (char, usize)>,
    start: usize,
    is_last: bool,
) -> Option<usize> {
    // Which elements may come next. Behind the last one is the end of the pattern.
    let mut next = vec![false; elements.len() + 1];
    next[0] = true;
    skip_stars(elements, &mut next);
    let mut found = next[elements.len()].then_some(start);
    for (c, position) in characters {
        if found.is_some() && !is_last || !next.contains(&true) {
            break;
        }
        let mut after = vec![false; next.len()];
        for (at, element) in elements.iter().enumerate().filter(|(at, _)| next[*at]) {
            match element {
                Element::Star => after[at] = true,
                element => after[at + 1] |= element.has(c),
            }
        }
        skip_stars(elements, &mut after);
        next = after;
        found = next[elements.len()].then_some(position).or(found);
    }
    found
}

/// A star may stand for nothing.
fn skip_stars(elements: &[Element], next: &mut [bool]) {
    for (at, element) in elements.iter().enumerate() {
        next[at + 1] |= next[at] && *element == Element::Star;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_match_patterns() {
        let check =
            |pattern, text, expected| assert_eq!(matches(pattern, text), expected, "{pattern} {text}");
        check("*", "", true);
        check("a*c", "abbc", true);
        check("a*c", "abbd", false);
        check("*.conf", "a.conf", true);
        check("?b", "ab", true);
        check("[a-c]x", "bx", true);
        check("[!a-c]x", "bx", false);
        check("[]a]", "]", true);
        check("[a-]", "-", true);
        check("[x", "[x", true);
        check("[]", "[]", true);
        check("\\*", "*", true);
        check("\\*", "a", false);
        check("*a*a*a*a*b", &"a".repeat(200), false);
    }

    #[test]
    fn prefixes_and_suffixes_are_removed() {
        assert_eq!(without_prefix("a/b/é", "*/", false), "b/é");
        assert_eq!(without_prefix("a/b/é", "*/", true), "é");
        assert_eq!(without_suffix("é.tar.gz", ".*", false), "é.tar");
        assert_eq!(without_suffix("é.tar.gz", ".*", true), "é");
        assert_eq!(without_suffix("abc", "[b-c]", true), "ab");
        assert_eq!((without_prefix("abc", "", true), without_suffix("abc", "x", true)), ("abc", "abc"));
        assert_eq!((without_prefix("abc", "*", true), without_prefix("abc", "*", false)), ("", "abc"));
    }

    /// Takes minutes if a match is tried at each position, or if each open bracket looks for its end.
    #[test]
    fn the_worst_patterns_take_no_longer_than_their_bound() {
        let (long, open) = ("a".repeat(4096), "[a".repeat(512));
        assert_eq!(without_prefix(&long, &format!("{}b", "*a".repeat(500)), true), long);
        assert_eq!(without_suffix(&long, &format!("b{}", "a*".repeat(500)), true), long);
        assert!(!matches(&open, &"[a".repeat(2000)));
        assert_eq!(without_prefix(&"a".repeat(4097), &open, true).len(), 4097);
    }
}
