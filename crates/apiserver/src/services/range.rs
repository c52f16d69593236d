//! The service IP ranges: one, or one per family.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde_json::Value;

use super::span::Span;
use crate::server::StartError;

/// An IP family, with its API name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Family {
    V4,
    V6,
}

impl Family {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        }
    }

    pub(super) fn named(name: &Value) -> Option<Self> {
        [Self::V4, Self::V6].into_iter().find(|family| name == family.name())
    }

    pub(super) const fn other(self) -> Self {
        match self {
            Self::V4 => Self::V6,
            Self::V6 => Self::V4,
        }
    }

    pub(super) fn of(address: IpAddr) -> Self {
        if address.is_ipv4() { Self::V4 } else { Self::V6 }
    }
}

pub(super) fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u32::from(address).into(),
        IpAddr::V6(address) => address.into(),
    }
}

pub(super) fn address(family: Family, number: u128) -> IpAddr {
    match family {
        Family::V4 => Ipv4Addr::from(number as u32).into(),
        Family::V6 => Ipv6Addr::from(number).into(),
    }
}

/// Parses the server's ranges: `10.0.0.0/16` or `10.0.0.0/16,fd00::/112`. The first one's family is the default for
/// services.
pub(super) fn parse_all(cidrs: &str) -> Result<Vec<(Family, Span)>, StartError> {
    let failed = |problem: &str| StartError::ServiceRange { cidr: cidrs.into(), problem: problem.into() };
    let ranges = cidrs.split(',').map(parse).collect::<Result<Vec<_>, _>>()?;
    match ranges.as_slice() {
        [_] => Ok(ranges),
        [(first, _), (second, _)] if first != second => Ok(ranges),
        [_, _] => Err(failed("two ranges must be of different IP families")),
        _ => Err(failed("expected one range, or two")),
    }
}

/// Parses a range such as `10.0.0.0/16` into its family and the addresses to allocate.
pub(super) fn parse(cidr: &str) -> Result<(Family, Span), StartError> {
    let failed = |problem: &str| StartError::ServiceRange { cidr: cidr.into(), problem: problem.into() };
    let (base, prefix) = cidr.split_once('/').ok_or_else(|| failed("expected ADDRESS/PREFIX"))?;
    let base: IpAddr = base.parse().map_err(|_| failed("the address is not valid"))?;
    let prefix: u32 = prefix.parse().map_err(|_| failed("the prefix length is not a number"))?;
    let family = Family::of(base);
    let bits: u32 = if family == Family::V4 { 32 } else { 128 };
    // Fewer than four addresses leave nothing to allocate; more than 2^64 are not supported.
    let host_bits = bits.checked_sub(prefix).filter(|host| (2..=64).contains(host));
    let host_bits = host_bits.ok_or_else(|| failed("the prefix length is out of range"))?;
    let size = 1_u128 << host_bits;
    let network = number(base) & !(size - 1);
    // Excludes the network address and, for IPv4, the broadcast address.
    let last = network + (size - if family == Family::V4 { 2 } else { 1 });
    let span = Span { first: network + 1, last, reserved_count: reserved_count(size, 16, 256, 16) };
    Ok((family, span))
}

/// Returns how many of the first numbers to avoid: a fraction of all, within bounds, if there are enough.
pub(super) fn reserved_count(size: u128, least: u128, most: u128, share: u128) -> u128 {
    if size <= least { 0 } else { (size / share).clamp(least, most) }
}

/// Returns the first address of the first range: the API server's own.
pub fn first_address(cidrs: &str) -> Option<IpAddr> {
    let (family, span) = *parse_all(cidrs).ok()?.first()?;
    Some(address(family, span.first))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_excludes_its_network_and_broadcast_address() {
        let (family, span) = parse("10.0.0.0/16").unwrap();
        assert_eq!(family, Family::V4);
        let has = |text: &str| span.contains(number(text.parse().unwrap()));
        assert!(has("10.0.0.1") && has("10.0.255.254"));
        assert!(!has("10.0.0.0") && !has("10.0.255.255") && !has("10.1.0.1"));
        assert_eq!(first_address("10.0.0.0/16"), Some("10.0.0.1".parse().unwrap()));
        assert_eq!(first_address("fd00::/112"), Some("fd00::1".parse().unwrap()));
    }

    #[test]
    fn two_ranges_are_of_different_families() {
        let families =
            |cidrs: &str| parse_all(cidrs).map(|ranges| ranges.iter().map(|range| range.0).collect());
        assert!(
            matches!(families("10.0.0.0/16,fd00::/112"), Ok(ref both) if *both == vec![Family::V4, Family::V6])
        );
        assert_eq!(first_address("fd00::/112,10.0.0.0/16"), Some("fd00::1".parse().unwrap()));
        for cidrs in ["10.0.0.0/16,10.1.0.0/16", "10.0.0.0/16,", "10.0.0.0/16,fd00::/112,10.1.0.0/16", ""] {
            let found: Result<Vec<Family>, _> = families(cidrs);
            assert!(found.is_err(), "{cidrs}");
        }
    }

    #[test]
    fn a_bad_range_is_rejected_with_the_reason() {
        for cidr in ["10.0.0.0", "x/16", "10.0.0.0/x", "10.0.0.0/31", "10.0.0.0/33", "fd00::/8"] {
            assert!(parse(cidr).is_err(), "{cidr}");
        }
    }
}
