//! The reconcile of an object with a release.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::Value;
use setpoint::backoff::Backoff;
use setpoint::client::{IgnoreErrors, Patch, Subresource};
use setpoint::metrics::Metrics;
use setpoint::reconcile::ErrorContext;
use setpoint::source::Selection;
use setpoint::{
    Client, ClientError, Clock, EventType, Informer, Instant, Key, Kind, LabelSelector, Object, Outcome,
    ReconcileError, Reconciler, Recorder, finalizer,
};

use super::chart::digest_with;
use super::drift::Memory;
use super::plan::{Removal, Revision, Step, Wanted, plan, plan_removal};
use super::quarrel::Quarrels;
use super::record::{self, Record, Records};
use super::runner::{Helm, HelmCall, HelmVerb};
use super::status::{News, status};
use super::{HelmWatch, overrides};
use crate::dependents::Dependents;
use crate::fleet::Kinds;
use crate::gateway::{Access, AccessOptions, Adoption, End, Owner, ReleaseMarks};
use crate::model::go_duration;
use crate::names::{CHART, RELEASE_FAILED, RELEASE_INPUTS, RELEASE_INTERRUPTED, RELEASE_OF, secret_kind};
use crate::parents::{Observer, Report, Write, annotations, full, status_patch};

/// The finalizers of the Operator SDK: this one, and that of its older versions.
const FINALIZER: &str = "helm.sdk.operatorframework.io/uninstall-release";
const OLD_FINALIZER: &str = "uninstall-helm-release";
const UPGRADE_FORCE: &str = "helm.sdk.operatorframework.io/upgrade-force";
const ROLLBACK_FORCE: &str = "helm.sdk.operatorframework.io/rollback-force";
const UNINSTALL_WAIT: &str = "helm.sdk.operatorframework.io/uninstall-wait";
const RECONCILE_PERIOD: &str = "helm.sdk.operatorframework.io/reconcile-period";

/// The most steps of one reconcile: mark as failed, clean, install, roll back and check are five.
const MAX_STEPS: usize = 8;
/// The delay before what has failed is tried again: 10, 20, 40 seconds and so on.
const RESTS: Backoff = Backoff::doubling(Duration::from_secs(10), Duration::from_secs(900));
/// The shortest period, whatever an annotation says.
const LEAST_PERIOD: Duration = Duration::from_secs(1);
/// The longest name of a release, as in Helm: revisions are named after it.
const MAX_NAME: usize = 53;
/// How often someone else's operation is checked, and the objects of an uninstalled release.
const LOOK_AGAIN: Duration = Duration::from_secs(5);
/// The buckets of the duration of runs.
const SECONDS: &[f64] = &[0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0];

/// The dependencies of the reconciler.
pub(crate) struct ReleaseWiring {
    pub(crate) kind: Kind,
    pub(crate) selector: LabelSelector,
    /// How often objects are checked although nothing has changed.
    pub(crate) period: Option<Duration>,
    pub(crate) watch: HelmWatch,
    pub(crate) helm: Arc<dyn Helm>,
    pub(crate) client: Client,
    pub(crate) clock: Clock,
    pub(crate) recorder: Recorder,
    pub(crate) metrics: Metrics,
    pub(crate) parents: Informer,
    /// The Secrets of all releases, or at least their metadata.
    pub(crate) secrets: Informer,
    pub(crate) dependents: Arc<Dependents>,
    pub(crate) kinds: Kinds,
    /// Whether events show overridden values.
    pub(crate) shows_overrides: bool,
    pub(crate) observer: Option<Arc<dyn Observer>>,
}

/// The reconciler of the objects of a kind.
pub(crate) struct Releases {
    pub(super) wiring: ReleaseWiring,
    /// One entry per object whose chart and values have failed.
    attempts: Mutex<BTreeMap<Key, Attempts>>,
    /// The record of the current revision, one per object.
    records: Mutex<Records>,
    pub(super) memory: Memory,
    pub(super) quarrels: Quarrels,
}

/// Failed attempts with the same chart and values.
#[derive(Clone, Debug)]
struct Attempts {
    inputs: String,
    failures: u32,
    until: Instant,
}

