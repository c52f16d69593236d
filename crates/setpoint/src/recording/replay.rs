//! Replays a recording: everything arrives at the recorded time.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::{self, BoxStream};
use http::{Request, Response};
use http_body_util::{BodyExt, Collected};
use kube::client::Body;
use parking_lot::Mutex;

use super::RecordingError;
use super::entry::{Call, Entry, EntryKind, Failure, Item, List, RecordedResponse, request_name};
use crate::source::{ObjectList, Selection, Source, WatchItem};
use crate::{ClientError, Clock, Instant, Kind};

/// A recording being replayed. Cheap to clone; clones share the replay.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap().block_on(async {
/// # use setpoint::{Client, Clock, Manager, Rng, Runtime};
/// use setpoint::recording::Replay;
/// let clock = Clock::simulated("2025-01-01T00:00:00Z".parse().unwrap());
/// let replay = Replay::of("", clock.clone()).unwrap(); // the text of a recording
/// let runtime = Runtime { clock, rng: Rng::seeded(1) };
/// let manager = Manager::new(Client::new(replay.client()), replay.source(), runtime);
/// // … add the controller, run it, then:
/// assert_eq!(replay.divergences(), [""; 0]);
/// # });
/// ```
#[derive(Clone)]
pub struct Replay {
    clock: Clock,
    started: Instant,
    rest: Arc<Mutex<Remaining>>,
}

/// In order of arrival, with the time since the start.
type Timed<T> = VecDeque<(Duration, T)>;

/// What has not been replayed yet.
#[derive(Default)]
struct Remaining {
    lists: BTreeMap<String, Timed<Result<List, Failure>>>,
    watches: BTreeMap<String, VecDeque<Watch>>,
    calls: BTreeMap<Call, Timed<Result<RecordedResponse, String>>>,
    divergences: Vec<String>,
}

struct Watch {
    opened: Duration,
    refusal: Option<Failure>,
    /// `Err` ends the watch, with or without a failure.
    items: Timed<Result<Item, Option<Failure>>>,
}

/// The replayed controller made a request that the recorded one did not.
#[derive(Debug)]
struct UnrecordedRequest;

impl fmt::Display for UnrecordedRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("this call is not in the recording")
    }
}

impl std::error::Error for UnrecordedRequest {}

impl Replay {
    /// Replays the text of a [`Recording`](super::Recording), starting now. Call this inside a Tokio runtime.
    pub fn of(recording: &str, clock: Clock) -> Result<Self, RecordingError> {
        let mut rest = Remaining::default();
        let mut watches = BTreeMap::new();
        for (number, line) in recording.lines().enumerate() {
            let entry =
                serde_json::from_str(line).map_err(|source| RecordingError { line: number + 1, source })?;
            rest.add(entry, &mut watches);
        }
        for (_, (of, watch)) in watches {
            rest.watches.entry(of).or_default().push_back(watch);
        }
        let started = clock.instant();
        Ok(Self { clock, started, rest: Arc::new(Mutex::new(rest)) })
    }

    /// Returns the source for the informers.
    pub fn source(&self) -> Arc<dyn Source> {
        Arc::new(self.clone())
    }

