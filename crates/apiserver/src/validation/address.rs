//! Validates IP addresses and CIDRs.
//!
//! As in v1.34, leading zeros are read as decimal, and an IPv4-mapped IPv6 address is IPv4.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::field::{Errors, Path};

const BAD_IP: &str = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
const BAD_CIDR: &str = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";

/// A network: its first address and its prefix length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    pub address: IpAddr,
    pub prefix: u8,
}

pub fn parse_ip(text: &str) -> Option<IpAddr> {
    if text.contains(':') {
        text.parse::<Ipv6Addr>().ok().map(unmapped)
    } else {
        parse_v4(text).map(IpAddr::V4)
    }
}

fn unmapped(address: Ipv6Addr) -> IpAddr {
    address.to_ipv4_mapped().map_or(IpAddr::V6(address), IpAddr::V4)
}

fn parse_v4(text: &str) -> Option<Ipv4Addr> {
    let mut octets = [0_u8; 4];
    let mut parts = text.split('.');
    for octet in &mut octets {
        let digits =
            parts.next().filter(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()))?;
        let significant = digits.trim_start_matches('0');
        *octet = if significant.is_empty() { 0 } else { significant.parse().ok()? };
    }
    parts.next().is_none().then_some(octets.into())
}

/// Parses an address with its prefix length, as in `10.1.2.3/16`.
fn parse_cidr_parts(text: &str) -> Option<(IpAddr, u8)> {
    let (address, prefix) = text.split_once('/')?;
    let is_v6 = address.contains(':');
    let address = if is_v6 { IpAddr::V6(address.parse().ok()?) } else { IpAddr::V4(parse_v4(address)?) };
    let digits = !prefix.is_empty() && prefix.bytes().all(|b| b.is_ascii_digit());
    let prefix: u8 = prefix.parse().ok().filter(|_| digits)?;
    (prefix <= if is_v6 { 128 } else { 32 }).then_some((address, prefix))
}

pub fn parse_cidr(text: &str) -> Option<Network> {
    let (address, prefix) = parse_cidr_parts(text)?;
    Some(Network { address: masked(address, prefix), prefix })
}

fn masked(address: IpAddr, prefix: u8) -> IpAddr {
    match address {
        IpAddr::V4(address) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or(0);
            Ipv4Addr::from(u32::from(address) & mask).into()
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(prefix)).unwrap_or(0);
            Ipv6Addr::from(u128::from(address) & mask).into()
        }
    }
}

/// Validates an address; values from the old object are tolerated.
pub fn ip(text: &str, is_old: impl FnOnce(&str) -> bool, path: &Path<'_>, errors: &mut Errors) {
    if parse_ip(text).is_none() && !is_old(text) {
        errors.invalid(path, text, BAD_IP);
    }
}

/// Validates a CIDR; values from the old object are tolerated.
pub fn cidr(text: &str, is_old: impl FnOnce(&str) -> bool, path: &Path<'_>, errors: &mut Errors) {
    if parse_cidr_parts(text).is_none() && !is_old(text) {
        errors.invalid(path, text, BAD_CIDR);
    }
}

/// Returns what is wrong with an address that must be in canonical form.
pub fn strict_ip_messages(text: &str) -> Vec<String> {
    let Some(address) = parse_ip(text) else { return vec![BAD_IP.into()] };
    let strict = text.parse::<IpAddr>();
    let complaint = match strict {
        Err(_) => "must not have leading 0s".into(),
        Ok(IpAddr::V6(strict)) if strict.to_ipv4_mapped().is_some() => {
            "must not be an IPv4-mapped IPv6 address".into()
        }
        Ok(_) if address.to_string() != text => format!("must be in canonical form (\"{address}\")"),
        Ok(_) => return Vec::new(),
    };
    vec![complaint]
}

/// Validates an address that must be in canonical form.
pub fn strict_ip(text: &str, path: &Path<'_>, errors: &mut Errors) {
    super::add_invalid(strict_ip_messages(text), text, path, errors);
}

