//! Batches: how many objects are sent in a call, and how failures are handled.
//!
//! The first call has one object, and each further call twice as many, up to a limit: a broken webhook is detected
//! cheaply, and a long list takes few calls. From then on several calls are made at a time. If a webhook is slow,
//! batches shrink again, so that a call stays far from its timeout.
//!
//! v1.34 converts the objects of a list one by one. If a webhook rejects a batch, or its response is invalid, the batch
//! is split in half, down to single objects, so the outcome is the same.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use setpoint_store::Record;

use super::Conversions;
use super::cache;
use super::call::{Load, Refused};
use super::flights::{Converted, Crashed, Flight, Outcome};
use crate::registry::Served;
use crate::selector::SLICE;
use crate::status::Status;

/// The maximum number of objects in a call.
const MAX_OBJECTS: usize = 500;
/// The maximum number of stored bytes in a call with more than one object. An object has at most 1.5 MiB.
pub(super) const MAX_BYTES: usize = 2 << 20;
/// The number of full batches of one list at a time. A webhook that takes a second for each converts 200 MiB, 100
/// batches, in 25 seconds, well within the 60 of a request.
const CONCURRENT_BATCHES: usize = 4;
/// If a call takes longer than this, the next one has fewer objects. After a faster one, a call with twice as many stays
/// within 20 of its 30 seconds.
const SLOW: Duration = Duration::from_secs(10);

/// The progress of one list, watch or get.
struct Pace {
    /// The number of objects in the next call.
    size: usize,
    /// The largest number that the webhook has not rejected.
    most: usize,
    /// Whether to wait for conversions that others have started.
    joins: bool,
    /// Stored bytes sent so far.
    sent: usize,
}

/// A flight, and the records that wait for it.
struct Ticket {
    flight: Flight,
    /// The index of a record, and its place in the flight.
    seats: Vec<(usize, usize)>,
    is_own: bool,
}

impl Conversions {
    /// Returns records in the version of a kind. Records already in that version are returned unchanged.
    pub(crate) async fn records(
        self: &Arc<Self>,
        served: &Arc<Served>,
        mut records: Vec<Arc<Record>>,
    ) -> Result<Vec<Arc<Record>>, Status> {
        if !served.is_converted_by_webhook() {
            return Ok(records);
        }
        let mut missing = self.replace_known(served, &mut records).await;
        let mut pace = Pace { size: 1, most: MAX_OBJECTS, joins: true, sent: 0 };
        while !missing.is_empty() {
            let began = self.clock.instant();
            let tickets = self.depart(served, &mut records, &mut missing, &mut pace);
            let largest =
                tickets.iter().filter(|ticket| ticket.is_own).map(|ticket| ticket.seats.len()).max();
            for ticket in tickets {
                let outcome = ticket.flight.clone().await;
                pace.arrived(&ticket, &outcome, &mut records, &mut missing)?;
            }
            if let Some(largest) = largest {
                pace.next(largest, self.clock.instant().duration_since(began));
            }
        }
        Ok(records)
    }

    /// Replaces records with cached conversions, and returns the indexes of the ones left to convert.
    async fn replace_known(&self, served: &Arc<Served>, records: &mut [Arc<Record>]) -> VecDeque<usize> {
        let (mut missing, now) = (VecDeque::new(), self.clock.instant());
        for (at, record) in records.iter_mut().enumerate() {
            if at > 0 && at.is_multiple_of(SLICE) {
                tokio::task::yield_now().await;
            }
            if !served.needs_conversion(record) {
                continue;
            }
            match self.cache.find(served, record, now) {
                Some(converted) => *record = converted,
                None => missing.push_back(at),
            }
        }
        missing
    }

    /// Joins or starts the conversions of the next missing records.
    fn depart(
        self: &Arc<Self>,
        served: &Arc<Served>,
        records: &mut [Arc<Record>],
        missing: &mut VecDeque<usize>,
        pace: &mut Pace,
    ) -> Vec<Ticket> {
        let tickets = self.board(served, records, missing, pace);
        for ticket in tickets.iter().filter(|ticket| ticket.is_own) {
            // The first poll starts a flight. It cannot be over yet, and all of them are awaited later.
            _ = ticket.flight.clone().now_or_never();
        }
        tickets
    }

    /// Joins or prepares the conversions of the next missing records.
    fn board(
        self: &Arc<Self>,
        served: &Arc<Served>,
        records: &mut [Arc<Record>],
        missing: &mut VecDeque<usize>,
        pace: &mut Pace,
    ) -> Vec<Ticket> {
        let (mut tickets, mut batches, now) = (Vec::new(), Batches::new(pace), self.clock.instant());
        let mut flights = self.flights.lock();
        while let Some(&at) = missing.front().filter(|_| tickets.len() < MAX_OBJECTS) {
            if let Some((flight, seat)) = pace.joins.then(|| flights.find(served, &records[at])).flatten() {
                tickets.push(Ticket { flight, seats: vec![(at, seat)], is_own: false });
            } else if let Some(converted) = self.cache.find(served, &records[at], now) {
                records[at] = converted;
            } else if !batches.add(at, records[at].whole_length()) {
                break;
            }
            missing.pop_front();
        }
        for batch in batches.all {
            pace.sent = pace.sent.saturating_add(batch.bytes);
            let of_batch = batch.places.iter().map(|at| records[*at].clone()).collect();
            // Records that do not fit would evict the beginning of this very list.
            let flight = flights.prepare(self, served, of_batch, pace.sent <= cache::BYTES);
            let seats = batch.places.into_iter().enumerate().map(|(seat, at)| (at, seat)).collect();
            tickets.push(Ticket { flight, seats, is_own: true });
        }
        tickets
    }

