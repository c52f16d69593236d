//! The audit record of a request, from the first filter to the end of its response.
//!
//! Filters and handlers add what they know; the chain signals when a stage is reached. A record that is dropped before
//! it is complete (the client hung up, the deadline passed) completes itself.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use bytes::Bytes;
use futures::{Stream, StreamExt};
use http::{HeaderValue, Response};
use http_body::Frame;
use parking_lot::Mutex;
use serde_json::Value;
use setpoint_clock::Instant;

use super::event::{Event, ObjectReference, ResponseStatus, UserInfo};
use super::latency::{self, Layer};
use super::policy::{Decision, Level, Stage};
use super::request::{OWN_ADDRESS, Received};
use super::{Audit, Entry, objects};
use crate::auth::{self, User};
use crate::body::{Aborted, Body, Frames};
use crate::chain::{self, Caller, Refusal};
use crate::json::Json;
use crate::metadata;
use crate::route;
use crate::status::Status;
use crate::tunnel::Tunnel;

/// The audit record of a request. Without a policy it is empty, and all its methods do nothing.
#[derive(Default)]
pub(crate) struct Record(Option<Box<Recording>>);

struct Recording {
    audit: Arc<Audit>,
    /// A [`Level`], or [`UNDECIDED`].
    level: AtomicU8,
    began: Instant,
    deadline: Option<Instant>,
    peer: IpAddr,
    state: Mutex<State>,
}

/// The policy has not been evaluated yet. Annotations are kept meanwhile.
const UNDECIDED: u8 = u8::MAX;

struct State {
    event: Event,
    decision: Decision,
    progress: Progress,
    is_mutating: bool,
    is_long_running: bool,
    layers: Vec<(Layer, std::time::Duration)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    /// The policy has not been evaluated.
    Begun,
    /// Yet to be completed.
    Received,
    /// Rejected before it was received: there is one event, at the start of the response.
    Rejected,
    Done,
}

impl Record {
    pub(crate) fn begin(
        audit: Option<&Arc<Audit>>,
        caller: &Caller,
        id: Option<&HeaderValue>,
        deadline: Option<Instant>,
    ) -> Self {
        let Some(audit) = audit else { return Self(None) };
        let id = id.map(|id| String::from_utf8_lossy(id.as_bytes()).into_owned()).unwrap_or_default();
        let peer = match caller {
            Caller::InProcess(_) => OWN_ADDRESS,
            Caller::Connection { peer, .. } => *peer,
        };
        let state = State {
            event: Event::new(id, audit.clock.now()),
            decision: Decision::default(),
            progress: Progress::Begun,
            is_mutating: false,
            is_long_running: false,
            layers: Vec::new(),
        };
        Self(Some(Box::new(Recording {
            audit: audit.clone(),
            level: AtomicU8::new(UNDECIDED),
            began: audit.clock.instant(),
            deadline,
            peer,
            state: Mutex::new(state),
        })))
    }

    /// Returns the recording if the level includes this one.
    fn at(&self, level: Level) -> Option<&Recording> {
        let recording = self.0.as_deref()?;
        (recording.level.load(Ordering::Relaxed) >= level as u8).then_some(recording)
    }

    fn decided_at(&self, level: Level) -> Option<&Recording> {
        self.at(level).filter(|recording| recording.level.load(Ordering::Relaxed) != UNDECIDED)
    }

    /// Evaluates the policy and records that the request was received. Rejects a request that cannot be recorded but
    /// must be.
    pub(crate) async fn received(&self, request: &Received<'_>) -> Result<(), Refusal> {
        let Some(recording) = self.0.as_deref() else { return Ok(()) };
        if !recording.decide(request, Progress::Received) || recording.stage(Stage::RequestReceived).await {
            return Ok(());
        }
        recording.audit.measured.rejected_request();
        recording.state.lock().progress = Progress::Done;
        Err(Refusal::response(route::internal_error_page(request.uri, NOT_STORED)))
    }

    /// Evaluates the policy for a request that is rejected before it was received.
    pub(crate) fn rejected(&self, request: &Received<'_>) {
        if let Some(recording) = self.0.as_deref() {
            recording.decide(request, Progress::Rejected);
        }
    }

    /// Records that the request is impersonated.
    pub(crate) fn impersonated(&self, user: &User) {
        if let Some(recording) = self.decided_at(Level::Metadata) {
            recording.state.lock().event.impersonated_user = Some(UserInfo::from(user));
        }
    }

    /// Records the authorizer's decision and reason. If the authorizer failed, there is no decision, unless it still
    /// allows the request.
    pub(crate) fn authorized(&self, decision: &auth::Decision) {
        let (word, reason) = match decision.is_allowed() {
            true => (Some("allow"), decision.reason()),
            false if decision.error.is_some() => (None, "internal error"),
            false => (Some("forbid"), decision.reason()),
        };
        if let Some(word) = word {
            self.annotate("authorization.k8s.io/decision", word);
        }
        self.annotate("authorization.k8s.io/reason", reason);
    }

    /// Whether events at this level are recorded.
    pub(crate) fn records(&self, level: Level) -> bool {
        self.at(level).is_some()
    }

