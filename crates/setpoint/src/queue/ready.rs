//! The keys that wait for a worker: first come, first served within a priority, and nobody starves.
//!
//! What always holds:
//! - of two keys of one priority the one that came first leaves first;
//! - a higher priority goes first, but a lower one that has been passed over [`PATIENCE`] times in a row
//!   sends its oldest key next: its n-th key leaves after at most n × (`PATIENCE` + 1) others of each
//!   higher priority, however many of those keep coming.
//!
//! A wait is counted in turns, not in time: no clock is read, and a queue that stands still ages nobody.

use std::collections::VecDeque;

/// How urgent a key is.
///
/// ```
/// use setpoint::queue::Priority;
/// assert!(Priority::High > Priority::Normal && Priority::Normal > Priority::Low);
/// assert_eq!(Priority::default(), Priority::Normal);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    /// What can wait: an object that was there at the start, a resync.
    Low,
    /// A change.
    #[default]
    Normal,
    /// What somebody waits for.
    High,
}

/// How often a priority lets higher ones go first before it sends a key of its own.
pub(super) const PATIENCE: u32 = 10;

const LEVELS: usize = 3;

/// Slots of keys by priority. A key that is raised leaves its old place behind as a gap, known by a
/// ticket that is no longer the key's.
#[derive(Default)]
pub(super) struct Ready {
    /// Lowest first.
    levels: [Level; LEVELS],
    tickets: u64,
    len: usize,
}

#[derive(Default)]
struct Level {
    places: VecDeque<(u64, usize)>,
    /// How many places are no gaps.
    waiting: usize,
    /// How often higher levels went first since this one last sent a key.
    passed: u32,
}

impl Ready {
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Gives a slot the last place of a priority; the ticket says that the place is its own.
    #[inline]
    pub(super) fn push(&mut self, slot: usize, priority: Priority) -> u64 {
        self.tickets += 1;
        self.len += 1;
        let level = &mut self.levels[priority as usize];
        level.waiting += 1;
        level.places.push_back((self.tickets, slot));
        self.tickets
    }

    /// The slot has left its place at this priority; `own` says whose place a ticket is.
    pub(super) fn leave(&mut self, priority: Priority, own: impl Fn(usize, u64) -> bool) {
        self.len -= 1;
        let level = &mut self.levels[priority as usize];
        level.waiting -= 1;
        // Gaps never outnumber the waiting by much, so that closing them is paid for by making them.
        if level.places.len() > 2 * level.waiting + 64 {
            level.places.retain(|(ticket, slot)| own(*slot, *ticket));
        }
    }

    /// The slot whose turn it is.
    #[inline]
    pub(super) fn pop(&mut self, own: impl Fn(usize, u64) -> bool) -> Option<usize> {
        let level = self.next_level()?;
        loop {
            let (ticket, slot) = level.places.pop_front()?;
            if own(slot, ticket) {
                level.waiting -= 1;
                self.len -= 1;
                return Some(slot);
            }
        }
    }

    #[inline]
    fn next_level(&mut self) -> Option<&mut Level> {
        let highest = (0..LEVELS).rev().find(|level| self.levels[*level].waiting > 0)?;
        let mut chosen = highest;
        for lower in 0..highest {
            let level = &mut self.levels[lower];
            level.passed += u32::from(level.waiting > 0);
            if level.passed > PATIENCE {
                chosen = lower;
            }
        }
        let level = &mut self.levels[chosen];
        level.passed = 0;
        Some(level)
    }

    /// Everything that waits, in the order in which it would leave if nothing else came and nobody's
    /// patience ran out.
    pub(super) fn in_order(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        self.levels.iter().rev().flat_map(|level| level.places.iter().map(|(ticket, slot)| (*slot, *ticket)))
    }

    pub(super) fn clear(&mut self) {
        self.levels = Default::default();
        self.len = 0;
    }
}
