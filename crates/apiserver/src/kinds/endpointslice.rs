//! EndpointSlices: the endpoints of a service.

use serde_json::Value;

use super::{DISCOVERY, entry, metadata};
use crate::field::{Errors, Path};
use crate::json::{Json, JsonMut};
use crate::kind::{Kind, Scope};
use crate::names;
use crate::strategy::{Lifecycle, NameRule, Validation};
use crate::table::Column;
use crate::validation::{
    Seen, add_invalid, address, choice, dns_label, dns_subdomain, immutable, qualified_name, too_many,
};

pub fn kind() -> Kind {
    Kind {
        columns: vec![
            Column::name(),
            Column::text("AddressType", ADDRESS_TYPE, |slice, _| slice.text("addressType").into()),
            Column::text("Ports", PORTS, |slice, _| ports(slice).into()),
            Column::text("Endpoints", ENDPOINTS, |slice, _| addresses(slice).into()),
            Column::age(),
        ],
        ..entry(&DISCOVERY, "EndpointSlice", "endpointslices", EndpointSlice)
    }
}

const ADDRESS_TYPE: &str = "addressType specifies the type of address carried by this EndpointSlice. All addresses in this slice must be the same type. This field is immutable after creation. The following address types are currently supported: * IPv4: Represents an IPv4 Address. * IPv6: Represents an IPv6 Address. * FQDN: Represents a Fully Qualified Domain Name.";
const PORTS: &str = "ports specifies the list of network ports exposed by each endpoint in this slice. Each port must have a unique name. When ports is empty, it indicates that there are no defined ports. When a port is defined with a nil port value, it indicates \"all ports\". Each slice may include a maximum of 100 ports.";
const ENDPOINTS: &str = "endpoints is a list of unique endpoints in this slice. Each slice may include a maximum of 1000 endpoints.";
/// How many ports or addresses a table shows.
const SHOWN: usize = 3;
const MAX_ENDPOINTS: usize = 1000;
const MAX_ADDRESSES: usize = 100;
const MAX_PORTS: usize = 20000;
const MAX_TOPOLOGY_LABELS: usize = 16;
const MAX_HINTS: usize = 8;
const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
/// The controllers that write addresses only in canonical form.
const OWN_CONTROLLERS: [&str; 2] =
    ["endpointslice-controller.k8s.io", "endpointslicemirroring-controller.k8s.io"];

fn ports(slice: &Value) -> String {
    let shown = slice.list("ports").iter().map(|port| match (port.int("port"), port.at("name").as_str()) {
        (Some(number), _) => number.to_string(),
        (None, Some(name)) => name.to_owned(),
        (None, None) => "*".into(),
    });
    first_few(shown.collect())
}

fn addresses(slice: &Value) -> String {
    let addresses = slice.list("endpoints").iter().flat_map(|endpoint| endpoint.list("addresses"));
    first_few(addresses.filter_map(Value::as_str).map(Into::into).collect())
}

fn first_few(all: Vec<String>) -> String {
    let shown = all.iter().take(SHOWN).cloned().collect::<Vec<_>>().join(",");
    match all.len().checked_sub(SHOWN) {
        Some(more @ 1..) => format!("{shown} + {more} more..."),
        _ if shown.is_empty() => "<unset>".into(),
        _ => shown,
    }
}

struct EndpointSlice;

impl Lifecycle for EndpointSlice {
    fn default(&self, slice: &mut Value) {
        for port in slice.list_mut("ports") {
            port.or_insert("name", "");
            port.or_insert("protocol", "TCP");
        }
    }

    fn prepare_for_create(&self, slice: &mut Value) {
        drop_topology(slice, &Value::Null);
    }

    fn prepare_for_update(&self, new: &mut Value, old: &Value) {
        if new.at("endpoints") != old.at("endpoints") {
            drop_topology(new, old);
        }
    }

    /// Includes labels, because they name the service of the endpoints.
    fn changes_generation(&self, new: &Value, old: &Value) -> bool {
        let labels = |slice: &Value| slice.at("metadata").map("labels").cloned().unwrap_or_default();
        ["addressType", "endpoints", "ports"].iter().any(|field| new.at(field) != old.at(field))
            || labels(new) != labels(old)
    }
}

