//! Plans which pods to create, repair and delete, and in which order. Pure.
//!
//! Ordered sets take one step at a time and wait for anything that is not as it should be. Parallel sets do everything
//! at once.

use jiff::Timestamp;
use setpoint::{Cached, Metadata};

use super::bodies::POD_NAME_LABEL;
use super::view::{StatefulSet, Volumes, claim_name, ordinal_in};
use crate::workload::history::REVISION_LABEL;
use crate::workload::pod::{Phase, Pod};
use crate::workload::update_strategy::StrategyType;

/// The current and update revision of a set, by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Revisions {
    pub(super) current: String,
    pub(super) update: String,
}

/// An action.
#[derive(Clone)]
pub(super) enum Action {
    /// Create the pod of an ordinal, after its claims. `updated` selects the update revision.
    Create {
        ordinal: usize,
        updated: bool,
    },
    /// Create the missing claims of a pod, and fix their owner references.
    Provide {
        pod: Cached<Pod>,
        ordinal: usize,
    },
    /// Fix a pod's labels, volumes, and the owner references of its claims.
    UpdatePod {
        pod: Cached<Pod>,
        ordinal: usize,
    },
    /// Fix the owner references of the claims of a pod that is about to be deleted.
    UpdateClaimOwners {
        pod: Cached<Pod>,
        ordinal: usize,
    },
    Delete {
        pod: Cached<Pod>,
    },
    /// Delete an outdated pod so that it is recreated.
    Renew {
        pod: Cached<Pod>,
    },
}

/// Actions in stages. A stage starts when all previous ones have succeeded. Actions of one stage may run concurrently.
pub(super) type Plan = Vec<Vec<Action>>;

/// A wanted ordinal.
struct Slot {
    ordinal: usize,
    pod: Option<Cached<Pod>>,
}

struct Planner<'a> {
    set: &'a Cached<StatefulSet>,
    revisions: &'a Revisions,
    now: Timestamp,
    /// How many pods may be unavailable during an update, if `maxUnavailable` is enabled.
    at_once: Option<usize>,
    slots: Vec<Slot>,
    /// Unwanted pods, highest ordinal first.
    condemned: Vec<(usize, Cached<Pod>)>,
    plan: Plan,
}

/// The plan must wait for something.
struct Blocked;

pub(super) fn plan(
    set: &Cached<StatefulSet>,
    pods: &[Cached<Pod>],
    revisions: &Revisions,
    several_at_once: bool,
    now: Timestamp,
) -> Plan {
    if set.meta().is_being_deleted() {
        return Plan::new();
    }
    let mut planner = Planner::new(set, pods, revisions, now);
    planner.at_once = several_at_once.then(|| set.spec.max_unavailable());
    // Everything planned before a wait is still done.
    let _ = planner.plan_all();
    planner.plan.retain(|stage| !stage.is_empty());
    planner.plan
}

impl<'a> Planner<'a> {
    fn new(
        set: &'a Cached<StatefulSet>,
        pods: &[Cached<Pod>],
        revisions: &'a Revisions,
        now: Timestamp,
    ) -> Self {
        let start = set.spec.start();
        let slot = |at: usize| Slot { ordinal: start + at, pod: None };
        let mut slots: Vec<Slot> = (0..set.spec.wanted()).map(slot).collect();
        let mut condemned = Vec::new();
        for pod in pods {
            let Some(ordinal) = ordinal_in(set.meta(), pod.meta()) else { continue };
            match ordinal.checked_sub(start).and_then(|at| slots.get_mut(at)) {
                Some(slot) => slot.pod = Some(pod.clone()),
                None => condemned.push((ordinal, pod.clone())),
            }
        }
        condemned.sort_by_key(|(ordinal, _)| std::cmp::Reverse(*ordinal));
        Self { set, revisions, now, at_once: None, slots, condemned, plan: Plan::new() }
    }

    fn plan_all(&mut self) -> Result<(), Blocked> {
        self.keep_slots()?;
        self.plan_claim_owners();
        self.remove_condemned()?;
        if self.set.spec.update_strategy.is_rolling() {
            match self.at_once {
                Some(most) => self.update_several(most),
                None => self.update(),
            }
        }
        Ok(())
    }

    /// Plans for the wanted pods, lowest ordinal first.
    fn keep_slots(&mut self) -> Result<(), Blocked> {
        let ordered = self.set.spec.is_ordered();
        let mut at_once = Vec::new();
        let slots = std::mem::take(&mut self.slots);
        let mut result = Ok(());
        for slot in &slots {
            let (action, ready) = self.keep(slot);
            at_once.extend(action);
            if ordered && !ready {
                result = Err(Blocked);
                break;
            }
        }
        self.slots = slots;
        if ordered {
            self.plan.extend(at_once.into_iter().map(|action| vec![action]));
        } else {
            self.plan.push(at_once);
        }
        result
    }

    /// Plans for a wanted ordinal. Also returns whether an ordered set may continue with the next one.
    fn keep(&self, slot: &Slot) -> (Option<Action>, bool) {
        let ordinal = slot.ordinal;
        let Some(pod) = &slot.pod else {
            return (Some(Action::Create { ordinal, updated: self.starts_updated(ordinal) }), false);
        };
        if pod.phase.has_ended() {
            let delete = (!pod.meta().is_being_deleted()).then(|| Action::Delete { pod: pod.clone() });
            return (delete, false);
        }
        if pod.phase == Phase::Pending {
            return (Some(Action::Provide { pod: pod.clone(), ordinal }), false);
        }
        if self.set.spec.is_ordered() && self.is_unavailable(pod) {
            return (None, false);
        }
        (Some(Action::UpdatePod { pod: pod.clone(), ordinal }), true)
    }