/// One reconcile of an object.
pub(super) struct Pass {
    pub(super) key: Key,
    pub(super) parent: Object,
    pub(super) value: Value,
    verb: Option<&'static str>,
    /// What went wrong, although the reconcile goes on.
    failure: Option<String>,
    pub(super) writes: Vec<Write>,
}

impl Pass {
    fn uid(&self) -> &str {
        &self.parent.meta().uid
    }

    fn annotation(&self, name: &str) -> Option<String> {
        annotations(&self.parent).get(name).map(str::to_owned)
    }

    /// Reads an annotation as Go reads booleans.
    fn is_on(&self, name: &str) -> bool {
        let value = self.annotation(name).unwrap_or_default();
        matches!(value.as_str(), "1" | "t" | "T" | "true" | "TRUE" | "True")
    }
}

impl Reconciler for Releases {
    type Key = Key;

    async fn reconcile(&self, key: &Key) -> Result<Outcome, ReconcileError> {
        let parent = self.wiring.parents.objects().get(key);
        let Some(parent) = parent.filter(|parent| self.concerns(parent)) else {
            self.forget(key);
            return Ok(Outcome::Settled);
        };
        let start = self.wiring.clock.instant();
        let value = full(&self.wiring.kind, &parent);
        let (verb, failure, writes) = Default::default();
        let mut pass = Pass { key: key.clone(), parent, value, verb, failure, writes };
        let outcome = match pass.parent.meta().is_being_deleted() {
            true => self.remove(&mut pass).await,
            false => self.maintain(&mut pass).await,
        };
        self.report(pass, self.wiring.clock.instant().saturating_duration_since(start), &outcome);
        outcome
    }
}

impl Releases {
    pub(crate) fn new(wiring: ReleaseWiring) -> Self {
        let (attempts, records, memory, quarrels) = Default::default();
        Self { wiring, attempts, records, memory, quarrels }
    }

    /// Whether an object is selected, or was and has a release.
    fn concerns(&self, parent: &Object) -> bool {
        let meta = parent.meta();
        let has_finalizer = meta.has_finalizer(FINALIZER) || meta.has_finalizer(OLD_FINALIZER);
        has_finalizer || !meta.is_being_deleted() && self.wiring.selector.matches(&meta.labels)
    }

    fn forget(&self, key: &Key) {
        self.attempts.lock().remove(key);
        self.records.lock().remove(key);
    }

    fn report(&self, pass: Pass, took: Duration, outcome: &Result<Outcome, ReconcileError>) {
        let Some(observer) = &self.wiring.observer else { return };
        let error = outcome.as_ref().err().map(ReconcileError::report).or(pass.failure);
        observer.reconciled(&Report {
            controller: self.wiring.watch.chart.name.clone(),
            kind: self.wiring.kind.clone(),
            key: pass.key,
            hook: pass.verb,
            took,
            error,
            writes: pass.writes,
        });
    }

    pub(super) fn event(&self, pass: &Pass, kind: EventType, reason: &str, message: String) {
        self.wiring.recorder.event(&self.wiring.kind, &pass.parent, kind, reason, message);
    }

    /// Makes a release match the object.
    async fn maintain(&self, pass: &mut Pass) -> Result<Outcome, ReconcileError> {
        let prepared = check_name(pass.key.name())
            .and_then(|()| self.values(pass))
            .and_then(|values| Ok((values, self.period(pass)?)));
        let (values, period) = match prepared {
            Ok(prepared) => prepared,
            Err(why) => {
                self.write_status(pass, &News::Irreconcilable(&why)).await?;
                return Err(ReconcileError::terminal(format!("{}: {why}", pass.key)));
            }
        };
        let inputs = digest_with(&self.wiring.watch.chart.digest, &values);
        self.ensure_finalizer(pass).await?;
        let mut revisions = self.cached(&pass.key);
        for nth in 0..MAX_STEPS {
            let wanted =
                Wanted { inputs: &inputs, rest: self.rest(&pass.key, &inputs), now: self.wiring.clock.now() };
            let step = plan(&revisions, wanted);
            match step {
                Step::Check(version) => {
                    self.attempts.lock().remove(&pass.key);
                    let outcome = self.check(pass, &revisions, version, true).await?;
                    return Ok(outcome.and(after(period)));
                }
                Step::Rest { version: Some(version), left } => {
                    let outcome = self.check(pass, &revisions, version, false).await?;
                    return Ok(outcome.and(Outcome::CheckAfter(left)).and(after(period)));
                }
                Step::Rest { version: None, left } => return Ok(Outcome::CheckAfter(left)),
                // The cache may be behind. Before anything is done, the API server is asked.
                _ if nth == 0 => self.confirm(pass).await?,
                Step::Wait(left) => return self.wait_for_others(pass, left).await,
                step => self.take(pass, &revisions, step, &inputs, &values).await?,
            }
            let fresh = self.fresh(&pass.key).await;
            revisions = self.shown(pass, fresh).await?;
        }
        Ok(Outcome::Requeue)
    }