impl Validation for EndpointSlice {
    fn validate(&self, slice: &Value) -> Errors {
        let mut errors = Errors::default();
        metadata::new(slice, &mut errors);
        check(slice, &Value::Null, &mut errors);
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Errors {
        let mut errors = Errors::default();
        metadata::whole(new, Scope::Namespaced, NameRule::Subdomain, &mut errors);
        check(new, old, &mut errors);
        let field = "addressType";
        immutable(new.at(field), old.at(field), &Path::root(field), &mut errors);
        errors
    }

    fn warnings(&self, new: &Value, old: Option<&Value>) -> Vec<String> {
        let mut warnings = Vec::new();
        if old.is_none() && new.text("addressType") == "FQDN" {
            warnings.push("spec.addressType: FQDN endpoints are deprecated".into());
        }
        if !OWN_CONTROLLERS.contains(&new.at("metadata").at("labels").text(MANAGED_BY)) {
            warn_of_addresses(new, &mut warnings);
        }
        warnings
    }
}

fn warn_of_addresses(slice: &Value, warnings: &mut Vec<String>) {
    let path = Path::root("endpoints");
    for (index, endpoint) in slice.list("endpoints").iter().enumerate() {
        let path = path.index(index);
        let path = path.child("addresses");
        for (index, address) in endpoint.list("addresses").iter().enumerate() {
            address::warn_of_ip(address.as_str().unwrap_or_default(), &path.index(index), warnings);
        }
    }
}

/// Drops the deprecated topology, except that a node name the old object already had there moves to the `nodeName`
/// field.
fn drop_topology(slice: &mut Value, old: &Value) {
    const HOSTNAME: &str = "kubernetes.io/hostname";
    let known = |name: &str| {
        let mut topologies = old.list("endpoints").iter().map(|endpoint| endpoint.at("deprecatedTopology"));
        !name.is_empty() && topologies.any(|topology| topology.text(HOSTNAME) == name)
    };
    for endpoint in slice.list_mut("endpoints") {
        let name = endpoint.at("deprecatedTopology").text(HOSTNAME).to_owned();
        endpoint.unset("deprecatedTopology");
        if !endpoint.has("nodeName") && known(&name) && names::dns_subdomain(&name).is_empty() {
            endpoint.set("nodeName", name);
        }
    }
}

fn check(slice: &Value, old: &Value, errors: &mut Errors) {
    let address_type = slice.text("addressType");
    choice(address_type, &["FQDN", "IPv4", "IPv6"], &Path::root("addressType"), errors);
    check_ports(slice.list("ports"), errors);
    let before = errors.0.len();
    check_endpoints(slice.list("endpoints"), address_type, errors);
    // Endpoints that predate the rule may stay.
    if errors.0.len() > before && !old.is_null() && old.at("endpoints") == slice.at("endpoints") {
        errors.0.truncate(before);
    }
}

fn check_ports(ports: &[Value], errors: &mut Errors) {
    let path = Path::root("ports");
    if ports.len() > MAX_PORTS {
        return too_many(ports.len(), MAX_PORTS, &path, errors);
    }
    let mut seen = Seen::new();
    for (index, port) in ports.iter().enumerate() {
        let path = path.index(index);
        let name = port.text("name");
        if !name.is_empty() {
            dns_label(name, &path.child("name"), errors);
        }
        if seen.again(name) {
            errors.duplicate(&path.child("name"), name);
        }
        match port.at("protocol").as_str() {
            None => errors.required(&path.child("protocol"), ""),
            Some("SCTP" | "TCP" | "UDP") => {}
            Some(other) => errors.not_supported(&path.child("protocol"), other, &["SCTP", "TCP", "UDP"]),
        }
        if let Some(protocol) = port.at("appProtocol").as_str() {
            qualified_name(protocol, &path.child("appProtocol"), errors);
        }
    }
}

fn check_endpoints(endpoints: &[Value], address_type: &str, errors: &mut Errors) {
    let path = Path::root("endpoints");
    if endpoints.len() > MAX_ENDPOINTS {
        return too_many(endpoints.len(), MAX_ENDPOINTS, &path, errors);
    }
    for (index, endpoint) in endpoints.iter().enumerate() {
        let path = path.index(index);
        check_addresses(endpoint.list("addresses"), address_type, &path.child("addresses"), errors);
        if let Some(node) = endpoint.at("nodeName").as_str() {
            dns_subdomain(node, &path.child("nodeName"), errors);
        }
        let labels = endpoint.map("deprecatedTopology").map_or(0, serde_json::Map::len);
        if labels > MAX_TOPOLOGY_LABELS {
            too_many(labels, MAX_TOPOLOGY_LABELS, &path.child("deprecatedTopology"), errors);
        }
        if let Some(host) = endpoint.at("hostname").as_str() {
            dns_label(host, &path.child("hostname"), errors);
        }
        if endpoint.has("hints") {
            check_hints(endpoint.at("hints"), &path.child("hints"), errors);
        }
    }
}

fn check_addresses(addresses: &[Value], address_type: &str, path: &Path<'_>, errors: &mut Errors) {
    if addresses.is_empty() {
        errors.required(path, "must contain at least 1 address");
    } else if addresses.len() > MAX_ADDRESSES {
        too_many(addresses.len(), MAX_ADDRESSES, path, errors);
    }
    for (index, text) in addresses.iter().enumerate() {
        let text = text.as_str().unwrap_or_default();
        let before = errors.0.len();
        match address_type {
            "IPv4" => address::ip(text, |_| false, &path.index(index), errors),
            "IPv6" => address::strict_ip(text, &path.index(index), errors),
            "FQDN" => check_domain(text, &path.index(index), errors),
            _ => {}
        }
        if errors.0.len() > before || !address_type.starts_with("IP") {
            continue;
        }
        let is_v6 = address::parse_ip(text).is_some_and(|ip| ip.is_ipv6());
        if is_v6 != (address_type == "IPv6") {
            errors.invalid(path, text, format!("must be an {address_type} address"));
        }
        address::endpoint_ip(text, &path.index(index), errors);
    }
}

/// Validates a fully qualified name, with or without a trailing dot.
fn check_domain(name: &str, path: &Path<'_>, errors: &mut Errors) {
    if name.is_empty() {
        return errors.required(path, "");
    }
    let name = name.strip_suffix('.').unwrap_or(name);
    let complaints = names::dns_subdomain(name);
    if !complaints.is_empty() {
        return errors.invalid(path, name, complaints.join(","));
    }
    if !name.contains('.') {
        let detail = "should be a domain with at least two segments separated by dots";
        return errors.invalid(path, name, detail);
    }
    let mut labels = name.split('.').map(|label| (label, names::dns_label(label)));
    if let Some((label, complaints)) = labels.find(|(_, complaints)| !complaints.is_empty()) {
        errors.invalid(path, label, complaints.join(","));
    }
}

fn check_hints(hints: &Value, path: &Path<'_>, errors: &mut Errors) {
    for field in ["forZones", "forNodes"] {
        let rule = if field == "forZones" { names::label_value } else { names::dns_subdomain };
        let path = path.child(field);
        let hints = hints.list(field);
        if hints.len() > MAX_HINTS {
            return too_many(hints.len(), MAX_HINTS, &path, errors);
        }
        let mut seen = Seen::new();
        for (index, hint) in hints.iter().enumerate() {
            let path = path.index(index);
            let (path, name) = (path.child("name"), hint.text("name"));
            if seen.again(name) {
                errors.duplicate(&path, name);
            }
            add_invalid(rule(name), name, &path, errors);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::check as checking;
    use serde_json::json;

    fn slice(address_type: &str, endpoint: Value) -> Value {
        json!({"addressType": address_type, "endpoints": [endpoint]})
    }

    #[test]
    fn addresses_are_of_the_type_of_the_slice() {
        let at = "endpoints[0].addresses";
        for (address_type, address, expected) in [
            ("IPv4", "10.0.0.1", vec![]),
            ("IPv4", "x", vec![format!("Invalid {at}[0]")]),
            ("IPv4", "fd00::1", vec![format!("Invalid {at}")]),
            ("IPv4", "127.0.0.1", vec![format!("Invalid {at}[0]")]),
            ("IPv6", "fd00::1", vec![]),
            ("IPv6", "FD00::1", vec![format!("Invalid {at}[0]")]),
            ("FQDN", "a.io.", vec![]),
            ("FQDN", "a", vec![format!("Invalid {at}[0]")]),
            ("X", "whatever", vec!["NotSupported addressType".into()]),
        ] {
            let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
            checking::create(&EndpointSlice, slice(address_type, json!({"addresses": [address]})), &expected);
        }
        checking::create(&EndpointSlice, slice("IPv4", json!({})), &[&format!("Required {at}")]);
    }

    #[test]
    fn ports_are_distinguished_by_name() {
        let ports = json!({"addressType": "IPv4", "ports": [{"port": 1}, {"name": "", "protocol": "X", "appProtocol": "/"}]});
        checking::create(
            &EndpointSlice,
            ports,
            &[
                "Duplicate ports[1].name",
                "NotSupported ports[1].protocol",
                "Invalid ports[1].appProtocol",
                "Invalid ports[1].appProtocol",
                "Invalid ports[1].appProtocol",
            ],
        );
    }

    #[test]
    fn the_address_type_is_immutable_and_old_errors_are_tolerated() {
        let old = slice("IPv4", json!({"addresses": ["127.0.0.1"]}));
        checking::update(&EndpointSlice, old.clone(), &old, &[]);
        let mut other = old.clone();
        other["addressType"] = json!("FQDN");
        checking::update(
            &EndpointSlice,
            other,
            &slice("IPv4", json!({"addresses": ["10.0.0.1"]})),
            &["Invalid addressType"],
        );
    }

    #[test]
    fn topology_is_not_written_any_more() {
        let old = slice(
            "IPv4",
            json!({"addresses": ["10.0.0.1"], "deprecatedTopology": {"kubernetes.io/hostname": "n"}}),
        );
        let mut new = slice(
            "IPv4",
            json!({"addresses": ["10.0.0.2"], "deprecatedTopology": {"kubernetes.io/hostname": "n", "a": "b"}}),
        );
        EndpointSlice.prepare_for_update(&mut new, &old);
        assert_eq!(new["endpoints"], json!([{"addresses": ["10.0.0.2"], "nodeName": "n"}]));
    }

    #[test]
    fn three_endpoints_are_shown() {
        let endpoint = |address: &str| json!({"addresses": [address]});
        let slice = json!({"endpoints": [endpoint("a"), endpoint("b"), endpoint("c"), endpoint("d")], "ports": [{"port": 80}, {}]});
        assert_eq!(addresses(&slice), "a,b,c + 1 more...");
        assert_eq!(ports(&slice), "80,*");
        assert_eq!(ports(&json!({})), "<unset>");
    }
}
