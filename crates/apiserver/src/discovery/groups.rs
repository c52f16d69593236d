//! The groups in legacy discovery, in v1.34's order: they are those of the APIServices.
//!
//! A built-in group version that v1.34 does not have, such as the metrics of simulated nodes, has no APIService. It is
//! listed after the others, until an APIService takes it over.

use crate::aggregation::ApiServices;
use crate::kinds::apiservice::{group_priority, is_registered};
use crate::registry::Registry;

/// The group of APIServices, which is always listed first.
const OWN: &str = "apiregistration.k8s.io";

/// A group and its versions, in order of preference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Listed {
    pub(super) name: String,
    pub(super) versions: Vec<String>,
}

impl Listed {
    fn local(registry: &Registry, name: &str) -> Option<Self> {
        let versions = registry.group(name)?.versions.iter().map(|version| version.name.clone());
        Some(Self { name: name.to_owned(), versions: versions.collect() })
    }
}

/// Returns all groups but the core group.
pub(super) fn all(registry: &Registry, services: &ApiServices) -> Vec<Listed> {
    if registry.group(OWN).is_none() {
        return local(registry);
    }
    let mut listed: Vec<Listed> = Listed::local(registry, OWN).into_iter().collect();
    for group in services.by_priority() {
        let name = group.first().map(|service| service.group.clone()).unwrap_or_default();
        if !name.is_empty() && name != OWN {
            listed.push(Listed { name, versions: group.iter().map(|one| one.version.clone()).collect() });
        }
    }
    let mut unregistered: Vec<Listed> = unregistered(registry, services).collect();
    unregistered.sort_by_key(|group| std::cmp::Reverse(group_priority(&group.name)));
    for group in unregistered {
        match listed.iter_mut().find(|known| known.name == group.name) {
            Some(known) => known.versions.extend(group.versions),
            None => listed.push(group),
        }
    }
    listed
}

/// Returns the groups of a server without APIServices.
fn local(registry: &Registry) -> Vec<Listed> {
    let names = registry.groups().map(|(name, _)| name).filter(|name| !name.is_empty());
    let mut listed: Vec<Listed> = names.filter_map(|name| Listed::local(registry, name)).collect();
    listed.sort_by_key(|group| std::cmp::Reverse(group_priority(&group.name)));
    listed
}

/// Returns the versions of a group: those of its APIServices, or else of this server.
pub(super) fn one(registry: &Registry, services: &ApiServices, name: &str) -> Option<Listed> {
    let registered = services.of_group(name);
    if name.is_empty() || name == OWN || registered.is_empty() {
        return Listed::local(registry, name).filter(|_| !name.is_empty());
    }
    let mut versions: Vec<String> = registered.iter().map(|service| service.version.clone()).collect();
    let bare = unregistered(registry, services).filter(|group| group.name == name);
    versions.extend(bare.flat_map(|group| group.versions));
    Some(Listed { name: name.to_owned(), versions })
}

/// Returns the group versions of this server that have no APIService and should have none.
fn unregistered(registry: &Registry, services: &ApiServices) -> impl Iterator<Item = Listed> {
    let groups = registry.groups().filter(|(name, _)| !name.is_empty() && *name != OWN);
    groups.filter_map(|(name, group)| {
        let is_bare = |version: &&str| {
            let service = format!("{version}.{name}");
            let is_custom = !registry.has_built_in(name, version);
            !is_custom && !is_registered(name, version) && services.get(&service).is_none()
        };
        let versions = group.versions.iter().map(|version| version.name.as_str()).filter(is_bare);
        let versions: Vec<String> = versions.map(str::to_owned).collect();
        (!versions.is_empty()).then(|| Listed { name: name.to_owned(), versions })
    })
}
