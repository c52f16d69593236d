//! IP address ranges. Pure.

use std::fmt;
use std::net::IpAddr;

/// A CIDR: all addresses with a common prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Prefix {
    v4: bool,
    /// The first address, left-aligned.
    base: u128,
    bits: u32,
}

impl Prefix {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (address, bits) = text.split_once('/')?;
        let address: IpAddr = address.parse().ok()?;
        let (bits, most) = (bits.parse().ok()?, if address.is_ipv4() { 32 } else { 128 });
        (bits <= most).then(|| Self { v4: address.is_ipv4(), base: aligned(address) & mask(bits), bits })
    }

    fn includes(&self, address: IpAddr) -> bool {
        self.v4 == address.is_ipv4() && aligned(address) & mask(self.bits) == self.base
    }

    pub(crate) fn overlaps(&self, other: &Self) -> bool {
        let shared = mask(self.bits.min(other.bits));
        self.v4 == other.v4 && self.base & shared == other.base & shared
    }

    /// Whether this range contains all of another.
    pub(crate) fn covers(&self, other: &Self) -> bool {
        self.overlaps(other) && self.bits <= other.bits
    }

    /// Whether this range can allocate the address to a Service. The first address, and the last one for IPv4, are
    /// reserved.
    pub(crate) fn can_give(&self, address: IpAddr) -> bool {
        let own = if self.v4 { mask(32) } else { u128::MAX };
        let last = self.base | (!mask(self.bits) & own);
        let reserved = aligned(address) == self.base || (self.v4 && aligned(address) == last);
        self.includes(address) && !reserved
    }

    pub(crate) fn is_v4(&self) -> bool {
        self.v4
    }

    /// The prefix length.
    pub(crate) fn bits(&self) -> u32 {
        self.bits
    }

    /// The address length of its family in bits.
    pub(crate) fn max_bits(&self) -> u32 {
        if self.v4 { 32 } else { 128 }
    }

    /// Returns the address at an offset. `None` if it is out of range.
    pub(crate) fn address(&self, offset: u64) -> Option<IpAddr> {
        let host_bits = self.max_bits() - self.bits;
        let fits = host_bits >= 64 || offset < 1 << host_bits;
        let unused = 128 - self.max_bits();
        fits.then(|| to_address(self.v4, self.base | (u128::from(offset) << unused)))
    }

    /// Returns the subnet with `bits` bits and this number.
    pub(crate) fn part(&self, number: u64, bits: u32) -> Self {
        let shifted = u128::from(number).checked_shl(128 - bits).unwrap_or(0);
        Self { v4: self.v4, base: self.base | shifted, bits }
    }

    /// Returns the number of the `bits`-bit subnet that contains the start of another range.
    pub(crate) fn number_of(&self, other: &Self, bits: u32) -> u64 {
        let inside = (other.base ^ self.base) & mask(bits);
        inside.checked_shr(128 - bits).unwrap_or(0) as u64
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", to_address(self.v4, self.base), self.bits)
    }
}

fn to_address(v4: bool, aligned: u128) -> IpAddr {
    if v4 {
        IpAddr::from(((aligned >> 96) as u32).to_be_bytes())
    } else {
        IpAddr::from(aligned.to_be_bytes())
    }
}

/// Returns the bits of an address, left-aligned.
fn aligned(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(u32::from(address)) << 96,
        IpAddr::V6(address) => u128::from(address),
    }
}

/// Returns a mask with this many leading ones.
fn mask(bits: u32) -> u128 {
    u128::MAX.checked_shl(128 - bits).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_cover_overlap_and_give() {
        let prefix = |text: &str| Prefix::parse(text).expect("a range");
        let (wide, narrow, other) = (prefix("10.0.0.0/16"), prefix("10.0.1.0/24"), prefix("10.1.0.0/24"));
        assert!(
            wide.covers(&narrow) && wide.covers(&wide) && !narrow.covers(&wide) && narrow.overlaps(&wide)
        );
        assert!(
            !wide.overlaps(&other) && !prefix("::/0").overlaps(&wide) && prefix("0.0.0.0/0").covers(&other)
        );
        let gives = |prefix: &Prefix, address: &str| prefix.can_give(address.parse().expect("an address"));
        assert!(gives(&narrow, "10.0.1.1") && gives(&wide, "10.0.1.0"));
        assert!(!gives(&narrow, "10.0.1.0") && !gives(&narrow, "10.0.1.255") && !gives(&narrow, "10.0.2.1"));
        assert!(
            gives(&prefix("fd00::/64"), "fd00::ffff:ffff:ffff:ffff")
                && !gives(&prefix("fd00::/64"), "fd00::")
        );
        assert_eq!(Prefix::parse("10.0.0.0/33"), None);
        assert_eq!(Prefix::parse("10.0.0.0"), None);
    }
}