    /// Adds an annotation. The first value of a key is kept.
    pub(crate) fn annotate(&self, key: &str, value: impl Into<String>) {
        self.annotate_at(Level::Metadata, key, value);
    }

    /// Adds an annotation if the level includes this one.
    pub(crate) fn annotate_at(&self, level: Level, key: &str, value: impl Into<String>) {
        if let Some(recording) = self.at(level) {
            recording.state.lock().event.annotate(key, value.into());
        }
    }

    /// Runs `work` and records its duration.
    pub(crate) async fn timed<T>(&self, layer: Layer, work: impl Future<Output = T>) -> T {
        let Some(recording) = self.at(Level::Metadata) else { return work.await };
        let began = recording.audit.clock.instant();
        let outcome = work.await;
        let took = recording.audit.clock.instant() - began;
        recording.state.lock().layers.push((layer, took));
        outcome
    }

    /// Adds the time spent in a layer.
    pub(crate) fn spent(&self, layer: Layer, took: std::time::Duration) {
        let Some(recording) = self.at(Level::Metadata) else { return };
        let mut state = recording.state.lock();
        match state.layers.iter_mut().find(|(known, _)| *known == layer) {
            Some((_, total)) => *total += took,
            None => state.layers.push((layer, took)),
        }
    }

    /// Records the object in a request's body, decoded and defaulted.
    pub(crate) fn request_object(&self, object: &Value) {
        if let Some(recording) = self.decided_at(Level::Metadata) {
            let mut state = recording.state.lock();
            let reference = state.event.object_ref.get_or_insert_default();
            reference.complete(metadata::of(object));
            state.set_request(object);
        }
    }

    /// Records the options in the body of a deletion. v1.34 writes them in an internal version.
    pub(crate) fn request_options(&self, options: &Value) {
        if let Some(recording) = self.decided_at(Level::Request) {
            let mut options = options.clone();
            if let Some(members) = options.as_object_mut() {
                members.insert("kind".into(), "DeleteOptions".into());
                members.insert("apiVersion".into(), "meta.k8s.io/__internal".into());
            }
            recording.state.lock().set_request(&options);
        }
    }

    /// Records the patch in a request's body.
    pub(crate) fn request_patch(&self, patch: &[u8]) {
        if let Some(recording) = self.decided_at(Level::Request) {
            recording.state.lock().event.request_object = objects::of_patch(patch);
        }
    }

    /// Whether the response object is recorded.
    pub(crate) fn wants_response(&self) -> bool {
        self.decided_at(Level::RequestResponse).is_some()
    }

    pub(crate) fn response_object(&self, object: &Value) {
        if let Some(recording) = self.decided_at(Level::RequestResponse) {
            let mut state = recording.state.lock();
            state.event.response_object = objects::encoded(object, state.decision.omit_managed_fields);
        }
    }

    pub(crate) fn response_bytes(&self, object: &[u8]) {
        if let Some(recording) = self.decided_at(Level::RequestResponse) {
            let mut state = recording.state.lock();
            state.event.response_object = objects::of_bytes(object, state.decision.omit_managed_fields);
        }
    }

    /// Records a `Status` response.
    pub(crate) fn status(&self, status: &Status) {
        if let Some(recording) = self.decided_at(Level::Metadata) {
            recording.state.lock().event.response_status = Some(ResponseStatus::from(status));
            if self.wants_response() {
                self.response_bytes(&status.to_bytes());
            }
        }
    }

    /// Records that an in-process read has succeeded so far.
    pub(super) async fn started(&self) {
        let Some(recording) = self.decided_at(Level::Metadata) else { return };
        let (_, is_long_running) = recording.set_code(200);
        if is_long_running {
            recording.stage(Stage::ResponseStarted).await;
        }
    }

    /// Records that the request panicked.
    pub(crate) async fn panicked(&self, why: &str) {
        let Some(recording) = self.decided_at(Level::Metadata) else { return };
        let status = ResponseStatus {
            status: "Failure".into(),
            reason: "InternalError".into(),
            message: format!("APIServer panic'd: {why}"),
            code: 500,
            ..ResponseStatus::default()
        };
        {
            let mut state = recording.state.lock();
            state.event.response_status = Some(status);
            state.progress = Progress::Done;
        }
        recording.stage(Stage::Panic).await;
    }

    /// Records the response before it is sent. If the body is streamed, the record stays with it. If the response must
    /// not be sent without its event, and the event cannot be written, the response is an error.
    pub(crate) async fn complete(self, uri: &http::Uri, response: Response<Body>) -> Response<Body> {
        let Some(recording) = self.0.filter(|recording| recording.is_open()) else { return response };
        let (is_rejected, is_long_running) = recording.set_code(response.status().as_u16());
        let mut is_stored = true;
        if is_rejected || is_long_running {
            is_stored = recording.stage(Stage::ResponseStarted).await;
        }
        if is_long_running
            && !is_rejected
            && is_stored
            && let Some(tunnel) = response.extensions().get::<Tunnel>()
        {
            tunnel.hold(recording);
            return response;
        }
        if is_long_running && !is_rejected && is_stored && response.body().as_full().is_none() {
            return response.map(|body| recording.follow(body));
        }
        if !is_rejected {
            recording.note_latency();
            recording.state.lock().progress = Progress::Done;
            is_stored &= recording.stage(Stage::ResponseComplete).await;
        }
        recording.state.lock().progress = Progress::Done;
        match is_stored {
            true => response,
            false => {
                recording.audit.measured.rejected_request();
                route::internal_error_page(uri, NOT_STORED)
            }
        }
    }
}

