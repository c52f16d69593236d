//! Pods.
//!
//! ```text
//!  defaults ─► preparation (status, gates, disabled fields) ─► validation ─► warnings
//! ```
//!
//! [`template`] is shared by all kinds with a pod template; the other modules cover one concept each.

use serde_json::{Value, json};

use super::{CORE, entry};
use crate::json::Json;
use crate::kind::{FieldSelector, Kind, Subresource};
use crate::strategy::{Deletion, Presentation, Semantics};

mod apparmor;
mod columns;
mod defaults;
mod disabled;
mod image;
mod overlaps;
mod ports;
pub mod qos;
pub(crate) mod references;
mod strategy;
pub mod template;
#[cfg(test)]
mod tests;
pub(super) mod totals;
pub(super) mod validation;
pub(super) mod warnings;

pub(super) use defaults::default_volume_source;

pub fn kind() -> Kind {
    Kind {
        short_names: vec!["po".into()],
        categories: vec!["all".into()],
        subresources: vec![
            Subresource::Attach,
            Subresource::Binding,
            Subresource::EphemeralContainers,
            Subresource::Eviction,
            Subresource::Exec,
            Subresource::Log,
            Subresource::PortForward,
            Subresource::Proxy,
            Subresource::Resize,
            Subresource::Status,
        ],
        columns: columns::all(),
        field_selectors: field_selectors(),
        semantics: Semantics {
            deletion: Deletion::RETURNS_OBJECT,
            ..Semantics::with_status(|| json!({"phase": "Pending"}))
        },
        presentation: Presentation { row_conditions: columns::row_conditions, ..Presentation::default() },
        ..entry(&CORE, "Pod", "pods", strategy::Pod)
    }
}

fn field_selectors() -> Vec<FieldSelector> {
    vec![
        FieldSelector { path: "spec.nodeName", value: |pod| pod.at("spec").text("nodeName").to_owned() },
        // The node's name for old clients.
        FieldSelector { path: "spec.host", value: |pod| pod.at("spec").text("nodeName").to_owned() },
        FieldSelector {
            path: "spec.restartPolicy",
            value: |pod| pod.at("spec").text("restartPolicy").to_owned(),
        },
        FieldSelector {
            path: "spec.schedulerName",
            value: |pod| pod.at("spec").text("schedulerName").to_owned(),
        },
        FieldSelector {
            path: "spec.serviceAccountName",
            value: |pod| pod.at("spec").text("serviceAccountName").to_owned(),
        },
        FieldSelector {
            path: "spec.hostNetwork",
            value: |pod| pod.at("spec").flag("hostNetwork").to_string(),
        },
        FieldSelector { path: "status.phase", value: |pod| pod.at("status").text("phase").to_owned() },
        FieldSelector { path: "status.podIP", value: |pod| pod.at("status").text("podIP").to_owned() },
        // Accepted, but always empty.
        FieldSelector { path: "status.podIPs", value: |_| String::new() },
        FieldSelector {
            path: "status.nominatedNodeName",
            value: |pod| pod.at("status").text("nominatedNodeName").to_owned(),
        },
    ]
}

/// A pod's three lists of containers.
const CONTAINER_LISTS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];

/// Whether an init container keeps running beside the others.
fn is_sidecar(init_container: &Value) -> bool {
    init_container.text("restartPolicy") == "Always"
}
