//! The reconcile of an object with a role or playbook.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use setpoint::client::{IgnoreErrors, Optional, Patch, Subresource};
use setpoint::metrics::Metrics;
use setpoint::reconcile::ErrorContext;
use setpoint::{
    Client, Clock, EventType, Informer, Key, Kind, LabelSelector, Object, Outcome, ReconcileError,
    Reconciler, Recorder, finalizer,
};

use super::parameters::variables;
use super::runner::{Ansible, AnsibleCall, PlayResult};
use super::status::{News, status};
use super::{AnsibleWatch, Finalizer};
use crate::dependents::Dependents;
use crate::gateway::{Access, AccessOptions, Adoption, End, Owner};
use crate::model::go_duration;
use crate::parents::{Observer, Report, Write, annotations, full, status_patch};

const RECONCILE_PERIOD: &str = "ansible.sdk.operatorframework.io/reconcile-period";
const VERBOSITY: &str = "ansible.sdk.operatorframework.io/verbosity";
const DEFAULT_VERBOSITY: u8 = 2;
/// The shortest period, whatever an annotation or a play says.
const LEAST_PERIOD: Duration = Duration::from_secs(1);
/// When an object that was deleted during a run is finalized.
const FINALIZED_AFTER: Duration = Duration::from_secs(5);
/// The buckets of the duration of runs.
const SECONDS: &[f64] = &[0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 900.0];

/// The dependencies of the reconciler.
pub(crate) struct PlayWiring {
    pub(crate) kind: Kind,
    pub(crate) selector: LabelSelector,
    /// How often objects are reconciled although nothing has changed.
    pub(crate) period: Option<Duration>,
    pub(crate) watch: AnsibleWatch,
    pub(crate) ansible: Arc<dyn Ansible>,
    pub(crate) client: Client,
    pub(crate) clock: Clock,
    pub(crate) recorder: Recorder,
    pub(crate) metrics: Metrics,
    pub(crate) parents: Informer,
    pub(crate) dependents: Arc<Dependents>,
    pub(crate) observer: Option<Arc<dyn Observer>>,
}

/// The reconciler of the objects of a kind.
pub(crate) struct Plays {
    wiring: PlayWiring,
}

/// One reconcile of an object.
struct Pass {
    key: Key,
    parent: Object,
    value: Value,
    has_run: bool,
    writes: Vec<Write>,
}

impl Reconciler for Plays {
    type Key = Key;

    async fn reconcile(&self, key: &Key) -> Result<Outcome, ReconcileError> {
        let parent = self.wiring.parents.objects().get(key);
        let Some(parent) = parent.filter(|parent| self.concerns(parent)) else { return Ok(Outcome::Settled) };
        let start = self.wiring.clock.instant();
        let value = full(&self.wiring.kind, &parent);
        let mut pass = Pass { key: key.clone(), parent, value, has_run: false, writes: Vec::new() };
        let outcome = self.sync(&mut pass).await;
        if let Err(error) = &outcome
            && error.class() != "conflict"
        {
            let message = error.report();
            self.wiring.recorder.event(
                &self.wiring.kind,
                &pass.parent,
                EventType::Warning,
                "ReconcileFailed",
                message,
            );
        }
        self.report(pass, self.wiring.clock.instant().saturating_duration_since(start), &outcome);
        outcome
    }
}

impl Plays {
    pub(crate) fn new(wiring: PlayWiring) -> Self {
        Self { wiring }
    }

    /// Whether an object is selected, or has to be finalized.
    fn concerns(&self, parent: &Object) -> bool {
        let meta = parent.meta();
        let finalizer = self.finalizer().map(|finalizer| finalizer.name.as_str());
        let is_ours = finalizer.is_some_and(|name| meta.has_finalizer(name));
        is_ours || !meta.is_being_deleted() && self.wiring.selector.matches(&meta.labels)
    }

    fn finalizer(&self) -> Option<&Finalizer> {
        self.wiring.watch.finalizer.as_ref()
    }

