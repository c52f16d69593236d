//! Rendering: from a component and its traits to objects. Pure: no cluster, no clock.
//!
//! ```text
//!  sources.rs    parsed templates, kept
//!  context.rs    what templates see as `context`
//!  component.rs  template + traits in order ─► workload and other objects
//!  kept.rs       rendered components of workflows that go on
//!  judged.rs     health, judged once for each version of the objects
//!  patch.rs      patches with strategies
//!  json_patch.rs RFC 6902 and RFC 7396
//!  health.rs     health, message and details of what is in the cluster
//! ```

pub(crate) mod component;
pub(crate) mod context;
pub(crate) mod health;
pub(crate) mod json_patch;
pub(crate) mod judged;
pub(crate) mod kept;
pub(crate) mod patch;
pub(crate) mod sources;
#[cfg(test)]
mod tests;

use std::fmt;

/// A rendering error, with its component and trait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RenderError {
    pub(crate) place: String,
    pub(crate) message: String,
}

impl RenderError {
    pub(crate) fn new(place: impl Into<String>, message: impl fmt::Display) -> Self {
        Self { place: place.into(), message: message.to_string() }
    }
}

impl fmt::Display for RenderError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {}", self.place, self.message)
    }
}

impl std::error::Error for RenderError {}
