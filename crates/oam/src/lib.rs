//! Applications: the Open Application Model, as KubeVela serves it, on the controller framework.
//!
//! ```text
//!  Application ─► parse ─► revision ─► workflow ─► render (CUE) ─► record ─► apply ─► health ─► status
//!                                         ▲                          │
//!                                         └── watches what was applied
//!
//!  crds/         the kinds of core.oam.dev
//!  definition/   types of components, traits, policies and steps; the built-in ones
//!  render/       components and traits to objects                               (pure)
//!  policy/       policies                                                       (pure)
//!  workflow/     steps and what they call
//!  apply/        records, ownership, writes, garbage collection
//!  clusters/     other clusters: credentials, connections, whether they are reachable
//!  application/  the controller
//!  workflow_run/ workflows without an application
//!  graph/        resource graphs (kro)
//!  egress.rs     requests of workflow steps
//!  compression.rs compressed records of KubeVela                                  (pure)
//!  dependency.rs order of things that depend on each other                         (pure)
//!  parameters.rs properties against the parameters of a definition              (pure)
//!  preview.rs    an application, rendered without a cluster                     (pure)
//!  admission.rs  the webhook that checks properties
//!  registry.rs   the list of controllers, their flags and permissions
//!  install.rs    installs kinds and built-in definitions
//! ```
//!
//! Invariants:
//! - Rendering is a pure function of the application, its definitions and the context.
//! - Garbage collection uses records only; it never needs templates.
//! - Applied objects are watched: drift is corrected and health updated immediately.

pub mod admission;
mod application;
mod apply;
mod clusters;
mod compression;
mod crds;
mod definition;
mod dependency;
mod digest;
mod egress;
mod graph;
mod install;
mod model;
pub mod names;
mod parameters;
mod policy;
mod preview;
mod registry;
mod render;
mod session;
mod workflow;
mod workflow_run;

use setpoint::{Context, Runnable};

pub use setpoint::clusters::Connection;

pub use clusters::credential::{Credential, Identity, Trust};
pub use clusters::members::Connect;
pub use compression::{unpack_revision, unpack_tracker};
pub use definition::file::{BadDefinition, definition_object};
pub use egress::{Egress, Request, Response};
pub use install::{InstallError, install};
pub use parameters::{Parameter, parameters};
pub use preview::{Preview, Rendered, builtin_definitions, preview};
pub use registry::{Entry, Options, REGISTRY, UnknownController, rules, selected};

/// Builds all controllers of this crate. Call [`install`] once before. Workflow steps cannot send requests, and there
/// is only one cluster.
pub fn runnables(context: &Context) -> Vec<Box<dyn Runnable>> {
    runnables_with(context, &Options::default())
}

/// Builds all controllers of this crate. `options` must not be shared with another manager.
pub fn runnables_with(context: &Context, options: &Options) -> Vec<Box<dyn Runnable>> {
    REGISTRY.iter().flat_map(|entry| entry.parts(context, options)).collect()
}

/// Builds the controller of Applications.
pub fn applications(context: &Context) -> Vec<Box<dyn Runnable>> {
    application::ENTRY.parts(context, &Options::default())
}

/// Builds the controllers of definitions.
pub fn definitions(context: &Context) -> Vec<Box<dyn Runnable>> {
    definition::revisions::ENTRY.parts(context, &Options::default())
}

/// Builds the controllers of ResourceGraphDefinitions and their instances.
pub fn graphs(context: &Context) -> Vec<Box<dyn Runnable>> {
    graph::ENTRY.parts(context, &Options::default())
}
