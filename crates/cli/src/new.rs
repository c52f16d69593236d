//! `setpoint new`: a small operator that builds, has tests and runs.
//!
//! What it writes is `examples/operator-template` under other names. That one is built and tested with this
//! workspace, and so is everything written from it.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};

use crate::args::New;

const FILES: &[(&str, &str)] = &[
    ("src/lib.rs", include_str!("../../../examples/operator-template/src/lib.rs")),
    ("src/crd.rs", include_str!("../../../examples/operator-template/src/crd.rs")),
    ("src/reconcile.rs", include_str!("../../../examples/operator-template/src/reconcile.rs")),
    ("src/main.rs", include_str!("../../../examples/operator-template/src/main.rs")),
    ("tests/operator.rs", include_str!("../../../examples/operator-template/tests/operator.rs")),
];
const MANIFEST: &str = include_str!("../../../examples/operator-template/Cargo.toml");
const WORKSPACE: &str = include_str!("../../../Cargo.toml");
const README: &str = "# NAME

An operator of KINDs, made with `setpoint new`.

```console
$ cargo test                                      # in a cluster of its own, on a virtual clock
$ setpoint up --in-memory --kubeconfig kubeconfig # or any other cluster
$ export KUBECONFIG=kubeconfig
$ cargo run -- --crd | kubectl apply -f -
$ cargo run -- --bind-address=127.0.0.1:8080      # health, metrics and profiles
```
";

/// The names that a project is written with.
struct Names {
    package: String,
    library: String,
    kind: String,
    singular: String,
    plural: String,
    group: String,
}

pub(crate) fn run(arguments: &New) -> anyhow::Result<()> {
    let names = Names::of(arguments)?;
    let checkout = checkout(arguments.setpoint_path.as_deref())?;
    let directory = arguments.directory.clone().unwrap_or_else(|| PathBuf::from(&names.package));
    ensure!(!directory.exists(), "{} is there already: name another with --directory", directory.display());
    for (path, content) in files(&names, &checkout)? {
        let path = directory.join(path);
        let parent = path.parent().unwrap_or(&directory);
        fs::create_dir_all(parent).with_context(|| format!("cannot make {}", parent.display()))?;
        fs::write(&path, content).with_context(|| format!("cannot write {}", path.display()))?;
    }
    eprintln!("Wrote {}: an operator of {}s. Try:", directory.display(), names.kind);
    eprintln!("  cd {} && cargo test", directory.display());
    Ok(())
}

/// Every file of the project with its content.
fn files(names: &Names, checkout: &Path) -> anyhow::Result<Vec<(&'static str, String)>> {
    let mut files: Vec<_> = FILES.iter().map(|(path, content)| (*path, names.put_into(content))).collect();
    files.push(("Cargo.toml", names.put_into(&manifest(checkout)?)));
    files.push(("README.md", README.replace("NAME", &names.package).replace("KIND", &names.kind)));
    files.push((".gitignore", "/target\n".into()));
    Ok(files)
}

impl Names {
    fn of(arguments: &New) -> anyhow::Result<Self> {
        let package = arguments.name.clone();
        let is_name = |text: &str| {
            let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
            text.starts_with(|c: char| c.is_ascii_lowercase())
                && text.chars().all(inner)
                && !text.ends_with('-')
        };
        ensure!(is_name(&package), "NAME: expected lower-case letters, digits and hyphens, not {package:?}");
        let kind = arguments.kind.clone().unwrap_or_else(|| camel(package.trim_end_matches("-operator")));
        let is_kind = kind.starts_with(|c: char| c.is_ascii_uppercase())
            && kind.chars().all(|c| c.is_ascii_alphanumeric());
        ensure!(is_kind, "--kind: expected a name such as Database, not {kind:?}");
        let group = arguments.group.clone();
        let is_group = group.contains('.') && group.split('.').all(is_name);
        ensure!(is_group, "--group: expected a domain such as example.com, not {group:?}");
        let singular = kind.to_lowercase();
        let (library, plural) = (package.replace('-', "_"), format!("{singular}s"));
        Ok(Self { package, library, kind, singular, plural, group })
    }

    fn put_into(&self, content: &str) -> String {
        content
            .replace("setpoint-example-operator-template", &self.package)
            .replace("setpoint_example_operator_template", &self.library)
            .replace("example.com", &self.group)
            .replace("Widget", &self.kind)
            .replace("widgets", &self.plural)
            .replace("widget", &self.singular)
    }
}

/// `web-shop` as `WebShop`.
fn camel(name: &str) -> String {
    let capital = |word: &str| {
        let (first, rest) = word.split_at(word.len().min(1));
        first.to_uppercase() + rest
    };
    name.split('-').map(capital).collect()
}

