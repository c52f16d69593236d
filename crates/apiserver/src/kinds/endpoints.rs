//! Endpoints: the addresses of a service, superseded by EndpointSlices.

use serde_json::Value;

use super::{CORE, entry, metadata};
use crate::field::{Errors, Path};
use crate::json::{Json, JsonMut};
use crate::kind::{Deprecation, Kind, Scope};
use crate::names;
use crate::strategy::{Lifecycle, NameRule, Semantics, Validation};
use crate::table::Column;
use crate::validation::address::{endpoint_ip, ip, warn_of_ip};
use crate::validation::{add_invalid, choice, dns_label, port_number, qualified_name};

pub fn kind() -> Kind {
    Kind {
        short_names: vec!["ep".into()],
        singular: "endpoints".into(),
        columns: vec![
            Column::name(),
            Column::text("Endpoints", SUBSETS, |endpoints, _| shown(endpoints).into()),
            Column::age(),
        ],
        deprecation: Some(Deprecation::new(DEPRECATED)),
        semantics: Semantics { counts_generations: false, create_on_update: true, ..Semantics::default() },
        ..entry(&CORE, "Endpoints", "endpoints", Endpoints)
    }
}

const SUBSETS: &str = "The set of all endpoints is the union of all subsets. Addresses are placed into subsets according to the IPs they share. A single address with multiple ports, some of which are ready and some of which are not (because they come from different containers) will result in the address being displayed in different subsets for the different ports. No address will appear in both Addresses and NotReadyAddresses in the same subset. Sets of addresses and ports that comprise a service.";
const DEPRECATED: &str = "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice";
/// How many to show; the others are only counted.
const SHOWN: usize = 3;

fn shown(endpoints: &Value) -> String {
    if endpoints.list("subsets").is_empty() {
        return "<none>".into();
    }
    let all: Vec<String> = endpoints.list("subsets").iter().flat_map(addresses).collect();
    let list = all[..all.len().min(SHOWN)].join(",");
    match all.len().saturating_sub(SHOWN) {
        0 => list,
        more => format!("{list} + {more} more..."),
    }
}

/// Returns every address of a subset with every port.
fn addresses(subset: &Value) -> Vec<String> {
    let addresses = subset.list("addresses");
    let with_port = |port: &Value, address: &Value| match address.text("ip") {
        ip if ip.contains(':') => format!("[{ip}]:{}", port.count("port")),
        ip => format!("{ip}:{}", port.count("port")),
    };
    match subset.list("ports") {
        [] => addresses.iter().map(|address| address.text("ip").to_owned()).collect(),
        ports => ports
            .iter()
            .flat_map(|port| addresses.iter().map(move |address| with_port(port, address)))
            .collect(),
    }
}

struct Endpoints;

impl Lifecycle for Endpoints {
    fn default(&self, endpoints: &mut Value) {
        for subset in endpoints.list_mut("subsets") {
            for port in subset.list_mut("ports") {
                port.or_text("protocol", "TCP");
            }
        }
    }
}

impl Validation for Endpoints {
    fn validate(&self, endpoints: &Value) -> Errors {
        let mut errors = Errors::default();
        metadata::new(endpoints, &mut errors);
        check_subsets(endpoints.list("subsets"), &mut errors);
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Errors {
        let mut errors = Errors::default();
        metadata::change(new, &mut errors);
        metadata::whole(new, Scope::Namespaced, NameRule::Subdomain, &mut errors);
        if new.at("subsets") != old.at("subsets") {
            check_subsets(new.list("subsets"), &mut errors);
        }
        errors
    }

    /// Skips endpoints of the endpoints controller.
    fn warnings(&self, new: &Value, _: Option<&Value>) -> Vec<String> {
        let mut found = Vec::new();
        let manager = new.at("metadata").at("labels").text("endpoints.kubernetes.io/managed-by");
        if manager == "endpoint-controller" {
            return found;
        }
        let subsets = Path::root("subsets");
        for (index, subset) in new.list("subsets").iter().enumerate() {
            let subset_path = subsets.index(index);
            for list in ["addresses", "notReadyAddresses"] {
                let path = subset_path.child(list);
                for (index, address) in subset.list(list).iter().enumerate() {
                    warn_of_ip(address.text("ip"), &path.index(index).child("ip"), &mut found);
                }
            }
        }
        found
    }
}

fn check_subsets(subsets: &[Value], errors: &mut Errors) {
    let path = Path::root("subsets");
    for (index, subset) in subsets.iter().enumerate() {
        let path = path.index(index);
        let lists = ["addresses", "notReadyAddresses"];
        if lists.iter().all(|list| subset.list(list).is_empty()) {
            errors.required(&path, "must specify `addresses` or `notReadyAddresses`");
        }
        for list in lists {
            let path = path.child(list);
            for (index, address) in subset.list(list).iter().enumerate() {
                check_address(address, &path.index(index), errors);
            }
        }
        let ports = subset.list("ports");
        let ports_path = path.child("ports");
        for (index, port) in ports.iter().enumerate() {
            check_port(port, ports.len() > 1, &ports_path.index(index), errors);
        }
    }
}

fn check_address(address: &Value, path: &Path<'_>, errors: &mut Errors) {
    ip(address.text("ip"), |_| false, &path.child("ip"), errors);
    if !address.text("hostname").is_empty() {
        dns_label(address.text("hostname"), &path.child("hostname"), errors);
    }
    if let Some(node) = address.at("nodeName").as_str() {
        add_invalid(names::dns_subdomain(node), node, &path.child("nodeName"), errors);
    }
    endpoint_ip(address.text("ip"), &path.child("ip"), errors);
}

fn check_port(port: &Value, needs_name: bool, path: &Path<'_>, errors: &mut Errors) {
    match port.text("name") {
        "" if needs_name => errors.required(&path.child("name"), ""),
        "" => {}
        name => dns_label(name, &path.child("name"), errors),
    }
    port_number(port.count("port"), &path.child("port"), errors);
    choice(port.text("protocol"), &["SCTP", "TCP", "UDP"], &path.child("protocol"), errors);
    if let Some(protocol) = port.at("appProtocol").as_str() {
        qualified_name(protocol, &path.child("appProtocol"), errors);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::check;
    use serde_json::json;

    #[test]
    fn a_subset_has_addresses_that_can_be_reached() {
        let of = |subset: Value| json!({"subsets": [subset]});
        check::create(
            &Endpoints,
            of(json!({"addresses": [{"ip": "10.0.0.1"}], "ports": [{"port": 80}]})),
            &[],
        );
        check::create(&Endpoints, of(json!({})), &["Required subsets[0]"]);
        check::create(
            &Endpoints,
            of(
                json!({"notReadyAddresses": [{"ip": "127.0.0.1", "hostname": "A"}], "ports": [{"port": 0}, {"name": "b", "port": 1}]}),
            ),
            &[
                "Invalid subsets[0].notReadyAddresses[0].hostname",
                "Invalid subsets[0].notReadyAddresses[0].ip",
                "Required subsets[0].ports[0].name",
                "Invalid subsets[0].ports[0].port",
            ],
        );
    }

    #[test]
    fn three_endpoints_are_shown_and_the_rest_counted() {
        let endpoints = json!({"subsets": [{"addresses": [{"ip": "1.1.1.1"}, {"ip": "::2"}], "ports": [{"port": 1}, {"port": 2}]}]});
        assert_eq!(shown(&endpoints), "1.1.1.1:1,[::2]:1,1.1.1.1:2 + 1 more...");
        assert_eq!(shown(&json!({})), "<none>");
    }
}
