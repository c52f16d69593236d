//! Objects by kind and key, and how hooks name them.
//!
//! In version 1, names are relative to the parent: plain for a namespaced parent, which only sees its own namespace,
//! and `NAMESPACE/NAME` for a cluster-scoped one. In version 2, they are always `NAMESPACE/NAME`, or bare for an object
//! without namespace.

use std::collections::BTreeMap;

use serde_json::{Map, Value};
use setpoint::{Key, Kind};

use crate::model::HookVersion;

/// Objects by kind and key. A kind may have no objects.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Objects(BTreeMap<Kind, BTreeMap<Key, Value>>);

impl Objects {
    /// Adds a kind.
    pub(crate) fn declare(&mut self, kind: &Kind) {
        self.0.entry(kind.clone()).or_default();
    }

    pub(crate) fn insert(&mut self, kind: &Kind, key: Key, object: Value) {
        self.0.entry(kind.clone()).or_default().insert(key, object);
    }

    pub(crate) fn get(&self, kind: &Kind, key: &Key) -> Option<&Value> {
        self.0.get(kind)?.get(key)
    }

    pub(crate) fn contains(&self, kind: &Kind, key: &Key) -> bool {
        self.get(kind, key).is_some()
    }

    /// Returns the objects in the order of kinds and keys.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Kind, &Key, &Value)> {
        self.0.iter().flat_map(|(kind, objects)| objects.iter().map(move |(key, value)| (kind, key, value)))
    }

    /// Returns the kind with these names, in any version.
    pub(crate) fn kind_named(&self, group: &str, kind: &str) -> Option<&Kind> {
        self.0.keys().find(|known| known.group() == group && known.kind() == kind)
    }

    /// Encodes the objects for a hook. `namespace` is that of the parent.
    pub(crate) fn encode(&self, version: HookVersion, namespace: Option<&str>) -> Value {
        let encoded = self.0.iter().map(|(kind, objects)| {
            let named = objects.iter().filter_map(|(key, object)| {
                let name = match version {
                    HookVersion::V1 if namespace.is_some() && key.namespace() != namespace => return None,
                    HookVersion::V1 => relative_name(namespace, key),
                    HookVersion::V2 => key.to_string(),
                };
                Some((name, object.clone()))
            });
            (kind_name(kind), Value::Object(named.collect()))
        });
        Value::Object(encoded.collect::<Map<_, _>>())
    }
}

/// `Pod.v1`, `Deployment.apps/v1`
fn kind_name(kind: &Kind) -> String {
    format!("{}.{}", kind.kind(), kind.api_version())
}

/// Returns the name of an object as a parent in `namespace`, or a cluster-scoped one, sees it.
pub(crate) fn relative_name(namespace: Option<&str>, key: &Key) -> String {
    match namespace {
        Some(_) => key.name().to_owned(),
        None => key.to_string(),
    }
}

/// Returns the key of a child that a parent in `namespace`, or a cluster-scoped one, calls by this name.
pub(crate) fn relative_key(namespace: Option<&str>, kind: &Kind, name: &str) -> Key {
    match (namespace, name.split_once('/')) {
        (Some(namespace), _) if kind.namespaced() => Key::namespaced(namespace, name),
        (None, Some((namespace, name))) => Key::namespaced(namespace, name),
        _ => Key::cluster(name),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn objects() -> Objects {
        let pods = Kind::new("", "v1", "Pod", "pods", true);
        let sets = Kind::new("apps", "v1", "StatefulSet", "statefulsets", true);
        let nodes = Kind::new("", "v1", "Node", "nodes", false);
        let mut objects = Objects::default();
        objects.declare(&sets);
        objects.insert(&pods, Key::namespaced("shop", "a"), json!(1));
        objects.insert(&pods, Key::namespaced("other", "b"), json!(2));
        objects.insert(&nodes, Key::cluster("n"), json!(3));
        objects
    }

    #[test]
    fn names_depend_on_the_version_and_the_scope_of_the_parent() {
        let check = |version, namespace, pods: Value, nodes: Value| {
            let encoded = objects().encode(version, namespace);
            assert_eq!(encoded, json!({"Node.v1": nodes, "Pod.v1": pods, "StatefulSet.apps/v1": {}}));
        };
        check(HookVersion::V1, Some("shop"), json!({"a": 1}), json!({}));
        check(HookVersion::V1, None, json!({"shop/a": 1, "other/b": 2}), json!({"n": 3}));
        check(HookVersion::V2, Some("shop"), json!({"shop/a": 1, "other/b": 2}), json!({"n": 3}));
        check(HookVersion::V2, None, json!({"shop/a": 1, "other/b": 2}), json!({"n": 3}));
    }

    #[test]
    fn a_relative_name_leads_back_to_its_key() {
        let pods = Kind::new("", "v1", "Pod", "pods", true);
        let nodes = Kind::new("", "v1", "Node", "nodes", false);
        for (namespace, kind, key) in [
            (Some("shop"), &pods, Key::namespaced("shop", "a")),
            (None, &pods, Key::namespaced("shop", "a")),
            (None, &nodes, Key::cluster("n")),
        ] {
            let name = relative_name(namespace, &key);
            assert_eq!(relative_key(namespace, kind, &name), key, "{name}");
        }
    }
}
