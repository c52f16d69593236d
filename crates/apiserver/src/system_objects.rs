//! Objects that every cluster starts with: the server creates them if they are missing. As in v1.34, some are
//! recreated if deleted.

use std::net::IpAddr;

use serde_json::{Value, json};

use crate::kinds::flowcontrol::bootstrap;
use crate::kinds::priorityclass;
use crate::loopback;
use crate::registry::Gvr;
use crate::replicas;
use crate::server::Server;

const SYSTEM_NAMESPACES: [&str; 4] = ["default", "kube-system", "kube-public", "kube-node-lease"];

/// The server's addresses.
pub(crate) struct ServerAddresses {
    /// The ranges of cluster IPs, and the first address of the first one, which is the server's own.
    pub(crate) range: String,
    pub(crate) cluster_ip: String,
    /// The address it listens on, if others can reach it.
    pub(crate) address: Option<IpAddr>,
    pub(crate) port: u16,
}

/// The field managers of FlowSchemas and PriorityLevelConfigurations, and of their conditions.
pub(crate) const FLOW_PRODUCER: &str = "api-priority-and-fairness-config-producer-v1";
pub(crate) const FLOW_CONSUMER: &str = "api-priority-and-fairness-config-consumer-v1";

/// When a deleted object is recreated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecreatePolicy {
    /// At the next start of the server.
    NextStart,
    Soon,
    WithinAMinute,
}

/// An object that the server owns.
pub(crate) struct SystemObject {
    pub(crate) resource: Gvr,
    pub(crate) object: Value,
    /// Its field manager.
    pub(crate) manager: &'static str,
    /// The status to write after creation, and its field manager.
    pub(crate) status: Option<(&'static str, Value)>,
    /// Whether an existing object is updated to match.
    pub(crate) follows: bool,
    pub(crate) returns: RecreatePolicy,
}

impl SystemObject {
    fn new(group: &str, resource: &str, object: Value) -> Self {
        Self {
            resource: Gvr::new(group, "v1", resource),
            object,
            manager: loopback::NAME,
            status: None,
            follows: false,
            returns: RecreatePolicy::NextStart,
        }
    }
}

/// Returns the server's own objects, each after those it depends on, with `now` as their times.
pub(crate) fn all(server: &Server, now: &str) -> Vec<SystemObject> {
    let place = &server.place;
    let mut all: Vec<SystemObject> = Vec::new();
    let namespaces = SYSTEM_NAMESPACES.iter().map(|name| json!({"metadata": {"name": name}}));
    let returns = RecreatePolicy::WithinAMinute;
    all.extend(
        namespaces.map(|object| SystemObject { returns, ..SystemObject::new("", "namespaces", object) }),
    );
    all.push(service_cidr(place, now));
    all.push(SystemObject {
        returns: RecreatePolicy::Soon,
        ..SystemObject::new("", "services", kubernetes_service(place))
    });
    // With several servers, they are the addresses of the live ones.
    if !server.store.is_shared() {
        all.extend(kubernetes_endpoints(place));
    }
    let classes = priorityclass::system_classes();
    all.extend(classes.map(|object| SystemObject::new("scheduling.k8s.io", "priorityclasses", object)));
    let flow_control = "flowcontrol.apiserver.k8s.io";
    let levels = bootstrap::priority_levels().into_iter();
    all.extend(levels.map(|object| SystemObject {
        manager: FLOW_PRODUCER,
        returns,
        ..SystemObject::new(flow_control, "prioritylevelconfigurations", object)
    }));
    let schemas = bootstrap::flow_schemas().into_iter();
    all.extend(schemas.map(|object| SystemObject {
        manager: FLOW_PRODUCER,
        status: Some((FLOW_CONSUMER, json!({"conditions": [found_level(&object, now)]}))),
        returns,
        ..SystemObject::new(flow_control, "flowschemas", object)
    }));
    all
}

/// Returns the ServiceCIDR of the cluster IPs.
fn service_cidr(place: &ServerAddresses, now: &str) -> SystemObject {
    let object = json!({"metadata": {"name": "kubernetes"}, "spec": {"cidrs": place.range.split(',').collect::<Vec<_>>()}});
    let ready = json!({
        "type": "Ready",
        "status": "True",
        "reason": "",
        "message": "Kubernetes default Service CIDR is ready",
        "lastTransitionTime": now,
    });
    let status = Some(("kubernetes-service-cidr-controller", json!({"conditions": [ready]})));
    SystemObject {
        status,
        returns: RecreatePolicy::Soon,
        ..SystemObject::new("networking.k8s.io", "servicecidrs", object)
    }
}

/// Returns the condition that a flow schema's level exists: both come from the same table.
fn found_level(schema: &Value, now: &str) -> Value {
    let level = schema["spec"]["priorityLevelConfiguration"]["name"].as_str().unwrap_or_default();
    json!({
        "type": "Dangling",
        "status": "False",
        "lastTransitionTime": now,
        "reason": "Found",
        "message": format!("This FlowSchema references the PriorityLevelConfiguration object named {level:?} and it exists"),
    })
}

/// Returns the `kubernetes` service, which pods use to find the server.
fn kubernetes_service(place: &ServerAddresses) -> Value {
    json!({
        "metadata": {
            "name": "kubernetes",
            "namespace": "default",
            "labels": { "component": "apiserver", "provider": "kubernetes" },
        },
        "spec": {
            "type": "ClusterIP",
            "clusterIP": place.cluster_ip,
            "ipFamilyPolicy": "SingleStack",
            "ports": [{ "name": "https", "port": 443, "protocol": "TCP", "targetPort": place.port }],
        },
    })
}

/// Returns the endpoints of that service. A server reachable only from its own host has none.
fn kubernetes_endpoints(place: &ServerAddresses) -> Vec<SystemObject> {
    let Some(address) = place.address.filter(|address| !address.is_loopback() && !address.is_unspecified())
    else {
        return Vec::new();
    };
    let [endpoints, slice] = replicas::kubernetes_endpoints(&[address], place.port);
    vec![
        SystemObject {
            follows: true,
            returns: RecreatePolicy::Soon,
            ..SystemObject::new("", "endpoints", endpoints)
        },
        SystemObject {
            follows: true,
            returns: RecreatePolicy::Soon,
            ..SystemObject::new("discovery.k8s.io", "endpointslices", slice)
        },
    ]
}

/// Returns the path of an object, or of the collection if it has no name.
pub(crate) fn path(resource: &Gvr, namespace: &str, name: &str) -> String {
    let root = match resource.group.as_str() {
        "" => format!("/api/{}", resource.version),
        group => format!("/apis/{group}/{}", resource.version),
    };
    let inside = if namespace.is_empty() { String::new() } else { format!("/namespaces/{namespace}") };
    let object = if name.is_empty() { String::new() } else { format!("/{name}") };
    format!("{root}{inside}/{}{object}", resource.resource)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_on_loopback_has_no_endpoint() {
        let place = |address: &str| ServerAddresses {
            range: "10.0.0.0/16".into(),
            cluster_ip: "10.0.0.1".into(),
            address: address.parse().ok(),
            port: 6443,
        };
        assert!(kubernetes_endpoints(&place("127.0.0.1")).is_empty());
        assert!(kubernetes_endpoints(&place("")).is_empty());
        assert_eq!(kubernetes_endpoints(&place("192.0.2.1")).len(), 2);
    }
}
