//! Reserves a pod's resource claims before it is bound, and releases them if that fails.

use serde_json::json;
use setpoint::client::{Patch, Subresource};
use setpoint::reconcile::ErrorContext;
use setpoint::{Cached, ClientError, Kind, ReconcileError};

use crate::devices::{self, Claim as DeviceClaim, Reserving, Write};
use crate::reconcile::{Scheduler, ignore_gone};
use crate::view::Pod;

/// A claim needs two writes, and is read again after each conflict. Like v1.34, give up after four conflicts.
const RESERVATION_WRITES: usize = 2 + 4;

impl Scheduler {
    /// Reserves all resource claims of a pod. Returns `false`, and releases the claims reserved so far, if one of them
    /// cannot be reserved any more.
    pub(crate) async fn reserve(&self, pod: &Pod) -> Result<bool, ReconcileError> {
        let reservation = self.shared.state.lock().reservations.get(&pod.meta().uid).cloned();
        for (index, reserving) in reservation.iter().flat_map(|reservation| &reservation.claims).enumerate() {
            let attempted = || format!("reserve claim {} for pod {}", reserving.claim.key(), pod.key());
            match self.reserve_claim(pod, reserving).await.attempting(attempted())? {
                Ok(()) => {}
                Err(lost) => {
                    self.shared.release_pod(&mut self.shared.state.lock(), pod);
                    let done = reservation.iter().flat_map(|reservation| &reservation.claims[..index]);
                    self.unreserve(pod, done).await?;
                    let message = format!("running PreBind plugin \"DynamicResources\": {lost}");
                    return self.fail(pod, &message).await.map(|_| false);
                }
            }
        }
        self.shared.state.lock().reservations.remove(&pod.meta().uid);
        Ok(true)
    }

    /// Writes a claim until it is reserved for the pod. The inner `Err` says why that is impossible. After an outer
    /// error it is unknown what was written; the next attempt finds out.
    async fn reserve_claim(
        &self,
        pod: &Pod,
        reserving: &Reserving,
    ) -> Result<Result<(), String>, ClientError> {
        let kind = Kind::of::<DeviceClaim>();
        let key = reserving.claim.key();
        let mut claim = reserving.claim.object().clone();
        for _ in 0..RESERVATION_WRITES {
            let Ok(known) = Cached::new(claim.clone()) else { return Ok(Err(format!("cannot read {key}"))) };
            let (part, object) = match devices::next_write(&known, reserving, pod) {
                Write::Main(object) => (Subresource::None, object),
                Write::Status(object) => (Subresource::Status, object),
                Write::Nothing => {
                    let shown = self.shared.listers.devices.claims.get(key).ok().flatten();
                    self.shared.state.lock().ledger.devices.wrote(&claim, shown.as_ref());
                    return Ok(Ok(()));
                }
                Write::Lost(why) => return Ok(Err(why)),
            };
            claim = match self.client.update_encoded(&kind, key, part, object.raw().clone()).await {
                Err(error) if error.is_conflict() => match self.client.get(&kind, key).await {
                    Err(error) if error.is_not_found() => return Ok(Err(error.to_string())),
                    read => read?,
                },
                Err(error) if error.is_not_found() || error.is_invalid() || error.is_forbidden() => {
                    return Ok(Err(format!("add reservation to claim {key}: {error}")));
                }
                written => written?,
            };
        }
        Ok(Err(format!("claim {key}: too many conflicts")))
    }

    /// Removes a pod from the `reservedFor` of claims that it reserved and cannot use.
    async fn unreserve(
        &self,
        pod: &Pod,
        claims: impl Iterator<Item = &Reserving>,
    ) -> Result<(), ReconcileError> {
        for reserving in claims {
            let (key, uid) = (reserving.claim.key(), &reserving.claim.meta().uid);
            let user = json!([{"$patch": "delete", "uid": &pod.meta().uid}]);
            let patch = json!({"metadata": {"uid": uid}, "status": {"reservedFor": user}});
            let kind = Kind::of::<DeviceClaim>();
            let patch = Patch::strategic(&patch);
            let written = self.client.patch_ignoring_response(&kind, key, Subresource::Status, patch).await;
            ignore_gone(written, format!("remove pod {} from claim {key}", pod.key()))?;
        }
        Ok(())
    }

    /// Deallocates the devices of an unused claim.
    pub(crate) async fn deallocate(&self, claim: &Cached<DeviceClaim>) -> Result<(), ReconcileError> {
        let Write::Status(object) = devices::deallocation(claim) else { return Ok(()) };
        let (kind, key) = (Kind::of::<DeviceClaim>(), claim.key());
        let written = self.client.update_encoded(&kind, key, Subresource::Status, object.raw().clone()).await;
        ignore_gone(written.map(drop), format!("deallocate claim {key}")).map(drop)
    }
}
