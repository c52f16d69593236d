//! Validates services and their updates.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::ips::{self, is_headless};
use super::{is_externally_accessible, uses_health_check_port};
use crate::declared;
use crate::field::{Errors, Path, Reason};
use crate::json::Json;
use crate::names;
use crate::validation::{
    Seen, add_invalid, address, choice, dns_label, dns_subdomain, labels, optional_choice, port, port_number,
    qualified_name,
};

const PROTOCOLS: [&str; 3] = ["SCTP", "TCP", "UDP"];
const ONLY_BALANCED: &str = "may only be used when `type` is 'LoadBalancer'";
const MAX_AFFINITY_SECONDS: i64 = 86400;
pub(super) const OLD_TOPOLOGY_ANNOTATION: &str = "service.kubernetes.io/topology-aware-hints";
pub(super) const TOPOLOGY_ANNOTATION: &str = "service.kubernetes.io/topology-mode";
const SOURCE_RANGES_ANNOTATION: &str = "service.beta.kubernetes.io/load-balancer-source-ranges";

/// Validates a service; `old` is null for a new one.
pub(super) fn check(service: &Value, old: &Value, errors: &mut Errors) {
    let spec = service.at("spec");
    let path = Path::root("spec");
    check_topology_annotations(service, errors);
    if spec.list("ports").is_empty() && !is_headless(spec) && spec.text("type") != "ExternalName" {
        errors.required(&path.child("ports"), "");
    }
    check_by_type(spec, &path, errors);
    check_ports(spec, &path.child("ports"), errors);
    labels::labels(spec, "selector", &path, errors);
    check_affinity(spec, &path, errors);
    ips::check(spec, old.at("spec"), &path, errors);
    check_external_ips(spec, old.at("spec"), &path.child("externalIPs"), errors);
    let types = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
    choice(spec.text("type"), &types, &path.child("type"), errors);
    check_port_numbers(spec, &path.child("ports"), errors);
    check_source_ranges(service, old, errors);
    check_balancing(spec, &path, errors);
    check_balancer_class(spec, &path.child("loadBalancerClass"), errors);
    check_external_traffic(spec, &path, errors);
    check_internal_traffic(spec, &path, errors);
    let distributions = ["PreferClose", "PreferSameZone", "PreferSameNode"];
    optional_choice(spec, "trafficDistribution", &distributions, &path, errors);
}

fn check_topology_annotations(service: &Value, errors: &mut Errors) {
    let annotations = service.at("metadata").at("annotations");
    let (mode, old) = (annotations.at(TOPOLOGY_ANNOTATION), annotations.at(OLD_TOPOLOGY_ANNOTATION));
    if mode.is_string() && old.is_string() && mode != old {
        let path = Path::root("metadata");
        let path = path.child("annotations");
        let detail = format!("must match annotations[{OLD_TOPOLOGY_ANNOTATION}] when both are specified");
        errors.invalid(&path.key(TOPOLOGY_ANNOTATION), mode.clone(), detail);
    }
}

fn check_by_type(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    match spec.text("type") {
        of @ ("LoadBalancer" | "NodePort") if is_headless(spec) => {
            let detail = format!("may not be set to 'None' for {of} services");
            errors.invalid(&path.child("clusterIPs").index(0), "None", detail);
        }
        "ExternalName" => {
            let list = |field: &str| !spec.list(field).is_empty();
            let set = [
                ("clusterIPs", list("clusterIPs")),
                ("ipFamilies", list("ipFamilies")),
                ("ipFamilyPolicy", spec.has("ipFamilyPolicy")),
            ];
            for (field, _) in set.into_iter().filter(|(_, set)| *set) {
                errors.forbidden(&path.child(field), "may not be set for ExternalName services");
            }
            let name = spec.text("externalName");
            match name.strip_suffix('.').unwrap_or(name) {
                "" => errors.required(&path.child("externalName"), ""),
                name => dns_subdomain(name, &path.child("externalName"), errors),
            }
        }
        _ => {}
    }
}

fn check_ports(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let ports = spec.list("ports");
    let mut names = Seen::new();
    for (index, entry) in ports.iter().enumerate() {
        let path = path.index(index);
        let name = entry.text("name");
        if name.is_empty() && ports.len() > 1 {
            errors.required(&path.child("name"), "");
        } else if !name.is_empty() {
            dns_label(name, &path.child("name"), errors);
            if names.again(name) {
                errors.duplicate(&path.child("name"), name);
            }
        }
        port_number(entry.count("port"), &path.child("port"), errors);
        choice(entry.text("protocol"), &PROTOCOLS, &path.child("protocol"), errors);
        port(entry.at("targetPort"), &path.child("targetPort"), errors);
        if let Some(protocol) = entry.at("appProtocol").as_str() {
            qualified_name(protocol, &path.child("appProtocol"), errors);
        }
    }
}