/// Validates a CIDR that must be in canonical form.
pub fn strict_cidr(text: &str, path: &Path<'_>, errors: &mut Errors) {
    let (Some((address, prefix)), Some(network)) = (parse_cidr_parts(text), parse_cidr(text)) else {
        return errors.invalid(path, text, BAD_CIDR);
    };
    let (written_address, written_prefix) = text.split_once('/').unwrap_or_default();
    let strict = written_address.parse::<IpAddr>();
    let leading_zero = written_prefix.len() > 1 && written_prefix.starts_with('0');
    let canonical = format!("{}/{prefix}", network.address);
    if strict.is_err() || leading_zero {
        errors.invalid(path, text, "must not have leading 0s in IP or prefix length");
    } else if matches!(strict, Ok(IpAddr::V6(address)) if address.to_ipv4_mapped().is_some()) {
        errors.invalid(path, text, "must not have an IPv4-mapped IPv6 address");
    } else if address != network.address {
        errors.invalid(path, text, "must not have bits set beyond the prefix length");
    } else if canonical != text {
        errors.invalid(path, text, format!("must be in canonical form ({canonical:?})"));
    }
}

/// Validates an address with its prefix length, both in canonical form.
pub fn interface(text: &str, path: &Path<'_>, errors: &mut Errors) {
    let Some((address, prefix)) = parse_cidr_parts(text) else {
        let detail = "must be a valid address in CIDR form, (e.g. 10.9.8.7/24 or 2001:db8::1/64)";
        return errors.invalid(path, text, detail);
    };
    let (address, prefix) = match address {
        // An IPv4-mapped IPv6 address is IPv4.
        IpAddr::V6(inner) if inner.to_ipv4_mapped().is_some() => (unmapped(inner), prefix.saturating_sub(96)),
        address => (address, prefix),
    };
    let canonical = format!("{address}/{prefix}");
    if canonical != text {
        errors.invalid(path, text, format!("must be in canonical form ({canonical:?})"));
    }
}

/// Whether a network contains an address.
pub fn contains(network: Network, address: IpAddr) -> bool {
    network.address.is_ipv4() == address.is_ipv4() && masked(address, network.prefix) == network.address
}

/// Whether the addresses include both families; `None` if one is invalid.
pub fn is_dual_stack<'a>(addresses: impl IntoIterator<Item = &'a str>) -> Option<bool> {
    let families: Option<Vec<bool>> =
        addresses.into_iter().map(|text| Some(parse_ip(text)?.is_ipv6())).collect();
    let families = families?;
    Some(families.contains(&true) && families.contains(&false))
}

/// Whether the networks include both families; `None` if one is invalid.
pub fn is_dual_stack_networks<'a>(networks: impl IntoIterator<Item = &'a str>) -> Option<bool> {
    let families: Option<Vec<bool>> =
        networks.into_iter().map(|text| Some(parse_cidr(text)?.address.is_ipv6())).collect();
    let families = families?;
    Some(families.contains(&true) && families.contains(&false))
}

/// Validates an address that traffic can be sent to.
pub fn endpoint_ip(text: &str, path: &Path<'_>, errors: &mut Errors) {
    let Some(address) = parse_ip(text) else {
        errors.invalid(path, text, "must be a valid IP address");
        return;
    };
    if address.is_unspecified() {
        errors.invalid(path, text, format!("may not be unspecified ({text})"));
    }
    if address.is_loopback() {
        errors.invalid(path, text, "may not be in the loopback range (127.0.0.0/8, ::1/128)");
    }
    let (link_local, link_local_multicast) = match address {
        IpAddr::V4(address) => (address.is_link_local(), address.octets()[..3] == [224, 0, 0]),
        IpAddr::V6(address) => (address.is_unicast_link_local(), address.segments()[0] & 0xff0f == 0xff02),
    };
    if link_local {
        errors.invalid(path, text, "may not be in the link-local range (169.254.0.0/16, fe80::/10)");
    }
    if link_local_multicast {
        errors.invalid(path, text, "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)");
    }
}

