//! Observe, plan, write.

use std::net::IpAddr;

use serde_json::json;
use setpoint::client::{Optional, Patch, Subresource};
use setpoint::reconcile::ErrorContext;
use setpoint::{
    Cached, Client, ClientError, Clock, EventType, Key, Kind, Lister, Object, Outcome, ReconcileError,
    Reconciler, Recorder,
};

use super::plan::{Action, FINALIZER, address_of, plan};
use super::{Condition, ENTRY, IpAddress, ServiceCidr, ranges};
use crate::workload::condition::whole_seconds;

pub(super) struct RangeKeeper {
    pub(super) client: Client,
    pub(super) clock: Clock,
    pub(super) recorder: Recorder,
    pub(super) cidrs: Lister<ServiceCidr>,
    pub(super) addresses: Lister<IpAddress>,
}

impl Reconciler for RangeKeeper {
    type Key = Key;

    async fn reconcile(&self, key: &Key) -> Result<Outcome, ReconcileError> {
        let Some(range) = self.cidrs.get(key)? else { return Ok(Outcome::Settled) };
        let ranges = ranges(&self.cidrs.list(None)?);
        let mut outcome = Outcome::Settled;
        for action in plan(&range, &ranges, &self.allocated(&range), self.clock.now()) {
            match action {
                Action::AddFinalizer => {
                    self.patch(&range, json!({"finalizers": [FINALIZER]})).await?;
                }
                Action::RemoveFinalizer => {
                    self.patch(&range, json!({"$deleteFromPrimitiveList/finalizers": [FINALIZER]})).await?;
                }
                Action::SetCondition(condition) => self.set_condition(&range, &condition).await?,
                Action::Wait(time) => outcome = Outcome::CheckAfter(time),
            }
        }
        Ok(outcome)
    }
}

impl RangeKeeper {
    /// Returns the addresses of Services. Only needed if the ServiceCIDR is being deleted.
    fn allocated(&self, range: &Cached<ServiceCidr>) -> Vec<IpAddr> {
        if !range.meta().is_being_deleted() {
            return Vec::new();
        }
        self.addresses.objects().list(None).iter().filter_map(address_of).collect()
    }

    async fn patch(
        &self,
        range: &Cached<ServiceCidr>,
        mut metadata: serde_json::Value,
    ) -> Result<(), ReconcileError> {
        metadata["uid"] = json!(range.meta().uid);
        let patch = Patch::strategic(&json!({"metadata": metadata}));
        let patched =
            self.client.patch(&Kind::of::<ServiceCidr>(), range.key(), Subresource::None, patch).await;
        patched
            .optional()
            .map(drop)
            .attempting(format!("update the finalizers of ServiceCIDR {}", range.key()))
    }

    async fn set_condition(
        &self,
        range: &Cached<ServiceCidr>,
        condition: &Condition,
    ) -> Result<(), ReconcileError> {
        let applied = self.apply(range, condition).await;
        if applied.is_err() && condition.status == "True" {
            let message = "The ServiceCIDR Status can not be set to Ready=True";
            let (kind, reason) = (Kind::of::<ServiceCidr>(), "KubernetesServiceCIDRError");
            self.recorder.event(&kind, range.object(), EventType::Warning, reason, message);
        }
        applied.map(drop).attempting(format!("update the status of ServiceCIDR {}", range.key()))
    }

    async fn apply(&self, range: &Cached<ServiceCidr>, condition: &Condition) -> Result<Object, ClientError> {
        let mut condition = json!(condition);
        condition["lastTransitionTime"] = json!(whole_seconds(self.clock.now()));
        let body = json!({
            "apiVersion": "networking.k8s.io/v1",
            "kind": "ServiceCIDR",
            "metadata": {"name": range.key().name(), "uid": range.meta().uid},
            "status": {"conditions": [condition]},
        });
        let patch =
            Patch::Apply { body: body.to_string().into(), manager: ENTRY.name.to_owned(), force: true };
        self.client.patch(&Kind::of::<ServiceCidr>(), range.key(), Subresource::Status, patch).await
    }
}
