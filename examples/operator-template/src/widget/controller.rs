//! The controller: observe, act on the difference, write the status.

use k8s_openapi::api::core::v1::ConfigMap;
use setpoint::prelude::*;

use super::{Widget, WidgetStatus};

/// The controller's name, used in events, as field manager and in metrics.
pub const CONTROLLER: &str = "widget-controller";

/// Reconciles a Widget when it changes, and when its ConfigMap does.
pub fn controller(context: &Context) -> Controller {
    Controller::for_::<Widget>(context, CONTROLLER).owns::<ConfigMap>().run(reconcile)
}

async fn reconcile(widget: Cached<Widget>, context: Context) -> Result<(), ReconcileError> {
    // The ConfigMap has an owner reference, so the garbage collector deletes it with the Widget.
    let data = Some([("text".to_owned(), widget.spec.text.clone())].into());
    let wanted = ConfigMap { metadata: widget.owned(widget.name()), data, ..ConfigMap::default() };
    // Applies the fields that the operator manages, unless the cache shows them. Other fields are left alone.
    let applied = context.ensure(&wanted).await?;
    if applied {
        context.event(&widget, EventType::Normal, "Applied", "Applied its ConfigMap");
    }
    let generation = widget.meta().generation;
    let status = WidgetStatus { ready: !applied, observed_generation: generation };
    let written = context.api.patch_status(&widget, &status).await;
    written.attempting(|| format!("write the status of {}", widget.key()))?;
    Ok(())
}