    /// Converts the records of a flight.
    pub(super) async fn fly(&self, served: &Arc<Served>, batch: &[Arc<Record>], is_cached: bool) -> Outcome {
        let mut converted = Vec::with_capacity(batch.len());
        let mut largest = 0;
        // At most 2n - 1 calls for n records: each call either converts a part or splits it.
        let mut parts: Vec<Range<usize>> = std::iter::once(0..batch.len()).collect();
        while let Some(part) = parts.pop() {
            match self.convert_part(served, &batch[part.clone()]).await {
                Ok(records) => {
                    largest = largest.max(records.len());
                    let now = self.clock.instant();
                    records.iter().filter(|_| is_cached).for_each(|one| self.cache.insert(served, one, now));
                    converted.extend(records);
                }
                Err(refused) if part.len() > 1 && refused.depends_on_batch => {
                    let middle = part.start + part.len() / 2;
                    parts.push(middle..part.end);
                    parts.push(part.start..middle);
                }
                Err(Refused { status, .. }) => return Err(Crashed { seats: part, status }),
            }
        }
        Ok(Converted { records: converted.into(), largest })
    }

    async fn convert_part(
        &self,
        served: &Arc<Served>,
        part: &[Arc<Record>],
    ) -> Result<Vec<Arc<Record>>, Refused> {
        let custom = served.kind.custom.as_ref();
        let Some((custom, webhook)) = custom.and_then(|custom| Some((custom, custom.webhook.as_ref()?)))
        else {
            return Err(Status::internal("this kind has no conversion webhook").into());
        };
        let objects = || part.iter().map(|record| served.to_convert(record)).collect();
        let bytes = part.iter().map(|record| record.whole_length()).sum();
        let converted = self.call(webhook, Load { bytes, objects }, custom.api_version()).await?;
        let pairs = part.iter().zip(converted.objects);
        let records = pairs.map(|(record, object)| served.converted_record(record, object).map(Arc::new));
        records.collect::<Result<_, Status>>().map_err(|status| Refused { status, depends_on_batch: true })
    }
}

impl Pace {
    /// Takes the results of a flight. Records that failed only because of another record are missing again.
    fn arrived(
        &mut self,
        ticket: &Ticket,
        outcome: &Outcome,
        records: &mut [Arc<Record>],
        missing: &mut VecDeque<usize>,
    ) -> Result<(), Status> {
        match outcome {
            Ok(landed) => {
                for (at, seat) in &ticket.seats {
                    records[*at] = landed.records[*seat].clone();
                }
                if ticket.is_own && landed.largest < ticket.seats.len() {
                    self.most = self.most.min(landed.largest.max(1));
                }
                Ok(())
            }
            Err(crashed) => {
                let is_own_fault = |(_, seat): &(usize, usize)| crashed.seats == (*seat..seat + 1);
                if ticket.is_own || ticket.seats.iter().any(is_own_fault) {
                    return Err(crashed.status.clone());
                }
                self.joins = false;
                ticket.seats.iter().for_each(|(at, _)| missing.push_front(*at));
                Ok(())
            }
        }
    }

    /// Chooses the size of the next calls after one with this many objects.
    fn next(&mut self, largest: usize, took: Duration) {
        let size = if took > SLOW { largest.div_ceil(2) } else { self.size * 2 };
        self.size = size.min(self.most);
    }
}

/// Records to be sent.
struct Batches {
    all: Vec<Batch>,
    size: usize,
    /// The maximum number of batches.
    most: usize,
}

struct Batch {
    places: Vec<usize>,
    bytes: usize,
}

impl Batches {
    fn new(pace: &Pace) -> Self {
        let is_grown = pace.size == pace.most;
        Self { all: Vec::new(), size: pace.size, most: if is_grown { CONCURRENT_BATCHES } else { 1 } }
    }

    /// Adds a record; returns whether there was room for it.
    fn add(&mut self, at: usize, bytes: usize) -> bool {
        let (size, is_last) = (self.size, self.all.len() == self.most);
        let fits =
            |batch: &&mut Batch| batch.places.len() < size && batch.bytes.saturating_add(bytes) <= MAX_BYTES;
        match self.all.last_mut().filter(fits) {
            Some(batch) => {
                batch.places.push(at);
                batch.bytes += bytes;
            }
            None if is_last => return false,
            None => self.all.push(Batch { places: vec![at], bytes }),
        }
        true
    }
}
