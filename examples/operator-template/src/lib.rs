//! An operator: whoever writes a `Widget` gets a ConfigMap of the same name that holds its text.

mod crd;
mod reconcile;

pub use crd::{Widget, WidgetSpec, WidgetStatus, definition};
pub use reconcile::{CONTROLLER, runnables};
