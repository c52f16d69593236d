//! From pods to the slices of one address family. Pure.

use std::collections::BTreeMap;

use setpoint::{Cached, Key};

use super::MANAGER;
use super::packing::pack;
use crate::discovery::HEADLESS;
use crate::discovery::address::Family;
use crate::discovery::backend::{Backend, can_serve, hostname};
use crate::discovery::changes::{Changes, Draft};
use crate::discovery::service::Service;
use crate::discovery::slice::{
    Conditions, Endpoint, EndpointSet, MANAGED_BY, Port, PortsKey, SERVICE_NAME, Slice, TargetRef,
    is_owned_by, ports_key,
};

/// Slice labels that are not copied from the Service.
const RESERVED: [&str; 3] = [SERVICE_NAME, MANAGED_BY, HEADLESS];

/// The zone of each existing node.
pub(super) type Zones = BTreeMap<Box<str>, Option<String>>;

/// The common parts of all slices of a Service and address family.
pub(super) struct SliceTemplate<'a> {
    pub(super) service: &'a Cached<Service>,
    pub(super) family: Family,
    /// The maximum number of endpoints per slice.
    pub(super) max_endpoints: usize,
    labels: BTreeMap<String, String>,
}

/// The changes, and the pods left out because their node is unknown.
pub(super) struct Plan {
    pub(super) changes: Changes,
    pub(super) skipped: Vec<SkippedPod>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct SkippedPod {
    pub(super) pod: Key,
    pub(super) node: String,
}

/// The endpoints of a Service by ports.
#[derive(Default)]
struct Wanted {
    by_ports: BTreeMap<PortsKey, (Vec<Port>, EndpointSet)>,
    skipped: Vec<SkippedPod>,
}

/// Plans the slices of one family, without hints.
pub(super) fn plan(
    service: &Cached<Service>,
    family: Family,
    pods: &[Cached<Backend>],
    zones: &Zones,
    existing: Vec<Cached<Slice>>,
    max_endpoints: usize,
) -> Plan {
    let template = SliceTemplate::new(service, family, max_endpoints);
    let (own, others): (Vec<_>, Vec<_>) =
        existing.into_iter().partition(|slice| is_owned_by(slice, "Service", &service.meta().uid));
    let mut by_ports: BTreeMap<PortsKey, Vec<Cached<Slice>>> = BTreeMap::new();
    for slice in own {
        by_ports.entry(slice.ports_key()).or_default().push(slice);
    }

    let wanted = Wanted::of(service, family, pods, zones);
    let mut changes = Changes { delete: others, ..Changes::default() };
    for (key, (ports, endpoints)) in wanted.by_ports {
        let existing = by_ports.remove(&key).unwrap_or_default();
        changes.extend(pack(&template, &ports, existing, endpoints));
    }
    changes.delete.extend(by_ports.into_values().flatten());
    template.add_placeholder(&mut changes);
    Plan { changes, skipped: wanted.skipped }
}

impl Wanted {
    fn of(service: &Cached<Service>, family: Family, pods: &[Cached<Backend>], zones: &Zones) -> Self {
        let mut wanted = Self::default();
        for pod in pods.iter().filter(|pod| can_serve(pod, true)) {
            let ports = ports(service, pod);
            let (_, endpoints) = wanted
                .by_ports
                .entry(ports_key(ports.clone()))
                .or_insert_with(|| (ports, EndpointSet::new()));
            let zone = zones.get(&pod.node);
            if zone.is_none() && !service.spec.publish_not_ready_addresses {
                wanted.skipped.push(SkippedPod { pod: pod.key().clone(), node: pod.node.to_string() });
                continue;
            }
            let endpoint = endpoint(service, family, pod, zone.cloned().flatten());
            if !endpoint.addresses.is_empty() {
                endpoints.insert(endpoint.key(), endpoint);
            }
        }
        wanted
    }
}

fn ports(service: &Service, pod: &Backend) -> Vec<Port> {
    let port = |port: &crate::discovery::service::ServicePort| {
        Some(Port {
            name: Some(port.name.clone()),
            port: Some(port.target(pod)?),
            protocol: Some(port.protocol.clone()),
            app_protocol: port.app_protocol.clone(),
        })
    };
    service.spec.ports.iter().filter_map(port).collect()
}

fn endpoint(
    service: &Cached<Service>,
    family: Family,
    pod: &Cached<Backend>,
    zone: Option<String>,
) -> Endpoint {
    let terminating = pod.meta().is_being_deleted();
    let ready = service.spec.publish_not_ready_addresses || (pod.ready && !terminating);
    Endpoint {
        addresses: pod.addresses_of(family).map(|address| address.to_string()).collect(),
        conditions: Conditions {
            ready: Some(ready),
            serving: Some(pod.ready),
            terminating: Some(terminating),
        },
        hostname: hostname(pod, &service.meta().name).map(str::to_owned),
        target_ref: Some(TargetRef::to_pod(pod.meta())),
        node_name: (!pod.node.is_empty()).then(|| pod.node.to_string()),
        zone,
        hints: None,
    }
}

impl<'a> SliceTemplate<'a> {
    pub(super) fn new(service: &'a Cached<Service>, family: Family, max_endpoints: usize) -> Self {
        let own = service.meta().labels.iter().filter(|(key, _)| !RESERVED.contains(key));
        let mut labels: BTreeMap<String, String> =
            own.map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
        if !service.has_address() {
            labels.insert(HEADLESS.to_owned(), String::new());
        }
        labels.insert(SERVICE_NAME.to_owned(), service.meta().name.to_string());
        labels.insert(MANAGED_BY.to_owned(), MANAGER.to_owned());
        Self { service, family, max_endpoints, labels }
    }

