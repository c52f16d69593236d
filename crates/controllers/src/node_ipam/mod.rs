//! Node IPAM: allocates a pod CIDR to every node.
//!
//! Owns: `podCIDR` and `podCIDRs` of nodes that have none.
//! Watches: Nodes.
//! Writes: Nodes (patch).
//! Metrics: `node_ipam_controller_*`.
//!
//! ```text
//!  ranges.rs     the cluster CIDRs, and what is allocated      (pure)
//!  reconcile.rs  allocates the next free CIDR to a node
//! ```
//!
//! Invariants:
//! - no CIDR is allocated twice, even from a stale cache: an allocation is remembered until the node's deletion is
//!   observed;
//! - a node's CIDR never changes;
//! - the Service CIDR is never allocated to a node.

mod ranges;
mod reconcile;

use std::sync::Arc;

use parking_lot::Mutex;
use serde::Deserialize;
use setpoint::{Context, Event, Runnable};

use self::ranges::Allocations;
pub use self::ranges::{BadRanges, MaskSizes, NodeRanges};
use self::reconcile::Allocator;
use crate::registry::{Access, EVENTS, Entry, Options};
use crate::wiring;
use crate::workload::encoding::null_is_empty;

pub(crate) const ENTRY: Entry = Entry {
    name: "node-ipam-controller",
    aliases: &["nodeipam"],
    on_by_default: true,
    gates: &[],
    summary: "allocates a pod CIDR to every node",
    watches: &[Access::watch("", "nodes")],
    writes: &[Access::to("", "nodes", &["patch"]), EVENTS],
    default_workers: 30,
    build,
};

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Node {
    spec: Spec,
}

setpoint::view!(Node of k8s_openapi::api::core::v1::Node);

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Spec {
    #[serde(rename = "podCIDRs", deserialize_with = "null_is_empty")]
    pod_cidrs: Vec<String>,
}

/// Without cluster CIDRs there is nothing to allocate.
fn build(context: &Context, options: &Options) -> Vec<Box<dyn Runnable>> {
    let Some(ranges) = &options.node_ranges else { return Vec::new() };
    let nodes = context.informers.of::<Node>();
    let queue = wiring::queue(context, "cidrallocator_node");
    let allocations = Arc::new(Mutex::new(Allocations::new(ranges)));
    let (changed, allocated, metrics) = (queue.clone(), allocations.clone(), context.metrics.clone());
    nodes.add_handler(move |event: &Event| {
        let node = event.object();
        let taken = node.view::<Node>().map(|node| node.spec.pod_cidrs.as_slice()).unwrap_or_default();
        match event {
            Event::Deleted { .. } => {
                let usage = {
                    let mut allocations = allocated.lock();
                    allocations.release(node.key().name(), taken);
                    allocations.usage()
                };
                usage.iter().for_each(|range| reconcile::export(&metrics, range));
            }
            _ => {
                // Done in the handler, so that all existing CIDRs are known before the first allocation.
                allocated.lock().occupy(node.key().name(), taken);
                changed.add(node.key().clone());
            }
        }
    });
    let allocator = Allocator {
        client: context.client.clone(),
        recorder: context.recorder("cidrAllocator"),
        nodes: nodes.lister(),
        allocations,
        metrics: context.metrics.clone(),
    };
    let controller = wiring::controller(&ENTRY, options, queue, allocator, [&nodes]);
    vec![Box::new(controller)]
}
