//! Attach/detach: attaches volumes to the nodes whose pods use them, and detaches them from all others.
//!
//! Owns: the VolumeAttachments of pods' volumes, including volumes that pods define inline; `status.volumesAttached` of
//! nodes.
//! Watches: pods, claims, volumes, nodes, VolumeAttachments, CSIDrivers.
//! Writes: VolumeAttachments (create, delete), node status (patch), events.
//! Metrics: `attachdetach_controller_total_volumes`, `storage_count_attachable_volumes_in_use`,
//! `attach_detach_controller_attachdetach_controller_forced_detaches`, `storage_operation_duration_seconds`.
//!
//! ```text
//!  wake.rs: events → keys
//!  pods, claims, volumes ─► key of a disk (disk.rs) ─► observe.rs ─► plan.rs  attach, detach, wait  (pure)
//!  attachments           ─► key of a node           ─► `volumesAttached`, including network disks (network.rs)
//!  reconcile.rs  applies both
//! ```
//!
//! Invariants:
//! - a volume that cannot be shared is attached to a second node only after the first has released it;
//! - a volume leaves `volumesAttached` before it is detached; one that a node still uses is detached only if the node
//!   is out of service or has been unhealthy for six minutes;
//! - only nodes with the annotation `volumes.kubernetes.io/controller-managed-attach-detach` are managed.

mod disk;
mod memory;
mod metrics;
mod network;
mod observe;
mod plan;
mod reconcile;
mod view;
mod wake;

use std::sync::Arc;
use std::time::Duration;

use setpoint::{Context, Runnable};
use setpoint_volume::{Claim, PodVolumes, Volume};

use self::observe::Caches;
use self::reconcile::{Attacher, Nodes, Volumes};
use self::view::{Attachment, Driver, Node};
use self::wake::Wake;
use crate::flags::{Flag, duration, truth};
use crate::registry::{Access, EVENTS, Entry, Options};
use crate::wiring;
use crate::workload::on_node::OnNode;

pub(crate) const ENTRY: Entry = Entry {
    name: "persistentvolume-attach-detach-controller",
    aliases: &["attachdetach"],
    on_by_default: true,
    gates: &[],
    summary: "attaches volumes to the nodes whose pods use them",
    watches: &[
        Access::watch("", "pods"),
        Access::watch("", "persistentvolumeclaims"),
        Access::watch("", "persistentvolumes"),
        Access::watch("", "nodes"),
        Access::watch("storage.k8s.io", "volumeattachments"),
        Access::watch("storage.k8s.io", "csidrivers"),
        Access::watch("storage.k8s.io", "csinodes"),
    ],
    writes: &[
        Access::to("storage.k8s.io", "volumeattachments", &["create", "delete"]),
        Access::to("", "nodes/status", &["patch", "update"]),
        EVENTS,
    ],
    default_workers: 1,
    build,
};

/// Attachments are watched, so there is no periodic sync to configure or disable.
pub(crate) const FLAGS: &[Flag] = &[
    Flag::new(
        "attach-detach-reconcile-sync-period",
        "DURATION",
        "1m",
        "Validated, but has no effect: attachments are followed as they change.",
        |_, text| match duration(text)? > Duration::from_secs(1) {
            true => Ok(()),
            false => Err("expected a duration greater than 1s".into()),
        },
    ),
    Flag::new(
        "disable-attach-detach-reconcile-sync",
        "BOOL",
        "false",
        "Has no effect: attachments are followed as they change.",
        |_, text| truth(text).map(drop),
    ),
    Flag::new(
        "disable-force-detach-on-timeout",
        "BOOL",
        "false",
        "Never force-detach volumes from unhealthy nodes; only from nodes that are out of service.",
        |options, text| truth(text).map(|never| options.force_detach = !never),
    ),
];

/// The event source name, unchanged from early Kubernetes.
const COMPONENT: &str = "attachdetach-controller";

fn build(context: &Context, options: &Options) -> Vec<Box<dyn Runnable>> {
    let pods = context.informers.of::<PodVolumes>();
    let claims = context.informers.of::<Claim>();
    let volumes = context.informers.of::<Volume>();
    let nodes = context.informers.of::<Node>();
    let attachments = context.informers.of::<Attachment>();
    let drivers = context.informers.of::<Driver>();
    observe::index(&pods, &attachments);
    let by_volume = wiring::queue(context, "volume_attachments");
    let by_node = wiring::queue(context, "attached_volumes");
    let caches = Arc::new(Caches {
        pods: pods.lister(),
        claims: claims.lister(),
        volumes: volumes.lister(),
        nodes: nodes.lister(),
        attachments: attachments.lister(),
        drivers: drivers.lister(),
        on_node: OnNode::of(&pods),
    });
    metrics::register_gauges(&context.metrics, &caches);
    let attacher = Arc::new(Attacher::new(context, options, by_node.clone(), caches.clone()));
    let wake = Arc::new(Wake {
        by_volume: by_volume.clone(),
        by_node: by_node.clone(),
        memory: attacher.memory.clone(),
        caches,
    });
    wiring::follow(&pods, &wake, Wake::pod_changed);
    wiring::follow(&claims, &wake, Wake::claim_changed);
    wiring::follow(&volumes, &wake, Wake::volume_changed);
    wiring::follow(&attachments, &wake, Wake::attachment_changed);
    wiring::follow(&nodes, &wake, Wake::node_changed);
    wiring::follow(&drivers, &wake, Wake::driver_changed);

    let informers = [&pods, &claims, &volumes, &nodes, &attachments, &drivers];
    let by_volume = wiring::controller(&ENTRY, options, by_volume, Volumes(attacher.clone()), informers);
    let by_node = wiring::part("attached-volumes", by_node, Nodes(attacher), informers);
    vec![Box::new(by_volume), Box::new(by_node)]
}
