//! Style checks for the whole tree.
//!
//! - Every source file is declared by a module. An undeclared file is never compiled, and its tests never run.
//! - Every path cited in a document exists, and every link works.
//! - Every page is in the site's table of contents.
//! - Dependencies between crates point one way, as described in ARCHITECTURE.md.
//! - Every published crate has a README and the licence.
//! - Workflows pin actions to commits, and call targets of the Makefile that exist.
//! - No module has a meaningless name (`utils`, `helpers`, `common`).
//! - Every module starts with a doc comment.
//! - Every test named in the feature table exists.
//! - The parts of "What never happens" in ARCHITECTURE.md that can be checked in the source text: verbs that name
//!   resources, controllers that sleep or start tasks, plans that await, tests that wait for the wall clock.
//! - The patches of historical bugs still apply ([`historic`]).

#[path = "tidy/historic.rs"]
mod historic;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Which crates each crate may depend on. Tests may depend on more: see [`TEST_REACH`].
const ROOMS: &[(&str, &[&str])] = &[
    ("clock", &[]),
    ("cel", &["quantity"]),
    ("cron", &[]),
    ("cue", &[]),
    ("exposition", &[]),
    ("flow", &["clock"]),
    ("quantity", &[]),
    ("quota", &["quantity"]),
    ("scaffold", &[]),
    ("spdy", &[]),
    ("token", &[]),
    ("encryption", &["clock", "exposition"]),
    ("webhook", &["clock"]),
    ("store", &["clock", "encryption"]),
    ("etcd", &["clock", "store", "webhook"]),
    (
        "apiserver",
        &[
            "cel",
            "clock",
            "cron",
            "exposition",
            "flow",
            "quantity",
            "quota",
            "spdy",
            "store",
            "token",
            "webhook",
        ],
    ),
    ("setpoint", &["clock", "exposition"]),
    ("device", &["cel", "setpoint"]),
    ("placement", &["quantity", "setpoint"]),
    ("volume", &["placement", "quantity", "setpoint"]),
    (
        "controllers",
        &["cel", "cron", "device", "placement", "quantity", "quota", "setpoint", "token", "volume"],
    ),
    ("scheduler", &["cel", "device", "placement", "quantity", "setpoint", "volume"]),
    ("node", &["placement", "quantity", "setpoint", "spdy"]),
    ("shadow", &["setpoint"]),
    ("hooks", &["setpoint", "webhook"]),
    ("oam", &["cel", "cue", "quantity", "setpoint"]),
    ("explain", &["cron", "quantity", "scheduler", "setpoint"]),
    ("cluster", &["apiserver", "clock", "controllers", "node", "scheduler", "setpoint", "store"]),
    ("sim", &["apiserver", "clock", "cluster", "controllers", "node", "scheduler", "setpoint", "store"]),
    (
        "cli",
        &[
            "apiserver",
            "clock",
            "cluster",
            "controllers",
            "encryption",
            "etcd",
            "explain",
            "exposition",
            "hooks",
            "node",
            "oam",
            "scaffold",
            "scheduler",
            "setpoint",
            "shadow",
            "sim",
            "store",
            "webhook",
        ],
    ),
];

/// Tests may depend on these to run a whole cluster, its simulation, its shadow and the examples, and to reach a real
/// etcd.
const TEST_REACH: &[&str] = &[
    "cluster",
    "etcd",
    "shadow",
    "sim",
    "example-application",
    "example-first-controller",
    "example-operator-template",
];

const MEANINGLESS_NAMES: &[&str] = &["utils", "util", "helpers", "helper", "common", "misc"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the workspace is there")
}

/// Returns the files in `directory` with one of these extensions, without build output.
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

/// Returns the sources that cargo does not find on its own: all but crate roots and the files directly in `tests`,
/// `examples` and `benches`. A `main.rs` in `tests` is the only target there.
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

/// Returns the files that could declare `path` as a module, and the module's name.
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
fn every_module_starts_with_a_header() {
    let in_src = |path: &PathBuf| path.components().any(|part| part.as_os_str() == "src");
    let silent = files(&root(), &["rs"]).into_iter().filter(in_src).filter(|path| {
        let name = path.file_name().unwrap_or_default();
        name != "tests.rs" && !read(path).starts_with("//!")
    });
    assert_none(silent.map(|path| format!("{}: opens without a `//!` header", relative(&path))).collect());
}

