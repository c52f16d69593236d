//! Style as a test: what a reader should be able to rely on anywhere in the tree.
//!
//! - every source file is declared by a module (an undeclared one is never compiled, its tests never run);
//! - every path that a document cites exists;
//! - dependencies between the rooms point one way;
//! - no module is named after nothing (`utils`, `helpers`, `common`);
//! - every module opens by saying what it owns;
//! - every test that the table of features names exists.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Which rooms each room may depend on. `tests` may reach further: see [`TEST_REACH`].
const ROOMS: &[(&str, &[&str])] = &[
    ("clock", &[]),
    ("cel", &["quantity"]),
    ("cron", &[]),
    ("flow", &["clock"]),
    ("quantity", &[]),
    ("quota", &["quantity"]),
    ("token", &[]),
    ("encryption", &["clock"]),
    ("webhook", &["clock"]),
    ("store", &["clock", "encryption"]),
    ("apiserver", &["cel", "clock", "cron", "flow", "quantity", "quota", "store", "token", "webhook"]),
    ("setpoint", &["clock"]),
    ("device", &["cel", "setpoint"]),
    ("placement", &["quantity", "setpoint"]),
    ("volume", &["placement", "quantity", "setpoint"]),
    (
        "controllers",
        &["cel", "cron", "device", "placement", "quantity", "quota", "setpoint", "token", "volume"],
    ),
    ("scheduler", &["cel", "device", "placement", "quantity", "setpoint", "volume"]),
    ("node", &["placement", "quantity", "setpoint"]),
    ("cluster", &["apiserver", "clock", "controllers", "node", "scheduler", "setpoint", "store"]),
    ("sim", &["apiserver", "clock", "cluster", "controllers", "node", "scheduler", "setpoint", "store"]),
    (
        "cli",
        &[
            "apiserver",
            "cel",
            "clock",
            "cluster",
            "controllers",
            "encryption",
            "node",
            "scheduler",
            "setpoint",
            "sim",
            "store",
        ],
    ),
];

/// Tests of these rooms run against a whole cluster or its simulation, and run the examples.
const TEST_REACH: &[&str] =
    &["cluster", "sim", "example-application", "example-first-controller", "example-operator-template"];

const MEANINGLESS_NAMES: &[&str] = &["utils", "util", "helpers", "helper", "common", "misc"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the workspace is there")
}

/// Files below `directory` with one of these extensions, build output left out.
fn files(directory: &Path, extensions: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut pending = vec![directory.to_path_buf()];
    while let Some(directory) = pending.pop() {
        for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
            let path = entry.path();
            let name = entry.file_name().to_string_lossy().into_owned();
            if path.is_dir() && name != "target" && !name.starts_with('.') {
                pending.push(path);
            } else if path.extension().is_some_and(|e| extensions.iter().any(|wanted| e == *wanted)) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("cannot read {}: {error}", path.display()))
}

fn relative(path: &Path) -> String {
    path.strip_prefix(root()).unwrap_or(path).display().to_string()
}

fn assert_none(problems: Vec<String>) {
    assert!(problems.is_empty(), "\n{}", problems.join("\n"));
}

/// The sources that cargo does not find by itself: all but crate roots and the files directly in
/// `tests`, `examples` and `benches`. A `main.rs` in `tests` is the only target there.
fn module_files() -> Vec<PathBuf> {
    let is_target = |path: &Path| {
        let directory = path.parent().unwrap_or(path);
        let parent = directory.file_name().unwrap_or_default();
        let name = path.file_name().unwrap_or_default();
        let root_file = name == "lib.rs" || name == "main.rs";
        let found = ["tests", "examples", "benches", "bin"].iter().any(|directory| parent == *directory);
        root_file || (found && !directory.join("main.rs").exists())
    };
    files(&root(), &["rs"]).into_iter().filter(|path| !is_target(path)).collect()
}

/// The files that could declare `path` as a module, and the name they would declare it by.
fn declarers(path: &Path) -> (Vec<PathBuf>, String) {
    let stem = path.file_stem().expect("a source file has a name").to_string_lossy().into_owned();
    let directory = path.parent().expect("a source file has a directory");
    let (home, name) = if stem == "mod" {
        let name =
            directory.file_name().expect("a module directory has a name").to_string_lossy().into_owned();
        (directory.parent().expect("a module has a parent"), name)
    } else {
        (directory, stem)
    };
    let mut declarers: Vec<PathBuf> =
        ["lib.rs", "main.rs", "mod.rs"].iter().map(|file| home.join(file)).collect();
    declarers.push(home.with_extension("rs"));
    declarers.extend(files(home, &["rs"]).into_iter().filter(|file| file.parent() == Some(home)));
    declarers.retain(|declarer| declarer.exists() && declarer != path);
    (declarers, name)
}

#[test]
fn every_source_file_is_declared_by_a_module() {
    let undeclared = module_files().into_iter().filter(|path| {
        let (declarers, name) = declarers(path);
        let declaration = format!("mod {name};");
        !declarers
            .iter()
            .any(|declarer| read(declarer).lines().any(|line| line.trim().ends_with(&declaration)))
    });
    assert_none(undeclared.map(|path| format!("{}: no module declares it", relative(&path))).collect());
}

#[test]
fn every_module_opens_by_saying_what_it_owns() {
    let in_src = |path: &PathBuf| path.components().any(|part| part.as_os_str() == "src");
    let silent = files(&root(), &["rs"]).into_iter().filter(in_src).filter(|path| {
        let name = path.file_name().unwrap_or_default();
        name != "tests.rs" && !read(path).starts_with("//!")
    });
    assert_none(silent.map(|path| format!("{}: opens without a `//!` header", relative(&path))).collect());
}

