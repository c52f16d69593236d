//! The reference page of each command, generated from the command line definition.
//!
//! `SETPOINT_WRITE_PAGES=1 cargo test --workspace --bin setpoint pages` writes them.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use clap::{Arg, ArgAction, Command, CommandFactory};

use setpoint_explain::registry::REGISTRY;

use crate::args::Arguments;

const DEFAULT: &str = " [default: ";
/// Headings with many options that few users need.
const LAST: [&str; 2] = ["Controllers", "Compatibility"];

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference")
}

fn pages() -> Vec<(String, String)> {
    let mut command = Arguments::command();
    command.build();
    let commands = command.get_subcommands().filter(|command| command.get_name() != "help");
    let of_commands = commands.map(|command| (format!("setpoint-{}.md", command.get_name()), page(command)));
    of_commands.chain([("explanations.md".to_owned(), explanations())]).collect()
}

/// The page of what `setpoint why` finds, from the registry of explainers.
fn explanations() -> String {
    let mut page = String::from(EXPLANATIONS);
    for explainer in REGISTRY {
        let finds: Vec<&str> = explainer.finds.split_whitespace().collect();
        let _ = writeln!(page, "| {} | {} | `{}` |", explainer.kind, finds.join(" "), explainer.module);
    }
    page.push_str(AFTERWARDS);
    page
}

const EXPLANATIONS: &str = "\
# What setpoint why explains

[`setpoint why`](setpoint-why.md) has an explainer for each of these kinds. The module is in `crates/explain/src`.

| Kind | Finds | Module |
|---|---|---|
";

const AFTERWARDS: &str = "\
| All others | Conditions, phases, `observedGeneration`, warnings, and what the object owns | `conditions` |
| All, in deletion | Finalizers, who set them, whether their controller runs, dependents that block, lost nodes | `deletion` |

Rejections by the API server (module `admission`) are followed from the events and conditions of a workload: quotas,
limit ranges, pod security, policies, webhooks that deny or cannot be called, ServiceAccounts, PriorityClasses and
RuntimeClasses that do not exist, missing permissions.
";

fn page(command: &Command) -> String {
    let mut page = format!("# setpoint {}\n\n{}.\n\n", command.get_name(), about(command));
    usage(&mut page, command);
    options(&mut page, command, "##");
    for command in command.get_subcommands().filter(|command| command.get_name() != "help") {
        let _ = write!(page, "## {}\n\n{}.\n\n", command.get_name(), about(command));
        usage(&mut page, command);
        options(&mut page, command, "###");
    }
    page.push_str("[Options of all commands](README.md#logging-and-shutdown)\n");
    page
}

fn about(command: &Command) -> String {
    let about = command.get_about().expect("every command has a description").to_string();
    about.trim_end_matches('.').to_owned()
}

fn usage(page: &mut String, command: &Command) {
    let usage = command.clone().render_usage().to_string();
    let _ = write!(page, "```text\n{}\n```\n\n", usage.trim_start_matches("Usage: ").trim());
}

/// Writes a table for each help heading, in order of first occurrence, with the long ones last.
fn options(page: &mut String, command: &Command, level: &str) {
    let is_own = |arg: &&Arg| !arg.is_global_set() && !["help", "version"].contains(&arg.get_id().as_str());
    let own: Vec<&Arg> = command.get_arguments().filter(is_own).collect();
    let heading = |arg: &Arg| arg.get_help_heading().unwrap_or("Options").to_owned();
    let mut headings: Vec<String> = Vec::new();
    for arg in &own {
        if !headings.contains(&heading(arg)) {
            headings.push(heading(arg));
        }
    }
    headings.sort_by_key(|title| LAST.contains(&title.as_str()));
    for title in headings {
        let _ = write!(page, "{level} {title}\n\n| Option | Default | Description |\n|---|---|---|\n");
        for arg in own.iter().filter(|arg| heading(arg) == title) {
            page.push_str(&row(arg));
        }
        page.push('\n');
    }
}

fn row(arg: &Arg) -> String {
    let help = arg.get_help().unwrap_or_else(|| panic!("{} has no help", arg.get_id())).to_string();
    let (help, in_help) = match help.split_once(DEFAULT) {
        Some((help, default)) => (help.to_owned(), default.trim_end_matches(['.', ']']).to_owned()),
        None => (help, String::new()),
    };
    let values: Vec<_> = arg.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
    let default = match values.join(",") {
        _ if matches!(arg.get_action(), ArgAction::SetTrue) => String::new(),
        text if text.is_empty() => in_help,
        text => format!("`{text}`"),
    };
    let help = help.trim_end_matches('.').replace('|', "\\|");
    format!("| {} | {default} | {help}{} |\n", name(arg), choices(arg))
}

fn name(arg: &Arg) -> String {
    let short = arg.get_short().map(|short| format!("`-{short}`, ")).unwrap_or_default();
    match arg.get_long() {
        Some(long) => format!("{short}`--{long}`"),
        None => format!("`{}`", arg.get_value_names().unwrap_or_default()[0]),
    }
}

fn choices(arg: &Arg) -> String {
    let values = arg.get_possible_values();
    let names: Vec<_> = values.iter().map(|value| format!("`{}`", value.get_name())).collect();
    let is_switch = names.is_empty() || names[0] == "`true`" || names.len() == 1;
    if is_switch { String::new() } else { format!(": {}", names.join(", ")) }
}

#[test]
fn the_reference_pages_match_the_command_line() {
    let write = std::env::var_os("SETPOINT_WRITE_PAGES").is_some();
    let mut stale = Vec::new();
    for (name, text) in pages() {
        let path = directory().join(&name);
        if fs::read_to_string(&path).ok().as_deref() == Some(text.as_str()) {
            continue;
        }
        match write {
            true => fs::write(&path, text).expect("a page can be written"),
            false => stale.push(name),
        }
    }
    assert!(
        stale.is_empty(),
        "run SETPOINT_WRITE_PAGES=1 cargo test --workspace --bin setpoint pages: {stale:?}"
    );
}