    async fn wait_for_others(&self, pass: &mut Pass, left: Duration) -> Result<Outcome, ReconcileError> {
        let why = "another operation on the release is in progress";
        self.write_status(pass, &News::Irreconcilable(why)).await?;
        Ok(Outcome::CheckAfter(left.min(LOOK_AGAIN)))
    }

    /// Returns the values: the spec and the overrides.
    fn values(&self, pass: &Pass) -> Result<Value, String> {
        let mut values = match &pass.value["spec"] {
            Value::Object(spec) => Value::Object(spec.clone()),
            _ => return Err("spec: expected an object".to_owned()),
        };
        for (path, value) in &self.wiring.watch.overrides {
            overrides::set(&mut values, path, value)?;
        }
        Ok(values)
    }

    fn period(&self, pass: &Pass) -> Result<Option<Duration>, String> {
        let Some(text) = pass.annotation(RECONCILE_PERIOD) else { return Ok(self.wiring.period) };
        let wrong = || {
            format!("metadata.annotations[{RECONCILE_PERIOD}] {text:?}: expected a duration such as 1m30s")
        };
        go_duration(&text).map(Some).ok_or_else(wrong)
    }

    async fn ensure_finalizer(&self, pass: &mut Pass) -> Result<(), ReconcileError> {
        let meta = pass.parent.meta();
        if meta.has_finalizer(OLD_FINALIZER) {
            return Ok(());
        }
        let Some(patch) = finalizer::addition(meta, FINALIZER) else { return Ok(()) };
        self.patch_parent(pass, Subresource::None, patch, "finalizer").await
    }

    pub(super) async fn patch_parent(
        &self,
        pass: &mut Pass,
        subresource: Subresource,
        patch: Patch,
        verb: &'static str,
    ) -> Result<(), ReconcileError> {
        let kind = &self.wiring.kind;
        let is_status = subresource == Subresource::Status;
        let patched = self.wiring.client.patch(kind, &pass.key, subresource, patch).await;
        if is_status && patched.as_ref().is_err_and(ClientError::is_not_found) {
            // The kind has no status, or the object is gone. Neither keeps the release from being right.
            tracing::debug!(%kind, key = %pass.key, "there is no status to write");
            return Ok(());
        }
        let patched = patched.attempting(|| format!("change the {verb} of {} {}", kind.kind(), pass.key))?;
        let before = std::mem::replace(&mut pass.value, full(kind, &patched));
        if pass.parent.meta().resource_version != patched.meta().resource_version {
            let (before, after) = (Some(before), Some(pass.value.clone()));
            pass.writes.push(Write { verb, kind: kind.clone(), key: pass.key.clone(), before, after });
        }
        pass.parent = patched;
        Ok(())
    }

    /// Reads the object from the API server: nothing is done for one that has changed since.
    async fn confirm(&self, pass: &Pass) -> Result<(), ReconcileError> {
        let kind = &self.wiring.kind;
        let changed =
            || ReconcileError::conflict(format!("{} {} has changed or is gone", kind.kind(), pass.key));
        let read = self.wiring.client.get(kind, &pass.key).await;
        let live = match read {
            Err(error) if error.is_not_found() => return Err(changed()),
            read => read.attempting(|| format!("read {} {}", kind.kind(), pass.key))?,
        };
        let (live, cached) = (live.meta(), pass.parent.meta());
        let is_same = live.uid == cached.uid
            && live.generation == cached.generation
            && live.is_being_deleted() == cached.is_being_deleted();
        if is_same { Ok(()) } else { Err(changed()) }
    }

