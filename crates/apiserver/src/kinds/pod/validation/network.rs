//! Validates a pod's network settings: host ports, pull secrets, DNS, host aliases.

use serde_json::Value;

use super::Rules;
use crate::field::{Errors, Path};
use crate::json::Json;
use crate::validation::{add_invalid, address, dns_subdomain, words};

const MAX_NAMESERVERS: usize = 3;
const MAX_SEARCHES: usize = 32;
const MAX_SEARCH_CHARACTERS: usize = 2048;

/// Checks that, in the host's network, a container's port equals its host port.
pub(super) fn check_host_ports(spec: &Value, rules: &Rules, path: &Path<'_>, errors: &mut Errors) {
    if !spec.flag("hostNetwork") {
        return;
    }
    for (index, container) in spec.list("containers").iter().enumerate() {
        let path = path.index(index);
        let path = path.child("ports");
        for (index, port) in container.list("ports").iter().enumerate() {
            let (host, own) = (port.count("hostPort"), port.count("containerPort"));
            if (rules.is_pod || host != 0) && host != own {
                let detail = "must match `containerPort` when `hostNetwork` is true";
                errors.invalid(&path.index(index).child("hostPort"), host, detail);
            }
        }
    }
}

pub(super) fn check_pull_secrets(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    for (index, secret) in spec.list("imagePullSecrets").iter().enumerate() {
        if secret.as_object().is_some_and(|fields| fields.keys().any(|field| field != "name")) {
            errors.invalid(&path.index(index), secret.clone(), "only name may be set");
        }
    }
}

pub(super) fn check_dns(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let config = spec.at("dnsConfig");
    let servers = config.list("nameservers");
    if spec.text("dnsPolicy") == "None" {
        if config.is_null() {
            return errors.required(path, "must provide `dnsConfig` when `dnsPolicy` is None");
        }
        if servers.is_empty() {
            let detail = "must provide at least one DNS nameserver when `dnsPolicy` is None";
            return errors.required(&path.child("nameservers"), detail);
        }
    }
    if config.is_null() {
        return;
    }
    let servers_path = path.child("nameservers");
    if servers.len() > MAX_NAMESERVERS {
        let detail = format!("must not have more than {MAX_NAMESERVERS} nameservers");
        errors.invalid(&servers_path, servers.to_vec(), detail);
    }
    for (index, server) in servers.iter().enumerate() {
        address::ip(server.as_str().unwrap_or_default(), |_| false, &servers_path.index(index), errors);
    }
    check_searches(config.list("searches"), &path.child("searches"), errors);
    let options = path.child("options");
    for (index, option) in config.list("options").iter().enumerate() {
        if option.text("name").is_empty() {
            errors.required(&options.index(index), "must not be empty");
        }
    }
}

fn check_searches(searches: &[Value], path: &Path<'_>, errors: &mut Errors) {
    if searches.len() > MAX_SEARCHES {
        let detail = format!("must not have more than {MAX_SEARCHES} search paths");
        errors.invalid(path, searches.to_vec(), detail);
    }
    let domains = || searches.iter().map(|search| search.as_str().unwrap_or_default());
    let length = domains().map(|domain| domain.len() + 1).sum::<usize>().saturating_sub(1);
    if length > MAX_SEARCH_CHARACTERS {
        let detail = format!(
            "must not have more than {MAX_SEARCH_CHARACTERS} characters (including spaces) in the search list"
        );
        errors.invalid(path, searches.to_vec(), detail);
    }
    for (index, domain) in domains().enumerate().filter(|(_, domain)| *domain != ".") {
        let domain = domain.strip_suffix('.').unwrap_or(domain);
        add_invalid(words::subdomain_with_underscores(domain), domain, &path.index(index), errors);
    }
}

pub(super) fn check_host_aliases(aliases: &[Value], path: &Path<'_>, errors: &mut Errors) {
    for (index, alias) in aliases.iter().enumerate() {
        let path = path.index(index);
        address::ip(alias.text("ip"), |_| false, &path.child("ip"), errors);
        let names = path.child("hostnames");
        for (index, name) in alias.list("hostnames").iter().enumerate() {
            dns_subdomain(name.as_str().unwrap_or_default(), &names.index(index), errors);
        }
    }
}