#[test]
fn no_module_is_named_after_nothing() {
    let meaningless = files(&root(), &["rs"]).into_iter().filter(|path| {
        let inside = path.strip_prefix(root()).expect("found below the root");
        inside.iter().any(|part| {
            let part = part.to_string_lossy();
            MEANINGLESS_NAMES.contains(&part.trim_end_matches(".rs"))
        })
    });
    assert_none(
        meaningless.map(|path| format!("{}: name it after what it holds", relative(&path))).collect(),
    );
}

/// `path/to/file` in backquotes or as a link target, where it looks like a path of this tree.
fn cited_paths(document: &str) -> BTreeSet<String> {
    let in_backquotes = document.split('`').skip(1).step_by(2);
    let link_targets = document.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let looks_like_a_path = |text: &&str| {
        let rooted = ["crates/", "docs/", "bench/", "examples/", "scripts/", "deploy/", "./"];
        !text.contains(|c: char| c.is_whitespace() || "*{<$".contains(c))
            && (rooted.iter().any(|root| text.starts_with(root))
                || (text.ends_with(".md") && !text.contains("://")))
    };
    in_backquotes
        .chain(link_targets)
        .map(|text| text.split('#').next().unwrap_or(text))
        .filter(looks_like_a_path)
        .map(str::to_owned)
        .collect()
}

#[test]
fn every_path_a_document_cites_exists() {
    let mut missing = Vec::new();
    for document in files(&root(), &["md"]) {
        let home = document.parent().expect("a document has a directory");
        for cited in cited_paths(&read(&document)) {
            if !root().join(&cited).exists() && !home.join(&cited).exists() {
                missing.push(format!("{}: cites {cited}, which does not exist", relative(&document)));
            }
        }
    }
    assert_none(missing);
}

/// The rooms that a manifest names in a section.
/// The tests that the table of faults names: words in code quotes that are no paths.
fn named_tests(document: &str) -> BTreeSet<&str> {
    let quoted = document.split('`').skip(1).step_by(2);
    quoted.filter(|word| word.contains('_') && !word.contains(['/', '.', ' '])).collect()
}

#[test]
fn every_test_that_the_table_of_faults_names_exists() {
    let sources: Vec<String> = files(&root().join("crates"), &["rs"]).iter().map(|path| read(path)).collect();
    let exists = |test: &str| sources.iter().any(|source| source.contains(&format!("fn {test}(")));
    let table = read(&root().join("docs/faults.md"));
    let missing = named_tests(&table).into_iter().filter(|test| !exists(test));
    assert_none(missing.map(|test| format!("docs/faults.md names {test}: there is no such test")).collect());
}

fn rooms_in(manifest: &str, section: &str) -> Vec<String> {
    let wanted = format!("[{section}]");
    let lines = manifest.lines().skip_while(|line| line.trim() != wanted).skip(1);
    let lines = lines.take_while(|line| !line.starts_with('['));
    let names = lines
        .filter_map(|line| line.split(['.', ' ', '=']).next())
        .filter(|name| name.starts_with("setpoint"));
    names.map(|name| name.strip_prefix("setpoint-").unwrap_or(name).to_owned()).collect()
}

#[test]
fn dependencies_between_rooms_point_one_way() {
    let mut wrong = Vec::new();
    for entry in fs::read_dir(root().join("crates")).expect("the rooms are there").flatten() {
        let room = entry.file_name().to_string_lossy().into_owned();
        let Some((_, allowed)) = ROOMS.iter().find(|(name, _)| *name == room) else {
            wrong.push(format!("crates/{room}: not on the map of rooms"));
            continue;
        };
        let manifest = read(&entry.path().join("Cargo.toml"));
        let of = |section: &str| rooms_in(&manifest, section);
        let reach = of("dev-dependencies").into_iter().filter(|used| !TEST_REACH.contains(&used.as_str()));
        for used in of("dependencies").into_iter().chain(reach) {
            if !allowed.contains(&used.as_str()) {
                wrong.push(format!("crates/{room} depends on {used}: the map does not allow it"));
            }
        }
    }
    assert_none(wrong);
}

/// The names in backquotes in the last column of a document's tables.
fn named_in_last_column(document: &str) -> BTreeSet<String> {
    let last_column = |row: &str| row.trim_end_matches('|').rsplit('|').next().unwrap_or_default().to_owned();
    let rows = document.lines().map(str::trim).filter(|line| line.starts_with('|')).map(last_column);
    let quoted = |cell: String| cell.split('`').skip(1).step_by(2).map(String::from).collect::<Vec<_>>();
    rows.flat_map(quoted).collect()
}

#[test]
fn every_test_that_the_table_of_features_names_exists() {
    let named = named_in_last_column(&read(&root().join("docs/frameworks.md")));
    assert!(named.len() > 50, "the table has been read: {named:?}");
    let mut missing = named;
    for path in files(&root(), &["rs"]) {
        let mut is_test = false;
        for line in read(&path).lines().map(str::trim) {
            // The attribute, perhaps others, then the function.
            let name =
                line.trim_start_matches("async ").strip_prefix("fn ").and_then(|line| line.split('(').next());
            match name {
                Some(name) if is_test => {
                    missing.remove(name);
                    is_test = false;
                }
                _ => is_test |= line.starts_with("#[test") || line.starts_with("#[tokio::test"),
            }
        }
    }
    assert_none(
        missing.into_iter().map(|name| format!("docs/frameworks.md: no test is named {name}")).collect(),
    );
}
