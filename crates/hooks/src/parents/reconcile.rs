//! The reconcile of a parent.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use setpoint::client::{Patch, Subresource};
use setpoint::owner::controller_ref;
use setpoint::reconcile::ErrorContext;
use setpoint::{
    Client, ClientError, Clock, EventType, Informer, Key, Kind, LabelSelector, Object, Outcome,
    ReconcileError, Reconciler, Recorder, finalizer,
};
use tokio_util::sync::CancellationToken;

use super::alive::Known;
use super::claim::selector_of;
use super::customize::Related;
use super::damping::{Damping, Inputs, State};
use super::desired::{Desired, desired};
use super::report::{Observer, Report, Write};
use super::setup::{ParentKey, Setup, full};
use super::status;
use crate::apply::{Intent, Ledger, plan};
use crate::call::{CallError, Caller, HookName};
use crate::fleet::Kinds;
use crate::wire::{Objects, Shape, SyncAnswer, SyncRequest, read_sync};

/// The dependencies of the reconciler.
pub(crate) struct Wiring {
    pub(crate) client: Client,
    pub(crate) clock: Clock,
    pub(crate) recorder: Recorder,
    pub(crate) parents: BTreeMap<Kind, Informer>,
    pub(crate) children: BTreeMap<Kind, Informer>,
    pub(crate) revisions: Option<Informer>,
    pub(crate) related: Arc<Related>,
    pub(crate) kinds: Kinds,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) observer: Option<Arc<dyn Observer>>,
    pub(crate) stop: CancellationToken,
}

/// The reconciler of the parents of one controller.
pub(crate) struct Parents {
    pub(super) setup: Arc<Setup>,
    pub(super) wiring: Wiring,
    /// One entry per parent whose last reconcile wrote to it.
    damping: Mutex<BTreeMap<ParentKey, Damping>>,
    /// One entry per parent that has been reconciled.
    pub(super) known: Mutex<BTreeMap<ParentKey, Known>>,
    /// A digest of the events in the last response for a parent, if there were any.
    events: Mutex<BTreeMap<ParentKey, u64>>,
}

/// One reconcile of a parent.
pub(super) struct Pass {
    pub(super) at: ParentKey,
    pub(super) parent: Object,
    value: Value,
    /// A read from the API server has shown that the parent may adopt.
    pub(super) may_adopt: bool,
    /// The parent exists, or there is no reason to doubt it.
    pub(super) is_alive: bool,
    hook: Option<&'static str>,
    /// The version of the parent in the cache.
    first_version: Box<str>,
    /// The children and related objects after our writes so far.
    pub(super) inputs: Inputs,
    writes: Vec<Write>,
    is_observed: bool,
}

/// Why a reconcile could not be finished.
#[derive(Debug)]
pub(super) enum Failure {
    /// The hook has to be called later. Nothing is wrong with the parent.
    Later(Duration),
    /// The cache of a related kind has not synced.
    NotSynced,
    Error(ReconcileError),
}

impl Failure {
    pub(super) fn of(why: String) -> Self {
        Self::Error(ReconcileError::retry(why))
    }

    pub(super) fn conflict(why: String) -> Self {
        Self::Error(ReconcileError::conflict(why))
    }
}

impl From<ReconcileError> for Failure {
    fn from(error: ReconcileError) -> Self {
        Self::Error(error)
    }
}

impl From<CallError> for Failure {
    fn from(error: CallError) -> Self {
        match error {
            CallError::Busy(pause) | CallError::Paused(pause) => Self::Later(pause),
            CallError::Failed(why) | CallError::NoAnswer(why) => Self::of(why),
        }
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        Self::Error(error.into())
    }
}

impl Pass {
    fn new(at: &ParentKey, parent: Object, is_observed: bool) -> Self {
        Self {
            at: at.clone(),
            value: full(&at.kind, &parent),
            first_version: parent.meta().resource_version.clone(),
            parent,
            may_adopt: false,
            is_alive: false,
            hook: None,
            inputs: Inputs::default(),
            writes: Vec::new(),
            is_observed,
        }
    }

