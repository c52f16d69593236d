//! Field paths as in validation rules and selectable fields: `.spec.a`, `.spec['a.b']`.

use super::props::Props;

/// Resolves a field path in a schema: returns the path for error messages, and the schema there.
pub(crate) fn follow<'s>(
    written: &str,
    schema: &'s Props,
    with_brackets: bool,
) -> Result<(String, &'s Props), String> {
    let (mut path, mut at) = (String::new(), schema);
    let mut rest = written;
    while !rest.is_empty() {
        let name;
        if let Some(tail) = rest.strip_prefix('[') {
            if !with_brackets {
                return Err("array notation is not allowed".into());
            }
            (name, rest) = quoted(tail)?;
            rest = match rest.chars().next() {
                None => return Err("unexpected end of JSON path".into()),
                Some(']') => &rest[1..],
                Some(_) => return Err(format!("expected ] but got {rest}")),
            };
        } else if let Some(tail) = rest.strip_prefix('.') {
            let end = tail.find(['.', '[', ']']).unwrap_or(tail.len());
            if tail.is_empty() {
                return Err("unexpected end of JSON path".into());
            }
            name = tail[..end].to_owned();
            rest = &tail[end..];
        } else {
            return Err(format!("expected [ or . but got: {rest}"));
        }
        at = step(&name, at, &mut path)?;
    }
    Ok((path, at))
}

fn step<'s>(name: &str, schema: &'s Props, path: &mut String) -> Result<&'s Props, String> {
    let invalid = || "does not refer to a valid field".to_owned();
    if schema.properties.is_empty() {
        path.push_str(&format!("[{name}]"));
        return schema.additional().ok_or_else(invalid);
    }
    if !path.is_empty() {
        path.push('.');
    }
    path.push_str(name);
    schema.properties.get(name).ok_or_else(invalid)
}

/// Splits off a name in single quotes.
fn quoted(text: &str) -> Result<(String, &str), String> {
    let Some(inside) = text.strip_prefix('\'') else {
        let end = text.find(['.', '[', ']']).unwrap_or(text.len());
        return Err(match text.is_empty() {
            true => "unexpected end of JSON path".into(),
            false => format!("expected single quoted string but got {}", &text[..end.max(1).min(text.len())]),
        });
    };
    let mut name = String::new();
    let mut letters = inside.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '\'' => return Ok((name, &inside[at + 1..])),
            '\\' => match letters.next() {
                Some((_, escaped @ ('\'' | '\\'))) => name.push(escaped),
                _ => return Err("invalid string literal: invalid escape sequence".into()),
            },
            letter => name.push(letter),
        }
    }
    Err(format!("expected single quoted string but got {text}"))
}
