//! How many pods more and fewer than wanted a rollout may have. Pure.

use serde::Deserialize;

use super::view::{DeploymentSpec, StrategyType};

/// A number of pods, or a share of those wanted (`"25%"`).
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub(super) enum Amount {
    Number(i32),
    Share(String),
}

/// The bounds of a Deployment at its present size.
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
        // Shares can round to none of either, and then nothing could move.
        let unavailable = if max_surge == 0 && unavailable == 0 { 1 } else { unavailable };
        Self { replicas, max_surge, max_unavailable: unavailable.min(replicas) }
    }

    /// The most pods at any time.
    pub(super) fn most(&self) -> i32 {
        self.replicas.saturating_add(self.max_surge)
    }

    /// The fewest available pods at any time.
    pub(super) fn fewest_available(&self) -> i32 {
        self.replicas.saturating_sub(self.max_unavailable)
    }
}

#[derive(Clone, Copy)]
enum Rounded {
    Up,
    Down,
}

impl Amount {
    /// The amount of a whole; what is malformed amounts to nothing.
    fn of(&self, whole: i32, rounded: Rounded) -> i32 {
        match self {
            Self::Number(number) => *number,
            Self::Share(share) => share_of(share, whole, rounded).unwrap_or(0),
        }
    }
}

fn share_of(share: &str, whole: i32, rounded: Rounded) -> Option<i32> {
    let percent: i64 = share.strip_suffix('%')?.parse().ok()?;
    let hundredths = i64::from(whole).checked_mul(percent)?;
    let number = match rounded {
        Rounded::Up => -(-hundredths).div_euclid(100),
        Rounded::Down => hundredths.div_euclid(100),
    };
    i32::try_from(number).ok()
}