    pub(super) fn parent_value(&self) -> &Value {
        &self.value
    }

    /// Continues with the parent that the API server returned.
    fn go_on_with(&mut self, verb: &'static str, parent: Object) {
        let (kind, key) = (self.at.kind.clone(), self.at.key.clone());
        let before = self.parent.clone();
        if before.meta().resource_version != parent.meta().resource_version {
            self.wrote(verb, &kind, &key, Some(&before), Some(&parent));
        }
        self.value = full(&kind, &parent);
        self.parent = parent;
    }

    pub(super) fn wrote(
        &mut self,
        verb: &'static str,
        kind: &Kind,
        key: &Key,
        before: Option<&Object>,
        after: Option<&Object>,
    ) {
        if self.is_observed {
            let value = |object: Option<&Object>| object.map(|object| full(kind, object));
            self.wrote_values(verb, kind, key, value(before), value(after));
        }
    }

    pub(super) fn wrote_values(
        &mut self,
        verb: &'static str,
        kind: &Kind,
        key: &Key,
        before: Option<Value>,
        after: Option<Value>,
    ) {
        if self.is_observed {
            self.writes.push(Write { verb, kind: kind.clone(), key: key.clone(), before, after });
        }
    }
}

impl Reconciler for Parents {
    type Key = ParentKey;

    async fn reconcile(&self, at: &ParentKey) -> Result<Outcome, ReconcileError> {
        if self.wiring.stop.is_cancelled() {
            return Ok(Outcome::Settled);
        }
        let Some(parent) = self.wiring.parents.get(&at.kind).and_then(|cache| cache.objects().get(&at.key))
        else {
            self.forget(at);
            return Ok(Outcome::Settled);
        };
        if !self.setup.concerns(&at.kind, &parent) {
            self.forget(at);
            return Ok(Outcome::Settled);
        }
        let start = self.wiring.clock.instant();
        let mut pass = Pass::new(at, parent, self.wiring.observer.is_some());
        let result = self.sync(&mut pass).await;
        let outcome = match result {
            Ok(outcome) => Ok(outcome),
            Err(Failure::Later(pause)) => Ok(Outcome::CheckAfter(pause)),
            Err(Failure::NotSynced) => Ok(Outcome::Requeue),
            Err(Failure::Error(error)) => Err(error),
        };
        if let Err(error) = &outcome
            && error.class() != "conflict"
        {
            self.event(&pass, EventType::Warning, "SyncError", format!("Sync error: {}", error.report()));
        }
        self.report(pass, self.wiring.clock.instant().saturating_duration_since(start), &outcome);
        outcome
    }
}

impl Parents {
    pub(crate) fn new(setup: Arc<Setup>, wiring: Wiring) -> Self {
        Self { setup, wiring, damping: Mutex::default(), known: Mutex::default(), events: Mutex::default() }
    }

    fn forget(&self, at: &ParentKey) {
        self.damping.lock().remove(at);
        self.known.lock().remove(at);
        self.events.lock().remove(at);
        self.wiring.related.forget(at);
    }

    fn event(&self, pass: &Pass, kind: EventType, reason: &str, message: String) {
        self.wiring.recorder.event(&pass.at.kind, &pass.parent, kind, reason, message);
    }

    fn report(&self, pass: Pass, took: Duration, outcome: &Result<Outcome, ReconcileError>) {
        let Some(observer) = &self.wiring.observer else { return };
        observer.reconciled(&Report {
            controller: self.setup.name.clone(),
            kind: pass.at.kind,
            key: pass.at.key,
            hook: pass.hook,
            took,
            error: outcome.as_ref().err().map(ReconcileError::report),
            writes: pass.writes,
        });
    }

