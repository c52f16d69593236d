//! Address ranges that must not be dialed.

use std::net::IpAddr;
use std::str::FromStr;

/// A range of addresses: `169.254.0.0/16`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cidr {
    network: IpAddr,
    prefix: u8,
}

/// The length of the prefix that IPv4 addresses have as IPv6 addresses: `::ffff:0:0/96`.
const MAPPED_BITS: u8 = 96;

/// An error for an invalid CIDR.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a CIDR: expected ADDRESS/PREFIX, such as 169.254.0.0/16")]
pub struct InvalidCidr(String);

impl Cidr {
    /// The link-local ranges: cloud providers serve machine credentials there.
    pub fn link_local() -> Vec<Self> {
        let v4 = Self { network: IpAddr::from([169, 254, 0, 0]), prefix: 16 };
        let v6 = Self { network: IpAddr::from([0xfe80, 0, 0, 0, 0, 0, 0, 0]), prefix: 10 };
        vec![v4, v6]
    }

    /// Whether an address is in the range. An IPv4-mapped IPv6 address is treated as IPv4.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.network, address.to_canonical()) {
            (IpAddr::V4(network), IpAddr::V4(address)) => {
                let shift = 32 - u32::from(self.prefix);
                u32::from(network).checked_shr(shift) == u32::from(address).checked_shr(shift)
            }
            (IpAddr::V6(network), IpAddr::V6(address)) => {
                let shift = 128 - u32::from(self.prefix);
                u128::from(network).checked_shr(shift) == u128::from(address).checked_shr(shift)
            }
            _ => false,
        }
    }
}

impl FromStr for Cidr {
    type Err = InvalidCidr;

    fn from_str(text: &str) -> Result<Self, InvalidCidr> {
        let invalid = || InvalidCidr(text.to_owned());
        let (network, prefix) = text.split_once('/').ok_or_else(invalid)?;
        let network: IpAddr = network.parse().map_err(|_| invalid())?;
        let prefix: u8 = prefix.parse().map_err(|_| invalid())?;
        let longest = if network.is_ipv4() { 32 } else { 128 };
        if prefix > longest {
            return Err(invalid());
        }
        // Mapped addresses are compared as IPv4, so a range of them is a range of IPv4.
        if let IpAddr::V6(v6) = network
            && let Some(v4) = v6.to_ipv4_mapped()
        {
            let prefix = prefix.checked_sub(MAPPED_BITS).ok_or_else(invalid)?;
            return Ok(Self { network: v4.into(), prefix });
        }
        Ok(Self { network, prefix })
    }
}

impl std::fmt::Display for Cidr {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.network, self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_contains_the_addresses_of_its_prefix() {
        for (range, address, expected) in [
            ("169.254.0.0/16", "169.254.169.254", true),
            ("169.254.0.0/16", "169.253.169.254", false),
            ("169.254.0.0/16", "::ffff:169.254.169.254", true),
            ("fe80::/10", "febf::1", true),
            ("fe80::/10", "fec0::1", false),
            ("0.0.0.0/0", "8.8.8.8", true),
            ("0.0.0.0/0", "::1", false),
            ("::/0", "::1", true),
            ("127.0.0.1/32", "127.0.0.1", true),
            ("127.0.0.1/32", "127.0.0.2", false),
            ("::ffff:169.254.0.0/112", "169.254.169.254", true),
            ("::ffff:169.254.0.0/112", "::ffff:169.254.169.254", true),
            ("::ffff:169.254.0.0/112", "169.253.0.1", false),
            ("::ffff:0:0/96", "8.8.8.8", true),
        ] {
            let range: Cidr = range.parse().unwrap();
            assert_eq!(range.contains(address.parse().unwrap()), expected, "{range} {address}");
        }
    }

    #[test]
    fn an_invalid_range_is_rejected() {
        for text in ["", "10.0.0.0", "10.0.0.0/33", "::/129", "x/8", "10.0.0.0/-1", "::ffff:10.0.0.0/8"] {
            assert!(text.parse::<Cidr>().is_err(), "{text}");
        }
    }
}
