//! Groups objects of one owner that differ only in their generated names.
//!
//! A generated name is a prefix and either a random suffix or a template hash. The hashes here differ from those of
//! kube-controller-manager, which depend on the memory layout of Go types. Only names and labels depend on them.

use serde_json::Value;

use crate::intention::controller;
use crate::target::{Resource, Target};

/// Resources whose objects are named after their owner and a hash of their content.
const HASHED: &[&str] = &["controllerrevisions", "replicasets"];
/// The placeholder for a hash.
const HASH: &str = "(hash)";

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Family {
    pub(crate) resource: Resource,
    pub(crate) namespace: Option<String>,
    pub(crate) prefix: String,
    /// The uid of the owner; empty without one.
    pub(crate) owner: String,
}

impl Family {
    /// Returns the family of an object and the object without its name, if the name is generated.
    pub(crate) fn of(target: &Target, object: &Value) -> Option<(Self, Value)> {
        let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
        let (name, generate_name) = (text("name"), text("generateName"));
        let owner = controller(object);
        let owned =
            |field: &str| owner.and_then(|owner| owner[field].as_str()).unwrap_or_default().to_owned();
        let own_prefix = format!("{}-", owned("name"));
        let is_hashed = target.resource.group == "apps" && HASHED.contains(&target.resource.name.as_str());
        let hash = name.strip_prefix(&own_prefix).filter(|hash| is_hashed && hash.len() > 4);
        let (prefix, object) = match hash {
            _ if is_generated(name, generate_name) => (generate_name.to_owned(), object.clone()),
            Some(hash) => (own_prefix.clone(), without(object, hash)),
            None => return None,
        };
        let (resource, namespace) = (target.resource.clone(), target.namespace.clone());
        Some((Self { resource, namespace, prefix, owner: owned("uid") }, unnamed(object)))
    }

    /// Whether its objects are unique: all but pods.
    pub(crate) fn is_unique(&self) -> bool {
        self.resource.name != "pods"
    }
}

/// Whether the API server, or a controller in its place, generated a name: the prefix and five letters or digits, or no
/// suffix yet. Other suffixes, such as the ordinal of a StatefulSet's pod, are significant.
fn is_generated(name: &str, generate_name: &str) -> bool {
    let is_safe = |byte: u8| b"bcdfghjklmnpqrstvwxz2456789".contains(&byte);
    let is_random = |suffix: &str| suffix.len() == 5 && suffix.bytes().all(is_safe);
    !generate_name.is_empty() && (name.is_empty() || name.strip_prefix(generate_name).is_some_and(is_random))
}

/// Replaces every occurrence of the hash.
fn without(object: &Value, hash: &str) -> Value {
    match object {
        Value::String(text) => text.replace(hash, HASH).into(),
        Value::Array(items) => items.iter().map(|item| without(item, hash)).collect(),
        Value::Object(fields) => {
            fields.iter().map(|(name, value)| (name.clone(), without(value, hash))).collect()
        }
        other => other.clone(),
    }
}

fn unnamed(mut object: Value) -> Value {
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.retain(|name, _| !["name", "managedFields"].contains(&name.as_str()));
    }
    object
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn objects_with_generated_names_are_equivalent() {
        let pods = Target::parse("/api/v1/namespaces/a/pods").expect("a path");
        let named = |name: &str| json!({"metadata": {"name": name, "generateName": "web-"}});
        let of = |object: &Value| Family::of(&pods, object);
        assert_eq!(of(&named("")), of(&named("web-2xb7k")));
        for name in ["web-0", "web-2xb7", "web-aaaaa", "db-2xb7k"] {
            assert_eq!(of(&named(name)), None, "{name}");
        }
        assert_eq!(of(&json!({"metadata": {"name": "web"}})), None);
    }

    #[test]
    fn objects_that_differ_in_hashes_are_equivalent() {
        let sets = Target::parse("/apis/apps/v1/namespaces/a/replicasets").expect("a path");
        let owner = json!([{"name": "web", "uid": "1", "controller": true}]);
        let set = |hash: &str, image: &str| {
            let labels = json!({"app": "web", "pod-template-hash": hash});
            json!({"metadata": {"name": format!("web-{hash}"), "ownerReferences": owner, "labels": labels},
                "spec": {"selector": {"matchLabels": labels}, "image": image}})
        };
        let of = |object: &Value| Family::of(&sets, object);
        assert!(of(&set("5c8569bb69", "i")).is_some());
        assert_eq!(of(&set("5c8569bb69", "i")), of(&set("7d7687bd87", "i")));
        assert_ne!(of(&set("5c8569bb69", "i")), of(&set("7d7687bd87", "j")));
    }
}
