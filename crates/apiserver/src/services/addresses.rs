//! Cluster IPs: their ranges, and which are in use.
//!
//! The server's own range always exists; ready ServiceCIDRs add others. An address is in use once it is promised to a
//! service, or an IPAddress with its name exists.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use serde_json::Value;
use setpoint_clock::Rng;

use super::pool::{Span, Unavailable};
use super::range::{self, Family};
use crate::json::Json;
use crate::kinds::networking::servicecidr;
use crate::validation::has_condition;

/// The addresses of each configured family, the primary one first.
#[derive(Debug)]
pub(super) struct Stacks(Vec<Addresses>);

impl Stacks {
    pub(super) fn new(ranges: &[(Family, Span)]) -> Self {
        Self(ranges.iter().map(|(family, span)| Addresses::new(*family, *span)).collect())
    }

    fn of(&mut self, family: Family) -> Option<&mut Addresses> {
        self.0.iter_mut().find(|addresses| addresses.family == family)
    }

    pub(super) fn take(&mut self, address: IpAddr) -> Result<(), Unavailable> {
        self.of(Family::of(address)).ok_or(Unavailable::OutOfRange)?.take(address)
    }

    /// Allocates a random address.
    pub(super) fn take_any(&mut self, family: Family, rng: &Rng) -> Result<IpAddr, Unavailable> {
        self.of(family).ok_or(Unavailable::Full)?.take_any(rng)
    }

    /// Marks an address as in use, whatever its range.
    pub(super) fn note(&mut self, address: IpAddr) {
        if let Some(addresses) = self.of(Family::of(address)) {
            addresses.note(address);
        }
    }

    pub(super) fn release(&mut self, address: IpAddr) {
        if let Some(addresses) = self.of(Family::of(address)) {
            addresses.release(address);
        }
    }

    /// Applies the current state of a ServiceCIDR.
    pub(super) fn note_ranges(&mut self, object: &Value) {
        self.0.iter_mut().for_each(|addresses| addresses.note_ranges(object));
    }

    pub(super) fn forget_ranges(&mut self, object: &Value) {
        self.0.iter_mut().for_each(|addresses| addresses.forget_ranges(object));
    }
}

/// The addresses of one family.
#[derive(Debug)]
struct Addresses {
    family: Family,
    own: Span,
    /// The ranges of ServiceCIDRs, by object name.
    others: BTreeMap<String, Vec<Span>>,
    taken: BTreeSet<u128>,
}

impl Addresses {
    fn new(family: Family, own: Span) -> Self {
        Self { family, own, others: BTreeMap::new(), taken: BTreeSet::new() }
    }

    fn ranges(&self) -> impl Iterator<Item = Span> {
        std::iter::once(self.own).chain(self.others.values().flatten().copied())
    }

    fn take(&mut self, address: IpAddr) -> Result<(), Unavailable> {
        let number = range::number(address);
        if Family::of(address) != self.family {
            return Err(Unavailable::OutOfRange);
        }
        if !self.ranges().any(|range| range.contains(number)) {
            return Err(Unavailable::OutOfRange);
        }
        if self.taken.insert(number) { Ok(()) } else { Err(Unavailable::Taken) }
    }

    /// Allocates a random address: from the server's own range while it has any.
    fn take_any(&mut self, rng: &Rng) -> Result<IpAddr, Unavailable> {
        let found = self.ranges().find_map(|range| range.any_free(&self.taken, rng));
        let number = found.ok_or(Unavailable::Full)?;
        self.taken.insert(number);
        Ok(range::address(self.family, number))
    }

    /// Marks an address as in use, whatever its range.
    fn note(&mut self, address: IpAddr) {
        if Family::of(address) == self.family {
            self.taken.insert(range::number(address));
        }
    }

    fn release(&mut self, address: IpAddr) {
        if Family::of(address) == self.family {
            self.taken.remove(&range::number(address));
        }
    }

    /// Applies the current state of a ServiceCIDR: its ranges are used while it is ready and not being deleted.
    fn note_ranges(&mut self, object: &Value) {
        let name = object.at("metadata").text("name").to_owned();
        if !is_ready(object) {
            return self.forget_ranges(object);
        }
        let ranges = servicecidr::cidrs(object).filter_map(|cidr| range::parse(cidr).ok());
        let ranges = ranges.filter(|(family, _)| *family == self.family).map(|(_, span)| span);
        let ranges = ranges.filter(|span| *span != self.own).collect();
        self.others.insert(name, ranges);
    }

    fn forget_ranges(&mut self, object: &Value) {
        self.others.remove(object.at("metadata").text("name"));
    }
}

fn is_ready(range: &Value) -> bool {
    !range.at("metadata").has("deletionTimestamp") && has_condition(range.at("status"), "Ready")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn addresses(cidr: &str) -> Addresses {
        let (family, span) = range::parse(cidr).unwrap();
        Addresses::new(family, span)
    }

    fn cidr(cidr: &str, status: &str) -> Value {
        json!({"metadata": {"name": "more"}, "spec": {"cidrs": [cidr]},
            "status": {"conditions": [{"type": "Ready", "status": status}]}})
    }

    #[test]
    fn a_rejected_address_has_a_reason() {
        let mut addresses = addresses("10.0.0.0/30");
        let mut take = |text: &str| addresses.take(text.parse().unwrap());
        assert_eq!(take("10.0.0.1"), Ok(()));
        assert_eq!(take("10.0.0.1"), Err(Unavailable::Taken));
        assert_eq!(take("10.0.0.3"), Err(Unavailable::OutOfRange));
        assert_eq!(take("10.0.0.4"), Err(Unavailable::OutOfRange));
        assert_eq!(take("fd00::1"), Err(Unavailable::OutOfRange));
    }

    #[test]
    fn a_range_that_is_ready_adds_to_the_servers_own() {
        let rng = Rng::seeded(1);
        let mut addresses = addresses("10.0.0.0/30");
        addresses.note("10.0.0.1".parse().unwrap());
        addresses.note("10.0.0.2".parse().unwrap());
        addresses.note_ranges(&cidr("10.1.0.0/30", "False"));
        assert_eq!(addresses.take_any(&rng), Err(Unavailable::Full));
        addresses.note_ranges(&cidr("10.1.0.0/30", "True"));
        let other = addresses.take_any(&rng).unwrap();
        assert!(other.to_string().starts_with("10.1.0."));
        addresses.forget_ranges(&cidr("10.1.0.0/30", "True"));
        assert_eq!(addresses.take_any(&rng), Err(Unavailable::Full));
        addresses.release("10.0.0.2".parse().unwrap());
        assert_eq!(addresses.take_any(&rng), Ok("10.0.0.2".parse().unwrap()));
    }
}