    fn report(&self, pass: Pass, took: Duration, outcome: &Result<Outcome, ReconcileError>) {
        let Some(observer) = &self.wiring.observer else { return };
        observer.reconciled(&Report {
            controller: self.wiring.watch.play.name(),
            kind: self.wiring.kind.clone(),
            key: pass.key,
            hook: pass.has_run.then_some("ansible"),
            took,
            error: outcome.as_ref().err().map(ReconcileError::report),
            writes: pass.writes,
        });
    }

    async fn sync(&self, pass: &mut Pass) -> Result<Outcome, ReconcileError> {
        let period = match self.period(pass) {
            Ok(period) => period,
            Err(why) => return self.fail(pass, &why).await,
        };
        let is_finalizing = pass.parent.meta().is_being_deleted();
        if !is_finalizing && let Some(finalizer) = self.finalizer() {
            let patch = finalizer::addition(pass.parent.meta(), &finalizer.name);
            if let Some(patch) = patch {
                self.patch(pass, Subresource::None, patch, "finalizer").await?;
            }
        }
        // The cache may be behind. A play should not run for an object that is gone.
        if !self.read_again(pass).await? || pass.parent.meta().is_being_deleted() != is_finalizing {
            return Ok(Outcome::Requeue);
        }
        self.write_status(pass, News::Running).await?;
        let result = match self.run(pass, is_finalizing).await {
            Ok(result) => result,
            Err(why) => return self.fail(pass, &format!("Unable to run reconciliation: {why}")).await,
        };
        if !self.read_again(pass).await? {
            return Ok(Outcome::Settled);
        }
        self.write_status(pass, News::Done(&result)).await?;
        if !result.messages.is_empty() {
            let kind = self.wiring.kind.kind();
            return Err(ReconcileError::retry(format!(
                "{kind} {}: {}",
                pass.key,
                result.messages.join("; ")
            )));
        }
        self.settle(pass, is_finalizing, result.again.or(period)).await
    }

    /// Lets an object go that was finalized.
    async fn settle(
        &self,
        pass: &mut Pass,
        is_finalizing: bool,
        period: Option<Duration>,
    ) -> Result<Outcome, ReconcileError> {
        let meta = pass.parent.meta();
        let finalizer = self.finalizer().filter(|finalizer| meta.has_finalizer(&finalizer.name));
        if let Some(finalizer) = finalizer.filter(|_| meta.is_being_deleted()) {
            if !is_finalizing {
                return Ok(Outcome::CheckAfter(FINALIZED_AFTER));
            }
            if let Some(patch) = finalizer::removal(meta, &finalizer.name) {
                let patched =
                    self.wiring.client.patch(&self.wiring.kind, &pass.key, Subresource::None, patch).await;
                let attempted = || format!("remove the finalizer of {}", pass.key);
                patched.map(drop).ignore_not_found().attempting(attempted)?;
            }
            return Ok(Outcome::Settled);
        }
        let period = period.filter(|period| !period.is_zero());
        Ok(period.map_or(Outcome::Settled, |period| Outcome::CheckAfter(period.max(LEAST_PERIOD))))
    }

    async fn fail(&self, pass: &mut Pass, why: &str) -> Result<Outcome, ReconcileError> {
        self.write_status(pass, News::Error(why)).await?;
        Err(ReconcileError::retry(format!("{} {}: {why}", self.wiring.kind.kind(), pass.key)))
    }

    fn period(&self, pass: &Pass) -> Result<Option<Duration>, String> {
        let annotations = annotations(&pass.parent);
        let Some(text) = annotations.get(RECONCILE_PERIOD) else { return Ok(self.wiring.period) };
        let wrong = || {
            format!("metadata.annotations[{RECONCILE_PERIOD}] {text:?}: expected a duration such as 1m30s")
        };
        go_duration(text).map(Some).ok_or_else(wrong)
    }

    /// Reads the object from the API server. Returns whether it still exists.
    async fn read_again(&self, pass: &mut Pass) -> Result<bool, ReconcileError> {
        let kind = &self.wiring.kind;
        let read = self.wiring.client.get(kind, &pass.key).await.optional();
        let read = read.attempting(|| format!("read {} {}", kind.kind(), pass.key))?;
        let Some(live) = read.filter(|live| live.meta().uid == pass.parent.meta().uid) else {
            return Ok(false);
        };
        (pass.value, pass.parent) = (full(kind, &live), live);
        Ok(true)
    }

