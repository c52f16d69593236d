//! The controller: observe, act on the difference, write the status.

use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::json;
use setpoint::client::{Patch, Subresource};
use setpoint::handler::{enqueue_controller, enqueue_self};
use setpoint::owner::controller_ref;
use setpoint::reconcile::ErrorContext;
use setpoint::{
    Cached, Client, Context, EventType, Key, Kind, Lister, Outcome, ReconcileError, Reconciler, Recorder,
    Runnable,
};

use crate::{Widget, WidgetStatus};

/// The operator's name, used in events, as field manager and in metrics.
pub const CONTROLLER: &str = "widget-controller";

/// Returns the runnables for a manager.
pub fn runnables(context: &Context) -> Vec<Box<dyn Runnable>> {
    let widgets = context.informers.of::<Widget>();
    let maps = context.informers.of::<ConfigMap>();
    let queue = context.queue(CONTROLLER);
    widgets.add_handler(enqueue_self(&queue));
    maps.add_handler(enqueue_controller(&queue, &Kind::of::<Widget>()));
    let reconciler = WidgetReconciler {
        client: context.client.clone(),
        recorder: context.recorder(CONTROLLER),
        widgets: widgets.lister(),
        maps: maps.lister(),
    };
    vec![Box::new(context.controller(CONTROLLER, queue, reconciler).waits_for(&widgets).waits_for(&maps))]
}

struct WidgetReconciler {
    client: Client,
    recorder: Recorder,
    widgets: Lister<Widget>,
    maps: Lister<ConfigMap>,
}

impl Reconciler for WidgetReconciler {
    type Key = Key;

    async fn reconcile(&self, key: &Key) -> Result<Outcome, ReconcileError> {
        let Some(widget) = self.widgets.get(key)? else { return Ok(Outcome::Settled) };
        if widget.meta().is_being_deleted() {
            // The ConfigMap has an owner reference, so the garbage collector deletes it.
            return Ok(Outcome::Settled);
        }
        let map = self.maps.get(key)?;
        let ready = map.is_some_and(|map| {
            map.data.as_ref().and_then(|data| data.get("text")) == Some(&widget.spec.text)
        });
        if !ready {
            self.apply(&widget).await?;
        }
        self.write_status(&widget, ready).await?;
        Ok(Outcome::Settled)
    }
}

impl WidgetReconciler {
    /// Applies the ConfigMap fields that the operator manages. Other fields are left alone.
    async fn apply(&self, widget: &Cached<Widget>) -> Result<(), ReconcileError> {
        let (kind, key) = (Kind::of::<ConfigMap>(), widget.key());
        let wanted = json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": key.name(),
                "namespace": key.namespace(),
                "ownerReferences": [controller_ref(&Kind::of::<Widget>(), widget.meta())],
            },
            "data": {"text": widget.spec.text},
        });
        let patch = Patch::Apply { body: wanted.to_string().into(), manager: CONTROLLER.into(), force: true };
        let applied = self.client.patch(&kind, key, Subresource::None, patch).await;
        applied.attempting(format!("apply the ConfigMap of {key}"))?;
        self.recorder.event(
            &Kind::of::<Widget>(),
            widget.object(),
            EventType::Normal,
            "Applied",
            "Applied its ConfigMap",
        );
        Ok(())
    }

    async fn write_status(&self, widget: &Cached<Widget>, ready: bool) -> Result<(), ReconcileError> {
        let status = WidgetStatus { ready, observed_generation: widget.meta().generation };
        if widget.status.as_ref() == Some(&status) {
            return Ok(());
        }
        let patch = Patch::merge(&json!({"metadata": {"uid": &widget.meta().uid}, "status": &status}));
        let written =
            self.client.patch(&Kind::of::<Widget>(), widget.key(), Subresource::Status, patch).await;
        written.map(drop).attempting(format!("write the status of {}", widget.key()))
    }
}
