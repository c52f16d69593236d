//! The three metrics APIs: resource, custom and external metrics.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use setpoint::{Client, ClientError, LabelSelector};
use setpoint_quantity::Quantity;

/// A sample of one pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sample {
    pub(super) time: Option<Timestamp>,
    /// The measurement window.
    pub(super) window: Duration,
    /// In thousandths.
    pub(super) value: i64,
}

/// Samples by pod name.
pub(super) type Samples = BTreeMap<String, Sample>;

/// The default measurement window.
const WINDOW: Duration = Duration::from_secs(60);

pub(super) struct MetricsApi {
    client: Client,
}

/// Why there are no samples, with v1.34's messages.
#[derive(Debug, thiserror::Error)]
pub(super) enum MetricsError {
    #[error("unable to fetch metrics from {api} metrics API: {why}")]
    Unavailable { api: &'static str, why: String },
    #[error("no metrics returned from {api} metrics API")]
    Nothing { api: &'static str },
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct List<T> {
    items: Vec<T>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Named {
    name: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct PodMetrics {
    metadata: Named,
    timestamp: Option<Timestamp>,
    window: String,
    containers: Vec<ContainerMetrics>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ContainerMetrics {
    name: String,
    usage: BTreeMap<String, Value>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct MetricValue {
    described_object: Named,
    timestamp: Option<Timestamp>,
    window_seconds: Option<u64>,
    value: Value,
}

impl MetricsApi {
    pub(super) fn new(client: Client) -> Self {
        Self { client }
    }

    /// Fetches the resource usage of pods, or of one container in each.
    pub(super) async fn resource(
        &self,
        resource: &str,
        namespace: &str,
        selector: &LabelSelector,
        container: &str,
    ) -> Result<Samples, MetricsError> {
        let path = ["apis", "metrics.k8s.io", "v1beta1", "namespaces", namespace, "pods"];
        let selector = selector.to_string();
        let query = [("labelSelector", Some(selector.as_str()))];
        let answer = self.client.get_path(&path, &query).await;
        let list: List<PodMetrics> = read("resource", "pods.metrics.k8s.io", answer)?;
        if list.items.is_empty() {
            return Err(MetricsError::Nothing { api: "resource" });
        }
        let sample = |pod: &PodMetrics| Some((pod.metadata.name.clone(), pod.sample(resource, container)?));
        Ok(list.items.iter().filter_map(sample).collect())
    }

    /// Fetches a metric for all pods that match a selector.
    pub(super) async fn pods(
        &self,
        metric: &str,
        namespace: &str,
        selector: &LabelSelector,
        metric_selector: Option<&LabelSelector>,
    ) -> Result<Samples, MetricsError> {
        let path = ["apis", "custom.metrics.k8s.io", "v1beta2", "namespaces", namespace, "pods", "*", metric];
        let list = self
            .custom(
                &path,
                Some(selector),
                metric_selector,
                &format!("pods.custom.metrics.k8s.io \"*\"/{metric}"),
            )
            .await?;
        let sample = |value: &MetricValue| {
            let window = value.window_seconds.map_or(WINDOW, Duration::from_secs);
            (
                value.described_object.name.clone(),
                Sample { time: value.timestamp, window, value: value.milli() },
            )
        };
        Ok(list.items.iter().map(sample).collect())
    }

    /// Fetches a metric of one object. `resource` is the plural and group of its kind.
    pub(super) async fn object(
        &self,
        metric: &str,
        namespace: Option<&str>,
        resource: &str,
        name: &str,
        metric_selector: Option<&LabelSelector>,
    ) -> Result<i64, MetricsError> {
        let mut path = vec!["apis", "custom.metrics.k8s.io", "v1beta2"];
        match namespace {
            Some(namespace) => path.extend(["namespaces", namespace, resource, name, metric]),
            None => path.extend([resource, name, metric]),
        }
        let list = self
            .custom(
                &path,
                None,
                metric_selector,
                &format!("{resource}.custom.metrics.k8s.io {name}/{metric}"),
            )
            .await?;
        Ok(list.items[0].milli())
    }

    /// Fetches all values of an external metric.
    pub(super) async fn external(
        &self,
        metric: &str,
        namespace: &str,
        selector: Option<&LabelSelector>,
    ) -> Result<Vec<i64>, MetricsError> {
        let path = ["apis", "external.metrics.k8s.io", "v1beta1", "namespaces", namespace, metric];
        let selector = selector.map(LabelSelector::to_string).filter(|text| !text.is_empty());
        let answer = self.client.get_path(&path, &[("labelSelector", selector.as_deref())]).await;
        let list: List<MetricValue> = read("external", &format!("{metric}.external.metrics.k8s.io"), answer)?;
        if list.items.is_empty() {
            return Err(MetricsError::Nothing { api: "external" });
        }
        Ok(list.items.iter().map(MetricValue::milli).collect())
    }

    async fn custom(
        &self,
        path: &[&str],
        selector: Option<&LabelSelector>,
        metric_selector: Option<&LabelSelector>,
        what: &str,
    ) -> Result<List<MetricValue>, MetricsError> {
        let text = |selector: Option<&LabelSelector>| {
            selector.map(LabelSelector::to_string).filter(|text| !text.is_empty())
        };
        let (selector, metric_selector) = (text(selector), text(metric_selector));
        let query =
            [("labelSelector", selector.as_deref()), ("metricLabelSelector", metric_selector.as_deref())];
        let list: List<MetricValue> = read("custom", what, self.client.get_path(path, &query).await)?;
        if list.items.is_empty() { Err(MetricsError::Nothing { api: "custom" }) } else { Ok(list) }
    }
}

/// Decodes a response. `what` was requested.
fn read<T: DeserializeOwned>(
    api: &'static str,
    what: &str,
    answer: Result<Bytes, ClientError>,
) -> Result<T, MetricsError> {
    let unavailable = |why: String| MetricsError::Unavailable { api, why };
    match answer {
        Ok(bytes) => serde_json::from_slice(&bytes).map_err(|error| unavailable(error.to_string())),
        // The API is not served.
        Err(error) if error.is_not_found() => {
            Err(unavailable(format!("the server could not find the requested resource (get {what})")))
        }
        Err(error) => Err(unavailable(error.to_string())),
    }
}

impl PodMetrics {
    fn sample(&self, resource: &str, container: &str) -> Option<Sample> {
        let of = |metrics: &ContainerMetrics| {
            metrics
                .usage
                .get(resource)
                .and_then(|amount| Quantity::of(amount).ok())
                .map(|amount| amount.milli_value())
        };
        let value = if container.is_empty() {
            let all: Option<Vec<i64>> = self.containers.iter().map(of).collect();
            all.filter(|all| !all.is_empty())?.into_iter().sum()
        } else {
            of(self.containers.iter().find(|metrics| metrics.name == container)?)?
        };
        Some(Sample { time: self.timestamp, window: self.window(), value })
    }

    /// Parses the window, formatted like `1m0s`.
    fn window(&self) -> Duration {
        let span: Option<jiff::SignedDuration> = self.window.parse().ok();
        span.and_then(|span| Duration::try_from(span).ok()).unwrap_or(WINDOW)
    }
}

impl MetricValue {
    fn milli(&self) -> i64 {
        Quantity::of(&self.value).map_or(0, |amount| amount.milli_value())
    }
}
