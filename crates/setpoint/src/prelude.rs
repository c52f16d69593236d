//! The items that most controllers need: `use setpoint::prelude::*`.

pub use crate::api::Api;
pub use crate::client::{Client, ClientError, IgnoreErrors, Optional};
pub use crate::controller::{Controller, Runnable};
pub use crate::identity::Identify;
pub use crate::key::Key;
pub use crate::kind::{Kind, View};
pub use crate::lister::{Cached, Lister};
pub use crate::manager::{Context, Manager};
pub use crate::object::Object;
pub use crate::reconcile::{ErrorContext, Outcome, ReconcileError, Reconciler};
pub use crate::recorder::EventType;
