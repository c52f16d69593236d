//! ValidatingAdmissionPolicy status: type-checks the expressions of policies.
//!
//! Owns: `observedGeneration` and `typeChecking` in the status of ValidatingAdmissionPolicies.
//! Watches: ValidatingAdmissionPolicies.
//! Writes: their status (server-side apply).
//!
//! ```text
//!  view.rs    typed views of policies
//!  kinds.rs   the kinds a policy applies to                                (pure)
//!  schema.rs  the schema of a kind, as published by the API server         (pure)
//!  check.rs   type errors in expressions                                   (pure)
//! ```
//!
//! Invariants:
//! - a policy is checked once per generation;
//! - a kind without a known schema is skipped: a warning is never a guess.

mod check;
mod kinds;
mod schema;
#[cfg(test)]
mod tests;
mod view;

use serde_json::{Value, json};
use setpoint::client::{Optional, Patch, Subresource};
use setpoint::handler::{Handler, enqueue_self};
use setpoint::reconcile::ErrorContext;
use setpoint::{
    Cached, Client, ClientError, Context, Event, Key, Kind, Lister, Outcome, ReconcileError, Reconciler,
    Runnable,
};

use self::check::{Checked, Warning, warnings};
use self::view::Policy;
use crate::flags::Flag;
use crate::registry::{Access, EVENTS, Entry, Options};
use crate::served::Served;
use crate::wiring;

pub(crate) const ENTRY: Entry = Entry {
    name: "validatingadmissionpolicy-status-controller",
    aliases: &[],
    on_by_default: true,
    gates: &[],
    summary: "type-checks the expressions of ValidatingAdmissionPolicies",
    watches: &[Access::watch("admissionregistration.k8s.io", "validatingadmissionpolicies")],
    writes: &[
        Access::to("admissionregistration.k8s.io", "validatingadmissionpolicies/status", &["patch"]),
        EVENTS,
    ],
    default_workers: 5,
    build,
};

pub(crate) const FLAGS: &[Flag] =
    &[Flag::workers("concurrent-validating-admission-policy-status-syncs", &ENTRY, "5")];

/// The field manager of the status, and the queue name.
const MANAGER: &str = "validatingadmissionpolicy-status";

fn build(context: &Context, options: &Options) -> Vec<Box<dyn Runnable>> {
    let policies = context.informers.of::<Policy>();
    let queue = wiring::queue(context, MANAGER);
    policies.add_handler(enqueue_self(&queue).when(|event: &Event| !matches!(event, Event::Deleted { .. })));
    let checker =
        Checker { client: context.client.clone(), served: Served::new(context), policies: policies.lister() };
    let controller = wiring::controller(&ENTRY, options, queue, checker, [&policies]);
    vec![Box::new(controller)]
}

struct Checker {
    client: Client,
    served: Served,
    policies: Lister<Policy>,
}

impl Reconciler for Checker {
    type Key = Key;

    async fn reconcile(&self, key: &Key) -> Result<Outcome, ReconcileError> {
        let Some(policy) = self.policies.get(key)? else { return Ok(Outcome::Settled) };
        if policy.meta().generation <= policy.status.observed_generation {
            return Ok(Outcome::Settled);
        }
        let found = self.check(&policy).await.attempting(format!("resolve the types of policy {key}"))?;
        self.write_status(&policy, &found).await?;
        Ok(Outcome::Settled)
    }
}

impl Checker {
    async fn check(&self, policy: &Policy) -> Result<Vec<Warning>, ClientError> {
        let served = self.served.get().await?;
        let mut kinds = Vec::new();
        for kind in kinds::of(policy, &served) {
            if let Some(object) = self.types_of(&kind).await? {
                kinds.push(Checked { kind, object });
            }
        }
        let parameters = match policy.spec.param_kind.as_ref().and_then(|kind| kind.find(&served)) {
            Some(kind) => self.types_of(&kind).await?,
            None => None,
        };
        Ok(warnings(policy, &kinds, parameters.as_ref()))
    }

    /// Returns the types of a kind. `None` if the API server does not publish them.
    async fn types_of(&self, kind: &Kind) -> Result<Option<setpoint_cel::Declared>, ClientError> {
        let path = match kind.group() {
            "" => vec!["openapi", "v3", "api", kind.version()],
            group => vec!["openapi", "v3", "apis", group, kind.version()],
        };
        let Some(document) = self.client.get_path(&path, &[]).await.optional()? else { return Ok(None) };
        let document: Value = serde_json::from_slice(&document)
            .map_err(|error| ClientError::InvalidResponse(Box::new(error)))?;
        Ok(schema::of_kind(&document, kind))
    }

    async fn write_status(&self, policy: &Cached<Policy>, found: &[Warning]) -> Result<(), ReconcileError> {
        let checking = if found.is_empty() { json!({}) } else { json!({"expressionWarnings": found}) };
        let body = json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingAdmissionPolicy",
            "metadata": {"name": policy.key().name(), "uid": policy.meta().uid},
            "status": {"observedGeneration": policy.meta().generation, "typeChecking": checking},
        });
        let patch = Patch::Apply { body: body.to_string().into(), manager: MANAGER.into(), force: true };
        let applied =
            self.client.patch(&Kind::of::<Policy>(), policy.key(), Subresource::Status, patch).await;
        applied
            .optional()
            .map(drop)
            .attempting(format!("update the type checking status of policy {}", policy.key()))
    }
}
