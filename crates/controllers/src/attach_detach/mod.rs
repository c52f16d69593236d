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
mod figures;
mod memory;
mod network;
mod observe;
mod plan;
mod reconcile;
mod view;

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use setpoint::queue::limiter;
use setpoint::{Context, Controller, Event, Key, Lister, Object, Queue, Runnable};
use setpoint_volume::inline::{index_by_disk, inline_disks, translated_disks};
use setpoint_volume::migrated::behind_driver;
use setpoint_volume::{Claim, PodVolumes, Volume, claim_keys, index_by_claim};

use self::memory::Memory;
use self::observe::Caches;
use self::reconcile::{Attacher, Nodes, Volumes};
use self::view::{Attachment, Driver, Node};
use crate::flags::{Flag, duration, truth};
use crate::registry::{Access, EVENTS, Entry, Options};
use crate::workload::on_node::{OnNode, node_of};

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

/// Attachments are followed as they change: nothing is left to compare now and then, and nothing to turn off.
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

/// The component that events name: that of its elder days.
const COMPONENT: &str = "attachdetach-controller";

fn build(context: &Context, options: &Options) -> Vec<Box<dyn Runnable>> {
    let pods = context.informers.of::<PodVolumes>();
    let claims = context.informers.of::<Claim>();
    let volumes = context.informers.of::<Volume>();
    let nodes = context.informers.of::<Node>();
    let attachments = context.informers.of::<Attachment>();
    let drivers = context.informers.of::<Driver>();
    index_by_claim(&pods);
    index_by_disk(&pods);
    observe::index_attachments(&attachments);
    let limiter = limiter::eager(&context.runtime.clock);
    let by_volume = Queue::with_rate_limiter("volume_attachments", &context.runtime, limiter);
    let limiter = limiter::eager(&context.runtime.clock);
    let by_node = Queue::with_rate_limiter("attached_volumes", &context.runtime, limiter);

    let (wake, lister) = (by_volume.clone(), claims.lister::<Claim>());
    pods.add_handler(move |event: &Event| {
        // The volumes of a pod never change, and most pods have none: that is seen without decoding them.
        let disks = disks_of(event.object(), &lister);
        if !disks.is_empty() && is_on_node(event) {
            disks.into_iter().for_each(|disk| wake.add(disk));
        }
    });
    let wake = by_volume.clone();
    claims.add_handler(move |event: &Event| {
        event.states().filter_map(volume_of_claim).for_each(|volume| wake.add(volume));
    });
    let wake = by_volume.clone();
    volumes.add_handler(move |event: &Event| wake.add(event.object().key().clone()));
    let memory = Arc::<Mutex<Memory>>::default();
    let (volume_queue, node_queue, remembered) = (by_volume.clone(), by_node.clone(), memory.clone());
    attachments.add_handler(move |event: &Event| {
        if matches!(event, Event::Deleted { .. }) {
            remembered.lock().forget(event.object().key());
        }
        if let Ok(attachment) = event.object().view::<Attachment>() {
            node_queue.add(Key::cluster(&*attachment.spec.node_name));
            attachment.disk().into_iter().for_each(|disk| volume_queue.add(disk));
        }
    });
    nodes.add_handler(on_node(by_volume.clone(), by_node.clone(), memory.clone(), context));
    let (wake, lister, users) = (by_volume.clone(), volumes.lister::<Volume>(), pods.lister::<PodVolumes>());
    drivers.add_handler(move |event: &Event| {
        let is_its = |driver: &str| driver == event.object().key().name();
        for volume in lister.list(None).unwrap_or_default() {
            if behind_driver(&volume).is_some_and(|csi| is_its(&csi.driver)) {
                wake.add(volume.key().clone());
            }
        }
        let inline = users.objects().list(None).into_iter().flat_map(|pod| translated_disks(&pod));
        let inline = inline.filter(|disk| is_its(&disk.csi.driver));
        inline.for_each(|disk| wake.add(Key::cluster(disk.csi.unique_name())));
    });

    let caches = Arc::new(Caches {
        pods: pods.lister(),
        claims: claims.lister(),
        volumes: volumes.lister(),
        nodes: nodes.lister(),
        attachments: attachments.lister(),
        drivers: drivers.lister(),
        on_node: OnNode::of(&pods),
    });
    figures::show(&context.metrics, &caches);
    let attacher = Arc::new(Attacher {
        client: context.client.clone(),
        clock: context.runtime.clock.clone(),
        recorder: context.recorder(COMPONENT),
        by_node: by_node.clone(),
        caches,
        metrics: context.metrics.clone(),
        memory,
        by_force: options.force_detach,
    });
    let informers = [&pods, &claims, &volumes, &nodes, &attachments, &drivers];
    let by_volume =
        Controller::new(ENTRY.name, by_volume, Volumes(attacher.clone())).workers(options.workers(&ENTRY));
    let by_node = Controller::new("attached-volumes", by_node, Nodes(attacher));
    let by_volume = informers.iter().fold(by_volume.persistent(), |one, informer| one.waits_for(informer));
    let by_node = informers.iter().fold(by_node.persistent(), |one, informer| one.waits_for(informer));
    vec![Box::new(by_volume), Box::new(by_node)]
}

