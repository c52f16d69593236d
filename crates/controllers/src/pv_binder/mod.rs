//! PersistentVolume binder: binds claims to volumes, and reclaims released volumes.
//!
//! Owns: the binding between claims and volumes (`claimRef`, `volumeName` and their annotations), the phases of both,
//! the provisioning annotations, and the host path volumes it provisions itself.
//! Watches: claims, volumes, classes, pods, nodes.
//! Writes: claims and volumes (update), their status (update), volumes and recycler pods (create, delete), events.
//! Metrics: `pv_collector_*`, `retroactive_storageclass_*`, `volume_operation_total_errors`.
//!
//! ```text
//!  claims ──► observe.rs ─► claim.rs   bind, wait, set a class, provision, mark as lost   (pure)
//!                              └─► provision.rs  who provisions a volume, and how         (pure)
//!  volumes ─► observe.rs ─► volume.rs  available, bound, released, unbound                (pure)
//!                              └─► reclaim.rs    what happens to a released volume        (pure)
//!  reconcile.rs  applies both         recycle.rs  the pod that scrubs a volume
//!  metrics.rs    metrics
//! ```
//!
//! Invariants:
//! - the volume is written before the claim, so a volume never has two claims;
//! - data is given up (a claim lost, a volume released or deleted) only after an uncached read;
//! - a claim that is completely bound, and its volume, are left alone.

mod claim;
mod metrics;
mod observe;
mod provision;
mod reclaim;
mod reconcile;
mod recycle;
#[cfg(test)]
mod tests;
mod volume;

use std::sync::Arc;
use std::time::Duration;

use setpoint::handler::enqueue_mapped;
use setpoint::{Context, Event, Key, Lister, Object, Queue, Runnable};
use setpoint_volume::{
    Claim, Class, Latest, PodVolumes, VOLUMES_BY_CLAIM, Volume, index_by_claim, index_volumes,
};

use self::observe::Caches;
use self::reconcile::{Binder, Claims, Volumes};
use self::recycle::Recycling;
use crate::flags::{Flag, duration, number, truth};
use crate::registry::{Access, EVENTS, Entry, Options};
use crate::wiring;

pub(crate) const ENTRY: Entry = Entry {
    name: "persistentvolume-binder-controller",
    aliases: &["persistentvolume-binder"],
    on_by_default: true,
    gates: &[],
    summary: "binds claims to volumes, triggers provisioning and reclaims released volumes",
    watches: &[
        Access::watch("", "persistentvolumeclaims"),
        Access::watch("", "persistentvolumes"),
        Access::watch("storage.k8s.io", "storageclasses"),
        Access::watch("", "pods"),
        Access::watch("", "nodes"),
    ],
    writes: &[
        Access::to("", "persistentvolumes", &["create", "update", "delete"]),
        Access::to("", "persistentvolumes/status", &["update"]),
        Access::to("", "persistentvolumeclaims", &["update"]),
        Access::to("", "persistentvolumeclaims/status", &["update"]),
        Access::to("", "pods", &["create", "delete"]),
        EVENTS,
    ],
    default_workers: 1,
    build,
};

/// The event source name, unchanged from early Kubernetes.
const COMPONENT: &str = "persistentvolume-controller";

pub(crate) const FLAGS: &[Flag] = &[
    Flag::new(
        "pvclaimbinder-sync-period",
        "DURATION",
        "15s",
        "How often unbound claims are checked again.",
        |options, text| duration(text).map(|period| options.volume_binder.sync_period = period),
    ),
    Flag::new(
        "enable-dynamic-provisioning",
        "BOOL",
        "true",
        "Provision volumes for claims whose class has a provisioner.",
        |options, text| truth(text).map(|on| options.volume_binder.dynamic_provisioning = on),
    ),
    Flag::new(
        "enable-hostpath-provisioner",
        "BOOL",
        "false",
        "Enable the host path provisioner, for testing on a single node.",
        |options, text| truth(text).map(|on| options.volume_binder.host_path_provisioner = on),
    ),
    Flag::new(
        "pv-recycler-minimum-timeout-hostpath",
        "SECONDS",
        "60",
        "Minimum timeout in seconds for scrubbing a host path volume.",
        |options, text| number(text).map(|seconds| options.volume_binder.recycling.host_path_least = seconds),
    ),
    Flag::new(
        "pv-recycler-timeout-increment-hostpath",
        "SECONDS",
        "30",
        "Additional timeout in seconds per GiB for scrubbing a host path volume.",
        |options, text| {
            number(text).map(|seconds| options.volume_binder.recycling.host_path_per_gigabyte = seconds)
        },
    ),
    Flag::new(
        "pv-recycler-minimum-timeout-nfs",
        "SECONDS",
        "300",
        "Minimum timeout in seconds for scrubbing an NFS volume.",
        |options, text| number(text).map(|seconds| options.volume_binder.recycling.nfs_least = seconds),
    ),
    Flag::new(
        "pv-recycler-increment-timeout-nfs",
        "SECONDS",
        "30",
        "Additional timeout in seconds per GiB for scrubbing an NFS volume.",
        |options, text| {
            number(text).map(|seconds| options.volume_binder.recycling.nfs_per_gigabyte = seconds)
        },
    ),
    Flag::new("pv-recycler-pod-template-filepath-hostpath", "FILE", "", OWN_TEMPLATE, no_template),
    Flag::new("pv-recycler-pod-template-filepath-nfs", "FILE", "", OWN_TEMPLATE, no_template),
    Flag::new(
        "flex-volume-plugin-dir",
        "DIR",
        FLEX_PLUGINS,
        "Accepted for compatibility: FlexVolume plugins are not run.",
        |_, text| match text {
            "" | FLEX_PLUGINS => Ok(()),
            _ => Err("FlexVolume plugins are not supported".into()),
        },
    ),
];

