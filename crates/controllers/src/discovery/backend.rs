//! A pod as a backend of a Service.

use std::net::IpAddr;

use jiff::Timestamp;
use serde::{Deserialize, Deserializer};
use setpoint::Cached;

use super::address::{self, Family};

/// The pod fields that its endpoints are made of, extracted while decoding.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Backend {
    pub(crate) addresses: Box<[IpAddr]>,
    has_address: bool,
    /// Empty if the pod is not scheduled.
    pub(crate) node: Box<str>,
    pub(crate) hostname: Box<str>,
    pub(crate) subdomain: Box<str>,
    has_ended: bool,
    pub(crate) ready: bool,
    /// When readiness last changed.
    pub(crate) readiness_changed: Option<Timestamp>,
    /// Named ports.
    ports: Box<[Port]>,
}

setpoint::view!(Backend of k8s_openapi::api::core::v1::Pod);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Port {
    name: Box<str>,
    protocol: Box<str>,
    number: i32,
}

impl Backend {
    /// Returns the port with a name, of a container or a sidecar.
    pub(crate) fn port(&self, name: &str, protocol: &str) -> Option<i32> {
        let found = self.ports.iter().find(|port| *port.name == *name && *port.protocol == *protocol);
        found.map(|port| port.number)
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended
    }

    pub(crate) fn first_family(&self) -> Option<Family> {
        self.addresses.first().copied().map(Family::of)
    }

    /// Lists its addresses of a family.
    pub(crate) fn addresses_of(&self, family: Family) -> impl Iterator<Item = IpAddr> {
        self.addresses.iter().copied().filter(move |address| Family::of(*address) == family)
    }
}

/// Whether a pod can be an endpoint: it has an address and has not finished. `terminating_too` includes terminating
/// pods.
pub(crate) fn can_serve(pod: &Cached<Backend>, terminating_too: bool) -> bool {
    !pod.has_ended && pod.has_address && (terminating_too || !pod.meta().is_being_deleted())
}

/// Returns the pod's hostname within this Service, if it has one.
pub(crate) fn hostname<'a>(pod: &'a Backend, service: &str) -> Option<&'a str> {
    (!pod.hostname.is_empty() && *pod.subdomain == *service).then_some(&*pod.hostname)
}

impl<'de> Deserialize<'de> for Backend {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Encoded::deserialize(deserializer)?.facts())
    }
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Encoded {
    spec: EncodedSpec,
    status: EncodedStatus,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct EncodedSpec {
    node_name: Box<str>,
    hostname: Box<str>,
    subdomain: Box<str>,
    containers: Vec<EncodedContainer>,
    init_containers: Option<Vec<EncodedContainer>>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct EncodedContainer {
    restart_policy: Option<String>,
    ports: Option<Vec<EncodedPort>>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct EncodedPort {
    name: Box<str>,
    protocol: Option<Box<str>>,
    container_port: i32,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct EncodedStatus {
    phase: String,
    #[serde(rename = "podIP")]
    pod_ip: String,
    #[serde(rename = "podIPs")]
    pod_ips: Option<Vec<EncodedAddress>>,
    conditions: Option<Vec<EncodedCondition>>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct EncodedAddress {
    ip: String,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct EncodedCondition {
    r#type: String,
    status: String,
    last_transition_time: Option<Timestamp>,
}

impl Encoded {
    fn facts(self) -> Backend {
        let Self { spec, status } = self;
        let beside = spec.init_containers.into_iter().flatten();
        let beside = beside.filter(|container| container.restart_policy.as_deref() == Some("Always"));
        let ports = spec.containers.into_iter().chain(beside).flat_map(|container| container.ports);
        let ready = status.conditions.iter().flatten().find(|condition| condition.r#type == "Ready");
        let ips = status.pod_ips.unwrap_or_default();
        Backend {
            has_address: !ips.is_empty() || !status.pod_ip.is_empty(),
            addresses: ips.iter().filter_map(|ip| address::parse(&ip.ip)).collect(),
            node: spec.node_name,
            hostname: spec.hostname,
            subdomain: spec.subdomain,
            has_ended: matches!(status.phase.as_str(), "Succeeded" | "Failed"),
            ready: ready.is_some_and(|ready| ready.status == "True"),
            readiness_changed: ready.and_then(|ready| ready.last_transition_time),
            ports: ports.flatten().filter(|port| !port.name.is_empty()).map(Port::from).collect(),
        }
    }
}

impl From<EncodedPort> for Port {
    fn from(port: EncodedPort) -> Self {
        let protocol = port.protocol.unwrap_or_else(|| "TCP".into());
        Self { name: port.name, protocol, number: port.container_port }
    }
}
