//! The custom resource: what users write and read.

use kube::{CustomResource, CustomResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// An application: its image, the number of replicas, and its port.
#[derive(Clone, Debug, PartialEq, CustomResource, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "example.com",
    version = "v1",
    kind = "Application",
    plural = "applications",
    shortname = "app"
)]
#[kube(namespaced, status = "ApplicationStatus")]
#[kube(printcolumn = r#"{"name": "Image", "type": "string", "jsonPath": ".spec.image"}"#)]
#[kube(printcolumn = r#"{"name": "Ready", "type": "integer", "jsonPath": ".status.readyReplicas"}"#)]
#[kube(printcolumn = r#"{"name": "Phase", "type": "string", "jsonPath": ".status.phase"}"#)]
#[serde(rename_all = "camelCase")]
pub struct ApplicationSpec {
    /// The image to run.
    pub image: String,
    /// How many replicas to run.
    #[serde(default = "one")]
    #[schemars(range(min = 0))]
    pub replicas: i32,
    /// The port to reach it on.
    #[schemars(range(min = 1, max = 65535))]
    pub port: i32,
}

fn one() -> i32 {
    1
}

/// The status of an application.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApplicationStatus {
    /// Ready when every replica of the current spec is ready.
    #[serde(default)]
    pub phase: Phase,
    /// How many replicas are ready.
    #[serde(default)]
    pub ready_replicas: i32,
    /// The generation of the spec that this status is for.
    #[serde(default)]
    pub observed_generation: i64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Phase {
    #[default]
    Updating,
    Ready,
}

/// Returns the CRD to install in a cluster.
pub fn definition()
-> k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition {
    Application::crd()
}
