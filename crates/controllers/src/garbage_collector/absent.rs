//! Cache of owners known not to exist, so that their other dependents need no lookup.

use std::collections::BTreeMap;

use super::identity::Identity;

/// Enough for a typical burst of deletions, about 200 bytes each. Evicted owners are looked up again.
const CAPACITY: usize = 500;

/// The owners most recently found absent. Uids are never reused, so entries never become wrong.
#[derive(Default)]
pub(super) struct AbsentOwners {
    /// The time of last use.
    known: BTreeMap<Identity, u64>,
    uses: u64,
}

impl AbsentOwners {
    pub(super) fn add(&mut self, owner: Identity) {
        self.uses += 1;
        self.known.insert(owner, self.uses);
        if self.known.len() > CAPACITY {
            self.drop_least_recent();
        }
    }

    pub(super) fn has(&mut self, owner: &Identity) -> bool {
        self.uses += 1;
        self.known.get_mut(owner).map(|last_used| *last_used = self.uses).is_some()
    }

    fn drop_least_recent(&mut self) {
        let least_recent = self.known.iter().min_by_key(|(_, last_used)| **last_used);
        if let Some(owner) = least_recent.map(|(owner, _)| owner.clone()) {
            self.known.remove(&owner);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::garbage_collector::uid::Uid;

    fn owner(nth: usize) -> Identity {
        let name = nth.to_string();
        let uid = Uid::from(&*name);
        Identity { kind: "Pod".into(), api_version: "v1".into(), namespace: None, name: name.into(), uid }
    }

    #[test]
    fn the_least_recently_used_owner_is_dropped() {
        let mut absent = AbsentOwners::default();
        (0..CAPACITY).for_each(|nth| absent.add(owner(nth)));
        assert!(absent.has(&owner(0)));
        absent.add(owner(CAPACITY));
        assert!(absent.has(&owner(0)) && absent.has(&owner(CAPACITY)));
        assert!(!absent.has(&owner(1)));
    }
}
