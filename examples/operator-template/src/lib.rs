//! The operator: its kinds, their controllers and webhooks.
//!
//! `setpoint add` extends this file. Your code is in the modules of the kinds.

pub mod widget;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use setpoint::manager::ConnectError;
use setpoint::{Context, Manager, Runnable};

/// The operator's name, used for its lease, in requests and in metrics.
pub const NAME: &str = "setpoint-example-operator-template";

/// Returns the CRDs to install in a cluster.
pub fn definitions() -> Vec<CustomResourceDefinition> {
    vec![widget::definition()]
}

/// Builds the controllers.
pub fn controllers(context: &Context) -> Vec<Box<dyn Runnable>> {
    vec![Box::new(widget::controller(context))]
}

/// Adds everything that the operator consists of to a manager.
pub fn assembled(manager: Manager) -> Result<Manager, ConnectError> {
    Ok(manager.with(controllers))
}
