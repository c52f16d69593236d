//! The stored APIServices, indexed for routing and discovery.
//!
//! Each request updates the view first, so an APIService applies to the first request after its write was acknowledged.

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use setpoint_store::{Record, Resource};
use setpoint_webhook::ServiceReference;

use crate::auth::store_view;
use crate::custom::compare_versions;
use crate::json::Json;
use crate::kinds::apiservice::AVAILABLE;
use crate::metadata;

/// The store's resource of APIServices.
pub(super) const RESOURCE: &str = "apiregistration.k8s.io/apiservices";

/// An APIService.
#[derive(Debug)]
pub(crate) struct ApiService {
    pub(crate) name: Box<str>,
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) group_priority: i64,
    pub(crate) version_priority: i64,
    /// The server that serves it; `None` if it is this one.
    pub(crate) remote: Option<Arc<Remote>>,
    pub(crate) is_available: bool,
}

/// An extension API server, and how it is verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Remote {
    pub(crate) service: ServiceReference,
    /// As PEM; if empty, the system's CAs are used.
    pub(crate) ca_bundle: Vec<u8>,
    pub(crate) is_insecure: bool,
}

impl ApiService {
    /// Reads an APIService. Invalid ports, and bundles that are not base64, were rejected when it was written.
    pub(super) fn read(name: &str, object: &Value) -> Self {
        let spec = object.at("spec");
        let conditions = object.at("status").list("conditions");
        let available = conditions.iter().find(|condition| condition.text("type") == AVAILABLE);
        Self {
            name: name.into(),
            group: spec.text("group").to_owned(),
            version: spec.text("version").to_owned(),
            group_priority: spec.count("groupPriorityMinimum"),
            version_priority: spec.count("versionPriority"),
            remote: spec.has("service").then(|| Arc::new(Remote::read(spec))),
            is_available: available.is_some_and(|condition| condition.text("status") == "True"),
        }
    }

    /// The path of its discovery document, which every API server has.
    pub(super) fn path(&self) -> String {
        match &*self.name {
            "v1." => "/api/v1".into(),
            _ => format!("/apis/{}/{}", self.group, self.version),
        }
    }
}

impl Remote {
    fn read(spec: &Value) -> Self {
        let reference = spec.at("service");
        let port = reference.int("port").and_then(|port| u16::try_from(port).ok());
        Self {
            service: ServiceReference {
                namespace: reference.text("namespace").to_owned(),
                name: reference.text("name").to_owned(),
                port: port.unwrap_or(443),
            },
            ca_bundle: STANDARD.decode(spec.text("caBundle")).unwrap_or_default(),
            is_insecure: spec.flag("insecureSkipTLSVerify"),
        }
    }
}

/// All APIServices.
#[derive(Default)]
pub(crate) struct ApiServices {
    by_name: BTreeMap<Box<str>, Arc<ApiService>>,
    /// Those that another server serves, by group and version.
    remote: BTreeMap<(String, String), Arc<ApiService>>,
    /// Grows with every change.
    generation: u64,
}

impl ApiServices {
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    /// The APIService whose extension server serves a group version, if any.
    pub(crate) fn remote(&self, group: &str, version: &str) -> Option<Arc<ApiService>> {
        if self.remote.is_empty() {
            return None;
        }
        self.remote.get(&(group.to_owned(), version.to_owned())).cloned()
    }

