//! The addresses and ports in use, and the ranges of addresses: from services, IPAddresses and ServiceCIDRs.
//!
//! The server's own ranges always exist; ready ServiceCIDRs add others. An address is in use while an IPAddress with its
//! name exists, or a service has it.
//!
//! This is a view of the store, so it includes what other servers have written, as far as this one has seen it. Whether a
//! number is free is decided by the write that claims it ([`Claim`](super::claim::Claim)).

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use serde_json::Value;
use setpoint_clock::Rng;
use setpoint_store::{Record, Resource};

use super::allocator::{addresses_of, ports_of};
use super::range::{self, Family};
use super::span::{Span, Unavailable};
use crate::auth::store_view::View;
use crate::json::Json;
use crate::kinds::networking::servicecidr;
use crate::validation::has_condition;

/// Numbers, and how often each is used.
type Counts = BTreeMap<u128, usize>;

#[derive(Default)]
pub(super) struct InUse {
    /// By path.
    services: BTreeMap<Box<str>, Held>,
    objects: BTreeSet<IpAddr>,
    v4: Counts,
    v6: Counts,
    ports: Counts,
    /// The ranges of ready ServiceCIDRs, by name.
    ranges: BTreeMap<Box<str>, Vec<(Family, Span)>>,
}

/// What a service has.
#[derive(Default)]
struct Held {
    addresses: Vec<IpAddr>,
    ports: Vec<u128>,
}

#[derive(Clone, Copy)]
pub(super) enum Source {
    Services,
    Addresses,
    Ranges,
}

impl View for InUse {
    type Source = Source;

    fn sources() -> Vec<(Source, Resource)> {
        vec![
            (Source::Ranges, Resource::new("networking.k8s.io/servicecidrs")),
            (Source::Addresses, Resource::new("networking.k8s.io/ipaddresses")),
            (Source::Services, Resource::new("services")),
        ]
    }

    fn apply(&mut self, source: Source, record: &Record, is_there: bool) {
        // Validation ensures that what is stored can be decoded.
        let object = || serde_json::from_slice(&record.value).unwrap_or(Value::Null);
        match source {
            Source::Services => self.set_service(&record.key.path, is_there.then(object)),
            Source::Addresses => {
                if let Ok(address) = record.key.path.parse() {
                    self.set_object(address, is_there);
                }
            }
            Source::Ranges => self.set_ranges(&record.key.path, is_there.then(object)),
        }
    }
}

impl InUse {
    fn counts(&self, family: Family) -> &Counts {
        match family {
            Family::V4 => &self.v4,
            Family::V6 => &self.v6,
        }
    }

    fn count(&mut self, address: IpAddr, is_used: bool) {
        let counts = match Family::of(address) {
            Family::V4 => &mut self.v4,
            Family::V6 => &mut self.v6,
        };
        count(counts, range::number(address), is_used);
    }

    fn set_object(&mut self, address: IpAddr, is_there: bool) {
        let has_changed = if is_there { self.objects.insert(address) } else { self.objects.remove(&address) };
        if has_changed {
            self.count(address, is_there);
        }
    }

    fn set_service(&mut self, path: &str, service: Option<Value>) {
        let held = service.map(|service| Held {
            addresses: addresses_of(&service).collect(),
            ports: ports_of(&service).collect(),
        });
        let before = match held {
            Some(held) => {
                held.addresses.iter().for_each(|address| self.count(*address, true));
                held.ports.iter().for_each(|port| count(&mut self.ports, *port, true));
                self.services.insert(path.into(), held)
            }
            None => self.services.remove(path),
        };
        let Held { addresses, ports } = before.unwrap_or_default();
        addresses.into_iter().for_each(|address| self.count(address, false));
        ports.into_iter().for_each(|port| count(&mut self.ports, port, false));
    }

    fn set_ranges(&mut self, name: &str, object: Option<Value>) {
        match object.filter(is_ready) {
            Some(object) => {
                let ranges = servicecidr::cidrs(&object).filter_map(|cidr| range::parse(cidr).ok());
                self.ranges.insert(name.into(), ranges.collect());
            }
            None => _ = self.ranges.remove(name),
        }
    }

    /// Returns the ranges of a family: the server's own first.
    fn ranges_of<'a>(&'a self, own: &'a [(Family, Span)], family: Family) -> impl Iterator<Item = Span> + 'a {
        let of_family = move |(of, span): &(Family, Span)| (*of == family).then_some(*span);
        let others = self.ranges.values().flatten().filter(move |range| !own.contains(range));
        own.iter().filter_map(of_family).chain(others.filter_map(of_family))
    }

    /// Fails if an address cannot be given to a service.
    pub(super) fn check(&self, own: &[(Family, Span)], address: IpAddr) -> Result<(), Unavailable> {
        let (family, number) = (Family::of(address), range::number(address));
        let is_configured = own.iter().any(|(of, _)| *of == family);
        if !is_configured || !self.ranges_of(own, family).any(|range| range.contains(number)) {
            return Err(Unavailable::OutOfRange);
        }
        if self.counts(family).contains_key(&number) { Err(Unavailable::Taken) } else { Ok(()) }
    }

