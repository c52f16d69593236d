//! The keys that wait for a worker, the highest priority first.
//!
//! What always holds:
//! - keys of one priority leave in the order they were added;
//! - in a strict queue a higher priority always leaves first, and lower ones may starve;
//! - in a fair queue, the default, every turn that follows [`PATIENCE`] turns in which lower priorities were
//!   passed over goes to the key that has waited longest. A key with n older ones before it leaves within
//!   (n + 1) × (`PATIENCE` + 1) turns, however many more urgent keys keep coming.
//!
//! A wait is counted in turns, not in time: no clock is read, and an idle queue ages nothing.
//!
//! Most queues hold keys of one priority most of the time, so the highest level is kept apart from the others: as
//! long as it is the only one, no map is touched.

use std::collections::{BTreeMap, VecDeque};

/// How urgent a key is: the higher the number, the sooner it is handed out.
///
/// ```
/// use setpoint::queue::Priority;
/// assert!(Priority::High > Priority::Normal && Priority::Normal > Priority::Low);
/// assert_eq!(Priority::default(), Priority::Normal);
/// assert!(Priority::new(2_000_000_000) > Priority::High);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Priority(i32);

#[expect(non_upper_case_globals, reason = "named values of a priority read like the variants of an enum")]
impl Priority {
    /// -100, for what can wait: an object that was there at the start, a resync.
    pub const Low: Self = Self(-100);
    /// 0, for a change.
    pub const Normal: Self = Self(0);
    /// 100, for what a user waits for.
    pub const High: Self = Self(100);
}

impl Priority {
    /// Any other priority.
    pub const fn new(value: i32) -> Self {
        Self(value)
    }

    /// The priority as a number.
    pub const fn value(self) -> i32 {
        self.0
    }
}

/// How many turns in a row may pass over lower priorities in a fair queue.
pub(super) const PATIENCE: u32 = 10;

/// The slots of the waiting keys by priority. A key that is raised or taken back leaves its old place behind as a
/// gap, known by a ticket that is no longer the key's.
#[derive(Default)]
pub(super) struct Ready {
    /// If nothing waits here, nothing waits at all.
    highest: Level,
    /// The other priorities at which something waits, all below the highest.
    lower: BTreeMap<Priority, Level>,
    pub(super) strict: bool,
    /// How many turns have passed over lower priorities since the longest wait was last looked for.
    passed: u32,
    tickets: u64,
    len: usize,
}

#[derive(Default)]
struct Level {
    priority: Priority,
    places: VecDeque<(u64, usize)>,
    /// How many places are no gaps.
    waiting: usize,
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
        let ticket = self.tickets;
        let level =
            if self.highest.priority == priority { &mut self.highest } else { self.other_level(priority) };
        level.waiting += 1;
        level.places.push_back((ticket, slot));
        ticket
    }

    /// The level of a priority that is not the highest, which it may become.
    fn other_level(&mut self, priority: Priority) -> &mut Level {
        if self.highest.waiting == 0 {
            self.highest.priority = priority;
            return &mut self.highest;
        }
        if priority < self.highest.priority {
            return self.lower.entry(priority).or_insert_with(|| Level { priority, ..Level::default() });
        }
        let before = std::mem::replace(&mut self.highest, Level { priority, ..Level::default() });
        self.lower.insert(before.priority, before);
        &mut self.highest
    }

    /// A slot has left its place at this priority out of turn; `own` says whose place a ticket is.
    pub(super) fn leave(&mut self, priority: Priority, own: impl Fn(usize, u64) -> bool) {
        let level = if self.highest.priority == priority {
            &mut self.highest
        } else if let Some(level) = self.lower.get_mut(&priority) {
            level
        } else {
            return;
        };
        self.len -= 1;
        level.waiting -= 1;
        if level.waiting == 0 {
            self.close(priority);
        } else if level.places.len() > 2 * level.waiting + 64 {
            // Gaps never outnumber the waiting by much, so that closing them is paid for by making them.
            level.places.retain(|(ticket, slot)| own(*slot, *ticket));
        }
    }

    /// The slot whose turn it is.
    #[inline]
    pub(super) fn pop(&mut self, own: impl Fn(usize, u64) -> bool) -> Option<usize> {
        let level = if self.lower.is_empty() { &mut self.highest } else { self.next_level(&own) };
        let slot = loop {
            let (ticket, slot) = level.places.pop_front()?;
            if own(slot, ticket) {
                break slot;
            }
        };
        level.waiting -= 1;
        let emptied = (level.waiting == 0).then_some(level.priority);
        self.len -= 1;
        if let Some(priority) = emptied {
            self.close(priority);
        }
        Some(slot)
    }

    /// The level whose turn it is, when there are several.
    fn next_level(&mut self, own: &impl Fn(usize, u64) -> bool) -> &mut Level {
        self.passed += u32::from(!self.strict);
        if self.passed <= PATIENCE {
            return &mut self.highest;
        }
        self.passed = 0;
        // One step for every priority in use, in one turn of eleven.
        let Self { highest, lower, .. } = self;
        lower.values_mut().fold(
            highest,
            |older, level| {
                if level.oldest(own) < older.oldest(own) { level } else { older }
            },
        )
    }

    /// Nothing waits at this priority any more.
    #[inline]
    fn close(&mut self, priority: Priority) {
        if self.highest.priority != priority {
            self.lower.remove(&priority);
        } else if let Some((_, next)) = self.lower.pop_last() {
            self.highest = next;
        } else {
            self.highest.places.clear();
            self.passed = 0;
        }
    }

    /// Everything that waits, with gaps, in the order in which it leaves if nothing else comes and no wait is too long.
    pub(super) fn in_order(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        let levels = std::iter::once(&self.highest).chain(self.lower.values().rev());
        levels.flat_map(|level| level.places.iter().map(|(ticket, slot)| (*slot, *ticket)))
    }

    pub(super) fn clear(&mut self) {
        (self.highest.waiting, self.len, self.passed) = (0, 0, 0);
        self.highest.places.clear();
        self.lower.clear();
    }
}

impl Level {
    /// The ticket of the key that has waited longest. Gaps before it are closed.
    fn oldest(&mut self, own: &impl Fn(usize, u64) -> bool) -> u64 {
        while let Some((ticket, slot)) = self.places.front().copied() {
            if own(slot, ticket) {
                return ticket;
            }
            self.places.pop_front();
        }
        u64::MAX
    }
}
