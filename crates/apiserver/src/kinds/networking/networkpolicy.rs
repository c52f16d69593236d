//! NetworkPolicies: which traffic the selected pods may receive and send.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::NETWORKING;
use crate::field::{Errors, Path};
use crate::json::{Json, JsonMut};
use crate::kind::{Kind, Scope};
use crate::kinds::{entry, metadata, selector};
use crate::strategy::{Lifecycle, NameRule, Validation};
use crate::table::Column;
use crate::validation::labels::{self, Values};
use crate::validation::{add_invalid, address, optional_choice, port_number, words};

pub fn kind() -> Kind {
    Kind {
        short_names: vec!["netpol".into()],
        columns: vec![
            Column::name(),
            Column::text("Pod-Selector", POD_SELECTOR, |policy, _| shown_selector(policy).into()),
            Column::age(),
        ],
        ..entry(&NETWORKING, "NetworkPolicy", "networkpolicies", NetworkPolicy)
    }
}

const POD_SELECTOR: &str = "Selects the pods to which this NetworkPolicy object applies.  The array of ingress rules is applied to any pods selected by this field. Multiple network policies can select the same set of pods.  In this case, the ingress rules for each are combined additively. This field is NOT optional and follows standard label selector semantics. An empty podSelector matches all pods in this namespace.";
/// The two directions: the fields of their rules and peers.
const DIRECTIONS: [(&str, &str); 2] = [("ingress", "from"), ("egress", "to")];

fn shown_selector(policy: &Value) -> String {
    let selector = policy.at("spec").at("podSelector");
    if selector::is_empty(selector) { "<none>".into() } else { selector::shown(selector) }
}

struct NetworkPolicy;

impl Lifecycle for NetworkPolicy {
    fn default(&self, policy: &mut Value) {
        let spec = policy.object_mut("spec");
        for (direction, _) in DIRECTIONS {
            for port in spec.list_mut(direction).iter_mut().flat_map(|rule| rule.list_mut("ports")) {
                port.or_insert("protocol", "TCP");
            }
        }
        if spec.list("policyTypes").is_empty() {
            let has_egress = !spec.list("egress").is_empty();
            spec.set(
                "policyTypes",
                if has_egress { json!(["Ingress", "Egress"]) } else { json!(["Ingress"]) },
            );
        }
    }
}

