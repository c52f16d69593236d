//! An operator that creates a ConfigMap for every `Widget`, with the same name and the Widget's text.

mod crd;
mod reconcile;

pub use crd::{Widget, WidgetSpec, WidgetStatus, definition};
pub use reconcile::{CONTROLLER, controller};
