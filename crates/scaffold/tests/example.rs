//! The example `operator-template` is what `setpoint new` writes, so that the templates are compiled, linted and tested
//! with this workspace.
//!
//! `SETPOINT_WRITE_TEMPLATE=1 cargo test -p setpoint-scaffold` writes it.

use std::fs;
use std::path::{Path, PathBuf};

use setpoint_scaffold::{Description, KindDescription, Language, Project, SetpointSource};

/// The parts that the workspace compiles and tests. Its manifest is its own.
const PARTS: &[&str] = &["src/", "tests/operator/", "config/crd/bases/", "config/rbac/role.yaml"];

fn example() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/operator-template")
}

#[test]
fn the_example_is_what_the_templates_say() {
    let directory = tempfile::tempdir().expect("a directory");
    let description = Description {
        name: "setpoint-example-operator-template".into(),
        language: Language::Rust,
        version: "0.1.0".into(),
        image: "operator:0.1.0".into(),
        setpoint: SetpointSource::Version("0.1.0".into()),
        kinds: vec![KindDescription::new("Widget", "example.com", "v1")],
    };
    let root = directory.path().join("example");
    let (_, report) = Project::create(&root, description, false).expect("a project");
    let mut stale = Vec::new();
    for path in report.created.iter().filter(|path| PARTS.iter().any(|part| path.starts_with(part))) {
        let expected = fs::read_to_string(root.join(path)).expect("a file");
        let place = example().join(path);
        if fs::read_to_string(&place).is_ok_and(|found| found == expected) {
            continue;
        }
        if std::env::var_os("SETPOINT_WRITE_TEMPLATE").is_some() {
            fs::create_dir_all(place.parent().expect("a directory")).expect("created");
            fs::write(&place, expected).expect("written");
        } else {
            stale.push(path);
        }
    }
    assert!(stale.is_empty(), "run SETPOINT_WRITE_TEMPLATE=1 cargo test -p setpoint-scaffold: {stale:?}");
}
