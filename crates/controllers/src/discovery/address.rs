//! IP addresses and their families. Pure.

use std::net::{IpAddr, Ipv4Addr};

use serde::{Deserialize, Serialize};

/// The family of an address. All addresses of a slice have the same family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
pub(crate) enum Family {
    IPv4,
    IPv6,
}

impl Family {
    pub(crate) fn of(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(_) => Self::IPv4,
            IpAddr::V6(_) => Self::IPv6,
        }
    }

    pub(crate) fn named(name: &str) -> Option<Self> {
        match name {
            "IPv4" => Some(Self::IPv4),
            "IPv6" => Some(Self::IPv6),
            _ => None,
        }
    }

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::IPv4 => "IPv4",
            Self::IPv6 => "IPv6",
        }
    }
}

/// Parses an address, allowing leading zeros. An IPv4-mapped IPv6 address becomes IPv4.
pub(crate) fn parse(text: &str) -> Option<IpAddr> {
    match text.parse() {
        Ok(IpAddr::V6(address)) => Some(address.to_ipv4_mapped().map_or(IpAddr::V6(address), IpAddr::V4)),
        Ok(address) => Some(address),
        Err(_) => with_leading_zeros(text).map(IpAddr::V4),
    }
}

fn with_leading_zeros(text: &str) -> Option<Ipv4Addr> {
    let mut octets = [0; 4];
    let mut parts = text.split('.');
    for octet in &mut octets {
        let part = parts.next().filter(|part| part.bytes().all(|byte| byte.is_ascii_digit()))?;
        *octet = part.parse().ok()?;
    }
    parts.next().is_none().then(|| octets.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_leniently_and_written_strictly() {
        let check = |text: &str, expected: Option<(&str, Family)>| {
            let read = parse(text).map(|address| (address.to_string(), Family::of(address)));
            assert_eq!(read, expected.map(|(text, family)| (text.to_owned(), family)), "{text}");
        };
        check("10.0.0.1", Some(("10.0.0.1", Family::IPv4)));
        check("010.000.0.001", Some(("10.0.0.1", Family::IPv4)));
        check("::ffff:10.0.0.1", Some(("10.0.0.1", Family::IPv4)));
        check("FD00:0::1", Some(("fd00::1", Family::IPv6)));
        check("10.0.0.256", None);
        check("10.0.0.1.2", None);
        check("+1.0.0.1", None);
        check("", None);
    }
}
