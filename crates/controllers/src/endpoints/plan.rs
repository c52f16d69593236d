//! Computes the Endpoints of a Service. Pure.

use std::collections::BTreeMap;

use jiff::Timestamp;
use setpoint::{Cached, Labels};

use super::COMPONENT;
use super::capacity::truncate;
use crate::discovery::HEADLESS;
use crate::discovery::backend::{Backend, can_serve, hostname};
use crate::discovery::service::{Service, ServicePort};
use crate::discovery::slice::TargetRef;
use crate::discovery::subset::{Address, Endpoints, Subset, SubsetPort, repack};
use crate::discovery::trigger::LAST_CHANGE;

const MANAGED_BY: &str = "endpoints.kubernetes.io/managed-by";
const OVER_CAPACITY: &str = "endpoints.kubernetes.io/over-capacity";

/// The parts of Endpoints that the controller sets.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Content {
    pub(super) labels: BTreeMap<String, String>,
    pub(super) annotations: BTreeMap<String, String>,
    pub(super) subsets: Vec<Subset>,
}

/// Returns the desired contents, or `None` if nothing changes. `triggered` is the time of the change that triggered
/// this.
pub(super) fn plan(
    service: &Cached<Service>,
    pods: &[Cached<Backend>],
    current: Option<&Cached<Endpoints>>,
    triggered: Option<Timestamp>,
) -> Option<Content> {
    let mut subsets = repack(&subsets(service, pods));
    let truncated = truncate(&mut subsets);
    if current.is_some_and(|current| is_up_to_date(current, service, &subsets, truncated)) {
        return None;
    }
    let mut annotations = current.map(|current| current.metadata.annotations.clone()).unwrap_or_default();
    set(&mut annotations, LAST_CHANGE, triggered.map(|time| time.to_string()));
    set(&mut annotations, OVER_CAPACITY, truncated.then(|| "truncated".to_owned()));
    Some(Content { labels: labels(service), annotations, subsets })
}

fn set(annotations: &mut BTreeMap<String, String>, name: &str, value: Option<String>) {
    match value {
        Some(value) => _ = annotations.insert(name.to_owned(), value),
        None => _ = annotations.remove(name),
    }
}

/// Returns the labels: those of the Service, and the controller's own.
fn labels(service: &Cached<Service>) -> BTreeMap<String, String> {
    let own = service.meta().labels.iter().filter(|(key, _)| *key != HEADLESS);
    let mut labels: BTreeMap<String, String> =
        own.map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
    if !service.has_address() {
        labels.insert(HEADLESS.to_owned(), String::new());
    }
    labels.insert(MANAGED_BY.to_owned(), COMPONENT.to_owned());
    labels
}

fn is_up_to_date(
    current: &Cached<Endpoints>,
    service: &Cached<Service>,
    wanted: &[Subset],
    truncated: bool,
) -> bool {
    let annotated = current.metadata.annotations.contains_key(OVER_CAPACITY);
    annotated == truncated
        && labels_match(&current.meta().labels, &service.meta().labels)
        && without_versions(&current.subsets) == without_versions(wanted)
}

/// Whether the labels match those of the Service, ignoring the headless label.
fn labels_match(labels: &Labels, of_service: &Labels) -> bool {
    let copied = labels.iter().filter(|(key, _)| *key != HEADLESS && *key != MANAGED_BY);
    let wanted = of_service.iter().filter(|(key, _)| *key != HEADLESS && *key != MANAGED_BY);
    labels.get(MANAGED_BY) == Some(COMPONENT) && copied.eq(wanted)
}

/// Returns the canonical form without the pods' resource versions, which change without the addresses changing.
fn without_versions(subsets: &[Subset]) -> Vec<Subset> {
    let mut subsets = repack(subsets);
    for subset in &mut subsets {
        for address in subset.addresses.iter_mut().chain(&mut subset.not_ready_addresses) {
            if let Some(target) = &mut address.target_ref {
                target.resource_version.clear();
            }
        }
    }
    subsets
}

/// Returns one subset per pod and port.
fn subsets(service: &Cached<Service>, pods: &[Cached<Backend>]) -> Vec<Subset> {
    let unready_too = service.spec.publish_not_ready_addresses;
    let mut subsets = Vec::new();
    for pod in pods.iter().filter(|pod| can_serve(pod, unready_too)) {
        let Some(address) = address(service, pod) else { continue };
        let ready = unready_too || pod.ready;
        let mut add = |ports: Vec<SubsetPort>| {
            let (addresses, not_ready_addresses) =
                if ready { (vec![address.clone()], Vec::new()) } else { (Vec::new(), vec![address.clone()]) };
            subsets.push(Subset { addresses, not_ready_addresses, ports });
        };
        if service.spec.ports.is_empty() && service.is_headless() {
            add(Vec::new());
        }
        service.spec.ports.iter().filter_map(|port| subset_port(port, pod)).for_each(|port| add(vec![port]));
    }
    subsets
}

fn subset_port(port: &ServicePort, pod: &Backend) -> Option<SubsetPort> {
    Some(SubsetPort {
        name: port.name.clone(),
        port: port.target(pod)?,
        protocol: port.protocol.clone(),
        app_protocol: port.app_protocol.clone(),
    })
}

/// Returns the pod's first address of the Service's family.
fn address(service: &Cached<Service>, pod: &Cached<Backend>) -> Option<Address> {
    let ip = pod.addresses_of(service.first_family(pod)).next()?;
    let hostname = hostname(pod, &service.meta().name).unwrap_or_default();
    Some(Address {
        ip: ip.to_string(),
        hostname: hostname.to_owned(),
        node_name: Some(pod.node.to_string()),
        target_ref: Some(TargetRef::to_pod(pod.meta())),
    })
}
