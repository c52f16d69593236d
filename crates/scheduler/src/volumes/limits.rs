//! Volume limits of nodes. Pure.

use std::collections::{BTreeMap, BTreeSet};

use setpoint::{Cached, Key};
use setpoint_volume::{Claim, claim_keys, migrated};

use super::caches::{BY_NODE, VolumeCaches};
use crate::ledger::NodeInfo;

/// Volumes that count towards limits: the driver by unique volume name.
#[derive(Clone, Default)]
pub(super) struct Counted(BTreeMap<String, Box<str>>);

impl Counted {
    pub(super) fn of<'a>(claims: impl Iterator<Item = &'a Cached<Claim>>, caches: &VolumeCaches) -> Self {
        Self(claims.filter_map(|claim| counted(claim, caches)).collect())
    }

    /// Whether a node would exceed a driver's volume limit.
    pub(super) fn exceeds(&self, node: &NodeInfo, caches: &VolumeCaches) -> bool {
        let Ok(Some(limits)) = caches.nodes.get(&Key::cluster(&*node.name)) else { return false };
        if !self.0.values().any(|driver| limits.limit(driver).is_some()) {
            return false;
        }
        let there = volumes_on(node, caches);
        let drivers: BTreeSet<&str> = self.0.values().map(|driver| &**driver).collect();
        drivers.into_iter().any(|driver| {
            let of_driver = |volumes: &Self| volumes.0.values().filter(|one| ***one == *driver).count();
            let new = self.0.iter().filter(|(name, one)| ***one == *driver && !there.0.contains_key(*name));
            limits.limit(driver).is_some_and(|limit| {
                let new = new.count();
                new > 0 && of_driver(&there) + new > limit
            })
        })
    }
}

/// Collects a node's volumes: those of its pods, and those still attached.
fn volumes_on(node: &NodeInfo, caches: &VolumeCaches) -> Counted {
    let mut there = Counted::default();
    for pod_info in node.pods.values() {
        for claim in claim_keys(pod_info.pod.object()) {
            if let Ok(Some(claim)) = caches.claims.get(&claim) {
                there.0.extend(counted(&claim, caches));
            }
        }
    }
    for attachment in caches.attachments.indexed(BY_NODE, &node.name).unwrap_or_default() {
        let volume = attachment.volume().and_then(|volume| of_volume(volume, caches));
        there.0.extend(volume);
    }
    there
}

/// Returns a claim's volume, or a placeholder for the one to be provisioned.
fn counted(claim: &Cached<Claim>, caches: &VolumeCaches) -> Option<(String, Box<str>)> {
    let name = &*claim.spec.volume_name;
    if !name.is_empty() && caches.volumes.get(&Key::cluster(name)).ok()?.is_some() {
        return of_volume(name, caches);
    }
    let class = caches.classes.get(&Key::cluster(claim.class())).ok()??;
    let driver = Some(&*class.provisioner).filter(|plugin| migrated::driver_of(plugin).is_none())?;
    Some((format!("{driver}/claim {}", claim.key()), driver.into()))
}

fn of_volume(name: &str, caches: &VolumeCaches) -> Option<(String, Box<str>)> {
    let volume = caches.volumes.get(&Key::cluster(name)).ok()??;
    let csi = volume.spec.csi.as_ref()?;
    Some((format!("{}/{}", csi.driver, csi.volume_handle), csi.driver.clone()))
}
