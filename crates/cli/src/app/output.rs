//! Tables, YAML and JSON on stdout.

use std::io::{IsTerminal, Write};

use anyhow::Context;
use clap::ValueEnum;
use jiff::Timestamp;
use serde_json::{Value, json};
use setpoint::Clock;

/// The values of `--output`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    Yaml,
    Json,
    Wide,
    Name,
}

/// Writes to stdout. A reader that has gone away is no error.
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        written => written.context("cannot write to stdout"),
    }
}

/// Returns a value as YAML or JSON.
pub(crate) fn encoded(value: &Value, format: Format) -> anyhow::Result<String> {
    Ok(match format {
        Format::Json => serde_json::to_string_pretty(value)? + "\n",
        _ => serde_saphyr::to_string(value)?,
    })
}

/// Prints objects as kubectl does: one by itself, several as a List, or their names.
pub(crate) fn print_objects(objects: &[Value], format: Format, is_list: bool) -> anyhow::Result<()> {
    if format == Format::Name {
        let name = |object: &Value| format!("{}\n", reference(object));
        return print(&objects.iter().map(name).collect::<String>());
    }
    match (objects, is_list) {
        ([one], false) => print(&encoded(one, format)?),
        _ => print(&encoded(&json!({"apiVersion": "v1", "kind": "List", "items": objects}), format)?),
    }
}

/// Returns an object as `deployment.apps/web`.
pub(crate) fn reference(object: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let group = text(&object["apiVersion"]).split_once('/').map(|(group, _)| format!(".{group}"));
    let kind = text(&object["kind"]).to_lowercase();
    format!("{kind}{}/{}", group.unwrap_or_default(), text(&object["metadata"]["name"]))
}

/// Returns rows as a table with kubectl's spacing.
pub(crate) fn table(header: &[&str], rows: &[Vec<String>]) -> String {
    let mut widths: Vec<usize> = header.iter().map(|title| title.chars().count()).collect();
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let line = |cells: Vec<&str>| {
        let padded = cells.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}   "));
        padded.collect::<String>().trim_end().to_owned() + "\n"
    };
    let rows = rows.iter().map(|row| line(row.iter().map(String::as_str).collect()));
    std::iter::once(line(header.to_vec())).chain(rows).collect()
}

/// Returns how long ago something was made, as kubectl shows it.
pub(crate) fn age(object: &Value) -> String {
    let created = object["metadata"]["creationTimestamp"].as_str().and_then(|text| text.parse().ok());
    created.map_or_else(|| "<unknown>".to_owned(), |created| since(created, Clock::system().now()))
}

fn since(then: Timestamp, now: Timestamp) -> String {
    let seconds = now.duration_since(then).as_secs().max(0);
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7_200 => format!("{}m", seconds / 60),
        7_200..172_800 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// Returns a text in a color, if stdout is a terminal and `NO_COLOR` is not set.
pub(crate) fn colored(text: &str, color: Color) -> String {
    let wanted =
        std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    if wanted { format!("\x1b[{}m{text}\x1b[0m", color as u8) } else { text.to_owned() }
}

/// ANSI colors.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Color {
    Red = 31,
    Green = 32,
    Yellow = 33,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_longest_cell() {
        let rows = [vec!["a".to_owned(), "running".to_owned()], vec!["longer".to_owned(), String::new()]];
        assert_eq!(table(&["NAME", "PHASE"], &rows), "NAME     PHASE\na        running\nlonger\n");
    }

    #[test]
    fn ages_are_short() {
        let at = |seconds| Timestamp::from_second(seconds).unwrap();
        for (seconds, expected) in [(5, "5s"), (130, "2m"), (10_000, "2h"), (200_000, "2d")] {
            assert_eq!(since(at(0), at(seconds)), expected);
        }
    }

    #[test]
    fn references_name_group_kind_and_name() {
        let object = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}});
        assert_eq!(reference(&object), "deployment.apps/web");
    }
}
