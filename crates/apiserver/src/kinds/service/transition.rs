//! Drops fields that no longer apply when a service's type changes.
//!
//! A field is dropped only if the client did not change it; changed fields are left for validation to reject.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{is_externally_accessible, uses_health_check_port, uses_node_ports};
use crate::json::{Json, JsonMut};

pub(super) fn drop_unused_fields(new: &mut Value, old: &Value) {
    let old = old.at("spec");
    let spec = new.object_mut("spec");
    if uses_cluster_ips(old) && !uses_cluster_ips(spec) {
        drop_cluster_ips(spec, old);
    }
    if uses_node_ports(old) && !uses_node_ports(spec) && node_ports(spec).is_subset(&node_ports(old)) {
        for port in spec.list_mut("ports") {
            port.unset("nodePort");
        }
    }
    if uses_health_check_port(old) && !uses_health_check_port(spec) {
        drop_unchanged(spec, old, "healthCheckNodePort");
    }
    if is_balanced(old) && !is_balanced(spec) {
        drop_unchanged(spec, old, "allocateLoadBalancerNodePorts");
        drop_unchanged(spec, old, "loadBalancerClass");
    }
    if is_externally_accessible(old) && !is_externally_accessible(spec) {
        drop_unchanged(spec, old, "externalTrafficPolicy");
    }
    if !is_balanced(spec) {
        new.object_mut("status").set("loadBalancer", json!({}));
    }
}

fn uses_cluster_ips(spec: &Value) -> bool {
    spec.text("type") != "ExternalName"
}

fn is_balanced(spec: &Value) -> bool {
    spec.text("type") == "LoadBalancer"
}

fn drop_cluster_ips(spec: &mut Value, old: &Value) {
    if spec.text("clusterIP") == old.text("clusterIP") && spec.list("clusterIPs") == old.list("clusterIPs") {
        spec.unset("clusterIP");
        spec.unset("clusterIPs");
    }
    drop_unchanged(spec, old, "ipFamilies");
    drop_unchanged(spec, old, "ipFamilyPolicy");
}

fn drop_unchanged(spec: &mut Value, old: &Value, field: &str) {
    if spec.at(field) == old.at(field) {
        spec.unset(field);
    }
}

fn node_ports(spec: &Value) -> BTreeSet<i64> {
    spec.list("ports").iter().map(|port| port.count("nodePort")).filter(|port| *port != 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(new: Value, old: Value, expected: Value) {
        let mut service = json!({"spec": new, "status": {"loadBalancer": {"ingress": [{"ip": "1.2.3.4"}]}}});
        drop_unused_fields(&mut service, &json!({"spec": old}));
        assert_eq!(service["spec"], expected);
    }

    #[test]
    fn an_external_name_has_no_cluster_ip() {
        let old = json!({"type": "ClusterIP", "clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"], "ipFamilies": ["IPv4"],
            "ipFamilyPolicy": "SingleStack"});
        let mut new = old.clone();
        new.set("type", "ExternalName");
        check(new.clone(), old.clone(), json!({"type": "ExternalName"}));
        new.set("clusterIP", "10.0.0.2");
        check(new, old, json!({"type": "ExternalName", "clusterIP": "10.0.0.2", "clusterIPs": ["10.0.0.1"]}));
    }

    #[test]
    fn a_cluster_ip_has_no_node_ports() {
        let old = json!({"type": "LoadBalancer", "ports": [{"port": 80, "nodePort": 30000}],
            "allocateLoadBalancerNodePorts": true, "externalTrafficPolicy": "Cluster"});
        let mut new = old.clone();
        new.set("type", "ClusterIP");
        check(new, old, json!({"type": "ClusterIP", "ports": [{"port": 80}]}));
    }
}
