//! Parses the table of bootstrap roles.

use serde_json::{Map, Value, json};

use crate::auth::rbac::Rule;
use crate::features::Features;
use crate::kinds::rbac::GROUP;

const TABLE: &str = include_str!("roles.txt");
const CONTROLLER: &str = "system:controller:";
const AGGREGATE: &str = "rbac.authorization.k8s.io/aggregate-to-";
const EVENTS: &str = "create,patch,update core,events.k8s.io events";

/// An object that the server maintains.
#[derive(Debug)]
pub(super) struct BootstrapObject {
    /// `clusterroles`, …
    pub(super) plural: &'static str,
    pub(super) namespace: Option<&'static str>,
    pub(super) name: &'static str,
    pub(super) object: Value,
}

/// A role and its binding while being parsed.
struct Draft {
    namespace: Option<&'static str>,
    name: &'static str,
    rules: Vec<Rule>,
    labels: Map<String, Value>,
    selectors: Vec<Value>,
    binding: Option<(&'static str, Vec<Value>)>,
    /// The feature gate this depends on.
    needs: Option<&'static str>,
}

/// Returns all objects in the table that these features need. A test ensures that the table parses.
pub(super) fn objects(features: &Features) -> Vec<BootstrapObject> {
    let mut drafts: Vec<Draft> = Vec::new();
    let lines = TABLE.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    for line in lines {
        match line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            Some(head) => drafts.push(Draft::new(head)),
            None => {
                let draft = drafts.last_mut().expect("the table begins with a role");
                draft
                    .read(line, features)
                    .unwrap_or_else(|| panic!("invalid line in the role table: {line:?}"));
            }
        }
    }
    let needed = |draft: &Draft| draft.needs.is_none_or(|feature| features.has(feature));
    drafts.into_iter().filter(needed).flat_map(Draft::finish).collect()
}

impl Draft {
    fn new(head: &'static str) -> Self {
        let (namespace, name) = match head.split_once('/') {
            Some((namespace, name)) => (Some(namespace), name),
            None => (None, head),
        };
        let labels = Map::from_iter([("kubernetes.io/bootstrapping".into(), "rbac-defaults".into())]);
        Self { namespace, name, rules: Vec::new(), labels, selectors: Vec::new(), binding: None, needs: None }
    }

    fn read(&mut self, line: &'static str, features: &Features) -> Option<()> {
        match line.split_once(' ') {
            None if line == "events" => self.rules.push(object_rule(EVENTS)?),
            Some(("part-of", role)) => _ = self.labels.insert(format!("{AGGREGATE}{role}"), "true".into()),
            Some(("sum-of", role)) => {
                self.selectors.push(json!({"matchLabels": {format!("{AGGREGATE}{role}"): "true"}}));
            }
            Some(("paths", rule)) => {
                let (verbs, paths) = rule.split_once(' ')?;
                self.rules.push(Rule { verbs: verb_words(verbs), paths: words(paths), ..Rule::default() });
            }
            Some(("with", rest)) => {
                let (feature, rule) = rest.split_once(' ')?;
                let rule = object_rule(rule)?;
                self.rules.extend(features.has(feature).then_some(rule));
            }
            Some(("needs", feature)) => self.needs = Some(feature),
            Some(("bound", rest)) => self.binding = Some(self.binding(rest)?),
            _ => self.rules.push(object_rule(line)?),
        }
        Some(())
    }

    /// Parses `[as NAME] to SUBJECT, …`.
    fn binding(&self, text: &'static str) -> Option<(&'static str, Vec<Value>)> {
        let (name, subjects) = match text.strip_prefix("as ") {
            Some(rest) => rest.split_once(" to ")?,
            None => (self.name, text.strip_prefix("to ")?),
        };
        if subjects == "nobody" {
            return Some((name, Vec::new()));
        }
        if subjects == "controller" {
            let account = self.name.strip_prefix(CONTROLLER)?;
            return Some((name, vec![account_subject("kube-system", account)]));
        }
        Some((name, subjects.split(", ").map(subject).collect::<Option<_>>()?))
    }

    fn finish(self) -> impl Iterator<Item = BootstrapObject> {
        let (kind, plural, binding_kind, binding_plural) = match self.namespace {
            Some(_) => ("Role", "roles", "RoleBinding", "rolebindings"),
            None => ("ClusterRole", "clusterroles", "ClusterRoleBinding", "clusterrolebindings"),
        };
        let (namespace, role) = (self.namespace, self.name);
        let mut object = envelope(kind, namespace, role, self.labels);
        if self.selectors.is_empty() {
            object["rules"] = json!(self.rules);
        } else {
            object["aggregationRule"] = json!({"clusterRoleSelectors": self.selectors});
        }
        let own = BootstrapObject { plural, namespace, name: role, object };
        let binding = self.binding.map(|(name, subjects)| {
            let mut object = envelope(binding_kind, namespace, name, Self::new(name).labels);
            object["roleRef"] = json!({"apiGroup": GROUP, "kind": kind, "name": role});
            if !subjects.is_empty() {
                object["subjects"] = Value::Array(subjects);
            }
            BootstrapObject { plural: binding_plural, namespace, name, object }
        });
        std::iter::once(own).chain(binding)
    }
}