    /// Returns the revisions of a release in the cache, in order.
    fn cached(&self, release: &Key) -> Vec<Revision> {
        let secrets = self.wiring.secrets.objects().indexed(BY_RELEASE, &release.to_string());
        sorted(secrets.iter().filter_map(Revision::of))
    }

    /// Returns the revisions of a release from the API server, in order.
    async fn fresh(&self, release: &Key) -> Result<Vec<Revision>, ReconcileError> {
        let selection = Selection {
            namespace: release.namespace().map(str::to_owned),
            labels: Some(format!("owner=helm,name={}", release.name())),
            metadata_only: true,
            ..Selection::default()
        };
        let listed = self.wiring.client.list(&secret_kind(), &selection).await;
        let listed = listed.attempting(|| format!("list the revisions of release {release}"))?;
        Ok(sorted(listed.objects.iter().filter_map(Revision::of)))
    }

    /// Takes a step that changes the release. A run that fails is not an error: the next step depends on what it left.
    async fn take(
        &self,
        pass: &mut Pass,
        revisions: &[Revision],
        step: Step,
        inputs: &str,
        values: &Value,
    ) -> Result<(), ReconcileError> {
        let foreign = self.foreign(pass, revisions).await;
        if let Some(chart) = self.shown(pass, foreign).await? {
            let why = format!(
                "duplicate release name: found existing release with name {:?} for chart {chart:?}",
                pass.key.name()
            );
            self.write_status(pass, &News::Irreconcilable(&why)).await?;
            return Err(ReconcileError::terminal(format!("{}: {why}", pass.key)));
        }
        if let Step::MarkFailed(version) = step {
            let marked = self.mark_failed(pass, revisions, version).await;
            return self.shown(pass, marked).await;
        }
        let (verb, marked, failed) = match step {
            Step::Install => (HelmVerb::Install, inputs.to_owned(), None),
            Step::Rollback { to } => {
                let target = revisions.iter().find(|revision| revision.version == to);
                let before = target.and_then(|target| target.inputs.clone()).unwrap_or_default();
                let force = pass.is_on(ROLLBACK_FORCE);
                (HelmVerb::Rollback { to, force }, before, Some(inputs.to_owned()))
            }
            Step::Clean => (HelmVerb::Uninstall { keeps_history: false }, inputs.to_owned(), None),
            _ => (HelmVerb::Upgrade { force: pass.is_on(UPGRADE_FORCE) }, inputs.to_owned(), None),
        };
        if matches!(verb, HelmVerb::Install | HelmVerb::Upgrade { .. }) {
            self.tell_overrides(pass);
        }
        let marks = self.marks(pass, revisions, marked, failed);
        let ran = self.run(pass, verb.clone(), marks, values.clone()).await;
        match ran {
            Ok(()) => Ok(()),
            Err(why) => self.note_failure(pass, revisions, &verb, inputs, &why).await,
        }
    }

    async fn note_failure(
        &self,
        pass: &mut Pass,
        before: &[Revision],
        verb: &HelmVerb,
        inputs: &str,
        why: &str,
    ) -> Result<(), ReconcileError> {
        self.rest_after(&pass.key, inputs);
        self.event(pass, EventType::Warning, "ReleaseFailed", format!("helm {} failed: {why}", verb.text()));
        pass.failure = Some(format!("helm {}: {why}", verb.text()));
        let last = |revisions: &[Revision]| revisions.last().map(|last| last.version);
        let news = match verb {
            HelmVerb::Install => News::Failed { reason: "InstallError", why },
            // The status already shows the upgrade that failed.
            HelmVerb::Rollback { .. } => return Ok(()),
            HelmVerb::Uninstall { .. } => News::Failed { reason: "UninstallError", why },
            // Nothing was recorded: the chart cannot be rendered.
            HelmVerb::Upgrade { .. } if last(&self.fresh(&pass.key).await?) == last(before) => {
                News::Irreconcilable(why)
            }
            HelmVerb::Upgrade { .. } => News::Failed { reason: "UpgradeError", why },
        };
        self.write_status(pass, &news).await
    }

