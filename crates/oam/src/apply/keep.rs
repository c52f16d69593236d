//! Restores recorded objects that others have changed or deleted.

use serde_json::Value;

use super::cluster::ClusterError;
use super::dispatch::Dispatcher;
use super::tracker::{Managed, Trackers};
use crate::policy::Moment;
use crate::policy::selector::Subject;

/// A recorded object and its state in the cluster.
#[derive(Clone, Debug)]
pub(crate) struct Live {
    pub(crate) entry: Managed,
    pub(crate) object: Option<Value>,
}

impl Dispatcher<'_> {
    /// Restores the objects of the current record and the root. Returns all of them as they are then, and what went
    /// wrong with others.
    pub(crate) async fn keep(&self, trackers: &Trackers, restores: bool) -> (Vec<Live>, Vec<ClusterError>) {
        let (mut live, mut errors) = (Vec::new(), Vec::new());
        for entry in trackers.kept() {
            match self.keep_one(&entry, restores).await {
                Ok(object) => live.push(Live { entry, object }),
                Err(error) => {
                    errors.push(error);
                    live.push(Live { entry, object: None });
                }
            }
        }
        (live, errors)
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
        let kind = self.cluster.kind(&entry.api_version, &entry.kind).await?;
        self.cluster.watch(&kind);
        let manifest = serde_json::json!({"metadata": {"name": entry.name, "namespace": entry.namespace}});
        self.cluster.get(&super::identity::Identity::of(&kind, &manifest, &entry.namespace)).await
    }
}