fn envelope(kind: &str, namespace: Option<&str>, name: &str, labels: Map<String, Value>) -> Value {
    let mut metadata = json!({
        "name": name,
        "labels": labels,
        "annotations": {super::AUTOUPDATE: "true"},
    });
    if let Some(namespace) = namespace {
        metadata["namespace"] = namespace.into();
    }
    json!({"apiVersion": format!("{GROUP}/v1"), "kind": kind, "metadata": metadata})
}

/// Parses `VERBS GROUPS RESOURCES [named NAMES]`.
fn object_rule(line: &str) -> Option<Rule> {
    let (line, names) = line.split_once(" named ").unwrap_or((line, ""));
    let mut parts = line.split(' ');
    let (verbs, groups, resources) = (parts.next()?, parts.next()?, parts.next()?);
    let rule = Rule {
        verbs: verb_words(verbs),
        api_groups: groups.split(',').map(|group| if group == "core" { "" } else { group }.into()).collect(),
        resources: words(resources),
        resource_names: if names.is_empty() { Vec::new() } else { words(names) },
        ..Rule::default()
    };
    parts.next().is_none().then_some(rule)
}

fn verb_words(text: &str) -> Vec<Box<str>> {
    match text {
        "read" => words("get,list,watch"),
        "write" => words("create,delete,deletecollection,patch,update"),
        verbs => words(verbs),
    }
}

fn words(text: &str) -> Vec<Box<str>> {
    text.split(',').map(Into::into).collect()
}

fn subject(text: &str) -> Option<Value> {
    match text.split_once(' ')? {
        ("user", name) => Some(json!({"apiGroup": GROUP, "kind": "User", "name": name})),
        ("group", name) => Some(json!({"apiGroup": GROUP, "kind": "Group", "name": name})),
        ("account", account) => {
            let (namespace, name) = account.split_once('/')?;
            Some(account_subject(namespace, name))
        }
        _ => None,
    }
}

fn account_subject(namespace: &str, name: &str) -> Value {
    json!({"kind": "ServiceAccount", "name": name, "namespace": namespace})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found<'a>(objects: &'a [BootstrapObject], plural: &str, name: &str) -> &'a Value {
        let own = objects.iter().find(|own| own.plural == plural && own.name == name);
        &own.unwrap_or_else(|| panic!("{plural} {name}")).object
    }

    #[test]
    fn nodes_may_request_pod_certificates_if_the_feature_is_on() {
        let rules = |features: &Features| {
            let rules = found(&objects(features), "clusterroles", "system:node")["rules"].clone();
            let about = |rule: &Value| rule["resources"][0] == "podcertificaterequests";
            rules.as_array().unwrap().iter().filter(|rule| about(rule)).count()
        };
        assert_eq!(rules(&Features::default()), 0);
        assert_eq!(rules(&Features::enabled_by(|name| name == "PodCertificateRequest")), 1);
    }

    #[test]
    fn the_whole_table_is_read() {
        let objects = objects(&Features::default());
        let count = |plural: &str| objects.iter().filter(|own| own.plural == plural).count();
        assert_eq!([count("clusterroles"), count("roles")], [70, 7]);
        assert_eq!([count("clusterrolebindings"), count("rolebindings")], [51, 7]);
        let labels = &found(&objects, "clusterroles", "edit")["metadata"]["labels"];
        assert_eq!(labels["rbac.authorization.k8s.io/aggregate-to-admin"], "true");
        let selector = json!({"matchLabels": {"rbac.authorization.k8s.io/aggregate-to-edit": "true"}});
        let edit = found(&objects, "clusterroles", "edit");
        assert_eq!(edit["aggregationRule"]["clusterRoleSelectors"], json!([selector]));
        let admin = json!([
            {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]},
            {"nonResourceURLs": ["*"], "verbs": ["*"]},
        ]);
        assert_eq!(found(&objects, "clusterroles", "cluster-admin")["rules"], admin);
    }

    #[test]
    fn a_controller_has_its_role() {
        let objects = objects(&Features::default());
        let name = "system:controller:replicaset-controller";
        let binding = found(&objects, "clusterrolebindings", name);
        assert_eq!(binding["roleRef"]["name"], name);
        let account =
            json!({"kind": "ServiceAccount", "name": "replicaset-controller", "namespace": "kube-system"});
        assert_eq!(binding["subjects"], json!([account]));
    }
}
