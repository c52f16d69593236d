//! Every controller has its page under `docs/controllers`, made from its entry in the registry and from what its
//! module says of itself. `SETPOINT_WRITE_PAGES=1 cargo test --workspace --test controllers pages` writes them anew.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use setpoint_controllers::{Access, Entry, REGISTRY, flags, gates, why_absent};

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

/// The file that declares a controller, and the files beside it that belong to it.
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

/// What the module says of itself.
fn header(file: &Path) -> String {
    let text = fs::read_to_string(file).expect("a source");
    let lines = text.lines().take_while(|line| line.starts_with("//!"));
    let lines = lines.map(|line| line.trim_start_matches("//!").strip_prefix(' ').unwrap_or_default());
    lines
        .collect::<Vec<_>>()
        .join("\n")
        .replace("Owns:", "\nOwns:")
        .replace("\nWatches:", "  \nWatches:")
        .replace("\nWrites:", "  \nWrites:")
        .replace("\nCounts:", "  \nCounts:")
}

/// The texts that are the first argument of a call, in these sources.
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

fn table(page: &mut String, accesses: &[Access]) {
    page.push_str("| Group | Resource | Verbs |\n|---|---|---|\n");
    for Access { group, resource, verbs } in accesses {
        let group = if group.is_empty() { "core" } else { group };
        let _ = writeln!(page, "| {group} | {resource} | {} |", verbs.join(", "));
    }
    page.push('\n');
}

fn page(entry: &Entry) -> String {
    let (file, own) = module_of(entry);
    let mut page = format!("# {}\n\nIt {}.\n\n", entry.name, entry.summary);
    if let Some(why) = why_absent(entry) {
        let names: Vec<_> = entry.aliases.iter().map(|name| format!("`{name}`")).collect();
        let older =
            if names.is_empty() { String::new() } else { format!(" Older names: {}.", names.join(", ")) };
        return format!(
            "# {}\n\nA list of controllers may name it; it does not run: {why}.{older}\n",
            entry.name
        );
    }
    let names: Vec<_> = entry.aliases.iter().map(|name| format!("`{name}`")).collect();
    let account =
        entry.account().map_or("the whole manager".into(), |account| format!("`kube-system/{account}`"));
    page.push_str("| | |\n|---|---|\n");
    let _ = writeln!(
        page,
        "| Older names | {} |",
        if names.is_empty() { "none".into() } else { names.join(", ") }
    );
    let _ = writeln!(page, "| On by default | {} |", if entry.on_by_default { "yes" } else { "no" });
    if !entry.gates.is_empty() {
        let gates: Vec<_> = entry.gates.iter().map(|gate| format!("`{gate}`")).collect();
        let _ = writeln!(page, "| Needs the features | {} |", gates.join(", "));
    }
    let _ = writeln!(page, "| Keys at once | {} |", entry.default_workers);
    let _ = writeln!(page, "| Acts as | {account} |\n");
    page.push_str("## Watches\n\n");
    table(&mut page, entry.watches);
    page.push_str("## Asks the API server for\n\n");
    table(&mut page, entry.writes);
    let declared = first_arguments(&own, &["Flag::workers(", "Flag::new("]);
    let declared: Vec<_> =
        flags::all().filter(|flag| declared.iter().any(|name| name == flag.name)).collect();
    if !declared.is_empty() {
        page.push_str("## Flags\n\n| Flag | Default | |\n|---|---|---|\n");
        for flag in declared {
            let _ = writeln!(page, "| `--{}` | {} | {} |", flag.name, flag.default, flag.help);
        }
        page.push('\n');
    }
    let queues = first_arguments(&own, &["Queue::new(", "Queue::with_rate_limiter("]);
    page.push_str("## Metrics\n\n");
    let _ = write!(page, "`controller_runtime_*` with `controller=\"{}\"`", entry.name);
    match queues.is_empty() {
        true => page.push_str(", `workqueue_*` with the name of its queue.\n\n"),
        false => {
            let queues: Vec<_> = queues.iter().map(|name| format!("`{name}`")).collect();
            let _ = write!(page, ", `workqueue_*` with `name` one of {}.\n\n", queues.join(", "));
        }
    }
    let _ = write!(page, "## What it guarantees, and how\n\n{}\n", header(&file));
    page
}

fn index() -> String {
    let mut index = String::from(
        "# The built-in controllers\n\n[Feature gates](feature-gates.md) change what they do.\n\n| Controller | |\n|---|---|\n",
    );
    for entry in REGISTRY {
        let _ = writeln!(index, "| [{0}]({0}.md) | {1} |", entry.name, entry.summary);
    }
    index
}

/// What each feature gate changes, and which controllers need it.
fn gates_page() -> String {
    let mut page = String::from(
        "# Feature gates\n\nAll gates of v1.34 are known to `--feature-gates`. These change something here; a kind that a \
         gate is about is served by `setpoint up` while the gate is on.\n\n| Gate | What it does | Controllers that \
         need it |\n|---|---|---|\n",
    );
    let needed = |gate: &str| {
        let entries = REGISTRY.iter().filter(|entry| entry.gates.contains(&gate));
        entries.map(|entry| format!("[{0}]({0}.md)", entry.name)).collect::<Vec<_>>().join(", ")
    };
    let mut effects = gates::EFFECTS.to_vec();
    effects.sort_unstable();
    for (gate, effect) in effects {
        let _ = writeln!(page, "| `{gate}` | {effect} | {} |", needed(gate));
    }
    page
}

#[test]
fn every_controller_has_its_page_and_the_page_is_up_to_date() {
    let mut wanted: Vec<(String, String)> =
        REGISTRY.iter().map(|entry| (format!("{}.md", entry.name), page(entry))).collect();
    wanted.push(("README.md".into(), index()));
    wanted.push(("feature-gates.md".into(), gates_page()));
    let write = std::env::var_os("SETPOINT_WRITE_PAGES").is_some();
    let mut stale = Vec::new();
    for (name, text) in &wanted {
        let path = pages().join(name);
        if fs::read_to_string(&path).ok().as_deref() == Some(text) {
            continue;
        }
        match write {
            true => {
                fs::create_dir_all(pages()).expect("a directory for pages");
                fs::write(&path, text).expect("a page can be written");
            }
            false => stale.push(name.as_str()),
        }
    }
    let extra = sources(&pages()).into_iter().filter(|path| {
        !wanted.iter().any(|(name, _)| path.file_name().is_some_and(|file| file == name.as_str()))
    });
    stale.extend(extra.map(|_| "a page of no controller"));
    assert!(
        stale.is_empty(),
        "run SETPOINT_WRITE_PAGES=1 cargo test --workspace --test controllers pages: {stale:?}"
    );
}
