//! The reports of a node: its pods, and usage as JSON and as metrics.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};
use setpoint::Cached;

use super::Node;
use crate::usage::{ContainerUsage, Usage, container_usages};
use crate::view::PodView;

/// A pod with the usage of its containers.
struct Measured {
    pod: Cached<PodView>,
    containers: Vec<ContainerUsage>,
}

impl Measured {
    fn total(&self) -> Usage {
        let mut total = Usage::default();
        self.containers.iter().for_each(|container| total += container.usage);
        total
    }

    /// The nanoseconds of a core that the pod has used so far.
    fn core_nanoseconds(&self, now: Timestamp) -> u64 {
        self.containers
            .iter()
            .map(|container| used(container.usage, container.since, now))
            .fold(0, u64::saturating_add)
    }
}

/// Returns the nanoseconds of a core used since a time.
fn used(usage: Usage, since: Option<Timestamp>, now: Timestamp) -> u64 {
    let passed =
        since.and_then(|since| Duration::try_from(now.duration_since(since)).ok()).unwrap_or_default();
    (passed.as_secs_f64() * usage.nano_cores() as f64) as u64
}

impl Node {
    fn pods(&self) -> Vec<Cached<PodView>> {
        let all = self.server.pods.list(None).unwrap_or_default();
        all.into_iter().filter(|pod| pod.spec.node_name == self.name()).collect()
    }

    fn measured(&self) -> Vec<Measured> {
        let measured = |pod: Cached<PodView>| {
            let containers = container_usages(pod.object().raw())?;
            Some(Measured { pod, containers })
        };
        self.pods().into_iter().filter_map(measured).collect()
    }

    /// Returns when the node was created, which is when it started.
    fn started(&self) -> Option<Timestamp> {
        let node = self.server.nodes.get(&setpoint::Key::cluster(self.name())).ok().flatten()?;
        node.meta().creation_timestamp
    }

    /// Returns the pods of the node as a list.
    pub(super) fn pod_list(&self, is_meant: impl Fn(&PodView) -> bool) -> Value {
        let pods = self.pods().into_iter().filter(|pod| is_meant(pod));
        let items: Vec<Value> = pods.filter_map(|pod| pod.object().decode().ok()).collect();
        json!({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items})
    }

    /// Returns the usage of the node and its pods.
    pub(super) fn summary(&self) -> Value {
        let now = self.server.clock.now();
        let measured = self.measured();
        let mut total = Usage::NODE;
        measured.iter().for_each(|pod| total += pod.total());
        let pods: Vec<Value> = measured.iter().map(|pod| pod_summary(pod, now)).collect();
        let started = self.started();
        let node = json!({
            "nodeName": self.name(),
            "startTime": started.map(second),
            "cpu": cpu(total, used(total, started, now), now),
            "memory": memory(total, now),
        });
        json!({"node": node, "pods": pods})
    }

    /// Returns the usage of the node and its pods as metrics.
    pub(super) fn resource_metrics(&self) -> String {
        let now = self.server.clock.now();
        let measured = self.measured();
        let mut total = Usage::NODE;
        measured.iter().for_each(|pod| total += pod.total());
        let stamp = now.as_millisecond();
        let seconds = |nanoseconds: u64| nanoseconds as f64 / 1e9;
        let mut text = Metrics::default();
        let (counter, gauge) = ("counter", "gauge");
        text.family(
            "container_cpu_usage_seconds_total",
            counter,
            "Cumulative cpu time consumed by the container in core-seconds",
        );
        for (labels, container) in labelled(&measured) {
            let value = seconds(used(container.usage, container.since, now));
            text.sample(&format!("container_cpu_usage_seconds_total{{{labels}}}"), value, stamp);
        }
        text.family(
            "container_memory_working_set_bytes",
            gauge,
            "Current working set of the container in bytes",
        );
        for (labels, container) in labelled(&measured) {
            text.sample(
                &format!("container_memory_working_set_bytes{{{labels}}}"),
                container.usage.memory_bytes() as f64,
                stamp,
            );
        }
        text.family(
            "container_start_time_seconds",
            gauge,
            "Start time of the container since unix epoch in seconds",
        );
        for (labels, container) in labelled(&measured) {
            let start = container.since.map_or(0.0, |since| since.as_second() as f64);
            text.sample(&format!("container_start_time_seconds{{{labels}}}"), start, stamp);
        }
        text.family(
            "node_cpu_usage_seconds_total",
            counter,
            "Cumulative cpu time consumed by the node in core-seconds",
        );
        text.sample("node_cpu_usage_seconds_total", seconds(used(total, self.started(), now)), stamp);
        text.family("node_memory_working_set_bytes", gauge, "Current working set of the node in bytes");
        text.sample("node_memory_working_set_bytes", total.memory_bytes() as f64, stamp);
        text.family(
            "pod_cpu_usage_seconds_total",
            counter,
            "Cumulative cpu time consumed by the pod in core-seconds",
        );
        for pod in &measured {
            let labels = pod_labels(pod);
            text.sample(
                &format!("pod_cpu_usage_seconds_total{{{labels}}}"),
                seconds(pod.core_nanoseconds(now)),
                stamp,
            );
        }
        text.family("pod_memory_working_set_bytes", gauge, "Current working set of the pod in bytes");
        for pod in &measured {
            let labels = pod_labels(pod);
            text.sample(
                &format!("pod_memory_working_set_bytes{{{labels}}}"),
                pod.total().memory_bytes() as f64,
                stamp,
            );
        }
        text.family(
            "resource_scrape_error",
            gauge,
            "1 if there was an error while getting container metrics, 0 otherwise",
        );
        text.0.push_str("resource_scrape_error 0\n");
        text.0
    }

