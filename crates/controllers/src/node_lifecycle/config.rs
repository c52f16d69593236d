//! Settings, with kube-controller-manager's defaults.

use std::time::Duration;

use jiff::SignedDuration;

use crate::flags::{Flag, duration, number};
use crate::registry::Options;

/// Settings of the node lifecycle controller.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeLifecycle {
    /// How often the health of all nodes is checked.
    pub monitor_period: Duration,
    /// How long a node may be unresponsive before it is marked unhealthy.
    pub monitor_grace: Duration,
    /// How long a new node may take to report for the first time.
    pub startup_grace: Duration,
    /// Nodes per second and zone that are tainted for eviction.
    pub eviction_rate: f64,
    /// Nodes per second that are tainted for eviction in an unhealthy zone of a large cluster.
    pub secondary_eviction_rate: f64,
    /// Zones with more nodes than this count as large.
    pub large_cluster: usize,
    /// The share of unready nodes at which a zone is unhealthy.
    pub unhealthy_zone: f64,
}

impl Default for NodeLifecycle {
    fn default() -> Self {
        Self {
            monitor_period: Duration::from_secs(5),
            monitor_grace: Duration::from_secs(50),
            startup_grace: Duration::from_secs(60),
            eviction_rate: 0.1,
            secondary_eviction_rate: 0.01,
            large_cluster: 50,
            unhealthy_zone: 0.55,
        }
    }
}

impl NodeLifecycle {
    /// Returns how long a node may be silent, depending on whether it has ever reported.
    pub(super) fn grace(&self, has_reported: bool) -> SignedDuration {
        let grace = if has_reported { self.monitor_grace } else { self.startup_grace };
        SignedDuration::try_from(grace).unwrap_or(SignedDuration::MAX)
    }

    /// Returns the interval between nodes. `None` means that none is tainted.
    pub(super) fn interval(rate: f64) -> Option<Duration> {
        (rate > 0.0).then(|| Duration::try_from_secs_f64(1.0 / rate).unwrap_or(Duration::MAX))
    }
}

pub(crate) const FLAGS: &[Flag] = &[
    Flag::new(
        "node-monitor-period",
        "DURATION",
        "5s",
        "How often the health of all nodes is checked.",
        |options, text| set(options, duration(text), |config, value| config.monitor_period = value),
    ),
    Flag::new(
        "node-monitor-grace-period",
        "DURATION",
        "50s",
        "How long a node may be unresponsive before it is marked unhealthy.",
        |options, text| set(options, duration(text), |config, value| config.monitor_grace = value),
    ),
    Flag::new(
        "node-startup-grace-period",
        "DURATION",
        "1m",
        "How long a new node may be unresponsive before it is marked unhealthy.",
        |options, text| set(options, duration(text), |config, value| config.startup_grace = value),
    ),
    Flag::new(
        "node-eviction-rate",
        "N",
        "0.1",
        "Nodes per second and zone that are tainted for eviction while the zone is healthy.",
        |options, text| set(options, rate(text), |config, value| config.eviction_rate = value),
    ),
    Flag::new(
        "secondary-node-eviction-rate",
        "N",
        "0.01",
        "Nodes per second that are tainted for eviction in an unhealthy zone of a large cluster.",
        |options, text| set(options, rate(text), |config, value| config.secondary_eviction_rate = value),
    ),
    Flag::new(
        "large-cluster-size-threshold",
        "N",
        "50",
        "Zones with more nodes than this count as large.",
        |options, text| set(options, number(text), |config, value| config.large_cluster = value),
    ),
    Flag::new(
        "unhealthy-zone-threshold",
        "SHARE",
        "0.55",
        "Fraction of unready nodes from which a zone is unhealthy.",
        |options, text| set(options, share(text), |config, value| config.unhealthy_zone = value),
    ),
];

fn set<T>(
    options: &mut Options,
    value: Result<T, String>,
    put: fn(&mut NodeLifecycle, T),
) -> Result<(), String> {
    put(&mut options.node_lifecycle, value?);
    Ok(())
}

fn rate(text: &str) -> Result<f64, String> {
    number::<f64>(text).ok().filter(|rate| *rate >= 0.0).ok_or_else(|| "expected a number, 0 or more".into())
}

fn share(text: &str) -> Result<f64, String> {
    let share = number::<f64>(text).ok().filter(|share| (0.0..=1.0).contains(share));
    share.ok_or_else(|| "expected a number from 0 to 1".into())
}
