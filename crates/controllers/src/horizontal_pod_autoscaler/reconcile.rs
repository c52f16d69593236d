//! Reads the target, measures, scales and writes the status.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Value, json};
use setpoint::client::Subresource;
use setpoint::discovery::Discovered;
use setpoint::reconcile::ErrorContext;
use setpoint::{
    Cached, Client, ClientError, Clock, EventType, Key, Kind, LabelSelector, Lister, Object, Outcome,
    ReconcileError, Reconciler, Recorder, UpdateBody,
};

use super::behavior::{Bounds, decide};
use super::history::History;
use super::measure::{Failure, MetricEvaluator, Reading, Subject};
use super::metrics::{Action, AutoscalerMetrics, ErrorKind};
use super::settings::{Settings, Tolerances};
use super::status::{ABLE, ACTIVE, LIMITED};
use super::view::{Hpa, HpaStatus, MetricSpec, ObjectRef};
use crate::served::Served;
use crate::workload::condition::whole_seconds;

/// How often a scale update is attempted on conflict.
const TRIES: usize = 5;

pub(super) struct Autoscaler {
    pub(super) client: Client,
    pub(super) clock: Clock,
    pub(super) recorder: Recorder,
    pub(super) served: Served,
    pub(super) hpas: Lister<Hpa>,
    pub(super) evaluator: MetricEvaluator,
    pub(super) metrics: AutoscalerMetrics,
    pub(super) settings: Settings,
    /// Whether autoscalers may configure their own tolerance.
    pub(super) own_tolerances: bool,
    /// One entry per autoscaler, dropped with it.
    pub(super) memory: Mutex<BTreeMap<Key, Memory>>,
}

/// In-memory state of an autoscaler.
#[derive(Default)]
pub(super) struct Memory {
    history: History,
    /// The target's pod selector.
    selector: Option<LabelSelector>,
}

/// The scale of a target.
struct Scale {
    kind: Kind,
    object: Object,
    spec_replicas: i32,
    status_replicas: i32,
    selector: String,
}

/// The recommended replicas, the metric that recommends them, and the metrics' status entries.
struct Recommendation {
    replicas: i32,
    by: String,
    statuses: Vec<Value>,
    /// Set if a metric could not be fetched.
    failure: Option<String>,
}

/// The scaling decision for the target.
struct Resolve {
    replicas: i32,
    reason: String,
    statuses: Vec<Value>,
    failure: Option<String>,
}

impl Reconciler for Autoscaler {
    type Key = Key;

    async fn reconcile(&self, key: &Key) -> Result<Outcome, ReconcileError> {
        let Some(hpa) = self.hpas.get(key)? else {
            self.memory.lock().remove(key);
            return Ok(Outcome::Settled);
        };
        let (start, mut action) = (self.clock.instant(), Action::None);
        let reconciled = self.reconcile_autoscaler(&hpa, &mut action).await;
        let error_kind = if reconciled.is_ok() { ErrorKind::None } else { ErrorKind::Internal };
        self.metrics.reconciled(action, error_kind, self.clock.instant() - start);
        reconciled.map(|()| Outcome::CheckAfter(self.settings.period))
    }
}

impl Autoscaler {
    async fn reconcile_autoscaler(
        &self,
        hpa: &Cached<Hpa>,
        action: &mut Action,
    ) -> Result<(), ReconcileError> {
        let mut status = hpa.status.clone();
        let scaled = self.scale_target(hpa, &mut status, action).await;
        self.write(hpa, &status).await?;
        scaled
    }

