//! Observe, plan, apply.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::Mutex;
use setpoint::metrics::Metrics;
use setpoint::object::DecodeError;
use setpoint::owner::controller_ref;
use setpoint::{Cached, EventType, Key, Kind, Lister, Outcome, Queue, ReconcileError, Reconciler, Recorder};

use super::hints::assign_hints;
use super::node::{self, Node};
use super::plan::{SkippedPod, SliceTemplate, Zones, plan};
use super::topology::Topology;
use super::traffic::{Proximity, remove_hints, set_proximity_hints};
use super::{MANAGER, metrics};
use crate::discovery::address::Family;
use crate::discovery::backend::Backend;
use crate::discovery::changes::{Changes, SliceOwner, SliceWriter};
use crate::discovery::membership::selected_pods;
use crate::discovery::metrics::SliceMetrics;
use crate::discovery::service::Service;
use crate::discovery::slice::{Slice, is_owned_by};
use crate::discovery::trigger::{LAST_CHANGE, TriggerTimes};
use crate::discovery::wake::slices_of;
use crate::workload::throttle::Throttle;
use setpoint::write_tracker::WriteTracker;

/// The annotations that enable hints. The first takes precedence.
const TOPOLOGY_MODE: [&str; 2] =
    ["service.kubernetes.io/topology-aware-hints", "service.kubernetes.io/topology-mode"];

pub(super) struct SliceKeeper {
    pub(super) recorder: Recorder,
    pub(super) services: Lister<Service>,
    pub(super) pods: Lister<Backend>,
    pub(super) nodes: Lister<Node>,
    pub(super) slices: Lister<Slice>,
    pub(super) writer: SliceWriter,
    pub(super) metrics: Metrics,
    pub(super) slice_metrics: Arc<SliceMetrics>,
    /// The traffic distribution of each Service.
    pub(super) distributions: Mutex<BTreeMap<Key, String>>,
    pub(super) triggers: TriggerTimes,
    pub(super) topology: Arc<Topology>,
    pub(super) writes: Arc<WriteTracker<Key>>,
    pub(super) throttle: Arc<Throttle<Key>>,
    pub(super) max_endpoints_per_slice: usize,
    /// Whether `PreferSameZone` and `PreferSameNode` are enabled.
    pub(super) same_zone_or_node: bool,
}

/// The observed state of a Service.
struct Observed {
    service: Cached<Service>,
    pods: Vec<Cached<Backend>>,
    zones: Zones,
    slices: Vec<Cached<Slice>>,
    triggered: Option<Timestamp>,
}

impl Reconciler for SliceKeeper {
    type Key = Key;

    /// Reconciles the Service with this key.
    async fn reconcile(&self, key: &Key) -> Result<Outcome, ReconcileError> {
        let Some(service) = self.services.get(key)? else {
            self.forget(key);
            return Ok(Outcome::Settled);
        };
        if !service.is_served() {
            return Ok(Outcome::Settled);
        }
        self.throttle.reconciled(key);
        let slices = self.writes.list_if_caught_up(key, || slices_of(&self.slices, key, MANAGER))?;
        let Some(slices) = slices else {
            self.count_sync("stale");
            return Ok(Outcome::Requeue);
        };
        self.note_distribution(key, service.spec.traffic_distribution.as_deref());
        let observed = self.observe(service, slices)?;
        let result = self.reconcile_families(&observed).await;
        self.count_sync(if result.is_ok() { "success" } else { "error" });
        if let Err(error) = &result {
            let message = format!("Error updating Endpoint Slices for Service {key}: {}", error.report());
            self.event(&observed.service, EventType::Warning, "FailedToUpdateEndpointSlices", message);
        }
        result.map(|()| Outcome::Settled)
    }
}

impl SliceKeeper {
    fn forget(&self, key: &Key) {
        self.triggers.forget(key);
        self.writes.forget(key);
        self.topology.forget(key);
        self.throttle.forget(key);
        self.slice_metrics.forget(key);
        self.note_distribution(key, None);
    }

