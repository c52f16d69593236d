//! Decides whether to take, keep or leave a lease: client-go's rule, as a pure function.

use setpoint_clock::Instant;

use super::LeaderElectionRecord;

/// A lease record, and when this process first saw it in its current state.
///
/// The times in a record come from other clocks and are only informational. What matters is how long the record has
/// been unchanged, according to this process's own clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Observed {
    pub(crate) record: LeaderElectionRecord,
    pub(crate) at: Instant,
}

/// What to do with a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// It does not exist: create it.
    Create,
    /// This process holds it: renew it.
    Keep,
    /// It was released, or its holder has not renewed it in time: take it.
    Take,
    /// Another process holds it.
    Leave,
}

impl Observed {
    /// Updates the observation with a record just read. An unchanged record keeps the time it was first seen.
    pub(crate) fn seen(before: Option<Self>, record: LeaderElectionRecord, now: Instant) -> Self {
        match before {
            Some(before) if before.record == record => before,
            _ => Self { record, at: now },
        }
    }

    /// Returns whether the holder may still rely on it.
    pub(crate) fn is_valid(&self, now: Instant) -> bool {
        !self.record.holder_identity.is_empty() && now < self.at + self.record.lease_duration()
    }
}

/// Decides what `identity` does with an observed lease.
pub(crate) fn step(identity: &str, observed: Option<&Observed>, now: Instant) -> Step {
    match observed {
        None => Step::Create,
        Some(observed) if observed.record.holder_identity == identity => Step::Keep,
        Some(observed) if observed.is_valid(now) => Step::Leave,
        Some(_) => Step::Take,
    }
}
