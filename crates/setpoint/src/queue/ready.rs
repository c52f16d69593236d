//! The keys that wait for a worker, highest priority first.
//!
//! Invariants:
//! - Keys of the same priority leave in the order they were added.
//! - In a strict queue, a higher priority always leaves first, and lower ones may starve.
//! - In a fair queue, the default, after [`MAX_PASSED_OVER`] turns that passed over lower priorities, the next turn goes to
//!   the key that has waited longest. A key with n older ones ahead of it leaves within (n + 1) × (`MAX_PASSED_OVER` + 1)
//!   turns, however many higher-priority keys keep arriving.
//!
//! Waiting is measured in turns, not in time: no clock is read, and keys in an idle queue do not age.
//!
//! Most queues hold keys of one priority most of the time, so the highest level is stored separately. As long as it is
//! the only one, the map is not touched.

use std::collections::{BTreeMap, VecDeque};

/// The priority of a key. Keys with higher numbers are handed out first.
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
    /// -100, for work that can wait: objects from the initial list, and resyncs.
    pub const Low: Self = Self(-100);
    /// 0, for changes.
    pub const Normal: Self = Self(0);
    /// 100, for work that a user is waiting for.
    pub const High: Self = Self(100);
}

impl Priority {
    /// Creates a priority from a number.
    pub const fn new(value: i32) -> Self {
        Self(value)
    }

    /// Returns the priority as a number.
    pub const fn value(self) -> i32 {
        self.0
    }
}

/// How many turns in a row may pass over lower priorities in a fair queue.
pub(super) const MAX_PASSED_OVER: u32 = 10;

/// The slots of the waiting keys, by priority. A key that is raised or removed leaves a gap at its old position. A gap
/// is recognized by its ticket, which is no longer the key's.
#[derive(Default)]
pub(super) struct Ready {
    /// If this level is empty, nothing is waiting at all.
    highest: Level,
    /// The other priorities with waiting keys, all below the highest.
    lower: BTreeMap<Priority, Level>,
    pub(super) strict: bool,
    /// How many turns have passed over lower priorities since the oldest key last got its turn.
    passed: u32,
    tickets: u64,
    len: usize,
}

#[derive(Default)]
struct Level {
    priority: Priority,
    places: VecDeque<(u64, usize)>,
    /// The number of positions that are not gaps.
    waiting: usize,
}

impl Ready {
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Appends a slot to the level of a priority. Returns the ticket that identifies the position.
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

    /// Returns the level of a priority other than the highest. It may become the highest.
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

    /// Removes a slot from this priority out of turn. `own` checks whether a ticket is still valid for a slot.
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
            // Gaps never outnumber the waiting keys by much, so the cost of closing them is amortized over creating
            // them.
            level.places.retain(|(ticket, slot)| own(*slot, *ticket));
        }
    }

    /// Removes and returns the next slot.
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

    /// Chooses the next level when there are several.
    fn next_level(&mut self, own: &impl Fn(usize, u64) -> bool) -> &mut Level {
        self.passed += u32::from(!self.strict);
        if self.passed <= MAX_PASSED_OVER {
            return &mut self.highest;
        }
        self.passed = 0;
        // One step per priority in use, in one turn out of eleven.
        let Self { highest, lower, .. } = self;
        lower.values_mut().fold(
            highest,
            |older, level| {
                if level.oldest(own) < older.oldest(own) { level } else { older }
            },
        )
    }

    /// Removes an empty level.
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

    /// Returns all positions, including gaps, in the order they leave if nothing else is added and nothing gets old.
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
    /// Returns the ticket of the key that has waited longest, and removes the gaps before it.
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
