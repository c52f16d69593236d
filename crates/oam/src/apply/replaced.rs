//! Detects replaced clusters: the Secret of a cluster can be changed to a different cluster with the same name.
//!
//! A record has the uid of each cluster with objects, which is that of its namespace `kube-system`. Objects to be
//! deleted in a replaced cluster stay recorded, and current objects are applied to the new one.

use std::collections::BTreeMap;

use super::cluster::{Cluster, ClusterError};
use super::tracker::{Managed, Tracker, Trackers};
use crate::clusters::Clusters;
use crate::names;

/// The uids of clusters by name.
pub(super) type Uids = BTreeMap<String, String>;

impl Tracker {
    /// Returns the clusters in a record. Empty in records of other programs.
    pub(super) fn uids(&self) -> Uids {
        let text = self.metadata.annotations.get(names::CLUSTERS);
        text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
    }

    /// Records the clusters in which the record has objects.
    pub(super) fn note(&mut self, uids: &Uids) {
        let mut known = self.uids();
        let entries = &self.spec.managed_resources;
        let is_used = |name: &str| entries.iter().any(|entry| entry.cluster() == name);
        known.retain(|name, _| is_used(name));
        let used = uids.iter().filter(|(name, _)| is_used(name));
        known.extend(used.map(|(name, uid)| (name.clone(), uid.clone())));
        match serde_json::to_string(&known) {
            Ok(text) if !known.is_empty() => {
                drop(self.metadata.annotations.insert(names::CLUSTERS.into(), text))
            }
            _ => drop(self.metadata.annotations.remove(names::CLUSTERS)),
        }
    }
}

/// Fails if the cluster is not the one in an entry.
pub(super) async fn check(cluster: &Cluster, entry: &Managed, uids: &Uids) -> Result<(), ClusterError> {
    let Some(recorded) = uids.get(entry.cluster()) else { return Ok(()) };
    match cluster.uid().await? {
        Some(uid) if uid != *recorded => {
            let object = format!("{} {}", entry.kind, entry.name);
            Err(ClusterError::Replaced { cluster: entry.cluster().to_owned(), object })
        }
        _ => Ok(()),
    }
}

impl Trackers {
    /// Updates the clusters in the records of current objects, which are applied to the new clusters.
    pub(crate) async fn follow(&mut self, clusters: &Clusters) -> Result<(), ClusterError> {
        let kept = self.current().into_iter().chain(self.root()).filter(|tracker| !tracker.is_local());
        for tracker in kept.cloned().collect::<Vec<_>>() {
            let mut uids = Uids::new();
            for entry in tracker.spec.managed_resources.iter().filter(|entry| !entry.cluster().is_empty()) {
                if uids.contains_key(entry.cluster()) {
                    continue;
                }
                // Nothing is applied to an unreachable cluster.
                let Ok(cluster) = clusters.get(entry.cluster()) else { continue };
                if let Ok(Some(uid)) = cluster.uid().await {
                    uids.insert(entry.cluster().to_owned(), uid);
                }
            }
            self.note(&tracker, &uids).await?;
        }
        Ok(())
    }
}