    async fn write_status(&self, pass: &mut Pass, news: News<'_>) -> Result<(), ReconcileError> {
        if !self.wiring.watch.manages_status {
            return Ok(());
        }
        let after = status(&pass.value["status"], news, self.wiring.clock.now());
        let Some(patch) = status_patch(&pass.value["status"], &after) else { return Ok(()) };
        let patch =
            Patch::merge(&serde_json::json!({"metadata": {"uid": pass.parent.meta().uid}, "status": patch}));
        self.patch(pass, Subresource::Status, patch, "status").await
    }

    async fn patch(
        &self,
        pass: &mut Pass,
        subresource: Subresource,
        patch: Patch,
        verb: &'static str,
    ) -> Result<(), ReconcileError> {
        let kind = &self.wiring.kind;
        let patched = self.wiring.client.patch(kind, &pass.key, subresource, patch).await;
        let patched = patched.attempting(|| format!("change the {verb} of {} {}", kind.kind(), pass.key))?;
        let before = std::mem::replace(&mut pass.value, full(kind, &patched));
        let (before, after) = (Some(before), Some(pass.value.clone()));
        pass.writes.push(Write { verb, kind: kind.clone(), key: pass.key.clone(), before, after });
        pass.parent = patched;
        Ok(())
    }

    async fn run(&self, pass: &mut Pass, is_finalizing: bool) -> Result<PlayResult, String> {
        let Wiring { kind, watch, clock, .. } = &self.wiring;
        pass.has_run = true;
        let access = Access::new(AccessOptions {
            client: self.wiring.client.clone(),
            adoption: Adoption {
                owner: Owner::new(kind, pass.parent.meta()),
                controls: false,
                labels: Default::default(),
            },
            marks: None,
            on_kind: self.following(),
            shows_objects: self.wiring.observer.is_some(),
        });
        let finalizer = watch.finalizer.as_ref().filter(|_| is_finalizing);
        let play = finalizer.and_then(|finalizer| finalizer.play.as_ref()).unwrap_or(&watch.play);
        let annotations = annotations(&pass.parent);
        let verbosity =
            annotations.get(VERBOSITY).and_then(|text| text.parse().ok()).unwrap_or(DEFAULT_VERBOSITY);
        let call = AnsibleCall {
            play: play.clone(),
            namespace: pass.key.namespace().unwrap_or_default().to_owned(),
            vars: variables(watch, kind, &pass.value, is_finalizing),
            verbosity: verbosity.min(7),
        };
        let start = clock.instant();
        let end = End(access.clone());
        let ran = self.wiring.ansible.run(call, access.clone()).await;
        drop(end);
        let is_ok = ran.as_ref().is_ok_and(|result| result.messages.is_empty());
        self.count(is_ok, clock.instant().saturating_duration_since(start));
        pass.writes.extend(access.writes());
        ran
    }

    /// Watches the kinds of what a run creates.
    fn following(&self) -> Arc<dyn Fn(&Kind) + Send + Sync> {
        let (watch, dependents) = (self.wiring.watch.clone(), self.wiring.dependents.clone());
        let is_namespaced = self.wiring.kind.namespaced();
        Arc::new(move |kind| {
            let named = |one: &crate::watches::GroupKind| kind.is_named(&one.api_version(), &one.kind);
            let is_reachable = kind.namespaced() || !is_namespaced || watch.watches_cluster_scoped;
            if watch.watches_dependents && is_reachable && !watch.unwatched.iter().any(named) {
                _ = dependents.follow(kind);
            }
        })
    }

    fn count(&self, is_ok: bool, took: Duration) {
        let kind = self.wiring.kind.to_string();
        let result = if is_ok { "success" } else { "failure" };
        let labels = [("kind", kind.as_str()), ("result", result)];
        let metrics = &self.wiring.metrics;
        metrics.count("setpoint_ansible_runs_total", "Runs of playbooks.", &labels, 1);
        let help = "How long runs of playbooks took.";
        metrics.observe(
            "setpoint_ansible_run_duration_seconds",
            help,
            SECONDS,
            &labels[..1],
            took.as_secs_f64(),
        );
    }
}

use PlayWiring as Wiring;
