//! Spans of numbers to choose from.
//!
//! Clients tend to choose low numbers themselves, so the lower part of a span is chosen from only when the rest is
//! exhausted.

use setpoint_clock::Rng;

/// Numbers from `first` to `last`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) first: u128,
    pub(super) last: u128,
    /// How many of the first numbers to avoid.
    pub(super) reserved_count: u128,
}

/// Why a number cannot be taken.
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

    /// Returns a random free number. `taken` lists the numbers in use from a start, in ascending order.
    pub(super) fn any_free<I: Iterator<Item = u128>>(
        self,
        taken: impl Fn(u128) -> I,
        rng: &Rng,
    ) -> Option<u128> {
        let middle = self.first + self.reserved_count;
        let upper = free_in(middle, self.last, &taken, rng);
        upper.or_else(|| free_in(self.first, middle.checked_sub(1)?, &taken, rng))
    }
}

/// Returns the first free number after a random start, wrapping around at the end.
fn free_in<I: Iterator<Item = u128>>(
    first: u128,
    last: u128,
    taken: &impl Fn(u128) -> I,
    rng: &Rng,
) -> Option<u128> {
    let count = last.checked_sub(first)?.saturating_add(1);
    let start = first + u128::from(rng.below(u64::try_from(count).unwrap_or(u64::MAX)));
    next_free(start, last, taken).or_else(|| next_free(first, start.checked_sub(1)?, taken))
}

fn next_free<I: Iterator<Item = u128>>(first: u128, last: u128, taken: &impl Fn(u128) -> I) -> Option<u128> {
    if first > last {
        return None;
    }
    let mut candidate = first;
    for taken in taken(first).take_while(|taken| *taken <= last) {
        if taken != candidate {
            return Some(candidate);
        }
        candidate = candidate.checked_add(1)?;
    }
    (candidate <= last).then_some(candidate)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_number_is_chosen_once_and_low_ones_last() {
        let rng = Rng::seeded(1);
        let span = Span { first: 10, last: 29, reserved_count: 4 };
        let mut taken = BTreeSet::from([20]);
        let mut take = |count: usize| -> BTreeSet<u128> {
            let mut chosen = BTreeSet::new();
            for _ in 0..count {
                let number = span.any_free(|from| taken.range(from..).copied(), &rng).unwrap();
                assert!(taken.insert(number) && chosen.insert(number));
            }
            chosen
        };
        assert_eq!(take(15), (14..=29).filter(|n| *n != 20).collect());
        assert_eq!(take(4), (10..14).collect());
        assert_eq!(span.any_free(|from| taken.range(from..).copied(), &rng), None);
        taken.remove(&17);
        assert_eq!(span.any_free(|from| taken.range(from..).copied(), &rng), Some(17));
    }
}
