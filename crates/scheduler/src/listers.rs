//! Other inputs of scheduling decisions, read from the caches: namespaces, Services, controllers, disruption budgets,
//! volumes and devices.

use setpoint::object::OwnerRef;
use setpoint::{Context, Informer, Key, LabelSelector, Labels, Lister};

use crate::Settings;
use crate::devices::{DeviceCaches, DeviceSources};
use crate::view::{
    BudgetView, NamespaceView, Pod, ReplicaSetView, ReplicationControllerView, ServiceView, StatefulSetView,
};
use crate::volumes::{VolumeCaches, VolumeSources};

/// Reads everything except pods and nodes.
#[derive(Clone)]
pub(crate) struct Listers {
    pub(crate) namespaces: Lister<NamespaceView>,
    pub(crate) services: Lister<ServiceView>,
    pub(crate) replica_sets: Lister<ReplicaSetView>,
    pub(crate) stateful_sets: Lister<StatefulSetView>,
    pub(crate) replication_controllers: Lister<ReplicationControllerView>,
    pub(crate) budgets: Lister<BudgetView>,
    pub(crate) volumes: VolumeCaches,
    pub(crate) devices: DeviceCaches,
}

/// The informers behind [`Listers`]. They must sync before any decision.
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

    pub(crate) fn listers(&self) -> Listers {
        Listers {
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

impl Listers {
    /// Returns the labels of a namespace. Empty if it does not exist.
    pub(crate) fn labels_of(&self, namespace: &str) -> Labels {
        let found = self.namespaces.objects().get(&Key::cluster(namespace));
        found.map(|object| object.meta().labels.clone()).unwrap_or_default()
    }

    /// Returns the selectors of the pod's Services and controller. Pods that match all of them are spread together.
    /// Selectors that match everything are left out.
    pub(crate) fn selectors_for(&self, pod: &Pod) -> Vec<LabelSelector> {
        let services = self.services.list(pod.meta().namespace.as_deref()).unwrap_or_default();
        let by_labels =
            |labels: &Labels| LabelSelector { match_labels: labels.clone(), ..LabelSelector::default() };
        // A Service without a selector selects no pods.
        let selectors = services.iter().filter_map(|service| service.spec.selector.as_ref()).map(by_labels);
        let mut selectors: Vec<LabelSelector> =
            selectors.filter(|selector| selector.matches(&pod.meta().labels)).collect();
        let controller = pod.meta().controller();
        selectors
            .extend(controller.and_then(|owner| self.selector_of(owner, &pod.key().sibling(&*owner.name))));
        selectors.retain(|selector| !selector.is_empty());
        selectors
    }

    /// Returns the selector of a controller with replicas.
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
impl Listers {
    /// Builds listers of fixed objects.
    pub(crate) fn from_objects(
        namespaces: Vec<setpoint::Object>,
        services: Vec<setpoint::Object>,
        budgets: Vec<setpoint::Object>,
    ) -> Self {
        Self {
            namespaces: Lister::from_objects(namespaces),
            services: Lister::from_objects(services),
            replica_sets: Lister::from_objects([]),
            stateful_sets: Lister::from_objects([]),
            replication_controllers: Lister::from_objects([]),
            budgets: Lister::from_objects(budgets),
            volumes: VolumeCaches::from_objects(Vec::new(), Vec::new(), Vec::new()),
            devices: DeviceCaches::of_objects(Vec::new(), Vec::new(), Vec::new()),
        }
    }
}