    pub(crate) fn all_remote(&self) -> impl Iterator<Item = &Arc<ApiService>> {
        self.remote.values()
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<ApiService>> {
        self.by_name.values()
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Arc<ApiService>> {
        self.by_name.get(name)
    }

    /// The APIServices by group, in the order in which v1.34 lists them: the group with the highest priority of any
    /// version first, and the versions of a group by their priority, then by their stability.
    pub(crate) fn by_priority(&self) -> Vec<Vec<Arc<ApiService>>> {
        let mut all: Vec<&Arc<ApiService>> = self.by_name.values().collect();
        all.sort_by_key(|service| (std::cmp::Reverse(service.group_priority), &service.name));
        let mut groups: Vec<Vec<Arc<ApiService>>> = Vec::new();
        for service in all {
            match groups.iter_mut().find(|group| group[0].group == service.group) {
                Some(group) => group.push(service.clone()),
                None => groups.push(vec![service.clone()]),
            }
        }
        groups.iter_mut().for_each(|group| sort_versions(group));
        groups
    }

    /// The APIServices of a group, by their versions' priority.
    pub(crate) fn of_group(&self, name: &str) -> Vec<Arc<ApiService>> {
        let mut group: Vec<_> =
            self.by_name.values().filter(|service| service.group == name).cloned().collect();
        sort_versions(&mut group);
        group
    }

    fn set(&mut self, name: &str, object: Option<&[u8]>) {
        if let Some(before) = self.by_name.remove(name) {
            self.remote.remove(&(before.group.clone(), before.version.clone()));
        }
        let object = object.and_then(|bytes| serde_json::from_slice::<Value>(bytes).ok());
        if let Some(object) = object.filter(|object| !metadata::of(object).text("name").is_empty()) {
            let service = Arc::new(ApiService::read(name, &object));
            if service.remote.is_some() {
                self.remote.insert((service.group.clone(), service.version.clone()), service.clone());
            }
            self.by_name.insert(name.into(), service);
        }
        self.generation += 1;
    }
}

fn sort_versions(group: &mut [Arc<ApiService>]) {
    group.sort_by(|one, other| {
        let by_priority = other.version_priority.cmp(&one.version_priority);
        by_priority.then_with(|| compare_versions(&other.version, &one.version))
    });
}

impl store_view::View for ApiServices {
    type Source = ();

    fn sources() -> Vec<((), Resource)> {
        vec![((), Resource::new(RESOURCE))]
    }

    fn apply(&mut self, (): (), record: &Record, is_there: bool) {
        self.set(&record.key.path, is_there.then_some(&*record.value));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn services(of: &[(&str, i64, i64)]) -> ApiServices {
        let mut services = ApiServices::default();
        for (name, group_priority, version_priority) in of {
            let (version, group) = name.split_once('.').unwrap();
            let object = json!({"metadata": {"name": name}, "spec": {"group": group, "version": version,
                "groupPriorityMinimum": group_priority, "versionPriority": version_priority}});
            services.set(name, Some(object.to_string().as_bytes()));
        }
        services
    }

    #[test]
    fn groups_and_versions_are_ordered_as_v1_34_orders_them() {
        let services = services(&[
            ("v1.b", 1000, 100),
            ("v1beta1.a", 1000, 100),
            ("v1.z", 2000, 1),
            ("v2.a", 10, 100),
            ("v10.a", 10, 200),
            ("v1.a", 10, 100),
        ]);
        let order: Vec<Vec<String>> = services
            .by_priority()
            .iter()
            .map(|group| group.iter().map(|service| service.name.to_string()).collect())
            .collect();
        // A group is sorted by its version with the highest priority, then by name and version.
        assert_eq!(order[0], ["v1.z"]);
        assert_eq!(order[1], ["v1.b"]);
        assert_eq!(order[2], ["v10.a", "v2.a", "v1.a", "v1beta1.a"]);
    }

    #[test]
    fn only_a_service_elsewhere_is_remote() {
        let mut services = services(&[("v1.a", 1, 1)]);
        assert!(services.remote("a", "v1").is_none());
        let mut object = json!({"metadata": {"name": "v1.a"}, "spec": {"group": "a", "version": "v1",
            "caBundle": "eA==", "service": {"namespace": "n", "name": "s", "port": 8443}},
            "status": {"conditions": [{"type": "Available", "status": "False"}]}});
        services.set("v1.a", Some(object.to_string().as_bytes()));
        let service = services.remote("a", "v1").unwrap();
        let remote = service.remote.as_ref().unwrap();
        assert_eq!((remote.service.port, remote.ca_bundle.as_slice()), (8443, &b"x"[..]));
        assert!(!service.is_available);
        object["status"]["conditions"][0]["status"] = "True".into();
        services.set("v1.a", Some(object.to_string().as_bytes()));
        assert!(services.remote("a", "v1").unwrap().is_available);
        services.set("v1.a", None);
        assert!(services.remote("a", "v1").is_none() && services.all().next().is_none());
    }
}
