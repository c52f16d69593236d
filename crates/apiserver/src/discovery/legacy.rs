//! Unaggregated discovery: one document per group version.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::groups::Listed;
use super::{foreign_kind, kind_verbs, sorted_subresources, verb_names};
use crate::json::JsonMut;
use crate::kind::{Kind, Subresource, Verb};
use crate::registry::Registry;

pub(super) fn core_versions() -> Value {
    json!({
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [{ "clientCIDR": "0.0.0.0/0", "serverAddress": "" }],
    })
}

/// Lists the groups, each with its versions in order of preference.
pub(super) fn groups(groups: &[Listed]) -> Value {
    let groups: Vec<Value> = groups.iter().map(bare_group).collect();
    json!({ "kind": "APIGroupList", "apiVersion": "v1", "groups": groups })
}

fn bare_group(group: &Listed) -> Value {
    let name = &group.name;
    let version =
        |version: &String| json!({ "groupVersion": format!("{name}/{version}"), "version": version });
    let versions: Vec<Value> = group.versions.iter().map(version).collect();
    let preferred = versions.first().cloned().unwrap_or_default();
    json!({ "name": name, "versions": versions, "preferredVersion": preferred })
}

pub(super) fn group(group: &Listed) -> Value {
    let mut document = bare_group(group);
    document.set("kind", "APIGroup");
    document.set("apiVersion", "v1");
    document
}

pub(super) fn resources(registry: &Registry, group: &str, version: &str) -> Option<Value> {
    let found = registry.version(group, version)?;
    let mut resources = Vec::new();
    for served in found.resources.values() {
        let kind = &served.kind;
        resources.push(resource(kind));
        resources.extend(sorted_subresources(kind).into_iter().map(|part| subresource(kind, part)));
    }
    let group_version = if group.is_empty() { version.to_string() } else { format!("{group}/{version}") };
    let mut list =
        json!({ "kind": "APIResourceList", "groupVersion": group_version, "resources": resources });
    // The core group predates the rule that documents state their version.
    if !group.is_empty() {
        list.set("apiVersion", "v1");
    }
    Some(list)
}

fn resource(kind: &Kind) -> Value {
    let mut resource = json!({
        "name": kind.plural,
        "singularName": kind.singular,
        "namespaced": kind.is_namespaced(),
        "kind": kind.kind,
        "verbs": kind_verbs(kind),
    });
    if !kind.short_names.is_empty() {
        resource.set("shortNames", kind.short_names.clone());
    }
    if !kind.categories.is_empty() {
        resource.set("categories", kind.categories.clone());
    }
    if kind.verbs.contains(&Verb::Update) {
        resource.set("storageVersionHash", storage_hash(kind));
    }
    resource
}

/// v1.34's storage versions, where they differ from the served ones.
const STORED_OTHERWISE: [(&str, &str, &str); 9] = [
    ("CustomResourceDefinition", "apiextensions.k8s.io", "v1beta1"),
    ("DeviceClass", "resource.k8s.io", "v1beta2"),
    ("HorizontalPodAutoscaler", "autoscaling", "v2"),
    ("MutatingAdmissionPolicy", "admissionregistration.k8s.io", "v1alpha1"),
    ("MutatingAdmissionPolicyBinding", "admissionregistration.k8s.io", "v1alpha1"),
    ("ResourceClaim", "resource.k8s.io", "v1beta2"),
    ("ResourceClaimTemplate", "resource.k8s.io", "v1beta2"),
    ("ResourceSlice", "resource.k8s.io", "v1beta2"),
    ("VolumeAttributesClass", "storage.k8s.io", "v1beta1"),
];

/// Returns the hash that tells clients whether two kinds are the same in storage: computed from v1.34's storage group,
/// version and kind.
fn storage_hash(kind: &Kind) -> String {
    let group = kind.internal_group();
    let stored = STORED_OTHERWISE.iter().find(|(name, of, _)| (*name, *of) == (kind.kind.as_str(), group));
    let version = match stored {
        Some((_, _, version)) if kind.custom.is_none() => version,
        _ => kind.version.as_str(),
    };
    let digest = Sha256::digest(format!("{group}/{version}/{}", kind.kind));
    STANDARD.encode(&digest[..8])
}

fn subresource(kind: &Kind, part: Subresource) -> Value {
    let mut resource = json!({
        "name": format!("{}/{}", kind.plural, part.name()),
        "singularName": "",
        "namespaced": kind.is_namespaced(),
        "kind": kind.kind,
        "verbs": verb_names(part.verbs()),
    });
    if let Some((group, version, foreign)) = foreign_kind(kind, part) {
        resource.set("kind", foreign);
        for (field, text) in [("group", group), ("version", version)] {
            if !text.is_empty() {
                resource.set(field, text);
            }
        }
    }
    resource
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds;

    #[test]
    fn versions_stored_as_one_have_one_hash() {
        let hash = |group: &str, version: &str, name: &str| {
            let all = kinds::all();
            let is_it = |kind: &&Kind| (&*kind.group, &*kind.version, &*kind.kind) == (group, version, name);
            storage_hash(all.iter().find(is_it).unwrap())
        };
        for (group, version, name, expected) in [
            ("", "v1", "ConfigMap", "qFsyl6wFWjQ="),
            ("", "v1", "Event", "r2yiGXH7wu8="),
            ("events.k8s.io", "v1", "Event", "r2yiGXH7wu8="),
            ("autoscaling", "v1", "HorizontalPodAutoscaler", "qwQve8ut294="),
            ("autoscaling", "v2", "HorizontalPodAutoscaler", "qwQve8ut294="),
            ("apiextensions.k8s.io", "v1", "CustomResourceDefinition", "jfWCUB31mvA="),
            ("resource.k8s.io", "v1", "DeviceClass", "weQRMT6DeYM="),
        ] {
            assert_eq!(hash(group, version, name), expected, "{group}/{version} {name}");
        }
    }
}
