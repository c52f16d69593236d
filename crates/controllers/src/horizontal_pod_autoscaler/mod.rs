//! HorizontalPodAutoscaler: scales workloads by metrics.
//!
//! Owns: `spec.replicas` of the scale targets, through their scale subresource; `status` of autoscalers.
//! Watches: HorizontalPodAutoscalers, Pods.
//! Writes: the scale of any kind (update), HorizontalPodAutoscaler status (update).
//! Metrics: `horizontal_pod_autoscaler_controller_*`.
//!
//! ```text
//!  settings.rs   settings for all autoscalers
//!  view.rs       typed views of autoscalers and pods
//!  metrics_api.rs  the three metrics APIs
//!  replicas.rs   from measurements to a number of replicas      (pure)
//!  behavior.rs   scaling policies and stabilization             (pure)
//!  history.rs    recent recommendations and scale events        (pure)
//!  status.rs     conditions                                     (pure)
//!  metrics.rs    metrics about the controller
//!  measure.rs    fetches and evaluates one metric
//!  reconcile.rs  reads the target, measures, scales, writes status
//! ```
//!
//! Invariants:
//! - an autoscaler is evaluated every 15 seconds (configurable), and not sooner after a change;
//! - a target with zero replicas is left alone; one outside the bounds is brought inside without measuring;
//! - of several metrics the highest recommendation wins; a metric that cannot be fetched never scales down;
//! - a scale decision is written to the status before it is carried out, so that a successor knows of it.

mod behavior;
mod history;
mod measure;
mod metrics;
mod metrics_api;
mod reconcile;
mod replicas;
pub(crate) mod settings;
mod status;
#[cfg(test)]
mod tests;
mod view;

use setpoint::backoff::Backoff;
use setpoint::queue::limiter::PerKeyBackoff;
use setpoint::{Context, Event, Queue, Runnable};

use self::measure::MetricEvaluator;
use self::metrics::AutoscalerMetrics;
use self::metrics_api::MetricsApi;
use self::reconcile::Autoscaler;
use self::view::Hpa;
use crate::registry::{Access, EVENTS, Entry, Options};
use crate::served::Served;
use crate::wiring;
use crate::workload::pod::Pod;

pub(crate) const ENTRY: Entry = Entry {
    name: "horizontal-pod-autoscaler-controller",
    aliases: &["horizontalpodautoscaling"],
    on_by_default: true,
    gates: &[],
    summary: "scales workloads by metrics",
    watches: &[Access::watch("autoscaling", "horizontalpodautoscalers"), Access::watch("", "pods")],
    writes: &[
        Access::to("autoscaling", "horizontalpodautoscalers/status", &["update"]),
        Access::to("*", "*/scale", &["get", "update"]),
        Access::to("metrics.k8s.io", "pods", &["list"]),
        Access::to("custom.metrics.k8s.io", "*", &["get", "list"]),
        Access::to("external.metrics.k8s.io", "*", &["get", "list"]),
        EVENTS,
    ],
    default_workers: 5,
    build,
};

const COMPONENT: &str = "horizontal-pod-autoscaler";

fn build(context: &Context, options: &Options) -> Vec<Box<dyn Runnable>> {
    let hpas = context.informers.of::<Hpa>();
    let pods = context.informers.of::<Pod>();
    let settings = options.autoscaler;
    let period = settings.period;
    let limiter = std::sync::Arc::new(PerKeyBackoff::new(Backoff::doubling(period, period)));
    let queue = Queue::with_rate_limiter("horizontalpodautoscaler", &context.runtime, limiter);
    let changed = queue.clone();
    hpas.add_handler(move |event: &Event| match event {
        // Drops its in-memory state immediately.
        Event::Deleted { last, .. } => changed.add(last.key().clone()),
        event => changed.add_after(event.object().key().clone(), period),
    });
    let evaluator = MetricEvaluator {
        metrics: MetricsApi::new(context.client.clone()),
        served: Served::new(context),
        clock: context.runtime.clock.clone(),
        pods: pods.objects().clone(),
        start: settings.start,
        whole_pods: options.gates.on("PodLevelResources"),
    };
    let autoscaler = Autoscaler {
        client: context.client.clone(),
        clock: context.runtime.clock.clone(),
        recorder: context.recorder(COMPONENT),
        served: Served::new(context),
        hpas: hpas.lister(),
        evaluator,
        metrics: AutoscalerMetrics(context.metrics.clone()),
        settings,
        own_tolerances: options.gates.on("HPAConfigurableTolerance"),
        memory: Default::default(),
    };
    let controller = wiring::controller(&ENTRY, options, queue, autoscaler, [&hpas, &pods]);
    vec![Box::new(controller)]
}