/// Warns about a notation of an address that will be rejected in the future.
pub fn warn_of_ip(text: &str, path: &Path<'_>, warnings: &mut Vec<String>) {
    let Some(address) = parse_ip(text) else { return };
    match text.parse::<IpAddr>() {
        Ok(IpAddr::V6(strict)) if strict.to_ipv4_mapped().is_none() => {
            if strict.to_string() != text {
                let canonical = strict.to_string();
                warnings.push(format!(
                    "{path}: IPv6 address {text:?} should be in RFC 5952 canonical format ({canonical:?})"
                ));
            }
        }
        Ok(IpAddr::V4(_)) => {}
        _ => {
            let standard = address.to_string();
            warnings.push(format!(
                "{path}: non-standard IP address {text:?} will be considered invalid in a future Kubernetes release: use {standard:?}"
            ));
        }
    }
}

/// Warns about a notation of a CIDR that will be rejected in the future.
pub fn warn_of_cidr(text: &str, path: &Path<'_>, warnings: &mut Vec<String>) {
    let (Some((address, prefix)), Some(network)) = (parse_cidr_parts(text), parse_cidr(text)) else { return };
    let canonical = format!("{}/{prefix}", network.address);
    let before = warnings.len();
    if address != network.address {
        let bits = if address.is_ipv6() { 128 } else { 32 };
        let single = format!("{address}/{bits}");
        warnings.push(format!(
            "{path}: CIDR value {text:?} is ambiguous in this context (should be {canonical:?} or {single:?}?)"
        ));
    }
    let (written_address, written_prefix) = text.split_once('/').unwrap_or_default();
    let strict = written_address.parse::<IpAddr>();
    let leading_zero = written_prefix.len() > 1 && written_prefix.starts_with('0');
    let mapped = matches!(strict, Ok(IpAddr::V6(address)) if address.to_ipv4_mapped().is_some());
    if strict.is_err() || leading_zero || mapped {
        warnings.push(format!(
            "{path}: non-standard CIDR value {text:?} will be considered invalid in a future Kubernetes release: use {canonical:?}"
        ));
    }
    let written = format!("{address}/{prefix}");
    if warnings.len() == before && address.is_ipv6() && written != text {
        warnings.push(format!(
            "{path}: IPv6 CIDR value {text:?} should be in RFC 5952 canonical format ({written:?})"
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_leniently() {
        for (text, expected) in [
            ("10.0.0.1", Some("10.0.0.1")),
            ("010.000.0.01", Some("10.0.0.1")),
            ("::ffff:1.2.3.4", Some("1.2.3.4")),
            ("2001:DB8::1", Some("2001:db8::1")),
            ("1.2.3", None),
            ("1.2.3.4.5", None),
            ("1.2.3.256", None),
            ("1.2.3.", None),
            ("fe80::1%eth0", None),
            ("", None),
        ] {
            assert_eq!(parse_ip(text).map(|ip| ip.to_string()).as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn network_addresses_are_masked() {
        for (text, expected) in [
            ("10.1.2.3/8", Some("10.0.0.0/8")),
            ("0.0.0.0/0", Some("0.0.0.0/0")),
            ("2001:db8::1/64", Some("2001:db8::/64")),
            ("10.0.0.0/33", None),
            ("10.0.0.0", None),
            ("10.0.0.0/x", None),
        ] {
            let network = parse_cidr(text).map(|network| format!("{}/{}", network.address, network.prefix));
            assert_eq!(network.as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn non_canonical_addresses_cause_warnings() {
        let path = Path::root("p");
        let count = |warn: fn(&str, &Path<'_>, &mut Vec<String>), text| {
            let mut warnings = Vec::new();
            warn(text, &path, &mut warnings);
            warnings.len()
        };
        for (text, warnings) in
            [("1.2.3.4", 0), ("01.2.3.4", 1), ("::ffff:1.2.3.4", 1), ("::1", 0), ("0::1", 1)]
        {
            assert_eq!(count(warn_of_ip, text), warnings, "{text}");
        }
        for (text, warnings) in
            [("10.0.0.0/8", 0), ("10.0.0.1/8", 1), ("10.0.0.0/08", 1), ("2001:DB8::/64", 1)]
        {
            assert_eq!(count(warn_of_cidr, text), warnings, "{text}");
        }
    }
}
