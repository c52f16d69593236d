//! Writes YAML in block style, indented by two spaces, in the reference implementation's layout.

use crate::data::{Data, atom_to_json};
use crate::error::Error;
use crate::value::Atom;

/// Writes a document, ended by a line break. Fields keep their order.
pub(super) fn write(data: &Data) -> Result<String, Error> {
    let mut out = String::new();
    value(data, 0, &mut out)?;
    end_line(&mut out);
    Ok(out)
}

fn value(data: &Data, indent: usize, out: &mut String) -> Result<(), Error> {
    match data {
        Data::Struct(fields) if !fields.is_empty() => {
            for (index, (name, field)) in fields.iter().enumerate() {
                begin_line(index, indent, out);
                out.push_str(&text(name, indent));
                out.push(':');
                member(field, indent, out)?;
            }
        }
        Data::List(items) if !items.is_empty() => {
            for (index, item) in items.iter().enumerate() {
                begin_line(index, indent, out);
                out.push_str("- ");
                value(item, indent + 2, out)?;
                end_line(out);
            }
        }
        Data::Atom(Atom::Text(string)) => out.push_str(&text(string, indent)),
        Data::Atom(other) => out.push_str(&atom_to_json(other)?.to_string()),
        Data::Struct(_) => out.push_str("{}"),
        Data::List(_) => out.push_str("[]"),
    }
    Ok(())
}

/// Writes the value of a field: on the same line if it fits there.
fn member(data: &Data, indent: usize, out: &mut String) -> Result<(), Error> {
    let is_long = match data {
        Data::Struct(fields) => !fields.is_empty(),
        Data::List(items) => !items.is_empty(),
        Data::Atom(_) => false,
    };
    if is_long {
        out.push('\n');
        out.push_str(&" ".repeat(indent + 2));
        value(data, indent + 2, out)?;
    } else {
        out.push(' ');
        value(data, indent, out)?;
    }
    end_line(out);
    Ok(())
}

/// Indents every line except the first, which continues the caller's line.
fn begin_line(index: usize, indent: usize, out: &mut String) {
    if index > 0 {
        out.push_str(&" ".repeat(indent));
    }
}

fn end_line(out: &mut String) {
    if !out.ends_with('\n') {
        out.push('\n');
    }
}

/// Writes a string: plain if it is read back as the same string, as a block if it has several lines, else quoted.
fn text(string: &str, indent: usize) -> String {
    if is_plain(string) {
        return string.to_owned();
    }
    let is_block = string.contains('\n')
        && !string.starts_with([' ', '\n'])
        && !string.ends_with("\n\n")
        && string.chars().all(|letter| letter == '\n' || letter == '\t' || !letter.is_control())
        && string.lines().all(|line| !line.ends_with(' '));
    if !is_block {
        return serde_json::to_string(string).unwrap_or_default();
    }
    let chomp = if string.ends_with('\n') { "" } else { "-" };
    let pad = " ".repeat(indent + 2);
    let body = string.strip_suffix('\n').unwrap_or(string);
    let lines =
        body.split('\n').map(|line| if line.is_empty() { String::new() } else { format!("{pad}{line}") });
    format!("|{chomp}\n{}", lines.collect::<Vec<_>>().join("\n"))
}

/// Returns whether a string without quotes is read back as the same string.
fn is_plain(string: &str) -> bool {
    let reserved = ["null", "true", "false", "yes", "no", "on", "off", "y", "n", "~", ".inf", ".nan"];
    let starts =
        string.chars().next().is_some_and(|first| first.is_alphabetic() || first == '/' || first == '_');
    starts
        && !string.ends_with([' ', ':'])
        && !string.contains(": ")
        && !string.contains(" #")
        && string.chars().all(|letter| !letter.is_control())
        && !reserved.contains(&string.to_lowercase().as_str())
        && string.parse::<f64>().is_err()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        let cases = [
            serde_json::json!({"a": 1, "b": [1, "two", {"c": null, "d": [[], {}]}], "e": {"f": "x: y"}}),
            serde_json::json!({"text": "line\nother\n", "chomped": "a\nb", "kept": "a\n\n", "odd": " a\n b"}),
            serde_json::json!([
                "true",
                "12",
                "-",
                "",
                "a #b",
                "tab\t",
                "ünï",
                "~",
                "1e3",
                "0x1f",
                "2024-01-01"
            ]),
            serde_json::json!("plain"),
            serde_json::json!([[1, 2], [[3]]]),
        ];
        for case in cases {
            let written = write(&Data::from_json(&case).unwrap()).unwrap();
            let read: serde_json::Value =
                serde_saphyr::from_str(&written).unwrap_or_else(|error| panic!("{error}:\n{written}"));
            assert_eq!(read, case, "{written}");
        }
    }
}
