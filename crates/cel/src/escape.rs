//! Escaping of property names that are not valid identifiers: `a-b` becomes `a__dash__b`.

/// Reserved words, which cannot be identifiers.
pub const RESERVED: [&str; 21] = [
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

/// Escapes a name. Returns `None` if that is not possible.
pub fn escape(name: &str) -> Option<String> {
    if RESERVED.contains(&name) {
        return Some(format!("__{name}__"));
    }
    let starts_well =
        name.starts_with(|letter: char| letter.is_ascii_alphabetic() || "_.-/".contains(letter));
    if !starts_well {
        return None;
    }
    let mut escaped = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(letter) = rest.chars().next() {
        if let Some(tail) = rest.strip_prefix("__") {
            escaped.push_str("__underscores__");
            rest = tail;
            continue;
        }
        match letter {
            '.' => escaped.push_str("__dot__"),
            '-' => escaped.push_str("__dash__"),
            '/' => escaped.push_str("__slash__"),
            letter if letter.is_ascii_alphanumeric() || letter == '_' => escaped.push(letter),
            _ => return None,
        }
        rest = &rest[letter.len_utf8()..];
    }
    Some(escaped)
}

/// Unescapes a name. Returns `None` if it is not a valid escaped name.
pub fn unescape(escaped: &str) -> Option<String> {
    let mut name = String::with_capacity(escaped.len());
    let mut rest = escaped;
    while let Some(at) = rest.find("__") {
        let (before, after) = rest.split_at(at);
        name.push_str(before);
        let inside = after[2..].split('_').next().unwrap_or_default();
        if inside.is_empty() || !after[2 + inside.len()..].starts_with("__") {
            name.push('_');
            rest = &after[1..];
            continue;
        }
        match inside {
            "underscores" => name.push_str("__"),
            "dot" => name.push('.'),
            "dash" => name.push('-'),
            "slash" => name.push('/'),
            word if RESERVED.contains(&word) && escaped.len() == word.len() + 4 => name.push_str(word),
            _ => return None,
        }
        rest = &after[inside.len() + 4..];
    }
    name.push_str(rest);
    Some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_escaped() {
        for (name, escaped) in [
            ("a", Some("a")),
            ("a-b", Some("a__dash__b")),
            ("a.b/c", Some("a__dot__b__slash__c")),
            ("a__b", Some("a__underscores__b")),
            ("namespace", Some("__namespace__")),
            ("while", Some("__while__")),
            ("1a", None),
            ("a b", None),
        ] {
            assert_eq!(escape(name).as_deref(), escaped, "{name}");
            if let Some(escaped) = escaped {
                assert_eq!(unescape(escaped).as_deref(), Some(name), "{escaped}");
            }
        }
        for (written, name) in
            [("a_b", Some("a_b")), ("a__b", Some("a__b")), ("a__x__b", None), ("_", Some("_"))]
        {
            assert_eq!(unescape(written).as_deref(), name, "{written}");
        }
    }
}
