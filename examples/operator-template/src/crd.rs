//! What users write and read.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{CustomResource, CustomResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a Widget should be.
#[derive(Clone, Debug, PartialEq, CustomResource, Serialize, Deserialize, JsonSchema)]
#[kube(group = "example.com", version = "v1", kind = "Widget", plural = "widgets")]
#[kube(namespaced, status = "WidgetStatus")]
#[serde(rename_all = "camelCase")]
pub struct WidgetSpec {
    /// The text that its ConfigMap holds.
    pub text: String,
}

/// How a Widget fares.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WidgetStatus {
    /// Whether its ConfigMap holds its text.
    #[serde(default)]
    pub ready: bool,
    /// The generation of the spec that this is about.
    #[serde(default)]
    pub observed_generation: i64,
}

/// The definition to install in a cluster.
pub fn definition() -> CustomResourceDefinition {
    Widget::crd()
}
