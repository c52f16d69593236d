//! Objects that are alike although their names are not: one owner's, with names that are made up.
//!
//! A made-up name is a prefix and a suffix that is random, or that is the hash of a template. Hashes are not those of
//! kube-controller-manager, which depend on the memory layout of Go's types; nothing but names and labels depends on
//! them.

use serde_json::Value;

use crate::intention::controller;
use crate::target::{Resource, Target};

/// Resources whose objects are named after their owners and hashes of what they hold.
const HASHED: &[&str] = &["controllerrevisions", "replicasets"];
/// What stands for a hash.
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
    /// The family of an object and the object without its name, if that is made up.
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

    /// Whether no two of its objects are the same: all but pods.
    pub(crate) fn is_unique(&self) -> bool {
        self.resource.name != "pods"
    }
}

/// Whether a name is one that the API server, or a controller in its place, has made up: the prefix and five letters
/// or digits, or not yet. Another suffix, such as the ordinal of a StatefulSet's pod, has a meaning.
fn is_generated(name: &str, generate_name: &str) -> bool {
    let is_safe = |byte: u8| b"bcdfghjklmnpqrstvwxz2456789".contains(&byte);
    let is_random = |suffix: &str| suffix.len() == 5 && suffix.bytes().all(is_safe);
    !generate_name.is_empty() && (name.is_empty() || name.strip_prefix(generate_name).is_some_and(is_random))
}

/// The object with the hash replaced wherever it occurs.
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
    fn objects_with_made_up_names_are_alike() {
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
    fn objects_that_differ_in_hashes_are_alike() {
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