    /// Whether the pod of an ordinal is created from the update revision.
    fn starts_updated(&self, ordinal: usize) -> bool {
        let (spec, status) = (&self.set.spec, &self.set.status);
        let kept = match (spec.partition(), spec.update_strategy.r#type) {
            (Some(partition), _) => partition,
            (None, StrategyType::RollingUpdate) => usize::try_from(status.current_replicas).unwrap_or(0),
            (None, StrategyType::OnDelete) => 0,
        };
        ordinal >= spec.start().saturating_add(kept)
    }

    /// Claims that are deleted with a pod must be owned by it before it is deleted.
    fn plan_claim_owners(&mut self) {
        if self.set.spec.volume_claim_templates.is_empty() {
            return;
        }
        let update_claim_owners = |(ordinal, pod): &(usize, Cached<Pod>)| Action::UpdateClaimOwners {
            pod: pod.clone(),
            ordinal: *ordinal,
        };
        self.plan.push(self.condemned.iter().map(update_claim_owners).collect());
    }

    /// Deletes unwanted pods, highest ordinal first.
    fn remove_condemned(&mut self) -> Result<(), Blocked> {
        let ordered = self.set.spec.is_ordered();
        let first_unavailable = self.first_unavailable();
        let mut deletions = Vec::new();
        for (_, pod) in &self.condemned {
            if pod.meta().is_being_deleted() {
                if ordered {
                    return Err(Blocked);
                }
                continue;
            }
            let healthy = self.is_available(pod) && pod.phase == Phase::Running;
            if ordered && !healthy && first_unavailable.as_deref() != Some(&*pod.meta().uid) {
                return Err(Blocked);
            }
            deletions.push(Action::Delete { pod: pod.clone() });
            if ordered {
                self.plan.push(deletions);
                return Err(Blocked);
            }
        }
        self.plan.push(deletions);
        Ok(())
    }

    /// Returns the uid of the unavailable pod with the lowest ordinal, wanted pods first.
    fn first_unavailable(&self) -> Option<Box<str>> {
        if self.slots.iter().any(|slot| slot.pod.is_none()) {
            return None;
        }
        let wanted = self.slots.iter().filter_map(|slot| slot.pod.as_ref());
        let pods = wanted.chain(self.condemned.iter().rev().map(|(_, pod)| pod));
        pods.into_iter().find(|pod| self.is_unavailable(pod)).map(|pod| pod.meta().uid.clone())
    }

    /// Deletes the outdated pod with the highest ordinal, unless a pod above it is unavailable.
    fn update(&mut self) {
        let partition = self.set.spec.partition().unwrap_or(0);
        for slot in self.slots.iter().skip(partition).rev() {
            // A pod that is created now is not available yet.
            let Some(pod) = &slot.pod else { return };
            if revision_of(pod.meta()) != Some(&self.revisions.update) && !pod.meta().is_being_deleted() {
                return self.plan.push(vec![Action::Renew { pod: pod.clone() }]);
            }
            if self.is_unavailable(pod) {
                return;
            }
        }
    }

    /// Deletes outdated pods, highest ordinal first, while at most `most` pods are unavailable.
    fn update_several(&mut self, most: usize) {
        let missing = |slot: &&Slot| slot.pod.as_ref().is_none_or(|pod| self.is_unavailable(pod));
        let left = most.saturating_sub(self.slots.iter().filter(missing).count());
        let partition = self.set.spec.partition().unwrap_or(0);
        let outdated =
            self.slots.iter().skip(partition).rev().filter_map(|slot| slot.pod.as_ref()).filter(|pod| {
                revision_of(pod.meta()) != Some(&self.revisions.update) && !pod.meta().is_being_deleted()
            });
        let renewed = outdated.take(left).map(|pod| Action::Renew { pod: pod.clone() }).collect();
        self.plan.push(renewed);
    }

    fn is_available(&self, pod: &Cached<Pod>) -> bool {
        pod.is_available(self.set.spec.min_ready(), self.now)
    }

    fn is_unavailable(&self, pod: &Cached<Pod>) -> bool {
        !self.is_available(pod) || pod.meta().is_being_deleted()
    }
}

/// Returns the revision of a pod.
pub(super) fn revision_of(pod: &Metadata) -> Option<&str> {
    pod.labels.get(REVISION_LABEL)
}

/// Whether a pod has its identity labels.
pub(super) fn has_identity(pod: &Metadata) -> bool {
    pod.labels.get(POD_NAME_LABEL) == Some(&*pod.name)
}

/// Whether a pod's volumes match its claims.
pub(super) fn has_storage(set: &Cached<StatefulSet>, pod: &Cached<Pod>, ordinal: usize) -> bool {
    let templates = &set.spec.volume_claim_templates;
    if templates.is_empty() {
        return true;
    }
    let volumes = pod.object().view::<Volumes>();
    volumes.is_ok_and(|volumes| {
        let fits =
            |template| volumes.claim(template_name(template)) == Some(&claim_name(set, template, ordinal));
        templates.iter().all(fits)
    })
}

fn template_name(template: &super::view::ClaimTemplate) -> &str {
    &template.name
}
