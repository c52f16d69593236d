//! The role of an operator, from what its controllers declare: the parents and children of hooks, the kinds in the
//! templates of charts, the kinds in the tasks of roles.
//!
//! Charts and tasks are not evaluated. A kind counts if it is written out, which it nearly always is.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use serde_json::Value;

use crate::description::{Description, KindDescription, Language};

/// Verbs by group and resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rules(BTreeMap<(String, String), BTreeSet<&'static str>>);

const READ: &[&str] = &["get", "list", "watch"];
const RECONCILE: &[&str] = &["get", "list", "watch", "update", "patch"];
const STATUS: &[&str] = &["get", "update", "patch"];
const OWN: &[&str] = &["get", "list", "watch", "create", "update", "patch", "delete"];
/// The order of verbs, as in Kubernetes' own roles.
const ORDER: &[&str] = &["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"];
/// How far apart the lines of an API version and a kind may be.
const NEAR: usize = 3;

impl Rules {
    fn allow(&mut self, group: &str, resource: &str, verbs: &[&'static str]) {
        self.0.entry((group.to_owned(), resource.to_owned())).or_default().extend(verbs);
    }

    fn allow_parent(&mut self, group: &str, resource: &str, verbs: &[&'static str]) {
        self.allow(group, resource, verbs);
        self.allow(group, &format!("{resource}/status"), STATUS);
        // For owner references that block deletion.
        self.allow(group, &format!("{resource}/finalizers"), &["update"]);
    }

    /// Returns the rules as a list in YAML.
    pub(crate) fn yaml(&self) -> String {
        let mut text = String::new();
        for ((group, resource), verbs) in &self.0 {
            let group = if group.is_empty() { "\"\"" } else { group };
            let verbs: Vec<_> = ORDER.iter().filter(|verb| verbs.contains(**verb)).copied().collect();
            let _ = write!(
                text,
                "  - apiGroups: [{group}]\n    resources: [{resource}]\n    verbs: [{}]\n",
                verbs.join(", ")
            );
        }
        text
    }
}

/// Returns the rules of an operator. `files` are the files that declare something: the manifests of hooks, the
/// templates of charts, the tasks of roles.
pub(crate) fn rules<'a>(description: &Description, files: impl Iterator<Item = &'a str>) -> Rules {
    let mut rules = Rules::default();
    rules.allow("", "events", &["create", "patch"]);
    match description.language {
        Language::Rust => of_starters(&mut rules, description),
        Language::Python | Language::JavaScript | Language::Shell => {
            of_hooks(&mut rules);
            files.for_each(|file| of_manifests(&mut rules, file));
        }
        Language::Helm | Language::Ansible => {
            for kind in &description.kinds {
                rules.allow_parent(&kind.group, &kind.plural, RECONCILE);
            }
            if description.language == Language::Helm {
                // The records of releases.
                rules.allow("", "secrets", OWN);
            }
            for (group, kind) in files.flat_map(kinds_in) {
                rules.allow(&group, &resource(&description.kinds, &group, &kind), OWN);
            }
        }
    }
    rules
}

/// What the controllers of a new project in Rust do.
fn of_starters(rules: &mut Rules, description: &Description) {
    for kind in &description.kinds {
        rules.allow(&kind.group, &kind.plural, READ);
        rules.allow(&kind.group, &format!("{}/status", kind.plural), &["patch"]);
        rules.allow(&kind.group, &format!("{}/finalizers", kind.plural), &["update"]);
        rules.allow("", "configmaps", &["get", "list", "watch", "create", "patch"]);
    }
}

/// What `setpoint operator run` does for hooks: it installs the kinds, applies the controllers, and keeps revisions.
fn of_hooks(rules: &mut Rules) {
    let group = "metacontroller.k8s.io";
    for resource in ["compositecontrollers", "decoratorcontrollers"] {
        rules.allow(group, resource, &["get", "list", "watch", "create", "patch"]);
        rules.allow(group, &format!("{resource}/status"), STATUS);
    }
    rules.allow(group, "controllerrevisions", OWN);
    let crds = &["get", "list", "watch", "create", "patch"];
    rules.allow("apiextensions.k8s.io", "customresourcedefinitions", crds);
}

/// Adds the rules for the controllers in a file of manifests. What cannot be read is reported by the operator.
fn of_manifests(rules: &mut Rules, text: &str) {
    let documents: Vec<Value> = serde_saphyr::from_multiple(text).unwrap_or_default();
    for document in documents {
        let spec = &document["spec"];
        let list = |field: &str| spec[field].as_array().cloned().unwrap_or_default();
        let parents = match document["kind"].as_str() {
            Some("CompositeController") => vec![spec["parentResource"].clone()],
            Some("DecoratorController") => list("resources"),
            _ => continue,
        };
        for (group, resource) in parents.iter().filter_map(declared) {
            rules.allow_parent(&group, &resource, RECONCILE);
        }
        let children = list("childResources").into_iter().chain(list("attachments"));
        for (group, resource) in children.collect::<Vec<_>>().iter().filter_map(declared) {
            rules.allow(&group, &resource, OWN);
        }
    }
}

fn declared(value: &Value) -> Option<(String, String)> {
    let resource = value["resource"].as_str()?;
    let api_version = value["apiVersion"].as_str()?;
    Some((group_of(api_version), resource.to_owned()))
}

fn group_of(api_version: &str) -> String {
    api_version.split_once('/').map_or(String::new(), |(group, _)| group.to_owned())
}

/// Returns the groups and kinds that are written in a template or a task.
fn kinds_in(text: &str) -> Vec<(String, String)> {
    let lines: Vec<(usize, &str, &str)> = text.lines().map(entry).collect();
    let mut found = Vec::new();
    for (nth, (indent, key, kind)) in lines.iter().enumerate() {
        if *key != "kind" || kind.is_empty() {
            continue;
        }
        let near = &lines[nth.saturating_sub(NEAR)..(nth + NEAR + 1).min(lines.len())];
        let version = near.iter().find(|(other, key, value)| {
            other == indent && ["apiVersion", "api_version"].contains(key) && !value.is_empty()
        });
        if let Some((_, _, version)) = version {
            found.push((group_of(version), (*kind).to_owned()));
        }
    }
    found
}

/// Splits a line of YAML. Values that are not plain words are empty.
fn entry(line: &str) -> (usize, &str, &str) {
    let trimmed = line.trim_start();
    let content = trimmed.strip_prefix("- ").unwrap_or(trimmed);
    let (key, value) = content.split_once(':').unwrap_or((content, ""));
    let value = value.split(" #").next().unwrap_or_default().trim().trim_matches(['"', '\'']);
    let is_word = value.chars().all(|c| c.is_ascii_alphanumeric() || "./-".contains(c));
    (line.len() - content.len(), key.trim(), if is_word { value } else { "" })
}

fn resource(known: &[KindDescription], group: &str, kind: &str) -> String {
    let own = known.iter().find(|one| one.group == group && one.kind == kind);
    match own {
        Some(own) => own.plural.clone(),
        None if kind == "Endpoints" => "endpoints".to_owned(),
        None => crate::plural(kind),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_of_charts_and_tasks_are_found() {
        let chart = "# c\napiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: {{ .Release.Name }}\nspec:\n  scaleTargetRef:\n    kind: X\n---\nkind: \"Ingress\"\napiVersion: networking.k8s.io/v1\n---\nkind: {{ .Values.kind }}\napiVersion: v1\n";
        let of = |group: &str, kind: &str| (group.to_owned(), kind.to_owned());
        assert_eq!(kinds_in(chart), [of("apps", "Deployment"), of("networking.k8s.io", "Ingress")]);
        let task = "- kubernetes.core.k8s:\n    definition:\n      apiVersion: v1\n      kind: ConfigMap\n- kubernetes.core.k8s:\n    api_version: batch/v1\n    kind: Job # once\n";
        assert_eq!(kinds_in(task), [of("", "ConfigMap"), of("batch", "Job")]);
        assert_eq!(resource(&[], "", "Endpoints"), "endpoints");
        assert_eq!(resource(&[], "networking.k8s.io", "NetworkPolicy"), "networkpolicies");
    }

    #[test]
    fn parents_and_children_of_hooks_are_permitted() {
        let mut rules = Rules::default();
        of_manifests(
            &mut rules,
            "{kind: CompositeController, spec: {parentResource: {apiVersion: a.b/v1, resource: shops}, childResources: [{apiVersion: v1, resource: pods}]}}\n---\n{kind: DecoratorController, spec: {resources: [{apiVersion: apps/v1, resource: deployments}], attachments: [{apiVersion: v1, resource: services}]}}",
        );
        let yaml = rules.yaml();
        for expected in [
            "  - apiGroups: [\"\"]\n    resources: [pods]\n    verbs: [get, list, watch, create, update, patch, delete]\n",
            "  - apiGroups: [a.b]\n    resources: [shops]\n    verbs: [get, list, watch, update, patch]\n",
            "    resources: [shops/status]\n    verbs: [get, update, patch]\n",
            "    resources: [deployments/finalizers]\n    verbs: [update]\n",
            "    resources: [services]\n",
        ] {
            assert!(yaml.contains(expected), "{expected} in {yaml}");
        }
    }
}