const NOT_STORED: &str = "failed to store audit event";

impl Recording {
    /// Evaluates the policy. Returns whether the request is recorded.
    fn decide(&self, request: &Received<'_>, progress: Progress) -> bool {
        let verb = request.target.verb(request.method);
        let decision = self.audit.policy.decide(&request.attributes(&verb));
        self.audit.measured.level(decision.level);
        self.level.store(decision.level as u8, Ordering::Relaxed);
        if decision.level == Level::None {
            return false;
        }
        let mut state = self.state.lock();
        state.decision = decision;
        state.progress = progress;
        state.is_mutating = chain::is_mutating(request.method);
        state.is_long_running = chain::is_long_running(request.target);
        state.event.level = decision.level;
        request.describe(&mut state.event, &verb, self.peer);
        true
    }

    fn is_open(&self) -> bool {
        matches!(self.state.lock().progress, Progress::Received | Progress::Rejected)
    }

    /// Records the response code; returns whether the request was rejected early, and whether it is long-running.
    fn set_code(&self, code: u16) -> (bool, bool) {
        let mut state = self.state.lock();
        state.event.response_status.get_or_insert_default().code = code;
        (state.progress == Progress::Rejected, state.is_long_running)
    }

    /// Encodes the event of a stage for each backend; `None` if the policy omits the stage.
    fn reach(&self, stage: Stage) -> Option<Vec<Option<Entry>>> {
        let mut state = self.state.lock();
        if state.decision.omit_stages.has(stage) {
            return None;
        }
        state.event.stage = stage;
        state.event.stage_timestamp = match stage {
            Stage::RequestReceived => state.event.request_received_timestamp,
            _ => self.audit.clock.now(),
        };
        Some(self.audit.entries(&state.event, state.is_mutating))
    }

    /// Writes the event of a stage. Returns false if the request must not continue without it.
    async fn stage(&self, stage: Stage) -> bool {
        match self.reach(stage) {
            Some(entries) => self.audit.deliver(entries).await,
            None => true,
        }
    }

    fn note_latency(&self) {
        let total = self.audit.clock.instant() - self.began;
        if total <= latency::THRESHOLD {
            return;
        }
        let mut state = self.state.lock();
        let mut layers = std::mem::take(&mut state.layers);
        layers.push((Layer::Total, total));
        for (layer, took) in layers.into_iter().filter(|(_, took)| !took.is_zero()) {
            state.event.annotate(layer.annotation(), latency::written(took));
        }
    }

    /// Wraps a body so that the record completes when it ends or is dropped.
    fn follow(self: Box<Self>, body: Body) -> Body {
        let (length, is_endless) = (body.length(), body.is_endless());
        Body::frames(followed(body.into_frames(), self).boxed(), length, is_endless)
    }
}

fn followed(
    frames: Frames,
    recording: Box<Recording>,
) -> impl Stream<Item = Result<Frame<Bytes>, Aborted>> + Send {
    futures::stream::unfold((frames, recording), |(mut frames, recording)| async {
        // At the end both are dropped, which completes the record.
        let frame = frames.next().await?;
        Some((frame, (frames, recording)))
    })
}

impl Drop for Recording {
    fn drop(&mut self) {
        if self.state.get_mut().progress != Progress::Received {
            return;
        }
        let is_late = self.deadline.is_some_and(|deadline| self.audit.clock.instant() >= deadline);
        self.state.get_mut().event.response_status.get_or_insert_with(|| match is_late {
            true => ResponseStatus::from(&chain::deadline_exceeded()),
            // As v1.34 does for a response that was never sent.
            false => ResponseStatus {
                status: "Success".into(),
                message: "Connection closed early".into(),
                code: 200,
                ..ResponseStatus::default()
            },
        });
        self.note_latency();
        if let Some(entries) = self.reach(Stage::ResponseComplete) {
            self.audit.deliver_in_background(entries);
        }
    }
}

impl State {
    fn set_request(&mut self, object: &Value) {
        if self.decision.level >= Level::Request {
            self.event.request_object = objects::encoded(object, self.decision.omit_managed_fields);
        }
    }
}

impl ObjectReference {
    /// Fills in from the object what the path does not contain.
    fn complete(&mut self, metadata: &Value) {
        for (field, found) in [
            (&mut self.namespace, "namespace"),
            (&mut self.name, "name"),
            (&mut self.uid, "uid"),
            (&mut self.resource_version, "resourceVersion"),
        ] {
            if field.is_empty() {
                *field = metadata.text(found).to_owned();
            }
        }
    }
}
