//! Quota usage of Services.

use serde::Deserialize;

use crate::resources::Resources;

pub(crate) const COUNTED: [&str; 4] =
    ["count/services", "services", "services.nodeports", "services.loadbalancers"];

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Service {
    spec: Spec,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    r#type: String,
    ports: Vec<Port>,
    allocate_load_balancer_node_ports: Option<bool>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Port {
    node_port: i32,
}

impl Service {
    pub(crate) fn usage(&self) -> Resources {
        let ports = self.spec.ports.len();
        let given = self.spec.ports.iter().filter(|port| port.node_port != 0).count();
        let (node_ports, balancers) = match self.spec.r#type.as_str() {
            "NodePort" => (ports, 0),
            "LoadBalancer" if self.spec.allocate_load_balancer_node_ports == Some(false) => (given, 1),
            "LoadBalancer" => (ports, 1),
            _ => (0, 0),
        };
        let mut usage = Resources::new();
        usage.set_count("count/services", 1);
        usage.set_count("services", 1);
        usage.set_count("services.nodeports", i64::try_from(node_ports).unwrap_or(i64::MAX));
        usage.set_count("services.loadbalancers", balancers);
        usage
    }
}
