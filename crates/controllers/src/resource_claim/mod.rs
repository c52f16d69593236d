//! ResourceClaim: creates claims from templates, and tracks which pods use a claim.
//!
//! Owns: claims created from templates, their names in pod statuses, the consumers of claims.
//! Watches: Pods, ResourceClaims, ResourceClaimTemplates.
//! Writes: ResourceClaims (create, update, delete), ResourceClaim status (update), Pod status (server-side apply).
//! Metrics: `resourceclaim_controller_*`.
//!
//! ```text
//!  view.rs    typed views of pods, claims and templates
//!  pod.rs     per pod: creates its claims, and reserves them once it has a node
//!  claim.rs   per claim: removes consumers that are gone, and deletes a claim without consumers along with its pod
//!  wake.rs    events → keys
//! ```
//!
//! Invariants:
//! - a pod has at most one claim for each of its requests, even with a stale cache;
//! - a consumer is removed from a claim only if the API server confirms that it is gone, or it has finished;
//! - a claim in use keeps its allocation.

mod claim;
mod pod;
pub(crate) mod view;
mod wake;

use std::fmt;
use std::sync::Arc;

use serde_json::Value;
use setpoint::{Context, Informer, Key, Outcome, ReconcileError, Reconciler, Runnable};

use self::claim::Claims;
use self::pod::Pods;
use self::view::{Claim, Pod, Template};
use crate::metrics;
use crate::registry::{Access, EVENTS, Entry, Options};
use crate::wiring;
use setpoint::write_tracker::WriteTracker;

pub(crate) const ENTRY: Entry = Entry {
    name: "resourceclaim-controller",
    aliases: &["resource-claim-controller"],
    on_by_default: true,
    gates: &["DynamicResourceAllocation"],
    summary: "creates ResourceClaims from templates and tracks their consumers",
    watches: &[
        Access::watch("", "pods"),
        Access::watch(GROUP, "resourceclaims"),
        Access::watch(GROUP, "resourceclaimtemplates"),
    ],
    writes: &[
        Access::to(GROUP, "resourceclaims", &["create", "delete", "update"]),
        Access::to(GROUP, "resourceclaims/status", &["update"]),
        Access::to("", "pods", &["get"]),
        Access::to("", "pods/status", &["patch"]),
        EVENTS,
    ],
    default_workers: 10,
    build,
};

const GROUP: &str = "resource.k8s.io";

/// A unit of work.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Work {
    Pod(Key),
    Claim(Key),
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pod(key) => write!(f, "pod:{key}"),
            Self::Claim(key) => write!(f, "claim:{key}"),
        }
    }
}

fn build(context: &Context, options: &Options) -> Vec<Box<dyn Runnable>> {
    let pods = context.informers.of::<Pod>();
    let claims = context.informers.of::<Claim>();
    let templates = context.informers.of::<Template>();
    let queue = wiring::queue(context, "resource_claim");
    wake::on_changes(&queue, &pods, &claims);
    register_claim_counts(context, &claims);
    let reconciler = Both {
        pods: Pods {
            client: context.client.clone(),
            recorder: context.recorder("resource_claim"),
            pods: pods.lister(),
            claims: claims.lister(),
            templates: templates.lister(),
            features: pod::Features {
                admin_access: options.gates.on("DRAAdminAccess"),
                prioritized_lists: options.gates.on("DRAPrioritizedList"),
            },
            own: Arc::new(WriteTracker::new(&claims)),
            metrics: context.metrics.clone(),
        },
        claims: Claims { client: context.client.clone(), pods: pods.lister(), claims: claims.lister() },
    };
    let controller = wiring::controller(&ENTRY, options, queue, reconciler, [&pods, &claims, &templates]);
    vec![Box::new(controller)]
}

/// Registers the gauges of claims.
fn register_claim_counts(context: &Context, claims: &Informer) {
    let claims = claims.lister::<Claim>();
    let name = "resourceclaim_controller_resource_claims";
    let help = "Number of ResourceClaims, categorized by allocation status and admin access";
    metrics::register_gauge(&context.metrics, name, help, move || {
        let all = claims.objects().list(None);
        metrics::count(all.iter().filter_map(|claim| {
            let claim: Value = claim.decode().ok()?;
            let allocated = claim["status"]["allocation"].is_object();
            let admin = pod::asks_for_admin(&claim["spec"]);
            Some(vec![("allocated", allocated.to_string()), ("admin_access", admin.to_string())])
        }))
    });
}

struct Both {
    pods: Pods,
    claims: Claims,
}

impl Reconciler for Both {
    type Key = Work;

    async fn reconcile(&self, work: &Work) -> Result<Outcome, ReconcileError> {
        match work {
            Work::Pod(key) => self.pods.reconcile(key).await?,
            Work::Claim(key) => self.claims.reconcile(key).await?,
        }
        Ok(Outcome::Settled)
    }
}
