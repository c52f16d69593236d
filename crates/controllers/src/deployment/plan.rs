//! Plans a sync. Pure.

use setpoint::Cached;
use setpoint::owner::{Claim, claim};

use super::bounds::Bounds;
use super::members::Members;
use super::observe::Observed;
use super::rollback::{Rollback, requested, rollback};
use super::view::{Deployment, StrategyType};
use super::{history, progress, recreate, rolling, scaling};
use crate::replicaset::ReplicaSet;

pub(super) enum Plan {
    /// The selector is empty and would match every pod: refuse.
    SelectsEverything,
    /// Adopt and release ReplicaSets. Everything else waits for the next sync, since it depends on the results.
    Claim { adopt: Vec<Cached<ReplicaSet>>, release: Vec<Cached<ReplicaSet>> },
    /// Scale the ReplicaSets, then update the status.
    Sync(Sync),
}

#[derive(Default)]
pub(super) struct Sync {
    /// The desired ReplicaSets.
    pub(super) members: Members,
    /// Old ReplicaSets beyond the history limit.
    pub(super) delete: Vec<Cached<ReplicaSet>>,
    /// Roll back to another template. The status is not updated until that is done.
    pub(super) rollback: Option<Rollback>,
    /// Whether to estimate progress in the status: not while scaling, paused or being deleted.
    pub(super) rolls_out: bool,
}

pub(super) fn plan(deployment: &Cached<Deployment>, observed: &Observed) -> Plan {
    if deployment.spec.selector.is_empty() {
        return Plan::SelectsEverything;
    }
    let (mut owned, mut adopt, mut release) = (Vec::new(), Vec::new(), Vec::new());
    for set in &observed.sets {
        match claim(deployment.meta(), &deployment.spec.selector, set.meta()) {
            Claim::Owned => owned.push(set.clone()),
            Claim::Adopt => adopt.push(set.clone()),
            Claim::Release => release.push(set.clone()),
            Claim::Foreign => {}
        }
    }
    if adopt.is_empty() && release.is_empty() {
        Plan::Sync(sync(deployment, owned, &observed.busy))
    } else {
        Plan::Claim { adopt, release }
    }
}

fn sync(deployment: &Cached<Deployment>, owned: Vec<Cached<ReplicaSet>>, busy: &[Box<str>]) -> Sync {
    let bounds = Bounds::of(&deployment.spec);
    let mut members = Members::of(deployment, owned);
    members.update_new(deployment);
    let sync = Sync { members, ..Sync::default() };

    if deployment.meta().is_being_deleted() {
        sync
    } else if deployment.spec.paused {
        sync.scale(deployment, &bounds).forget_history(deployment)
    } else if let Some(asked) = requested(deployment) {
        sync.roll_back(deployment, asked, &bounds)
    } else if scaling::is_due(&sync.members, &bounds) {
        sync.scale(deployment, &bounds)
    } else {
        match deployment.spec.strategy.r#type {
            StrategyType::RollingUpdate => sync.roll(deployment, &bounds),
            StrategyType::Recreate => sync.recreate(deployment, busy, &bounds),
        }
    }
}

impl Sync {
    fn scale(mut self, deployment: &Cached<Deployment>, bounds: &Bounds) -> Self {
        scaling::scale(&mut self.members, deployment, bounds);
        self
    }

    fn roll(mut self, deployment: &Cached<Deployment>, bounds: &Bounds) -> Self {
        self.rolls_out = true;
        self.create_new(deployment, bounds);
        if rolling::step(&mut self.members, bounds) {
            return self;
        }
        self.forget_history_once_complete(deployment)
    }

    fn recreate(mut self, deployment: &Cached<Deployment>, busy: &[Box<str>], bounds: &Bounds) -> Self {
        self.rolls_out = true;
        if recreate::shrink_old(&mut self.members, bounds) || recreate::old_pods_run(&self.members, busy) {
            return self;
        }
        self.create_new(deployment, bounds);
        if let Some(new) = &mut self.members.new {
            new.resize(bounds.replicas, bounds);
        }
        self.forget_history_once_complete(deployment)
    }

    fn roll_back(mut self, deployment: &Cached<Deployment>, asked: i64, bounds: &Bounds) -> Self {
        self.create_new(deployment, bounds);
        self.rollback = Some(rollback(deployment, &self.members, asked));
        self
    }

    /// Adds the new ReplicaSet if there is none. It starts with as many pods as the bounds allow.
    fn create_new(&mut self, deployment: &Cached<Deployment>, bounds: &Bounds) {
        if self.members.new.is_some() {
            return;
        }
        let mut new = self.members.make_new(deployment, bounds);
        new.replicas = match deployment.spec.strategy.r#type {
            StrategyType::RollingUpdate => rolling::new_size(&self.members, &new, bounds),
            StrategyType::Recreate => bounds.replicas,
        };
        self.members.new = Some(new);
    }

    fn forget_history_once_complete(self, deployment: &Cached<Deployment>) -> Self {
        if progress::is_complete(deployment, &deployment.status) {
            self.forget_history(deployment)
        } else {
            self
        }
    }

    fn forget_history(mut self, deployment: &Cached<Deployment>) -> Self {
        if let Some(limit) = deployment.spec.history_limit() {
            self.delete = history::revisions_to_delete(&self.members, limit);
        }
        self
    }
}
