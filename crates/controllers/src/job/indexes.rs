//! Sets of completion indexes in the format of a Job's status: `1,3-5,7`. Pure.

use std::fmt;

/// Indexes as sorted intervals with gaps between them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Indexes(Vec<(usize, usize)>);

impl Indexes {
    /// Parses indexes below `bound`. Malformed parts are ignored.
    pub(super) fn parse(text: &str, bound: usize) -> Self {
        let mut indexes = Self::default();
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (Ok(first), Ok(last)) = (first.parse::<usize>(), last.parse::<usize>()) else { continue };
            if first >= bound {
                break;
            }
            indexes.push((first, last.min(bound - 1)));
        }
        indexes
    }

    /// Appends an interval that does not start before the last one.
    fn push(&mut self, (first, last): (usize, usize)) {
        match self.0.last_mut() {
            Some(end) if first <= end.1 + 1 => end.1 = end.1.max(last),
            _ => self.0.push((first, last)),
        }
    }

    pub(super) fn union(&self, other: &Self) -> Self {
        let mut all: Vec<_> = self.0.iter().chain(&other.0).copied().collect();
        all.sort_unstable();
        let mut union = Self::default();
        all.into_iter().for_each(|interval| union.push(interval));
        union
    }

    pub(super) fn with(&self, indexes: impl IntoIterator<Item = usize>) -> Self {
        self.union(&indexes.into_iter().collect())
    }

    pub(super) fn len(&self) -> usize {
        self.0.iter().map(|(first, last)| last + 1 - first).sum()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn contains(&self, index: usize) -> bool {
        let at = self.0.partition_point(|(_, last)| *last < index);
        self.0.get(at).is_some_and(|(first, _)| *first <= index)
    }

    /// Returns the number of indexes in both.
    pub(super) fn shared_with(&self, other: &Self) -> usize {
        let overlap = |(first, last): &(usize, usize), theirs: &(usize, usize)| {
            (last.min(&theirs.1) + 1).saturating_sub(*first.max(&theirs.0))
        };
        self.0.iter().map(|mine| other.0.iter().map(|theirs| overlap(mine, theirs)).sum::<usize>()).sum()
    }

    /// Returns the first `count` indexes below `bound` that are not in the set.
    pub(super) fn first_missing(&self, count: usize, bound: usize) -> Vec<usize> {
        let mut missing = Vec::new();
        let mut next = 0;
        for (first, last) in self.0.iter().copied().chain([(bound, bound)]) {
            let wanted = count - missing.len();
            missing.extend((next..first.min(bound)).take(wanted));
            next = next.max(last + 1);
        }
        missing
    }
}

impl FromIterator<usize> for Indexes {
    fn from_iter<I: IntoIterator<Item = usize>>(indexes: I) -> Self {
        let mut sorted: Vec<_> = indexes.into_iter().collect();
        sorted.sort_unstable();
        let mut intervals = Self::default();
        sorted.into_iter().for_each(|index| intervals.push((index, index)));
        intervals
    }
}

impl fmt::Display for Indexes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (first, last)) in self.0.iter().enumerate() {
            let comma = if at > 0 { "," } else { "" };
            match last - first {
                0 => write!(f, "{comma}{first}")?,
                1 => write!(f, "{comma}{first},{last}")?,
                _ => write!(f, "{comma}{first}-{last}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn texts_are_read_up_to_a_bound() {
        let check = |text: &str, bound: usize, expected: &str| {
            assert_eq!(Indexes::parse(text, bound).to_string(), expected, "{text} below {bound}");
        };
        check("", 5, "");
        check("0", 5, "0");
        check("0,1", 5, "0,1");
        check("0,1,2", 5, "0-2");
        check("1,3-5,7", 10, "1,3-5,7");
        check("1,3-5,7", 5, "1,3,4");
        check("1,3-5,7", 3, "1");
        check("x,1,2-y,3", 5, "1,3");
        check("0-9", 0, "");
    }

    #[test]
    fn pending_indexes_are_the_first_that_are_missing() {
        let indexes = Indexes::parse("1,3-5,7", 100);
        assert_eq!(indexes.first_missing(3, 100), [0, 2, 6]);
        assert_eq!(indexes.first_missing(9, 8), [0, 2, 6]);
        assert_eq!(indexes.first_missing(9, 10), [0, 2, 6, 8, 9]);
        assert_eq!(indexes.first_missing(0, 10), [0; 0]);
        assert_eq!(Indexes::default().first_missing(2, 10), [0, 1]);
    }

    proptest! {
        #[test]
        fn indexes_are_a_set(a in prop::collection::btree_set(0usize..40, 0..20), b in prop::collection::btree_set(0usize..40, 0..20)) {
            let (one, two): (Indexes, Indexes) = (a.iter().copied().collect(), b.iter().copied().collect());
            let union: BTreeSet<usize> = a.union(&b).copied().collect();
            prop_assert_eq!(one.union(&two), union.iter().copied().collect());
            prop_assert_eq!(one.union(&two).len(), union.len());
            prop_assert_eq!(one.shared_with(&two), a.intersection(&b).count());
            prop_assert_eq!(Indexes::parse(&one.to_string(), 40), one.clone());
            prop_assert!((0..41).all(|index| one.contains(index) == a.contains(&index)));
        }
    }
}
