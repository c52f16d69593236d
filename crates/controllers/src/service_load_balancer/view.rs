//! Typed view of a Service.

use serde::{Deserialize, Serialize};

use crate::workload::encoding::null_is_empty;

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Service {
    pub(super) spec: Spec,
    pub(super) status: Status,
}

setpoint::view!(Service of k8s_openapi::api::core::v1::Service);

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Spec {
    #[serde(deserialize_with = "null_is_empty")]
    r#type: String,
    load_balancer_class: Option<String>,
    #[serde(rename = "loadBalancerIP", deserialize_with = "null_is_empty")]
    pub(super) load_balancer_ip: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Status {
    #[serde(deserialize_with = "null_is_empty")]
    pub(super) load_balancer: LoadBalancer,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct LoadBalancer {
    #[serde(deserialize_with = "null_is_empty")]
    pub(super) ingress: Vec<Ingress>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub(super) struct Ingress {
    pub(super) ip: String,
}

impl Service {
    /// Whether it needs a load balancer from this controller. Services with a class are left to others.
    pub(super) fn wants_load_balancer(&self) -> bool {
        self.spec.r#type == "LoadBalancer" && self.spec.load_balancer_class.is_none()
    }

    /// Its current address.
    pub(super) fn address(&self) -> Option<&str> {
        self.status
            .load_balancer
            .ingress
            .first()
            .map(|ingress| ingress.ip.as_str())
            .filter(|ip| !ip.is_empty())
    }
}