    /// Returns the client for the reconcilers. A request that is not in the recording gets no response, and is reported in
    /// [`divergences`](Self::divergences).
    pub fn client(&self) -> kube::Client {
        let replay = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let replay = replay.clone();
            async move { replay.answer(request).await }
        });
        kube::Client::new(service, "default")
    }

    /// Returns the requests that are not in the recording, in order.
    pub fn divergences(&self) -> Vec<String> {
        self.rest.lock().divergences.clone()
    }

    /// Returns the recorded requests that were not made again, in order of their paths.
    pub fn missing(&self) -> Vec<String> {
        let rest = self.rest.lock();
        let left = rest.calls.iter().filter(|(_, answers)| !answers.is_empty());
        left.map(|(call, _)| call.to_string()).collect()
    }

    async fn until(&self, at: Duration) {
        self.clock.sleep_until(self.started + at).await;
    }

    async fn answer(
        &self,
        request: Request<Body>,
    ) -> Result<Response<Body>, Box<dyn std::error::Error + Send + Sync>> {
        let (head, body) = request.into_parts();
        let call = Call::of(&head, &body.collect().await.map(Collected::to_bytes)?);
        let Some((at, answer)) = self.rest.lock().answer_to(&call) else {
            return Err(UnrecordedRequest.into());
        };
        self.until(at).await;
        let RecordedResponse { code, body } = answer?;
        Ok(Response::builder().status(code).body(Body::from(body.into_bytes()))?)
    }

    fn play(self, watch: Watch) -> BoxStream<'static, Result<WatchItem, ClientError>> {
        let rest = (self, watch.items);
        let items = stream::unfold(rest, |(replay, mut items)| async move {
            // A recording that ends during a watch leaves it open.
            let Some((at, item)) = items.pop_front() else { return std::future::pending().await };
            replay.until(at).await;
            let item = match item {
                Ok(item) => item.item().map_err(|error| ClientError::InvalidResponse(Box::new(error))),
                Err(Some(failure)) => Err(failure.error()),
                Err(None) => return None,
            };
            Some((item, (replay, items)))
        });
        items.boxed()
    }
}

impl Remaining {
    fn add(&mut self, Entry { at, what }: Entry, watches: &mut BTreeMap<u64, (String, Watch)>) {
        let mut push = |watch: u64, item| {
            if let Some((_, watch)) = watches.get_mut(&watch) {
                watch.items.push_back((at, item));
            }
        };
        match what {
            EntryKind::ObjectList { of, answer } => self.lists.entry(of).or_default().push_back((at, answer)),
            EntryKind::Called { call, answer } => self.calls.entry(call).or_default().push_back((at, answer)),
            EntryKind::Came { watch, item } => push(watch, Ok(item)),
            EntryKind::Ended { watch, failure } => push(watch, Err(failure)),
            EntryKind::Watched { of, watch, refusal } => {
                watches.insert(watch, (of, Watch { opened: at, refusal, items: VecDeque::new() }));
            }
        }
    }

    fn answer_to(&mut self, call: &Call) -> Option<(Duration, Result<RecordedResponse, String>)> {
        let answer = self.calls.get_mut(call).and_then(VecDeque::pop_front);
        if answer.is_none() {
            self.divergences.push(call.to_string());
        }
        answer
    }
}

impl Source for Replay {
    fn list<'a>(
        &'a self,
        kind: &'a Kind,
        selection: &'a Selection,
    ) -> BoxFuture<'a, Result<ObjectList, ClientError>> {
        Box::pin(async move {
            let next =
                self.rest.lock().lists.get_mut(&request_name(kind, selection)).and_then(VecDeque::pop_front);
            let Some((at, answer)) = next else { return std::future::pending().await };
            self.until(at).await;
            let listed = answer.map_err(|failure| failure.error())?.listed();
            listed.map_err(|error| ClientError::InvalidResponse(Box::new(error)))
        })
    }

    fn watch<'a>(
        &'a self,
        kind: &'a Kind,
        selection: &'a Selection,
        _: &'a str,
    ) -> BoxFuture<'a, Result<BoxStream<'static, Result<WatchItem, ClientError>>, ClientError>> {
        Box::pin(async move {
            let next = self
                .rest
                .lock()
                .watches
                .get_mut(&request_name(kind, selection))
                .and_then(VecDeque::pop_front);
            let Some(watch) = next else { return std::future::pending().await };
            self.until(watch.opened).await;
            match &watch.refusal {
                Some(failure) => Err(failure.error()),
                None => Ok(self.clone().play(watch)),
            }
        })
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.method, self.path, self.body)
    }
}
