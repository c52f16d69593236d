//! Parents whose status never settles: a hook that returns the time, say, or a counter.
//!
//! Every write to a parent causes another reconcile, so that hooks see what became of it. A hook that answers something else
//! each time would be called for ever, as fast as possible. So, if nothing but our own writes has changed, the hook is
//! called less and less often. Any other change to the parent, its children or its related objects counts at once.

use std::time::Duration;

use setpoint::Instant;

/// So many writes in a row are followed at once.
const FREE: u32 = 3;
const LONGEST: Duration = Duration::from_secs(300);

/// What is known of a parent that has been written to.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Damping {
    /// The version of the parent after the last write.
    version: String,
    /// The children and related objects by then.
    inputs: u64,
    /// Writes in a row without another change.
    writes: u32,
    not_before: Option<Instant>,
}

impl Damping {
    fn is_as_left(&self, version: &str, inputs: u64) -> bool {
        self.writes > 0 && self.version == version && self.inputs == inputs
    }

    /// Returns how long the hook is not to be called.
    pub(super) fn pause(&self, version: &str, inputs: u64, now: Instant) -> Option<Duration> {
        let until = self.not_before.filter(|_| self.is_as_left(version, inputs))?;
        Some(until.saturating_duration_since(now)).filter(|left| !left.is_zero())
    }

    /// Notes the end of a reconcile of `version`, and which version it wrote. Returns whether it has just become clear that
    /// the status does not settle.
    pub(super) fn note(&mut self, version: &str, inputs: u64, written: Option<&str>, now: Instant) -> bool {
        let Some(written) = written.filter(|written| *written != version) else {
            *self = Self::default();
            return false;
        };
        let writes = if self.is_as_left(version, inputs) { self.writes.saturating_add(1) } else { 1 };
        let beyond = writes.saturating_sub(FREE);
        let pause = Duration::from_secs(1_u64.checked_shl(beyond.saturating_sub(1)).unwrap_or(u64::MAX));
        let not_before = (beyond > 0).then(|| now + pause.min(LONGEST));
        *self = Self { version: written.to_owned(), inputs, writes, not_before };
        beyond == 1
    }
}

#[cfg(test)]
mod tests {
    use setpoint::Clock;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn writes_that_nothing_else_caused_are_followed_less_and_less_often() {
        let (mut damping, now) = (Damping::default(), Clock::system().instant());
        let mut pauses = Vec::new();
        for version in 0..8 {
            damping.note(&version.to_string(), 7, Some(&(version + 1).to_string()), now);
            let pause = damping.pause(&(version + 1).to_string(), 7, now);
            pauses.push(pause.map_or(0, |pause| pause.as_secs()));
        }
        assert_eq!(pauses, [0, 0, 0, 1, 2, 4, 8, 16]);
        assert_eq!(damping.pause("8", 8, now), None, "a child has changed");
        assert_eq!(damping.pause("9", 7, now), None, "someone else has changed the parent");
        assert_eq!(damping.pause("8", 7, now + LONGEST), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_status_that_settles_is_never_held_up() {
        let (mut damping, now) = (Damping::default(), Clock::system().instant());
        for version in ["1", "3", "5", "7", "9"] {
            let written = (version.parse::<u64>().expect("a number") + 1).to_string();
            assert!(!damping.note(version, 7, Some(&written), now));
            assert_eq!(damping.pause(&written, 7, now), None);
            assert!(!damping.note(&written, 7, None, now));
        }
    }
}