    /// Scales the target if needed, and updates the status.
    async fn scale_target(
        &self,
        hpa: &Cached<Hpa>,
        status: &mut HpaStatus,
        action: &mut Action,
    ) -> Result<(), ReconcileError> {
        let target = &hpa.spec.scale_target_ref;
        let reference =
            format!("{}/{}/{}", target.kind, hpa.key().namespace().unwrap_or_default(), target.name);
        let mut scale = match self.scale(hpa).await {
            Ok(scale) => scale,
            Err(why) => {
                let now = self.clock.now();
                let message =
                    format!("the HPA controller was unable to get the target's current scale: {why}");
                status.set_condition(ABLE, false, "FailedGetScale", message, now);
                self.event(hpa, EventType::Warning, "FailedGetScale", &why);
                let attempted = format!("failed to query scale subresource for {reference}: {why}");
                return Err(ReconcileError::retry(attempted));
            }
        };
        let message = "the HPA controller was able to get the target's current scale";
        status.set_condition(ABLE, true, "SucceededGetScale", message, self.clock.now());
        let current = scale.spec_replicas;
        self.remember(hpa.key(), |memory| memory.history.begin(current, self.clock.instant()));

        let resolve = match self.resolve(hpa, &scale, status).await {
            Ok(resolve) => resolve,
            Err(failure) => {
                status.current_replicas = current;
                self.event(hpa, EventType::Warning, "FailedComputeMetricsReplicas", &failure);
                return Err(ReconcileError::retry(format!(
                    "failed to compute desired number of replicas based on listed metrics for {reference}: {failure}"
                )));
            }
        };
        status.current_replicas = current;
        status.current_metrics = resolve.statuses;
        if resolve.replicas != current {
            self.rescale(hpa, &mut scale, status, resolve.replicas, &resolve.reason).await?;
            *action = Action::from(current, resolve.replicas);
        }
        status.desired_replicas = resolve.replicas;
        resolve.failure.map_or(Ok(()), |failure| Err(ReconcileError::retry(failure)))
    }

