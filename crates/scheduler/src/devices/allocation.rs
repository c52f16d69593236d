//! Builds the allocation in a claim's status. Pure.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use setpoint_placement::{NodeSelector, NodeSelectorTerm, Requirement};

use super::pools::Offer;
use super::requests::ClaimRequests;
use super::search::Solution;
use super::view::{Config, DeviceId};

/// A decided allocation of a claim.
#[derive(Clone, Debug)]
pub(crate) struct Decided {
    pub(super) allocation: Value,
    /// Devices allocated exclusively.
    pub(super) devices: Vec<DeviceId>,
}

impl Decided {
    pub(super) fn of(requested: &ClaimRequests<'_>, solution: &Solution, offers: &[Offer<'_>]) -> Self {
        let mut devices = Vec::new();
        let mut results = Vec::new();
        for taken in &solution.devices {
            let request = &requested.requests[taken.request];
            let id = &offers[taken.offer].id;
            let mut result = json!({
                "request": request.name_of(taken.alternative),
                "driver": id.driver, "pool": id.pool, "device": id.device,
            });
            let exact = request.alternatives[taken.alternative].exact;
            match exact.admin_access {
                Some(true) => result["adminAccess"] = true.into(),
                _ => devices.push(id.clone()),
            }
            // Taint eviction reads the tolerations here, because the claim's spec may have changed by then.
            if !exact.tolerations.is_empty() {
                result["tolerations"] = json!(exact.tolerations);
            }
            results.push(result);
        }
        let mut allocated = json!({"results": results});
        let configs = configs(requested, solution);
        if !configs.is_empty() {
            allocated["config"] = configs.into();
        }
        let mut allocation = json!({"devices": allocated});
        if let Some(selector) = node_selector(solution, offers) {
            allocation["nodeSelector"] = json!(selector);
        }
        Self { allocation, devices }
    }
}

/// Collects the driver configuration: first from the classes, each once with all its requests, then from the claim.
fn configs(requested: &ClaimRequests<'_>, solution: &Solution) -> Vec<Value> {
    let mut configs = Vec::new();
    let mut of_class: BTreeMap<&str, std::ops::Range<usize>> = BTreeMap::new();
    for (request, &chosen) in requested.requests.iter().zip(&solution.chosen) {
        let Some(device_request) = request.alternatives.get(chosen) else { continue };
        let name = request.name_of(chosen);
        if let Some(known) = of_class.get(device_request.class.key().name()) {
            for config in &mut configs[known.clone()] {
                push_request(config, &name);
            }
            continue;
        }
        let start = configs.len();
        let one = [name];
        configs.extend(
            device_request.class.spec.config.iter().map(|config| configuration("FromClass", &one, config)),
        );
        of_class.insert(device_request.class.key().name(), start..configs.len());
    }
    for config in &requested.claim.spec.devices.config {
        if config.requests.is_empty() {
            configs.push(configuration("FromClaim", &[], config));
            continue;
        }
        for (request, &chosen) in requested.requests.iter().zip(&solution.chosen) {
            let full = request.name_of(chosen);
            if config.requests.iter().any(|name| *name == request.request.name || *name == full) {
                configs.push(configuration("FromClaim", &config.requests, config));
            }
        }
    }
    configs
}

fn configuration(source: &str, requests: &[String], config: &Config) -> Value {
    let mut given = json!({"source": source});
    if !requests.is_empty() {
        given["requests"] = json!(requests);
    }
    if let Some(opaque) = &config.opaque {
        given["opaque"] = opaque.clone();
    }
    given
}

fn push_request(config: &mut Value, name: &str) {
    if let Some(requests) = config["requests"].as_array_mut() {
        requests.push(name.into());
    }
}

/// Returns the nodes that can use the devices. `None` if all can.
fn node_selector(solution: &Solution, offers: &[Offer<'_>]) -> Option<NodeSelector> {
    let mut term = NodeSelectorTerm::default();
    for taken in &solution.devices {
        let slice = offers[taken.offer].slice;
        if let Some(name) = &slice.node_name {
            let by_name = Requirement {
                key: "metadata.name".into(),
                operator: "In".into(),
                values: vec![name.clone()],
            };
            let term = NodeSelectorTerm { match_fields: vec![by_name], ..NodeSelectorTerm::default() };
            return Some(NodeSelector { node_selector_terms: vec![term] });
        }
        if let Some(only) = slice.node_selector.iter().flat_map(|nodes| &nodes.node_selector_terms).next() {
            add_new(&mut term.match_fields, &only.match_fields);
            add_new(&mut term.match_expressions, &only.match_expressions);
        }
    }
    let anywhere = term.match_fields.is_empty() && term.match_expressions.is_empty();
    (!anywhere).then(|| NodeSelector { node_selector_terms: vec![term] })
}

fn add_new(to: &mut Vec<Requirement>, from: &[Requirement]) {
    for requirement in from {
        if !to.contains(requirement) {
            to.push(requirement.clone());
        }
    }
}
