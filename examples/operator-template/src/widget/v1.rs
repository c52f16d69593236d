//! Version v1 of a Widget: what users write and read.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The desired state of a Widget.
#[derive(Clone, Debug, PartialEq, CustomResource, Serialize, Deserialize, JsonSchema)]
#[kube(group = "example.com", version = "v1", kind = "Widget", plural = "widgets")]
#[kube(namespaced, status = "WidgetStatus")]
#[serde(rename_all = "camelCase")]
pub struct WidgetSpec {
    /// The text for the ConfigMap.
    pub text: String,
}

/// The status of a Widget.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WidgetStatus {
    /// Whether the ConfigMap has the text.
    #[serde(default)]
    pub ready: bool,
    /// The generation of the spec that this status is for.
    #[serde(default)]
    pub observed_generation: i64,
}