    fn tell_overrides(&self, pass: &Pass) {
        for (path, value) in &self.wiring.watch.overrides {
            let value = if self.wiring.shows_overrides { value } else { "****" };
            let message = format!("Chart value {path:?} overridden to {value:?} by operator's watches.yaml");
            self.event(pass, EventType::Warning, "OverrideValuesInUse", message);
        }
    }

    fn marks(
        &self,
        pass: &Pass,
        revisions: &[Revision],
        inputs: String,
        failed: Option<String>,
    ) -> ReleaseMarks {
        let known = revisions.iter().map(|revision| {
            let marks = [
                (RELEASE_OF, revision.of.clone()),
                (RELEASE_INPUTS, revision.inputs.clone()),
                (RELEASE_FAILED, revision.failed.clone()),
                (RELEASE_INTERRUPTED, revision.interrupted.then(|| "true".to_owned())),
            ];
            let marks = marks.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
            (revision.secret.name().to_owned(), marks.collect())
        });
        ReleaseMarks {
            release: pass.key.name().to_owned(),
            of: pass.uid().to_owned(),
            inputs,
            failed,
            known: known.collect(),
        }
    }

    pub(super) fn adoption(&self, pass: &Pass) -> Adoption {
        Adoption {
            owner: Owner::new(&self.wiring.kind, pass.parent.meta()),
            controls: true,
            labels: [(CHART.to_owned(), self.wiring.watch.chart.name.clone())].into(),
        }
    }

    /// Runs `helm`. When it returns, the run cannot change anything any more.
    async fn run(
        &self,
        pass: &mut Pass,
        verb: HelmVerb,
        marks: ReleaseMarks,
        values: Value,
    ) -> Result<(), String> {
        let Wiring { client, dependents, watch, helm, clock, .. } = &self.wiring;
        pass.verb = Some(match verb {
            HelmVerb::Install => "helm install",
            HelmVerb::Upgrade { .. } => "helm upgrade",
            HelmVerb::Rollback { .. } => "helm rollback",
            HelmVerb::Uninstall { .. } => "helm uninstall",
        });
        let (follows, dependents) = (watch.watches_dependents, dependents.clone());
        let access = Access::new(AccessOptions {
            client: client.clone(),
            adoption: self.adoption(pass),
            marks: Some(marks),
            on_kind: Arc::new(move |kind| {
                if follows {
                    _ = dependents.follow(kind);
                }
            }),
            shows_objects: self.wiring.observer.is_some(),
        });
        let text = verb.text();
        let call = HelmCall {
            verb,
            release: pass.key.name().to_owned(),
            namespace: pass.key.namespace().unwrap_or_default().to_owned(),
            chart: watch.chart.path.clone(),
            values,
        };
        let start = clock.instant();
        let end = End(access.clone());
        let ran = helm.run(call, access.clone()).await;
        drop(end);
        self.count(text, ran.is_ok(), clock.instant().saturating_duration_since(start));
        pass.writes.extend(access.writes());
        ran
    }

    fn count(&self, verb: &str, is_ok: bool, took: Duration) {
        let kind = self.wiring.kind.to_string();
        let result = if is_ok { "success" } else { "failure" };
        let metrics = &self.wiring.metrics;
        let labels = [("kind", kind.as_str()), ("verb", verb), ("result", result)];
        metrics.count("setpoint_helm_runs_total", "Runs of helm.", &labels, 1);
        let help = "How long runs of helm took.";
        metrics.observe(
            "setpoint_helm_run_duration_seconds",
            help,
            SECONDS,
            &labels[..2],
            took.as_secs_f64(),
        );
    }

    /// Marks a revision as failed whose operation was interrupted.
    async fn mark_failed(
        &self,
        pass: &mut Pass,
        revisions: &[Revision],
        version: u64,
    ) -> Result<(), ReconcileError> {
        let Some(revision) = revisions.iter().find(|revision| revision.version == version) else {
            return Ok(());
        };
        let secret = self.secret(revision).await?;
        let patch = record::failing(&secret, "the operation was interrupted");
        let patch = patch
            .map_err(|why| ReconcileError::retry(format!("read revision {}: {why}", revision.secret)))?;
        let patched = self
            .wiring
            .client
            .patch(&secret_kind(), &revision.secret, Subresource::None, Patch::merge(&patch))
            .await;
        patched.attempting(|| format!("mark revision {} as failed", revision.secret))?;
        let message = format!("revision {version} was interrupted, and is tried again");
        self.event(pass, EventType::Warning, "ReleaseInterrupted", message);
        Ok(())
    }

