//! The table columns of services, as in `kubectl get services`.

use std::collections::BTreeSet;

use serde_json::Value;

use super::shown_selector;
use crate::json::Json;
use crate::table::{Column, or_none};

const TYPE: &str = "type determines how the Service is exposed. Defaults to ClusterIP. Valid options are ExternalName, ClusterIP, NodePort, and LoadBalancer. \"ClusterIP\" allocates a cluster-internal IP address for load-balancing to endpoints. Endpoints are determined by the selector or if that is not specified, by manual construction of an Endpoints object or EndpointSlice objects. If clusterIP is \"None\", no virtual IP is allocated and the endpoints are published as a set of endpoints rather than a virtual IP. \"NodePort\" builds on ClusterIP and allocates a port on every node which routes to the same endpoints as the clusterIP. \"LoadBalancer\" builds on NodePort and creates an external load-balancer (if supported in the current cloud) which routes to the same endpoints as the clusterIP. \"ExternalName\" aliases this service to the specified externalName. Several other fields do not apply to ExternalName services. More info: https://kubernetes.io/docs/concepts/services-networking/service/#publishing-services-service-types";
const CLUSTER_IP: &str = "clusterIP is the IP address of the service and is usually assigned randomly. If an address is specified manually, is in-range (as per system configuration), and is not in use, it will be allocated to the service; otherwise creation of the service will fail. This field may not be changed through updates unless the type field is also being changed to ExternalName (which requires this field to be blank) or the type field is being changed from ExternalName (in which case this field may optionally be specified, as describe above).  Valid values are \"None\", empty string (\"\"), or a valid IP address. Setting this to \"None\" makes a \"headless service\" (no virtual IP), which is useful when direct endpoint connections are preferred and proxying is not required.  Only applies to types ClusterIP, NodePort, and LoadBalancer. If this field is specified when creating a Service of type ExternalName, creation will fail. This field will be wiped when updating a Service to type ExternalName. More info: https://kubernetes.io/docs/concepts/services-networking/service/#virtual-ips-and-service-proxies";
const EXTERNAL_IP: &str = "externalIPs is a list of IP addresses for which nodes in the cluster will also accept traffic for this service.  These IPs are not managed by Kubernetes.  The user is responsible for ensuring that traffic arrives at a node with this IP.  A common example is external load-balancers that are not part of the Kubernetes system.";
const PORTS: &str = "The list of ports that are exposed by this service. More info: https://kubernetes.io/docs/concepts/services-networking/service/#virtual-ips-and-service-proxies";
const SELECTOR: &str = "Route service traffic to pods with label keys and values matching this selector. If empty or not present, the service is assumed to have an external process managing its endpoints, which Kubernetes will not modify. Only applies to types ClusterIP, NodePort, and LoadBalancer. Ignored if type is ExternalName. More info: https://kubernetes.io/docs/concepts/services-networking/service/";

pub(super) fn all() -> Vec<Column> {
    vec![
        Column::name(),
        Column::text("Type", TYPE, |service, _| service.at("spec").text("type").into()),
        Column::text("Cluster-IP", CLUSTER_IP, |service, _| cluster_ip(service)),
        Column::text("External-IP", EXTERNAL_IP, |service, _| external_ip(service)),
        Column::text("Port(s)", PORTS, |service, _| ports(service)),
        Column::age(),
        Column::text("Selector", SELECTOR, |service, _| shown_selector(service)).wide(),
    ]
}

fn cluster_ip(service: &Value) -> Value {
    let ips = service.at("spec").list("clusterIPs");
    ips.first().cloned().unwrap_or_else(|| or_none(""))
}

fn external_ip(service: &Value) -> Value {
    let spec = service.at("spec");
    let mut ips: Vec<&str> = spec.list("externalIPs").iter().filter_map(Value::as_str).collect();
    match spec.text("type") {
        "ClusterIP" | "NodePort" => or_none(&ips.join(",")),
        "LoadBalancer" => {
            ips.splice(0..0, ingress(service));
            if ips.is_empty() { "<pending>".into() } else { ips.join(",").into() }
        }
        "ExternalName" => spec.text("externalName").into(),
        _ => "<unknown>".into(),
    }
}

/// Returns the load balancer's addresses, unique and sorted.
fn ingress(service: &Value) -> BTreeSet<&str> {
    let points = service.at("status").at("loadBalancer").list("ingress");
    points
        .iter()
        .map(|point| if point.text("ip").is_empty() { point.text("hostname") } else { point.text("ip") })
        .filter(|address| !address.is_empty())
        .collect()
}

fn ports(service: &Value) -> Value {
    let port = |port: &Value| match port.count("nodePort") {
        0 => format!("{}/{}", port.count("port"), port.text("protocol")),
        node => format!("{}:{node}/{}", port.count("port"), port.text("protocol")),
    };
    or_none(&service.at("spec").list("ports").iter().map(port).collect::<Vec<_>>().join(","))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_row_shows_the_addresses_and_ports_of_a_service() {
        let check = |service: Value, expected: [&str; 4]| {
            let now = jiff::Timestamp::UNIX_EPOCH;
            let cells: Vec<Value> = all()[1..5].iter().map(|column| (column.cell)(&service, now)).collect();
            assert_eq!(cells, expected);
        };
        check(
            json!({"spec": {"type": "LoadBalancer", "clusterIPs": ["10.0.0.1"], "externalIPs": ["9.9.9.9"],
                "ports": [{"port": 80, "nodePort": 30000, "protocol": "TCP"}, {"port": 53, "protocol": "UDP"}]},
                "status": {"loadBalancer": {"ingress": [{"hostname": "h"}, {"ip": "1.1.1.1"}]}}}),
            ["LoadBalancer", "10.0.0.1", "1.1.1.1,h,9.9.9.9", "80:30000/TCP,53/UDP"],
        );
        check(json!({"spec": {"type": "LoadBalancer"}}), ["LoadBalancer", "<none>", "<pending>", "<none>"]);
        check(
            json!({"spec": {"type": "ExternalName", "externalName": "x.y"}}),
            ["ExternalName", "<none>", "x.y", "<none>"],
        );
    }
}
