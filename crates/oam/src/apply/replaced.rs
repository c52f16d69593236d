//! Whether a cluster is still the one that a record is about: a Secret can be made to lead to another cluster of the same
//! name.
//!
//! A record names the uid of each cluster that it has objects in: that of its namespace `kube-system`. What is to be deleted
//! in a cluster that was replaced stays recorded, and what is kept is applied to the new one.

use std::collections::BTreeMap;

use super::cluster::{Cluster, ClusterError};
use super::tracker::{Managed, Tracker, Trackers};
use crate::clusters::Clusters;
use crate::names;

/// The uids of clusters by name.
pub(super) type Uids = BTreeMap<String, String>;

impl Tracker {
    /// Returns the clusters that the record is about. Empty in records of other programs.
    pub(super) fn uids(&self) -> Uids {
        let text = self.metadata.annotations.get(names::CLUSTERS);
        text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
    }

    /// Notes which clusters the record is about: of those that it has objects in.
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

/// Fails if the cluster is not the one that an entry is about.
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
    /// Lets the records of what is kept follow their clusters: it is applied to those that there are now.
    pub(crate) async fn follow(&mut self, clusters: &Clusters) -> Result<(), ClusterError> {
        let kept = self.current().into_iter().chain(self.root()).filter(|tracker| !tracker.is_local());
        for tracker in kept.cloned().collect::<Vec<_>>() {
            let mut uids = Uids::new();
            for entry in tracker.spec.managed_resources.iter().filter(|entry| !entry.cluster().is_empty()) {
                if uids.contains_key(entry.cluster()) {
                    continue;
                }
                // Nothing is applied to a cluster that cannot be reached.
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
