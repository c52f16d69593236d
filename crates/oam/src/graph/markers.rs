//! Markers of a SimpleSchema field: `string | required=true default="a b" enum="x,y"`.

/// Splits a field into its type and its markers. The error names the invalid part.
pub(super) fn split(text: &str) -> Result<(String, Vec<(String, String)>), String> {
    let (kind, rest) = text.split_once('|').unwrap_or((text, ""));
    let mut markers = Vec::new();
    let mut rest = rest.trim();
    while !rest.is_empty() {
        let (name, tail) = rest.split_once('=').ok_or_else(|| format!("{rest:?}: expected name=value"))?;
        let (value, tail) = value(tail);
        markers.push((name.trim().to_owned(), value));
        rest = tail.trim_start();
    }
    Ok((kind.trim().to_owned(), markers))
}

/// Takes a value: a quoted string, or everything up to a blank outside of brackets and quotes.
fn value(text: &str) -> (String, &str) {
    if let Some(inside) = text.strip_prefix('"') {
        let end = quote_end(inside);
        return (inside[..end].replace("\\\"", "\""), inside.get(end + 1..).unwrap_or_default());
    }
    let (mut depth, mut quoted, mut escaped) = (0_i32, false, false);
    for (at, letter) in text.char_indices() {
        match letter {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => quoted = !quoted,
            '[' | '{' if !quoted => depth += 1,
            ']' | '}' if !quoted => depth -= 1,
            letter if letter.is_whitespace() && depth <= 0 && !quoted => {
                return (text[..at].to_owned(), &text[at..]);
            }
            _ => {}
        }
    }
    (text.to_owned(), "")
}

/// Returns where a quoted string ends. Backslashes only escape quotes, because patterns have many.
fn quote_end(text: &str) -> usize {
    let mut before = ' ';
    for (at, letter) in text.char_indices() {
        if letter == '"' && before != '\\' {
            return at;
        }
        before = letter;
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_may_be_quoted_or_in_brackets() {
        let (kind, markers) =
            split(r#"[]string | default=["a", "b"] pattern="^\.x y$" required=true"#).unwrap();
        assert_eq!(kind, "[]string");
        let expected = [("default", r#"["a", "b"]"#), ("pattern", r"^\.x y$"), ("required", "true")];
        assert_eq!(markers, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
        assert!(split("string | required").is_err());
    }
}
