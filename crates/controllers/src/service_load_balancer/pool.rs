//! The address pool of load balancers.

use std::net::IpAddr;

use crate::prefix::Prefix;

/// A range of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressPool(Prefix);

/// The maximum number of addresses used from a range, to bound the search.
const MAX_ADDRESSES: u64 = 1 << 16;

impl AddressPool {
    /// Parses a range in CIDR notation.
    pub fn parse(range: &str) -> Option<Self> {
        Prefix::parse(range).map(Self)
    }

    /// The first usable address, shared by all Ingresses.
    pub fn first(&self) -> Option<IpAddr> {
        self.addresses().next()
    }

    /// Lists usable addresses for Services, in order. The first one is for Ingresses.
    pub(super) fn for_services(&self) -> impl Iterator<Item = IpAddr> + '_ {
        self.addresses().skip(1)
    }

    pub(super) fn has(&self, address: IpAddr) -> bool {
        self.0.can_give(address)
    }

    fn addresses(&self) -> impl Iterator<Item = IpAddr> + '_ {
        (0..MAX_ADDRESSES)
            .map_while(|number| self.0.address(number))
            .filter(|address| self.0.can_give(*address))
    }
}
