//! IP addresses and CIDRs.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{Outcome, failed};
use crate::value::Val;

pub(super) fn call(function: &str, args: &[Val]) -> Option<Outcome> {
    Some(match (function, args) {
        ("ip", [Val::String(text)]) => parse_ip(text).map(Val::Ip).map_err(failed),
        ("isIP", [Val::String(text)]) => Ok(Val::Bool(parse_ip(text).is_ok())),
        ("ip.isCanonical", [Val::String(text)]) => {
            parse_ip(text).map(|address| Val::Bool(address.to_string() == **text)).map_err(failed)
        }
        ("family", [Val::Ip(address)]) => Ok(Val::Int(if address.is_ipv4() { 4 } else { 6 })),
        ("isUnspecified", [Val::Ip(address)]) => Ok(Val::Bool(address.is_unspecified())),
        ("isLoopback", [Val::Ip(address)]) => Ok(Val::Bool(address.is_loopback())),
        ("isLinkLocalMulticast", [Val::Ip(address)]) => Ok(Val::Bool(match address {
            IpAddr::V4(address) => address.octets()[..3] == [224, 0, 0],
            IpAddr::V6(address) => address.segments()[0] & 0xff0f == 0xff02,
        })),
        ("isLinkLocalUnicast", [Val::Ip(address)]) => Ok(Val::Bool(is_link_local(*address))),
        ("isGlobalUnicast", [Val::Ip(address)]) => Ok(Val::Bool(
            !(address.is_unspecified()
                || address.is_loopback()
                || address.is_multicast()
                || is_link_local(*address))
                && *address != IpAddr::V4(Ipv4Addr::BROADCAST),
        )),
        ("cidr", [Val::String(text)]) => {
            parse_cidr(text).map(|(address, bits)| Val::Cidr(address, bits)).map_err(failed)
        }
        ("isCIDR", [Val::String(text)]) => Ok(Val::Bool(parse_cidr(text).is_ok())),
        ("containsIP", [Val::Cidr(range, bits), Val::Ip(address)]) => {
            Ok(Val::Bool(contains(*range, *bits, *address)))
        }
        ("containsIP", [Val::Cidr(range, bits), Val::String(text)]) => {
            parse_ip(text).map(|address| Val::Bool(contains(*range, *bits, address))).map_err(failed)
        }
        ("containsCIDR", [Val::Cidr(range, bits), Val::Cidr(other, other_bits)]) => {
            Ok(Val::Bool(bits <= other_bits && contains(*range, *bits, *other)))
        }
        ("containsCIDR", [Val::Cidr(range, bits), Val::String(text)]) => parse_cidr(text)
            .map(|(other, other_bits)| Val::Bool(*bits <= other_bits && contains(*range, *bits, other)))
            .map_err(failed),
        ("ip", [Val::Cidr(address, _)]) => Ok(Val::Ip(*address)),
        ("masked", [Val::Cidr(address, bits)]) => Ok(Val::Cidr(masked(*address, *bits), *bits)),
        ("prefixLength", [Val::Cidr(_, bits)]) => Ok(Val::Int((*bits).into())),
        _ => return None,
    })
}

fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.segments()[0] & 0xffc0 == 0xfe80,
    }
}

fn parse_ip(text: &str) -> Result<IpAddr, String> {
    let invalid = || {
        format!(
            "IP Address {text:?} parse error during conversion from string: ParseAddr({text:?}): unable to parse IP"
        )
    };
    if text.contains('%') {
        return Err(format!("IP address with zone value {text:?} is not allowed"));
    }
    match text.parse::<IpAddr>().map_err(|_| invalid())? {
        IpAddr::V6(address) if address.to_ipv4_mapped().is_some() => {
            Err(format!("IPv4-mapped IPv6 address {text:?} is not allowed"))
        }
        address => Ok(address),
    }
}

fn parse_cidr(text: &str) -> Result<(IpAddr, u8), String> {
    let invalid = || {
        format!(
            "network address parse error during conversion from string: network address parse error during conversion from string: netip.ParsePrefix({text:?}): no '/'"
        )
    };
    let (address, bits) = text.split_once('/').ok_or_else(invalid)?;
    let address = parse_ip(address)?;
    let most = if address.is_ipv4() { 32 } else { 128 };
    let is_plain = bits == "0" || !bits.starts_with(['0', '+']);
    let bits = bits.parse::<u8>().ok().filter(|bits| *bits <= most && is_plain).ok_or_else(invalid)?;
    Ok((address, bits))
}

fn masked(address: IpAddr, bits: u8) -> IpAddr {
    match address {
        IpAddr::V4(address) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0);
            Ipv4Addr::from(u32::from(address) & mask).into()
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0);
            Ipv6Addr::from(u128::from(address) & mask).into()
        }
    }
}

fn contains(range: IpAddr, bits: u8, address: IpAddr) -> bool {
    range.is_ipv4() == address.is_ipv4() && masked(address, bits) == masked(range, bits)
}
