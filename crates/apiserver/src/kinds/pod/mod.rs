//! Pods.
//!
//! ```text
//!  defaults ─► preparation (status, gates, disabled fields) ─► validation ─► warnings
//! ```
//!
//! [`template`] is what every kind with a pod template uses; the other modules are one concept each.

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
        // The name that clients of old versions know the node by.
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
        // Accepted, but no pod has a value for it.
        FieldSelector { path: "status.podIPs", value: |_| String::new() },
        FieldSelector {
            path: "status.nominatedNodeName",
            value: |pod| pod.at("status").text("nominatedNodeName").to_owned(),
        },
    ]
}

/// The three lists of containers of a pod.
const CONTAINER_LISTS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];

/// An init container that keeps running beside the others.
fn is_sidecar(init_container: &Value) -> bool {
    init_container.text("restartPolicy") == "Always"
}
