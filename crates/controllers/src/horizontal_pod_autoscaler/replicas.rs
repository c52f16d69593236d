//! From samples to a number of replicas. Pure.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};

use super::metrics_api::{Sample, Samples};
use super::settings::{Start, Tolerances};
use super::view::Replica;

/// Why no number can be computed, with v1.34's messages.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum NoReplicaCount {
    #[error("no pods returned by selector while calculating replica count")]
    NoPods,
    #[error("did not receive metrics for targeted pods (pods might be unready)")]
    NoMetrics,
    #[error("no metrics returned matched known pods")]
    NoRequests,
    #[error("missing request for {resource} in container {container} of Pod {pod}")]
    MissingRequest { resource: String, container: String, pod: String },
}

/// A number of replicas, and the usage it is based on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Proposal {
    pub(super) replicas: i32,
    /// Per pod, in thousandths.
    pub(super) usage: i64,
    /// In percent of the request.
    pub(super) utilization: Option<i32>,
}

/// The target of a metric.
#[derive(Clone, Copy, Debug)]
pub(super) enum Goal<'a> {
    /// A percentage of the request.
    Utilization { percent: i32, resource: &'a str, container: &'a str },
    /// An amount of a resource, in thousandths.
    Resource { milli: i64, resource: &'a str },
    /// Any value, in thousandths.
    Value { milli: i64 },
}

/// Tolerances, and which starting pods to ignore.
#[derive(Clone, Copy, Debug)]
pub(super) struct Thresholds {
    pub(super) tolerances: Tolerances,
    pub(super) start: Start,
}

/// The pods of a target, grouped by whether they have usable samples.
#[derive(Default)]
struct Groups {
    ready: usize,
    unready: BTreeSet<String>,
    missing: BTreeSet<String>,
    ignored: BTreeSet<String>,
}

/// The ratio of usage to target, and its inputs.
struct Usage {
    ratio: f64,
    usage: i64,
    utilization: Option<i32>,
}

/// Returns how many replicas would bring pods to the goal.
pub(super) fn propose(
    goal: Goal<'_>,
    current: i32,
    mut samples: Samples,
    pods: &[Replica],
    Thresholds { tolerances, start }: Thresholds,
    now: Timestamp,
) -> Result<Proposal, NoReplicaCount> {
    if pods.is_empty() {
        return Err(NoReplicaCount::NoPods);
    }
    let groups = Groups::of(pods, &samples, (goal.resource() == Some("cpu")).then_some(start), now);
    samples.retain(|pod, _| !groups.ignored.contains(pod) && !groups.unready.contains(pod));
    if samples.is_empty() {
        return Err(NoReplicaCount::NoMetrics);
    }
    let requests = goal.requests(pods)?;
    let usage = goal.usage(&samples, &requests)?;
    let proposal = |replicas| Proposal { replicas, usage: usage.usage, utilization: usage.utilization };
    let with_unready = !groups.unready.is_empty() && usage.ratio > 1.0;
    if !with_unready && groups.missing.is_empty() {
        let replicas = if tolerances.cover(usage.ratio) { current } else { times(usage.ratio, groups.ready) };
        return Ok(proposal(replicas));
    }
    // Pods without samples are assumed to have the value that dampens scaling the most.
    for pod in &groups.missing {
        if usage.ratio < 1.0 {
            samples.insert(pod.clone(), Sample { value: goal.assumed(pod, &requests), ..Sample::default() });
        } else if usage.ratio > 1.0 {
            samples.insert(pod.clone(), Sample::default());
        }
    }
    if with_unready {
        samples.extend(groups.unready.iter().map(|pod| (pod.clone(), Sample::default())));
    }
    let ratio = goal.usage(&samples, &requests)?.ratio;
    let turned = (usage.ratio < 1.0 && ratio > 1.0) || (usage.ratio > 1.0 && ratio < 1.0);
    if tolerances.cover(ratio) || turned {
        return Ok(proposal(current));
    }
    let replicas = times(ratio, samples.len());
    let backwards = (ratio < 1.0 && replicas > current) || (ratio > 1.0 && replicas < current);
    Ok(proposal(if backwards { current } else { replicas }))
}

/// Returns how many replicas bring one value to its target.
pub(super) fn propose_by_value(
    current: i32,
    usage: i64,
    target: i64,
    pods: &[Replica],
    tolerances: Tolerances,
) -> Result<Proposal, NoReplicaCount> {
    let ratio = usage as f64 / target as f64;
    let replicas = match current {
        0 => times(ratio, 1),
        current if tolerances.cover(ratio) => current,
        _ if pods.is_empty() => return Err(NoReplicaCount::NoPods),
        _ => times(ratio, pods.iter().filter(|pod| pod.is_running_and_ready()).count()),
    };
    Ok(Proposal { replicas, usage, utilization: None })
}

