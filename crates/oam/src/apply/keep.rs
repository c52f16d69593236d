//! Restores recorded objects that others have changed or deleted.

use std::collections::BTreeMap;

use futures::future::join_all;
use serde_json::Value;

use super::cluster::ClusterError;
use super::dispatch::Dispatcher;
use super::identity::Identity;
use super::tracker::{Managed, Trackers};
use crate::policy::Moment;
use crate::policy::selector::Subject;

/// A recorded object and its state in its cluster.
#[derive(Clone, Debug)]
pub(crate) struct Live {
    pub(crate) entry: Managed,
    pub(crate) object: Option<Value>,
    /// Why its cluster cannot be reached. The object is then unknown.
    pub(crate) unreachable: Option<String>,
}

/// The result for one recorded object.
type Kept = (Live, Option<ClusterError>);

impl Dispatcher<'_> {
    /// Restores the objects of the current record and the root. Returns the resulting objects, and the errors of
    /// others. Clusters do not wait for each other.
    pub(crate) async fn keep(&self, trackers: &Trackers, restores: bool) -> (Vec<Live>, Vec<ClusterError>) {
        let mut by_cluster: BTreeMap<String, Vec<Managed>> = BTreeMap::new();
        for entry in trackers.kept() {
            by_cluster.entry(entry.cluster().to_owned()).or_default().push(entry);
        }
        let kept = join_all(by_cluster.into_values().map(|entries| self.keep_all(entries, restores))).await;
        let (live, errors): (Vec<Live>, Vec<_>) = kept.into_iter().flatten().unzip();
        (live, errors.into_iter().flatten().collect())
    }

    /// Restores objects of one cluster, one after the other.
    async fn keep_all(&self, entries: Vec<Managed>, restores: bool) -> Vec<Kept> {
        let mut kept = Vec::with_capacity(entries.len());
        for entry in entries {
            kept.push(match self.keep_one(&entry, restores).await {
                Ok(object) => (Live { entry, object, unreachable: None }, None),
                Err(error) => {
                    let unreachable = error.is_unreachable().then(|| error.to_string());
                    (Live { entry, object: None, unreachable }, Some(error))
                }
            });
        }
        kept
    }

    async fn keep_one(&self, entry: &Managed, restores: bool) -> Result<Option<Value>, ClusterError> {
        if entry.raw.is_null() || !restores {
            return self.read(entry).await;
        }
        let checked = self.check_recorded(entry).await?;
        let left_to_others = !self.policies.kept_paths(&Subject(&entry.raw), Moment::StateKeep).is_empty();
        if checked.is_missing() && left_to_others {
            return Ok(None);
        }
        self.write(&checked, Moment::StateKeep).await.map(Some)
    }

    async fn read(&self, entry: &Managed) -> Result<Option<Value>, ClusterError> {
        let cluster = self.clusters.get(entry.cluster())?;
        let kind = cluster.kind(&entry.api_version, &entry.kind).await?;
        cluster.watch(&kind);
        let manifest = serde_json::json!({"metadata": {"name": entry.name, "namespace": entry.namespace}});
        cluster.get(&Identity::of(&kind, &manifest, &entry.namespace)).await
    }
}