    async fn sync(&self, pass: &mut Pass) -> Result<Outcome, Failure> {
        self.check_gone(pass)?;
        self.ensure_finalizer(pass).await?;
        if !self.setup.concerns(&pass.at.kind, &pass.parent) {
            return Ok(Outcome::Settled);
        }
        let selector = match self.setup.shape {
            Shape::Composite => {
                selector_of(&pass.parent, self.setup.generate_selector).map_err(Failure::of)?
            }
            Shape::Decorator => LabelSelector::default(),
        };
        let observed = self.children(pass, &selector).await?;
        let related = self.related(pass, &pass.value).await?;
        let inputs = Inputs::of(&observed, &related);
        self.check_damping(pass, &inputs)?;
        pass.inputs = inputs.clone();
        let (answer, desired) = self.answer(pass, &selector, &observed, &related).await?;
        self.record_events(pass, &answer);
        let done = match self.setup.shape {
            Shape::Composite => self.compose(pass, &answer, &observed, desired).await,
            Shape::Decorator => self.decorate(pass, &answer, &observed, desired).await,
        };
        self.note_damping(pass, &inputs);
        self.note_known(pass);
        done?;
        let delays = [answer.resync_after, self.setup.resync];
        Ok(delays.into_iter().flatten().min().map_or(Outcome::Settled, Outcome::CheckAfter))
    }

    /// Adds the finalizer before anything else, or removes a leftover one.
    async fn ensure_finalizer(&self, pass: &mut Pass) -> Result<(), Failure> {
        let (meta, name) = (pass.parent.meta(), &self.setup.finalizer);
        let patch = match self.setup.finalize {
            Some(_) if meta.is_being_deleted() => None,
            Some(_) => finalizer::addition(meta, name),
            None => finalizer::removal(meta, name),
        };
        let Some(patch) = patch else { return Ok(()) };
        let patched = self.patch_parent(pass, Subresource::None, patch, "change the finalizers").await?;
        let changed = || Failure::conflict(format!("{} has changed or is gone", pass.at));
        let patched = patched.ok_or_else(changed)?;
        pass.go_on_with("finalizer", patched);
        Ok(())
    }

    /// Calls the hook, or for a rollout the hook for each revision. The caller reports errors of children: they do not
    /// prevent a parent from being finalized.
    async fn answer(
        &self,
        pass: &mut Pass,
        selector: &LabelSelector,
        observed: &Objects,
        related: &Objects,
    ) -> Result<(SyncAnswer, Result<Desired, String>), Failure> {
        pass.hook = Some(self.hook_for(pass).1.text());
        let manages = self.manages_children(pass);
        if let Some(revisions) = self.wiring.revisions.as_ref().filter(|_| manages) {
            let (answer, desired) = self.roll_out(pass, revisions, selector, observed).await?;
            return Ok((answer, Ok(desired)));
        }
        let answer = self.call_hook(pass, pass.parent_value(), observed, related).await?;
        let desired = desired(&self.setup, pass.parent.meta(), selector, &answer.children);
        Ok((answer, desired))
    }

    fn hook_for(&self, pass: &Pass) -> (&Caller, HookName) {
        let is_leaving =
            pass.parent.meta().is_being_deleted() || !self.setup.selects(&pass.at.kind, &pass.parent);
        match &self.setup.finalize {
            Some(finalize) if is_leaving => (finalize, HookName::Finalize),
            _ => (&self.setup.sync, HookName::Sync),
        }
    }

    pub(super) async fn call_hook(
        &self,
        pass: &Pass,
        parent: &Value,
        children: &Objects,
        related: &Objects,
    ) -> Result<SyncAnswer, Failure> {
        let (hook, name) = self.hook_for(pass);
        let finalizing = name == HookName::Finalize;
        let request = SyncRequest { controller: &self.setup.object, parent, children, related, finalizing };
        let (shape, request) = (self.setup.shape, request.encode(self.setup.shape, hook.version()));
        let call = hook.call(parent, &request, |body, strict| read_sync(shape, body, strict));
        self.unless_stopped(call).await
    }

    /// Waits for a hook, unless the controller has to stop: its successor must not wait for a hanging hook.
    pub(super) async fn unless_stopped<T>(
        &self,
        call: impl Future<Output = Result<T, CallError>>,
    ) -> Result<T, Failure> {
        tokio::select! {
            biased;
            () = self.wiring.stop.cancelled() => Err(Failure::Later(Duration::ZERO)),
            result = call => Ok(result?),
        }
    }

