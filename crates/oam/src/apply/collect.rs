//! Garbage collection: deletes objects that are only in older records, or everything when the application is deleted.

use std::fmt;

use serde_json::{Value, json};
use setpoint::client::PropagationPolicy;

use super::cluster::{Cluster, ClusterError};
use super::identity::Identity;
use super::ownership;
use super::replaced::{self, Uids};
use super::tracker::{Managed, Tracker, Trackers};
use crate::clusters::Clusters;
use crate::names;
use crate::policy::selector::Subject;
use crate::policy::{GarbageCollect, Lifetime, Propagation};

/// Deletes objects of one application.
pub(crate) struct Collector<'a> {
    pub(crate) clusters: &'a Clusters,
    pub(crate) policy: &'a GarbageCollect,
    /// The application, as `namespace/name`.
    pub(crate) app: &'a str,
    /// Whether all objects are kept when the application is deleted.
    pub(crate) orphans: bool,
    /// Components in the order in which they can be deleted.
    pub(crate) order: Vec<String>,
}

/// The remaining objects after a collection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Left {
    /// Objects that are being deleted.
    pub(crate) waiting: Vec<String>,
    /// The errors of others. One error does not block the rest.
    pub(crate) problems: Vec<String>,
}

impl Left {
    fn count(&self) -> usize {
        self.waiting.len() + self.problems.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count() == 0
    }

    /// Describes the remaining objects.
    pub(crate) fn message(&self) -> String {
        let waiting = (!self.waiting.is_empty()).then(|| format!("waiting for {}", self.waiting.join(", ")));
        self.problems.iter().cloned().chain(waiting).collect::<Vec<_>>().join("; ")
    }
}