/// Whether a pod has, or had, a node: before that it needs no volume.
fn is_on_node(event: &Event) -> bool {
    event.states().any(|pod| node_of(pod).is_some())
}

/// The disks that a pod uses, through claims or by itself.
fn disks_of(pod: &Object, claims: &Lister<Claim>) -> Vec<Key> {
    let claimed = claim_keys(pod).filter_map(|claim| volume_of(claims, &claim));
    let inline = inline_disks(pod);
    claimed.chain(inline.iter().map(|inline| Key::cluster(inline.disk.unique_name()))).collect()
}

fn volume_of(claims: &Lister<Claim>, claim: &Key) -> Option<Key> {
    volume_of_claim(&claims.objects().get(claim)?)
}

fn volume_of_claim(claim: &Object) -> Option<Key> {
    let name = &claim.view::<Claim>().ok()?.spec.volume_name;
    (!name.is_empty()).then(|| Key::cluster(&**name))
}

/// A node that changes in what matters here concerns the volumes that are attached to it, and those of its pods
/// if it has only now come to be served.
fn on_node(
    by_volume: Queue<Key>,
    by_node: Queue<Key>,
    memory: Arc<Mutex<Memory>>,
    context: &Context,
) -> impl Fn(&Event) + Send + Sync + 'static {
    let attachments = context.informers.of::<Attachment>().lister::<Attachment>();
    let claims = context.informers.of::<Claim>().lister::<Claim>();
    let pods = OnNode::<PodVolumes>::of(&context.informers.of::<PodVolumes>());
    move |event| {
        let name = event.object().key().name();
        let same = match event {
            Event::Updated { old, new } => match (old.view::<Node>(), new.view::<Node>()) {
                (Ok(old), Ok(new)) => old == new,
                _ => false,
            },
            _ => false,
        };
        if same {
            return;
        }
        by_node.add(event.object().key().clone());
        if matches!(event, Event::Deleted { .. }) {
            memory.lock().forget_node(event.object().key());
        }
        memory.lock().waiting().into_iter().for_each(|node| by_node.add(node));
        for attachment in observe::attachments_on(&attachments, name).unwrap_or_default() {
            attachment.disk().into_iter().for_each(|disk| by_volume.add(disk));
        }
        let served = |node: &Object| node.view::<Node>().is_ok_and(Node::is_served);
        let was_served = event.old().is_some_and(served);
        if served(event.object()) && !was_served {
            let pods = pods.pods(name).unwrap_or_default();
            let used = pods.iter().flat_map(|pod| disks_of(pod.object(), &claims));
            used.for_each(|disk| by_volume.add(disk));
        }
    }
}