/// Returns how many replicas bring a value, averaged over all of them, to its target.
pub(super) fn propose_by_average(replicas: i32, usage: i64, target: i64, tolerances: Tolerances) -> Proposal {
    let ratio = usage as f64 / (target as f64 * f64::from(replicas));
    let wanted =
        if tolerances.cover(ratio) { replicas } else { (usage as f64 / target as f64).ceil() as i32 };
    Proposal {
        replicas: wanted,
        usage: (usage as f64 / f64::from(replicas)).ceil() as i64,
        utilization: None,
    }
}

fn times(ratio: f64, count: usize) -> i32 {
    (ratio * count as f64).ceil() as i32
}

impl Replica {
    fn is_running_and_ready(&self) -> bool {
        self.phase == "Running" && self.ready.as_ref().is_some_and(|(status, _)| status == "True")
    }

    /// Whether its CPU usage is meaningless: it is starting, or was never ready.
    fn is_unready(&self, sample: &Sample, start: Start, now: Timestamp) -> bool {
        let (Some((status, since)), Some(started)) = (&self.ready, self.started) else { return true };
        let not_ready = status == "False";
        let since = since.unwrap_or(started);
        if started + start.cpu_initialization > now {
            let window = SignedDuration::try_from(sample.window).unwrap_or_default();
            not_ready || sample.time.is_none_or(|time| time < since + window)
        } else {
            not_ready && started + start.initial_readiness > since
        }
    }
}

impl Groups {
    fn of(pods: &[Replica], samples: &Samples, cpu: Option<Start>, now: Timestamp) -> Self {
        let mut groups = Self::default();
        for pod in pods {
            let name = pod.name.clone();
            let sample = samples.get(&pod.name);
            if pod.is_being_deleted || pod.phase == "Failed" {
                groups.ignored.insert(name);
            } else if pod.phase == "Pending" {
                groups.unready.insert(name);
            } else if let Some(sample) = sample {
                if cpu.is_some_and(|start| pod.is_unready(sample, start, now)) {
                    groups.unready.insert(name);
                } else {
                    groups.ready += 1;
                }
            } else {
                groups.missing.insert(name);
            }
        }
        groups
    }
}

impl Goal<'_> {
    fn resource(&self) -> Option<&str> {
        match self {
            Self::Utilization { resource, .. } | Self::Resource { resource, .. } => Some(resource),
            Self::Value { .. } => None,
        }
    }

    /// Returns each pod's request, if the goal depends on it.
    fn requests(&self, pods: &[Replica]) -> Result<BTreeMap<String, i64>, NoReplicaCount> {
        let Self::Utilization { resource, container, .. } = self else { return Ok(BTreeMap::new()) };
        pods.iter().map(|pod| Ok((pod.name.clone(), request(pod, resource, container)?))).collect()
    }

    fn usage(&self, samples: &Samples, requests: &BTreeMap<String, i64>) -> Result<Usage, NoReplicaCount> {
        match self {
            Self::Utilization { percent, .. } => {
                let known =
                    samples.iter().filter_map(|(pod, sample)| Some((sample.value, *requests.get(pod)?)));
                let (mut used, mut asked, mut count) = (0_i64, 0_i64, 0_i64);
                for (value, request) in known {
                    (used, asked, count) =
                        (used.saturating_add(value), asked.saturating_add(request), count + 1);
                }
                if asked == 0 {
                    return Err(NoReplicaCount::NoRequests);
                }
                let utilization = (used.saturating_mul(100) / asked) as i32;
                let ratio = f64::from(utilization) / f64::from(*percent);
                Ok(Usage { ratio, usage: used / count, utilization: Some(utilization) })
            }
            Self::Resource { milli, .. } | Self::Value { milli } => {
                let total: i64 = samples.values().map(|sample| sample.value).sum();
                let usage = total / samples.len() as i64;
                Ok(Usage { ratio: usage as f64 / *milli as f64, usage, utilization: None })
            }
        }
    }

    /// Returns the usage assumed for pods without samples when scaling down.
    fn assumed(&self, pod: &str, requests: &BTreeMap<String, i64>) -> i64 {
        match self {
            Self::Utilization { percent, .. } => {
                requests.get(pod).map_or(0, |request| request * i64::from(*percent.max(&100)) / 100)
            }
            Self::Resource { milli, .. } | Self::Value { milli } => *milli,
        }
    }
}

fn request(pod: &Replica, resource: &str, container: &str) -> Result<i64, NoReplicaCount> {
    if container.is_empty()
        && let Some(request) = pod.requests.get(resource)
    {
        return Ok(*request);
    }
    let mut sum = 0;
    for (name, requests) in
        pod.containers.iter().filter(|(name, _)| container.is_empty() || name == container)
    {
        let missing = || NoReplicaCount::MissingRequest {
            resource: resource.to_owned(),
            container: name.clone(),
            pod: pod.name.clone(),
        };
        sum += requests.get(resource).ok_or_else(missing)?;
    }
    Ok(sum)
}