    /// Whether children are written: not if the parent is being deleted and has no finalize hook.
    fn manages_children(&self, pass: &Pass) -> bool {
        let meta = pass.parent.meta();
        !meta.is_being_deleted() || self.setup.manages_while_deleted(meta)
    }

    async fn compose(
        &self,
        pass: &mut Pass,
        answer: &SyncAnswer,
        observed: &Objects,
        desired: Result<Desired, String>,
    ) -> Result<(), Failure> {
        if answer.finalized
            && let Some(patch) = finalizer::removal(pass.parent.meta(), &self.setup.finalizer)
        {
            let Some(patched) =
                self.patch_parent(pass, Subresource::None, patch, "remove the finalizer").await?
            else {
                return Err(Failure::conflict(format!("{} has changed or is gone", pass.at)));
            };
            pass.go_on_with("finalized", patched);
        }
        let managed = self.manage_children(pass, observed, &desired.map_err(Failure::of)?).await;
        let mut status = answer.status.clone().unwrap_or_default();
        let generation = pass.parent.meta().generation;
        status.insert("observedGeneration".into(), generation.into());
        self.write_status(pass, status, answer).await?;
        managed
    }

    async fn decorate(
        &self,
        pass: &mut Pass,
        answer: &SyncAnswer,
        observed: &Objects,
        desired: Result<Desired, String>,
    ) -> Result<(), Failure> {
        let status = match (&answer.status, answer.conditions.is_empty()) {
            (Some(status), _) => Some(status.clone()),
            (None, false) => Some(pass.value["status"].as_object().cloned().unwrap_or_default()),
            (None, true) => None,
        };
        if let Some(status) = status {
            self.write_status(pass, status, answer).await?;
        }
        if let Some(patch) = self.decoration(pass, answer) {
            let patched = self
                .patch_parent(pass, Subresource::None, Patch::merge(&patch), "decorate the metadata")
                .await?;
            let changed = || Failure::conflict(format!("{} has changed or is gone", pass.at));
            let patched = patched.ok_or_else(changed)?;
            pass.go_on_with("decorated", patched);
        }
        self.manage_children(pass, observed, &desired.map_err(Failure::of)?).await
    }

    /// Returns the patch for labels, annotations and finalizers, if anything changes.
    fn decoration(&self, pass: &Pass, answer: &SyncAnswer) -> Option<Value> {
        let metadata = &pass.value["metadata"];
        let mut patch = Map::new();
        for (field, wanted) in [("labels", &answer.labels), ("annotations", &answer.annotations)] {
            let differs = |(name, value): &(&String, &Option<String>)| {
                metadata[field][name.as_str()].as_str() != value.as_deref()
            };
            let changes: Map<String, Value> =
                wanted.iter().filter(differs).map(|(name, value)| (name.clone(), json!(value))).collect();
            if !changes.is_empty() {
                patch.insert(field.into(), changes.into());
            }
        }
        let meta = pass.parent.meta();
        if answer.finalized && self.setup.has_finalizer(meta) {
            let rest = meta.finalizers.iter().filter(|name| ***name != *self.setup.finalizer);
            patch.insert("finalizers".into(), rest.map(|name| Value::from(&**name)).collect());
        }
        if patch.is_empty() {
            return None;
        }
        patch.insert("uid".into(), json!(meta.uid));
        patch.insert("resourceVersion".into(), json!(meta.resource_version));
        Some(json!({"metadata": patch}))
    }

