//! Recent recommendations and scale events. Pure.

use std::time::Duration;

use setpoint::Instant;

/// The longest window an autoscaler may configure.
const LONGEST: Duration = Duration::from_secs(3600);

/// The history of one autoscaler, limited to the longest window in use. Evaluated every 15 seconds and with no longer
/// global window, that is at most 240 entries of each kind.
#[derive(Clone, Debug, Default)]
pub(super) struct History {
    recommended: Vec<(Instant, i32)>,
    up: Vec<(Instant, i32)>,
    down: Vec<(Instant, i32)>,
}

impl History {
    /// Starts the history of a new autoscaler with the current replicas.
    pub(super) fn begin(&mut self, replicas: i32, now: Instant) {
        if self.recommended.is_empty() {
            self.recommended.push((now, replicas));
        }
    }

    /// Records a recommendation. `window` is how long it may be needed.
    pub(super) fn recommend(&mut self, replicas: i32, window: Duration, now: Instant) {
        let window = window.max(LONGEST);
        self.recommended.retain(|(time, _)| now.saturating_duration_since(*time) <= window);
        self.recommended.push((now, replicas));
    }

    /// Lists recommendations within a window.
    pub(super) fn recommended(&self, window: Duration, now: Instant) -> impl Iterator<Item = i32> {
        let recent = move |time: &Instant| now.saturating_duration_since(*time) < window;
        self.recommended.iter().filter(move |(time, _)| recent(time)).map(|(_, replicas)| *replicas)
    }

    pub(super) fn scaled(&mut self, from: i32, to: i32, now: Instant) {
        let list = if to > from { &mut self.up } else { &mut self.down };
        list.retain(|(time, _)| now.saturating_duration_since(*time) <= LONGEST);
        list.push((now, from.abs_diff(to).min(i32::MAX as u32) as i32));
    }

    /// Returns the number of replicas at the start of a period.
    pub(super) fn replicas_before(&self, current: i32, period: Duration, now: Instant) -> i32 {
        let sum = |list: &[(Instant, i32)]| -> i32 {
            let recent = list.iter().filter(|(time, _)| now.saturating_duration_since(*time) < period);
            recent.map(|(_, change)| *change).fold(0, i32::saturating_add)
        };
        current.saturating_sub(sum(&self.up)).saturating_add(sum(&self.down))
    }
}
