//! Generates the pages in `docs/controllers` from the registry and the header of each controller's module.
//! `SETPOINT_WRITE_PAGES=1 cargo test --workspace --test controllers pages` writes them.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use setpoint_controllers::{Entry, REGISTRY, flags, gates, why_absent};

use super::page_text::{check, header, sentence, table};

fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn pages() -> PathBuf {
    here().join("../../docs/controllers")
}

fn sources(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        match path.is_dir() {
            true => found.extend(sources(&path)),
            false => found.push(path),
        }
    }
    found.sort();
    found
}

/// Returns the file that declares a controller, and the files next to it that belong to it.
fn module_of(entry: &Entry) -> (PathBuf, Vec<PathBuf>) {
    let declares = |path: &PathBuf| {
        let text = fs::read_to_string(path).unwrap_or_default();
        text.contains(&format!("name: \"{}\"", entry.name))
            || text.contains(&format!("absent(\"{}\"", entry.name))
    };
    let file = sources(&here().join("src")).into_iter().find(declares);
    let file = file.unwrap_or_else(|| panic!("no module declares {}", entry.name));
    let own = match file.file_name().is_some_and(|name| name == "mod.rs") {
        true => sources(file.parent().expect("a module has a directory")),
        false => vec![file.clone()],
    };
    (file, own)
}

fn quoted(names: &[&str]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

/// Returns the string literals that are the first argument of these calls.
fn first_arguments(sources: &[PathBuf], calls: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    for source in sources {
        let text = fs::read_to_string(source).unwrap_or_default();
        for call in calls {
            let after =
                text.split(call).skip(1).map(str::trim_start).filter_map(|rest| rest.strip_prefix('"'));
            found.extend(after.filter_map(|rest| rest.split('"').next()).map(str::to_owned));
        }
    }
    found.sort();
    found.dedup();
    found
}

fn page(entry: &Entry) -> String {
    let (file, own) = module_of(entry);
    let mut page = format!("# {}\n\n", entry.name);
    let aliases = quoted(entry.aliases);
    if let Some(why) = why_absent(entry) {
        let aliases = if aliases.is_empty() { aliases } else { format!(" Aliases: {aliases}.") };
        let _ = writeln!(page, "Accepted by `--controllers`, but not available: {why}.{aliases}");
        return page;
    }
    let _ = write!(page, "{}\n\n", sentence(entry.summary));
    properties(&mut page, entry, &file);
    page.push_str("## Watches\n\n");
    table(&mut page, entry.watches);
    page.push_str("## Other requests\n\n");
    table(&mut page, entry.writes);
    flag_table(&mut page, &own);
    metrics(&mut page, entry, &own);
    let _ = write!(page, "## Design\n\n{}\n", header(&file));
    page
}

fn properties(page: &mut String, entry: &Entry, file: &Path) {
    let source = file.strip_prefix(here()).expect("a source of this crate").display();
    let or_none = |text: String| if text.is_empty() { "none".into() } else { text };
    let account = entry.account().map(|account| format!("`kube-system/{account}`"));
    page.push_str("| | |\n|---|---|\n");
    let _ = writeln!(page, "| Aliases | {} |", or_none(quoted(entry.aliases)));
    let _ = writeln!(page, "| Enabled by default | {} |", if entry.on_by_default { "yes" } else { "no" });
    if !entry.gates.is_empty() {
        let _ = writeln!(page, "| Required [feature gates](feature-gates.md) | {} |", quoted(entry.gates));
    }
    let _ = writeln!(page, "| Workers | {} |", entry.default_workers);
    let _ = writeln!(
        page,
        "| Service account | {} |",
        account.unwrap_or_else(|| "none; uses the manager's own credentials".into())
    );
    let _ = writeln!(page, "| Source | `crates/controllers/{source}` |\n");
}

fn flag_table(page: &mut String, own: &[PathBuf]) {
    let declared = first_arguments(own, &["Flag::workers(", "Flag::new("]);
    let mut flags = flags::all().filter(|flag| declared.iter().any(|name| name == flag.name)).peekable();
    if flags.peek().is_none() {
        return;
    }
    page.push_str("## Flags\n\n| Flag | Default | Description |\n|---|---|---|\n");
    for flag in flags {
        let _ = writeln!(page, "| `--{}` | {} | {} |", flag.name, flag.default, flag.help);
    }
    page.push('\n');
}

fn metrics(page: &mut String, entry: &Entry, own: &[PathBuf]) {
    let calls = ["Queue::new(", "Queue::with_rate_limiter(", "queue(context,", "queue:"];
    let queues = first_arguments(own, &calls);
    let queues: Vec<&str> = queues.iter().map(String::as_str).collect();
    page.push_str("## Metrics\n\n| Metrics | Label |\n|---|---|\n");
    let _ = writeln!(page, "| `controller_runtime_*` | `controller=\"{}\"` |", entry.name);
    if !queues.is_empty() {
        let _ = writeln!(page, "| `workqueue_*` | `name`: {} |", quoted(&queues));
    }
    page.push('\n');
}

fn index() -> String {
    let mut index = String::from(
        "# Controllers\n\nOne page for each built-in controller, generated from its registry entry and its module \
         header. [Feature gates](feature-gates.md) lists the gates that have an effect.\n\n| Controller | What it \
         does |\n|---|---|\n",
    );
    for entry in REGISTRY {
        let _ = writeln!(index, "| [{0}]({0}.md) | {1} |", entry.name, sentence(entry.summary));
    }
    index
}

/// Generates the page about feature gates: their effects, and the controllers that need them.
fn gates_page() -> String {
    let mut page = String::from(
        "# Feature gates\n\n`--feature-gates` accepts every gate of Kubernetes v1.34. The gates below have an effect; \
         setting another one to a non-default value prints a warning. `setpoint up` serves the kinds of a feature \
         while its gate is on.\n\n| Gate | Effect | Required by |\n|---|---|---|\n",
    );
    let needed = |gate: &str| {
        let entries = REGISTRY.iter().filter(|entry| entry.gates.contains(&gate));
        entries.map(|entry| format!("[{0}]({0}.md)", entry.name)).collect::<Vec<_>>().join(", ")
    };
    let mut effects = gates::EFFECTS.to_vec();
    effects.sort_unstable();
    for (gate, effect) in effects {
        let _ = writeln!(page, "| `{gate}` | {} | {} |", sentence(effect), needed(gate));
    }
    page
}

#[test]
fn every_controller_has_its_page_and_the_page_is_up_to_date() {
    let mut wanted: Vec<(PathBuf, String)> =
        REGISTRY.iter().map(|entry| (pages().join(format!("{}.md", entry.name)), page(entry))).collect();
    wanted.push((pages().join("README.md"), index()));
    wanted.push((pages().join("feature-gates.md"), gates_page()));
    check(&wanted, "controllers");
    let extra: Vec<PathBuf> =
        sources(&pages()).into_iter().filter(|path| !wanted.iter().any(|(known, _)| known == path)).collect();
    assert!(extra.is_empty(), "pages of no controller: {extra:?}");
}
