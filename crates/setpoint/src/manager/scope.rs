//! The part of the context for reconciles: cached reads, events and the time.
//!
//! Invariant: a cache is read only after it has synced.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;

use super::Context;
use crate::clusters::Gate;
use crate::controller::Caches;
use crate::reconcile::ErrorContext;
use crate::source::Selection;
use crate::{
    Api, Cached, Client, EventType, Identify, Informer, Informers, Key, Kind, Lister, ReconcileError, View,
};

/// How long a reconcile waits for a cache that its controller did not name. The kind might not be served.
const SYNC_TIMEOUT: Duration = Duration::from_secs(30);

impl Context {
    /// Returns the name of the controller, or of the manager if there is no controller.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the name of the cluster, if it is one of a [`Fleet`](crate::clusters::Fleet).
    pub fn cluster(&self) -> Option<&str> {
        self.cluster.as_deref()
    }

    /// Returns the current time: real or simulated.
    pub fn now(&self) -> Timestamp {
        self.runtime.clock.now()
    }

    /// Returns an object from the cache, or `None` if it does not exist.
    ///
    /// If the controller has not [named](crate::controller::Builder) the kind, its cache is created now, and this waits
    /// up to 30 seconds for it.
    ///
    /// ```
    /// # async fn example(context: setpoint::Context) -> Result<(), setpoint::ReconcileError> {
    /// use k8s_openapi::api::core::v1::ConfigMap;
    /// use setpoint::Key;
    /// let settings = context.cached::<ConfigMap>(&Key::namespaced("shop", "settings")).await?;
    /// let colour = settings.as_ref().and_then(|map| map.data.as_ref()?.get("colour"));
    /// # Ok(()) }
    /// ```
    pub async fn cached<V: View>(&self, key: &Key) -> Result<Option<Cached<V>>, ReconcileError> {
        Ok(self.lister::<V>().await?.get(key)?)
    }

    /// Lists the objects in the cache, or those of a namespace, in key order. See [`cached`](Self::cached).
    pub async fn cached_list<V: View>(
        &self,
        namespace: Option<&str>,
    ) -> Result<Vec<Cached<V>>, ReconcileError> {
        Ok(self.lister::<V>().await?.list(namespace)?)
    }

    /// Returns a lister, once its cache has synced. See [`cached`](Self::cached).
    pub async fn lister<V: View>(&self) -> Result<Lister<V>, ReconcileError> {
        Ok(self.synced(&V::kind()).await?.lister())
    }

    /// Returns the informer for a kind that is known at run time, once its cache has synced. See
    /// [`cached`](Self::cached).
    pub async fn synced(&self, kind: &Kind) -> Result<Informer, ReconcileError> {
        let informer = self.informer(kind);
        if !informer.has_synced() {
            let synced = tokio::time::timeout(SYNC_TIMEOUT, informer.wait_for_sync()).await;
            let late = |_| ReconcileError::retry(format!("wait for the cache of {}", kind.plural()));
            synced.map_err(late)?;
        }
        Ok(informer)
    }

    /// Applies the fields that are set, so that a steady state makes no writes. Returns whether the object changed. See
    /// [`Api::apply`].
    ///
    /// Nothing is sent if the cache shows the fields and they are the same as in the controller's last apply. The first
    /// call for an object always sends a request, which removes fields that an earlier version of the controller
    /// applied.
    ///
    /// ```
    /// # async fn example(context: setpoint::Context) -> Result<(), setpoint::ReconcileError> {
    /// use k8s_openapi::api::core::v1::ConfigMap;
    /// use setpoint::Key;
    /// let metadata = Key::namespaced("shop", "settings").metadata();
    /// let data = Some([("colour".to_owned(), "red".to_owned())].into());
    /// let changed = context.ensure(&ConfigMap { metadata, data, ..ConfigMap::default() }).await?;
    /// # Ok(()) }
    /// ```
    pub async fn ensure<V: View + Serialize>(&self, desired: &V) -> Result<bool, ReconcileError> {
        self.ensure_kind(&V::kind(), desired).await
    }

    /// Applies fields of an object of a kind that is known at run time. See [`ensure`](Self::ensure).
    pub async fn ensure_kind(&self, kind: &Kind, desired: &impl Serialize) -> Result<bool, ReconcileError> {
        let informer = self.synced(kind).await?;
        let ensured = self.api.of_kind(kind).apply_unless(desired, |key| informer.objects().get(key)).await;
        ensured.attempting(|| format!("apply a {}", kind.kind()))
    }

    /// Records an event about an object, as `kubectl describe` shows it.
    ///
    /// ```
    /// # fn example(context: setpoint::Context, pod: setpoint::Cached<k8s_openapi::api::core::v1::Pod>) {
    /// use setpoint::EventType;
    /// context.event(&pod, EventType::Warning, "BackOff", "Back-off restarting failed container");
    /// # }
    /// ```
    pub fn event(
        &self,
        about: &impl Identify,
        event_type: EventType,
        reason: &str,
        message: impl Into<String>,
    ) {
        self.recorder(self.name).record(about, event_type, reason, message);
    }

    /// Returns the informer that the controller uses for a kind. The controller waits for its cache.
    pub(crate) fn informer(&self, kind: &Kind) -> Informer {
        let known = self.caches.of_kind(kind);
        known.unwrap_or_else(|| {
            let informer = self.informers.select(kind, Selection::default());
            self.caches.add(&informer);
            informer
        })
    }

    /// Returns the same context for a controller with these caches.
    pub(crate) fn of_controller(&self, name: &'static str, caches: Caches) -> Self {
        Self { caches, ..self.named(name) }
    }

    /// Returns the same context for another cluster.
    pub(crate) fn of_cluster(&self, name: &Arc<str>, client: Client, informers: Informers) -> Self {
        let (caches, gate) = (Caches::default(), None);
        Self { cluster: Some(name.clone()), informers, caches, gate, ..self.acting_as(client) }
    }

    /// Returns the same context for a controller whose keys go through a gate.
    pub(crate) fn through(&self, gate: &Gate) -> Self {
        Self { gate: Some(gate.clone()), ..self.clone() }
    }

    pub(crate) fn gate(&self) -> Option<&Gate> {
        self.gate.as_ref()
    }

    pub(super) fn named(&self, name: &'static str) -> Self {
        Self { name, api: Api::new(self.client.clone(), name), ..self.clone() }
    }
}