    /// Returns the metrics of the kubelet itself.
    pub(super) fn metrics(&self) -> String {
        let pods = self.pods();
        let running = pods.iter().filter(|pod| pod.status.phase == "Running").count();
        let containers = pods.iter().flat_map(|pod| pod.status.all_containers());
        let containers = containers.filter(|status| status.state.running.is_some()).count();
        let mut text = Metrics::default();
        text.family("kubelet_node_name", "gauge", "The node's name. The count is always 1.");
        text.0.push_str(&format!("kubelet_node_name{{node={:?}}} 1\n", self.name()));
        text.family("kubelet_running_containers", "gauge", "Number of containers currently running");
        text.0.push_str(&format!("kubelet_running_containers{{container_state=\"running\"}} {containers}\n"));
        text.family("kubelet_running_pods", "gauge", "Number of pods that have a running pod sandbox");
        text.0.push_str(&format!("kubelet_running_pods {running}\n"));
        text.0
    }
}

/// Metrics as text.
#[derive(Default)]
struct Metrics(String);

impl Metrics {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        self.0.push_str(&format!("# HELP {name} [STABLE] {help}\n# TYPE {name} {kind}\n"));
    }

    fn sample(&mut self, series: &str, value: f64, stamp: i64) {
        self.0.push_str(&format!("{series} {value} {stamp}\n"));
    }
}

/// Lists the containers of pods with their labels. Names of objects need no escaping.
fn labelled(measured: &[Measured]) -> impl Iterator<Item = (String, &ContainerUsage)> {
    measured.iter().flat_map(|pod| {
        let labels = pod_labels(pod);
        let of = move |container: &ContainerUsage| format!("container={:?},{labels}", container.name);
        pod.containers.iter().map(move |container| (of(container), container))
    })
}

fn pod_labels(measured: &Measured) -> String {
    let key = measured.pod.key();
    format!("namespace={:?},pod={:?}", key.namespace().unwrap_or_default(), key.name())
}

fn pod_summary(measured: &Measured, now: Timestamp) -> Value {
    let (key, total) = (measured.pod.key(), measured.total());
    let containers: Vec<Value> = measured
        .containers
        .iter()
        .map(|container| {
            json!({
                "name": container.name,
                "startTime": container.since.map(second),
                "cpu": cpu(container.usage, used(container.usage, container.since, now), now),
                "memory": memory(container.usage, now),
            })
        })
        .collect();
    json!({
        "podRef": {"name": key.name(), "namespace": key.namespace().unwrap_or_default(), "uid": measured.pod.meta().uid},
        "startTime": measured.pod.status.start_time.map(second),
        "containers": containers,
        "cpu": cpu(total, measured.core_nanoseconds(now), now),
        "memory": memory(total, now),
    })
}

fn cpu(usage: Usage, core_nanoseconds: u64, now: Timestamp) -> Value {
    json!({"time": second(now), "usageNanoCores": usage.nano_cores(), "usageCoreNanoSeconds": core_nanoseconds})
}

fn memory(usage: Usage, now: Timestamp) -> Value {
    let bytes = usage.memory_bytes();
    json!({"time": second(now), "usageBytes": bytes, "workingSetBytes": bytes, "rssBytes": bytes})
}

fn second(time: Timestamp) -> String {
    setpoint::conditions::whole_seconds(time).to_string()
}