fn check_affinity(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let affinity = spec.text("sessionAffinity");
    choice(affinity, &["ClientIP", "None"], &path.child("sessionAffinity"), errors);
    let path = path.child("sessionAffinityConfig");
    let config = spec.at("sessionAffinityConfig");
    match affinity {
        "ClientIP" => check_affinity_timeout(config, &path, errors),
        "None" if !config.is_null() => {
            errors.forbidden(&path, "must not be set when session affinity is None");
        }
        _ => {}
    }
}

fn check_affinity_timeout(config: &Value, path: &Path<'_>, errors: &mut Errors) {
    let detail = "when session affinity type is ClientIP";
    let client = path.child("clientIP");
    if config.is_null() {
        return errors.required(path, detail);
    }
    if !config.has("clientIP") {
        return errors.required(&client, detail);
    }
    let path = client.child("timeoutSeconds");
    match config.at("clientIP").int("timeoutSeconds") {
        None => errors.required(&path, detail),
        Some(seconds) if !(1..=MAX_AFFINITY_SECONDS).contains(&seconds) => {
            let detail = format!("must be greater than 0 and less than {MAX_AFFINITY_SECONDS}");
            errors.invalid(&path, seconds, detail);
        }
        Some(_) => {}
    }
}

fn check_external_ips(spec: &Value, old: &Value, path: &Path<'_>, errors: &mut Errors) {
    let old: BTreeSet<&str> = old.list("externalIPs").iter().filter_map(Value::as_str).collect();
    for (index, ip) in spec.list("externalIPs").iter().enumerate() {
        let path = path.index(index);
        let text = ip.as_str().unwrap_or_default();
        let before = errors.0.len();
        address::ip(text, |text| old.contains(text), &path, errors);
        if errors.0.len() == before {
            address::endpoint_ip(text, &path, errors);
        }
    }
}

/// Checks that service ports and node ports are unique per protocol.
fn check_port_numbers(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let ports = spec.list("ports");
    let node_port = |port: &Value| port.count("nodePort");
    if spec.text("type") == "ClusterIP" {
        for (index, _) in ports.iter().enumerate().filter(|(_, port)| node_port(port) != 0) {
            let detail = "may not be used when `type` is 'ClusterIP'";
            errors.forbidden(&path.index(index).child("nodePort"), detail);
        }
    }
    let mut seen = Seen::new();
    for (index, port) in ports.iter().enumerate().filter(|(_, port)| node_port(port) != 0) {
        if seen.again((port.text("protocol"), node_port(port))) {
            errors.duplicate(&path.index(index).child("nodePort"), node_port(port));
        }
    }
    let mut seen = Seen::new();
    for (index, port) in ports.iter().enumerate() {
        if seen.again((port.text("protocol"), port.count("port"))) {
            let seen = json!({"port": port.at("port"), "protocol": port.at("protocol")});
            errors.duplicate(&path.index(index), declared::of(&seen, &declared::SERVICE_PORT));
        }
    }
}

fn check_source_ranges(service: &Value, old: &Value, errors: &mut Errors) {
    let ranges = service.at("spec").list("loadBalancerSourceRanges");
    let balanced = service.at("spec").text("type") == "LoadBalancer";
    if !ranges.is_empty() {
        let path = Path::root("spec");
        let path = path.child("LoadBalancerSourceRanges");
        if !balanced {
            errors.forbidden(&path, ONLY_BALANCED);
        }
        let known = |text: &str| {
            let mut old = old.at("spec").list("loadBalancerSourceRanges").iter().filter_map(Value::as_str);
            old.any(|range| range.trim() == text)
        };
        for (index, range) in ranges.iter().enumerate() {
            address::cidr(range.as_str().unwrap_or_default().trim(), known, &path.index(index), errors);
        }
        return;
    }
    let annotation =
        |service: &Value| service.at("metadata").at("annotations").at(SOURCE_RANGES_ANNOTATION).clone();
    let written = annotation(service);
    let Some(text) = written.as_str() else { return };
    let path = Path::root("metadata");
    let path = path.child("annotations");
    let path = path.key(SOURCE_RANGES_ANNOTATION);
    if !balanced {
        errors.forbidden(&path, ONLY_BALANCED);
    }
    if annotation(old) != written && !text.trim().is_empty() {
        for range in text.trim().split(',') {
            address::cidr(range.trim(), |_| false, &path, errors);
        }
    }
}

