//! Discovery documents of other servers: decoded, validated and converted to aggregated discovery.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// A group version in aggregated discovery, without its freshness.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct VersionDocument {
    version: String,
    #[serde(deserialize_with = "present")]
    pub(crate) resources: Vec<ResourceDocument>,
}

/// A resource. Unknown fields are dropped.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct ResourceDocument {
    resource: String,
    #[serde(deserialize_with = "present")]
    response_kind: KindDocument,
    scope: String,
    singular_resource: String,
    #[serde(deserialize_with = "present")]
    verbs: Vec<String>,
    #[serde(deserialize_with = "present", skip_serializing_if = "Vec::is_empty")]
    short_names: Vec<String>,
    #[serde(deserialize_with = "present", skip_serializing_if = "Vec::is_empty")]
    categories: Vec<String>,
    #[serde(deserialize_with = "present", skip_serializing_if = "Vec::is_empty")]
    subresources: Vec<SubresourceDocument>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct KindDocument {
    group: String,
    version: String,
    kind: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct SubresourceDocument {
    subresource: String,
    #[serde(deserialize_with = "present")]
    response_kind: KindDocument,
    #[serde(deserialize_with = "present", skip_serializing_if = "Vec::is_empty")]
    accepted_types: Vec<KindDocument>,
    #[serde(deserialize_with = "present")]
    verbs: Vec<String>,
}

/// Null is the same as absent.
fn present<'de, D, T>(from: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::<T>::deserialize(from)?.unwrap_or_default())
}

#[derive(Deserialize)]
struct GroupList {
    kind: String,
    #[serde(default, deserialize_with = "present")]
    items: Vec<GroupDocument>,
}

#[derive(Deserialize)]
struct GroupDocument {
    #[serde(default, deserialize_with = "present")]
    metadata: GroupName,
    #[serde(default, deserialize_with = "present")]
    versions: Vec<VersionDocument>,
}

#[derive(Default, Deserialize)]
struct GroupName {
    #[serde(default)]
    name: String,
}

/// Reads aggregated discovery, v2 or v2beta1: they have the same fields.
pub(super) fn aggregated(bytes: &[u8]) -> Result<BTreeMap<(String, String), Arc<VersionDocument>>, String> {
    let list: GroupList = serde_json::from_slice(bytes).map_err(|why| why.to_string())?;
    if list.kind != "APIGroupDiscoveryList" {
        return Err(format!("expected an APIGroupDiscoveryList, found {:?}", list.kind));
    }
    let mut versions = BTreeMap::new();
    for group in list.items {
        for version in group.versions {
            versions.insert((group.metadata.name.clone(), version.version.clone()), Arc::new(version));
        }
    }
    Ok(versions)
}

#[derive(Deserialize)]
struct ResourceList {
    kind: String,
    #[serde(default, deserialize_with = "present")]
    resources: Vec<LegacyResource>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct LegacyResource {
    name: String,
    singular_name: String,
    namespaced: bool,
    group: String,
    version: String,
    kind: String,
    #[serde(deserialize_with = "present")]
    verbs: Vec<String>,
    #[serde(deserialize_with = "present")]
    short_names: Vec<String>,
    #[serde(deserialize_with = "present")]
    categories: Vec<String>,
}

impl LegacyResource {
    fn scope(&self) -> &'static str {
        if self.namespaced { "Namespaced" } else { "Cluster" }
    }

    fn response_kind(&self) -> KindDocument {
        KindDocument { group: self.group.clone(), version: self.version.clone(), kind: self.kind.clone() }
    }
}

/// Reads the list of a group version's resources, and groups subresources with their resources.
pub(super) fn legacy(bytes: &[u8]) -> Result<VersionDocument, String> {
    let list: ResourceList = serde_json::from_slice(bytes).map_err(|why| why.to_string())?;
    if list.kind != "APIResourceList" {
        return Err(format!("expected an APIResourceList, found {:?}", list.kind));
    }
    let (parts, wholes): (Vec<_>, Vec<_>) =
        list.resources.into_iter().partition(|resource| resource.name.contains('/'));
    let mut document =
        VersionDocument { resources: wholes.into_iter().map(whole).collect(), ..VersionDocument::default() };
    // By name, because a hostile list may be long.
    let mut places: BTreeMap<String, usize> = BTreeMap::new();
    for (place, resource) in document.resources.iter().enumerate() {
        places.insert(resource.resource.clone(), place);
    }
    for part in parts {
        document.add_subresource(&mut places, part)?;
    }
    Ok(document)
}

