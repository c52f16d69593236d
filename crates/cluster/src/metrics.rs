//! The metrics API (`metrics.k8s.io/v1beta1`): resource usage of simulated nodes and their pods.
//!
//! Nothing is stored: responses are computed from the current pods and nodes.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::Value;
use setpoint_apiserver::kind::{Kind, Scope, Verb};
use setpoint_apiserver::strategy::{Lifecycle, Presentation, Semantics, Strategy, Validation};
use setpoint_apiserver::table::Column;
use setpoint_clock::Clock;
use setpoint_node::{Measured, Usage, measure_node, measure_pod};
use setpoint_store::{ListOptions, Record, Resource, Store};

const GROUP: &str = "metrics.k8s.io";

/// Returns the kinds of the metrics API for a store.
pub(crate) fn kinds(store: &Arc<dyn Store>, clock: &Clock) -> Vec<Kind> {
    let measures = || ResourceMetrics { store: store.clone(), clock: clock.clone() };
    vec![
        kind("NodeMetrics", "nodes", Scope::Cluster, Arc::new(NodeMetricsStrategy(measures()))),
        kind("PodMetrics", "pods", Scope::Namespaced, Arc::new(PodMetricsStrategy(measures()))),
    ]
}

fn kind(kind: &str, plural: &str, scope: Scope, strategy: Arc<dyn Strategy>) -> Kind {
    Kind {
        group: GROUP.into(),
        version: "v1beta1".into(),
        kind: kind.into(),
        plural: plural.into(),
        singular: String::new(),
        short_names: Vec::new(),
        categories: Vec::new(),
        scope,
        verbs: vec![Verb::Get, Verb::List],
        subresources: Vec::new(),
        stored_as: format!("{GROUP}/{plural}"),
        conversion: None,
        schema: format!("io.k8s.metrics.pkg.apis.metrics.v1beta1.{kind}"),
        strategy,
        semantics: Semantics::default(),
        presentation: Presentation::default(),
        columns: Column::defaults(),
        field_selectors: Vec::new(),
        deprecation: None,
        custom: None,
    }
}

struct ResourceMetrics {
    store: Arc<dyn Store>,
    clock: Clock,
}

struct PodMetricsStrategy(ResourceMetrics);

struct NodeMetricsStrategy(ResourceMetrics);

impl ResourceMetrics {
    /// Returns no records if the store cannot be read.
    async fn records(&self, resource: &str, namespace: Option<&str>) -> Vec<Arc<Record>> {
        let resource = Resource::new(resource);
        let range = match namespace {
            Some(namespace) => resource.under(format!("{namespace}/")),
            None => resource.all(),
        };
        let listed = self.store.list(&range, ListOptions::default()).await;
        listed.map(|page| page.records).unwrap_or_default()
    }

    async fn pods(&self, namespace: Option<&str>) -> Vec<Measured> {
        let (records, now) = (self.records("pods", namespace).await, self.clock.now());
        records.iter().filter_map(|record| measure_pod(&record.value, now)).collect()
    }

    async fn nodes(&self) -> Vec<Value> {
        let mut by_node: BTreeMap<String, Usage> = BTreeMap::new();
        for pod in self.pods(None).await {
            *by_node.entry(pod.node).or_default() += pod.total;
        }
        let (records, now) = (self.records("nodes", None).await, self.clock.now());
        let measured = records.iter().filter_map(|record| {
            let pods = by_node.get(&*record.key.path).copied().unwrap_or_default();
            measure_node(&record.value, pods, now)
        });
        measured.collect()
    }
}

impl Validation for PodMetricsStrategy {}

impl Validation for NodeMetricsStrategy {}

impl Lifecycle for PodMetricsStrategy {
    fn computed<'a>(&'a self, namespace: Option<&'a str>) -> Option<BoxFuture<'a, Vec<Value>>> {
        let metrics = self.0.pods(namespace).map(|pods| pods.into_iter().map(|pod| pod.metrics).collect());
        Some(metrics.boxed())
    }
}

impl Lifecycle for NodeMetricsStrategy {
    fn computed<'a>(&'a self, _namespace: Option<&'a str>) -> Option<BoxFuture<'a, Vec<Value>>> {
        Some(self.0.nodes().boxed())
    }
}
