//! Scaling policies and stabilization. Pure.

use std::time::Duration;

use setpoint::Instant;

use super::history::History;
use super::view::{Behavior, Policy, Rules};

/// A condition: status, reason and message.
pub(super) type ConditionText = (bool, &'static str, &'static str);

/// A scaling decision and its conditions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Decision {
    pub(super) replicas: i32,
    /// The condition `AbleToScale`.
    pub(super) able: ConditionText,
    /// The condition `ScalingLimited`.
    pub(super) limited: ConditionText,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub(super) min: i32,
    pub(super) max: i32,
    /// The default scale-down stabilization window.
    pub(super) stable_before_down: Duration,
}

const READY: ConditionText = (true, "ReadyForNewScale", "recommended size matches current size");
const STABLE_DOWN: ConditionText = (
    true,
    "ScaleDownStabilized",
    "recent recommendations were higher than current one, applying the highest recent recommendation",
);
const STABLE_UP: ConditionText = (
    true,
    "ScaleUpStabilized",
    "recent recommendations were lower than current one, applying the lowest recent recommendation",
);
const WITHIN: ConditionText =
    (false, "DesiredWithinRange", "the desired count is within the acceptable range");
const TOO_MANY: ConditionText =
    (true, "TooManyReplicas", "the desired replica count is more than the maximum replica count");
const TOO_FEW: ConditionText =
    (true, "TooFewReplicas", "the desired replica count is less than the minimum replica count");
const UP_LIMIT: ConditionText =
    (true, "ScaleUpLimit", "the desired replica count is increasing faster than the maximum scale rate");
const DOWN_LIMIT: ConditionText =
    (true, "ScaleDownLimit", "the desired replica count is decreasing faster than the maximum scale rate");

/// Decides how far to follow a recommendation, and records it.
pub(super) fn decide(
    behavior: Option<&Behavior>,
    history: &mut History,
    current: i32,
    recommended: i32,
    bounds: Bounds,
    now: Instant,
) -> Decision {
    let (stable, able) = match behavior {
        None => stabilize_down(history, recommended, bounds.stable_before_down, now),
        Some(behavior) => stabilize(behavior, history, current, recommended, bounds.stable_before_down, now),
    };
    history.recommend(recommended, bounds.stable_before_down, now);
    let (replicas, limited) = match behavior {
        None => limit(current, stable, bounds),
        Some(behavior) => limit_rate(behavior, history, current, stable, bounds, now),
    };
    Decision { replicas, able, limited }
}

fn stabilize_down(
    history: &History,
    recommended: i32,
    window: Duration,
    now: Instant,
) -> (i32, ConditionText) {
    let highest = history.recommended(window, now).max().unwrap_or(recommended).max(recommended);
    (highest, if highest == recommended { READY } else { STABLE_DOWN })
}

fn stabilize(
    behavior: &Behavior,
    history: &History,
    current: i32,
    recommended: i32,
    window: Duration,
    now: Instant,
) -> (i32, ConditionText) {
    let up = history.recommended(behavior.scale_up.window(Duration::ZERO), now);
    let down = history.recommended(behavior.scale_down.window(window), now);
    let (lowest, highest) = (up.chain([recommended]).min(), down.chain([recommended]).max());
    let stable = current.max(lowest.unwrap_or(recommended)).min(highest.unwrap_or(recommended));
    let unstable = if recommended >= current { STABLE_UP } else { STABLE_DOWN };
    (stable, if stable == recommended { READY } else { unstable })
}

/// Without a behavior: at most doubles, or up to four replicas.
fn limit(current: i32, wanted: i32, Bounds { min, max, .. }: Bounds) -> (i32, ConditionText) {
    let up_limit = current.saturating_mul(2).max(4);
    let (up_limit, why) = if max > up_limit { (up_limit, UP_LIMIT) } else { (max, TOO_MANY) };
    if wanted < min {
        (min, TOO_FEW)
    } else if wanted > up_limit {
        (up_limit, why)
    } else {
        (wanted, WITHIN)
    }
}

fn limit_rate(
    behavior: &Behavior,
    history: &History,
    current: i32,
    wanted: i32,
    Bounds { min, max, .. }: Bounds,
    now: Instant,
) -> (i32, ConditionText) {
    let before = |policy: &Policy| history.replicas_before(current, policy.period(), now);
    if wanted > current {
        let up_limit = behavior.scale_up.up_limit(current, before).max(current);
        let (up_limit, why) = if max > up_limit { (up_limit, UP_LIMIT) } else { (max, TOO_MANY) };
        if wanted > up_limit {
            return (up_limit, why);
        }
    } else if wanted < current {
        let down_limit = behavior.scale_down.down_limit(current, before).min(current);
        let (down_limit, why) = if min < down_limit { (down_limit, DOWN_LIMIT) } else { (min, TOO_FEW) };
        if wanted < down_limit {
            return (down_limit, why);
        }
    }
    (wanted, WITHIN)
}

impl Rules {
    fn window(&self, otherwise: Duration) -> Duration {
        let seconds = self.stabilization_window_seconds.and_then(|seconds| u64::try_from(seconds).ok());
        seconds.map_or(otherwise, Duration::from_secs)
    }

    fn is(&self, select: &str) -> bool {
        self.select_policy.as_deref() == Some(select)
    }

    fn policies(&self, otherwise: &[(&str, i32)]) -> Vec<Policy> {
        let policy = |(r#type, value): &(&str, i32)| Policy {
            r#type: (*r#type).to_owned(),
            value: *value,
            period_seconds: 15,
        };
        self.policies.clone().unwrap_or_else(|| otherwise.iter().map(policy).collect())
    }

    /// The maximum number of replicas.
    fn up_limit(&self, current: i32, before: impl Fn(&Policy) -> i32) -> i32 {
        if self.is("Disabled") {
            return current;
        }
        let policies = self.policies(&[("Pods", 4), ("Percent", 100)]);
        let proposed = policies.iter().map(|policy| match policy.r#type.as_str() {
            "Pods" => before(policy).saturating_add(policy.value),
            _ => (f64::from(before(policy)) * (1.0 + f64::from(policy.value) / 100.0)).ceil() as i32,
        });
        let chosen = if self.is("Min") { proposed.min() } else { proposed.max() };
        chosen.unwrap_or(current)
    }

    /// The minimum number of replicas.
    fn down_limit(&self, current: i32, before: impl Fn(&Policy) -> i32) -> i32 {
        if self.is("Disabled") {
            return current;
        }
        let policies = self.policies(&[("Percent", 100)]);
        let proposed = policies.iter().map(|policy| match policy.r#type.as_str() {
            "Pods" => before(policy).saturating_sub(policy.value),
            _ => (f64::from(before(policy)) * (1.0 - f64::from(policy.value) / 100.0)) as i32,
        });
        let chosen = if self.is("Min") { proposed.max() } else { proposed.min() };
        chosen.unwrap_or(current)
    }
}

impl Policy {
    fn period(&self) -> Duration {
        Duration::from_secs(u64::try_from(self.period_seconds).unwrap_or(0))
    }
}
