//! SELinux warning: reports pods that share a volume but want different SELinux labels on it.
//!
//! Owns: nothing; it records events.
//! Watches: Pods, PersistentVolumeClaims, PersistentVolumes, CSIDrivers.
//! Writes: events.
//! Metrics: `selinux_warning_controller_selinux_volume_conflict`.
//!
//! ```text
//!  label.rs      the label a pod wants for a volume, and which labels conflict  (pure)
//!  users.rs      which pods use a volume, and how                               (pure)
//!  reconcile.rs  checks a pod; reports conflicts on both pods
//! ```
//!
//! Invariants:
//! - both pods of a conflict get one event when it arises; a pod in another namespace is not named;
//! - volumes that cannot be mounted with a label are relabelled for every user: those of drivers that do not declare
//!   support, or all if the feature gate `SELinuxMountReadWriteOncePod` is off;
//! - CSI volumes are checked, including in-tree volumes migrated to CSI, and network volumes, which can always be
//!   mounted with a label; all others are ignored.

mod label;
mod reconcile;
mod users;

use std::sync::Arc;

use parking_lot::Mutex;
use serde::Deserialize;
use setpoint::{Context, Event, Key, Lister, Object, Queue, Runnable};
use setpoint_volume::inline::inline_disks;
use setpoint_volume::{Claim, PODS_BY_CLAIM, PodVolumes, Volume, claims_of, index_by_claim};

use self::reconcile::Warner;
use self::users::Users;
use crate::metrics;
use crate::registry::{Access, EVENTS, Entry, Options};
use crate::wiring;

pub(crate) const ENTRY: Entry = Entry {
    name: "selinux-warning-controller",
    aliases: &[],
    on_by_default: false,
    gates: &["SELinuxChangePolicy"],
    summary: "warns about pods that share a volume but want different SELinux labels",
    watches: &[
        Access::watch("", "pods"),
        Access::watch("", "persistentvolumeclaims"),
        Access::watch("", "persistentvolumes"),
        Access::watch("storage.k8s.io", "csidrivers"),
    ],
    writes: &[EVENTS],
    default_workers: 1,
    build,
};

/// The event source.
const COMPONENT: &str = "selinux_warning";

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
struct Driver {
    spec: DriverSpec,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
struct DriverSpec {
    #[serde(rename = "seLinuxMount")]
    mounts_with_label: Option<bool>,
}

setpoint::view!(Driver of k8s_openapi::api::storage::v1::CSIDriver);

fn build(context: &Context, options: &Options) -> Vec<Box<dyn Runnable>> {
    let pods = context.informers.of::<PodVolumes>();
    let claims = context.informers.of::<Claim>();
    let volumes = context.informers.of::<Volume>();
    let drivers = context.informers.of::<Driver>();
    index_by_claim(&pods);
    let queue = wiring::queue(context, "selinux_warning");
    let users = Arc::<Mutex<Users>>::default();
    let wake = Arc::new(Wake { queue: queue.clone(), pods: pods.lister(), users: users.clone() });
    wiring::follow(&pods, &wake, Wake::pod_changed);
    wiring::follow(&claims, &wake, |wake, event| wake.claim(event.object().key()));
    wiring::follow(&volumes, &wake, Wake::volume_changed);
    wiring::follow(&drivers, &wake, Wake::driver_changed);
    register_conflicts(context, users.clone());

    let warner = Warner {
        recorder: context.recorder(COMPONENT),
        pods: pods.lister(),
        claims: claims.lister(),
        volumes: volumes.lister(),
        drivers: drivers.lister(),
        mounts_with_labels: options.gates.on("SELinuxMountReadWriteOncePod"),
        users,
    };
    let informers = [&pods, &claims, &volumes, &drivers];
    vec![Box::new(wiring::controller(&ENTRY, options, queue, warner, informers))]
}

fn register_conflicts(context: &Context, users: Arc<Mutex<Users>>) {
    let name = "selinux_warning_controller_selinux_volume_conflict";
    let help = "Conflict between two Pods using the same volume";
    metrics::register_gauge(&context.metrics, name, help, move || {
        users.lock().conflicts().into_iter().map(|labels| (labels.into(), 1)).collect()
    });
}

/// Maps events to pods.
struct Wake {
    queue: Queue<Key>,
    pods: Lister<PodVolumes>,
    users: Arc<Mutex<Users>>,
}

impl Wake {
    fn pod_changed(&self, event: &Event) {
        if event.states().any(|pod| claims_of(pod).is_some() || !inline_disks(pod).is_empty()) {
            self.queue.add(event.object().key().clone());
        }
    }

    fn volume_changed(&self, event: &Event) {
        let claim =
            |volume: &Object| volume.view::<Volume>().ok()?.spec.claim_ref.as_ref().map(|of| of.key());
        event.states().filter_map(claim).for_each(|claim| self.claim(&claim));
    }

    fn driver_changed(&self, event: &Event) {
        let supports_label = |driver: &Object| driver.view::<Driver>().cloned().unwrap_or_default();
        if !matches!(event, Event::Updated { old, new } if supports_label(old) == supports_label(new)) {
            let pods = self.users.lock().of_driver(event.object().key().name());
            pods.into_iter().for_each(|pod| self.queue.add(pod));
        }
    }

    /// Enqueues the pods that use a claim.
    fn claim(&self, claim: &Key) {
        let pods = self.pods.indexed(PODS_BY_CLAIM, &claim.to_string()).unwrap_or_default();
        pods.into_iter().for_each(|pod| self.queue.add(pod.key().clone()));
    }
}
