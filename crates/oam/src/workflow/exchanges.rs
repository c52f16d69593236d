//! Requests of steps that are in progress.
//!
//! A step starts a request and ends its round. The response triggers a reconcile, whose round takes it. So a slow
//! server blocks only its step, and no worker.
//!
//! Invariants:
//! - Rounds that only wait for responses do not repeat requests, even if the template would send something different by
//!   then.
//! - At most 64 requests are in progress, eight per application. Waiting responses take at most 64 MiB.
//! - A step that is done, or an application that is gone, ends its requests.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::future::{AbortHandle, Abortable, BoxFuture};
use futures::stream::FuturesUnordered;
use parking_lot::Mutex;
use setpoint::{Clock, Key, Queue, Runnable};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::egress::{Egress, Request, Response};
use crate::session::SessionKey;

/// The maximum size of a request or response body: values that steps pass on are kept in a ConfigMap.
pub(super) const MAX_BODY: usize = 1 << 20;
/// The maximum number of requests in progress: with responses of 1 MiB, 64 MiB.
const MAX_IN_FLIGHT: usize = 64;
/// The maximum number of requests in progress per application, so that one cannot block all others.
const MAX_PER_APPLICATION: usize = 8;
/// The maximum size of all waiting responses.
const MAX_HELD: usize = 64 << 20;
/// The maximum size of one step's responses.
const MAX_PER_STEP: usize = 8 << 20;
/// How long a response waits for its step if others need the memory. The step takes it within milliseconds, unless
/// another replica has taken over the application.
const PATIENCE: Duration = Duration::from_secs(60);

/// Requests in progress, and responses that wait for their step. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Exchanges {
    clock: Clock,
    egress: Option<Arc<dyn Egress>>,
    started: mpsc::Sender<Started>,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    applications: BTreeMap<Key, Application>,
    in_flight: usize,
    /// Bytes of responses.
    held: usize,
    /// The id of the next exchange.
    next: u64,
}

#[derive(Default)]
struct Application {
    uid: String,
    steps: BTreeMap<String, BTreeMap<String, Exchange>>,
}

/// A request and its result.
struct Exchange {
    id: u64,
    progress: Progress,
}

enum Progress {
    InFlight(AbortHandle),
    Done { answer: Answer, at: jiff::Timestamp },
}

/// The result of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Response(Response),
    /// Why there is no response.
    Failed(String),
    TooLong,
}

/// The progress of a step's request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    Answered(Answer),
    /// The response will trigger a reconcile.
    UnderWay,
    /// Too many requests are in progress.
    Busy,
    /// The responses of the step are too large.
    TooMuch,
    /// Steps cannot send requests.
    Disabled,
}

/// A request that was started: its application, its id, and the response to come.
struct Started {
    app: Key,
    id: u64,
    answer: Abortable<BoxFuture<'static, Result<Response, String>>>,
}

impl Answer {
    fn bytes(&self) -> usize {
        match self {
            Self::Response(response) => {
                let headers = response.headers.iter();
                let headers =
                    headers.map(|(name, values)| name.len() + values.iter().map(String::len).sum::<usize>());
                response.body.len() + headers.sum::<usize>()
            }
            Self::Failed(why) => why.len(),
            Self::TooLong => 0,
        }
    }
}

impl From<Result<Response, String>> for Answer {
    fn from(result: Result<Response, String>) -> Self {
        match result {
            Ok(response) if response.body.len() > MAX_BODY => Self::TooLong,
            Ok(response) => Self::Response(response),
            Err(why) => Self::Failed(why),
        }
    }
}

impl Exchanges {
    /// Returns the exchanges, and the runnable that drives them.
    pub(crate) fn new(
        clock: &Clock,
        egress: Option<Arc<dyn Egress>>,
        queue: Queue<Key>,
    ) -> (Self, Box<dyn Runnable>) {
        // A slot for each request in progress, so that a permitted request is never rejected.
        let (started, starting) = mpsc::channel(MAX_IN_FLIGHT);
        let exchanges = Self { clock: clock.clone(), egress, started, state: Arc::default() };
        let driver = Driver { exchanges: exchanges.clone(), starting, queue };
        (exchanges, Box::new(driver))
    }

    /// Returns the progress of a step's request, and starts it if it is new. `path` identifies it among the step's
    /// requests.
    pub(super) fn exchange(&self, of: &SessionKey, step: &str, path: &str, request: Request) -> Standing {
        let Some(egress) = &self.egress else { return Standing::Disabled };
        let mut state = self.state.lock();
        if let Some(standing) = state.known(of, step, path) {
            return standing;
        }
        if !state.has_room(&of.key, self.clock.now()) {
            // Its earlier responses are dropped and requested again, so that steps do not wait for each other.
            state.drop_responses(&of.key, step);
            return Standing::Busy;
        }
        let (handle, registration) = AbortHandle::new_pair();
        let id = state.add(of, step, path, handle);
        let answer = Abortable::new(egress.send(request), registration);
        let started = self.started.try_send(Started { app: of.key.clone(), id, answer });
        match started {
            Ok(()) => Standing::UnderWay,
            Err(_) => {
                state.finish(&of.key, id, None);
                Standing::Busy
            }
        }
    }

    /// Ends the requests of a step. Returns whether it had any.
    pub(super) fn end_step(&self, app: &Key, step: &str) -> bool {
        let mut state = self.state.lock();
        let Some(application) = state.applications.get_mut(app) else { return false };
        let found = application.steps.remove(step);
        if application.steps.is_empty() {
            state.applications.remove(app);
        }
        let had_any = found.is_some();
        state.release(found.into_iter().flatten());
        had_any
    }

    /// Ends the requests of an application.
    pub(crate) fn end(&self, app: &Key) {
        self.state.lock().remove(app);
    }