fn check_balancing(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let balanced = spec.text("type") == "LoadBalancer";
    match spec.has("allocateLoadBalancerNodePorts") {
        true if !balanced => errors.forbidden(&path.child("allocateLoadBalancerNodePorts"), ONLY_BALANCED),
        false if balanced => errors.required(&Path::root("allocateLoadBalancerNodePorts"), ""),
        _ => {}
    }
}

fn check_balancer_class(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let Some(class) = spec.at("loadBalancerClass").as_str() else { return };
    match spec.text("type") {
        "LoadBalancer" => qualified_name(class, path, errors),
        _ => errors.forbidden(path, ONLY_BALANCED),
    }
}

fn check_external_traffic(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let policy = spec.text("externalTrafficPolicy");
    let policy_path = path.child("externalTrafficPolicy");
    if is_externally_accessible(spec) {
        choice(policy, &["Cluster", "Local"], &policy_path, errors);
    } else if !policy.is_empty() {
        errors.invalid(&policy_path, policy, "may only be set for externally-accessible services");
    }
    let port = spec.count("healthCheckNodePort");
    let path = path.child("healthCheckNodePort");
    match (uses_health_check_port(spec), port) {
        (false, 0) => {}
        (false, port) => {
            let detail =
                "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'";
            errors.invalid(&path, port, detail);
        }
        (true, 0) => errors.required(&path, ""),
        (true, port) => port_number(port, &path, errors),
    }
}

fn check_internal_traffic(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    if !spec.has("internalTrafficPolicy")
        && matches!(spec.text("type"), "NodePort" | "LoadBalancer" | "ClusterIP")
    {
        errors.required(&path.child("internalTrafficPolicy"), "");
    }
    optional_choice(spec, "internalTrafficPolicy", &["Cluster", "Local"], path, errors);
}

/// Validates an update; the whole service is validated separately.
pub(super) fn check_change(new: &Value, old: &Value, errors: &mut Errors) {
    let (spec, old_spec) = (new.at("spec"), old.at("spec"));
    let path = Path::root("spec");
    ips::check_change(spec, old_spec, &path, errors);
    let balanced = |spec: &Value| spec.text("type") == "LoadBalancer";
    let class = spec.at("loadBalancerClass");
    if balanced(spec) && balanced(old_spec) && class != old_spec.at("loadBalancerClass") {
        errors.invalid(&path.child("loadBalancerClass"), class.clone(), "may not change once set");
    }
    check_balancer_class(spec, &path.child("loadBalancerClass"), errors);
    let port = |spec: &Value| spec.count("healthCheckNodePort");
    let needed = uses_health_check_port(old_spec) && uses_health_check_port(spec);
    if needed && port(old_spec) != port(spec) {
        errors.forbidden(&path.child("healthCheckNodePort"), "field is immutable");
    }
}

pub(super) fn check_status(new: &Value, old: &Value, errors: &mut Errors) {
    let points = |service: &'_ Value| service.at("status").at("loadBalancer").list("ingress").to_vec();
    let path = Path::root("status");
    let path = path.child("loadBalancer");
    let path = path.child("ingress");
    let (points, old_points) = (points(new), points(old));
    if new.at("spec").text("type") != "LoadBalancer" && !points.is_empty() {
        return errors.forbidden(&path, "may only be used when `spec.type` is 'LoadBalancer'");
    }
    for (index, point) in points.iter().enumerate() {
        check_ingress(point, &old_points, &path.index(index), errors);
    }
}

fn check_ingress(point: &Value, old: &[Value], path: &Path<'_>, errors: &mut Errors) {
    let (ip, host) = (point.text("ip"), point.text("hostname"));
    if !ip.is_empty() {
        address::ip(ip, |ip| old.iter().any(|old| old.text("ip") == ip), &path.child("ip"), errors);
    }
    let mode_path = path.child("ipMode");
    match point.at("ipMode").as_str() {
        None if !ip.is_empty() => errors.required(&mode_path, "must be specified when `ip` is set"),
        None => {}
        Some(_) if ip.is_empty() => errors.forbidden(&mode_path, "may not be specified when `ip` is not set"),
        Some(mode) => choice(mode, &["Proxy", "VIP"], &mode_path, errors),
    }
    if host.is_empty() {
        return;
    }
    add_invalid(names::dns_subdomain(host), host, &path.child("hostname"), errors);
    if address::parse_ip(host).is_some() {
        errors.push(
            Reason::Invalid,
            &path.child("hostname"),
            Some(host.into()),
            "must be a DNS name, not an IP address",
        );
    }
}
