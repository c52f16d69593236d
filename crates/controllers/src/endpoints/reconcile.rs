//! Observe, plan, write.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::json;
use setpoint::client::{DeleteOptions, Optional, Subresource};
use setpoint::object::DecodeError;
use setpoint::reconcile::ErrorContext;
use setpoint::recorder::Reference;
use setpoint::{
    Cached, Client, ClientError, EventType, Key, Kind, Lister, Object, Outcome, ReconcileError, Reconciler,
    Recorder, UpdateBody,
};

use super::plan::{Content, plan};
use crate::discovery::backend::Backend;
use crate::discovery::membership::selected_pods;
use crate::discovery::service::Service;
use crate::discovery::subset::Endpoints;
use crate::discovery::trigger::TriggerTimes;
use crate::workload::pod_control::namespace_is_terminating;
use crate::workload::throttle::Throttle;
use setpoint::write_tracker::WriteTracker;

/// Endpoints with this annotation are a leader election lock and belong to no Service.
const LEADER: &str = "control-plane.alpha.kubernetes.io/leader";

pub(super) struct EndpointsKeeper {
    pub(super) client: Client,
    pub(super) recorder: Recorder,
    pub(super) services: Lister<Service>,
    pub(super) pods: Lister<Backend>,
    pub(super) endpoints: Lister<Endpoints>,
    pub(super) triggers: TriggerTimes,
    pub(super) writes: Arc<WriteTracker<Key>>,
    pub(super) throttle: Arc<Throttle<Key>>,
}

impl Reconciler for EndpointsKeeper {
    type Key = Key;

    /// The key is that of the Service and of its Endpoints.
    async fn reconcile(&self, key: &Key) -> Result<Outcome, ReconcileError> {
        let Some(service) = self.services.get(key)? else { return self.remove(key).await };
        if !service.is_served() {
            return Ok(Outcome::Settled);
        }
        self.throttle.reconciled(key);
        let Some(current) = self.writes.list_if_caught_up(key, || self.current(key))? else {
            return Ok(Outcome::Requeue);
        };
        let current = current.first();
        let pods = selected_pods(&self.pods, &service)?;
        let triggered = self.triggers.take_trigger_time(&service, &pods);
        match (plan(&service, &pods, current, triggered), current) {
            (None, _) => {}
            (Some(content), None) => self.create(key, &content).await?,
            (Some(content), Some(current)) => self.update(current, &content).await?,
        }
        Ok(Outcome::Settled)
    }
}

impl EndpointsKeeper {
    fn current(&self, key: &Key) -> Result<Vec<Cached<Endpoints>>, DecodeError> {
        Ok(self.endpoints.get(key)?.into_iter().collect())
    }

    /// Deletes the Endpoints of a Service that is gone from the cache, after confirming with the API server.
    async fn remove(&self, key: &Key) -> Result<Outcome, ReconcileError> {
        let kind = Kind::of::<Endpoints>();
        let found =
            self.client.get(&kind, key).await.optional().attempting(format!("get endpoints {key}"))?;
        if let Some(endpoints) = found.filter(|endpoints| !is_a_lock(endpoints)) {
            let service = self.client.get(&Kind::of::<Service>(), key).await.optional();
            if service.attempting(format!("recheck that service {key} is gone"))?.is_some() {
                return Ok(Outcome::Requeue);
            }
            let delete = DeleteOptions::of_uid(&*endpoints.meta().uid);
            let deleted = self.client.delete(&kind, key, &delete).await.optional();
            deleted.attempting(format!("delete endpoints {key}"))?;
        }
        self.triggers.forget(key);
        self.writes.forget(key);
        self.throttle.forget(key);
        Ok(Outcome::Settled)
    }

    async fn create(&self, key: &Key, content: &Content) -> Result<(), ReconcileError> {
        let metadata = json!({
            "name": key.name(),
            "namespace": key.namespace(),
            "labels": content.labels,
            "annotations": content.annotations,
        });
        let body = json!({"apiVersion": "v1", "kind": "Endpoints", "metadata": metadata, "subsets": content.subsets});
        match self.client.create(&Kind::of::<Endpoints>(), key.namespace(), &body).await {
            Ok(created) => self.writes.record_write(key, &created),
            Err(error) if namespace_is_terminating(&error) => {}
            Err(error) => {
                let message = format!("Failed to create endpoint for service {key}: {error}");
                self.event(reference(key), "FailedToCreateEndpoint", message);
                return Err(error.into_reconcile_error(format!("create endpoints {key}")));
            }
        }
        Ok(())
    }

    async fn update(&self, current: &Cached<Endpoints>, content: &Content) -> Result<(), ReconcileError> {
        let key = current.key();
        let body = UpdateBody::of(current.object())
            .set(&["metadata", "labels"], &content.labels)
            .set(&["metadata", "annotations"], &content.annotations)
            .set(&["subsets"], &content.subsets);
        match self.client.update(&Kind::of::<Endpoints>(), key, Subresource::None, &body).await {
            Ok(updated) => self.writes.record_write(key, &updated),
            Err(error) => {
                self.failed_update_event(current.object(), &error);
                return Err(error.into_reconcile_error(format!("update endpoints {key}")));
            }
        }
        Ok(())
    }

    fn failed_update_event(&self, current: &Object, error: &ClientError) {
        let message = format!("Failed to update endpoint {}: {error}", current.key());
        self.event(Reference::to(&Kind::of::<Endpoints>(), current), "FailedToUpdateEndpoint", message);
    }

    fn event(&self, about: Reference, reason: &str, message: String) {
        self.recorder.event_about(about, EventType::Warning, reason, message, BTreeMap::new());
    }
}

fn is_a_lock(endpoints: &Object) -> bool {
    endpoints.view::<Endpoints>().is_ok_and(|endpoints| endpoints.metadata.annotations.contains_key(LEADER))
}

/// A reference to Endpoints that do not exist yet.
fn reference(key: &Key) -> Reference {
    Reference {
        kind: "Endpoints".to_owned(),
        api_version: "v1".to_owned(),
        namespace: key.namespace().unwrap_or_default().to_owned(),
        name: key.name().to_owned(),
        ..Reference::default()
    }
}
