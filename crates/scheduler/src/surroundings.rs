//! What else decides where pods go: namespaces, Services and controllers, disruption budgets, volumes and devices, as the caches show them.

use setpoint::object::OwnerRef;
use setpoint::{Context, Informer, Key, LabelSelector, Labels, Lister};

use crate::Settings;
use crate::devices::{DeviceCaches, DeviceSources};
use crate::view::{
    BudgetView, NamespaceView, Pod, ReplicaSetView, ReplicationControllerView, ServiceView, StatefulSetView,
};
use crate::volumes::{VolumeCaches, VolumeSources};

/// Reads what is neither pod nor node.
#[derive(Clone)]
pub(crate) struct Surroundings {
    pub(crate) namespaces: Lister<NamespaceView>,
    pub(crate) services: Lister<ServiceView>,
    pub(crate) replica_sets: Lister<ReplicaSetView>,
    pub(crate) stateful_sets: Lister<StatefulSetView>,
    pub(crate) replication_controllers: Lister<ReplicationControllerView>,
    pub(crate) budgets: Lister<BudgetView>,
    pub(crate) volumes: VolumeCaches,
    pub(crate) devices: DeviceCaches,
}

/// The informers of the surroundings, which must have listed before anything is decided.
pub(crate) struct Sources {
    namespaces: Informer,
    services: Informer,
    replica_sets: Informer,
    stateful_sets: Informer,
    replication_controllers: Informer,
    budgets: Informer,
    pub(crate) volumes: VolumeSources,
    pub(crate) devices: DeviceSources,
}

impl Sources {
    pub(crate) fn of(context: &Context, settings: &Settings) -> Self {
        Self {
            namespaces: context.informers.of::<NamespaceView>(),
            services: context.informers.of::<ServiceView>(),
            replica_sets: context.informers.of::<ReplicaSetView>(),
            stateful_sets: context.informers.of::<StatefulSetView>(),
            replication_controllers: context.informers.of::<ReplicationControllerView>(),
            budgets: context.informers.of::<BudgetView>(),
            volumes: VolumeSources::of(context),
            devices: DeviceSources::of(context, settings.device_taints),
        }
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Informer> {
        let others = self.volumes.all().into_iter().chain(self.devices.all());
        let controllers = [&self.replica_sets, &self.stateful_sets, &self.replication_controllers];
        [&self.namespaces, &self.services, &self.budgets].into_iter().chain(controllers).chain(others)
    }

    pub(crate) fn surroundings(&self) -> Surroundings {
        Surroundings {
            namespaces: self.namespaces.lister(),
            services: self.services.lister(),
            replica_sets: self.replica_sets.lister(),
            stateful_sets: self.stateful_sets.lister(),
            replication_controllers: self.replication_controllers.lister(),
            budgets: self.budgets.lister(),
            volumes: self.volumes.caches(),
            devices: self.devices.caches(),
        }
    }
}

impl Surroundings {
    /// The labels of a namespace; none of one that is not there.
    pub(crate) fn labels_of(&self, namespace: &str) -> Labels {
        let found = self.namespaces.objects().get(&Key::cluster(namespace));
        found.map(|object| object.meta().labels.clone()).unwrap_or_default()
    }

    /// What the Services that stand for a pod, and the controller that it belongs to, select by: pods that all of it
    /// matches are its like. What selects everything tells nothing.
    pub(crate) fn selectors_for(&self, pod: &Pod) -> Vec<LabelSelector> {
        let services = self.services.list(pod.meta().namespace.as_deref()).unwrap_or_default();
        let by_labels =
            |labels: &Labels| LabelSelector { match_labels: labels.clone(), ..LabelSelector::default() };
        // A Service without a selector stands for no pod.
        let selectors = services.iter().filter_map(|service| service.spec.selector.as_ref()).map(by_labels);
        let mut selectors: Vec<LabelSelector> =
            selectors.filter(|selector| selector.matches(&pod.meta().labels)).collect();
        let controller = pod.meta().controller();
        selectors
            .extend(controller.and_then(|owner| self.selector_of(owner, &pod.key().sibling(&*owner.name))));
        selectors.retain(|selector| !selector.is_empty());
        selectors
    }

    /// What a controller that keeps replicas selects by.
    fn selector_of(&self, owner: &OwnerRef, key: &Key) -> Option<LabelSelector> {
        match (&*owner.api_version, &*owner.kind) {
            ("apps/v1", "ReplicaSet") => Some(self.replica_sets.get(key).ok()??.spec.selector.clone()),
            ("apps/v1", "StatefulSet") => Some(self.stateful_sets.get(key).ok()??.spec.selector.clone()),
            ("v1", "ReplicationController") => {
                let match_labels = self.replication_controllers.get(key).ok()??.spec.selector.clone();
                Some(LabelSelector { match_labels, ..LabelSelector::default() })
            }
            _ => None,
        }
    }
}

#[cfg(test)]
impl Surroundings {
    /// Nothing but these.
    pub(crate) fn fixed(
        namespaces: Vec<setpoint::Object>,
        services: Vec<setpoint::Object>,
        budgets: Vec<setpoint::Object>,
    ) -> Self {
        Self {
            namespaces: Lister::fixed(namespaces),
            services: Lister::fixed(services),
            replica_sets: Lister::fixed([]),
            stateful_sets: Lister::fixed([]),
            replication_controllers: Lister::fixed([]),
            budgets: Lister::fixed(budgets),
            volumes: VolumeCaches::fixed(Vec::new(), Vec::new(), Vec::new()),
            devices: DeviceCaches::fixed(Vec::new(), Vec::new(), Vec::new()),
        }
    }
}
