//! The running controllers: one for each CompositeController and DecoratorController.
//!
//! ```text
//!  CompositeController ─► supervise.rs: read, check, prepare ─► Launch ─► runner.rs: one controller of parents each
//!          ▲                            │
//!          └──── conditions, events ────┘      kinds.rs      kinds by version and plural name
//!                                              prepare.rs    a spec ─► hooks and kinds
//! ```
//!
//! Invariants:
//! - A controller is restarted when its spec, its kinds or its credentials change, after the previous one has ended.
//! - If a controller cannot run, the condition `Ready` says why, and starting it is retried.

mod kinds;
mod prepare;
mod runner;
pub(crate) use runner::{WORKERS, label};
mod supervise;

use std::fmt;
use std::sync::Arc;

use setpoint::{Context, Kind, Runnable};

use crate::Options;
use crate::names::{composite_kind, decorator_kind};

pub(crate) use kinds::Kinds;

/// A CompositeController or a DecoratorController.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ControllerKey {
    pub(crate) of: ControllerType,
    pub(crate) name: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum ControllerType {
    Composite,
    Decorator,
}

impl ControllerType {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Composite => "CompositeController",
            Self::Decorator => "DecoratorController",
        }
    }

    pub(crate) fn kind(self) -> Kind {
        match self {
            Self::Composite => composite_kind(),
            Self::Decorator => decorator_kind(),
        }
    }
}

impl fmt::Display for ControllerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.of.name(), self.name)
    }
}

/// Builds what runs the controllers.
pub(crate) fn runnables(context: &Context, options: &Options) -> Vec<Box<dyn Runnable>> {
    let fleet = Arc::new(runner::Fleet::new(context, options));
    let supervisor = supervise::controller(context, options, &fleet);
    vec![supervisor, Box::new(runner::Runner::new(fleet))]
}
