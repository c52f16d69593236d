//! A range of numbers, some of which are taken.
//!
//! Numbers that clients choose themselves tend to be low ones, so the lower part of the range is handed
//! out only when the rest is gone.

use std::collections::BTreeSet;

use setpoint_clock::Rng;

/// Numbers from `first` to `last`.
#[derive(Debug)]
pub(super) struct Pool {
    first: u128,
    last: u128,
    /// How many of the first numbers are spared.
    spared: u128,
    taken: BTreeSet<u128>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unavailable {
    Taken,
    OutOfRange,
    /// None is left.
    Full,
}

impl Pool {
    pub(super) fn new(first: u128, last: u128, spared: u128) -> Self {
        Self { first, last, spared, taken: BTreeSet::new() }
    }

    pub(super) fn contains(&self, number: u128) -> bool {
        (self.first..=self.last).contains(&number)
    }

    pub(super) fn take(&mut self, number: u128) -> Result<(), Unavailable> {
        match self.contains(number) {
            false => Err(Unavailable::OutOfRange),
            true if self.taken.insert(number) => Ok(()),
            true => Err(Unavailable::Taken),
        }
    }

    /// Takes a number at random.
    pub(super) fn take_any(&mut self, rng: &Rng) -> Result<u128, Unavailable> {
        let middle = self.first + self.spared;
        let chosen = self.free_in(middle, self.last, rng);
        let chosen = chosen.or_else(|| self.free_in(self.first, middle.checked_sub(1)?, rng));
        let chosen = chosen.ok_or(Unavailable::Full)?;
        self.taken.insert(chosen);
        Ok(chosen)
    }

    pub(super) fn release(&mut self, number: u128) {
        self.taken.remove(&number);
    }

    /// The first free number from a random one on, coming round at the end.
    fn free_in(&self, first: u128, last: u128, rng: &Rng) -> Option<u128> {
        let count = last.checked_sub(first)?.saturating_add(1);
        let start = first + u128::from(rng.below(u64::try_from(count).unwrap_or(u64::MAX)));
        self.next_free(start, last).or_else(|| self.next_free(first, start.checked_sub(1)?))
    }

    fn next_free(&self, first: u128, last: u128) -> Option<u128> {
        if first > last {
            return None;
        }
        let mut candidate = first;
        for taken in self.taken.range(first..=last) {
            if *taken != candidate {
                return Some(candidate);
            }
            candidate = candidate.checked_add(1)?;
        }
        (candidate <= last).then_some(candidate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_is_handed_out_once_and_low_ones_last() {
        let rng = Rng::seeded(1);
        let mut pool = Pool::new(10, 29, 4);
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
        let mut pool = Pool::new(10, 12, 0);
        assert_eq!(pool.take(9), Err(Unavailable::OutOfRange));
        assert_eq!(pool.take(12), Ok(()));
        assert_eq!(pool.take(12), Err(Unavailable::Taken));
    }
}
