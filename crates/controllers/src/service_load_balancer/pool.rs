//! The addresses that load balancers can have.

use std::net::IpAddr;

use crate::prefix::Prefix;

/// A range of addresses to give away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressPool(Prefix);

/// As many addresses of a range are looked at: a larger range is not given away any faster.
const MOST: u64 = 1 << 16;

impl AddressPool {
    /// The addresses of a range in CIDR notation; `None` if it is none.
    pub fn parse(range: &str) -> Option<Self> {
        Prefix::parse(range).map(Self)
    }

    /// The first address that can be given: what ingresses share.
    pub fn first(&self) -> Option<IpAddr> {
        self.addresses().next()
    }

    /// Those that can be given, in order. The first one of all is for ingresses.
    pub(super) fn for_services(&self) -> impl Iterator<Item = IpAddr> + '_ {
        self.addresses().skip(1)
    }

    pub(super) fn has(&self, address: IpAddr) -> bool {
        self.0.can_give(address)
    }

    fn addresses(&self) -> impl Iterator<Item = IpAddr> + '_ {
        (0..MOST).map_while(|number| self.0.address(number)).filter(|address| self.0.can_give(*address))
    }
}
