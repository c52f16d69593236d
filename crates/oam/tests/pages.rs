//! Generates the pages in `docs/applications` and the role in `deploy/applications` from the registry and the header of
//! each controller's module. `SETPOINT_WRITE_PAGES=1 cargo test --workspace --test oam pages` writes them.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use setpoint_oam::{Entry, REGISTRY, rules};

#[path = "../../controllers/tests/page_text.rs"]
mod page_text;

use page_text::{check, header, sentence, table};

fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The file whose header describes a controller.
fn module_of(entry: &Entry) -> &'static str {
    match entry.name {
        "application-controller" => "src/application/mod.rs",
        "definition-controller" => "src/definition/revisions.rs",
        "workflow-run-controller" => "src/workflow_run/mod.rs",
        "resource-graph-controller" => "src/graph/mod.rs",
        other => panic!("no module for {other}"),
    }
}

fn page(entry: &Entry) -> String {
    let file = module_of(entry);
    let mut page = format!("# {}\n\n{}\n\n", entry.name, sentence(entry.summary));
    let _ = write!(
        page,
        "| | |\n|---|---|\n| Workers | {} (`--{}`) |\n| Source | `crates/oam/{file}` |\n\n",
        entry.default_workers, entry.workers_flag
    );
    page.push_str("## Watches\n\n");
    table(&mut page, entry.watches);
    page.push_str("## Other requests\n\n");
    table(&mut page, entry.writes);
    let _ = write!(page, "## Design\n\n{}\n", header(&here().join(file)));
    page
}

fn index() -> String {
    let mut index = String::from(
        "# Application controllers\n\nThe controllers of `setpoint up --applications` and of [setpoint \
         application-manager](../reference/setpoint-application-manager.md). One page for each, generated from its \
         registry entry and its module header. The [guide](../guide/applications.md) describes how to use \
         applications.\n\n| Controller | What it does |\n|---|---|\n",
    );
    for entry in REGISTRY {
        let _ = writeln!(index, "| [{0}]({0}.md) | {1} |", entry.name, sentence(entry.summary));
    }
    index.push_str(
        "\nThe role that all of them need is `deploy/applications/rbac.yaml`. Every controller has the metrics \
         `controller_runtime_*` and `workqueue_*`.\n",
    );
    index
}

/// Returns the account and the role of a manager that runs all controllers.
fn role() -> String {
    let entries: Vec<&Entry> = REGISTRY.iter().collect();
    let mut text = String::from(
        "# Generated from the registry of controllers; see crates/oam/tests/pages.rs.\n\
         apiVersion: v1\nkind: Namespace\nmetadata:\n  name: vela-system\n---\n\
         apiVersion: v1\nkind: ServiceAccount\nmetadata:\n  name: setpoint-application-manager\n  namespace: vela-system\n---\n\
         apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata:\n  name: setpoint-application-manager\nrules:\n",
    );
    for rule in rules(&entries) {
        let _ = writeln!(text, "  - {rule}");
    }
    text.push_str(
        "---\napiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\nmetadata:\n  name: \
         setpoint-application-manager\nroleRef:\n  apiGroup: rbac.authorization.k8s.io\n  kind: ClusterRole\n  name: \
         setpoint-application-manager\nsubjects:\n  - kind: ServiceAccount\n    name: setpoint-application-manager\n    \
         namespace: vela-system\n",
    );
    text
}

#[test]
fn every_controller_has_its_page_and_its_rules_and_they_are_up_to_date() {
    let root = here().join("../..");
    let mut wanted: Vec<(PathBuf, String)> = REGISTRY
        .iter()
        .map(|entry| (root.join(format!("docs/applications/{}.md", entry.name)), page(entry)))
        .collect();
    wanted.push((root.join("docs/applications/README.md"), index()));
    wanted.push((root.join("deploy/applications/rbac.yaml"), role()));
    check(&wanted, "oam");
}
