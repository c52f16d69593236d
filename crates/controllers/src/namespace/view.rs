//! The fields of a Namespace that its deletion reads and writes.

use serde::{Deserialize, Serialize};

use crate::workload::condition::Condition;

/// The finalizer that this controller removes when a namespace is empty.
const FINALIZER: &str = "kubernetes";

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Namespace {
    pub(crate) spec: NamespaceSpec,
    pub(crate) status: NamespaceStatus,
}

setpoint::view!(Namespace of k8s_openapi::api::core::v1::Namespace);

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct NamespaceSpec {
    /// `spec.finalizers`, which predate those in the metadata.
    pub(crate) finalizers: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
pub(crate) struct NamespaceStatus {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) phase: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) conditions: Vec<Condition>,
}

impl Namespace {
    /// Whether objects can be created in it.
    pub(crate) fn is_active(&self) -> bool {
        self.status.phase == "Active"
    }

    /// Returns `spec.finalizers` without this controller's, sorted.
    pub(crate) fn finalizers_left(&self) -> Vec<String> {
        let mut left: Vec<String> =
            self.spec.finalizers.iter().filter(|finalizer| *finalizer != FINALIZER).cloned().collect();
        left.sort();
        left.dedup();
        left
    }
}
