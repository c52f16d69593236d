//! The generated files in `deploy/` are up to date.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};
use setpoint_controllers::{Access, Entry, FeatureGates, REGISTRY, why_absent};

use super::{chart, deploy, render, values};
use crate::binary::Up;

/// Compares files with their expected content, or writes them.
fn check(wanted: &[(PathBuf, String)]) {
    let write = std::env::var_os("SETPOINT_WRITE_DEPLOY").is_some();
    let mut stale = Vec::new();
    for (path, text) in wanted {
        if fs::read_to_string(path).ok().as_deref() == Some(text) {
            continue;
        }
        match write {
            true => {
                fs::create_dir_all(path.parent().expect("a file has a directory")).expect("a directory");
                fs::write(path, text).expect("a file can be written");
            }
            false => stale.push(path),
        }
    }
    let how = "run SETPOINT_WRITE_DEPLOY=1 cargo test --workspace --test user deploy";
    assert!(stale.is_empty(), "{how}: {stale:?}");
}

/// Returns the rules of every role by `NAMESPACE/NAME`, in a cluster with all features enabled that controllers need.
fn roles() -> BTreeMap<String, Value> {
    let gates: Vec<_> =
        REGISTRY.iter().flat_map(|entry| entry.gates).map(|gate| format!("{gate}=true")).collect();
    let up =
        Up::start(&["--controllers=-*", "--nodes=0", "--no-scheduler", "--feature-gates", &gates.join(",")]);
    let list = |arguments: &[&str]| -> Vec<Value> {
        let text = up.kubectl(&[&["get", "-o", "json"], arguments].concat());
        let list: Value = serde_json::from_str(&text).expect("JSON");
        list["items"].as_array().expect("a list").clone()
    };
    let all = list(&["clusterroles"]).into_iter().chain(list(&["roles", "--all-namespaces"]));
    let named = |role: Value| {
        let namespace = role["metadata"]["namespace"].as_str().unwrap_or_default();
        (format!("{namespace}/{}", super::name(&role)), role["rules"].clone())
    };
    all.map(named).collect()
}

fn rule(access: &Access, verbs: &[&str]) -> Value {
    json!({"apiGroups": [access.group], "resources": [access.resource], "verbs": verbs})
}

/// Returns the rules that the shared caches need for a controller. A controller that watches everything needs no other
/// rule.
fn watches(entry: &Entry) -> Vec<Value> {
    let all = entry.watches.iter().find(|access| (access.group, access.resource) == ("*", "*"));
    let needed = match all {
        Some(all) => std::slice::from_ref(all),
        None => entry.watches,
    };
    needed.iter().map(|access| rule(access, &["list", "watch"])).collect()
}

/// Returns the other rules of a controller: from the bootstrap role of its account or, without an account, from its own
/// declaration.
fn rules(entry: &Entry, roles: &BTreeMap<String, Value>) -> Value {
    match entry.account() {
        Some(account) => {
            let found = roles.get(&format!("/system:controller:{account}"));
            found.cloned().unwrap_or_else(|| json!([]))
        }
        None => entry.writes.iter().map(|access| rule(access, access.verbs)).collect(),
    }
}

fn namespaced(entry: &Entry, roles: &BTreeMap<String, Value>) -> BTreeMap<String, Value> {
    let Some(account) = entry.account() else { return BTreeMap::new() };
    let of = |(name, rules): (&String, &Value)| {
        let (namespace, role) = name.split_once('/')?;
        let own = !namespace.is_empty() && role == format!("system:controller:{account}");
        own.then(|| (namespace.to_owned(), rules.clone()))
    };
    roles.iter().filter_map(of).collect()
}

fn described(entry: &Entry, roles: &BTreeMap<String, Value>) -> Value {
    let usual = FeatureGates::default();
    let gates: Vec<_> = entry.gates.iter().filter(|gate| !usual.on(gate)).collect();
    json!({
        "name": entry.name,
        "aliases": entry.aliases,
        "onByDefault": entry.on_by_default,
        "runs": why_absent(entry).is_none(),
        "gates": gates,
        "account": entry.account(),
        "bootstrapRole": entry.account().is_some_and(|account| !account.starts_with("setpoint-")),
        "watches": watches(entry),
        "rules": rules(entry, roles),
        "namespaced": namespaced(entry, roles),
    })
}

