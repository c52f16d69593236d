//! Typed view of a StorageClass.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;
use setpoint::{Cached, Labels};

use crate::Annotated;

/// The annotation of the default class, and its deprecated name.
const DEFAULT_CLASS: [&str; 2] =
    ["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"];

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Class {
    pub metadata: Annotated,
    pub provisioner: Box<str>,
    pub reclaim_policy: Option<Box<str>>,
    pub volume_binding_mode: Option<Box<str>>,
    pub mount_options: Option<Vec<String>>,
    pub allowed_topologies: Option<Vec<Topology>>,
    pub allow_volume_expansion: Option<bool>,
    pub parameters: Option<BTreeMap<String, Value>>,
}

setpoint::view!(Class of k8s_openapi::api::storage::v1::StorageClass);

/// A topology term: labels, and the allowed values of each.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Topology {
    pub match_label_expressions: Vec<TopologyLabel>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct TopologyLabel {
    pub key: Box<str>,
    pub values: Vec<Box<str>>,
}

impl Class {
    fn is_default(&self) -> bool {
        DEFAULT_CLASS.iter().any(|mark| self.metadata.get(mark) == Some("true"))
    }

    /// Whether a volume of the class can be provisioned for a node with these labels.
    pub fn allows(&self, labels: &Labels) -> bool {
        let among = |one: &TopologyLabel| {
            labels.get(&one.key).is_some_and(|value| one.values.iter().any(|allowed| **allowed == *value))
        };
        let topologies = self.allowed_topologies.as_deref().unwrap_or_default();
        topologies.is_empty()
            || topologies.iter().any(|topology| {
                !topology.match_label_expressions.is_empty()
                    && topology.match_label_expressions.iter().all(among)
            })
    }
}

/// Whether claims of the class wait for a pod before they are bound.
pub fn is_delayed(class: Option<&Class>) -> bool {
    class.is_some_and(|class| class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer"))
}

/// Returns the default class: the newest one marked as default, the first by name on a tie.
pub fn default_class(classes: &[Cached<Class>]) -> Option<&Cached<Class>> {
    let marked = classes.iter().filter(|class| class.is_default());
    marked.min_by(|one, other| {
        let created = |class: &Cached<Class>| class.meta().creation_timestamp;
        created(other).cmp(&created(one)).then_with(|| one.key().cmp(other.key()))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use setpoint::Object;

    use super::*;

    fn class(name: &str, created: u32, marks: Value) -> Cached<Class> {
        let created = format!("2025-01-01T00:00:{created:02}Z");
        let raw = json!({"metadata": {"name": name, "creationTimestamp": created, "annotations": marks}})
            .to_string();
        Cached::new(Object::from_json(raw.into()).expect("a class")).expect("a class")
    }

    #[test]
    fn the_newest_marked_class_is_the_default() {
        let mark = || json!({"storageclass.kubernetes.io/is-default-class": "true"});
        let old_mark = || json!({"storageclass.beta.kubernetes.io/is-default-class": "true"});
        let check = |classes: &[Cached<Class>], expected: Option<&str>| {
            assert_eq!(default_class(classes).map(|class| class.key().name()), expected);
        };
        check(&[class("a", 1, json!({}))], None);
        check(&[class("a", 1, json!({"storageclass.kubernetes.io/is-default-class": "false"}))], None);
        check(&[class("a", 1, mark()), class("b", 2, old_mark()), class("c", 3, Value::Null)], Some("b"));
        check(&[class("b", 1, mark()), class("a", 1, mark())], Some("a"));
    }

    #[test]
    fn a_topology_allows_nodes_whose_labels_are_listed() {
        let check = |topologies: Value, expected: bool| {
            let class: Class =
                serde_json::from_value(json!({"allowedTopologies": topologies})).expect("a class");
            let labels = [("zone", "a")].into_iter().collect();
            assert_eq!(class.allows(&labels), expected, "{topologies}");
        };
        let one =
            |key: &str, values: &[&str]| json!({"matchLabelExpressions": [{"key": key, "values": values}]});
        check(Value::Null, true);
        check(json!([]), true);
        check(json!([{}]), false);
        check(json!([one("zone", &["a", "b"])]), true);
        check(json!([one("zone", &["b"])]), false);
        check(json!([one("zone", &["b"]), one("zone", &["a"])]), true);
        check(json!([one("rack", &["a"])]), false);
    }
}
