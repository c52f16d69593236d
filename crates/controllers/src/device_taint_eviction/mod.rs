//! Device taint eviction: deletes pods that use devices whose taints their claims do not tolerate.
//!
//! Owns: nothing; it deletes pods.
//! Watches: Pods, ResourceClaims, ResourceSlices, DeviceTaintRules, DeviceClasses.
//! Writes: Pod status (patch), deletes pods.
//! Metrics: `device_taint_eviction_controller_*`.
//!
//! ```text
//!  view.rs       typed views of claims and slices
//!  devices.rs    the taints of a device: its driver's, and those of rules  (pure)
//!  plan.rs       when the pods of a claim must be evicted                  (pure)
//!  reconcile.rs  checks a pod; deletes it when its time has come
//! ```
//!
//! Invariants:
//! - a pod is evicted when the first `NoExecute` taint of one of its devices is no longer tolerated, counted from when
//!   the taint was added; a pod that tolerates all of them without a limit stays;
//! - only slices of the newest generation of a pool count;
//! - a pod gets a disruption condition before it is deleted, and every delete carries its UID;
//! - a rule whose expression fails for a device reports this and does not taint it.

mod devices;
mod plan;
mod reconcile;
mod view;

use std::sync::Arc;

use parking_lot::Mutex;
use setpoint::handler::enqueue_mapped;
use setpoint::{Context, Event, Key, Lister, Object, Queue, Runnable};
use setpoint_device::{Expressions, RuleLister, RuleSources};

use self::reconcile::{Caches, Evictor};
use self::view::{Claim, Slice};
use crate::registry::{Access, EVENTS, Entry, Options};
use crate::resource_claim::view::{Pod, with_claims};
use crate::wiring;

const GROUP: &str = "resource.k8s.io";

pub(crate) const ENTRY: Entry = Entry {
    name: "device-taint-eviction-controller",
    aliases: &[],
    on_by_default: true,
    gates: &["DynamicResourceAllocation", "DRADeviceTaints"],
    summary: "deletes pods that use devices whose taints they do not tolerate",
    watches: &[
        Access::watch("", "pods"),
        Access::watch(GROUP, "resourceclaims"),
        Access::watch(GROUP, "resourceslices"),
        Access::watch(GROUP, "devicetaintrules"),
        Access::watch(GROUP, "deviceclasses"),
    ],
    writes: &[Access::to("", "pods", &["delete", "get"]), Access::to("", "pods/status", &["patch"]), EVENTS],
    default_workers: 8,
    build,
};

fn build(context: &Context, options: &Options) -> Vec<Box<dyn Runnable>> {
    let pods = context.informers.of::<Pod>();
    let claims = context.informers.of::<Claim>();
    let slices = context.informers.of::<Slice>();
    let sources = RuleSources::of(context);
    let rules = sources.lister(Expressions::default());
    let queue = wiring::queue(context, "device_taint_pod");
    let due = Arc::<Mutex<reconcile::Due>>::default();
    let wake = Arc::new(Wake {
        queue: queue.clone(),
        claims: claims.lister(),
        rules: rules.clone(),
        due: due.clone(),
    });
    wiring::follow(&pods, &wake, Wake::pod_changed);
    claims.add_handler(enqueue_mapped(&queue, consumers));
    wiring::follow(&slices, &wake, Wake::slice_changed);
    for informer in sources.all() {
        wiring::follow(informer, &wake, |wake, _| wake.all());
    }

    let caches = Caches { pods: pods.lister(), claims: claims.lister(), slices: slices.lister(), rules };
    let evictor = Evictor {
        client: context.client.clone(),
        clock: context.runtime.clock.clone(),
        recorder: context.recorder(ENTRY.name),
        of_rules: context.recorder("resource_slice_tracker"),
        caches,
        metrics: context.metrics.clone(),
        due,
    };
    let informers = [&pods, &claims, &slices].into_iter().chain(sources.all());
    vec![Box::new(wiring::controller(&ENTRY, options, queue, evictor, informers))]
}

/// Maps events to pod keys.
struct Wake {
    queue: Queue<Key>,
    claims: Lister<Claim>,
    rules: RuleLister,
    due: Arc<Mutex<reconcile::Due>>,
}

impl Wake {
    fn pod_changed(&self, event: &Event) {
        if with_claims(event.object()).is_some() || self.due.lock().contains(event.object().key()) {
            self.queue.add(event.object().key().clone());
        }
    }

    fn slice_changed(&self, event: &Event) {
        if event.states().any(devices::is_tainted) || self.rules.any() {
            self.all();
        }
    }

    /// Enqueues all pods that use devices.
    fn all(&self) {
        for claim in self.claims.objects().list(None) {
            consumers(&claim).into_iter().for_each(|pod| self.queue.add(pod));
        }
    }
}

/// Returns the pods that a claim is reserved for.
fn consumers(claim: &Object) -> Vec<Key> {
    let Ok(view) = claim.view::<Claim>() else { return Vec::new() };
    let pods = view.status.reserved_for.iter().filter(|consumer| consumer.is_pod());
    pods.map(|consumer| claim.key().sibling(&*consumer.name)).collect()
}