    fn finish(&self, app: &Key, id: u64, answer: Option<Answer>) {
        let done = answer.map(|answer| Progress::Done { answer, at: self.clock.now() });
        self.state.lock().finish(app, id, done);
    }
}

impl State {
    fn known(&mut self, of: &SessionKey, step: &str, path: &str) -> Option<Standing> {
        if self.applications.get(&of.key).is_some_and(|application| application.uid != of.uid) {
            self.remove(&of.key);
        }
        let exchanges = self.applications.get(&of.key)?.steps.get(step)?;
        if exchanges.values().map(Exchange::bytes).sum::<usize>() > MAX_PER_STEP {
            return Some(Standing::TooMuch);
        }
        Some(match &exchanges.get(path)?.progress {
            Progress::InFlight(_) => Standing::UnderWay,
            Progress::Done { answer, .. } => Standing::Answered(answer.clone()),
        })
    }

    /// Returns whether an application may start another request. Responses that no step has taken make room.
    fn has_room(&mut self, app: &Key, now: jiff::Timestamp) -> bool {
        if self.held > MAX_HELD {
            self.drop_old(now);
        }
        let of_app = self.applications.get(app).map_or(0, Application::in_flight);
        self.in_flight < MAX_IN_FLIGHT && of_app < MAX_PER_APPLICATION && self.held <= MAX_HELD
    }

    fn add(&mut self, of: &SessionKey, step: &str, path: &str, handle: AbortHandle) -> u64 {
        let id = self.next;
        self.next += 1;
        self.in_flight += 1;
        let application = self.applications.entry(of.key.clone()).or_default();
        application.uid.clone_from(&of.uid);
        let exchange = Exchange { id, progress: Progress::InFlight(handle) };
        application.steps.entry(step.to_owned()).or_default().insert(path.to_owned(), exchange);
        id
    }

    /// Records the end of a request. Without a response it is removed. A request that was ended before is already
    /// counted.
    fn finish(&mut self, app: &Key, id: u64, done: Option<Progress>) {
        let Some(application) = self.applications.get_mut(app) else { return };
        for exchanges in application.steps.values_mut() {
            let Some(path) = exchanges.iter().find(|(_, one)| one.id == id).map(|(path, _)| path.clone())
            else {
                continue;
            };
            let Some(exchange) = exchanges.get_mut(&path) else { continue };
            self.in_flight -= 1;
            match done {
                Some(done) => {
                    exchange.progress = done;
                    self.held += exchange.bytes();
                }
                None => drop(exchanges.remove(&path)),
            }
            return;
        }
    }

    fn drop_responses(&mut self, app: &Key, step: &str) {
        let exchanges =
            self.applications.get_mut(app).and_then(|application| application.steps.get_mut(step));
        let Some(exchanges) = exchanges else { return };
        let all = std::mem::take(exchanges);
        let (done, under_way) = all.into_iter().partition(|(_, exchange)| !exchange.is_in_flight());
        *exchanges = under_way;
        self.release(done);
    }

    /// Drops responses that no step has taken for a long time.
    fn drop_old(&mut self, now: jiff::Timestamp) {
        let is_old = |exchange: &Exchange| match &exchange.progress {
            Progress::Done { at, .. } => {
                Duration::try_from(now.duration_since(*at)).unwrap_or_default() > PATIENCE
            }
            Progress::InFlight(_) => false,
        };
        for application in self.applications.values_mut() {
            for exchanges in application.steps.values_mut() {
                exchanges.retain(|_, exchange| {
                    let stays = !is_old(exchange);
                    self.held -= if stays { 0 } else { exchange.bytes() };
                    stays
                });
            }
        }
    }

    fn remove(&mut self, app: &Key) {
        let steps = self.applications.remove(app).map(|application| application.steps);
        self.release(steps.into_iter().flatten().flat_map(|(_, exchanges)| exchanges));
    }

    /// Ends removed exchanges.
    fn release(&mut self, exchanges: impl IntoIterator<Item = (String, Exchange)>) {
        for (_, exchange) in exchanges {
            self.held -= exchange.bytes();
            if let Progress::InFlight(handle) = exchange.progress {
                self.in_flight -= 1;
                handle.abort();
            }
        }
    }
}

impl Application {
    fn in_flight(&self) -> usize {
        self.steps.values().flat_map(BTreeMap::values).filter(|exchange| exchange.is_in_flight()).count()
    }
}

impl Exchange {
    fn is_in_flight(&self) -> bool {
        matches!(self.progress, Progress::InFlight(_))
    }

    fn bytes(&self) -> usize {
        match &self.progress {
            Progress::InFlight(_) => 0,
            Progress::Done { answer, .. } => answer.bytes(),
        }
    }
}

/// Drives requests, and enqueues applications when there is a response.
struct Driver {
    exchanges: Exchanges,
    starting: mpsc::Receiver<Started>,
    queue: Queue<Key>,
}

impl Driver {
    async fn drive(mut self) {
        let mut under_way = FuturesUnordered::new();
        loop {
            tokio::select! {
                biased;
                Some(Started { app, id, answer }) = self.starting.recv() => {
                    under_way.push(async move { (app, id, answer.await) });
                }
                Some((app, id, answer)) = under_way.next() => {
                    // An aborted request is already removed.
                    if let Ok(answer) = answer {
                        self.exchanges.finish(&app, id, Some(answer.into()));
                        self.queue.add(app);
                    }
                }
            }
        }
    }
}

impl Runnable for Driver {
    fn name(&self) -> &str {
        "application-requests"
    }

    fn run(self: Box<Self>, stop: CancellationToken) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            stop.run_until_cancelled(self.drive()).await;
        })
    }
}
