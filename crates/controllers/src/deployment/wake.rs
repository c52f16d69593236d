//! Maps events to Deployment keys.

use setpoint::{Event, Key, Object, Queue};

use super::view::{Deployment, StrategyType};
use crate::replicaset::ReplicaSet;
use crate::workload::owners::Owners;

pub(super) struct Wake {
    pub(super) queue: Queue<Key>,
    pub(super) deployments: Owners<Deployment>,
    pub(super) sets: Owners<ReplicaSet>,
}

impl Wake {
    pub(super) fn deployment_changed(&self, event: &Event) {
        self.queue.add(event.object().key().clone());
    }

    pub(super) fn set_changed(&self, event: &Event) {
        match event {
            Event::Added { object, .. } => self.set_added(object),
            Event::Updated { old, new } if !old.same_version(new) => self.set_updated(old, new),
            Event::Updated { .. } => {}
            Event::Deleted { last, .. } => self.wake_controller(last),
        }
    }

    fn set_added(&self, set: &Object) {
        if set.meta().controller().is_some() {
            self.wake_controller(set);
        } else if !set.meta().is_being_deleted() {
            self.wake_adopters(set);
        }
    }

    fn set_updated(&self, old: &Object, new: &Object) {
        let relabelled = old.meta().labels != new.meta().labels;
        let handed_over = old.meta().controller() != new.meta().controller();
        if handed_over {
            self.wake_controller(old);
        }
        if new.meta().controller().is_some() {
            self.wake_controller(new);
        } else if relabelled || handed_over {
            self.wake_adopters(new);
        }
    }

    /// Recreate waits until old pods are gone. No ReplicaSet reports that: terminating pods are already left out of its
    /// status.
    pub(super) fn pod_changed(&self, event: &Event) {
        let Event::Deleted { last, .. } = event else { return };
        let deployment = self.sets.of(last).and_then(|set| self.deployments.of(set.object()));
        if let Some(deployment) = deployment
            && deployment.spec.strategy.r#type == StrategyType::Recreate
        {
            self.queue.add(deployment.key().clone());
        }
    }

    fn wake_controller(&self, set: &Object) {
        if let Some(deployment) = self.deployments.of(set) {
            self.queue.add(deployment.key().clone());
        }
    }

    fn wake_adopters(&self, set: &Object) {
        self.deployments.selecting(set).into_iter().for_each(|deployment| self.queue.add(deployment));
    }
}
