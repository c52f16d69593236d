//! Observe, plan, write.

use setpoint::client::Subresource;
use setpoint::object::DecodeError;
use setpoint::reconcile::ErrorContext;
use setpoint::{
    Cached, Client, Clock, EventType, Key, Kind, Lister, Outcome, ReconcileError, Reconciler, Recorder,
    UpdateBody,
};

use super::scale::{ScaleError, Scales};
use super::status::{Demand, Granted, demand_of, failed, fixed_demand, granted, status};
use super::view::{Budget, BudgetStatus, Target};
use crate::workload::selector::format_selector;

pub(super) struct Budgets {
    pub(super) client: Client,
    pub(super) clock: Clock,
    pub(super) recorder: Recorder,
    pub(super) budgets: Lister<Budget>,
    pub(super) pods: Lister<Target>,
    pub(super) scales: Scales,
}

impl Reconciler for Budgets {
    type Key = Key;

    async fn reconcile(&self, key: &Key) -> Result<Outcome, ReconcileError> {
        let Some(budget) = self.budgets.get(key)? else { return Ok(Outcome::Settled) };
        let pods = self.pods_of(&budget)?;
        if pods.is_empty() {
            self.event(&budget, EventType::Normal, "NoPods", "No matching pods found".to_owned());
        }
        let demand = match self.demand(&budget, &pods).await {
            Ok(demand) => demand,
            Err(error) => return self.fail(&budget, &error).await,
        };
        let now = self.clock.now();
        let Granted { awaited, overdue, recheck } = granted(&budget, &pods, now);
        overdue.iter().filter_map(|at| pods.get(*at)).for_each(|pod| self.overdue_event(&budget, pod));
        self.write(&budget, &status(&budget, &pods, demand, awaited, now)).await?;
        Ok(recheck.map_or(Outcome::Settled, Outcome::CheckAfter))
    }
}

impl Budgets {
    fn pods_of(&self, budget: &Cached<Budget>) -> Result<Vec<Cached<Target>>, DecodeError> {
        let pods = self.pods.objects().list(budget.key().namespace());
        pods.into_iter().filter(|pod| budget.selects(&pod.meta().labels)).map(Cached::new).collect()
    }

    async fn demand(&self, budget: &Cached<Budget>, pods: &[Cached<Target>]) -> Result<Demand, ScaleError> {
        if let Some(demand) = fixed_demand(budget, pods.len()) {
            return Ok(demand);
        }
        let expected = self.scales.expected(pods).await?;
        if !expected.unmanaged.is_empty() {
            let selector = budget.spec.selector.as_ref().map(format_selector).unwrap_or_default();
            let message = format!(
                "Pods selected by this PodDisruptionBudget (selector: {selector}) were found to be unmanaged. As a \
                 result, the status of the PDB cannot be calculated correctly, which may result in undefined \
                 behavior. To account for these pods please set \".spec.minAvailable\" field of the PDB to an \
                 integer value."
            );
            self.event(budget, EventType::Warning, "UnmanagedPods", message);
        }
        Ok(demand_of(budget, expected.pods))
    }

    /// Allows no disruptions and retries: the failure may be due to a stale cache.
    async fn fail(&self, budget: &Cached<Budget>, error: &ScaleError) -> Result<Outcome, ReconcileError> {
        let message = format!("Failed to calculate the number of expected pods: {error}");
        self.event(budget, EventType::Warning, "CalculateExpectedPodCountFailed", message);
        self.write(budget, &failed(budget, &error.to_string(), self.clock.now())).await?;
        Ok(Outcome::Requeue)
    }

    async fn write(&self, budget: &Cached<Budget>, status: &BudgetStatus) -> Result<(), ReconcileError> {
        if *status == budget.status {
            return Ok(());
        }
        let body = UpdateBody::of(budget.object()).set(&["status"], status);
        let written =
            self.client.update(&Kind::of::<Budget>(), budget.key(), Subresource::Status, &body).await;
        written.map(drop).attempting(format!("update the status of budget {}", budget.key()))
    }

    fn event(&self, budget: &Cached<Budget>, event_type: EventType, reason: &str, message: String) {
        self.recorder.event(&Kind::of::<Budget>(), budget.object(), event_type, reason, message);
    }

    fn overdue_event(&self, budget: &Cached<Budget>, pod: &Cached<Target>) {
        // v1.34's message repeats the namespace instead of the name.
        let namespace = budget.key().namespace().unwrap_or_default();
        let message = format!("Pod was expected by PDB {namespace}/{namespace} to be deleted but it wasn't");
        self.recorder.event(&Kind::of::<Target>(), pod.object(), EventType::Warning, "NotDeleted", message);
    }
}