    fn count_sync(&self, result: &str) {
        let (name, help) = metrics::SYNCS;
        self.metrics.count_as(name, help, &[("result", result)], 1);
    }

    fn note_distribution(&self, key: &Key, distribution: Option<&str>) {
        let mut distributions = self.distributions.lock();
        let before = match distribution {
            Some(wanted) => distributions.insert(key.clone(), wanted.to_owned()),
            None => distributions.remove(key),
        };
        if before.as_deref() == distribution {
            return;
        }
        for changed in before.as_deref().into_iter().chain(distribution) {
            let count = distributions.values().filter(|other| *other == changed).count();
            let (name, help) = metrics::BY_DISTRIBUTION;
            self.metrics.set_gauge(name, help, &[("traffic_distribution", changed)], count as f64);
        }
    }

    fn count_changes(&self, observed: &Observed, changes: &Changes) {
        let service = &observed.service;
        let topology = if asks_for_hints(service) { "Auto" } else { "Disabled" };
        let distribution = service.spec.traffic_distribution.as_deref().unwrap_or_default();
        let labels = [("topology", topology), ("traffic_distribution", distribution)];
        let count = changes.create.len() + changes.update.len() + changes.delete.len();
        let (name, help) = metrics::CHANGED;
        self.metrics.observe(name, help, metrics::DEFAULT_BOUNDS, &labels, count as f64);
    }

    fn observe(&self, service: Cached<Service>, slices: Vec<Cached<Slice>>) -> Result<Observed, DecodeError> {
        let pods = selected_pods(&self.pods, &service)?;
        let mut zones = Zones::new();
        for pod in &pods {
            if !zones.contains_key(&pod.node)
                && let Some(node) = self.nodes.objects().get(&Key::cluster(&*pod.node))
            {
                zones.insert(pod.node.clone(), node::zone(node.meta()).map(str::to_owned));
            }
        }
        let triggered = self.triggers.take_trigger_time(&service, &pods);
        Ok(Observed { service, pods, zones, slices, triggered })
    }

    /// Reconciles each address family independently: an error with one does not affect the other.
    async fn reconcile_families(&self, observed: &Observed) -> Result<(), ReconcileError> {
        let service = &observed.service;
        let families = service.families();
        let mut result = Ok(());
        for family in &families {
            let of_family = observed.slices.iter().filter(|slice| slice.address_type == Some(*family));
            let slices = of_family.cloned().collect();
            result = result.and(self.reconcile_family(observed, *family, slices).await);
        }
        let unsupported =
            |slice: &&Cached<Slice>| !slice.address_type.is_some_and(|of| families.contains(&of));
        for slice in observed.slices.iter().filter(unsupported) {
            if let Some(family) = slice.address_type {
                self.topology.not_hinted(service.key(), family);
            }
            result = result.and(self.writer.delete(service.key(), slice).await);
        }
        result
    }

    async fn reconcile_family(
        &self,
        observed: &Observed,
        family: Family,
        slices: Vec<Cached<Slice>>,
    ) -> Result<(), ReconcileError> {
        let Observed { service, pods, zones, .. } = observed;
        let mut plan = plan(service, family, pods, zones, slices, self.max_endpoints_per_slice);
        self.hint(&SliceTemplate::new(service, family, self.max_endpoints_per_slice), &mut plan.changes);
        let uid = &service.meta().uid;
        plan.changes.recycle(|slice, draft| {
            slice.address_type == Some(draft.family) && is_owned_by(slice, "Service", uid)
        });
        set_trigger_time(&mut plan.changes, observed.triggered);
        let owner = SliceOwner {
            key: service.key(),
            reference: controller_ref(&Kind::of::<Service>(), service.meta()),
            being_deleted: service.meta().is_being_deleted(),
        };
        self.slice_metrics.planned(service.key(), Some(family), &plan.changes);
        let applied = self.writer.apply(&owner, &plan.changes).await;
        if applied.is_ok() {
            self.count_changes(observed, &plan.changes);
        }
        let complete = plan.skipped.iter().try_for_each(|skipped| Err(unknown_node(service, skipped)));
        complete.and(applied)
    }