fn whole(resource: LegacyResource) -> ResourceDocument {
    ResourceDocument {
        scope: resource.scope().into(),
        response_kind: resource.response_kind(),
        resource: resource.name,
        singular_resource: resource.singular_name,
        verbs: resource.verbs,
        short_names: resource.short_names,
        categories: resource.categories,
        subresources: Vec::new(),
    }
}

impl VersionDocument {
    fn add_subresource(
        &mut self,
        places: &mut BTreeMap<String, usize>,
        part: LegacyResource,
    ) -> Result<(), String> {
        let (parent, name) = part.name.split_once('/').unwrap_or((&part.name, ""));
        let scope = part.scope();
        let place = *places.entry(parent.to_owned()).or_insert_with(|| {
            let (resource, scope) = (parent.to_owned(), scope.to_owned());
            self.resources.push(ResourceDocument { resource, scope, ..ResourceDocument::default() });
            self.resources.len() - 1
        });
        let resource = &mut self.resources[place];
        if resource.scope != scope {
            return Err(format!(
                "Error: Parent {parent} (scope: {}) and subresource {name} (scope: {scope}) scope do not match",
                resource.scope
            ));
        }
        let response_kind = if part.kind.is_empty() { KindDocument::default() } else { part.response_kind() };
        let (subresource, verbs) = (name.to_owned(), part.verbs);
        let part = SubresourceDocument { subresource, response_kind, accepted_types: Vec::new(), verbs };
        resource.subresources.push(part);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn resources(document: &VersionDocument) -> serde_json::Value {
        serde_json::to_value(&document.resources).unwrap()
    }

    #[test]
    fn a_legacy_list_is_brought_into_the_newer_form() {
        let list = json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "a/v1", "resources": [
            {"name": "gizmos/status", "namespaced": true, "kind": "Gizmo", "verbs": ["get"]},
            {"name": "gizmos", "singularName": "gizmo", "namespaced": true, "kind": "Gizmo",
                "verbs": ["list"], "shortNames": ["gz"]},
            {"name": "others/scale", "namespaced": false, "group": "autoscaling", "version": "v1",
                "kind": "Scale", "verbs": null},
        ]});
        let document = legacy(list.to_string().as_bytes()).unwrap();
        let kind = |group: &str, version: &str, kind: &str| json!({"group": group, "version": version, "kind": kind});
        let expected = json!([
            {"resource": "gizmos", "responseKind": kind("", "", "Gizmo"), "scope": "Namespaced",
                "singularResource": "gizmo", "verbs": ["list"], "shortNames": ["gz"], "subresources": [
                {"subresource": "status", "responseKind": kind("", "", "Gizmo"), "verbs": ["get"]}]},
            {"resource": "others", "responseKind": kind("", "", ""), "scope": "Cluster", "singularResource": "",
                "verbs": [], "subresources": [
                {"subresource": "scale", "responseKind": kind("autoscaling", "v1", "Scale"), "verbs": []}]},
        ]);
        assert_eq!(resources(&document), expected);
    }

    #[test]
    fn an_invalid_discovery_document_is_an_error() {
        for text in ["", "[]", "{}", r#"{"kind":"Status"}"#, r#"{"kind":"APIResourceList","resources":3}"#] {
            assert!(legacy(text.as_bytes()).is_err() && aggregated(text.as_bytes()).is_err(), "{text}");
        }
        let split = json!({"kind": "APIResourceList", "resources": [
            {"name": "a", "namespaced": true, "kind": "A"}, {"name": "a/b", "namespaced": false, "kind": "B"}]});
        assert!(legacy(split.to_string().as_bytes()).unwrap_err().contains("scope do not match"));
    }

    #[test]
    fn aggregated_documents_may_leave_kinds_out() {
        let list = json!({"kind": "APIGroupDiscoveryList", "items": [{"metadata": {"name": "a"}, "versions": [
            {"version": "v1", "freshness": "Current", "resources": [
                {"resource": "x", "scope": "Cluster", "verbs": ["get"], "responseKind": null, "evil": true}]}]}]});
        let versions = aggregated(list.to_string().as_bytes()).unwrap();
        let document = &versions[&("a".to_owned(), "v1".to_owned())];
        let expected = json!([{"resource": "x", "responseKind": {"group": "", "version": "", "kind": ""},
            "scope": "Cluster", "singularResource": "", "verbs": ["get"]}]);
        assert_eq!(resources(document), expected);
    }
}