    async fn secret(&self, revision: &Revision) -> Result<Value, ReconcileError> {
        let read = self.wiring.client.get(&secret_kind(), &revision.secret).await;
        let read = read.attempting(|| format!("read revision {}", revision.secret))?;
        Ok(read.decode()?)
    }

    /// Returns the record of a revision. It is read once.
    pub(super) async fn record(
        &self,
        release: &Key,
        revision: &Revision,
    ) -> Result<Arc<Record>, ReconcileError> {
        let known = self.records.lock().get(release, &revision.stamp);
        if let Some(record) = known {
            return Ok(record);
        }
        let read = record::read(&self.secret(revision).await?);
        let read =
            read.map_err(|why| ReconcileError::retry(format!("read revision {}: {why}", revision.secret)))?;
        let read = Arc::new(read);
        self.records.lock().insert(release, &revision.stamp, &read);
        Ok(read)
    }

    /// Returns the chart of a release that was not made for this object, but with another chart.
    async fn foreign(&self, pass: &Pass, revisions: &[Revision]) -> Result<Option<String>, ReconcileError> {
        let is_ours = |revision: &Revision| revision.of.as_deref() == Some(pass.uid());
        let Some(last) = revisions.last().filter(|last| !is_ours(last)) else { return Ok(None) };
        let chart = self.record(&pass.key, last).await?.chart.clone();
        Ok(Some(chart).filter(|chart| *chart != self.wiring.watch.chart.name))
    }

    /// Shows an error in the status.
    pub(super) async fn shown<T>(
        &self,
        pass: &mut Pass,
        result: Result<T, ReconcileError>,
    ) -> Result<T, ReconcileError> {
        if let Err(error) = &result
            && error.class() != "conflict"
        {
            self.write_status(pass, &News::Irreconcilable(&error.report())).await?;
        }
        result
    }

    fn rest(&self, key: &Key, inputs: &str) -> Option<Duration> {
        let attempts = self.attempts.lock();
        let attempts = attempts.get(key).filter(|attempts| attempts.inputs == inputs)?;
        let left = attempts.until.saturating_duration_since(self.wiring.clock.instant());
        Some(left).filter(|left| !left.is_zero())
    }

    fn rest_after(&self, key: &Key, inputs: &str) {
        let mut all = self.attempts.lock();
        let before =
            all.get(key).filter(|before| before.inputs == inputs).map_or(0, |before| before.failures);
        let until = self.wiring.clock.instant() + RESTS.delay(before);
        all.insert(
            key.clone(),
            Attempts { inputs: inputs.to_owned(), failures: before.saturating_add(1), until },
        );
    }

    pub(super) async fn write_status(&self, pass: &mut Pass, news: &News<'_>) -> Result<(), ReconcileError> {
        let (generation, now) = (pass.parent.meta().generation, self.wiring.clock.now());
        let after = status(&pass.value["status"], news, generation, now);
        let Some(patch) = status_patch(&pass.value["status"], &after) else { return Ok(()) };
        let patch = Patch::merge(&serde_json::json!({"metadata": {"uid": pass.uid()}, "status": patch}));
        self.patch_parent(pass, Subresource::Status, patch, "status").await
    }

