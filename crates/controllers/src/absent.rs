//! Controllers whose names are known and that do not run: those of clouds.
//!
//! A list of controllers may name any of them, and whoever asks for one is told why it does not run.

use crate::registry::Entry;

const CLOUD: &str =
    "it needs a cloud provider, and kube-controller-manager has none: run the cloud's own manager";

/// Why a controller of [`ENTRIES`] does not run.
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
        summary: "known by name; it does not run",
        watches: &[],
        writes: &[],
        default_workers: 1,
        build: |_, _| Vec::new(),
    }
}

/// Why a controller does not run although it was asked for; `None` if it does.
pub fn why_absent(entry: &Entry) -> Option<&'static str> {
    WHY.iter().find(|(name, _)| *name == entry.name).map(|(_, why)| *why)
}
