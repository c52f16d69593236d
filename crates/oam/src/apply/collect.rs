//! Garbage collection: deletes what only older records name, or everything when the application is deleted.

use serde_json::{Value, json};
use setpoint::client::PropagationPolicy;

use super::cluster::{Cluster, ClusterError};
use super::identity::Identity;
use super::ownership;
use super::tracker::{Managed, Tracker, Trackers};
use crate::names;
use crate::policy::selector::Subject;
use crate::policy::{GarbageCollect, Lifetime, Propagation};

/// Deletes objects of one application.
pub(crate) struct Collector<'a> {
    pub(crate) cluster: &'a Cluster,
    pub(crate) policy: &'a GarbageCollect,
    /// The application, as `namespace/name`.
    pub(crate) app: &'a str,
    /// Whether all objects stay when the application goes.
    pub(crate) orphans: bool,
    /// Components in the order in which they can be deleted.
    pub(crate) order: Vec<String>,
}

/// What is left of a collection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Left {
    /// Objects that are being deleted.
    pub(crate) waiting: Vec<String>,
}

impl Collector<'_> {
    /// Deletes what older records name and no newer one, and what the current record marks.
    pub(crate) async fn after_update(&self, trackers: &mut Trackers) -> Result<Left, ClusterError> {
        let mut left = Left::default();
        let kept: Vec<Managed> = trackers.kept().into_iter().filter(|entry| !entry.deleted).collect();
        for tracker in trackers.current().into_iter().cloned().collect::<Vec<_>>() {
            let marked =
                tracker.spec.managed_resources.iter().filter(|entry| entry.deleted).cloned().collect();
            let gone = self.collect(marked, &kept, false, &mut left).await?;
            trackers.forget(&tracker, &gone).await?;
        }
        for tracker in trackers.legacy() {
            if self.policy.keep_legacy && !self.is_gone(&tracker).await? {
                continue;
            }
            self.sweep(trackers, &tracker, &kept, false, &mut left).await?;
        }
        Ok(left)
    }

    /// Deletes everything, since the application is being deleted.
    pub(crate) async fn after_delete(&self, trackers: &mut Trackers) -> Result<Left, ClusterError> {
        let mut left = Left::default();
        for tracker in trackers.all().to_vec() {
            self.sweep(trackers, &tracker, &[], true, &mut left).await?;
        }
        Ok(left)
    }

    async fn is_gone(&self, tracker: &Tracker) -> Result<bool, ClusterError> {
        for entry in &tracker.spec.managed_resources {
            let Some(identity) = self.identity(entry).await? else { continue };
            if self.cluster.get(&identity).await?.is_some() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Collects the objects of a record, and the record itself once they are gone.
    async fn sweep(
        &self,
        trackers: &mut Trackers,
        tracker: &Tracker,
        kept: &[Managed],
        deleting: bool,
        left: &mut Left,
    ) -> Result<(), ClusterError> {
        let entries = tracker.spec.managed_resources.clone();
        if !deleting {
            // A rule may have changed since the object was recorded.
            let lives_on = |entry: &&Managed| {
                !kept.iter().any(|other| other.is_same(entry))
                    && self.policy.lifetime(&Subject(&entry.raw)) == Lifetime::OnAppDelete
            };
            trackers.record_in_root(entries.iter().filter(lives_on).cloned().collect()).await?;
        }
        let before = left.waiting.len();
        self.collect(entries, kept, deleting, left).await?;
        if left.waiting.len() == before {
            trackers.drop_tracker(tracker).await?;
        }
        Ok(())
    }

    /// Deletes objects. Returns those that are gone or stay with others.
    async fn collect(
        &self,
        entries: Vec<Managed>,
        kept: &[Managed],
        deleting: bool,
        left: &mut Left,
    ) -> Result<Vec<Managed>, ClusterError> {
        let mut gone = Vec::new();
        for rank in self.ranked(entries) {
            let before = left.waiting.len();
            for entry in rank {
                let is_kept = kept.iter().any(|other| other.is_same(&entry));
                if is_kept || self.one(&entry, deleting, left).await? {
                    gone.push(entry);
                }
            }
            if self.policy.by_dependency && left.waiting.len() > before {
                break;
            }
        }
        Ok(gone)
    }

    /// Groups entries by the order in which they are deleted.
    fn ranked(&self, entries: Vec<Managed>) -> Vec<Vec<Managed>> {
        if !self.policy.by_dependency {
            return vec![entries];
        }
        let (mut ranks, mut rest) = (Vec::new(), entries);
        for component in &self.order {
            let (now, later) = rest.into_iter().partition(|entry| entry.component == *component);
            ranks.push(now);
            rest = later;
        }
        ranks.push(rest);
        ranks
    }

    async fn identity(&self, entry: &Managed) -> Result<Option<Identity>, ClusterError> {
        let manifest = json!({"metadata": {"name": entry.name, "namespace": entry.namespace}});
        match self.cluster.kind(&entry.api_version, &entry.kind).await {
            Ok(kind) => Ok(Some(Identity::of(&kind, &manifest, &entry.namespace))),
            // Without the kind there are no objects of it.
            Err(ClusterError::NoKind { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Deletes one object. Returns whether nothing is left to do for it.
    async fn one(&self, entry: &Managed, deleting: bool, left: &mut Left) -> Result<bool, ClusterError> {
        let Some(identity) = self.identity(entry).await? else { return Ok(true) };
        let Some(live) = self.cluster.get(&identity).await? else { return Ok(true) };
        if ownership::owner(&live).is_none_or(|owner| owner != self.app) {
            self.leave(&identity, &live).await?;
            return Ok(true);
        }
        let subject = Subject(if entry.raw.is_null() { &live } else { &entry.raw });
        let lifetime = self.policy.lifetime(&subject);
        let propagation = self.policy.propagation(&subject);
        if !deleting && lifetime == Lifetime::OnAppDelete {
            return Ok(true);
        }
        if entry.skip_gc
            || lifetime == Lifetime::Never
            || propagation == Some(Propagation::Orphan)
            || self.orphans
        {
            self.release(&identity, &live).await?;
            return Ok(true);
        }
        if self.pass_on(&identity, &live).await? {
            return Ok(true);
        }
        if live["metadata"]["deletionTimestamp"].is_null() {
            let policy = match propagation {
                Some(Propagation::Cascading) => PropagationPolicy::Foreground,
                _ => PropagationPolicy::Background,
            };
            self.cluster.delete(&identity, &live, policy).await?;
            if self.cluster.get(&identity).await?.is_none() {
                return Ok(true);
            }
        }
        left.waiting.push(identity.to_string());
        Ok(false)
    }

    /// Takes off the labels that make an object part of the application.
    async fn release(&self, of: &Identity, live: &Value) -> Result<(), ClusterError> {
        let labels = json!({names::APP_NAME: null, names::APP_NAMESPACE: null});
        let patch = json!({"metadata": {"labels": labels}});
        self.cluster.merge(of, &live["metadata"]["resourceVersion"], &patch).await.map(drop)
    }

    /// Leaves an object that another application writes: this one no longer shares it.
    async fn leave(&self, of: &Identity, live: &Value) -> Result<(), ClusterError> {
        let sharers = ownership::sharers(live);
        if !sharers.iter().any(|name| name == self.app) {
            return Ok(());
        }
        let others: Vec<String> = sharers.into_iter().filter(|name| name != self.app).collect();
        let patch = json!({"metadata": {"annotations": {names::SHARED_BY: others.join(",")}}});
        self.cluster.merge(of, &live["metadata"]["resourceVersion"], &patch).await.map(drop)
    }

    /// Gives an object to the next application that shares it, if there is one.
    async fn pass_on(&self, of: &Identity, live: &Value) -> Result<bool, ClusterError> {
        let others: Vec<String> =
            ownership::sharers(live).into_iter().filter(|name| name != self.app).collect();
        let Some((namespace, name)) = others.first().and_then(|next| next.split_once('/')) else {
            return Ok(false);
        };
        let patch = json!({"metadata": {
            "annotations": {names::SHARED_BY: others.join(",")},
            "labels": {names::APP_NAME: name, names::APP_NAMESPACE: namespace},
        }});
        self.cluster.merge(of, &live["metadata"]["resourceVersion"], &patch).await?;
        Ok(true)
    }
}
