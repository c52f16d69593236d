//! Snapshots of a level's queues and requests, for debugging endpoints.

use setpoint_clock::Instant;

use super::{QueueSet, Request, RequestId};
use crate::work::Work;

/// A snapshot of a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueDump {
    pub waiting: usize,
    pub executing: u64,
    pub seats_in_use: u64,
    pub next_r: String,
    pub initial_seats: u64,
    pub max_seats: u64,
    pub work: String,
}

/// A waiting or executing request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestDump<T> {
    pub label: T,
    /// Its queue, if it came through one.
    pub queue: Option<usize>,
    /// Its position in the queue, if it waits.
    pub place: Option<usize>,
    pub arrived: Instant,
    pub started: Option<Instant>,
    pub work: Work,
}

impl<T: Clone> QueueSet<T> {
    pub fn dump_queues(&self) -> Vec<QueueDump> {
        let dump = |queue: &super::Queue| QueueDump {
            waiting: queue.waiting(),
            executing: queue.executing,
            seats_in_use: queue.seats_in_use,
            next_r: queue.next_r.to_string(),
            initial_seats: queue.initial_seats,
            max_seats: queue.max_seats,
            work: queue.waiting_work().to_string(),
        };
        self.queues.iter().map(dump).collect()
    }

    /// Lists the requests by queue: waiting ones in order, then executing ones. Requests without a queue come last.
    pub fn dump_requests(&self) -> Vec<RequestDump<T>> {
        let mut dumps = Vec::new();
        for (at, queue) in self.queues.iter().enumerate() {
            let waiting = queue.requests().enumerate();
            dumps.extend(waiting.filter_map(|(place, id)| self.dump(*id, Some(place))));
            dumps.extend(self.running(Some(at)));
        }
        dumps.extend(self.running(None));
        dumps
    }

    fn running(&self, queue: Option<usize>) -> impl Iterator<Item = RequestDump<T>> {
        let running = move |request: &&Request<T>| request.queue == queue && request.started.is_some();
        self.requests.values().filter(running).map(|request| dump(request, None))
    }

    fn dump(&self, id: RequestId, place: Option<usize>) -> Option<RequestDump<T>> {
        self.requests.get(&id).map(|request| dump(request, place))
    }
}

fn dump<T: Clone>(request: &Request<T>, place: Option<usize>) -> RequestDump<T> {
    RequestDump {
        label: request.label.clone(),
        queue: request.queue,
        place,
        arrived: request.arrived,
        started: request.started,
        work: request.work,
    }
}
