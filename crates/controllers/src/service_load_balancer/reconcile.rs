//! Sets finalizer, address and status of a Service, and cleans up.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use parking_lot::Mutex;
use serde_json::{Value, json};
use setpoint::client::{Optional, Patch, Subresource};
use setpoint::reconcile::ErrorContext;
use setpoint::{
    Cached, Client, EventType, Key, Kind, Lister, Object, Outcome, ReconcileError, Reconciler, Recorder,
    finalizer,
};

use super::plan::{FINALIZER, Plan, plan};
use super::pool::AddressPool;
use super::view::Service;

pub(super) struct Balancer {
    pub(super) client: Client,
    pub(super) recorder: Recorder,
    pub(super) services: Lister<Service>,
    pub(super) pool: AddressPool,
    /// Assigned addresses that the cache may not show yet: at most one entry per Service with an address.
    pub(super) given: Mutex<BTreeMap<Key, IpAddr>>,
}

impl Reconciler for Balancer {
    type Key = Key;

    async fn reconcile(&self, key: &Key) -> Result<Outcome, ReconcileError> {
        let Some(service) = self.services.get(key)? else {
            self.given.lock().remove(key);
            return Ok(Outcome::Settled);
        };
        match plan(&service, service.meta(), &self.pool, &self.taken(key)?) {
            Plan::Nothing => {}
            Plan::Ensure(address) => self.ensure(&service, address).await?,
            Plan::CleanUp => self.clean_up(&service).await?,
            Plan::Refuse(why) => {
                let message = format!("Error syncing load balancer: failed to ensure load balancer: {why}");
                self.event(&service, EventType::Warning, "SyncLoadBalancerFailed", &message);
                return Err(ReconcileError::retry(format!("allocate an address to service {key}: {why}")));
            }
        }
        Ok(Outcome::Settled)
    }
}

impl Balancer {
    /// Returns the addresses of all other Services.
    fn taken(&self, key: &Key) -> Result<BTreeSet<IpAddr>, ReconcileError> {
        let mut taken: BTreeSet<IpAddr> = BTreeSet::new();
        for other in self.services.list(None)?.iter().filter(|other| other.key() != key) {
            taken.extend(other.address().and_then(|address| address.parse::<IpAddr>().ok()));
        }
        let given = self.given.lock();
        taken.extend(given.iter().filter(|(other, _)| *other != key).map(|(_, address)| *address));
        Ok(taken)
    }

    async fn ensure(&self, service: &Cached<Service>, address: IpAddr) -> Result<(), ReconcileError> {
        self.event(service, EventType::Normal, "EnsuringLoadBalancer", "Ensuring load balancer");
        let (kind, key) = (Kind::of::<Service>(), service.key());
        if let Some(patch) = finalizer::addition(service.meta(), FINALIZER) {
            let marked = self.client.patch(&kind, key, Subresource::Status, patch).await;
            if marked.optional().attempting(format!("add a finalizer to service {key}"))?.is_none() {
                return Ok(());
            }
        }
        self.given.lock().insert(key.clone(), address);
        self.event(service, EventType::Normal, "EnsuredLoadBalancer", "Ensured load balancer");
        let ingress = json!([{"ip": address, "ipMode": "VIP"}]);
        self.set_status(service, json!({"ingress": ingress})).await.map(drop)
    }

    async fn clean_up(&self, service: &Cached<Service>) -> Result<(), ReconcileError> {
        if service.address().is_some() {
            self.event(service, EventType::Normal, "DeletingLoadBalancer", "Deleting load balancer");
        }
        let (kind, key) = (Kind::of::<Service>(), service.key());
        // Clear the status first: without the finalizer, nothing brings this controller back to the Service.
        let mut object = Some(service.object().clone());
        if !service.status.load_balancer.ingress.is_empty() {
            object = self.set_status(service, json!({"ingress": Value::Null})).await?;
        }
        self.given.lock().remove(key);
        if let Some(patch) = object.and_then(|object| finalizer::removal(object.meta(), FINALIZER)) {
            let released = self.client.patch(&kind, key, Subresource::Status, patch).await;
            released.optional().attempting(format!("remove the finalizer from service {key}"))?;
        }
        self.event(service, EventType::Normal, "DeletedLoadBalancer", "Deleted load balancer");
        Ok(())
    }

    /// Writes the status and returns the Service. `None` if it is gone.
    async fn set_status(
        &self,
        service: &Cached<Service>,
        status: Value,
    ) -> Result<Option<Object>, ReconcileError> {
        let body = json!({"metadata": {"uid": service.meta().uid}, "status": {"loadBalancer": status}});
        let patched = self
            .client
            .patch(&Kind::of::<Service>(), service.key(), Subresource::Status, Patch::merge(&body))
            .await;
        patched.optional().attempting(format!("update the load balancer status of service {}", service.key()))
    }

    fn event(&self, service: &Cached<Service>, r#type: EventType, reason: &str, message: &str) {
        self.recorder.event(&Kind::of::<Service>(), service.object(), r#type, reason, message);
    }
}
