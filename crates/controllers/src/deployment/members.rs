//! The sets of a Deployment as they are, and as they shall be. Pure.
//!
//! A plan changes the sizes and annotations of members; what then differs from the cached set is what
//! there is to write.

use setpoint::Cached;

use super::Deployment;
use super::bounds::Bounds;
use super::revision::{self, Annotations};
use crate::replicaset::{ReplicaSet, ReplicaSetStatus};

/// The longest name of an object.
const MAX_NAME: usize = 253;

/// A set as it shall be.
#[derive(Clone)]
pub(super) struct Member {
    pub(super) name: String,
    /// As it is; `None` while it has to be created.
    pub(super) existing: Option<Cached<ReplicaSet>>,
    pub(super) replicas: i32,
    pub(super) min_ready_seconds: i32,
    pub(super) annotations: Annotations,
}

/// All sets of a Deployment.
#[derive(Clone, Default)]
pub(super) struct Members {
    /// The one of the current template.
    pub(super) new: Option<Member>,
    /// Those of earlier templates, oldest first.
    pub(super) old: Vec<Member>,
}

impl Members {
    /// Sorts the sets of a Deployment. Where several have its template, the oldest is the new one.
    pub(super) fn of(deployment: &Cached<Deployment>, mut sets: Vec<Cached<ReplicaSet>>) -> Self {
        sets.sort_by(|a, b| by_age(a).cmp(&by_age(b)));
        let template = &deployment.spec.template;
        let new = sets.iter().position(|set| set.spec.template.same_pods_as(template));
        let new = new.map(|at| Member::existing(sets.remove(at)));
        Self { new, old: sets.into_iter().map(Member::existing).collect() }
    }

    /// Keeps the new set's annotations and `minReadySeconds` in step with the Deployment.
    pub(super) fn update_new(&mut self, deployment: &Cached<Deployment>) {
        let revision = self.next_revision();
        if let Some(new) = &mut self.new {
            revision::annotate_new(&mut new.annotations, &deployment.metadata.annotations, revision);
            new.min_ready_seconds = deployment.spec.min_ready_seconds;
        }
    }

    /// A set of the current template, with no pods yet.
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

    /// Those that have, or ought to have, pods.
    pub(super) fn active(&self) -> impl Iterator<Item = &Member> {
        self.all().filter(|member| member.is_active())
    }

    /// The sum of the sizes.
    pub(super) fn size(&self) -> i32 {
        self.sum(|member| member.replicas)
    }

    /// How many pods are available, as far as the sets know.
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

    /// What the set's own controller last said; nothing of one that is yet to be created.
    pub(super) fn status(&self) -> Option<&ReplicaSetStatus> {
        self.existing.as_ref().map(|set| &set.status)
    }

    pub(super) fn available(&self) -> i32 {
        self.status().map_or(0, |status| status.available_replicas)
    }

    /// Whether the set has not yet got rid of the pods beyond its size.
    pub(super) fn has_pods_to_lose(&self) -> bool {
        self.status().is_some_and(|status| status.replicas > self.replicas)
    }

    pub(super) fn revision(&self) -> Option<i64> {
        revision::revision_of(&self.annotations)
    }

    /// Whether it shall be another than it is.
    pub(super) fn differs_from(&self, set: &ReplicaSet) -> bool {
        self.replicas != set.spec.replicas
            || self.min_ready_seconds != set.spec.min_ready_seconds
            || self.annotations != set.metadata.annotations
    }

    /// Gives the set a size. A set that has it already is not touched.
    pub(super) fn resize(&mut self, replicas: i32, bounds: &Bounds) {
        if self.replicas != replicas {
            self.resize_and_annotate(replicas, bounds);
        }
    }

    /// Gives the set a size and notes the Deployment's, even where only the latter is new.
    pub(super) fn resize_and_annotate(&mut self, replicas: i32, bounds: &Bounds) {
        self.replicas = replicas;
        revision::annotate_size(&mut self.annotations, bounds);
    }
}

/// Sets in the order of their creation; the name decides between those of one second.
pub(super) fn by_age(set: &Cached<ReplicaSet>) -> impl Ord + '_ {
    (set.meta().creation_timestamp, &*set.meta().name)
}

/// The hash that tells the new set from those of other templates.
pub(super) fn template_hash(deployment: &Deployment) -> String {
    deployment.spec.template.hash(deployment.status.collision_count)
}

/// The name of a set, the Deployment's part cut short where it would grow too long.
fn set_name(deployment: &str, hash: &str) -> String {
    let longest = MAX_NAME - 1 - hash.len();
    format!("{}-{hash}", deployment.get(..longest).unwrap_or(deployment))
}
