//! Pools of numbers to allocate from.
//!
//! Clients tend to choose low numbers themselves, so the lower part of a range is allocated only when the rest is
//! exhausted.

use std::collections::BTreeSet;

use setpoint_clock::Rng;

/// Numbers from `first` to `last`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) first: u128,
    pub(super) last: u128,
    /// How many of the first numbers to avoid.
    pub(super) reserved_count: u128,
}

/// A single range, and its allocated numbers.
#[derive(Debug)]
pub(super) struct Pool {
    span: Span,
    taken: BTreeSet<u128>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unavailable {
    Taken,
    OutOfRange,
    /// No number is left.
    Full,
}

impl Span {
    pub(super) fn contains(self, number: u128) -> bool {
        (self.first..=self.last).contains(&number)
    }

    /// Returns a random free number.
    pub(super) fn any_free(self, taken: &BTreeSet<u128>, rng: &Rng) -> Option<u128> {
        let middle = self.first + self.reserved_count;
        let upper = free_in(middle, self.last, taken, rng);
        upper.or_else(|| free_in(self.first, middle.checked_sub(1)?, taken, rng))
    }
}

impl Pool {
    pub(super) fn new(span: Span) -> Self {
        Self { span, taken: BTreeSet::new() }
    }

    pub(super) fn take(&mut self, number: u128) -> Result<(), Unavailable> {
        match self.span.contains(number) {
            false => Err(Unavailable::OutOfRange),
            true if self.taken.insert(number) => Ok(()),
            true => Err(Unavailable::Taken),
        }
    }

    /// Allocates a random number.
    pub(super) fn take_any(&mut self, rng: &Rng) -> Result<u128, Unavailable> {
        let chosen = self.span.any_free(&self.taken, rng).ok_or(Unavailable::Full)?;
        self.taken.insert(chosen);
        Ok(chosen)
    }

    pub(super) fn release(&mut self, number: u128) {
        self.taken.remove(&number);
    }
}

/// Returns the first free number after a random start, wrapping around at the end.
fn free_in(first: u128, last: u128, taken: &BTreeSet<u128>, rng: &Rng) -> Option<u128> {
    let count = last.checked_sub(first)?.saturating_add(1);
    let start = first + u128::from(rng.below(u64::try_from(count).unwrap_or(u64::MAX)));
    next_free(start, last, taken).or_else(|| next_free(first, start.checked_sub(1)?, taken))
}

fn next_free(first: u128, last: u128, taken: &BTreeSet<u128>) -> Option<u128> {
    if first > last {
        return None;
    }
    let mut candidate = first;
    for taken in taken.range(first..=last) {
        if *taken != candidate {
            return Some(candidate);
        }
        candidate = candidate.checked_add(1)?;
    }
    (candidate <= last).then_some(candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_is_allocated_once_and_low_ones_last() {
        let rng = Rng::seeded(1);
        let mut pool = Pool::new(Span { first: 10, last: 29, reserved_count: 4 });
        pool.take(20).unwrap();
        let upper: BTreeSet<u128> = (0..15).map(|_| pool.take_any(&rng).unwrap()).collect();
        assert_eq!(upper, (14..=29).filter(|n| *n != 20).collect());
        let lower: BTreeSet<u128> = (0..4).map(|_| pool.take_any(&rng).unwrap()).collect();
        assert_eq!(lower, (10..14).collect());
        assert_eq!(pool.take_any(&rng), Err(Unavailable::Full));
        pool.release(17);
        assert_eq!(pool.take_any(&rng), Ok(17));
    }

    #[test]
    fn a_number_is_refused_if_taken_or_outside() {
        let mut pool = Pool::new(Span { first: 10, last: 12, reserved_count: 0 });
        assert_eq!(pool.take(9), Err(Unavailable::OutOfRange));
        assert_eq!(pool.take(12), Ok(()));
        assert_eq!(pool.take(12), Err(Unavailable::Taken));
    }
}
