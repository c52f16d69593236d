//! What every cluster has from its start: objects that the server creates if they are not there.

use serde_json::{Value, json};

use crate::kinds::flowcontrol::bootstrap;
use crate::kinds::{apiservice, priorityclass};
use crate::registry::Gvr;

const SYSTEM_NAMESPACES: [&str; 4] = ["default", "kube-system", "kube-public", "kube-node-lease"];

/// The server's own objects, each after those it depends on. `address` and `port` are where pods and others
/// find the server.
pub(crate) fn all(address: &str, port: u16) -> Vec<(Gvr, Value)> {
    let mut all = Vec::new();
    let mut add = |group: &str, resource: &str, objects: Vec<Value>| {
        let resource = Gvr::new(group, "v1", resource);
        all.extend(objects.into_iter().map(|object| (resource.clone(), object)));
    };
    add("", "namespaces", SYSTEM_NAMESPACES.map(|name| json!({"metadata": {"name": name}})).into());
    add("", "services", vec![own_service(address, port)]);
    add("scheduling.k8s.io", "priorityclasses", priorityclass::system_classes().collect());
    add("apiregistration.k8s.io", "apiservices", apiservice::local_services().collect());
    add("flowcontrol.apiserver.k8s.io", "prioritylevelconfigurations", bootstrap::priority_levels());
    add("flowcontrol.apiserver.k8s.io", "flowschemas", bootstrap::flow_schemas());
    all
}

/// The service by which pods find the server.
fn own_service(address: &str, port: u16) -> Value {
    json!({
        "metadata": {
            "name": "kubernetes",
            "namespace": "default",
            "labels": { "component": "apiserver", "provider": "kubernetes" },
        },
        "spec": {
            "type": "ClusterIP",
            "clusterIP": address,
            "ports": [{ "name": "https", "port": 443, "protocol": "TCP", "targetPort": port }],
        },
    })
}

/// Where objects of a resource of the cluster are.
pub(crate) fn path(resource: &Gvr) -> String {
    format!("{}/{}", root(resource), resource.resource)
}

/// Where objects of a resource are in a namespace.
pub(crate) fn path_in(resource: &Gvr, namespace: &str) -> String {
    format!("{}/namespaces/{namespace}/{}", root(resource), resource.resource)
}

fn root(resource: &Gvr) -> String {
    match resource.group.as_str() {
        "" => format!("/api/{}", resource.version),
        group => format!("/apis/{group}/{}", resource.version),
    }
}
