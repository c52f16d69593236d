//! The Service fields that determine its endpoints.

use serde::{Deserialize, Deserializer};
use setpoint::Labels;

use super::address::{self, Family};
use super::backend::Backend;
use crate::workload::encoding::{Annotated, null_is_empty};

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Service {
    pub(crate) metadata: Annotated,
    pub(crate) spec: ServiceSpec,
}

setpoint::view!(Service of k8s_openapi::api::core::v1::Service);

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ServiceSpec {
    r#type: String,
    #[serde(deserialize_with = "null_is_empty")]
    selector: Labels,
    #[serde(deserialize_with = "null_is_empty")]
    pub(crate) ports: Vec<ServicePort>,
    #[serde(rename = "clusterIP")]
    cluster_ip: String,
    #[serde(deserialize_with = "null_is_empty")]
    ip_families: Vec<String>,
    pub(crate) publish_not_ready_addresses: bool,
    pub(crate) traffic_distribution: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ServicePort {
    pub(crate) name: String,
    pub(crate) protocol: String,
    pub(crate) app_protocol: Option<String>,
    target_port: TargetPort,
}

/// A port number, or the name of a container port.
#[derive(Clone, Debug)]
enum TargetPort {
    Number(i32),
    Name(String),
}

impl Default for TargetPort {
    fn default() -> Self {
        Self::Number(0)
    }
}

impl<'de> Deserialize<'de> for TargetPort {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Encoded {
            Number(i32),
            Name(String),
        }
        Ok(match Encoded::deserialize(deserializer)? {
            Encoded::Number(number) => Self::Number(number),
            Encoded::Name(name) => Self::Name(name),
        })
    }
}

impl Service {
    /// Whether endpoints are found by labels; otherwise users write them. An empty selector counts as none, and compact
    /// storage drops it.
    pub(crate) fn has_selector(&self) -> bool {
        !self.spec.selector.is_empty()
    }

    /// Whether these controllers manage its endpoints.
    pub(crate) fn is_served(&self) -> bool {
        self.has_selector() && self.spec.r#type != "ExternalName"
    }

    pub(crate) fn selects(&self, labels: &Labels) -> bool {
        self.has_selector() && self.spec.selector.iter().all(|(key, value)| labels.get(key) == Some(value))
    }

    /// Whether it is headless (`clusterIP: None`).
    pub(crate) fn is_headless(&self) -> bool {
        self.spec.cluster_ip == "None"
    }

    /// Whether it has a cluster IP.
    pub(crate) fn has_address(&self) -> bool {
        !self.is_headless() && !self.spec.cluster_ip.is_empty()
    }

    /// Returns its IP families. If the field is missing (written by an old API server), the family of its cluster IP,
    /// or both families without one.
    pub(crate) fn families(&self) -> Vec<Family> {
        let named: Vec<_> = self.spec.ip_families.iter().filter_map(|name| Family::named(name)).collect();
        match address::parse(&self.spec.cluster_ip) {
            _ if !named.is_empty() => named,
            Some(address) => vec![Family::of(address)],
            None if self.has_address() => vec![Family::IPv4],
            None => vec![Family::IPv4, Family::IPv6],
        }
    }

    /// Returns the family used in Endpoints, which have only one.
    pub(crate) fn first_family(&self, backend: &Backend) -> Family {
        let named = self.spec.ip_families.first().and_then(|name| Family::named(name));
        let own = || address::parse(&self.spec.cluster_ip).map(Family::of);
        named.or_else(own).or_else(|| backend.first_family()).unwrap_or(Family::IPv4)
    }
}

impl ServicePort {
    /// Returns the pod's port that this Service port targets, if the pod has it.
    pub(crate) fn target(&self, backend: &Backend) -> Option<i32> {
        match &self.target_port {
            TargetPort::Number(number) => Some(*number),
            TargetPort::Name(name) => backend.port(name, &self.protocol),
        }
    }
}
