//! Widget: its versions, its controller.
//!
//! `setpoint add` extends this file. Your code is in the modules.

mod controller;
pub mod v1;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;

pub use controller::{CONTROLLER, controller};
pub use v1::{Widget, WidgetSpec, WidgetStatus};

/// Returns the CRD to install in a cluster.
pub fn definition() -> CustomResourceDefinition {
    Widget::crd()
}