    /// Returns a random free address: from the server's own range while it has any.
    pub(super) fn any_free(
        &self,
        own: &[(Family, Span)],
        family: Family,
        rng: &Rng,
    ) -> Result<IpAddr, Unavailable> {
        if !own.iter().any(|(of, _)| *of == family) {
            return Err(Unavailable::Full);
        }
        let taken = |from| self.counts(family).range(from..).map(|(number, _)| *number);
        let found = self.ranges_of(own, family).find_map(|range| range.any_free(taken, rng));
        found.map(|number| range::address(family, number)).ok_or(Unavailable::Full)
    }

    /// Returns the node ports that services have.
    pub(super) fn ports(&self) -> impl Iterator<Item = u128> {
        self.ports.keys().copied()
    }

    /// Returns the services and their addresses, by path.
    pub(super) fn services(&self) -> impl Iterator<Item = (&str, &[IpAddr])> {
        self.services.iter().map(|(path, held)| (&**path, &*held.addresses))
    }
}

fn count(counts: &mut Counts, number: u128, is_used: bool) {
    let uses = counts.entry(number).or_default();
    *uses = if is_used { *uses + 1 } else { uses.saturating_sub(1) };
    if *uses == 0 {
        counts.remove(&number);
    }
}

/// Whether a ServiceCIDR is ready and not being deleted.
fn is_ready(range: &Value) -> bool {
    !range.at("metadata").has("deletionTimestamp") && has_condition(range.at("status"), "Ready")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn cidr(cidr: &str, status: &str) -> Option<Value> {
        Some(json!({"metadata": {"name": "more"}, "spec": {"cidrs": [cidr]},
            "status": {"conditions": [{"type": "Ready", "status": status}]}}))
    }

    #[test]
    fn a_rejected_address_has_a_reason() {
        let own = [range::parse("10.0.0.0/30").unwrap()];
        let mut in_use = InUse::default();
        assert_eq!(in_use.check(&own, address("10.0.0.1")), Ok(()));
        in_use.set_object(address("10.0.0.1"), true);
        for (text, expected) in [
            ("10.0.0.1", Unavailable::Taken),
            ("10.0.0.3", Unavailable::OutOfRange),
            ("10.0.0.4", Unavailable::OutOfRange),
            ("fd00::1", Unavailable::OutOfRange),
        ] {
            assert_eq!(in_use.check(&own, address(text)), Err(expected), "{text}");
        }
    }

    #[test]
    fn a_range_that_is_ready_adds_to_the_servers_own() {
        let (own, rng) = ([range::parse("10.0.0.0/30").unwrap()], Rng::seeded(1));
        let mut in_use = InUse::default();
        in_use.set_object(address("10.0.0.1"), true);
        in_use.set_object(address("10.0.0.2"), true);
        let any = |in_use: &InUse| in_use.any_free(&own, Family::V4, &rng);
        in_use.set_ranges("more", cidr("10.1.0.0/30", "False"));
        assert_eq!(any(&in_use), Err(Unavailable::Full));
        in_use.set_ranges("more", cidr("10.1.0.0/30", "True"));
        assert!(any(&in_use).unwrap().to_string().starts_with("10.1.0."));
        in_use.set_ranges("more", None);
        assert_eq!(any(&in_use), Err(Unavailable::Full));
        in_use.set_object(address("10.0.0.2"), false);
        assert_eq!(any(&in_use), Ok(address("10.0.0.2")));
    }

    #[test]
    fn an_address_is_free_when_neither_a_service_nor_an_object_has_it() {
        let own = [range::parse("10.0.0.0/24").unwrap()];
        let mut in_use = InUse::default();
        let service = |port: i64| {
            Some(
                json!({"spec": {"type": "NodePort", "clusterIPs": ["10.0.0.9"], "ports": [{"nodePort": port}]}}),
            )
        };
        let is_free = |in_use: &InUse| in_use.check(&own, address("10.0.0.9")).is_ok();
        let ports = |in_use: &InUse| in_use.ports().collect::<Vec<_>>();
        in_use.set_service("ns/a", service(30001));
        in_use.set_object(address("10.0.0.9"), true);
        in_use.set_object(address("10.0.0.9"), true);
        in_use.set_service("ns/a", service(30002));
        assert_eq!(ports(&in_use), [30002]);
        assert_eq!(in_use.services().collect::<Vec<_>>(), [("ns/a", &[address("10.0.0.9")][..])]);
        in_use.set_service("ns/a", None);
        assert!(!is_free(&in_use) && ports(&in_use).is_empty());
        in_use.set_object(address("10.0.0.9"), false);
        assert!(is_free(&in_use));
    }
}
