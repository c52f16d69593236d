//! Fetches and evaluates one metric of an autoscaler.

use std::sync::Arc;

use serde_json::{Value, json};
use setpoint::indexer::Indexer;
use setpoint::{Clock, LabelSelector};
use setpoint_quantity::{Format, Quantity};

use super::metrics_api::{MetricsApi, MetricsError, Samples};
use super::replicas::{
    Goal, NoReplicaCount, Proposal, Thresholds, propose, propose_by_average, propose_by_value,
};
use super::settings::{Start, Tolerances};
use super::view::{MetricId, MetricSpec, ObjectRef, Replica, Source};
use crate::served::Served;

pub(super) struct MetricEvaluator {
    pub(super) metrics: MetricsApi,
    pub(super) served: Served,
    pub(super) clock: Clock,
    pub(super) pods: Arc<Indexer>,
    pub(super) start: Start,
    /// Whether pod-level resource requests are used.
    pub(super) whole_pods: bool,
}

/// The autoscaler and target being evaluated.
pub(super) struct Subject<'a> {
    pub(super) namespace: &'a str,
    pub(super) selector: &'a LabelSelector,
    pub(super) spec_replicas: i32,
    pub(super) status_replicas: i32,
    pub(super) tolerances: Tolerances,
}

/// The result of evaluating a metric.
#[derive(Debug, PartialEq)]
pub(super) struct Reading {
    pub(super) replicas: i32,
    /// The name of the metric in events.
    pub(super) name: String,
    /// Its entry in the status.
    pub(super) status: Value,
}

/// Why a metric could not be evaluated: the condition's reason, what failed, and details.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) reason: &'static str,
    pub(super) cause: String,
    pub(super) message: String,
}

const UNKNOWN_TYPE: &str = "InvalidMetricSourceType";

impl Failure {
    /// Whether the autoscaler's spec is invalid.
    pub(super) fn is_of_spec(&self) -> bool {
        self.reason == UNKNOWN_TYPE
    }
}

