//! The ReplicaSets of a Deployment, actual and desired. Pure.
//!
//! A plan changes the sizes and annotations of members. The difference to the cached ReplicaSet is then written.

use setpoint::Cached;

use super::Deployment;
use super::bounds::Bounds;
use super::revision::{self, Annotations};
use crate::replicaset::{ReplicaSet, ReplicaSetStatus};

/// The maximum length of an object name.
const MAX_NAME: usize = 253;

/// The desired state of a ReplicaSet.
#[derive(Clone)]
pub(super) struct Member {
    pub(super) name: String,
    /// The actual ReplicaSet, or `None` if it has to be created.
    pub(super) existing: Option<Cached<ReplicaSet>>,
    pub(super) replicas: i32,
    pub(super) min_ready_seconds: i32,
    pub(super) annotations: Annotations,
}

/// All ReplicaSets of a Deployment.
#[derive(Clone, Default)]
pub(super) struct Members {
    /// The ReplicaSet of the current template.
    pub(super) new: Option<Member>,
    /// The ReplicaSets of earlier templates, oldest first.
    pub(super) old: Vec<Member>,
}

impl Members {
    /// Splits a Deployment's ReplicaSets into new and old. If several have the current template, the oldest is the new
    /// one.
    pub(super) fn of(deployment: &Cached<Deployment>, mut sets: Vec<Cached<ReplicaSet>>) -> Self {
        sets.sort_by(|a, b| by_age(a).cmp(&by_age(b)));
        let template = &deployment.spec.template;
        let new = sets.iter().position(|set| set.spec.template.same_pods_as(template));
        let new = new.map(|at| Member::existing(sets.remove(at)));
        Self { new, old: sets.into_iter().map(Member::existing).collect() }
    }

    /// Copies the Deployment's annotations and `minReadySeconds` to the new ReplicaSet.
    pub(super) fn update_new(&mut self, deployment: &Cached<Deployment>) {
        let revision = self.next_revision();
        if let Some(new) = &mut self.new {
            revision::annotate_new(&mut new.annotations, &deployment.metadata.annotations, revision);
            new.min_ready_seconds = deployment.spec.min_ready_seconds;
        }
    }

    /// Returns a new ReplicaSet of the current template, without pods.
    pub(super) fn make_new(&self, deployment: &Cached<Deployment>, bounds: &Bounds) -> Member {
        Member::created(deployment, bounds, self.next_revision())
    }

    fn next_revision(&self) -> i64 {
        revision::greatest_revision(&self.old).saturating_add(1)
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Member> {
        self.old.iter().chain(&self.new)
    }

    pub(super) fn all_mut(&mut self) -> impl Iterator<Item = &mut Member> {
        self.old.iter_mut().chain(&mut self.new)
    }

    /// Lists members with a size above zero.
    pub(super) fn active(&self) -> impl Iterator<Item = &Member> {
        self.all().filter(|member| member.is_active())
    }

    /// Returns the sum of all sizes.
    pub(super) fn size(&self) -> i32 {
        self.sum(|member| member.replicas)
    }

    /// Returns the number of available pods that the ReplicaSets report.
    pub(super) fn available(&self) -> i32 {
        self.sum(Member::available)
    }

    pub(super) fn sum(&self, number: impl Fn(&Member) -> i32) -> i32 {
        self.all().map(number).fold(0, i32::saturating_add)
    }
}

impl Member {
    fn existing(set: Cached<ReplicaSet>) -> Self {
        Self {
            name: set.meta().name.to_string(),
            replicas: set.spec.replicas,
            min_ready_seconds: set.spec.min_ready_seconds,
            annotations: set.metadata.annotations.clone(),
            existing: Some(set),
        }
    }

    fn created(deployment: &Cached<Deployment>, bounds: &Bounds, revision: i64) -> Self {
        let mut annotations = Annotations::new();
        revision::annotate_new(&mut annotations, &deployment.metadata.annotations, revision);
        revision::annotate_size(&mut annotations, bounds);
        Self {
            name: set_name(&deployment.meta().name, &template_hash(deployment)),
            existing: None,
            replicas: 0,
            min_ready_seconds: deployment.spec.min_ready_seconds,
            annotations,
        }
    }

    pub(super) fn is_active(&self) -> bool {
        self.replicas > 0
    }

    /// The reported status. `None` if the ReplicaSet does not exist yet.
    pub(super) fn status(&self) -> Option<&ReplicaSetStatus> {
        self.existing.as_ref().map(|set| &set.status)
    }

    pub(super) fn available(&self) -> i32 {
        self.status().map_or(0, |status| status.available_replicas)
    }

    /// Whether the ReplicaSet still has more pods than its size.
    pub(super) fn has_excess_pods(&self) -> bool {
        self.status().is_some_and(|status| status.replicas > self.replicas)
    }

    pub(super) fn revision(&self) -> Option<i64> {
        revision::revision_of(&self.annotations)
    }

    /// Whether the desired state differs from the actual ReplicaSet.
    pub(super) fn differs_from(&self, set: &ReplicaSet) -> bool {
        self.replicas != set.spec.replicas
            || self.min_ready_seconds != set.spec.min_ready_seconds
            || self.annotations != set.metadata.annotations
    }

    /// Sets the size. Does nothing if the ReplicaSet already has it.
    pub(super) fn resize(&mut self, replicas: i32, bounds: &Bounds) {
        if self.replicas != replicas {
            self.resize_and_annotate(replicas, bounds);
        }
    }

    /// Sets the size and the desired-replicas annotations, even if only the annotations change.
    pub(super) fn resize_and_annotate(&mut self, replicas: i32, bounds: &Bounds) {
        self.replicas = replicas;
        revision::annotate_size(&mut self.annotations, bounds);
    }
}

/// Sort key by creation time, then name.
pub(super) fn by_age(set: &Cached<ReplicaSet>) -> impl Ord + '_ {
    (set.meta().creation_timestamp, &*set.meta().name)
}

/// Returns the pod template hash of the current template.
pub(super) fn template_hash(deployment: &Deployment) -> String {
    deployment.spec.template.hash(deployment.status.collision_count)
}

/// Returns the name of a ReplicaSet, truncating the Deployment's name if it would be too long.
fn set_name(deployment: &str, hash: &str) -> String {
    let longest = MAX_NAME - 1 - hash.len();
    format!("{}-{hash}", deployment.get(..longest).unwrap_or(deployment))
}
