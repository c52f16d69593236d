//! The patches in `crates/sim/tests/historic`, which reintroduce bugs that Kubernetes once had.
//!
//! This does not build anything. It checks that every patch applies to the sources, alone and together with the others,
//! changes nothing but sources, and has a reference, an existing test and a switch. No source has the switch of a bug
//! already. `make historic` shows that the tests notice the bugs.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use super::{assert_none, files, read, relative, root};

struct Bug {
    path: PathBuf,
    name: String,
    text: String,
}

impl Bug {
    fn all() -> Vec<Self> {
        let patches = files(&root().join("crates/sim/tests/historic"), &["patch"]);
        assert!(patches.len() >= 40, "the patches have been found: {patches:?}");
        let bug = |path: PathBuf| {
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            Self { name, text: read(&path), path }
        };
        patches.into_iter().map(bug).collect()
    }

    fn field(&self, name: &str) -> &str {
        let header = self.text.split("\n--- ").next().unwrap_or_default();
        header.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default()
    }

    fn is_referenced(&self) -> bool {
        let number = self.field("Reference: ").strip_prefix("kubernetes/kubernetes#");
        number.is_some_and(|number| number.parse::<u32>().is_ok())
    }

    /// Whether the test `module::...::test` exists in the simulation.
    fn is_tested(&self) -> bool {
        let mut path: Vec<&str> = self.field("Noticed by: ").split("::").collect();
        let test = path.pop().unwrap_or_default();
        let module = root().join("crates/sim/tests").join(path.join("/"));
        let file =
            [module.with_extension("rs"), module.join("mod.rs")].into_iter().find(|file| file.is_file());
        file.is_some_and(|file| read(&file).contains(&format!("#[test]\nfn {test}()")))
    }

    fn has_a_switch(&self) -> bool {
        self.text.contains(&format!("bug == \"{}\"", self.name))
    }

    fn changes_sources_only(&self) -> bool {
        let mut changed = self.text.lines().filter_map(|line| line.strip_prefix("+++ b/"));
        changed.all(|path| path.starts_with("crates/") && path.contains("/src/") && !path.contains("tests"))
    }
}

#[test]
fn every_historic_bug_has_a_reference_a_test_and_a_switch() {
    let mut wrong = Vec::new();
    for bug in Bug::all() {
        let claims = [
            (bug.is_referenced(), "`Reference: kubernetes/kubernetes#NUMBER`"),
            (bug.is_tested(), "`Noticed by: MODULE::TEST`, a test in crates/sim/tests"),
            (bug.has_a_switch(), "a switch with the name of the patch"),
            (bug.changes_sources_only(), "changes of sources only"),
        ];
        let missing = claims.iter().filter(|(holds, _)| !holds);
        wrong.extend(missing.map(|(_, what)| format!("{}: expected {what}", relative(&bug.path))));
    }
    assert_none(wrong);
}

/// Whether patches apply in sequence.
fn apply(patches: &str) -> Result<(), String> {
    let root = root();
    let mut git = Command::new("git");
    git.args(["apply", "--check"]).current_dir(&root).stdin(Stdio::piped()).stderr(Stdio::piped());
    // In a copy of the tree inside another repository, git would skip files that are not in that one.
    git.env("GIT_CEILING_DIRECTORIES", root.parent().unwrap_or(&root));
    let mut git = git.spawn().expect("git can be run");
    git.stdin.take().expect("a pipe").write_all(patches.as_bytes()).expect("git parses the patches");
    let output = git.wait_with_output().expect("git ends");
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.success() { Ok(()) } else { Err(errors) }
}

#[test]
fn every_historic_bug_still_applies() {
    let bugs = Bug::all();
    let stale = bugs.iter().filter_map(|bug| {
        let errors = apply(&bug.text).err()?;
        Some(format!("{}: does not apply to the sources any more; edit it\n{errors}", relative(&bug.path)))
    });
    assert_none(stale.collect());
    let together: String = bugs.iter().map(|bug| bug.text.as_str()).collect();
    apply(&together).unwrap_or_else(|errors| panic!("the patches do not apply together:\n{errors}"));
}

#[test]
fn no_source_has_a_historic_bug() {
    let in_src = |path: &PathBuf| path.components().any(|part| part.as_os_str() == "src");
    let sources = files(&root().join("crates"), &["rs"]).into_iter().filter(in_src);
    let switched = sources.filter(|path| read(path).contains("SETPOINT_BUG"));
    assert_none(switched.map(|path| format!("{}: the switch of a bug is left", relative(&path))).collect());
}
