//! Conversion in the background: a written object is converted to the other served versions at once, as in v1.34, whose
//! caches hold every object in every served version. Reads and watches of these versions then find it.
//!
//! This is best effort: records that fail or do not fit are converted when they are read. After a failure there is a
//! pause, so that a broken webhook is not called for every write.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use setpoint_store::Record;

use super::Conversions;
use crate::registry::Served;

/// The maximum number of waiting records, of all kinds together.
const MAX_RECORDS: usize = 4096;
/// The maximum size of waiting records. Beyond it, the oldest are dropped. The newest always stays, at most 1.5 MiB.
const MAX_BYTES: usize = 16 << 20;
/// How many records of a kind are taken at a time: the newest of them is cached when the rest are.
const TURN: usize = 256;

/// The pause after a failure, doubled up to [`MAX_PAUSE`] with each further one.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const MAX_PAUSE: Duration = Duration::from_secs(30);

/// Records to be converted.
#[derive(Default)]
pub(super) struct Background(Mutex<Waiting>);

#[derive(Default)]
struct Waiting {
    records: VecDeque<(Arc<Served>, Arc<Record>)>,
    bytes: usize,
    /// The addresses of kinds with a task. A task holds its kind.
    running: BTreeSet<usize>,
}

fn address(served: &Arc<Served>) -> usize {
    Arc::as_ptr(served) as usize
}

impl Waiting {
    /// Adds a record. Returns whether its kind needs a task.
    fn add(&mut self, served: &Arc<Served>, record: &Arc<Record>) -> bool {
        self.bytes += record.value.len();
        self.records.push_back((served.clone(), record.clone()));
        while self.records.len() > 1 && (self.bytes > MAX_BYTES || self.records.len() > MAX_RECORDS) {
            let oldest = self.records.pop_front();
            self.bytes -= oldest.map_or(0, |(_, record)| record.value.len());
        }
        self.running.insert(address(served))
    }

    /// Drops all records of a kind.
    fn drop_kind(&mut self, served: &Arc<Served>) {
        self.records.retain(|(of, _)| !Arc::ptr_eq(of, served));
        self.bytes = self.records.iter().map(|(_, record)| record.value.len()).sum();
    }

    /// Takes records of a kind. If there are none, its task ends.
    fn take(&mut self, served: &Arc<Served>) -> Vec<Arc<Record>> {
        let mut taken = Vec::new();
        self.records.retain(|(of, record)| {
            let is_taken = taken.len() < TURN && Arc::ptr_eq(of, served);
            if is_taken {
                taken.push(record.clone());
            }
            !is_taken
        });
        self.bytes -= taken.iter().map(|record| record.value.len()).sum::<usize>();
        if taken.is_empty() {
            self.running.remove(&address(served));
        }
        taken
    }
}

impl Conversions {
    /// Converts a record to the version of a kind in the background, unless it is in it already.
    pub(crate) fn convert_in_background(self: &Arc<Self>, served: &Arc<Served>, record: &Arc<Record>) {
        if self.closing.is_cancelled() || !served.needs_conversion(record) {
            return;
        }
        if self.background.0.lock().add(served, record) {
            let (this, served, closing) = (self.clone(), served.clone(), self.closing.clone());
            tokio::spawn(
                closing.run_until_cancelled_owned(async move { this.convert_waiting(&served).await }),
            );
        }
    }

    async fn convert_waiting(self: &Arc<Self>, served: &Arc<Served>) {
        let mut pause = FIRST_PAUSE;
        loop {
            if served.kind.custom.as_ref().is_some_and(|custom| custom.closing.is_cancelled()) {
                // Its definition has changed: this kind is no longer read.
                self.background.0.lock().drop_kind(served);
            }
            let records = self.background.0.lock().take(served);
            if records.is_empty() {
                return;
            }
            match self.records(served, records).await {
                Ok(_) => pause = FIRST_PAUSE,
                Err(why) => {
                    tracing::debug!(%why, kind = served.kind.kind, "cannot convert objects ahead of time");
                    self.background.0.lock().drop_kind(served);
                    self.clock.sleep(pause).await;
                    pause = (pause * 2).min(MAX_PAUSE);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::{Gvr, Registry};
    use setpoint_store::Payload;

    #[test]
    fn waiting_records_are_bounded_and_taken_by_kind() {
        let registry = Registry::new(crate::kinds::all()).unwrap();
        let served = |resource: &str| registry.get(&Gvr::new("", "v1", resource)).unwrap().clone();
        let (pods, secrets) = (served("pods"), served("secrets"));
        let record = |length: usize| {
            let payload = Payload::plain(vec![b' '; length]);
            Arc::new(Record::new(pods.key(Some("ns"), "a"), payload, 1, 1, None))
        };
        let mut waiting = Waiting::default();
        assert!(waiting.add(&pods, &record(1)));
        assert!(!waiting.add(&pods, &record(1)), "its task is running");
        assert!(waiting.add(&secrets, &record(1)));
        assert_eq!(waiting.take(&pods).len(), 2);
        assert_eq!((waiting.records.len(), waiting.bytes), (1, 1));
        assert!(waiting.take(&pods).is_empty() && waiting.add(&pods, &record(1)), "its task has ended");
        for _ in 0..20 {
            waiting.add(&pods, &record(1 << 20));
        }
        assert_eq!((waiting.records.len(), waiting.bytes), (16, 16 << 20));
        waiting.drop_kind(&pods);
        assert_eq!((waiting.records.len(), waiting.bytes), (0, 0));
        for _ in 0..=MAX_RECORDS {
            waiting.add(&secrets, &record(0));
        }
        assert_eq!(waiting.records.len(), MAX_RECORDS);
    }
}
