//! Services.

use serde_json::{Value, json};

use super::{CORE, entry, selector};
use crate::json::{Json, JsonMut};
use crate::kind::{FieldSelector, Kind, Subresource};
use crate::strategy::{NameRule, Strategy};

mod columns;
mod transition;

pub fn kind() -> Kind {
    Kind {
        short_names: vec!["svc".into()],
        categories: vec!["all".into()],
        subresources: vec![Subresource::Status],
        columns: columns::all(),
        field_selectors: vec![
            FieldSelector {
                path: "spec.clusterIP",
                value: |service| service.at("spec").text("clusterIP").to_owned(),
            },
            FieldSelector { path: "spec.type", value: |service| service.at("spec").text("type").to_owned() },
        ],
        ..entry(&CORE, "Service", "services", Service)
    }
}

struct Service;

impl Strategy for Service {
    fn returns_deleted(&self) -> bool {
        true
    }

    fn default(&self, service: &mut Value) {
        let spec = service.object_mut("spec");
        default_affinity(spec);
        spec.or_text("type", "ClusterIP");
        for port in spec.list_mut("ports") {
            default_port(port);
        }
        if is_externally_accessible(spec) {
            spec.or_text("externalTrafficPolicy", "Cluster");
        }
        if spec.text("type") != "ExternalName" {
            spec.or_insert("internalTrafficPolicy", "Cluster");
        }
        if spec.text("type") == "LoadBalancer" {
            spec.or_insert("allocateLoadBalancerNodePorts", true);
            default_ip_modes(service);
        }
        service.object_mut("status").object_mut("loadBalancer");
    }

    fn prepare_for_create(&self, service: &mut Value) {
        service.set("status", json!({"loadBalancer": {}}));
    }

    fn prepare_for_update(&self, new: &mut Value, old: &Value) {
        new.restore("status", old);
        transition::drop_what_no_longer_applies(new, old);
    }

    fn prepare_for_status_update(&self, new: &mut Value, old: &Value) {
        new.restore("spec", old);
    }

    fn counts_generations(&self) -> bool {
        false
    }

    fn names(&self) -> NameRule {
        NameRule::Label1035
    }

    fn create_on_update(&self) -> bool {
        true
    }
}

fn default_affinity(spec: &mut Value) {
    spec.or_text("sessionAffinity", "None");
    match spec.text("sessionAffinity") {
        "None" => _ = spec.unset("sessionAffinityConfig"),
        "ClientIP" if !spec.at("sessionAffinityConfig").at("clientIP").has("timeoutSeconds") => {
            spec.set("sessionAffinityConfig", json!({"clientIP": {"timeoutSeconds": 10800}}));
        }
        _ => {}
    }
}

fn default_port(port: &mut Value) {
    port.or_text("protocol", "TCP");
    let target = port.at("targetPort");
    if target.is_null() || *target == 0 || *target == "" {
        let number = port.at("port").clone();
        port.set("targetPort", if number.is_null() { json!(0) } else { number });
    }
}

/// Each address of a load balancer is by default one that traffic is sent to.
fn default_ip_modes(service: &mut Value) {
    let Some(balancer) = service.at_mut("status").and_then(|status| status.at_mut("loadBalancer")) else {
        return;
    };
    for ingress in balancer.list_mut("ingress") {
        if !ingress.text("ip").is_empty() {
            ingress.or_insert("ipMode", "VIP");
        }
    }
}

/// Whether traffic from outside the cluster can reach a service.
fn is_externally_accessible(spec: &Value) -> bool {
    match spec.text("type") {
        "LoadBalancer" | "NodePort" => true,
        "ClusterIP" => !spec.list("externalIPs").is_empty(),
        _ => false,
    }
}

/// Whether a service has a node port for each of its ports.
fn uses_node_ports(spec: &Value) -> bool {
    matches!(spec.text("type"), "NodePort" | "LoadBalancer")
}

/// Whether a service has a node port for health checks.
fn uses_health_check_port(spec: &Value) -> bool {
    spec.text("type") == "LoadBalancer" && spec.text("externalTrafficPolicy") == "Local"
}

fn shown_selector(service: &Value) -> Value {
    crate::table::or_none(&selector::shown_labels(service.at("spec").map("selector")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(spec: Value, expected: Value) {
        let mut service = json!({"spec": spec});
        Service.default(&mut service);
        assert_eq!(service["spec"], expected);
    }

    #[test]
    fn a_minimal_service_is_filled_in() {
        check(
            json!({"ports": [{"port": 80}]}),
            json!({"type": "ClusterIP", "sessionAffinity": "None", "internalTrafficPolicy": "Cluster",
                "ports": [{"port": 80, "protocol": "TCP", "targetPort": 80}]}),
        );
        check(
            json!({"type": "LoadBalancer", "sessionAffinity": "ClientIP", "ports": [{"port": 80, "targetPort": "http"}]}),
            json!({"type": "LoadBalancer", "sessionAffinity": "ClientIP", "internalTrafficPolicy": "Cluster",
                "externalTrafficPolicy": "Cluster", "allocateLoadBalancerNodePorts": true,
                "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 10800}},
                "ports": [{"port": 80, "protocol": "TCP", "targetPort": "http"}]}),
        );
        check(
            json!({"type": "ExternalName", "externalName": "a.b"}),
            json!({"type": "ExternalName", "externalName": "a.b", "sessionAffinity": "None"}),
        );
    }
}
