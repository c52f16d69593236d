//! The contents of Endpoints, in canonical form. Pure.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::slice::{Port, TargetRef};
use crate::workload::encoding::{Annotated, null_is_empty};

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Endpoints {
    pub(crate) metadata: Annotated,
    #[serde(deserialize_with = "null_is_empty")]
    pub(crate) subsets: Vec<Subset>,
}

setpoint::view!(Endpoints of k8s_openapi::api::core::v1::Endpoints);

/// Addresses with the same ports.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Subset {
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_is_empty")]
    pub(crate) addresses: Vec<Address>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_is_empty")]
    pub(crate) not_ready_addresses: Vec<Address>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_is_empty")]
    pub(crate) ports: Vec<SubsetPort>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Address {
    pub(crate) ip: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) hostname: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) node_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) target_ref: Option<TargetRef>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct SubsetPort {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) name: String,
    pub(crate) port: i32,
    pub(crate) protocol: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) app_protocol: Option<String>,
}

impl From<&SubsetPort> for Port {
    fn from(port: &SubsetPort) -> Self {
        let SubsetPort { name, port, protocol, app_protocol } = port.clone();
        Self { name: Some(name), port: Some(port), protocol: Some(protocol), app_protocol }
    }
}

/// Addresses are equal if IP and target are.
type AddressKey = (String, Option<String>);

impl Address {
    fn key(&self) -> AddressKey {
        (self.ip.clone(), self.target_ref.as_ref().map(|target| target.uid.clone()))
    }
}

/// Returns the canonical form: sorted, as few subsets as possible, no duplicate address per port. An address that is
/// both ready and not ready for a port is not ready.
pub(crate) fn repack(subsets: &[Subset]) -> Vec<Subset> {
    let mut addresses: BTreeMap<AddressKey, &Address> = BTreeMap::new();
    // `None` means without ports.
    let mut by_port: BTreeMap<Option<&SubsetPort>, BTreeMap<AddressKey, bool>> = BTreeMap::new();
    for subset in subsets {
        let ready = subset.addresses.iter().map(|address| (address, true));
        for (address, ready) in ready.chain(subset.not_ready_addresses.iter().map(|address| (address, false)))
        {
            let key = address.key();
            addresses.entry(key.clone()).or_insert(address);
            for port in ports(subset) {
                let known = by_port.entry(port).or_default().entry(key.clone()).or_insert(ready);
                *known &= ready;
            }
        }
    }
    let mut by_addresses: BTreeMap<BTreeMap<AddressKey, bool>, BTreeSet<SubsetPort>> = BTreeMap::new();
    for (port, offering) in by_port {
        by_addresses.entry(offering).or_default().extend(port.cloned());
    }
    let mut packed: Vec<Subset> =
        by_addresses.into_iter().map(|(offering, ports)| subset(&addresses, offering, ports)).collect();
    packed.sort_by(|one, other| one.ports.cmp(&other.ports));
    packed
}

fn ports(subset: &Subset) -> Vec<Option<&SubsetPort>> {
    if subset.ports.is_empty() { vec![None] } else { subset.ports.iter().map(Some).collect() }
}

fn subset(
    addresses: &BTreeMap<AddressKey, &Address>,
    offering: BTreeMap<AddressKey, bool>,
    ports: BTreeSet<SubsetPort>,
) -> Subset {
    let mut subset = Subset { ports: ports.into_iter().collect(), ..Subset::default() };
    for (key, ready) in offering {
        let Some(address) = addresses.get(&key) else { continue };
        let list = if ready { &mut subset.addresses } else { &mut subset.not_ready_addresses };
        list.push((*address).clone());
    }
    subset
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port(name: &str, port: i32) -> SubsetPort {
        SubsetPort { name: name.into(), port, protocol: "TCP".into(), app_protocol: None }
    }

    fn ips(names: &[&str]) -> Vec<Address> {
        names.iter().map(|ip| Address { ip: (*ip).to_owned(), ..Address::default() }).collect()
    }

    fn subset(ready: &[&str], not_ready: &[&str], ports: &[&SubsetPort]) -> Subset {
        Subset {
            addresses: ips(ready),
            not_ready_addresses: ips(not_ready),
            ports: ports.iter().map(|port| (*port).clone()).collect(),
        }
    }

    #[test]
    fn the_same_addresses_with_several_ports_are_one_subset() {
        let (http, dns) = (port("http", 80), port("dns", 53));
        let spread = [
            subset(&["b"], &[], &[&http]),
            subset(&["a"], &["c"], &[&http]),
            subset(&["a", "b"], &["c"], &[&dns]),
        ];
        assert_eq!(repack(&spread), [subset(&["a", "b"], &["c"], &[&dns, &http])]);
    }

    #[test]
    fn different_addresses_stay_apart_and_not_ready_wins() {
        let (http, dns) = (port("http", 80), port("dns", 53));
        let spread = [subset(&["a"], &[], &[&http, &dns]), subset(&[], &["a"], &[&http])];
        assert_eq!(repack(&spread), [subset(&["a"], &[], &[&dns]), subset(&[], &["a"], &[&http])]);
    }

    #[test]
    fn addresses_without_ports_are_kept() {
        assert_eq!(repack(&[subset(&["b", "a", "a"], &[], &[])]), [subset(&["a", "b"], &[], &[])]);
    }
}