    async fn manage_children(
        &self,
        pass: &mut Pass,
        observed: &Objects,
        desired: &Desired,
    ) -> Result<(), Failure> {
        if !self.manages_children(pass) {
            return Ok(());
        }
        let owner = controller_ref(&pass.at.kind, pass.parent.meta());
        let intent = Intent {
            observed,
            desired: &desired.objects,
            owner: &owner,
            mode: self.setup.apply,
            ledger: &self.wiring.ledger,
            method: &|kind| self.setup.method(kind),
        };
        let (actions, problems) = plan(&intent);
        self.check_before(pass, &actions).await?;
        let mut errors = self.carry_out(pass, actions).await;
        let unknown = pass.writes.iter_mut().filter(|write| write.before.is_none());
        unknown.for_each(|write| write.before = observed.get(&write.kind, &write.key).cloned());
        let problems = desired.problems.iter().chain(&problems);
        errors.extend(problems.map(|why| ReconcileError::retry(why.clone())));
        match errors.len() {
            0 => Ok(()),
            1 => Err(errors.remove(0).into()),
            count => {
                let all: Vec<String> = errors.iter().take(5).map(ReconcileError::report).collect();
                Err(Failure::of(format!("{count} errors: {}", all.join("; "))))
            }
        }
    }

    /// Replaces the status of the parent, if it differs. Does nothing if the parent is gone or has been replaced.
    async fn write_status(
        &self,
        pass: &mut Pass,
        status: Map<String, Value>,
        answer: &SyncAnswer,
    ) -> Result<(), Failure> {
        let (before, now) = (pass.value["status"].clone(), self.wiring.clock.now());
        let generation = pass.parent.meta().generation;
        let status = status::with_conditions(status, &answer.conditions, &before, generation, now);
        let Some(patch) = status::patch(&before, &status) else { return Ok(()) };
        let patch = json!({"metadata": {"uid": pass.parent.meta().uid}, "status": patch});
        let client = &self.wiring.client;
        let send = |subresource| client.patch(&pass.at.kind, &pass.at.key, subresource, Patch::merge(&patch));
        let mut patched = send(Subresource::Status).await;
        if self.setup.shape == Shape::Decorator && patched.as_ref().is_err_and(ClientError::is_not_found) {
            // A kind without the subresource, or an object that is gone.
            patched = send(Subresource::None).await;
        }
        match patched {
            Ok(patched) => pass.go_on_with("status", patched),
            Err(error) if error.is_not_found() => return Err(self.gone(pass)),
            Err(error) if error.is_conflict() => {}
            Err(error) => {
                return Err(Err::<(), _>(error)
                    .attempting(|| format!("update the status of {}", pass.at))
                    .unwrap_err()
                    .into());
            }
        }
        Ok(())
    }

    /// Records the events in a response, unless the last response had the same.
    fn record_events(&self, pass: &Pass, answer: &SyncAnswer) {
        if answer.events.is_empty() {
            self.events.lock().remove(&pass.at);
            return;
        }
        let mut hasher = DefaultHasher::new();
        answer.events.hash(&mut hasher);
        if self.events.lock().insert(pass.at.clone(), hasher.finish()) == Some(hasher.finish()) {
            return;
        }
        for event in &answer.events {
            self.event(pass, event.kind.into(), &event.reason, event.message.clone());
        }
    }

    fn check_damping(&self, pass: &Pass, inputs: &Inputs) -> Result<(), Failure> {
        let state = State { version: &pass.first_version, inputs };
        let now = self.wiring.clock.instant();
        let damping = self.damping.lock();
        match damping.get(&pass.at).and_then(|known| known.pause(state, now)) {
            Some(pause) => Err(Failure::Later(pause)),
            None => Ok(()),
        }
    }

    fn note_damping(&self, pass: &Pass, inputs: &Inputs) {
        let mut all = self.damping.lock();
        let mut damping = all.remove(&pass.at).unwrap_or_default();
        let before = State { version: &pass.first_version, inputs };
        let after = State { version: &pass.parent.meta().resource_version, inputs: &pass.inputs };
        let unstable = damping.note(&pass.at, before, after, self.wiring.clock.instant());
        if damping != Damping::default() {
            all.insert(pass.at.clone(), damping);
        }
        drop(all);
        if let Some((kind, key)) = unstable {
            let is_parent = (&kind, &key) == (&pass.at.kind, &pass.at.key);
            let reason = if is_parent { "UnstableStatus" } else { "UnstableChild" };
            let message = format!(
                "each answer of the hook changes {} {key} again: it is called less and less often",
                kind.kind()
            );
            self.event(pass, EventType::Warning, reason, message);
        }
    }
}
