//! The storage paths of v1.34. The path is authenticated with the value, so it must be the same for every engine.

use std::fmt;

/// A resource and its API group, which is empty for the core group. Either may be `*` in a configuration.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct GroupResource {
    pub group: String,
    pub resource: String,
}

impl GroupResource {
    pub fn new(group: impl Into<String>, resource: impl Into<String>) -> Self {
        Self { group: group.into(), resource: resource.into() }
    }

    /// Parses `resource.group`, or `resource` for the core group.
    pub fn parse(text: &str) -> Self {
        match text.split_once('.') {
            Some((resource, group)) => Self::new(group, resource),
            None => Self::new("", text),
        }
    }

    /// Formats it as in a configuration.
    pub(crate) fn in_yaml(&self) -> String {
        if self.group.is_empty() && self.resource == "*" { "*.".to_owned() } else { self.to_string() }
    }
}

impl fmt::Display for GroupResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.group.as_str() {
            "" => f.write_str(&self.resource),
            group => write!(f, "{}.{group}", self.resource),
        }
    }
}

/// The built-in groups whose resources are stored without the group in their path.
const WITHOUT_GROUP: &[&str] = &[
    "",
    "admissionregistration.k8s.io",
    "apps",
    "autoscaling",
    "batch",
    "certificates.k8s.io",
    "coordination.k8s.io",
    "discovery.k8s.io",
    "events.k8s.io",
    "flowcontrol.apiserver.k8s.io",
    "internal.apiserver.k8s.io",
    "networking.k8s.io",
    "node.k8s.io",
    "policy",
    "rbac.authorization.k8s.io",
    "resource.k8s.io",
    "scheduling.k8s.io",
    "storage.k8s.io",
    "storagemigration.k8s.io",
];

/// Returns where the object with this path (`namespace/name` or `name`) is stored. Custom resources, their definitions
/// and APIServices are stored under their group, others under the resource alone, and a few under a historical name.
pub fn storage_path(of: &GroupResource, path: &str) -> String {
    let resource = of.resource.as_str();
    match (of.group.as_str(), resource) {
        ("", "replicationcontrollers") => format!("/registry/controllers/{path}"),
        ("", "endpoints") => format!("/registry/services/endpoints/{path}"),
        ("", "nodes") => format!("/registry/minions/{path}"),
        ("", "services") => format!("/registry/services/specs/{path}"),
        ("networking.k8s.io", "ingresses") => format!("/registry/ingress/{path}"),
        (group, _) if WITHOUT_GROUP.contains(&group) => format!("/registry/{resource}/{path}"),
        (group, _) => format!("/registry/{group}/{resource}/{path}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_stored_where_v1_34_stores_them() {
        for (resource, path, expected) in [
            ("secrets", "default/a", "/registry/secrets/default/a"),
            ("namespaces", "default", "/registry/namespaces/default"),
            ("services", "default/web", "/registry/services/specs/default/web"),
            ("endpoints", "default/web", "/registry/services/endpoints/default/web"),
            ("nodes", "n1", "/registry/minions/n1"),
            ("replicationcontrollers", "a/b", "/registry/controllers/a/b"),
            ("deployments.apps", "a/b", "/registry/deployments/a/b"),
            ("ingresses.networking.k8s.io", "a/b", "/registry/ingress/a/b"),
            ("pandas.awesome.bears.example", "a/b", "/registry/awesome.bears.example/pandas/a/b"),
            (
                "customresourcedefinitions.apiextensions.k8s.io",
                "x",
                "/registry/apiextensions.k8s.io/customresourcedefinitions/x",
            ),
            (
                "apiservices.apiregistration.k8s.io",
                "v1.apps",
                "/registry/apiregistration.k8s.io/apiservices/v1.apps",
            ),
        ] {
            assert_eq!(storage_path(&GroupResource::parse(resource), path), expected);
        }
    }
}
