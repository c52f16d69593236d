//! Ingresses: route external requests to services.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{NETWORKING, check_object_reference};
use crate::field::{Errors, Path};
use crate::json::Json;
use crate::kind::{Kind, Scope, Subresource};
use crate::kinds::{entry, metadata};
use crate::names;
use crate::strategy::{Lifecycle, NameRule, Semantics, Validation};
use crate::table::{Column, or_none};
use crate::validation::{add_invalid, address, dns_subdomain, port_number, words};

pub fn kind() -> Kind {
    Kind {
        short_names: vec!["ing".into()],
        subresources: vec![Subresource::Status],
        columns: vec![
            Column::name(),
            Column::text("Class", CLASS, |ingress, _| or_none(ingress.at("spec").text("ingressClassName"))),
            Column::text("Hosts", HOSTS, |ingress, _| hosts(ingress.at("spec").list("rules")).into()),
            Column::text("Address", ADDRESS, |ingress, _| addresses(ingress).into()),
            Column::text("Ports", "Ports of TLS configurations that open", |ingress, _| ports(ingress)),
            Column::age(),
        ],
        semantics: Semantics::with_status(|| json!({"loadBalancer": {}})),
        ..entry(&NETWORKING, "Ingress", "ingresses", Ingress)
    }
}

const CLASS: &str = "The name of the IngressClass resource that should be used for additional configuration";
const HOSTS: &str = "Hosts that incoming requests are matched against before the ingress rule";
const ADDRESS: &str = "Address is a list containing ingress points for the load-balancer";
const CLASS_ANNOTATION: &str = "kubernetes.io/ingress.class";
/// How many hosts a table shows.
const SHOWN_HOSTS: usize = 3;

fn hosts(rules: &[Value]) -> String {
    let named: Vec<&str> =
        rules.iter().map(|rule| rule.text("host")).filter(|host| !host.is_empty()).collect();
    let shown = named.iter().take(SHOWN_HOSTS).copied().collect::<Vec<_>>().join(",");
    // Every rule after the third with a host counts, even without a host.
    let third =
        rules.iter().enumerate().filter(|(_, rule)| !rule.text("host").is_empty()).nth(SHOWN_HOSTS - 1);
    match third {
        _ if named.is_empty() => "*".into(),
        Some((index, _)) if rules.len() > index + 1 => {
            format!("{shown} + {} more...", rules.len() - SHOWN_HOSTS)
        }
        _ => shown,
    }
}

/// Returns the load balancer's addresses, unique and sorted.
fn addresses(ingress: &Value) -> String {
    let points = ingress.at("status").at("loadBalancer").list("ingress").iter();
    let address = |point: &'_ Value| {
        let field = if point.text("ip").is_empty() { "hostname" } else { "ip" };
        point.text(field).to_owned()
    };
    let addresses: BTreeSet<String> = points.map(address).filter(|address| !address.is_empty()).collect();
    addresses.into_iter().collect::<Vec<_>>().join(",")
}

fn ports(ingress: &Value) -> Value {
    if ingress.at("spec").list("tls").is_empty() { "80".into() } else { "80, 443".into() }
}

struct Ingress;

impl Lifecycle for Ingress {}