    /// Computes the target's replicas. Fails if no metric could be fetched.
    async fn resolve(
        &self,
        hpa: &Cached<Hpa>,
        scale: &Scale,
        status: &mut HpaStatus,
    ) -> Result<Resolve, String> {
        let (current, max) = (scale.spec_replicas, hpa.spec.max_replicas);
        let min = hpa.spec.min_replicas.unwrap_or(1);
        let plain = |replicas, reason: &str| Resolve {
            replicas,
            reason: reason.to_owned(),
            statuses: Vec::new(),
            failure: None,
        };
        if current == 0 && min != 0 {
            let message = "scaling is disabled since the replica count of the target is zero";
            status.set_condition(ACTIVE, false, "ScalingDisabled", message, self.clock.now());
            return Ok(plain(0, ""));
        }
        if current > max {
            return Ok(plain(max, "Current number of replicas above Spec.MaxReplicas"));
        }
        if current < min {
            return Ok(plain(min, "Current number of replicas below Spec.MinReplicas"));
        }
        let recommendation = self.measure(hpa, scale, status).await?;
        let reason = if recommendation.replicas > current {
            format!("{} above target", recommendation.by)
        } else {
            "All metrics below target".to_owned()
        };
        let decision = self.remember(hpa.key(), |memory| {
            let behavior = hpa.spec.behavior.as_ref();
            let bounds = Bounds { min, max, stable_before_down: self.settings.downscale_stabilization };
            decide(
                behavior,
                &mut memory.history,
                current,
                recommendation.replicas,
                bounds,
                self.clock.instant(),
            )
        });
        let now = self.clock.now();
        for (r#type, (holds, reason, message)) in [(ABLE, decision.able), (LIMITED, decision.limited)] {
            status.set_condition(r#type, holds, reason, message, now);
        }
        let Recommendation { statuses, failure, .. } = recommendation;
        Ok(Resolve { replicas: decision.replicas, reason, statuses, failure })
    }

    /// Evaluates all metrics. The highest recommendation wins.
    async fn measure(
        &self,
        hpa: &Cached<Hpa>,
        scale: &Scale,
        status: &mut HpaStatus,
    ) -> Result<Recommendation, String> {
        let selector = self.selector(hpa, scale, status)?;
        let subject = Subject {
            namespace: hpa.key().namespace().unwrap_or_default(),
            selector: &selector,
            spec_replicas: scale.spec_replicas,
            status_replicas: scale.status_replicas,
            tolerances: Tolerances::of(
                &self.settings,
                hpa.spec.behavior.as_ref().filter(|_| self.own_tolerances),
            ),
        };
        let mut recommendation =
            Recommendation { replicas: 0, by: String::new(), statuses: Vec::new(), failure: None };
        let (mut failures, mut first) = (0, None);
        for spec in &hpa.spec.metrics {
            match self.read(hpa, spec, &subject).await {
                Ok(reading) => {
                    recommendation.statuses.push(reading.status);
                    if recommendation.replicas == 0 || reading.replicas > recommendation.replicas {
                        (recommendation.replicas, recommendation.by) = (reading.replicas, reading.name);
                    }
                }
                Err(failure) => {
                    self.event(hpa, EventType::Warning, failure.reason, &failure.cause);
                    // A placeholder for the failed metric.
                    recommendation.statuses.push(json!({"type": ""}));
                    failures += 1;
                    first.get_or_insert(failure);
                }
            }
        }
        let (all, now) = (hpa.spec.metrics.len(), self.clock.now());
        if let Some(first) = first {
            let failure = format!(
                "invalid metrics ({failures} invalid out of {all}), first error is: {}",
                first.message
            );
            if failures == all || recommendation.replicas < scale.spec_replicas {
                let message = format!("the HPA was unable to compute the replica count: {}", first.cause);
                status.set_condition(ACTIVE, false, first.reason, message, now);
                status.current_metrics = recommendation.statuses;
                return Err(failure);
            }
            recommendation.failure = Some(failure);
        }
        let message =
            format!("the HPA was able to successfully calculate a replica count from {}", recommendation.by);
        status.set_condition(ACTIVE, true, "ValidMetricFound", message, now);
        Ok(recommendation)
    }

    /// Evaluates a metric and records the result.
    async fn read(
        &self,
        hpa: &Cached<Hpa>,
        spec: &MetricSpec,
        subject: &Subject<'_>,
    ) -> Result<Reading, Failure> {
        let start = self.clock.instant();
        let read = self.evaluator.read(spec, subject).await;
        let (action, error_kind) = match &read {
            Ok(reading) => (Action::from(hpa.status.current_replicas, reading.replicas), ErrorKind::None),
            Err(failure) if failure.is_of_spec() => (Action::None, ErrorKind::Spec),
            Err(_) => (Action::None, ErrorKind::Internal),
        };
        self.metrics.computed(&spec.r#type, action, error_kind, self.clock.instant() - start);
        read
    }

    /// Returns the target's selector. No other autoscaler's target may select the same pods.
    fn selector(
        &self,
        hpa: &Cached<Hpa>,
        scale: &Scale,
        status: &mut HpaStatus,
    ) -> Result<LabelSelector, String> {
        let now = self.clock.now();
        let mut refuse = |event: &str, reason: &str, message: &str, condition: &str| {
            self.event(hpa, EventType::Warning, event, message);
            status.set_condition(ACTIVE, false, reason, condition, now);
            status.current_metrics = Vec::new();
            Err(message.to_owned())
        };
        if scale.selector.is_empty() {
            let condition = "the HPA target's scale is missing a selector";
            return refuse("SelectorRequired", "InvalidSelector", "selector is required", condition);
        }
        let selector: LabelSelector = match scale.selector.parse() {
            Ok(selector) => selector,
            Err(error) => {
                let message = format!(
                    "couldn't convert selector into a corresponding internal selector object: {error}"
                );
                return refuse("InvalidSelector", "InvalidSelector", &message, &message);
            }
        };
        let others = self.conflicting_autoscalers(hpa.key(), &selector);
        if !others.is_empty() {
            let names: Vec<String> = others.iter().chain([hpa.key()]).map(Key::to_string).collect();
            let message = format!(
                "pods by selector {} are controlled by multiple HPAs: [{}]",
                scale.selector,
                names.join(" ")
            );
            return refuse("AmbiguousSelector", "AmbiguousSelector", &message, &message);
        }
        Ok(selector)
    }

    /// Lists other autoscalers whose targets select some of the same pods.
    fn conflicting_autoscalers(&self, key: &Key, selector: &LabelSelector) -> Vec<Key> {
        let pods = self.evaluator.pods.list(key.namespace());
        let selected: Vec<_> = pods.iter().filter(|pod| selector.matches(&pod.meta().labels)).collect();
        let mut memory = self.memory.lock();
        memory.entry(key.clone()).or_default().selector = Some(selector.clone());
        let shares = |(other, memory): (&Key, &Memory)| {
            let theirs = memory.selector.as_ref()?;
            let rival = other != key && other.namespace() == key.namespace();
            (rival && selected.iter().any(|pod| theirs.matches(&pod.meta().labels))).then(|| other.clone())
        };
        memory.iter().filter_map(shares).collect()
    }

    /// Scales the target.
    async fn rescale(
        &self,
        hpa: &Cached<Hpa>,
        scale: &mut Scale,
        status: &mut HpaStatus,
        wanted: i32,
        reason: &str,
    ) -> Result<(), ReconcileError> {
        let (current, now) = (scale.spec_replicas, self.clock.now());
        if let Err(error) = self.set_replicas(scale, wanted).await {
            let message = format!("New size: {wanted}; reason: {reason}; error: {error}");
            self.event(hpa, EventType::Warning, "FailedRescale", &message);
            let message = format!("the HPA controller was unable to update the target scale: {error}");
            status.set_condition(ABLE, false, "FailedUpdateScale", message, now);
            return Err(error.into_reconcile_error(format!("failed to rescale for {}", hpa.key())));
        }
        let message = format!("the HPA controller was able to update the target scale to {wanted}");
        status.set_condition(ABLE, true, "SucceededRescale", message, now);
        status.last_scale_time = Some(whole_seconds(now));
        let message = format!("New size: {wanted}; reason: {reason}");
        self.event(hpa, EventType::Normal, "SuccessfulRescale", &message);
        self.remember(hpa.key(), |memory| memory.history.scaled(current, wanted, self.clock.instant()));
        Ok(())
    }

    async fn set_replicas(&self, scale: &mut Scale, wanted: i32) -> Result<(), ClientError> {
        let key = scale.object.key().clone();
        for tried in 1..=TRIES {
            let body = UpdateBody::of(&scale.object).set(&["spec", "replicas"], &wanted);
            match self.client.update(&scale.kind, &key, Subresource::Scale, &body).await {
                Err(error) if error.is_conflict() && tried < TRIES => {
                    scale.object = self.client.get_subresource(&scale.kind, &key, Subresource::Scale).await?;
                }
                updated => return updated.map(drop),
            }
        }
        Ok(())
    }

    /// Reads the target's scale, in any served version of its kind.
    async fn scale(&self, hpa: &Cached<Hpa>) -> Result<Scale, String> {
        let target = &hpa.spec.scale_target_ref;
        let served = self.served.get().await.map_err(|error| error.to_string())?;
        let kinds = kinds_of(&served, target);
        if kinds.is_empty() {
            return Err(format!("no matches for kind {:?} in group {:?}", target.kind, target.group()));
        }
        let mut first = None;
        for kind in kinds {
            let key = hpa.key().sibling(target.name.as_str());
            match self.client.get_subresource(&kind, &key, Subresource::Scale).await {
                Ok(object) => return Ok(Scale::of(kind, object)),
                Err(error) => _ = first.get_or_insert(error.to_string()),
            }
        }
        Err(first.unwrap_or_else(|| "unrecognized resource".to_owned()))
    }

    /// Writes the status if it changed.
    async fn write(&self, hpa: &Cached<Hpa>, status: &HpaStatus) -> Result<(), ReconcileError> {
        if hpa.status == *status {
            return Ok(());
        }
        let body = UpdateBody::of(hpa.object()).set(&["status"], status);
        let written = self.client.update(&Kind::of::<Hpa>(), hpa.key(), Subresource::Status, &body).await;
        if let Err(error) = &written {
            self.event(hpa, EventType::Warning, "FailedUpdateStatus", &error.to_string());
        }
        written.map(drop).attempting(format!("failed to update status for {}", hpa.key().name()))
    }

    fn remember<T>(&self, key: &Key, with: impl FnOnce(&mut Memory) -> T) -> T {
        with(self.memory.lock().entry(key.clone()).or_default())
    }

    fn event(&self, hpa: &Cached<Hpa>, event_type: EventType, reason: &str, message: &str) {
        self.recorder.event(&Kind::of::<Hpa>(), hpa.object(), event_type, reason, message);
    }
}

/// Lists the served versions of a target's kind.
fn kinds_of(served: &Discovered, target: &ObjectRef) -> Vec<Kind> {
    let all = served.resources().iter().map(|resource| &resource.kind);
    all.filter(|kind| kind.kind() == target.kind && kind.group() == target.group()).cloned().collect()
}

impl Scale {
    fn of(kind: Kind, object: Object) -> Self {
        #[derive(Deserialize, Default)]
        #[serde(default)]
        struct Encoded {
            spec: Replicas,
            status: Replicas,
        }
        #[derive(Deserialize, Default)]
        #[serde(default)]
        struct Replicas {
            replicas: i32,
            selector: String,
        }
        let Encoded { spec, status } = object.decode().unwrap_or_default();
        Self {
            kind,
            object,
            spec_replicas: spec.replicas,
            status_replicas: status.replicas,
            selector: status.selector,
        }
    }
}