#[test]
fn the_chart_lists_every_controller_with_its_rules() {
    let roles = roles();
    let all: Vec<Value> = REGISTRY.iter().map(|entry| described(entry, &roles)).collect();
    let lacks = |entry: &&Value| {
        entry["runs"] == true && entry["rules"] == json!([]) && entry["namespaced"] == json!({})
    };
    let lacking: Vec<_> = all.iter().filter(lacks).map(|entry| &entry["name"]).collect();
    assert!(lacking.is_empty(), "controllers without a role: {lacking:?}");
    let text = serde_json::to_string_pretty(&all).expect("it encodes") + "\n";
    check(&[(chart().join("files/controllers.json"), text)]);
}

#[test]
fn the_chart_has_the_version_of_the_binary() {
    let path = chart().join("Chart.yaml");
    let text = fs::read_to_string(&path).expect("a chart");
    let current = |line: &str| match line.split_once(": ") {
        Some((key @ ("version" | "appVersion"), _)) => format!("{key}: {}\n", env!("CARGO_PKG_VERSION")),
        _ => format!("{line}\n"),
    };
    check(&[(path, text.lines().map(current).collect())]);
}

/// Returns the documents of a rendered chart by template, without Helm's own labels.
fn by_template(rendered: &str) -> BTreeMap<String, String> {
    let helms = |line: &str| {
        let line = line.trim_start();
        line.starts_with("helm.sh/chart:") || line.starts_with("app.kubernetes.io/managed-by:")
    };
    let mut files: BTreeMap<String, String> = BTreeMap::new();
    for document in rendered.split("---\n# Source: ").filter(|document| !document.trim().is_empty()) {
        let (source, body) = document.split_once('\n').expect("a source and a document");
        let file = source.rsplit('/').next().expect("a file name").to_owned();
        let body: String = body.lines().filter(|line| !helms(line)).flat_map(|line| [line, "\n"]).collect();
        let text = files.entry(file).or_default();
        if !text.is_empty() {
            text.push_str("---\n");
        }
        text.push_str(body.trim_matches('\n'));
        text.push('\n');
    }
    files
}

/// A kustomize directory: the arguments for rendering the chart, and the templates that belong there.
struct Kustomization<'a> {
    directory: &'a str,
    arguments: &'a [&'a str],
    /// Empty: all of them.
    templates: &'a [&'a str],
}

impl Kustomization<'_> {
    fn files(&self) -> Vec<(PathBuf, String)> {
        let mut files = by_template(&render(self.arguments));
        files.retain(|name, _| self.templates.is_empty() || self.templates.contains(&name.as_str()));
        let names: String = files.keys().map(|name| format!("  - {name}\n")).collect();
        let kind = match self.templates {
            [] => "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization",
            _ => "apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component",
        };
        let own = format!("# Generated from the chart; see deploy/README.md.\n{kind}\nresources:\n{names}");
        files.insert("kustomization.yaml".into(), own);
        let directory = deploy().join("kustomize").join(self.directory);
        files.into_iter().map(|(name, text)| (directory.join(name), text)).collect()
    }
}

#[test]
fn the_kustomizations_are_the_chart() {
    let (alongside, shadow) = (values("alongside"), values("shadow"));
    let monitored = "metrics.serviceMonitor.enabled=true,metrics.prometheusRule.enabled=true,metrics.dashboard.enabled=true";
    let all = [
        Kustomization { directory: "base", arguments: &[], templates: &[] },
        Kustomization { directory: "alongside", arguments: &["--values", &alongside], templates: &[] },
        Kustomization { directory: "shadow", arguments: &["--values", &shadow], templates: &[] },
        Kustomization {
            directory: "components/monitoring",
            arguments: &["--set", monitored],
            templates: &["servicemonitor.yaml", "prometheusrule.yaml", "dashboard.yaml"],
        },
    ];
    check(&all.iter().flat_map(Kustomization::files).collect::<Vec<_>>());
}
