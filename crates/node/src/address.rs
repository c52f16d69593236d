//! Pod addresses: from the node's pod CIDRs, or else from one range for the whole fleet.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// 10.128.0.0/9: eight million addresses, apart from the default Service range 10.0.0.0/16.
const FLEET: Range =
    Range { first: u32::from_be_bytes([10, 128, 0, 1]), last: u32::from_be_bytes([10, 255, 255, 254]) };

/// An inclusive range of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Range {
    first: u32,
    last: u32,
}

impl Range {
    fn has(self, address: u32) -> bool {
        (self.first..=self.last).contains(&address)
    }
}

/// A node's `podCIDRs`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ranges {
    v4: Option<Range>,
    v6: Option<u128>,
    /// Whether the first CIDR is IPv6.
    prefers_v6: bool,
}

impl Ranges {
    /// Whether an address can be that of a pod on a node with these ranges.
    pub(crate) fn has(&self, address: IpAddr) -> bool {
        match address {
            IpAddr::V4(v4) => self.v4.into_iter().chain([FLEET]).any(|range| range.has(v4.into())),
            // The last 32 bits are the number of an IPv4 address.
            IpAddr::V6(v6) => self.v6.is_some_and(|base| u128::from(v6) >> 32 == base >> 32),
        }
    }

    pub(crate) fn of(cidrs: &[Box<str>]) -> Self {
        let mut ranges = Self::default();
        for (index, cidr) in cidrs.iter().enumerate() {
            match parsed(cidr) {
                Some((IpAddr::V4(base), bits @ 1..=30)) => {
                    let (base, size) = (u32::from(base), 1u32 << (32 - bits));
                    ranges.v4 = Some(Range { first: base + 1, last: base + (size - 2) });
                }
                Some((IpAddr::V6(base), 0..=96)) => {
                    ranges.v6 = Some(u128::from(base));
                    ranges.prefers_v6 = index == 0;
                }
                _ => {}
            }
        }
        ranges
    }
}

fn parsed(cidr: &str) -> Option<(IpAddr, u8)> {
    let (base, bits) = cidr.split_once('/')?;
    Some((base.parse().ok()?, bits.parse().ok()?))
}

/// Allocated addresses. Bounded by the number of pods.
#[derive(Debug, Default)]
pub(crate) struct Addresses {
    by_uid: BTreeMap<Box<str>, u32>,
    taken: BTreeSet<u32>,
    /// The last allocated address of each range, by its first address. Bounded by the number of nodes.
    last: BTreeMap<u32, u32>,
}

impl Addresses {
    /// Returns the addresses of a pod, primary first: those in its status, those allocated before, or new ones.
    pub(crate) fn of(&mut self, uid: &str, shown: Option<&str>, ranges: Ranges) -> Vec<String> {
        let number = self.number(uid, shown, ranges);
        let v4 = Ipv4Addr::from(number).to_string();
        // The IPv6 address reuses the number of the IPv4 address, which is unique.
        match ranges.v6.map(|base| Ipv6Addr::from(base | u128::from(number)).to_string()) {
            None => vec![v4],
            Some(v6) if ranges.v4.is_none() => vec![v6],
            Some(v6) if ranges.prefers_v6 => vec![v6, v4],
            Some(v6) => vec![v4, v6],
        }
    }

    fn number(&mut self, uid: &str, shown: Option<&str>, ranges: Ranges) -> u32 {
        if let Some(given) = self.by_uid.get(uid) {
            return *given;
        }
        let shown = shown.and_then(|text| text.parse::<IpAddr>().ok()).map(|shown| match shown {
            IpAddr::V4(v4) => u32::from(v4),
            IpAddr::V6(v6) => u128::from(v6) as u32,
        });
        let free = || ranges.v4.and_then(|range| self.next_free(range));
        let number = shown.or_else(free);
        let number = number.or_else(|| self.next_free(FLEET)).unwrap_or(FLEET.last);
        self.by_uid.insert(uid.into(), number);
        self.taken.insert(number);
        number
    }

    /// Frees the address of a deleted pod.
    pub(crate) fn release(&mut self, uid: &str) {
        if let Some(address) = self.by_uid.remove(uid) {
            self.taken.remove(&address);
        }
    }

    /// Returns the next free address of a range. `None` if all are taken.
    fn next_free(&mut self, range: Range) -> Option<u32> {
        let last = self.last.entry(range.first).or_insert(range.last);
        for _ in range.first..=range.last {
            *last = if *last < range.last { *last + 1 } else { range.first };
            if !self.taken.contains(last) {
                return Some(*last);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(addresses: &mut Addresses, uid: &str, shown: Option<&str>) -> String {
        addresses.of(uid, shown, Ranges::default()).remove(0)
    }

    #[test]
    fn a_pod_keeps_its_address_and_no_two_share_one() {
        let mut addresses = Addresses::default();
        let first = one(&mut addresses, "a", None);
        assert_eq!(first, "10.128.0.1");
        assert_eq!(one(&mut addresses, "a", None), first);
        assert_ne!(one(&mut addresses, "b", None), first);
        assert_eq!(one(&mut addresses, "c", Some("10.128.0.3")), "10.128.0.3");
        assert_eq!(one(&mut addresses, "d", None), "10.128.0.4");
        addresses.release("a");
        assert_eq!(one(&mut addresses, "e", None), "10.128.0.5");
    }

    #[test]
    fn the_ranges_of_a_node_give_its_pods_addresses_of_both_versions() {
        let check = |cidrs: &[&str], expected: &[&str]| {
            let cidrs: Vec<Box<str>> = cidrs.iter().map(|cidr| (*cidr).into()).collect();
            let given = Addresses::default().of("a", None, Ranges::of(&cidrs));
            assert_eq!(given, expected, "{cidrs:?}");
        };
        check(&[], &["10.128.0.1"]);
        check(&["10.244.1.0/24"], &["10.244.1.1"]);
        check(&["10.244.1.0/24", "fd00:1::/64"], &["10.244.1.1", "fd00:1::af4:101"]);
        check(&["fd00:1::/64", "10.244.1.0/24"], &["fd00:1::af4:101", "10.244.1.1"]);
        check(&["fd00:1::/64"], &["fd00:1::a80:1"]);
        check(&["nonsense"], &["10.128.0.1"]);
    }

    #[test]
    fn a_full_range_is_followed_by_that_of_the_fleet() {
        let mut addresses = Addresses::default();
        let ranges = Ranges::of(&["10.244.1.0/30".into()]);
        let given: Vec<String> =
            ["a", "b", "c"].iter().map(|uid| addresses.of(uid, None, ranges).remove(0)).collect();
        assert_eq!(given, ["10.244.1.1", "10.244.1.2", "10.128.0.1"]);
    }

    #[test]
    fn an_address_of_a_pod_is_in_the_ranges_of_its_node() {
        let ranges = Ranges::of(&["10.244.1.0/24".into(), "fd00:1::/64".into()]);
        for (address, expected) in [
            ("10.244.1.7", true),
            ("10.96.2.7", false),
            ("10.128.0.1", true),
            ("fd00:1::af4:101", true),
            ("fd00:2::af4:101", false),
            ("8.8.8.8", false),
            ("2001:db8::1", false),
        ] {
            assert_eq!(ranges.has(address.parse().unwrap()), expected, "{address}");
        }
        assert!(!Ranges::default().has("fd00:1::1".parse().unwrap()));
    }
}
