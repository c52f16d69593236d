//! Pod addresses: one range for the whole fleet.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

/// 10.128.0.0/9: eight million addresses, apart from the default Service range 10.0.0.0/16.
const FIRST: u32 = u32::from_be_bytes([10, 128, 0, 1]);
const LAST: u32 = u32::from_be_bytes([10, 255, 255, 254]);

/// Who has which address. Bounded by the number of pods.
#[derive(Debug, Default)]
pub(crate) struct Addresses {
    by_uid: BTreeMap<Box<str>, u32>,
    taken: BTreeSet<u32>,
    last: u32,
}

impl Addresses {
    /// The address of a pod: the one it already shows, the one it was given before, or a new one.
    pub(crate) fn of(&mut self, uid: &str, shown: Option<&str>) -> String {
        if let Some(given) = self.by_uid.get(uid) {
            return Ipv4Addr::from(*given).to_string();
        }
        let shown = shown.and_then(|text| text.parse::<Ipv4Addr>().ok()).map(u32::from);
        let address = shown.unwrap_or_else(|| self.next_free());
        self.by_uid.insert(uid.into(), address);
        self.taken.insert(address);
        Ipv4Addr::from(address).to_string()
    }

    /// The pod is gone: its address is free again.
    pub(crate) fn release(&mut self, uid: &str) {
        if let Some(address) = self.by_uid.remove(uid) {
            self.taken.remove(&address);
        }
    }

    fn next_free(&mut self) -> u32 {
        loop {
            self.last = if (FIRST..LAST).contains(&self.last) { self.last + 1 } else { FIRST };
            if !self.taken.contains(&self.last) {
                return self.last;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_keeps_its_address_and_no_two_share_one() {
        let mut addresses = Addresses::default();
        let first = addresses.of("a", None);
        assert_eq!(addresses.of("a", None), first);
        assert_ne!(addresses.of("b", None), first);
        assert_eq!(addresses.of("c", Some("10.128.0.3")), "10.128.0.3");
        assert_eq!(addresses.of("d", None), "10.128.0.4");
    }
}