impl MetricEvaluator {
    pub(super) async fn read(&self, spec: &MetricSpec, subject: &Subject<'_>) -> Result<Reading, Failure> {
        match spec.r#type.as_str() {
            "Resource" => {
                let source = &spec.resource;
                let read = self.resource(source, subject, "").await.map(|(proposal, name)| {
                    let status =
                        json!({"type": "Resource", "resource": {"name": source.name, "current": proposal.1}});
                    Reading { replicas: proposal.0, name, status }
                });
                read.map_err(|cause| Failure {
                    reason: "FailedGetResourceMetric",
                    message: format!("failed to get {} resource metric value: {cause}", source.name),
                    cause,
                })
            }
            "ContainerResource" => {
                let source = &spec.container_resource;
                let read = self.resource(source, subject, &source.container).await.map(|(proposal, name)| {
                    let current =
                        json!({"name": source.name, "container": source.container, "current": proposal.1});
                    let status = json!({"type": "ContainerResource", "containerResource": current});
                    Reading { replicas: proposal.0, name, status }
                });
                read.map_err(|cause| Failure {
                    reason: "FailedGetContainerResourceMetric",
                    message: format!("failed to get {} container metric value: {cause}", source.container),
                    cause,
                })
            }
            "Pods" => self.pods(&spec.pods, subject).await.map_err(|cause| Failure {
                reason: "FailedGetPodsMetric",
                message: format!("failed to get pods metric value: {cause}"),
                cause,
            }),
            "Object" => self.object(&spec.object, subject).await.map_err(|(cause, more)| Failure {
                reason: "FailedGetObjectMetric",
                message: format!("failed to get object metric value: {more}"),
                cause,
            }),
            "External" => self.external(&spec.external, subject).await.map_err(|(cause, more)| Failure {
                reason: "FailedGetExternalMetric",
                message: format!("failed to get {} external metric value: {more}", spec.external.metric.name),
                cause,
            }),
            other => {
                let cause = format!("unknown metric source type {other:?}");
                Err(Failure { reason: UNKNOWN_TYPE, message: cause.clone(), cause })
            }
        }
    }

    /// Evaluates a resource metric. Returns replicas, status and name.
    async fn resource(
        &self,
        source: &Source,
        subject: &Subject<'_>,
        container: &str,
    ) -> Result<((i32, Value), String), String> {
        let (resource, target) = (source.name.as_str(), &source.target);
        let goal = match (target.average_value, target.average_utilization) {
            (Some(milli), _) => Goal::Resource { milli, resource },
            (None, Some(percent)) => Goal::Utilization { percent, resource, container },
            (None, None) => {
                let text = "invalid resource metric source: neither an average utilization target nor an average \
                            value (usage) target was set";
                return Err(text.to_owned());
            }
        };
        let of = if matches!(goal, Goal::Resource { .. }) { "usage" } else { "utilization" };
        let samples = self.metrics.resource(resource, subject.namespace, subject.selector, container).await;
        let samples = samples.map_err(|error| {
            format!("failed to get {resource} {of}: unable to get metrics for resource {resource}: {error}")
        })?;
        let proposal = self.by_samples(goal, subject, samples);
        let proposal = proposal.map_err(|error| format!("failed to get {resource} {of}: {error}"))?;
        let mut current = json!({"averageValue": amount(proposal.usage, resource == "memory")});
        if let Some(utilization) = proposal.utilization {
            current["averageUtilization"] = json!(utilization);
        }
        let name = match (of, container) {
            ("usage", _) => format!("{resource} resource"),
            (_, "") => format!("{resource} resource utilization (percentage of request)"),
            _ => format!("{resource} container resource utilization (percentage of request)"),
        };
        Ok(((proposal.replicas, current), name))
    }

    async fn pods(&self, source: &Source, subject: &Subject<'_>) -> Result<Reading, String> {
        let MetricId { name, selector } = &source.metric;
        let samples = self.metrics.pods(name, subject.namespace, subject.selector, selector.as_ref()).await;
        let samples = samples.map_err(|error| format!("unable to get metric {name}: {error}"))?;
        let goal = Goal::Value { milli: source.target.average_value.unwrap_or(0).max(1) };
        let proposal = self.by_samples(goal, subject, samples);
        let proposal = proposal.map_err(|error| error.to_string())?;
        let current =
            json!({"metric": source.metric, "current": {"averageValue": amount(proposal.usage, false)}});
        let status = json!({"type": "Pods", "pods": current});
        Ok(Reading { replicas: proposal.replicas, name: format!("pods metric {name}"), status })
    }

    async fn object(&self, source: &Source, subject: &Subject<'_>) -> Result<Reading, (String, String)> {
        let (name, target) = (&source.metric.name, &source.target);
        let both = |cause: String| (cause.clone(), cause);
        let (value, average) = match target.r#type.as_str() {
            "Value" => (target.value, None),
            "AverageValue" => (None, target.average_value),
            _ => (None, None),
        };
        if value.is_none() && average.is_none() {
            let text =
                "invalid object metric source: neither a value target nor an average value target was set";
            return Err(both(text.to_owned()));
        }
        let usage = self.of_object(source, subject).await.map_err(|error| {
            let object = &source.described_object;
            format!(
                "unable to get metric {name}: {} on {} {}/{error}",
                object.kind, subject.namespace, object.name
            )
        });
        let reading = |proposal: Proposal, field: &str, called: String| {
            let current = json!({field: amount(proposal.usage, false)});
            let status = json!({"describedObject": source.described_object, "metric": source.metric, "current": current});
            Reading {
                replicas: proposal.replicas,
                name: called,
                status: json!({"type": "Object", "object": status}),
            }
        };
        if let Some(value) = value {
            let usage = usage.map_err(both)?;
            let proposal = self.by_value(subject, usage, value).map_err(both)?;
            return Ok(reading(proposal, "value", format!("{} metric {name}", source.described_object.kind)));
        }
        let usage =
            usage.map_err(|cause| (cause.clone(), format!("failed to get {name} object metric: {cause}")))?;
        let proposal = propose_by_average(
            subject.status_replicas,
            usage,
            average.unwrap_or(1).max(1),
            subject.tolerances,
        );
        Ok(reading(
            proposal,
            "averageValue",
            format!("external metric {name}({})", format_selector(source.metric.selector.as_ref())),
        ))
    }

    async fn of_object(&self, source: &Source, subject: &Subject<'_>) -> Result<i64, String> {
        let ObjectRef { kind, name, .. } = &source.described_object;
        let group = source.described_object.group();
        let served = self.served.get().await.map_err(|error| error.to_string())?;
        let mut kinds = served.preferred().map(|resource| &resource.kind);
        let known = kinds.find(|served| served.kind() == kind && served.group() == group);
        let known = known.ok_or_else(|| format!("no matches for kind {kind:?} in group {group:?}"))?;
        let resource =
            if group.is_empty() { known.plural().to_owned() } else { format!("{}.{group}", known.plural()) };
        let selector = source.metric.selector.as_ref();
        let read = match (kind.as_str(), group) {
            ("Namespace", "") => {
                self.metrics.object(&source.metric.name, None, &resource, subject.namespace, selector).await
            }
            _ => {
                self.metrics
                    .object(&source.metric.name, Some(subject.namespace), &resource, name, selector)
                    .await
            }
        };
        read.map_err(|error: MetricsError| error.to_string())
    }

    async fn external(&self, source: &Source, subject: &Subject<'_>) -> Result<Reading, (String, String)> {
        let (MetricId { name, selector }, target) = (&source.metric, &source.target);
        let selected = format_selector(selector.as_ref());
        let read = self.metrics.external(name, subject.namespace, selector.as_ref()).await;
        let usage = read.map(|values| values.into_iter().fold(0_i64, i64::saturating_add)).map_err(|error| {
            format!("unable to get external metric {}/{name}/{selected}: {error}", subject.namespace)
        });
        let reading = |proposal: Proposal, field: &str| {
            let current = json!({field: amount(proposal.usage, false)});
            let status = json!({"metric": source.metric, "current": current});
            let called = format!("external metric {name}({selected})");
            Reading {
                replicas: proposal.replicas,
                name: called,
                status: json!({"type": "External", "external": status}),
            }
        };
        match (target.average_value, target.value) {
            (Some(average), _) => {
                let usage = usage.map_err(|cause| {
                    (cause.clone(), format!("failed to get {name} external metric: {cause}"))
                })?;
                let (replicas, tolerances) = (subject.status_replicas, subject.tolerances);
                Ok(reading(propose_by_average(replicas, usage, average.max(1), tolerances), "averageValue"))
            }
            (None, Some(value)) => {
                let more =
                    |cause: String| (cause.clone(), format!("failed to get external metric {name}: {cause}"));
                let proposal = self.by_value(subject, usage.map_err(more)?, value).map_err(more)?;
                Ok(reading(proposal, "value"))
            }
            (None, None) => {
                let text = "invalid external metric source: neither a value target nor an average value target was set";
                Err((text.to_owned(), text.to_owned()))
            }
        }
    }

    fn by_value(&self, subject: &Subject<'_>, usage: i64, target: i64) -> Result<Proposal, String> {
        let (replicas, tolerances) = (subject.spec_replicas, subject.tolerances);
        let proposal = propose_by_value(replicas, usage, target.max(1), &self.replicas(subject), tolerances);
        proposal.map_err(|error: NoReplicaCount| format!("unable to calculate ready pods: {error}"))
    }

    fn by_samples(
        &self,
        goal: Goal<'_>,
        subject: &Subject<'_>,
        samples: Samples,
    ) -> Result<Proposal, NoReplicaCount> {
        let rules = Thresholds { tolerances: subject.tolerances, start: self.start };
        propose(goal, subject.spec_replicas, samples, &self.replicas(subject), rules, self.clock.now())
    }

    /// Lists the target's pods.
    fn replicas(&self, subject: &Subject<'_>) -> Vec<Replica> {
        let pods = self.pods.list(Some(subject.namespace));
        let selected = pods.iter().filter(|pod| subject.selector.matches(&pod.meta().labels));
        let mut replicas: Vec<_> = selected.filter_map(|pod| Replica::of(pod).ok()).collect();
        if !self.whole_pods {
            replicas.iter_mut().for_each(|pod| pod.requests.clear());
        }
        replicas
    }
}

/// Formats a quantity, memory in binary units.
fn amount(milli: i64, binary: bool) -> String {
    if binary && milli % 1000 == 0 {
        return Quantity::new(milli / 1000, Format::BinarySi).to_string();
    }
    Quantity::parse(&format!("{milli}m")).map_or_else(|_| milli.to_string(), |amount| amount.to_string())
}

/// Formats a selector for events.
fn format_selector(selector: Option<&LabelSelector>) -> String {
    selector.map_or_else(|| "nil".to_owned(), crate::workload::selector::format_selector)
}