#[test]
fn no_module_has_a_generic_name() {
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

/// Returns each `path/to/file` in backquotes or as a link target that looks like a path in this tree.
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

/// Returns a document without its code, in which nothing is a link.
fn prose(document: &str) -> String {
    let mut in_block = false;
    let mut text = String::new();
    for line in document.lines() {
        let is_fence = line.trim_start().starts_with("```");
        in_block ^= is_fence;
        if !in_block && !is_fence {
            text.extend(line.split('`').step_by(2));
            text.push('\n');
        }
    }
    text
}

/// Returns the local targets of links and images.
fn local_links(document: &str) -> Vec<String> {
    let prose = prose(document);
    let targets = prose.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    targets.filter(|target| !target.contains("://")).map(str::to_owned).collect()
}

/// Returns the anchors of a page's headings, as GitHub and mdBook generate them.
fn anchors(document: &str) -> BTreeSet<String> {
    let headings = document.lines().filter(|line| line.starts_with('#'));
    let keeps = |c: &char| c.is_alphanumeric() || matches!(c, '-' | '_' | ' ');
    let anchor = |heading: &str| {
        let text: String =
            heading.trim_start_matches('#').trim().to_lowercase().chars().filter(keeps).collect();
        text.replace(' ', "-")
    };
    headings.map(anchor).collect()
}

/// Returns the pages of the site: those at the top and those in `docs`.
fn site() -> Vec<PathBuf> {
    let at_the_top = |path: &PathBuf| path.parent() == Some(&root());
    let mut pages: Vec<PathBuf> = files(&root(), &["md"]).into_iter().filter(at_the_top).collect();
    pages.extend(files(&root().join("docs"), &["md"]));
    pages
}

#[test]
fn every_documentation_link_resolves() {
    let mut broken = Vec::new();
    for page in site() {
        let text = read(&page);
        let home = page.parent().expect("a page has a directory");
        for link in local_links(&text) {
            let (path, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let target = if path.is_empty() { page.clone() } else { home.join(path) };
            let leads = target.is_file() && (anchor.is_empty() || anchors(&read(&target)).contains(anchor));
            if !leads {
                broken.push(format!("{}: {link} leads nowhere", relative(&page)));
            }
        }
    }
    assert_none(broken);
}

#[test]
fn every_page_is_in_the_table_of_contents() {
    let contents = root().join("docs/SUMMARY.md");
    let canonical = |path: PathBuf| path.canonicalize().unwrap_or(path);
    let linked: Vec<PathBuf> =
        local_links(&read(&contents)).iter().map(|link| canonical(root().join("docs").join(link))).collect();
    let times = |page: &PathBuf| linked.iter().filter(|one| *one == page).count();
    let pages = site().into_iter().filter(|page| *page != contents);
    let wrong = pages.filter(|page| times(page) != 1);
    assert_none(wrong.map(|page| format!("{}: not once in docs/SUMMARY.md", relative(&page))).collect());
}

#[test]
fn the_page_of_simulated_nodes_has_every_annotation() {
    let source = read(&root().join("crates/node/src/behaviour.rs"));
    let page = read(&root().join("docs/reference/simulated-nodes.md"));
    let declared = source.lines().filter(|line| line.trim_start().starts_with("pub const "));
    let names = declared.filter_map(|line| line.split("node.setpoint.dev/").nth(1)?.split('"').next());
    let names: Vec<&str> = names.collect();
    assert!(names.len() > 10, "the annotations have been read: {names:?}");
    let missing = names.into_iter().filter(|name| {
        !page.contains(&format!("`{name}`")) && !page.contains(&format!("`node.setpoint.dev/{name}`"))
    });
    assert_none(
        missing.map(|name| format!("docs/reference/simulated-nodes.md: {name} is missing")).collect(),
    );
}

/// Returns the tests named in the table of faults: words in code quotes that are not paths.
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

/// Returns the crates of this workspace in a section of a manifest.
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
fn crates_depend_only_on_what_the_table_allows() {
    let mut wrong = Vec::new();
    for entry in fs::read_dir(root().join("crates")).expect("the crates are there").flatten() {
        let room = entry.file_name().to_string_lossy().into_owned();
        let Some((_, allowed)) = ROOMS.iter().find(|(name, _)| *name == room) else {
            wrong.push(format!("crates/{room}: not in the table of crates"));
            continue;
        };
        let manifest = read(&entry.path().join("Cargo.toml"));
        let of = |section: &str| rooms_in(&manifest, section);
        let reach = of("dev-dependencies").into_iter().filter(|used| !TEST_REACH.contains(&used.as_str()));
        for used in of("dependencies").into_iter().chain(reach) {
            if !allowed.contains(&used.as_str()) {
                wrong.push(format!("crates/{room} depends on {used}: the table of crates does not allow it"));
            }
        }
    }
    assert_none(wrong);
}

#[test]
fn the_architecture_page_lists_the_same_dependencies() {
    let page = read(&root().join("ARCHITECTURE.md"));
    let listed = |room: &str| -> Option<BTreeSet<String>> {
        let row = page.lines().find(|line| line.starts_with(&format!("| `crates/{room}` |")))?;
        let cell = row.trim_end_matches(['|', ' ']).rsplit('|').next()?.trim();
        Some(cell.split(',').map(|name| name.trim().to_owned()).filter(|name| name != "–").collect())
    };
    let mut wrong = Vec::new();
    for (room, allowed) in ROOMS {
        let expected: BTreeSet<String> = allowed.iter().map(|name| (*name).to_owned()).collect();
        let found = listed(room).unwrap_or_default();
        if found != expected && !found.contains("all above") {
            wrong.push(format!("ARCHITECTURE.md: crates/{room} may depend on {expected:?}, not {found:?}"));
        }
    }
    assert_none(wrong);
}

#[test]
fn every_published_crate_has_a_readme_and_a_licence() {
    let mut missing = Vec::new();
    for entry in fs::read_dir(root().join("crates")).expect("the crates are there").flatten() {
        let path = entry.path();
        let is_published = !read(&path.join("Cargo.toml")).contains("publish.workspace = true");
        for file in ["README.md", "LICENSE"] {
            if is_published && !path.join(file).is_file() {
                missing.push(format!("{}: has no {file}", relative(&path)));
            }
        }
    }
    assert_none(missing);
}

/// Returns the names in backquotes in the last column of a document's tables.
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
            // The attribute, possibly others, then the function.
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

/// Returns the source of a file without its tests and comments.
fn production(path: &Path) -> String {
    let source = read(path);
    let source = source.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    source.lines().map(|line| line.split("//").next().unwrap_or_default()).collect::<Vec<_>>().join("\n")
}

/// Returns the production sources in these directories.
fn production_files(directories: &[&str]) -> Vec<PathBuf> {
    let is_test = |path: &PathBuf| {
        path.iter().any(|part| part == "tests" || part == "tests.rs" || part == "fixtures.rs")
    };
    let all = directories.iter().flat_map(|directory| files(&root().join(directory), &["rs"]));
    all.filter(|path| !is_test(path)).collect()
}

/// Returns every occurrence of these texts in the production sources.
fn occurrences(sources: &[PathBuf], banned: &[&str], instead: &str) -> Vec<String> {
    let found = sources.iter().flat_map(|path| {
        let source = production(path);
        let found = banned.iter().filter(|text| source.contains(**text));
        found.map(|text| format!("{}: `{text}`; {instead}", relative(path))).collect::<Vec<_>>()
    });
    found.collect()
}

/// The files of the API server that handle all kinds alike.
const VERBS: &[&str] = &[
    "apply.rs",
    "create.rs",
    "delete.rs",
    "delete_collection.rs",
    "get.rs",
    "list.rs",
    "list_body.rs",
    "internal_write.rs",
    "ownership.rs",
    "patch.rs",
    "respond.rs",
    "scale.rs",
    "update.rs",
    "watch",
];

#[test]
fn no_verb_names_a_resource() {
    let paths: Vec<String> = VERBS.iter().map(|verb| format!("crates/apiserver/src/rest/{verb}")).collect();
    let (mut sources, mut missing) = (Vec::new(), Vec::new());
    for path in &paths {
        match root().join(path) {
            path if path.is_dir() => sources.extend(files(&path, &["rs"])),
            path if path.is_file() => sources.push(path),
            _ => missing.push(format!("{path}: not there any more")),
        }
    }
    assert_none(missing);
    assert_none(occurrences(&sources, &["Gvr::new("], "declare it in the kind's entry"));
}

#[test]
fn no_controller_sleeps_or_starts_a_task() {
    let banned = [
        "tokio::spawn",
        "JoinSet",
        "time::sleep",
        "time::interval",
        "sleep_until",
        "sleep(",
        "thread::spawn",
    ];
    let mut sources = production_files(&["crates/controllers/src", "crates/scheduler/src"]);
    let advice = "return `Outcome::CheckAfter`, or add a controller";
    assert_none(occurrences(&sources, &banned, advice));
    // These wait for the caches of kinds that they discover.
    sources.retain(|path| !path.ends_with("monitors.rs"));
    assert_none(occurrences(&sources, &["time::timeout"], advice));
}

#[test]
fn no_plan_awaits() {
    let mut sources = production_files(&["crates/controllers/src", "crates/scheduler/src"]);
    let pure = ["plan.rs", "status.rs", "rank.rs", "rolling.rs", "decide.rs", "filter.rs", "score.rs"];
    sources.retain(|path| path.file_name().is_some_and(|name| pure.iter().any(|pure| name == *pure)));
    assert!(sources.len() > 20, "the sources were found: {sources:?}");
    assert_none(occurrences(&sources, &["async ", "Clock", "Rng"], "pass the value in"));
}

/// Tests that wait in real time, with the reason.
const REAL_TIME: &[(&str, &str)] = &[
    ("crates/cli/tests", "they run the binary"),
    ("crates/apiserver/tests/api/tls.rs", "sockets and their timeouts"),
    ("crates/apiserver/tests/api/aggregation_sockets.rs", "sockets"),
    ("crates/hooks/src/call/process.rs", "child processes"),
    ("crates/hooks/src/program.rs", "child processes"),
    ("crates/encryption/src/tests", "files that change, plugins behind sockets"),
    ("crates/store/tests/kill.rs", "a process that is killed"),
    ("crates/store/tests/concurrency.rs", "threads"),
    ("crates/setpoint/src/queue/tests.rs", "threads"),
    ("crates/setpoint/src/webhook/tests.rs", "a server behind a socket"),
];

#[test]
fn no_test_waits_for_the_wall_clock() {
    let mut waiting = Vec::new();
    for path in files(&root(), &["rs"]) {
        if REAL_TIME.iter().any(|(real, _)| relative(&path).starts_with(real)) {
            continue;
        }
        let source = read(&path);
        let tests = source.split("#[tokio::test").skip(1);
        for test in tests.filter(|test| !test.starts_with("(start_paused = true)")) {
            let body = test.split("\n}").next().unwrap_or_default();
            if body.contains("sleep(") || body.contains("timeout(") {
                let name = body.split("fn ").nth(1).and_then(|rest| rest.split('(').next());
                waiting.push(format!("{}: {}", relative(&path), name.unwrap_or("a test")));
            }
        }
        if path.iter().any(|part| part == "tests") && source.contains("thread::sleep") {
            waiting.push(format!("{}: thread::sleep", relative(&path)));
        }
    }
    assert_none(waiting);
}

/// Tags of actions can be moved, and the code behind them runs with the rights of a release.
#[test]
fn every_action_is_pinned_to_a_commit() {
    let mut unpinned = Vec::new();
    for workflow in files(&root().join(".github/workflows"), &["yml"]) {
        for action in read(&workflow).lines().filter_map(|line| line.trim().strip_prefix("- uses: ")) {
            let version = action.split([' ', '@']).nth(1).unwrap_or_default();
            if version.len() != 40 || !version.chars().all(|c| c.is_ascii_hexdigit()) {
                unpinned.push(format!("{}: {action} is not pinned to a commit", relative(&workflow)));
            }
        }
    }
    assert_none(unpinned);
}

#[test]
fn every_make_target_that_a_workflow_calls_exists() {
    let makefile = read(&root().join("Makefile"));
    let exists = |target: &str| makefile.lines().any(|line| line.starts_with(&format!("{target}:")));
    let mut called = 0;
    let mut missing = Vec::new();
    for workflow in files(&root().join(".github/workflows"), &["yml"]) {
        for target in read(&workflow).lines().filter_map(|line| line.trim().strip_prefix("- run: make ")) {
            called += 1;
            if !exists(target) {
                missing.push(format!("{}: make {target} does not exist", relative(&workflow)));
            }
        }
    }
    assert!(called > 4, "the workflows have been read");
    assert_none(missing);
}
