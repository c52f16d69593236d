//! Cloud provider controllers: known by name, but not available.
//!
//! A `--controllers` list may name them; enabling one reports why it does not run.

use crate::registry::Entry;

const CLOUD: &str = "it needs a cloud provider; run the provider's cloud-controller-manager";

/// Why each controller of [`ENTRIES`] does not run.
const WHY: &[(&str, &str)] = &[("node-route-controller", CLOUD), ("cloud-node-lifecycle-controller", CLOUD)];

pub(crate) const NODE_ROUTE: Entry = absent("node-route-controller", &["route"]);
pub(crate) const CLOUD_NODE_LIFECYCLE: Entry =
    absent("cloud-node-lifecycle-controller", &["cloud-node-lifecycle"]);

const fn absent(name: &'static str, aliases: &'static [&'static str]) -> Entry {
    Entry {
        name,
        aliases,
        on_by_default: false,
        gates: &[],
        summary: "not available: needs a cloud provider",
        watches: &[],
        writes: &[],
        default_workers: 1,
        build: |_, _| Vec::new(),
    }
}

/// Returns why a controller cannot run, or `None` if it can.
pub fn why_absent(entry: &Entry) -> Option<&'static str> {
    WHY.iter().find(|(name, _)| *name == entry.name).map(|(_, why)| *why)
}
