//! No controller is forgotten: every controller in the registry that writes is tested with faults.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use setpoint_controllers::{Entry, REGISTRY};

/// Where the plans are, relative to this crate.
const ROOMS: [&str; 2] = ["tests", "../controllers/tests"];

/// The functions that run every plan for a script.
const DISTURBS: [&str; 5] =
    ["survives(", "survives_with(", "survives_within(", "check_all(", "check_at_depth("];

#[test]
fn every_controller_that_writes_is_in_some_plan() {
    let files = ROOMS.iter().flat_map(|room| sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join(room)));
    let disturbed: BTreeSet<String> = files.flat_map(|file| named_in_plans(&read(&file))).collect();
    let is_in_one = |entry: &Entry| {
        disturbed.contains(entry.name) || entry.aliases.iter().any(|alias| disturbed.contains(*alias))
    };
    let writing = REGISTRY.iter().filter(|entry| !entry.writes.is_empty());
    let forgotten: Vec<_> = writing.filter(|entry| !is_in_one(entry)).map(|entry| entry.name).collect();
    assert!(forgotten.is_empty(), "in no plan: {forgotten:?}");
}

#[test]
fn a_name_counts_only_where_a_plan_leads_to_it() {
    let text = r#"const OURS: &[&str] = &["a"];
const OTHERS: &[&str] = &["b"];
fn with() -> Parts {
    parts(OURS)
}
fn check() {
    survives_with("x", with(), script);
}
#[test]
fn disturbed() {
    check(&["c"]);
}
#[test]
fn looked_at() {
    World::simulate(1, parts(OTHERS));
}
"#;
    assert_eq!(named_in_plans(text), BTreeSet::from(["a", "c", "x"].map(str::to_owned)));
}

fn read(file: &Path) -> String {
    fs::read_to_string(file).unwrap_or_else(|error| panic!("cannot read {}: {error}", file.display()))
}

fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let paths = entries.map(|entry| entry.expect("an entry of a folder").path());
    paths.flat_map(|path| if path.is_dir() { sources(&path) } else { vec![path] }).collect()
}

/// Returns everything quoted in the items of a file that run plans, and in the items they refer to.
fn named_in_plans(text: &str) -> BTreeSet<String> {
    let items = items(text);
    let mut left: Vec<&str> = disturbing(&items);
    let (mut reached, mut quoted) = (BTreeSet::new(), BTreeSet::new());
    while let Some(name) = left.pop() {
        let Some(item) = items.get(name).filter(|_| reached.insert(name)) else { continue };
        quoted.extend(item.split('"').skip(1).step_by(2).map(str::to_owned));
        left.extend(words(item));
    }
    quoted
}

/// Returns the items that run plans, directly or through others.
fn disturbing(items: &BTreeMap<String, String>) -> Vec<&str> {
    let calls = |item: &String| DISTURBS.iter().any(|call| item.contains(call));
    let mut found: BTreeSet<&str> =
        items.iter().filter(|(_, item)| calls(item)).map(|(name, _)| name.as_str()).collect();
    loop {
        let before = found.len();
        let through = items.iter().filter(|(_, item)| words(item).any(|word| found.contains(word)));
        let through: Vec<&str> = through.map(|(name, _)| name.as_str()).collect();
        found.extend(through);
        if found.len() == before {
            return found.into_iter().collect();
        }
    }
}

fn words(item: &str) -> impl Iterator<Item = &str> {
    item.split(|c: char| !c.is_alphanumeric() && c != '_')
}

/// Returns the functions and constants of a formatted file, by name.
fn items(text: &str) -> BTreeMap<String, String> {
    let mut items = BTreeMap::<String, String>::new();
    let mut current = String::new();
    for line in text.lines() {
        let line = line.split_once("//").map_or(line, |(code, _)| code);
        let code = line.strip_prefix("pub(crate) ").unwrap_or(line);
        let name = ["fn ", "async fn ", "const "].iter().find_map(|start| code.strip_prefix(start));
        if let Some(name) = name {
            current =
                name.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default().to_owned();
        }
        let item = items.entry(current.clone()).or_default();
        item.push_str(line);
        item.push('\n');
    }
    items
}