const FLEX_PLUGINS: &str = "/usr/libexec/kubernetes/kubelet-plugins/volume/exec/";
const OWN_TEMPLATE: &str = "Not supported: the recycler pod cannot be customized.";

fn no_template(_: &mut Options, text: &str) -> Result<(), String> {
    match text {
        "" => Ok(()),
        _ => Err("custom templates for recycler pods are not supported".into()),
    }
}

/// Settings of the volume binder.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// How often unbound claims, and volumes that could not be reclaimed, are retried.
    pub sync_period: Duration,
    /// Whether volumes are provisioned for claims.
    pub dynamic_provisioning: bool,
    /// Whether the host path provisioner is enabled: for testing on a single node.
    pub host_path_provisioner: bool,
    /// Timeouts for scrubbing a volume.
    pub recycling: Recycling,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            sync_period: Duration::from_secs(15),
            dynamic_provisioning: true,
            host_path_provisioner: false,
            recycling: Recycling::default(),
        }
    }
}

fn build(context: &Context, options: &Options) -> Vec<Box<dyn Runnable>> {
    let claims = context.informers.of::<Claim>();
    let volumes = context.informers.of::<Volume>();
    let classes = context.informers.of::<Class>();
    let pods = context.informers.of::<PodVolumes>();
    let nodes = context.informers.of::<k8s_openapi::api::core::v1::Node>();
    index_by_claim(&pods);
    index_volumes(&volumes);

    metrics::register(&context.metrics, &volumes.lister(), &claims.lister());
    let claim_queue = wiring::queue(context, "claims");
    let volume_queue = wiring::queue(context, "volumes");
    let caches = Caches {
        claims: Latest::of(&claims),
        volumes: Latest::of(&volumes),
        classes: classes.lister(),
        pods: pods.lister(),
        nodes: nodes.lister(),
    };
    claims.add_handler(on_claim(claim_queue.clone(), volume_queue.clone(), volumes.lister()));
    volumes.add_handler(on_volume(claim_queue.clone(), volume_queue.clone()));
    pods.add_handler(enqueue_mapped(&volume_queue, |pod: &Object| recycle::volume_of(pod.key())));

    let binder = Arc::new(Binder {
        client: context.client.clone(),
        recorder: context.recorder(COMPONENT),
        settings: options.volume_binder,
        claim_queue: claim_queue.clone(),
        caches,
        metrics: context.metrics.clone(),
    });
    let informers = [&claims, &volumes, &classes, &pods, &nodes];
    let binding = wiring::controller(&ENTRY, options, claim_queue, Claims(binder.clone()), informers);
    let reclaiming = wiring::part("persistentvolume-reclaimer", volume_queue, Volumes(binder), informers);
    vec![Box::new(binding), Box::new(reclaiming)]
}

/// A deleted claim also concerns its volume.
fn on_claim(
    claims: Queue<Key>,
    volumes: Queue<Key>,
    lister: Lister<Volume>,
) -> impl Fn(&Event) + Send + Sync + 'static {
    move |event| {
        let claim = event.object();
        claims.add(claim.key().clone());
        if matches!(event, Event::Deleted { .. }) {
            let bound = lister.objects().indexed(VOLUMES_BY_CLAIM, &claim.key().to_string());
            bound.iter().for_each(|volume| volumes.add(volume.key().clone()));
            if let Ok(view) = claim.view::<Claim>()
                && !view.spec.volume_name.is_empty()
            {
                volumes.add(Key::cluster(&*view.spec.volume_name));
            }
        }
    }
}

/// A volume that is deleted or assigned to another claim also concerns its previous claim.
fn on_volume(claims: Queue<Key>, volumes: Queue<Key>) -> impl Fn(&Event) + Send + Sync + 'static {
    move |event| {
        volumes.add(event.object().key().clone());
        let claim_of = |volume: &Object| volume.view::<Volume>().ok()?.spec.claim_ref.clone();
        let left = match event {
            Event::Added { .. } => None,
            Event::Deleted { last, .. } => claim_of(last),
            Event::Updated { old, new } => claim_of(old).filter(|old| claim_of(new).as_ref() != Some(old)),
        };
        if let Some(claim) = left {
            claims.add(claim.key());
        }
    }
}
