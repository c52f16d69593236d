//! Estimates the work of a request: seats while it executes, and seats for its aftermath.

use std::time::Duration;

use crate::seat_seconds::SeatSeconds;

/// The maximum number of seats for a list.
pub const MAX_LIST_SEATS: u64 = 100;
/// The maximum number of seats for the watch events of a write.
pub const MAX_MUTATING_SEATS: u64 = 10;

/// Watchers whose events take one seat.
const WATCHERS_PER_SEAT: u64 = 10;
/// How long the events of a write occupy its seats.
const EVENT_DURATION: Duration = Duration::from_millis(5);
const BYTES_PER_SEAT: u64 = 100_000;
/// The memory that a list from the cache uses at once. It is limited because the list is streamed.
const STREAMED_BYTES: u64 = 1_000_000;
/// The assumed size of objects if none has been seen.
const MAX_OBJECT_BYTES: u64 = 1_500_000;

/// The estimated work of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work {
    /// Seats during execution.
    pub initial_seats: u64,
    /// Seats after execution, for `additional_latency`.
    pub final_seats: u64,
    pub additional_latency: Duration,
}

impl Work {
    pub const ONE_SEAT: Self = Self::seats(1);

    pub const fn seats(initial_seats: u64) -> Self {
        Self { initial_seats, final_seats: 0, additional_latency: Duration::ZERO }
    }

    pub fn max_seats(&self) -> u64 {
        self.initial_seats.max(self.final_seats)
    }

    /// Estimates a write that causes events for this many watchers. `limit` is the level's limit per request, if it has
    /// one.
    pub fn mutating(watchers: u64, limit: Option<u64>) -> Self {
        if watchers < WATCHERS_PER_SEAT {
            return Self::ONE_SEAT;
        }
        let seats = watchers.div_ceil(WATCHERS_PER_SEAT);
        let work = SeatSeconds::of(seats as f64, EVENT_DURATION);
        // Use fewer seats for longer: wide requests would block a level while it accumulates seats for them.
        let final_seats = seats.min(at_most(limit, MAX_MUTATING_SEATS));
        Self { initial_seats: 1, final_seats, additional_latency: work.per_seat(final_seats as f64) }
    }
}

fn at_most(limit: Option<u64>, most: u64) -> u64 {
    limit.map_or(most, |limit| limit.min(most)).max(1)
}

/// The parameters of a list, or of a watch that begins with one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ListWork {
    /// The number of objects of the kind.
    pub objects: u64,
    /// Their average size. 0 if unknown.
    pub average_bytes: u64,
    /// The requested limit. 0 for all.
    pub limit: u64,
    pub is_from_cache: bool,
    /// It names a single object.
    pub is_single: bool,
    /// It has a selector.
    pub is_selective: bool,
}

impl ListWork {
    pub fn estimate(&self, limit: Option<u64>) -> Work {
        Work::seats(self.bytes().div_ceil(BYTES_PER_SEAT).clamp(1, at_most(limit, MAX_LIST_SEATS)))
    }

    /// Returns how much is in memory at once.
    fn bytes(&self) -> u64 {
        let average = if self.average_bytes == 0 { MAX_OBJECT_BYTES } else { self.average_bytes };
        let limited = if self.limit == 0 { self.objects } else { self.objects.min(self.limit) };
        let loaded = match self {
            Self { is_single: true, .. } => 1,
            Self { is_from_cache: false, is_selective: true, .. } => limited.max(self.objects / 2),
            _ => limited,
        };
        let bytes = loaded.saturating_mul(average);
        if self.is_from_cache { bytes.min(STREAMED_BYTES) } else { bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_take_seats_by_their_memory_use() {
        let list = ListWork { objects: 1000, average_bytes: 2000, ..ListWork::default() };
        let seats = |list: ListWork, limit| list.estimate(limit).initial_seats;
        assert_eq!(seats(list, None), 20);
        assert_eq!(seats(list, Some(15)), 15);
        assert_eq!(seats(ListWork { is_from_cache: true, ..list }, None), 10);
        assert_eq!(seats(ListWork { limit: 100, ..list }, None), 2);
        assert_eq!(seats(ListWork { limit: 100, is_selective: true, ..list }, None), 10);
        assert_eq!(seats(ListWork { limit: 100, is_selective: true, is_from_cache: true, ..list }, None), 2);
        assert_eq!(seats(ListWork { is_single: true, ..list }, None), 1);
        assert_eq!(seats(ListWork { average_bytes: 0, ..list }, None), MAX_LIST_SEATS);
        assert_eq!(seats(ListWork::default(), None), 1);
        assert_eq!(seats(ListWork { objects: u64::MAX, ..list }, Some(0)), 1);
    }

    #[test]
    fn writes_take_seats_by_their_watchers() {
        assert_eq!(Work::mutating(9, None), Work::ONE_SEAT);
        let of = |watchers, limit| {
            let work = Work::mutating(watchers, limit);
            (work.initial_seats, work.final_seats, work.additional_latency.as_micros())
        };
        assert_eq!(of(10, None), (1, 1, 5000));
        assert_eq!(of(95, None), (1, 10, 5000));
        assert_eq!(of(1000, None), (1, 10, 50_000));
        assert_eq!(of(100, Some(3)), (1, 3, 16_666));
    }
}
