//! Observe, plan, apply.

use std::sync::Arc;

use setpoint::metrics::Metrics;
use setpoint::object::DecodeError;
use setpoint::owner::controller_ref;
use setpoint::{Cached, Clock, EventType, Key, Kind, Lister, Outcome, ReconcileError, Reconciler, Recorder};

use super::plan::{Plan, is_to_be_mirrored, plan};
use super::{MANAGER, metrics};
use crate::discovery::changes::{SliceOwner, SliceWriter};
use crate::discovery::metrics::{COUNT_BUCKETS, SliceMetrics};
use crate::discovery::service::Service;
use crate::discovery::slice::Slice;
use crate::discovery::subset::Endpoints;
use crate::discovery::wake::slices_of;
use setpoint::write_tracker::WriteTracker;

pub(super) struct Mirror {
    pub(super) recorder: Recorder,
    pub(super) endpoints: Lister<Endpoints>,
    pub(super) services: Lister<Service>,
    pub(super) slices: Lister<Slice>,
    pub(super) writer: SliceWriter,
    pub(super) clock: Clock,
    pub(super) metrics: Metrics,
    pub(super) slice_metrics: Arc<SliceMetrics>,
    pub(super) writes: Arc<WriteTracker<Key>>,
    /// The maximum number of mirrored addresses per subset.
    pub(super) max_endpoints: usize,
}

impl Reconciler for Mirror {
    type Key = Key;

    /// The key is that of the Endpoints and of their Service.
    async fn reconcile(&self, key: &Key) -> Result<Outcome, ReconcileError> {
        let began = self.clock.instant();
        let result = self.mirror(key).await;
        let (name, help) = metrics::DURATION;
        let took = (self.clock.instant() - began).as_secs_f64();
        self.metrics.observe(name, help, metrics::SECONDS, &[], took);
        result
    }
}

impl Mirror {
    async fn mirror(&self, key: &Key) -> Result<Outcome, ReconcileError> {
        let Some(endpoints) = self.mirrored(key)? else { return self.clean_up(key).await };
        let slices = self.writes.list_if_caught_up(key, || slices_of(&self.slices, key, MANAGER))?;
        let Some(slices) = slices else { return Ok(Outcome::Requeue) };
        let plan = plan(&endpoints, slices, self.max_endpoints);
        self.skipped_events(&endpoints, &plan);
        self.slice_metrics.planned(key, None, &plan.changes);
        let (name, help) = metrics::SKIPPED;
        self.metrics.observe(name, help, COUNT_BUCKETS, &[], plan.skipped as f64);
        let owner = SliceOwner {
            key,
            reference: controller_ref(&Kind::of::<Endpoints>(), endpoints.meta()),
            being_deleted: endpoints.meta().is_being_deleted(),
        };
        self.writer.apply(&owner, &plan.changes).await?;
        Ok(Outcome::Settled)
    }

    /// Returns the Endpoints with this name if they should be mirrored: their Service exists and has no selector.
    fn mirrored(&self, key: &Key) -> Result<Option<Cached<Endpoints>>, DecodeError> {
        let endpoints = self.endpoints.get(key)?;
        let unselecting = self.services.get(key)?.is_some_and(|service| !service.has_selector());
        Ok(endpoints.filter(|endpoints| unselecting && is_to_be_mirrored(endpoints.meta(), endpoints)))
    }

    async fn clean_up(&self, key: &Key) -> Result<Outcome, ReconcileError> {
        self.writes.forget(key);
        self.slice_metrics.forget(key);
        for slice in slices_of(&self.slices, key, MANAGER)? {
            self.writer.delete(key, &slice).await?;
        }
        Ok(Outcome::Settled)
    }

    fn skipped_events(&self, endpoints: &Cached<Endpoints>, plan: &Plan) {
        let event = |reason: &str, message: String| {
            let kind = Kind::of::<Endpoints>();
            self.recorder.event(&kind, endpoints.object(), EventType::Warning, reason, message);
        };
        if plan.invalid > 0 {
            let message =
                format!("Skipped {} invalid IP addresses when mirroring to EndpointSlices", plan.invalid);
            event("InvalidIPAddress", message);
        }
        if plan.skipped > plan.invalid {
            let message = format!(
                "A max of {} addresses can be mirrored to EndpointSlices per Endpoints subset. {} addresses \
                 were skipped",
                self.max_endpoints, plan.skipped
            );
            event("TooManyAddressesToMirror", message);
        }
    }
}
