//! Pod CIDR flags.

use anyhow::Context;
use clap::{ArgAction, Args};
use setpoint_controllers::{MaskSizes, NodeRanges};

#[derive(Debug, Args)]
#[command(next_help_heading = "Network")]
pub(crate) struct NetworkFlags {
    /// Allocate a pod CIDR to every node.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false,
        action = ArgAction::Set, value_name = "BOOL")]
    allocate_node_cidrs: bool,
    /// CIDR for pods; two, comma-separated, for dual-stack.
    #[arg(long, default_value = "", value_name = "CIDR", hide_default_value = true)]
    cluster_cidr: String,
    /// Prefix length of a node's CIDR [default: 24 for IPv4, 64 for IPv6].
    #[arg(long, value_name = "BITS")]
    node_cidr_mask_size: Option<u32>,
    /// Prefix length of a node's IPv4 CIDR in a dual-stack cluster.
    #[arg(long, value_name = "BITS")]
    node_cidr_mask_size_ipv4: Option<u32>,
    /// Prefix length of a node's IPv6 CIDR in a dual-stack cluster.
    #[arg(long, value_name = "BITS")]
    node_cidr_mask_size_ipv6: Option<u32>,
    /// CIDR allocator; only RangeAllocator is supported.
    #[arg(long, default_value = "RangeAllocator", value_name = "TYPE", value_parser = ["RangeAllocator"])]
    cidr_allocator_type: String,
    /// Name of the cluster. Accepted for compatibility; used by cloud providers only.
    #[arg(long, default_value = "kubernetes", value_name = "NAME")]
    cluster_name: String,
}

impl NetworkFlags {
    /// Returns the CIDR ranges for nodes, if allocation is enabled. Service CIDRs are excluded.
    pub(crate) fn node_ranges(&self, services: &str) -> anyhow::Result<Option<NodeRanges>> {
        if !self.allocate_node_cidrs {
            return Ok(None);
        }
        let sizes = MaskSizes {
            any: self.node_cidr_mask_size,
            v4: self.node_cidr_mask_size_ipv4,
            v6: self.node_cidr_mask_size_ipv6,
        };
        let ranges = NodeRanges::new(&self.cluster_cidr, services, sizes);
        ranges.map(Some).context("--allocate-node-cidrs")
    }
}
