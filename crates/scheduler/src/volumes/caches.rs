//! Caches of claims, volumes and related objects, overlaid with assumed changes.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use setpoint::indexer::IndexFn;
use setpoint::object::DecodeError;
use setpoint::{Cached, Context, Informer, Key, Lister, Object, View};
use setpoint_volume::{Claim, Class, Latest, PodVolumes, Volume, index_by_claim, index_volumes};

use super::view::{Attachment, Capacity, CsiNode, Driver};

/// Index of attachments by node.
pub(crate) const BY_NODE: &str = "node";

/// Reads everything that volume scheduling depends on. Cheap to clone.
#[derive(Clone)]
pub(crate) struct VolumeCaches {
    pub(crate) claims: Assumed<Claim>,
    pub(crate) volumes: Assumed<Volume>,
    pub(crate) classes: Lister<Class>,
    pub(crate) nodes: Lister<CsiNode>,
    pub(crate) drivers: Lister<Driver>,
    pub(crate) capacities: Lister<Capacity>,
    pub(crate) attachments: Lister<Attachment>,
    pub(crate) pods: Lister<PodVolumes>,
}

/// The informers behind [`VolumeCaches`].
pub(crate) struct VolumeSources {
    pub(crate) claims: Informer,
    volumes: Informer,
    classes: Informer,
    nodes: Informer,
    drivers: Informer,
    capacities: Informer,
    attachments: Informer,
    pods: Informer,
}

impl VolumeSources {
    pub(crate) fn of(context: &Context) -> Self {
        let sources = Self {
            claims: context.informers.of::<Claim>(),
            volumes: context.informers.of::<Volume>(),
            classes: context.informers.of::<Class>(),
            nodes: context.informers.of::<CsiNode>(),
            drivers: context.informers.of::<Driver>(),
            capacities: context.informers.of::<Capacity>(),
            attachments: context.informers.of::<Attachment>(),
            pods: context.informers.of::<PodVolumes>(),
        };
        index_volumes(&sources.volumes);
        index_by_claim(&sources.pods);
        sources.attachments.add_index(BY_NODE, by_node());
        sources
    }

    pub(crate) fn all(&self) -> [&Informer; 8] {
        let Self { claims, volumes, classes, nodes, drivers, capacities, attachments, pods } = self;
        [claims, volumes, classes, nodes, drivers, capacities, attachments, pods]
    }

    /// The informers whose changes can make any pod with claims schedulable.
    pub(crate) fn unblocking(&self) -> [&Informer; 6] {
        [&self.volumes, &self.classes, &self.nodes, &self.drivers, &self.capacities, &self.attachments]
    }

    pub(crate) fn caches(&self) -> VolumeCaches {
        VolumeCaches {
            claims: Assumed::new(Latest::of(&self.claims)),
            volumes: Assumed::new(Latest::of(&self.volumes)),
            classes: self.classes.lister(),
            nodes: self.nodes.lister(),
            drivers: self.drivers.lister(),
            capacities: self.capacities.lister(),
            attachments: self.attachments.lister(),
            pods: self.pods.lister(),
        }
    }
}

fn by_node() -> IndexFn {
    Arc::new(|object| {
        let attachment = object.view::<Attachment>().ok();
        attachment.map(|attachment| attachment.node().to_owned()).into_iter().collect()
    })
}

/// A cache of one kind, overlaid with assumed objects.
pub(crate) struct Assumed<V> {
    latest: Latest<V>,
    /// Bounded by the volumes and claims of pods that are being bound.
    assumed: Arc<Mutex<BTreeMap<Key, Object>>>,
}

impl<V: View> Assumed<V> {
    pub(crate) fn new(latest: Latest<V>) -> Self {
        Self { latest, assumed: Arc::default() }
    }

    pub(crate) fn get(&self, key: &Key) -> Result<Option<Cached<V>>, DecodeError> {
        self.latest.get(key)?.map(|known| self.with_assumed(known)).transpose()
    }

    /// Returns the object without assumed changes.
    pub(crate) fn get_real(&self, key: &Key) -> Result<Option<Cached<V>>, DecodeError> {
        self.latest.get(key)
    }

    pub(crate) fn indexed(&self, name: &str, value: &str) -> Result<Vec<Cached<V>>, DecodeError> {
        self.latest.indexed(name, value)?.into_iter().map(|known| self.with_assumed(known)).collect()
    }

    fn with_assumed(&self, known: Cached<V>) -> Result<Cached<V>, DecodeError> {
        let assumed = self.assumed.lock().get(known.key()).cloned();
        match assumed.filter(|object| object.same_version(known.object())) {
            Some(object) => Cached::new(object),
            None => Ok(known),
        }
    }

    /// Assumes an object in the state that is about to be written.
    pub(crate) fn assume(&self, object: Object) {
        self.assumed.lock().insert(object.key().clone(), object);
    }

    /// Replaces an assumed object by the written one.
    pub(crate) fn wrote(&self, object: &Object) {
        self.latest.wrote(object);
        self.forget(object.key());
    }

    /// Drops an assumed change.
    pub(crate) fn forget(&self, key: &Key) {
        self.assumed.lock().remove(key);
    }
}

impl<V> Clone for Assumed<V> {
    fn clone(&self) -> Self {
        Self { latest: self.latest.clone(), assumed: self.assumed.clone() }
    }
}

impl VolumeCaches {
    /// Builds caches from fixed objects: claims, volumes and classes; CSI nodes, drivers, capacities and attachments;
    /// pods.
    pub(crate) fn of_objects(
        (claims, volumes, classes): (Vec<Object>, Vec<Object>, Vec<Object>),
        (nodes, drivers, capacities, attachments): (Vec<Object>, Vec<Object>, Vec<Object>, Vec<Object>),
        pods: Vec<Object>,
    ) -> Self {
        let volumes = Lister::from_objects(volumes);
        setpoint_volume::index_volume_cache(volumes.objects());
        let attachments = Lister::from_objects(attachments);
        attachments.objects().add_index(BY_NODE, by_node());
        let pods = Lister::from_objects(pods);
        setpoint_volume::index_pod_cache(pods.objects());
        Self {
            claims: Assumed::new(Latest::fixed(Lister::from_objects(claims))),
            volumes: Assumed::new(Latest::fixed(volumes)),
            classes: Lister::from_objects(classes),
            nodes: Lister::from_objects(nodes),
            drivers: Lister::from_objects(drivers),
            capacities: Lister::from_objects(capacities),
            attachments,
            pods,
        }
    }
}

#[cfg(test)]
impl VolumeCaches {
    /// Builds caches from fixed claims, volumes and classes.
    pub(crate) fn from_objects(claims: Vec<Object>, volumes: Vec<Object>, classes: Vec<Object>) -> Self {
        let none = || (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Self::of_objects((claims, volumes, classes), none(), Vec::new())
    }
}