    /// Uninstalls the release of an object that is being deleted, and lets the object go.
    async fn remove(&self, pass: &mut Pass) -> Result<Outcome, ReconcileError> {
        self.confirm(pass).await?;
        if check_name(pass.key.name()).is_err() {
            // There has never been a release.
            return self.let_go(pass).await;
        }
        let waits = pass.is_on(UNINSTALL_WAIT);
        for _ in 0..MAX_STEPS {
            let fresh = self.fresh(&pass.key).await;
            let revisions = self.shown(pass, fresh).await?;
            let foreign = self.foreign(pass, &revisions).await;
            if self.shown(pass, foreign).await?.is_some() {
                return self.let_go(pass).await;
            }
            let keeps_history = match plan_removal(&revisions, waits, self.wiring.clock.now()) {
                Removal::Done => return self.let_go(pass).await,
                Removal::Wait(left) => return self.wait_for_others(pass, left).await,
                Removal::Uninstall { keeps_history } => keeps_history,
                Removal::Gone(version) => {
                    let are_gone = self.are_gone(pass, &revisions, version).await;
                    if !self.shown(pass, are_gone).await? {
                        self.write_status(pass, &News::Uninstalled { waits: true }).await?;
                        return Ok(Outcome::CheckAfter(LOOK_AGAIN));
                    }
                    false
                }
            };
            let marks = self.marks(pass, &revisions, String::new(), None);
            let ran = self.run(pass, HelmVerb::Uninstall { keeps_history }, marks, Value::Null).await;
            if let Err(why) = ran {
                self.event(
                    pass,
                    EventType::Warning,
                    "ReleaseFailed",
                    format!("helm uninstall failed: {why}"),
                );
                self.write_status(pass, &News::Failed { reason: "UninstallError", why: &why }).await?;
                return Err(ReconcileError::retry(format!("helm uninstall {}: {why}", pass.key)));
            }
        }
        Ok(Outcome::Requeue)
    }

    async fn let_go(&self, pass: &mut Pass) -> Result<Outcome, ReconcileError> {
        self.write_status(pass, &News::Uninstalled { waits: false }).await?;
        for name in [FINALIZER, OLD_FINALIZER] {
            let Some(patch) = finalizer::removal(pass.parent.meta(), name) else { continue };
            let patched =
                self.wiring.client.patch(&self.wiring.kind, &pass.key, Subresource::None, patch).await;
            match patched {
                Ok(patched) => pass.parent = patched,
                Err(error) => {
                    let gone: Result<(), _> = Err(error);
                    gone.ignore_not_found().attempting(|| format!("remove the finalizer of {}", pass.key))?;
                }
            }
        }
        self.forget(&pass.key);
        Ok(Outcome::Settled)
    }
}

use ReleaseWiring as Wiring;

/// The index of Secrets by release.
pub(crate) const BY_RELEASE: &str = "hooks-release";

fn sorted(revisions: impl Iterator<Item = Revision>) -> Vec<Revision> {
    let mut revisions: Vec<Revision> = revisions.collect();
    revisions.sort_by_key(|revision| revision.version);
    revisions
}

/// Checks that an object can have a release of its name. Helm's records are labelled with it.
fn check_name(name: &str) -> Result<(), String> {
    let fits = |letter: char| matches!(letter, 'a'..='z' | '0'..='9' | '-' | '.');
    let is_name = name.starts_with(|letter: char| letter.is_ascii_alphanumeric()) && name.chars().all(fits);
    match is_name && name.len() <= MAX_NAME {
        true => Ok(()),
        false => Err(format!(
            "metadata.name: a release is named after it, so expected at most {MAX_NAME} lower-case letters, digits, '-' and '.'"
        )),
    }
}

fn after(period: Option<Duration>) -> Outcome {
    let period = period.filter(|period| !period.is_zero());
    period.map_or(Outcome::Settled, |period| Outcome::CheckAfter(period.max(LEAST_PERIOD)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_period_has_a_minimum() {
        let check = |period: Option<u64>, expected: Outcome| {
            assert_eq!(after(period.map(Duration::from_nanos)), expected, "{period:?}");
        };
        check(None, Outcome::Settled);
        check(Some(0), Outcome::Settled);
        check(Some(1), Outcome::CheckAfter(LEAST_PERIOD));
        check(Some(60_000_000_000), Outcome::CheckAfter(Duration::from_secs(60)));
    }

    #[test]
    fn a_release_has_a_name_that_is_no_flag() {
        let check = |name: &str, expected: bool| assert_eq!(check_name(name).is_ok(), expected, "{name}");
        check("shop", true);
        check("shop-1.eu", true);
        check(&"a".repeat(53), true);
        check(&"a".repeat(54), false);
        check("--kubeconfig=/x", false);
        check("system:node", false);
        check("", false);
    }
}
