//! Conversions in progress. All requests for the same revision of an object in the same version share one call.
//!
//! Invariants:
//! - A flight is its own task: it continues while its waiters are not polled, for example a watch whose client does not
//!   read.
//! - It ends as soon as nothing waits for it, so the number of flights is bounded by the waiting requests and watches.
//! - Its results are cached before it leaves the table, so that nothing is converted twice in between. If a list is
//!   larger than the cache, the rest is not cached.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use futures::FutureExt;
use futures::future::{BoxFuture, Shared, WeakShared};
use parking_lot::Mutex;
use setpoint_store::Record;
use tokio_util::task::AbortOnDropHandle;

use super::Conversions;
use super::cache::{Place, place};
use crate::registry::Served;
use crate::status::Status;

/// The result of a flight.
pub(super) type Outcome = Result<Converted, Crashed>;

/// All its records, in order.
#[derive(Clone)]
pub(super) struct Converted {
    pub(super) records: Arc<[Arc<Record>]>,
    /// How many objects the largest successful call had.
    pub(super) largest: usize,
}

/// The failure of the call with these of its records.
#[derive(Clone)]
pub(super) struct Crashed {
    pub(super) seats: Range<usize>,
    pub(super) status: Status,
}

pub(super) type Flight = Shared<BoxFuture<'static, Outcome>>;

/// The flights of a server.
#[derive(Default)]
pub(super) struct Flights(Mutex<PendingConversions>);

#[derive(Default)]
pub(super) struct PendingConversions {
    by_place: BTreeMap<Place, Position>,
    next: u64,
}

/// The place of a record in a flight.
struct Position {
    /// Does not keep the flight going.
    flight: WeakShared<BoxFuture<'static, Outcome>>,
    number: u64,
    seat: usize,
}

impl Flights {
    pub(super) fn lock(&self) -> parking_lot::MutexGuard<'_, PendingConversions> {
        self.0.lock()
    }
}

impl PendingConversions {
    /// Returns the flight that converts a record, and the record's place in it.
    pub(super) fn find(&self, served: &Arc<Served>, record: &Record) -> Option<(Flight, usize)> {
        let seat = self.by_place.get(&place(served, record))?;
        Some((seat.flight.upgrade()?, seat.seat))
    }

    /// Prepares to convert records. The flight starts when it is first polled, which must happen without holding the
    /// lock: a runtime that shuts down drops new tasks immediately, and a dropped task takes the lock.
    pub(super) fn prepare(
        &mut self,
        conversions: &Arc<Conversions>,
        served: &Arc<Served>,
        records: Vec<Arc<Record>>,
        is_cached: bool,
    ) -> Flight {
        self.next += 1;
        let number = self.next;
        let places: Vec<Place> = records.iter().map(|record| place(served, record)).collect();
        let listed = Listed { conversions: conversions.clone(), places: places.clone(), number };
        let served = served.clone();
        let work = async move {
            let outcome = listed.conversions.fly(&served, &records, is_cached).await;
            drop(listed);
            outcome
        };
        let flight = async { awaited(AbortOnDropHandle::new(tokio::spawn(work))).await }.boxed().shared();
        for (seat, place) in places.into_iter().enumerate() {
            if let Some(flight) = flight.downgrade() {
                self.by_place.insert(place, Position { flight, number, seat });
            }
        }
        flight
    }
}

async fn awaited(task: AbortOnDropHandle<Outcome>) -> Outcome {
    task.await.unwrap_or_else(|why| {
        Err(Crashed { seats: 0..1, status: Status::internal(format_args!("a conversion has ended: {why}")) })
    })
}

/// A flight in the table. Dropped with its task, however that ends.
struct Listed {
    conversions: Arc<Conversions>,
    places: Vec<Place>,
    number: u64,
}

impl Drop for Listed {
    fn drop(&mut self) {
        let mut flights = self.conversions.flights.lock();
        for place in &self.places {
            if flights.by_place.get(place).is_some_and(|seat| seat.number == self.number) {
                flights.by_place.remove(place);
            }
        }
    }
}
