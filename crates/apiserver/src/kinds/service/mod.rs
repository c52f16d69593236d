//! Services.

use serde_json::{Value, json};

use super::{CORE, entry, metadata, selector};
use crate::features::Features;
use crate::field::{Errors, Path};
use crate::json::{Json, JsonMut};
use crate::kind::{FieldSelector, Kind, Subresource};
use crate::strategy::{Deletion, Lifecycle, NameRule, Semantics, Validation};
use crate::validation::address::{warn_of_cidr, warn_of_ip};

mod columns;
mod ips;
mod transition;
mod validation;

pub fn kind(features: &Features) -> Kind {
    let any_label = features.has("RelaxedServiceNameValidation");
    Kind {
        short_names: vec!["svc".into()],
        categories: vec!["all".into()],
        subresources: vec![Subresource::Proxy, Subresource::Status],
        columns: columns::all(),
        field_selectors: vec![
            FieldSelector {
                path: "spec.clusterIP",
                value: |service| service.at("spec").text("clusterIP").to_owned(),
            },
            FieldSelector { path: "spec.type", value: |service| service.at("spec").text("type").to_owned() },
        ],
        semantics: Semantics {
            counts_generations: false,
            create_on_update: true,
            names: if any_label { NameRule::Label } else { NameRule::Label1035 },
            deletion: Deletion::RETURNS_OBJECT,
            ..Semantics::with_status(|| json!({"loadBalancer": {}}))
        },
        ..entry(&CORE, "Service", "services", Service)
    }
}

struct Service;

impl Lifecycle for Service {
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
        match spec.text("type") {
            "ExternalName" => _ = spec.unset("internalTrafficPolicy"),
            _ => spec.or_insert("internalTrafficPolicy", "Cluster"),
        }
        if spec.text("type") == "LoadBalancer" {
            spec.or_insert("allocateLoadBalancerNodePorts", true);
            default_ip_modes(service);
        }
        service.object_mut("status").object_mut("loadBalancer");
    }

    fn prepare_for_update(&self, new: &mut Value, old: &Value) {
        transition::drop_unused_fields(new, old);
    }
}

