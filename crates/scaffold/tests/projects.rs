//! Every type of project: its files, and what happens to them when it is updated and extended.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::Value;
use setpoint_scaffold::{
    DESCRIPTION, Description, KindDescription, Language, NewKind, NewVersion, Project, Report, Scope,
    SetpointSource, Webhook, rendered,
};

fn description(language: Language) -> Description {
    Description {
        name: "shop-operator".into(),
        language,
        version: "0.1.0".into(),
        image: "registry.example.com:5000/shop-operator:0.1.0".into(),
        setpoint: SetpointSource::Version("0.2.0".into()),
        kinds: vec![KindDescription::new("Shop", "example.com", "v1")],
    }
}

fn created(language: Language) -> (tempfile::TempDir, Project) {
    let directory = tempfile::tempdir().expect("a directory");
    let root = directory.path().join("shop");
    let (project, report) = Project::create(&root, description(language), false).expect("a project");
    assert!(report.created.len() > 40, "{report:?}");
    (directory, project)
}

fn policy() -> NewKind {
    let scope = Scope::Cluster;
    NewKind { kind: "Policy".into(), group: None, version: "v1alpha1".into(), plural: None, scope }
}

fn read(project: &Project, path: &str) -> String {
    fs::read_to_string(project.root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn write(project: &Project, path: &str, text: &str) {
    fs::write(project.root().join(path), text).expect("a file");
}

/// Every file below a directory.
fn tree(root: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut pending = vec![root.to_owned()];
    while let Some(directory) = pending.pop() {
        for entry in fs::read_dir(directory).expect("a directory").flatten() {
            let path = entry.path();
            if path.is_dir() {
                pending.push(path);
            } else {
                let name = path.strip_prefix(root).expect("below").display().to_string();
                found.insert(name, fs::read_to_string(&path).expect("text"));
            }
        }
    }
    found
}

/// Asserts that manifests can be read, and that kustomizations name files and directories that exist.
fn assert_manifests(root: &Path) {
    for (path, text) in tree(root) {
        let is_yaml = path.ends_with(".yaml") || path.ends_with(".yml");
        if !is_yaml || path.contains("templates/") {
            continue;
        }
        let documents: Vec<Value> =
            serde_saphyr::from_multiple(&text).unwrap_or_else(|error| panic!("{path}: {error}\n{text}"));
        for document in
            documents.iter().filter(|one| one["kind"] == "Kustomization" || one["kind"] == "Component")
        {
            let home = root.join(&path).parent().expect("a directory").to_owned();
            let entries = ["resources", "components"].map(|field| document[field].as_array().cloned());
            for entry in entries.into_iter().flatten().flatten() {
                let entry = entry.as_str().expect("a path");
                let target = home.join(entry);
                let exists = target.is_file() || target.join("kustomization.yaml").is_file();
                assert!(exists, "{path} names {entry}");
            }
        }
        let is_file = path.starts_with("config/") && !path.ends_with("kustomization.yaml");
        if is_file && !path.contains("scorecard") && !path.contains("overlays") {
            let home = root.join(&path).parent().expect("a directory").to_owned();
            let kustomization = fs::read_to_string(home.join("kustomization.yaml"));
            let kustomization =
                kustomization.or_else(|_| fs::read_to_string(home.join("../kustomization.yaml")));
            let name = path.rsplit('/').next().expect("a name");
            let is_other_version = path.starts_with("config/samples") || path.contains("manifests/bases");
            let is_named = kustomization.is_ok_and(|text| text.contains(name));
            assert!(is_named || is_other_version, "{path} is in no kustomization");
        }
    }
}

fn definition(project: &Project, file: &str) -> Value {
    serde_saphyr::from_str(&read(project, &format!("config/crd/bases/{file}.yaml"))).expect("a CRD")
}

#[test]
fn every_type_of_project_has_its_files() {
    for language in Language::ALL {
        let (_directory, project) = created(language);
        assert_manifests(project.root());
        let files = tree(project.root());
        let has = |path: &str| assert!(files.contains_key(path), "{language}: {path}");
        for path in [
            "Makefile",
            "Dockerfile",
            "AGENTS.md",
            ".github/workflows/test.yml",
            "tests/e2e.sh",
            "config/crd/bases/example.com_shops.yaml",
            "config/samples/example.com_v1_shop.yaml",
            "config/rbac/role.yaml",
            "config/rbac/shop_user_roles.yaml",
            "config/manager/manager.yaml",
            "config/manager/metrics_service.yaml",
            "config/components/monitoring/servicemonitor.yaml",
            "config/network-policy/network_policy.yaml",
            "chart/Chart.yaml",
            "chart/crds/example.com_shops.yaml",
            "chart/files/role.yaml",
            ".setpoint/digests",
        ] {
            has(path);
        }
        match language {
            Language::Rust => {
                ["src/shop/v1.rs", "src/shop/controller.rs", "tests/operator/shop.rs", "Cargo.toml"].map(has)
            }
            Language::Python => {
                ["hooks/main.py", "hooks/kinds/shop.py", "hooks/shop.yaml", "tests/test_shop.py"].map(has)
            }
            Language::JavaScript => {
                ["hooks/main.mjs", "hooks/shop.mjs", "hooks/shop.yaml", "tests/shop.test.mjs"].map(has)
            }
            Language::Shell => {
                ["hooks/main.sh", "hooks/shop.sh", "hooks/shop.yaml", "tests/test_shop.sh"].map(has)
            }
            Language::Helm => [
                "watches.yaml",
                "helm-charts/shop/Chart.yaml",
                "helm-charts/shop/values.yaml",
                "tests/charts.sh",
            ]
            .map(has),
            Language::Ansible => {
                ["watches.yaml", "roles/shop/tasks/main.yml", "playbooks/site.yml", "tests/roles.sh"].map(has)
            }
        };
        for (path, text) in &files {
            assert!(!text.contains("@{") && !text.contains("}@") && !text.contains("%%"), "{path}:\n{text}");
            assert!(text.is_empty() || text.ends_with('\n'), "{path} ends without a newline");
        }
        let foreign = |path: &&String| {
            path.ends_with(".rs") != (language == Language::Rust) && path.starts_with("src/")
        };
        assert_eq!(files.keys().find(foreign), None);
    }
}

#[test]
fn a_second_run_changes_nothing() {
    for language in Language::ALL {
        let (_directory, project) = created(language);
        let before = tree(project.root());
        assert_eq!(project.check().expect("checked"), Report::default());
        let (project, report) = Project::create(project.root(), description(language), false).expect("again");
        assert_eq!(report, Report::default());
        assert_eq!(tree(project.root()), before);
        assert_eq!(
            rendered(&description(language)).expect("rendered"),
            rendered(&description(language)).expect("rendered")
        );
    }
}

#[test]
fn programs_can_be_executed() {
    use std::os::unix::fs::PermissionsExt;
    let (_directory, project) = created(Language::Shell);
    for path in ["tests/e2e.sh", "hooks/main.sh", "tests/run.sh"] {
        let mode = fs::metadata(project.root().join(path)).expect("a file").permissions().mode();
        assert_eq!(mode & 0o100, 0o100, "{path}");
    }
}

#[test]
fn changes_of_the_author_survive_everything() {
    for language in Language::ALL {
        let (_directory, mut project) = created(language);
        let mine = ["README.md", "Makefile", "config/samples/example.com_v1_shop.yaml"];
        for path in mine {
            write(&project, path, "# mine\n");
        }
        project.add_kind(policy(), false).expect("added");
        let version = NewVersion { kind: "shop".into(), version: "v2".into(), stored: false };
        project.add_version(version, false).expect("added");
        assert!(project.update(false).expect("updated").is_empty());
        for path in mine {
            assert_eq!(read(&project, path), "# mine\n", "{language}: {path}");
        }
        let report = project.update(true).expect("forced");
        assert!(report.updated.contains(&"Makefile".to_owned()), "{report:?}");
        assert_ne!(read(&project, "README.md"), "# mine\n");
    }
}

#[test]
fn a_kind_is_added_with_its_irregular_plural() {
    for language in Language::ALL {
        let (_directory, mut project) = created(language);
        let report = project.add_kind(policy(), false).expect("added");
        assert!(report.offered.is_empty(), "{language}: {report:?}");
        assert_manifests(project.root());
        let crd = definition(&project, "example.com_policies");
        assert_eq!(crd["metadata"]["name"], "policies.example.com");
        assert_eq!(crd["spec"]["scope"], "Cluster");
        assert_eq!(crd["spec"]["versions"][0]["name"], "v1alpha1");
        for (path, part) in [
            ("config/crd/kustomization.yaml", "bases/example.com_policies.yaml"),
            ("config/rbac/role.yaml", "policies"),
            ("chart/files/role.yaml", "policies"),
            ("chart/templates/user_roles.yaml", "policies"),
            ("tests/e2e.sh", "policies.example.com"),
        ] {
            assert!(read(&project, path).contains(part), "{language}: {path}");
        }
        let main = match language {
            Language::Rust => "src/lib.rs",
            Language::Python => "hooks/main.py",
            Language::JavaScript => "hooks/main.mjs",
            Language::Shell => "hooks/main.sh",
            Language::Helm | Language::Ansible => "watches.yaml",
        };
        assert!(read(&project, main).to_lowercase().contains("policy"), "{language}");
        assert!(project.check().expect("checked").is_empty());
        let again = project.add_kind(policy(), false).expect_err("twice").to_string();
        assert!(again.contains("kind: expected a kind that the project does not have yet"), "{again}");
    }
}

#[test]
fn a_version_is_added_to_a_definition_that_the_author_has_changed() {
    for language in [Language::Python, Language::Helm, Language::Ansible] {
        let (_directory, mut project) = created(language);
        let path = "config/crd/bases/example.com_shops.yaml";
        let changed = read(&project, path).replace("      served: true", "      # Mine.\n      served: true");
        write(&project, path, &changed);
        let version = NewVersion { kind: "Shop".into(), version: "v2".into(), stored: true };
        project.add_version(version.clone(), false).expect("added");
        let crd = definition(&project, "example.com_shops");
        let versions = crd["spec"]["versions"].as_array().expect("versions");
        let shown: Vec<_> =
            versions.iter().map(|one| (one["name"].as_str(), one["storage"].as_bool())).collect();
        assert_eq!(shown, [(Some("v1"), Some(false)), (Some("v2"), Some(true))]);
        assert_eq!(read(&project, path).matches("# Mine.").count(), 2);
        assert_eq!(read(&project, "chart/crds/example.com_shops.yaml"), read(&project, path));
        assert!(project.root().join("config/samples/example.com_v2_shop.yaml").exists());
        let again = project.add_version(version, false).expect_err("twice").to_string();
        assert!(again.starts_with("VERSION: expected a version that Shop does not have yet"), "{again}");
    }
}

#[test]
fn versions_and_webhooks_are_added_to_code() {
    let (_directory, mut project) = created(Language::Rust);
    write(&project, "src/shop/controller.rs", "// mine\n");
    let version = NewVersion { kind: "Shop".into(), version: "v2".into(), stored: true };
    let report = project.add_version(version, false).expect("added");
    assert!(report.offered.is_empty(), "{report:?}");
    assert!(read(&project, "src/shop/mod.rs").contains("pub use v2::{Shop, ShopSpec, ShopStatus};"));
    assert!(read(&project, "src/shop/convert_v1.rs").contains("-> Result<v1::Shop, String>"));
    assert!(read(&project, "config/webhook/service.yaml").contains("shop-operator-webhooks"));
    assert!(read(&project, "Cargo.toml").contains("features = [\"webhook\"]"));
    let webhooks = [Webhook::Defaulting, Webhook::Validation].into();
    let report = project.add_webhooks("shop", webhooks, false).expect("added");
    assert!(report.created.contains(&"src/shop/webhook.rs".to_owned()), "{report:?}");
    assert!(read(&project, "src/lib.rs").contains("with_webhooks(webhooks(), webhook_server())"));
    assert_eq!(read(&project, "src/shop/controller.rs"), "// mine\n");
    assert_manifests(project.root());
    let opened = Project::open(project.root()).expect("opened");
    assert_eq!(opened.description(), project.description());
}

#[test]
fn permissions_follow_from_what_controllers_declare() {
    let (_directory, project) = created(Language::Python);
    let more =
        "      updateStrategy: {method: InPlace}\n    - {apiVersion: apps/v1, resource: deployments}\n";
    let controller = read(&project, "hooks/shop.yaml");
    write(
        &project,
        "hooks/shop.yaml",
        &controller.replace("      updateStrategy: {method: InPlace}\n", more),
    );
    let report = project.check().expect("checked");
    assert_eq!(report.updated, ["chart/files/role.yaml", "config/rbac/role.yaml"]);
    project.update(false).expect("updated");
    assert!(read(&project, "config/rbac/role.yaml").contains("resources: [deployments]"));
    assert_eq!(read(&project, "config/rbac/role.yaml"), read(&project, "chart/files/role.yaml"));
    let (_directory, project) = created(Language::Helm);
    write(
        &project,
        "helm-charts/shop/templates/ingress.yaml",
        "apiVersion: networking.k8s.io/v1\nkind: Ingress\n",
    );
    project.update(false).expect("updated");
    assert!(read(&project, "config/rbac/role.yaml").contains("resources: [ingresses]"));
}

#[test]
fn other_directories_and_projects_are_left_alone() {
    let directory = tempfile::tempdir().expect("a directory");
    fs::write(directory.path().join("letters.txt"), "x").expect("a file");
    let error = Project::create(directory.path(), description(Language::Rust), true).expect_err("not empty");
    assert!(error.to_string().contains("is not empty: choose another with --directory"), "{error}");
    assert!(!directory.path().join(DESCRIPTION).exists());
    let (_directory, project) = created(Language::Shell);
    let error = Project::create(project.root(), description(Language::Rust), true).expect_err("another");
    assert!(error.to_string().contains("has a project with the language shell"), "{error}");
    let empty = tempfile::tempdir().expect("a directory");
    let error = Project::open(empty.path()).expect_err("no project");
    assert!(error.to_string().contains("expected a project with a file setpoint.yaml"), "{error}");
    fs::write(empty.path().join(".gitignore"), "x").expect("a file");
    // Left behind by an interruption.
    fs::write(empty.path().join("setpoint.yaml.setpoint-tmp"), "").expect("a file");
    let (project, _) =
        Project::create(empty.path(), description(Language::Shell), false).expect("beside .gitignore");
    assert_eq!(read(&project, ".gitignore"), "x");
}

#[test]
fn bad_names_are_rejected_with_the_flag() {
    let (_directory, mut project) = created(Language::Python);
    let before = tree(project.root());
    let mut check = |new: NewKind, expected: &str| {
        let error = project.add_kind(new, false).expect_err(expected).to_string();
        assert!(error.starts_with(expected), "{error}");
    };
    check(NewKind { kind: "policy".into(), ..policy() }, "KIND: expected a name such as Database");
    check(NewKind { group: Some("x".into()), ..policy() }, "--group: expected a domain");
    check(NewKind { version: "1".into(), ..policy() }, "--api-version: expected a version such as v1");
    check(NewKind { plural: Some("../x".into()), ..policy() }, "--plural: expected lower-case");
    check(
        NewKind { plural: Some("shops".into()), ..policy() },
        "spec.kinds[1].plural: expected one that no other",
    );
    let version = NewVersion { kind: "Store".into(), version: "v2".into(), stored: false };
    let error = project.add_version(version, false).expect_err("no kind").to_string();
    assert_eq!(error, "KIND: expected one of the project's kinds, Shop, not \"Store\"");
    let error = project.add_webhooks("Shop", [Webhook::Validation].into(), false).expect_err("no webhooks");
    assert_eq!(error.to_string(), "setpoint add webhook: expected a project in Rust, not \"python\"");
    assert_eq!(tree(project.root()), before);
}
