//! What else decides where pods go: namespaces, Services, disruption budgets, volumes and devices, as the caches show them.

use setpoint::{Context, Informer, Key, Labels, Lister};

use crate::Settings;
use crate::devices::{DeviceCaches, DeviceSources};
use crate::view::{BudgetView, NamespaceView, Pod, ServiceView};
use crate::volumes::{VolumeCaches, VolumeSources};

/// Reads what is neither pod nor node.
#[derive(Clone)]
pub(crate) struct Surroundings {
    pub(crate) namespaces: Lister<NamespaceView>,
    pub(crate) services: Lister<ServiceView>,
    pub(crate) budgets: Lister<BudgetView>,
    pub(crate) volumes: VolumeCaches,
    pub(crate) devices: DeviceCaches,
}

/// The informers of the surroundings, which must have listed before anything is decided.
pub(crate) struct Sources {
    namespaces: Informer,
    services: Informer,
    budgets: Informer,
    pub(crate) volumes: VolumeSources,
    pub(crate) devices: DeviceSources,
}

impl Sources {
    pub(crate) fn of(context: &Context, settings: &Settings) -> Self {
        Self {
            namespaces: context.informers.of::<NamespaceView>(),
            services: context.informers.of::<ServiceView>(),
            budgets: context.informers.of::<BudgetView>(),
            volumes: VolumeSources::of(context),
            devices: DeviceSources::of(context, settings.device_taints),
        }
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Informer> {
        let others = self.volumes.all().into_iter().chain(self.devices.all());
        [&self.namespaces, &self.services, &self.budgets].into_iter().chain(others)
    }

    pub(crate) fn surroundings(&self) -> Surroundings {
        Surroundings {
            namespaces: self.namespaces.lister(),
            services: self.services.lister(),
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

    /// What the Services of a pod select by. A Service without a selector stands for no pod.
    pub(crate) fn selectors_for(&self, pod: &Pod) -> Vec<Labels> {
        let labels = &pod.meta().labels;
        let services = self.services.list(pod.meta().namespace.as_deref()).unwrap_or_default();
        let selectors = services.iter().filter_map(|service| service.spec.selector.as_ref());
        selectors.filter(|selector| has_all(labels, selector)).cloned().collect()
    }
}

/// Whether labels have all that is selected by.
pub(crate) fn has_all(labels: &Labels, selector: &Labels) -> bool {
    selector.iter().all(|(key, value)| labels.get(key) == Some(value))
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
            budgets: Lister::fixed(budgets),
            volumes: VolumeCaches::fixed(Vec::new(), Vec::new(), Vec::new()),
            devices: DeviceCaches::fixed(Vec::new(), Vec::new(), Vec::new()),
        }
    }
}