    /// Whether the slice's labels differ from those of the Service.
    pub(super) fn labels_differ(&self, slice: &Cached<Slice>) -> bool {
        let of_slice = slice.meta().labels.iter().filter(|(key, _)| !RESERVED.contains(key));
        let wanted = self.labels.iter().map(|(key, value)| (key.as_str(), value.as_str()));
        !of_slice.eq(wanted.filter(|(key, _)| !RESERVED.contains(key)))
    }

    pub(super) fn new_slice(&self, ports: Vec<Port>) -> Draft {
        Draft {
            origin: None,
            labels: self.labels.clone(),
            annotations: BTreeMap::new(),
            family: self.family,
            ports,
            endpoints: Vec::new(),
        }
    }

    /// Returns a draft of an existing slice with updated labels.
    pub(super) fn edit(&self, slice: Cached<Slice>) -> Draft {
        Draft {
            labels: self.labels.clone(),
            annotations: slice.metadata.annotations.clone(),
            family: self.family,
            ports: slice.ports.clone().unwrap_or_default(),
            endpoints: slice.endpoints.clone(),
            origin: Some(slice),
        }
    }

    /// Adds an empty slice if none would be left: it says that the Service has no endpoints.
    fn add_placeholder(&self, changes: &mut Changes) {
        if !changes.create.is_empty() || !changes.update.is_empty() || !changes.unchanged.is_empty() {
            return;
        }
        match changes.delete.as_slice() {
            [only] if self.is_placeholder(only) => changes.unchanged.append(&mut changes.delete),
            _ => changes.create.push(self.new_slice(Vec::new())),
        }
    }

    fn is_placeholder(&self, slice: &Cached<Slice>) -> bool {
        let labels = slice.meta().labels.iter();
        slice.endpoints.is_empty()
            && slice.ports.as_ref().is_none_or(Vec::is_empty)
            && is_owned_by(slice, "Service", &self.service.meta().uid)
            && labels.eq(self.labels.iter().map(|(key, value)| (key.as_str(), value.as_str())))
    }
}