impl Validation for NetworkPolicy {
    fn validate(&self, policy: &Value) -> Errors {
        let mut errors = Errors::default();
        metadata::new(policy, &mut errors);
        check_spec(policy.at("spec"), Values::Checked, &Value::Null, &mut errors);
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Errors {
        let mut errors = Errors::default();
        let values = leniency(old.at("spec"));
        // Twice, as v1.34 does; only the second check tolerates old networks.
        metadata::whole(new, Scope::Namespaced, NameRule::Subdomain, &mut errors);
        check_spec(new.at("spec"), values, &Value::Null, &mut errors);
        metadata::change(new, &mut errors);
        check_spec(new.at("spec"), values, old.at("spec"), &mut errors);
        errors
    }

    fn warnings(&self, new: &Value, _: Option<&Value>) -> Vec<String> {
        let mut warnings = Vec::new();
        let spec = Path::root("spec");
        for (direction, peers) in DIRECTIONS {
            let rules = spec.child(direction);
            for (index, rule) in new.at("spec").list(direction).iter().enumerate() {
                let rule_path = rules.index(index);
                let path = rule_path.child(peers);
                for (index, peer) in rule.list(peers).iter().enumerate() {
                    warn_of_block(peer.at("ipBlock"), &path.index(index).child("ipBlock"), &mut warnings);
                }
            }
        }
        warnings
    }
}

fn warn_of_block(block: &Value, path: &Path<'_>, warnings: &mut Vec<String>) {
    if block.is_null() {
        return;
    }
    address::warn_of_cidr(block.text("cidr"), &path.child("cidr"), warnings);
    let path = path.child("except");
    for (index, except) in block.list("except").iter().enumerate() {
        address::warn_of_cidr(except.as_str().unwrap_or_default(), &path.index(index), warnings);
    }
}

/// Returns the leniency: a policy whose selector was already invalid may keep it.
fn leniency(old: &Value) -> Values {
    let mut errors = Errors::default();
    labels::selector(old.at("podSelector"), Values::Checked, &Path::root("podSelector"), &mut errors);
    if errors.is_empty() { Values::Checked } else { Values::Unchecked }
}

fn check_spec(spec: &Value, values: Values, old: &Value, errors: &mut Errors) {
    let path = Path::root("spec");
    labels::selector(spec.at("podSelector"), values, &path.child("podSelector"), errors);
    let old = networks(old);
    for (direction, peers) in DIRECTIONS {
        let rules_path = path.child(direction);
        for (index, rule) in spec.list(direction).iter().enumerate() {
            let rule_path = rules_path.index(index);
            let ports_path = rule_path.child("ports");
            for (index, port) in rule.list("ports").iter().enumerate() {
                check_port(port, &ports_path.index(index), errors);
            }
            let peers_path = rule_path.child(peers);
            for (index, peer) in rule.list(peers).iter().enumerate() {
                check_peer(peer, values, &old, &peers_path.index(index), errors);
            }
        }
    }
    check_types(spec, &path.child("policyTypes"), errors);
}

fn check_types(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let types = spec.list("policyTypes");
    if types.len() > 2 {
        return errors.invalid(path, types.to_vec(), "may not specify more than two policyTypes");
    }
    for (index, policy_type) in types.iter().enumerate() {
        if policy_type != "Ingress" && policy_type != "Egress" {
            errors.not_supported(&path.index(index), policy_type.clone(), &["Ingress", "Egress"]);
        }
    }
}

fn check_port(rule: &Value, path: &Path<'_>, errors: &mut Errors) {
    optional_choice(rule, "protocol", &["TCP", "UDP", "SCTP"], path, errors);
    let (end, end_path) = (rule.int("endPort"), path.child("endPort"));
    match rule.at("port") {
        Value::Null => {
            if let Some(end) = end {
                errors.invalid(&end_path, end, "may not be specified when `port` is not specified");
            }
        }
        Value::String(name) => {
            if let Some(end) = end {
                errors.invalid(&end_path, end, "may not be specified when `port` is non-numeric");
            }
            add_invalid(words::port_name(name), name, &path.child("port"), errors);
        }
        number => {
            let number = number.as_i64().unwrap_or(0);
            port_number(number, &path.child("port"), errors);
            let Some(end) = end else { return };
            if end < number {
                errors.invalid(&end_path, number, "must be greater than or equal to `port`");
            }
            port_number(end, &end_path, errors);
        }
    }
}

fn check_peer(peer: &Value, values: Values, old: &BTreeSet<&str>, path: &Path<'_>, errors: &mut Errors) {
    let mut kinds = 0;
    for field in ["podSelector", "namespaceSelector"] {
        if peer.has(field) {
            kinds += 1;
            labels::selector(peer.at(field), values, &path.child(field), errors);
        }
    }
    match (peer.has("ipBlock"), kinds) {
        (true, _) => {
            check_block(peer.at("ipBlock"), old, &path.child("ipBlock"), errors);
            if kinds > 0 {
                errors.forbidden(path, "may not specify both ipBlock and another peer");
            }
        }
        (false, 0) => errors.required(path, "must specify a peer"),
        (false, _) => {}
    }
}

/// Returns all networks in a policy.
fn networks(spec: &Value) -> BTreeSet<&str> {
    let peers = DIRECTIONS
        .iter()
        .flat_map(|(direction, peers)| spec.list(direction).iter().flat_map(move |rule| rule.list(peers)));
    let blocks = peers.map(|peer| peer.at("ipBlock"));
    let networks = blocks.flat_map(|block| {
        std::iter::once(block.text("cidr")).chain(block.list("except").iter().filter_map(Value::as_str))
    });
    networks.collect()
}

fn check_block(block: &Value, old: &BTreeSet<&str>, path: &Path<'_>, errors: &mut Errors) {
    let cidr = block.text("cidr");
    if cidr.is_empty() {
        return errors.required(&path.child("cidr"), "");
    }
    let is_old = |network: &str| old.contains(network);
    address::cidr(cidr, is_old, &path.child("cidr"), errors);
    let Some(network) = address::parse_cidr(cidr) else { return };
    let path = path.child("except");
    for (index, except) in block.list("except").iter().enumerate() {
        let (path, except) = (path.index(index), except.as_str().unwrap_or_default());
        address::cidr(except, is_old, &path, errors);
        let Some(inner) = address::parse_cidr(except) else { continue };
        if !address::contains(network, inner.address) || network.prefix >= inner.prefix {
            errors.invalid(&path, except, "must be a strict subset of `cidr`");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::check;

    fn ingress(rule: Value) -> Value {
        json!({"spec": {"podSelector": {}, "ingress": [rule]}})
    }

    #[test]
    fn directions_follow_from_the_rules() {
        let mut policy = json!({"spec": {"podSelector": {}, "egress": [{"ports": [{"port": 1}]}]}});
        NetworkPolicy.default(&mut policy);
        assert_eq!(
            policy["spec"],
            json!({"podSelector": {}, "egress": [{"ports": [{"port": 1, "protocol": "TCP"}]}],
                "policyTypes": ["Ingress", "Egress"]})
        );
    }

    #[test]
    fn a_peer_is_a_block_or_selectors() {
        let path = "spec.ingress[0].from[0]";
        let create = |peer: Value, expected: &[&str]| {
            check::create(&NetworkPolicy, ingress(json!({"from": [peer]})), expected);
        };
        create(json!({"podSelector": {}, "namespaceSelector": {}}), &[]);
        create(json!({}), &[&format!("Required {path}")]);
        create(
            json!({"podSelector": {}, "ipBlock": {"cidr": "10.0.0.0/8"}}),
            &[&format!("Forbidden {path}")],
        );
        create(json!({"ipBlock": {"cidr": "x"}}), &[&format!("Invalid {path}.ipBlock.cidr")]);
        create(
            json!({"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16", "10.0.0.0/8", "11.0.0.0/16"]}}),
            &[&format!("Invalid {path}.ipBlock.except[1]"), &format!("Invalid {path}.ipBlock.except[2]")],
        );
    }

    #[test]
    fn ranges_of_ports_are_numbers_in_order() {
        let path = "Invalid spec.ingress[0].ports[0].endPort";
        for (port, expected) in [
            (json!({"port": 80, "endPort": 90}), &[] as &[&str]),
            (json!({"port": 80, "endPort": 79}), &[path]),
            (json!({"port": "http", "endPort": 79}), &[path]),
            (json!({"endPort": 79}), &[path]),
            (json!({"protocol": "X"}), &["NotSupported spec.ingress[0].ports[0].protocol"]),
        ] {
            check::create(&NetworkPolicy, ingress(json!({"ports": [port]})), expected);
        }
    }
}
