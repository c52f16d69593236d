//! Kind-specific behavior, by concern.
//!
//! | Part | Contains |
//! |---|---|
//! | [`Semantics`] | constants of the kind: names, generations, status endpoint, deletion (data) |
//! | [`Presentation`] | how its objects look in tables and messages (data) |
//! | [`Lifecycle`] | defaults, preparation and deletion (code) |
//! | [`Validation`] | validation of objects and updates (code) |
//!
//! Objects are JSON values that have already been checked against their schema, so a strategy may rely on types (a
//! list is a list) but not on presence. They are in the version of the kind's entry, whatever version they are stored
//! in. Every method is pure.
//!
//! ```text
//!  create: default ─► prepare_for_create ─► stamp ─► name generated ─► validate ─► warnings ─► canonicalize ─► commit
//!  update: default ─► prepare_for_update ─► stamp ─► validate_update ─► warnings ─► canonicalize ─► commit
//!  status, finalize, ephemeralcontainers, resize: the same with prepare_for_subresource_update, …
//! ```
//!
//! The server resets or restores the status according to [`Semantics::status`] before it calls a `prepare_…` method.

mod lifecycle;
mod presentation;
mod semantics;
mod validation;

pub use lifecycle::Lifecycle;
pub use presentation::Presentation;
pub use semantics::{
    Creation, DefaultPropagation, Deletion, Initial, NameRule, Preserved, ReviewKind, Semantics,
    StatusEndpoint,
};
pub use validation::Validation;

/// The code of a kind. A plain kind (a ConfigMap without rules) implements both parts with no methods.
pub trait Strategy: Lifecycle + Validation {}

impl<S: Lifecycle + Validation> Strategy for S {}
