//! Device taint eviction: deletes pods that use devices whose taints their claims do not tolerate.
//!
//! Owns: nothing; it deletes pods.
//! Watches: Pods, ResourceClaims, ResourceSlices, DeviceTaintRules, DeviceClasses.
//! Writes: Pod status (patch), deletes pods.
//! Metrics: `device_taint_eviction_controller_*`.
//!
//! ```text
//!  view.rs       claims and slices as they are read
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
use setpoint::queue::limiter;
use setpoint::{Context, Controller, Event, Key, Object, Queue, Runnable};
use setpoint_device::{Expressions, RuleSources};

use self::reconcile::{Caches, Evictor};
use self::view::{Claim, Slice};
use crate::registry::{Access, EVENTS, Entry, Options};
use crate::resource_claim::view::{Pod, with_claims};

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
    let limiter = limiter::eager(&context.runtime.clock);
    let queue = Queue::with_rate_limiter("device_taint_pod", &context.runtime, limiter);
    let due = Arc::<Mutex<reconcile::Due>>::default();

    let (changed, known) = (queue.clone(), due.clone());
    pods.add_handler(move |event: &Event| {
        if with_claims(event.object()).is_some() || known.lock().contains(event.object().key()) {
            changed.add(event.object().key().clone());
        }
    });
    let changed = queue.clone();
    claims.add_handler(move |event: &Event| {
        let consumers = event.states().flat_map(consumers);
        consumers.for_each(|pod| changed.add(pod));
    });
    let (changed, all) = (queue.clone(), claims.lister::<Claim>());
    let everybody = move || {
        for claim in all.objects().list(None) {
            consumers(&claim).into_iter().for_each(|pod| changed.add(pod));
        }
    };
    let (slice_changed, may_match) = (everybody.clone(), rules.clone());
    slices.add_handler(move |event: &Event| {
        if event.states().any(devices::is_tainted) || may_match.any() {
            slice_changed();
        }
    });
    for informer in sources.all() {
        let rule_changed = everybody.clone();
        informer.add_handler(move |_: &Event| rule_changed());
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
    let controller =
        Controller::new(ENTRY.name, queue, evictor).workers(options.workers(&ENTRY)).persistent();
    let informers = [&pods, &claims, &slices].into_iter().chain(sources.all());
    vec![Box::new(informers.fold(controller, |one, informer| one.waits_for(informer)))]
}

/// The pods that a claim is reserved for.
fn consumers(claim: &Object) -> Vec<Key> {
    let Ok(view) = claim.view::<Claim>() else { return Vec::new() };
    let pods = view.status.reserved_for.iter().filter(|consumer| consumer.is_pod());
    pods.map(|consumer| claim.key().sibling(&*consumer.name)).collect()
}
