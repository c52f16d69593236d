//! Whether to take, keep or leave a lease: client-go's rule, as a pure function.

use setpoint_clock::Instant;

use super::Record;

/// A record, and when this process saw it become what it is.
///
/// The times in a record are other clocks' and only for people to read: what counts is for how long it has
/// not changed on this process's own clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Observed {
    pub(crate) record: Record,
    pub(crate) at: Instant,
}

/// What to do about a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// There is none: create it.
    Create,
    /// It is this process's own already: renew it.
    Keep,
    /// It was released, or its holder has not renewed it for too long: take it.
    Take,
    /// Somebody holds it.
    Leave,
}

impl Observed {
    /// What is known once `record` was read: a record that has not changed keeps the time it was first seen at.
    pub(crate) fn seen(before: Option<Self>, record: Record, now: Instant) -> Self {
        match before {
            Some(before) if before.record == record => before,
            _ => Self { record, at: now },
        }
    }

    /// Whether its holder may still rely on it.
    pub(crate) fn is_valid(&self, now: Instant) -> bool {
        !self.record.holder_identity.is_empty() && now < self.at + self.record.lease_duration()
    }
}

/// What `identity` does about the lease it has observed.
pub(crate) fn step(identity: &str, observed: Option<&Observed>, now: Instant) -> Step {
    match observed {
        None => Step::Create,
        Some(observed) if observed.record.holder_identity == identity => Step::Keep,
        Some(observed) if observed.is_valid(now) => Step::Leave,
        Some(_) => Step::Take,
    }
}
