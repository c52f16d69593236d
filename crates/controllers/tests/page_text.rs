//! What the generated pages of all controllers have in common.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use setpoint::Access;

/// Returns a module's header as Markdown: its labels start new lines, and links to code become plain code.
pub(crate) fn header(file: &Path) -> String {
    let text = fs::read_to_string(file).expect("a source");
    let lines = text.lines().take_while(|line| line.starts_with("//!"));
    let lines = lines.map(|line| line.trim_start_matches("//!").strip_prefix(' ').unwrap_or_default());
    let text = lines.collect::<Vec<_>>().join("\n").replace("[`", "`").replace("`]", "`");
    let labels = ["Watches:", "Writes:", "Metrics:"];
    let text =
        labels.iter().fold(text, |text, label| text.replace(&format!("\n{label}"), &format!("  \n{label}")));
    text.replace("Invariants:\n- ", "Invariants:\n\n- ")
}

/// Turns a summary into a sentence.
pub(crate) fn sentence(summary: &str) -> String {
    let (first, rest) = summary.split_at(1);
    format!("{}{rest}.", first.to_uppercase())
}

pub(crate) fn table(page: &mut String, accesses: &[Access]) {
    page.push_str("| Group | Resource | Verbs |\n|---|---|---|\n");
    for Access { group, resource, verbs } in accesses {
        let group = if group.is_empty() { "core" } else { group };
        let _ = writeln!(page, "| {group} | {resource} | {} |", verbs.join(", "));
    }
    page.push('\n');
}

/// Checks that these files have these texts, or writes them if `SETPOINT_WRITE_PAGES` is set.
pub(crate) fn check(wanted: &[(PathBuf, String)], test: &str) {
    let write = std::env::var_os("SETPOINT_WRITE_PAGES").is_some();
    let mut stale = Vec::new();
    for (path, text) in wanted {
        if fs::read_to_string(path).ok().as_deref() == Some(text) {
            continue;
        }
        match write {
            true => {
                fs::create_dir_all(path.parent().expect("a file has a directory")).expect("a directory");
                fs::write(path, text).expect("a page can be written");
            }
            false => stale.push(path),
        }
    }
    assert!(
        stale.is_empty(),
        "run SETPOINT_WRITE_PAGES=1 cargo test --workspace --test {test} pages: {stale:?}"
    );
}