impl Validation for Ingress {
    fn validate(&self, ingress: &Value) -> Errors {
        let mut errors = Errors::default();
        metadata::new(ingress, &mut errors);
        check_spec(ingress.at("spec"), Leniency::default(), &mut errors);
        check_class_annotation(ingress, &mut errors);
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Errors {
        let mut errors = Errors::default();
        metadata::change(new, &mut errors);
        metadata::whole(new, Scope::Namespaced, NameRule::Subdomain, &mut errors);
        check_spec(new.at("spec"), Leniency::towards(old.at("spec")), &mut errors);
        errors
    }

    fn validate_status_update(&self, new: &Value, old: &Value) -> Errors {
        let mut errors = Errors::default();
        metadata::change(new, &mut errors);
        check_status(new, old, &mut errors);
        errors
    }

    fn warnings(&self, new: &Value, old: Option<&Value>) -> Vec<String> {
        let mut warnings = Vec::new();
        match old {
            None if has_class_annotation(new) && !new.at("spec").has("ingressClassName") => {
                warnings.push(format!(
                    "annotation {CLASS_ANNOTATION:?} is deprecated, please use 'spec.ingressClassName' instead"
                ));
            }
            Some(old) if new.at("status") != old.at("status") => warn_of_addresses(new, &mut warnings),
            _ => {}
        }
        warnings
    }
}

/// Rules to relax for an ingress that was stored before they existed.
#[derive(Clone, Copy, Default)]
struct Leniency {
    secret_names: bool,
    wildcard_rules: bool,
    /// Whether service names may start with a digit.
    service_names: bool,
}

impl Leniency {
    fn towards(old: &Value) -> Self {
        let rules = old.list("rules").iter();
        let mut backends = rules.clone().flat_map(|rule| rule.at("http").list("paths"));
        let begins_with_digit = |path: &Value| {
            let name = path.at("backend").at("service").text("name");
            names::dns_label(name).is_empty() && !names::dns_1035_label(name).is_empty()
        };
        let is_wrong = |rule: &Value| {
            let mut errors = Errors::default();
            check_rule_value(rule, Self::default(), &Path::root("rules"), &mut errors);
            rule.text("host").contains('*') && !errors.is_empty()
        };
        Self {
            secret_names: old.list("tls").iter().any(|tls| !secret_name(tls.text("secretName")).is_empty()),
            wildcard_rules: rules.clone().any(is_wrong),
            service_names: backends.any(begins_with_digit),
        }
    }
}

fn secret_name(name: &str) -> names::Messages {
    if name.is_empty() { names::Messages::new() } else { names::dns_subdomain(name) }
}

fn check_spec(spec: &Value, leniency: Leniency, errors: &mut Errors) {
    let path = Path::root("spec");
    let rules = spec.list("rules");
    if rules.is_empty() && !spec.has("defaultBackend") {
        let detail = "either `defaultBackend` or `rules` must be specified";
        errors.invalid(&path, spec.at("rules").clone(), detail);
    }
    if spec.has("defaultBackend") {
        check_backend(spec.at("defaultBackend"), leniency, &path.child("defaultBackend"), errors);
    }
    let rules_path = path.child("rules");
    for (index, rule) in rules.iter().enumerate() {
        check_rule(rule, leniency, &rules_path.index(index), errors);
    }
    let tls_path = path.child("tls");
    for (index, tls) in spec.list("tls").iter().enumerate() {
        check_tls(tls, leniency, &tls_path.index(index), errors);
    }
    if let Some(class) = spec.at("ingressClassName").as_str() {
        dns_subdomain(class, &path.child("ingressClassName"), errors);
    }
}

fn check_host(host: &str, path: &Path<'_>, errors: &mut Errors) {
    match host.contains('*') {
        true => add_invalid(words::wildcard_subdomain(host), host, path, errors),
        false => dns_subdomain(host, path, errors),
    }
}

fn check_tls(tls: &Value, leniency: Leniency, path: &Path<'_>, errors: &mut Errors) {
    let hosts_path = path.child("hosts");
    for (index, host) in tls.list("hosts").iter().enumerate() {
        check_host(host.as_str().unwrap_or_default(), &hosts_path.index(index), errors);
    }
    if !leniency.secret_names {
        let name = tls.text("secretName");
        add_invalid(secret_name(name), name, &path.child("secretName"), errors);
    }
}

fn check_rule(rule: &Value, leniency: Leniency, path: &Path<'_>, errors: &mut Errors) {
    let host = rule.text("host");
    if !host.is_empty() {
        let path = path.child("host");
        if address::parse_ip(host).is_some() {
            errors.invalid(&path, host, "must be a DNS name, not an IP address");
        }
        check_host(host, &path, errors);
    }
    if !host.contains('*') || !leniency.wildcard_rules {
        check_rule_value(rule, leniency, path, errors);
    }
}

fn check_rule_value(rule: &Value, leniency: Leniency, path: &Path<'_>, errors: &mut Errors) {
    if !rule.has("http") {
        return;
    }
    let path = path.child("http");
    let path = path.child("paths");
    let paths = rule.at("http").list("paths");
    if paths.is_empty() {
        errors.required(&path, "");
    }
    for (index, target) in paths.iter().enumerate() {
        check_path(target, leniency, &path.index(index), errors);
    }
}

fn check_path(target: &Value, leniency: Leniency, path: &Path<'_>, errors: &mut Errors) {
    let (text, text_path) = (target.text("path"), path.child("path"));
    let Some(path_type) = target.at("pathType").as_str() else {
        return errors.required(&path.child("pathType"), "pathType must be specified");
    };
    let absolute = text.starts_with('/');
    match path_type {
        "Exact" | "Prefix" => {
            if !absolute {
                errors.invalid(&text_path, text, "must be an absolute path");
            }
            check_path_text(text, &text_path, errors);
        }
        "ImplementationSpecific" if text.is_empty() || absolute => {}
        "ImplementationSpecific" => errors.invalid(&text_path, text, "must be an absolute path"),
        other => {
            let supported = ["Exact", "ImplementationSpecific", "Prefix"];
            errors.not_supported(&path.child("pathType"), other, &supported);
        }
    }
    check_backend(target.at("backend"), leniency, &path.child("backend"), errors);
}

fn check_path_text(text: &str, path: &Path<'_>, errors: &mut Errors) {
    for sequence in ["//", "/./", "/../", "%2f", "%2F"] {
        if text.contains(sequence) {
            errors.invalid(path, text, format!("must not contain '{sequence}'"));
        }
    }
    for suffix in ["/..", "/."] {
        if text.ends_with(suffix) {
            errors.invalid(path, text, format!("cannot end with '{suffix}'"));
        }
    }
}

fn check_backend(backend: &Value, leniency: Leniency, path: &Path<'_>, errors: &mut Errors) {
    match (backend.has("resource"), backend.has("service")) {
        (true, true) => errors.invalid(path, "", "cannot set both resource and service backends"),
        (true, false) => check_object_reference(backend.at("resource"), &path.child("resource"), errors),
        (false, true) => check_service(backend.at("service"), leniency, path, errors),
        (false, false) => errors.invalid(path, "", "resource or service backend is required"),
    }
}

fn check_service(service: &Value, leniency: Leniency, path: &Path<'_>, errors: &mut Errors) {
    let service_path = path.child("service");
    let (name, name_path) = (service.text("name"), service_path.child("name"));
    match name {
        "" => errors.required(&name_path, ""),
        name if leniency.service_names => add_invalid(names::dns_label(name), name, &name_path, errors),
        name => add_invalid(names::dns_1035_label(name), name, &name_path, errors),
    }
    let port_path = service_path.child("port");
    let port = service.at("port");
    match (port.text("name"), port.count("number")) {
        ("", 0) => errors.required(path, "port name or number is required"),
        ("", number) => port_number(number, &port_path.child("number"), errors),
        (name, 0) => add_invalid(words::port_name(name), name, &port_path.child("name"), errors),
        _ => errors.invalid(path, "", "cannot set both port name & port number"),
    }
}

fn has_class_annotation(ingress: &Value) -> bool {
    ingress.at("metadata").at("annotations").has(CLASS_ANNOTATION)
}

fn check_class_annotation(ingress: &Value, errors: &mut Errors) {
    let annotation = ingress.at("metadata").at("annotations").text(CLASS_ANNOTATION);
    let class = ingress.at("spec").at("ingressClassName").as_str();
    if has_class_annotation(ingress) && class.is_some_and(|class| class != annotation) {
        let path = Path::root("annotations");
        let detail = "must match `ingressClassName` when both are specified";
        errors.invalid(&path.child(CLASS_ANNOTATION), annotation, detail);
    }
}

fn points(ingress: &Value) -> &[Value] {
    ingress.at("status").at("loadBalancer").list("ingress")
}

fn check_status(new: &Value, old: &Value, errors: &mut Errors) {
    let path = Path::root("status");
    let path = path.child("loadBalancer");
    let path = path.child("ingress");
    for (index, point) in points(new).iter().enumerate() {
        let path = path.index(index);
        let (ip, host) = (point.text("ip"), point.text("hostname"));
        if !ip.is_empty() {
            let is_old = |ip: &str| points(old).iter().any(|old| old.text("ip") == ip);
            address::ip(ip, is_old, &path.child("ip"), errors);
        }
        if !host.is_empty() {
            let path = path.child("hostname");
            dns_subdomain(host, &path, errors);
            if address::parse_ip(host).is_some() {
                errors.invalid(&path, host, "must be a DNS name, not an IP address");
            }
        }
    }
}

fn warn_of_addresses(ingress: &Value, warnings: &mut Vec<String>) {
    let path = Path::root("status");
    let path = path.child("loadBalancer");
    let path = path.child("ingress");
    for (index, point) in points(ingress).iter().enumerate() {
        address::warn_of_ip(point.text("ip"), &path.index(index), warnings);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::check;

    fn ingress(path: Value, host: &str) -> Value {
        json!({"spec": {"rules": [{"host": host, "http": {"paths": [path]}}]}})
    }

    fn backend(port: Value) -> Value {
        json!({"service": {"name": "web", "port": port}})
    }

    #[test]
    fn an_ingress_has_rules_or_a_default() {
        check::create(&Ingress, json!({"spec": {}}), &["Invalid spec"]);
        check::create(&Ingress, json!({"spec": {"defaultBackend": backend(json!({"number": 80}))}}), &[]);
        check::create(
            &Ingress,
            json!({"spec": {"rules": [{"http": {}}], "ingressClassName": "A"}}),
            &["Required spec.rules[0].http.paths", "Invalid spec.ingressClassName"],
        );
    }

    #[test]
    fn paths_are_absolute_and_clean() {
        let rows: [(&str, &str, &[&str]); 8] = [
            ("Prefix", "/", &[]),
            ("Exact", "a", &["Invalid spec.rules[0].http.paths[0].path"]),
            ("Exact", "", &["Invalid spec.rules[0].http.paths[0].path"]),
            ("Prefix", "/a//b", &["Invalid spec.rules[0].http.paths[0].path"]),
            ("Prefix", "/a/..", &["Invalid spec.rules[0].http.paths[0].path"]),
            ("ImplementationSpecific", "", &[]),
            ("ImplementationSpecific", "a", &["Invalid spec.rules[0].http.paths[0].path"]),
            ("X", "/", &["NotSupported spec.rules[0].http.paths[0].pathType"]),
        ];
        for (path_type, path, expected) in rows {
            let path =
                json!({"pathType": path_type, "path": path, "backend": backend(json!({"number": 80}))});
            check::create(&Ingress, ingress(path, "a.io"), expected);
        }
    }

    #[test]
    fn a_backend_is_one_service_port_or_one_resource() {
        let path = "spec.rules[0].http.paths[0].backend";
        let create = |backend: Value, expected: &[&str]| {
            let target = json!({"pathType": "Prefix", "path": "/", "backend": backend});
            check::create(&Ingress, ingress(target, "*.a.io"), expected);
        };
        create(json!({}), &[&format!("Invalid {path}")]);
        create(backend(json!({})), &[&format!("Required {path}")]);
        create(backend(json!({"name": "http", "number": 80})), &[&format!("Invalid {path}")]);
        create(backend(json!({"number": 0x1_0000})), &[&format!("Invalid {path}.service.port.number")]);
        create(
            json!({"service": {"name": "1a", "port": {"number": 80}}}),
            &[&format!("Invalid {path}.service.name")],
        );
        create(json!({"resource": {"kind": "Bucket"}}), &[&format!("Required {path}.resource.name")]);
    }

    #[test]
    fn hosts_are_names() {
        let target = json!({"pathType": "Prefix", "path": "/", "backend": backend(json!({"number": 80}))});
        for host in ["1.2.3.4", "*.*.io", "a.*"] {
            check::create(&Ingress, ingress(target.clone(), host), &["Invalid spec.rules[0].host"]);
        }
        let mut named = ingress(target, "a.io");
        named["spec"]["tls"] = json!([{"hosts": ["A"], "secretName": "B"}]);
        check::create(&Ingress, named, &["Invalid spec.tls[0].hosts[0]", "Invalid spec.tls[0].secretName"]);
    }

    #[test]
    fn three_hosts_are_shown() {
        let rules = |hosts: &[&str]| hosts.iter().map(|host| json!({ "host": host })).collect::<Vec<_>>();
        assert_eq!(hosts(&rules(&["", ""])), "*");
        assert_eq!(hosts(&rules(&["a", "b", "c"])), "a,b,c");
        assert_eq!(hosts(&rules(&["a", "b", "c", "d", ""])), "a,b,c + 2 more...");
    }
}