impl Validation for Service {
    fn validate(&self, service: &Value) -> Errors {
        let mut errors = Errors::default();
        metadata::new(service, &mut errors);
        validation::check(service, &Value::Null, &mut errors);
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Errors {
        let mut errors = Errors::default();
        metadata::change(new, &mut errors);
        validation::check_change(new, old, &mut errors);
        validation::check(new, old, &mut errors);
        errors
    }

    fn validate_status_update(&self, new: &Value, old: &Value) -> Errors {
        let mut errors = Errors::default();
        metadata::change(new, &mut errors);
        validation::check_status(new, old, &mut errors);
        errors
    }

    fn warnings(&self, new: &Value, _: Option<&Value>) -> Vec<String> {
        warnings(new)
    }
}

/// Returns warnings about settings that are valid but have no effect.
fn warnings(service: &Value) -> Vec<String> {
    let spec = service.at("spec");
    let path = Path::root("spec");
    let mut warnings = Vec::new();
    if service.at("metadata").at("annotations").has(validation::OLD_TOPOLOGY_ANNOTATION) {
        warnings.push(format!(
            "annotation {} is deprecated, please use {} instead",
            validation::OLD_TOPOLOGY_ANNOTATION,
            validation::TOPOLOGY_ANNOTATION
        ));
    }
    let headless = spec.text("clusterIP") == "None";
    if !headless {
        warn_of_ips(spec, "clusterIPs", &path, &mut warnings);
    }
    if headless && spec.text("type") == "ClusterIP" {
        if !spec.text("loadBalancerIP").is_empty() {
            warnings.push("spec.loadBalancerIP is ignored for headless services".into());
        }
        if !spec.list("externalIPs").is_empty() {
            warnings.push("spec.externalIPs is ignored for headless services".into());
        }
        if spec.text("sessionAffinity") != "None" {
            warnings.push("spec.SessionAffinity is ignored for headless services".into());
        }
    }
    warn_of_ips(spec, "externalIPs", &path, &mut warnings);
    warn_of_ip(spec.text("loadBalancerIP"), &path.child("loadBalancerIP"), &mut warnings);
    let ranges = path.child("loadBalancerSourceRanges");
    for (index, range) in spec.list("loadBalancerSourceRanges").iter().enumerate() {
        warn_of_cidr(range.as_str().unwrap_or_default(), &ranges.index(index), &mut warnings);
    }
    match (spec.text("type"), spec.text("externalName"), spec.list("externalIPs")) {
        ("ExternalName", _, [_, ..]) => {
            warnings.push("spec.externalIPs is ignored when spec.type is \"ExternalName\"".into());
        }
        ("ExternalName", ..) | (_, "", _) => {}
        _ => warnings.push("spec.externalName is ignored when spec.type is not \"ExternalName\"".into()),
    }
    warnings
}

fn warn_of_ips(spec: &Value, field: &str, path: &Path<'_>, warnings: &mut Vec<String>) {
    let path = path.child(field);
    for (index, ip) in spec.list(field).iter().enumerate() {
        warn_of_ip(ip.as_str().unwrap_or_default(), &path.index(index), warnings);
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

/// Sets the default IP mode of load balancer addresses.
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

/// Whether a service is reachable from outside the cluster.
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

    fn service(spec: Value) -> Value {
        let mut service = json!({"spec": {"ports": [{"port": 80}]}});
        for (field, value) in spec.as_object().unwrap() {
            service.object_mut("spec").set(field, value.clone());
        }
        service
    }

    #[test]
    fn services_are_checked_field_by_field() {
        use crate::kinds::check;
        let rows: [(Value, &[&str]); 16] = [
            (json!({}), &[]),
            (json!({"ports": []}), &["Required spec.ports"]),
            (json!({"ports": [], "clusterIP": "None", "clusterIPs": ["None"]}), &[]),
            (
                json!({"ports": [{"port": 0}]}),
                &["Invalid spec.ports[0].port", "Invalid spec.ports[0].targetPort"],
            ),
            (
                json!({"ports": [{"port": 1}, {"port": 1, "name": "A"}]}),
                &["Required spec.ports[0].name", "Invalid spec.ports[1].name", "Duplicate spec.ports[1]"],
            ),
            (json!({"ports": [{"port": 1, "nodePort": 30000}]}), &["Forbidden spec.ports[0].nodePort"]),
            (
                json!({"ports": [{"port": 1, "protocol": "X", "appProtocol": "-"}]}),
                &["NotSupported spec.ports[0].protocol", "Invalid spec.ports[0].appProtocol"],
            ),
            (json!({"selector": {"-": "a"}}), &["Invalid spec.selector"]),
            (
                json!({"sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 0}}}),
                &["Invalid spec.sessionAffinityConfig.clientIP.timeoutSeconds"],
            ),
            (json!({"type": "ExternalName", "ports": []}), &["Required spec.externalName"]),
            (
                json!({"externalIPs": ["x", "127.0.0.1"]}),
                &["Invalid spec.externalIPs[0]", "Invalid spec.externalIPs[1]"],
            ),
            (json!({"externalTrafficPolicy": "Local"}), &["Invalid spec.externalTrafficPolicy"]),
            (json!({"loadBalancerClass": "x"}), &["Forbidden spec.loadBalancerClass"]),
            (
                json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local"}),
                &["Required spec.healthCheckNodePort"],
            ),
            (
                json!({"loadBalancerSourceRanges": ["x"]}),
                &["Forbidden spec.LoadBalancerSourceRanges", "Invalid spec.LoadBalancerSourceRanges[0]"],
            ),
            (json!({"trafficDistribution": "X"}), &["NotSupported spec.trafficDistribution"]),
        ];
        for (spec, expected) in rows {
            check::create(&Service, service(spec), expected);
        }
    }

    #[test]
    fn addresses_agree_with_families() {
        use crate::kinds::check;
        let rows: [(Value, &[&str]); 6] = [
            (
                json!({"clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1", "fd00::1"], "ipFamilies": ["IPv4", "IPv6"]}),
                &[],
            ),
            (json!({"clusterIP": "10.0.0.1"}), &["Required spec.clusterIPs"]),
            (json!({"clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.2"]}), &["Invalid spec.clusterIPs"]),
            (json!({"clusterIP": "x", "clusterIPs": ["x"]}), &["Invalid spec.clusterIPs[0]"]),
            (
                json!({"clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"], "ipFamilies": ["IPv6"]}),
                &["Invalid spec.clusterIPs[0]"],
            ),
            (
                json!({"ipFamilies": ["IPv4", "IPv4", "X"], "ipFamilyPolicy": "X"}),
                &[
                    "Duplicate spec.ipFamilies[1]",
                    "NotSupported spec.ipFamilies[2]",
                    "NotSupported spec.ipFamilyPolicy",
                ],
            ),
        ];
        for (spec, expected) in rows {
            check::create(&Service, service(spec), expected);
        }
    }

    #[test]
    fn the_first_address_stays() {
        use crate::kinds::check;
        let at = |ip: &str| service(json!({"clusterIP": ip, "clusterIPs": [ip], "ipFamilies": ["IPv4"]}));
        check::update(&Service, at("10.0.0.2"), &at("10.0.0.1"), &["Invalid spec.clusterIPs[0]"]);
        check::update(
            &Service,
            service(json!({})),
            &at("10.0.0.1"),
            &["Invalid spec.clusterIPs[0]", "Invalid spec.ipFamilies[0]"],
        );
        let dual = service(json!({"clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1", "fd00::1"],
            "ipFamilies": ["IPv4", "IPv6"], "ipFamilyPolicy": "PreferDualStack"}));
        check::update(&Service, dual.clone(), &at("10.0.0.1"), &[]);
        check::update(
            &Service,
            at("10.0.0.1"),
            &dual,
            &["Invalid spec.ipFamilyPolicy", "Invalid spec.ipFamilyPolicy"],
        );
    }

    #[test]
    fn only_balanced_services_have_ingress() {
        use crate::kinds::check;
        let status = |of: &str, ingress: Value| {
            let service = json!({"spec": {"type": of}, "status": {"loadBalancer": {"ingress": ingress}}});
            check::shown(&Service.validate_status_update(&service, &json!({})))
        };
        let path = "status.loadBalancer.ingress";
        assert_eq!(status("ClusterIP", json!([{"ip": "1.2.3.4"}])), [format!("Forbidden {path}")]);
        assert!(
            status("LoadBalancer", json!([{"ip": "1.2.3.4", "ipMode": "VIP"}, {"hostname": "a.b"}]))
                .is_empty()
        );
        assert_eq!(
            status(
                "LoadBalancer",
                json!([{"ip": "x", "ipMode": "X"}, {"hostname": "1.2.3.4", "ipMode": "VIP"}])
            ),
            [
                format!("Invalid {path}[0].ip"),
                format!("NotSupported {path}[0].ipMode"),
                format!("Forbidden {path}[1].ipMode"),
                format!("Invalid {path}[1].hostname"),
            ]
        );
    }
}
