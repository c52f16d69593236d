//! Whether, and for how long, a pod stays on a tainted node. Pure.

use std::time::Duration;

use setpoint_placement::{Taint, Toleration};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tolerated {
    Forever,
    For(Duration),
    Not,
}

/// Returns how long a pod with these tolerations stays on a node with these taints. For each taint the first matching
/// toleration applies; the shortest of these wins.
pub(super) fn tolerated(taints: &[Taint], tolerations: &[Toleration]) -> Tolerated {
    let mut shortest: Option<i64> = None;
    for taint in taints {
        let Some(fitting) = tolerations.iter().find(|toleration| toleration.tolerates(taint)) else {
            return Tolerated::Not;
        };
        if let Some(seconds) = fitting.toleration_seconds {
            shortest = Some(shortest.map_or(seconds, |known| known.min(seconds)));
        }
    }
    match shortest {
        None => Tolerated::Forever,
        Some(seconds) => match u64::try_from(seconds) {
            Ok(seconds @ 1..) => Tolerated::For(Duration::from_secs(seconds)),
            _ => Tolerated::Not,
        },
    }
}
