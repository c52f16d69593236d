//! Tracks allocated devices.
//!
//! Follows the claim cache and runs ahead of it: a decided allocation takes its devices at once, until the cache shows
//! it or it turns out not to have been written.

use std::collections::BTreeMap;
use std::sync::Arc;

use setpoint::{Cached, Key, Object};

use super::view::{Claim, DeviceId};

#[derive(Default)]
pub(crate) struct InUse {
    /// Allocations in the cache. Bounded by the claims.
    shown: BTreeMap<Key, Vec<DeviceId>>,
    /// Decided allocations that the cache does not show yet, by claim uid. Bounded by the bindings in progress.
    decided: BTreeMap<Box<str>, Pending>,
    /// The number of allocations of each device in both maps. Shared with readers until it changes.
    taken: Arc<BTreeMap<DeviceId, usize>>,
}

/// An allocation that the cache does not show yet.
struct Pending {
    devices: Vec<DeviceId>,
    /// The claim's resource version after the write, once written.
    revision: Option<u64>,
}

impl InUse {
    /// Returns the devices that are allocated now.
    pub(super) fn taken(&self) -> Arc<BTreeMap<DeviceId, usize>> {
        self.taken.clone()
    }

    /// Whether the claim has a decided allocation that the cache does not show yet.
    pub(super) fn is_decided(&self, claim_uid: &str) -> bool {
        self.decided.contains_key(claim_uid)
    }

    /// Applies a claim from the cache. Returns whether devices were freed.
    pub(crate) fn follow(&mut self, claim: &Cached<Claim>) -> bool {
        let devices: Vec<DeviceId> = claim.devices().cloned().collect();
        self.forget_shown(claim);
        let before = match devices.is_empty() {
            true => self.shown.remove(claim.key()),
            false => {
                self.take(&devices);
                self.shown.insert(claim.key().clone(), devices)
            }
        };
        self.release(before, !claim.is_allocated())
    }

    /// Removes a deleted claim. Returns whether devices were freed.
    pub(crate) fn claim_deleted(&mut self, claim: &Cached<Claim>) -> bool {
        self.forget_decided(&claim.meta().uid);
        let before = self.shown.remove(claim.key());
        self.release(before, true)
    }

    fn release(&mut self, before: Option<Vec<DeviceId>>, for_good: bool) -> bool {
        let had_any = before.as_ref().is_some_and(|before| !before.is_empty());
        self.give_back(&before.unwrap_or_default());
        had_any && for_good
    }

    /// Records a decided allocation.
    pub(super) fn decide(&mut self, claim_uid: &str, devices: Vec<DeviceId>) {
        self.take(&devices);
        self.decided.insert(claim_uid.into(), Pending { devices, revision: None });
    }

    /// Records that an allocation was written. `shown` is the claim in the cache.
    pub(crate) fn wrote(&mut self, claim: &Object, shown: Option<&Cached<Claim>>) {
        if let Some(pending) = self.decided.get_mut(&claim.meta().uid) {
            pending.revision = Some(claim.meta().revision());
        }
        match shown {
            Some(shown) => self.forget_shown(shown),
            None => self.forget_decided(&claim.meta().uid),
        }
    }

    /// Forgets a claim's decided allocation once the cache has caught up with it.
    fn forget_shown(&mut self, claim: &Cached<Claim>) {
        let Some(pending) = self.decided.get(&claim.meta().uid) else { return };
        let written = pending.revision.is_some_and(|revision| claim.meta().revision() >= revision);
        if written || claim.is_allocated() {
            self.forget_decided(&claim.meta().uid);
        }
    }

    /// Forgets a decided allocation that the cache shows or that was never written.
    pub(crate) fn forget_decided(&mut self, claim_uid: &str) {
        if let Some(pending) = self.decided.remove(claim_uid) {
            self.give_back(&pending.devices);
        }
    }

    fn take(&mut self, devices: &[DeviceId]) {
        let taken = Arc::make_mut(&mut self.taken);
        for device in devices {
            *taken.entry(device.clone()).or_default() += 1;
        }
    }

    fn give_back(&mut self, devices: &[DeviceId]) {
        if devices.is_empty() {
            return;
        }
        let taken = Arc::make_mut(&mut self.taken);
        for device in devices {
            if let Some(count) = taken.get_mut(device) {
                *count -= 1;
                if *count == 0 {
                    taken.remove(device);
                }
            }
        }
    }
}