/// The template's manifest with what it inherits from the workspace spelled out.
fn manifest(checkout: &Path) -> anyhow::Result<String> {
    let mut lines = Vec::new();
    for line in MANIFEST.lines() {
        match line.strip_suffix(".workspace = true") {
            Some("version") => lines.push("version = \"0.1.0\"".to_owned()),
            Some("edition") => lines.push(inherited("edition")?.to_owned()),
            Some("rust-version" | "license" | "publish") => {}
            Some(room) if room.starts_with("setpoint") => {
                let folder = room.strip_prefix("setpoint-").unwrap_or(room);
                let path = checkout.join("crates").join(folder);
                lines.push(format!("{room} = {{ path = {:?} }}", path.display().to_string()));
            }
            Some(dependency) => lines.push(inherited(dependency)?.to_owned()),
            None if line.starts_with("description") => {}
            None => lines.push(match line.split_once(" = { workspace = true, features = [") {
                Some((dependency, features)) => with_features(inherited(dependency)?, features),
                None => line.to_owned(),
            }),
        }
    }
    // The rest of the manifest says that lints are the workspace's, of which the project has none.
    let text = lines.join("\n").replace("\n[lints]\nworkspace = true", "");
    Ok(text.trim_end().to_owned() + "\n\n# A project of its own, wherever it lies.\n[workspace]\n")
}

fn inherited(name: &str) -> anyhow::Result<&'static str> {
    let found = WORKSPACE.lines().find(|line| line.split_once(' ').is_some_and(|(key, _)| key == name));
    found.with_context(|| format!("the workspace says nothing of {name}"))
}

/// A dependency of the workspace with more features; `more` is the rest of a line, after the opening bracket.
fn with_features(inherited: &str, more: &str) -> String {
    let more = more.split(']').next().unwrap_or_default();
    inherited.replace("features = [", &format!("features = [{more}, "))
}

/// Where the crates are: they are not published, so a project refers to a checkout.
fn checkout(given: Option<&Path>) -> anyhow::Result<PathBuf> {
    let built_from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let path = given.unwrap_or(&built_from);
    let is_checkout = path.join("crates/setpoint/Cargo.toml").exists();
    ensure!(is_checkout, "--setpoint-path: expected a checkout of setpoint, not {}", path.display());
    path.canonicalize().with_context(|| format!("cannot find {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new(name: &str, kind: Option<&str>, group: &str) -> New {
        New {
            name: name.into(),
            kind: kind.map(str::to_owned),
            group: group.into(),
            directory: None,
            setpoint_path: None,
        }
    }

    fn refusal(arguments: &New) -> String {
        Names::of(arguments).err().map(|error| error.to_string()).unwrap_or_default()
    }

    #[test]
    fn names_that_nothing_can_have_are_refused() {
        let check =
            |name, kind, group, expected: &str| assert_eq!(refusal(&new(name, kind, group)), expected);
        check("web-shop", None, "example.com", "");
        check(
            "Web",
            None,
            "example.com",
            "NAME: expected lower-case letters, digits and hyphens, not \"Web\"",
        );
        check("web", Some("shop"), "example.com", "--kind: expected a name such as Database, not \"shop\"");
        check("web", None, "example", "--group: expected a domain such as example.com, not \"example\"");
    }

    #[test]
    fn a_project_is_written_under_its_own_names() {
        let directory = tempfile::tempdir().expect("a directory");
        let target = directory.path().join("db");
        let arguments =
            New { directory: Some(target.clone()), ..new("database-operator", None, "data.example.org") };
        run(&arguments).expect("written");
        let read = |path: &str| fs::read_to_string(target.join(path)).expect("a file");
        let manifest = read("Cargo.toml");
        assert!(
            manifest.contains("name = \"database-operator\"") && manifest.contains("/crates/sim\""),
            "{manifest}"
        );
        assert!(!manifest.contains("workspace = true"), "{manifest}");
        assert!(manifest.contains(r#"features = ["schemars", "v1_34", "std"]"#), "{manifest}");
        assert!(read("src/crd.rs").contains(
            r#"#[kube(group = "data.example.org", version = "v1", kind = "Database", plural = "databases")]"#
        ));
        assert!(
            read("tests/operator.rs").contains("use database_operator::{Database, definition, runnables};")
        );
        for (path, _) in FILES {
            let text = read(path).to_lowercase();
            assert!(!text.contains("widget") && !text.contains("template::"), "{path}");
        }
        assert!(run(&arguments).is_err(), "what is there is not written over");
    }
}
