//! maxSurge and maxUnavailable. Pure.

use super::view::{DeploymentSpec, StrategyType};
use crate::workload::amount::Rounded;

/// The limits of a rollout, for the Deployment's current `replicas`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bounds {
    pub(super) replicas: i32,
    pub(super) max_surge: i32,
    pub(super) max_unavailable: i32,
}

impl Bounds {
    pub(super) fn of(spec: &DeploymentSpec) -> Self {
        let replicas = spec.replicas;
        if spec.strategy.r#type == StrategyType::Recreate {
            return Self { replicas, max_surge: 0, max_unavailable: 0 };
        }
        let rolling = &spec.strategy.rolling_update;
        let max_surge = rolling.max_surge.as_ref().map_or(0, |amount| amount.of(replicas, Rounded::Up));
        let unavailable =
            rolling.max_unavailable.as_ref().map_or(0, |amount| amount.of(replicas, Rounded::Down));
        // Percentages can round both to zero, and then nothing could move.
        let unavailable = if max_surge == 0 && unavailable == 0 { 1 } else { unavailable };
        Self { replicas, max_surge, max_unavailable: unavailable.min(replicas) }
    }

    /// The maximum total number of pods.
    pub(super) fn max_total(&self) -> i32 {
        self.replicas.saturating_add(self.max_surge)
    }

    /// The minimum number of available pods.
    pub(super) fn min_available(&self) -> i32 {
        self.replicas.saturating_sub(self.max_unavailable)
    }
}