    /// Sets hints. The annotation takes precedence over traffic distribution; without either, hints are removed.
    fn hint(&self, template: &SliceTemplate<'_>, changes: &mut Changes) {
        let (service, key) = (template.service, template.service.key());
        if asks_for_hints(service) {
            return self.assign_hints(template, changes);
        }
        if self.topology.has_hints(key) {
            self.hints_event(
                template,
                EventType::Warning,
                "TopologyAwareHintsDisabled",
                "Topology Aware Hints has been disabled",
            );
        }
        self.topology.not_hinted(key, template.family);
        match Proximity::named(service.spec.traffic_distribution.as_deref(), self.same_zone_or_node) {
            Some(proximity) => set_proximity_hints(template, proximity, changes),
            None => remove_hints(template, changes),
        }
    }

    fn assign_hints(&self, template: &SliceTemplate<'_>, changes: &mut Changes) {
        let key = template.service.key();
        match assign_hints(template, self.topology.shares().as_ref(), changes) {
            Ok(counts) => {
                if !self.topology.has_hints(key) {
                    self.hints_event(
                        template,
                        EventType::Normal,
                        "TopologyAwareHintsEnabled",
                        "Topology Aware Hints has been enabled",
                    );
                }
                self.topology.hinted(key, template.family, counts);
            }
            Err(why) => {
                self.hints_event(
                    template,
                    EventType::Warning,
                    "TopologyAwareHintsDisabled",
                    &why.to_string(),
                );
                self.topology.not_hinted(key, template.family);
                remove_hints(template, changes);
            }
        }
    }

    fn hints_event(&self, template: &SliceTemplate<'_>, event_type: EventType, reason: &str, message: &str) {
        let message = format!("{message}, addressType: {}", template.family.as_str());
        self.event(template.service, event_type, reason, message);
    }

    fn event(&self, service: &Cached<Service>, event_type: EventType, reason: &str, message: String) {
        self.recorder.event(&Kind::of::<Service>(), service.object(), event_type, reason, message);
    }
}

fn asks_for_hints(service: &Service) -> bool {
    let annotations = &service.metadata.annotations;
    let mode = TOPOLOGY_MODE.iter().find_map(|name| annotations.get(*name));
    mode.is_some_and(|mode| mode == "Auto" || mode == "auto")
}

/// Sets the trigger time annotation on every written slice.
fn set_trigger_time(changes: &mut Changes, triggered: Option<Timestamp>) {
    for draft in changes.drafts() {
        match triggered {
            Some(time) => _ = draft.annotations.insert(LAST_CHANGE.to_owned(), time.to_string()),
            None => _ = draft.annotations.remove(LAST_CHANGE),
        }
    }
}

/// The slices are written without the pod, and retried because the node may show up soon.
fn unknown_node(service: &Cached<Service>, skipped: &SkippedPod) -> ReconcileError {
    ReconcileError::retry(format!(
        "skipping Pod {} for Service {}: Node {} Not Found",
        skipped.pod.name(),
        service.key(),
        skipped.node
    ))
}

/// Tracks the capacity of each zone.
pub(super) struct ZoneWatcher {
    pub(super) nodes: Lister<Node>,
    pub(super) topology: Arc<Topology>,
    pub(super) services: Queue<Key>,
}

impl Reconciler for ZoneWatcher {
    type Key = Key;

    /// All nodes share one key.
    async fn reconcile(&self, _: &Key) -> Result<Outcome, ReconcileError> {
        let overloaded = self.topology.set_nodes(&self.nodes.list(None)?);
        overloaded.into_iter().for_each(|service| self.services.add(service));
        Ok(Outcome::Settled)
    }
}
