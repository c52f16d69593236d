//! Settings for all autoscalers.

use std::time::Duration;

use jiff::SignedDuration;

use super::ENTRY;
use super::view::Behavior;
use crate::flags::{Flag, duration, number};

pub(crate) const FLAGS: &[Flag] = &[
    Flag::workers("concurrent-horizontal-pod-autoscaler-syncs", &ENTRY, "5"),
    Flag::new(
        "horizontal-pod-autoscaler-sync-period",
        "DURATION",
        "15s",
        "How often autoscalers are evaluated.",
        |options, text| nonzero(text).map(|value| options.autoscaler.period = value),
    ),
    Flag::new(
        "horizontal-pod-autoscaler-downscale-stabilization",
        "DURATION",
        "5m",
        "How far back the highest recommendation is used when scaling down.",
        |options, text| duration(text).map(|value| options.autoscaler.downscale_stabilization = value),
    ),
    Flag::new(
        "horizontal-pod-autoscaler-tolerance",
        "RATIO",
        "0.1",
        "How far the ratio of current to target value may be from 1.0 before the autoscaler acts.",
        |options, text| ratio(text).map(|value| options.autoscaler.tolerance = value),
    ),
    Flag::new(
        "horizontal-pod-autoscaler-cpu-initialization-period",
        "DURATION",
        "5m",
        "Period after a pod's start during which its CPU samples may be skipped.",
        |options, text| signed(text).map(|value| options.autoscaler.start.cpu_initialization = value),
    ),
    Flag::new(
        "horizontal-pod-autoscaler-initial-readiness-delay",
        "DURATION",
        "30s",
        "Period after a pod's start during which a change to ready counts as its first.",
        |options, text| signed(text).map(|value| options.autoscaler.start.initial_readiness = value),
    ),
];

/// Settings for all autoscalers.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// The time between evaluations.
    pub period: Duration,
    /// The default scale-down stabilization window.
    pub downscale_stabilization: Duration,
    /// How far the ratio of current to target value may be from 1.0 before the autoscaler acts.
    pub tolerance: f64,
    /// Which samples of starting pods are used.
    pub start: Start,
}

/// Thresholds for starting pods, whose CPU usage is unusually high.
#[derive(Clone, Copy, Debug)]
pub struct Start {
    pub cpu_initialization: SignedDuration,
    /// An unready pod whose readiness last changed within this time after its start counts as never ready.
    pub initial_readiness: SignedDuration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            period: Duration::from_secs(15),
            downscale_stabilization: Duration::from_secs(300),
            tolerance: 0.1,
            start: Start {
                cpu_initialization: SignedDuration::from_secs(300),
                initial_readiness: SignedDuration::from_secs(30),
            },
        }
    }
}

/// How far a ratio may be from 1 in either direction before the autoscaler acts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tolerances {
    pub(super) down: f64,
    pub(super) up: f64,
}

impl Tolerances {
    /// Returns an autoscaler's tolerances: its own if it has them and may have them.
    pub(super) fn of(settings: &Settings, behavior: Option<&Behavior>) -> Self {
        let own = |rule: Option<f64>| rule.unwrap_or(settings.tolerance);
        Self {
            down: own(behavior.and_then(|behavior| behavior.scale_down.tolerance)),
            up: own(behavior.and_then(|behavior| behavior.scale_up.tolerance)),
        }
    }

    pub(super) fn cover(self, ratio: f64) -> bool {
        (1.0 - self.down..=1.0 + self.up).contains(&ratio)
    }
}

fn nonzero(text: &str) -> Result<Duration, String> {
    let period = duration(text)?;
    if period.is_zero() { Err("expected a duration greater than 0".into()) } else { Ok(period) }
}

fn signed(text: &str) -> Result<SignedDuration, String> {
    SignedDuration::try_from(duration(text)?).map_err(|_| "expected a shorter duration".into())
}

fn ratio(text: &str) -> Result<f64, String> {
    let ratio: f64 = number(text)?;
    if ratio.is_finite() && ratio >= 0.0 { Ok(ratio) } else { Err("expected a number of 0 or more".into()) }
}
