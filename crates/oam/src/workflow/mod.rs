//! Workflows: the order in which an application is deployed.
//!
//! ```text
//!  steps.rs      which steps an application has                               (pure)
//!  packages.rs   what step templates can import
//!  template.rs   a step's template ─► the next call it makes                  (pure)
//!  condition.rs  `if` of a step                                               (pure)
//!  variables.rs  values that steps pass on
//!  time.rs       dates in the layouts of Go                                       (pure)
//!  duration.rs   durations such as 1m30s                                      (pure)
//!  engine.rs     one round: which steps run, and what comes of them
//!  direct.rs     calls that are known without a template                      (pure)
//!  attempts.rs   how often a step is tried, and when again
//!  calls.rs      what calls of templates do
//!  component.rs  applies a component and judges its health
//!  config.rs     configurations, kept in Secrets
//!  http.rs       requests that steps send
//!  exchanges.rs  requests under way, and responses that wait for their step
//!  metrics.rs    conditions on metrics
//!  endpoints.rs  addresses under which an application can be reached
//! ```

pub(crate) mod attempts;
pub(crate) mod calls;
pub(crate) mod component;
pub(crate) mod condition;
mod config;
mod direct;
pub(crate) mod duration;
mod endpoints;
pub(crate) mod engine;
pub(crate) mod exchanges;
mod http;
mod metrics;
pub(crate) mod packages;
pub(crate) mod steps;
pub(crate) mod template;
mod time;
pub(crate) mod variables;