impl Collector<'_> {
    /// Deletes objects that are in older records but in no newer one, and objects that the current record marks.
    pub(crate) async fn after_update(&self, trackers: &mut Trackers) -> Result<Left, ClusterError> {
        let mut left = Left::default();
        if !trackers.has_garbage() {
            return Ok(left);
        }
        let kept = trackers.kept();
        for tracker in trackers.current().into_iter().cloned().collect::<Vec<_>>() {
            let marked: Vec<Managed> =
                tracker.spec.managed_resources.iter().filter(|entry| entry.deleted).cloned().collect();
            let uids = tracker.uids();
            trackers.record_in_root(self.living_on(&marked, &kept, &uids).await?).await?;
            let gone = self.collect(marked, &kept, &uids, false, &mut left).await;
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
        let uids = tracker.uids();
        for entry in &tracker.spec.managed_resources {
            let found = match self.find(entry, &uids).await {
                Err(error) if error.is_unknown() => return Ok(false),
                found => found?,
            };
            if found.is_some() {
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
        let (entries, uids) = (tracker.spec.managed_resources.clone(), tracker.uids());
        if !deleting {
            trackers.record_in_root(self.living_on(&entries, kept, &uids).await?).await?;
        }
        let before = left.count();
        self.collect(entries, kept, &uids, deleting, left).await;
        if left.count() == before {
            trackers.drop_tracker(tracker).await?;
        }
        Ok(())
    }

    /// Returns the entries of objects that live as long as the application, because a rule may have changed since they
    /// were recorded.
    async fn living_on(
        &self,
        entries: &[Managed],
        kept: &[Managed],
        uids: &Uids,
    ) -> Result<Vec<Managed>, ClusterError> {
        let mut living = Vec::new();
        for entry in entries.iter().filter(|entry| !kept.iter().any(|other| other.is_same(entry))) {
            match self.lifetime(entry, uids).await {
                Ok(Lifetime::OnAppDelete) => living.push(Managed { deleted: false, ..entry.clone() }),
                Ok(_) => {}
                // The state of its objects is unknown, so they are left alone.
                Err(error) if error.is_unknown() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(living)
    }

    /// Returns the lifetime of a recorded object. The record of an object that is applied once lacks the manifest that
    /// rules select by, so the live object is used.
    async fn lifetime(&self, entry: &Managed, uids: &Uids) -> Result<Lifetime, ClusterError> {
        if self.policy.is_uniform() {
            return Ok(Lifetime::default());
        }
        if !entry.raw.is_null() {
            return Ok(self.policy.lifetime(&Subject(&entry.raw)));
        }
        let found = self.find(entry, uids).await?;
        Ok(found.map_or(Lifetime::default(), |found| self.policy.lifetime(&Subject(&found.live))))
    }

    /// Deletes objects. Returns those that are gone, or kept by other sharers.
    async fn collect(
        &self,
        entries: Vec<Managed>,
        kept: &[Managed],
        uids: &Uids,
        deleting: bool,
        left: &mut Left,
    ) -> Vec<Managed> {
        let mut gone = Vec::new();
        for rank in self.ranked(entries) {
            let before = left.count();
            for entry in rank {
                let is_kept = kept.iter().any(|other| other.is_same(&entry));
                match is_kept {
                    true => gone.push(entry),
                    false => match self.one(&entry, kept, uids, deleting, left).await {
                        Ok(true) => gone.push(entry),
                        Ok(false) => {}
                        Err(error) => left.problems.push(error.to_string()),
                    },
                }
            }
            if self.policy.by_dependency && left.count() > before {
                break;
            }
        }
        gone
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

    /// Returns the object of an entry, if it exists, and its cluster.
    async fn find(&self, entry: &Managed, uids: &Uids) -> Result<Option<Found>, ClusterError> {
        let cluster = self.clusters.get(entry.cluster())?;
        replaced::check(&cluster, entry, uids).await?;
        let manifest = json!({"metadata": {"name": entry.name, "namespace": entry.namespace}});
        // Without the kind there are no objects.
        let Some(kind) = cluster.any_version(&entry.api_version, &entry.kind).await? else { return Ok(None) };
        let identity = Identity::of(&kind, &manifest, &entry.namespace);
        let live = cluster.get(&identity).await?;
        Ok(live.map(|live| Found { cluster, identity, live }))
    }

    /// Deletes one object. Returns whether it is done.
    async fn one(
        &self,
        entry: &Managed,
        kept: &[Managed],
        uids: &Uids,
        deleting: bool,
        left: &mut Left,
    ) -> Result<bool, ClusterError> {
        let found = match self.find(entry, uids).await {
            // Objects in a detached or replaced cluster cannot be deleted. A deleted application does not wait for the
            // cluster.
            Err(error) if deleting && error.is_without_cluster() => None,
            found => found?,
        };
        let Some(found) = found else { return Ok(true) };
        let Found { cluster, identity, live } = &found;
        if ownership::owner(live).is_none_or(|owner| owner != self.app) {
            self.leave(&found).await?;
            return Ok(true);
        }
        if is_kept_under_another_name(live, entry, kept) {
            return Ok(true);
        }
        let subject = Subject(if entry.raw.is_null() { live } else { &entry.raw });
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
            found.release().await?;
            return Ok(true);
        }
        if self.pass_on(&found).await? {
            return Ok(true);
        }
        if live["metadata"]["deletionTimestamp"].is_null() {
            let policy = match propagation {
                Some(Propagation::Cascading) => PropagationPolicy::Foreground,
                _ => PropagationPolicy::Background,
            };
            cluster.delete(identity, live, policy).await?;
            if cluster.get(identity).await?.is_none() {
                return Ok(true);
            }
        }
        left.waiting.push(found.to_string());
        Ok(false)
    }

    /// Stops sharing an object that another application writes.
    async fn leave(&self, found: &Found) -> Result<(), ClusterError> {
        let sharers = ownership::sharers(&found.live);
        if !sharers.iter().any(|name| name == self.app) {
            return Ok(());
        }
        let others: Vec<String> = sharers.into_iter().filter(|name| name != self.app).collect();
        let patch = json!({"metadata": {"annotations": {names::SHARED_BY: others.join(",")}}});
        found.merge(&patch).await
    }

    /// Hands an object over to the next application that shares it, if there is one.
    async fn pass_on(&self, found: &Found) -> Result<bool, ClusterError> {
        let others: Vec<String> =
            ownership::sharers(&found.live).into_iter().filter(|name| name != self.app).collect();
        let Some((namespace, name)) = others.first().and_then(|next| next.split_once('/')) else {
            return Ok(false);
        };
        let patch = json!({"metadata": {
            "annotations": {names::SHARED_BY: others.join(",")},
            "labels": {names::APP_NAME: name, names::APP_NAMESPACE: namespace},
        }});
        found.merge(&patch).await?;
        Ok(true)
    }
}

/// Returns whether a newer record has the object under another name of the same cluster, which is registered twice or
/// is the local one.
fn is_kept_under_another_name(live: &Value, entry: &Managed, kept: &[Managed]) -> bool {
    let written_in = live["metadata"]["labels"][names::APP_CLUSTER].as_str().unwrap_or_default();
    let is_it = |other: &Managed| other.cluster() == written_in && other.is_same_in_any_cluster(entry);
    written_in != entry.cluster() && kept.iter().any(is_it)
}

/// An object that exists.
struct Found {
    cluster: Cluster,
    identity: Identity,
    live: Value,
}

impl Found {
    async fn merge(&self, patch: &Value) -> Result<(), ClusterError> {
        let version = &self.live["metadata"]["resourceVersion"];
        self.cluster.merge(&self.identity, version, patch).await.map(drop)
    }

    /// Removes the labels that make an object part of the application.
    async fn release(&self) -> Result<(), ClusterError> {
        let labels = json!({names::APP_NAME: null, names::APP_NAMESPACE: null});
        self.merge(&json!({"metadata": {"labels": labels}})).await
    }
}

impl fmt::Display for Found {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.identity.fmt(out)?;
        match self.cluster.name() {
            "" => Ok(()),
            name => write!(out, " in cluster {name}"),
        }
    }
}
