//! Observe, assess, plan, apply, then count.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::future::join_all;
use jiff::Timestamp;
use setpoint::batch::{SlowStartResult, slow_start};
use setpoint::client::Subresource;
use setpoint::owner::controller_ref;
use setpoint::reconcile::ErrorContext;
use setpoint::{
    Cached, Client, ClientError, Clock, EventType, Key, Kind, Object, Outcome, ReconcileError, Reconciler,
    Recorder, UpdateBody,
};

use super::Tracker;
use super::account::{Account, Counts, account, count_released, finish, update_suspension};
use super::assess::{Assessment, Ending};
use super::bodies::{IndexedTemplates, name_prefix, tracked};
use super::metrics::Action;
use super::observe::{Observed, Observer};
use super::orphans::FinalizerRemoval;
use super::plan::{Step, plan};
use super::pod::{JobPod, Member};
use super::view::{CompletionMode, Job, JobStatus, TRACKING};
use crate::workload::claims::{Claimant, Claims};
use crate::workload::condition::whole_seconds;
use crate::workload::pod_control::{PodControl, namespace_is_terminating};

/// The size of the first batch of creations. It doubles after each successful batch.
const SLOW_START: usize = 1;

/// The minimum delay before a Job in backoff is checked again.
const SHORTEST_WAIT: Duration = Duration::from_secs(1);

pub(super) struct Jobs {
    pub(super) client: Client,
    pub(super) recorder: Recorder,
    pub(super) clock: Clock,
    pub(super) kind: Kind,
    pub(super) observer: Observer,
    pub(super) tracker: Tracker,
    pub(super) pod_control: PodControl,
    pub(super) finalizer_removal: FinalizerRemoval,
}

/// The result of a step.
#[derive(Default)]
struct Applied {
    counts: Counts,
    /// Whether the pods are as planned, as far as this step could achieve.
    managed: bool,
    /// The Job's outcome, if it is over and all its pods are terminating.
    ending: Option<Ending>,
    /// When to continue.
    wait: Option<Duration>,
    failure: Option<ClientError>,
}

impl Reconciler for Jobs {
    type Key = Key;

    async fn reconcile(&self, key: &Key) -> Result<Outcome, ReconcileError> {
        let Some(job) = self.observer.job(key)? else {
            self.tracker.expectations.forget(key);
            self.tracker.memory.forget(key);
            self.tracker.records.forget(key);
            self.tracker.throttle.forget(key);
            return Ok(Outcome::Settled);
        };
        if (self.tracker.respects_managed_by && job.is_managed_elsewhere())
            || job.is_finished()
            || self.tracker.memory.is_newer_than(key, job.meta())
        {
            return Ok(Outcome::Settled);
        }
        if let CompletionMode::Unknown(_) = job.spec.completion_mode {
            let message = "Skipped Job sync because completion mode is unknown";
            self.record(&job, EventType::Warning, "UnknownCompletionMode", message);
            return Ok(Outcome::Settled);
        }
        self.tracker.throttle.reconciled(key);
        let began = self.clock.instant();
        let mut action = Action::Reconciling;
        let reconciled = self.sync(&job, &mut action).await;
        let took = self.clock.instant().duration_since(began);
        self.tracker.metrics.count_sync(&job, action, reconciled.is_ok(), took);
        reconciled
    }
}

fn next_check(backoff: Option<Duration>, deadline: Option<Duration>) -> Outcome {
    let backoff = backoff.map(|wait| wait.max(SHORTEST_WAIT));
    backoff.into_iter().chain(deadline).min().map_or(Outcome::Settled, Outcome::CheckAfter)
}

impl Jobs {
    /// Reconciles an unfinished Job. `action` is set to what was done, as far as it got.
    async fn sync(&self, job: &Cached<Job>, action: &mut Action) -> Result<Outcome, ReconcileError> {
        let key = job.key();
        let observed = self.observer.observe(job)?;
        let caught_up = observed.caught_up;
        let pods = self.claim(job, observed).await?;

        let now = self.clock.now();
        let assessment = Assessment::of(job, &pods, &self.tracker.records.of(key), now);
        let step = plan(&assessment, caught_up, now);
        *action = Action::of(&step, &job.spec);
        let mut applied = self.apply(&assessment, step, caught_up).await;
        if applied.ending.is_none()
            && assessment.ending.is_none()
            && assessment.is_complete(applied.counts.active)
        {
            applied.ending = Some(Ending::completions_reached());
        }
        self.count(&assessment, &applied, self.clock.now()).await?;
        match applied.failure {
            Some(error) => Err(error.into_reconcile_error(format!("manage the pods of job {key}"))),
            None => Ok(next_check(applied.wait, assessment.deadline_in)),
        }
    }

    async fn claim(&self, job: &Cached<Job>, observed: Observed) -> Result<Vec<Member>, ReconcileError> {
        let claims = Claims::of(job.meta(), &job.spec.selector, observed.pods, |_| true);
        let adopted: BTreeSet<Box<str>> = claims.adopt.iter().map(|pod| pod.meta().uid.clone()).collect();
        let claimant = Claimant { kind: &self.kind, owner: job.object(), finalizer: Some(TRACKING) };
        let pods = claims.carry_out(&self.client, &claimant).await?;
        let member = |pod: Cached<JobPod>| {
            let uid = &pod.meta().uid;
            let (adopted, released) = (adopted.contains(uid), observed.released.contains(uid));
            let mut member = Member::of(pod, released);
            member.tracked |= adopted;
            member
        };
        Ok(pods.into_iter().map(member).collect())
    }

    async fn apply(&self, assessment: &Assessment<'_>, step: Step<'_>, caught_up: bool) -> Applied {
        let counts = Counts {
            active: number(assessment.active.len()),
            ready: assessment.ready,
            terminating: assessment.terminating,
        };
        let still = Applied { counts, managed: true, ..Applied::default() };
        match step {
            Step::End => self.end(assessment, caught_up, counts).await,
            Step::Hold => Applied { managed: false, ..still },
            Step::Keep => still,
            Step::Wait(wait) => Applied { wait: Some(wait), ..still },
            Step::Remove(pods) => self.remove(assessment, &pods, still).await,
            Step::Create { count } => self.create(assessment, count, still).await,
            Step::CreateIndexes(indexes) => self.create_indexes(assessment, &indexes, still).await,
        }
    }

    /// Deletes running pods. Their finalizers stay, so that they are counted.
    async fn end(&self, assessment: &Assessment<'_>, caught_up: bool, counts: Counts) -> Applied {
        let job = assessment.job.object();
        let deletions = assessment.active.iter().map(|member| async move {
            self.pod_control.delete(job, member.pod.object()).await.map(|_| *member)
        });
        let (counts, failure) = after_deletion(counts, join_all(deletions).await);
        // Pods missing from the cache may still run.
        let ending = assessment.ending.clone().filter(|_| failure.is_none() && caught_up);
        Applied { counts, ending, failure, ..Applied::default() }
    }

    /// Deletes pods without counting them.
    async fn remove(&self, assessment: &Assessment<'_>, pods: &[&Member], still: Applied) -> Applied {
        let job = assessment.job;
        let uids = pods.iter().map(|member| member.uid().to_owned());
        self.tracker.expectations.expect_deletions(job.key(), uids);
        let deletions = pods.iter().map(|member| async move {
            let pod = member.pod.object();
            let released = if member.tracked { self.finalizer_removal.release(pod).await } else { Ok(()) };
            let deleted = match released {
                Ok(()) => self.pod_control.delete(job.object(), pod).await,
                Err(error) => Err(error),
            };
            if !matches!(deleted, Ok(true)) {
                // Failed deletions will not be observed.
                self.tracker.expectations.deletion_observed(job.key(), member.uid());
            }
            deleted.map(|_| *member)
        });
        let (counts, failure) = after_deletion(still.counts, join_all(deletions).await);
        Applied { counts, failure, ..still }
    }

    async fn create(&self, assessment: &Assessment<'_>, count: usize, still: Applied) -> Applied {
        let (job, template) = (assessment.job, tracked(assessment.job));
        let owner = controller_ref(&self.kind, job.meta());
        self.tracker.expectations.expect_creations(job.key(), count);
        let started =
            slow_start(count, SLOW_START, |_| self.pod_control.create(job.object(), &owner, &template)).await;
        self.created(assessment, count, started, still)
    }

    async fn create_indexes(
        &self,
        assessment: &Assessment<'_>,
        indexes: &[usize],
        still: Applied,
    ) -> Applied {
        let (job, Some(indexed)) = (assessment.job, &assessment.indexed) else { return still };
        let templates = IndexedTemplates::of(job);
        let name = &*job.meta().name;
        let owner = controller_ref(&self.kind, job.meta());
        self.tracker.expectations.expect_creations(job.key(), indexes.len());
        let started = slow_start(indexes.len(), SLOW_START, |nth| {
            let index = indexes[nth];
            let (template, prefix) = (templates.pod(name, job, indexed, index), name_prefix(name, index));
            let owner = &owner;
            async move { self.pod_control.create_named(job.object(), owner, &template, &prefix).await }
        });
        let started = started.await;
        self.created(assessment, indexes.len(), started, still)
    }

    fn created(
        &self,
        assessment: &Assessment<'_>,
        wanted: usize,
        started: SlowStartResult<ClientError>,
        still: Applied,
    ) -> Applied {
        let (job, SlowStartResult { succeeded, failed, failure }) = (assessment.job, started);
        // Failed and skipped creations will not be observed.
        self.tracker.expectations.creations_observed(job.key(), wanted - succeeded);
        let again = (assessment.failed > 0, assessment.terminating > 0);
        let active = still.counts.active.saturating_add(number(succeeded));
        let failure = failure.filter(|error| !namespace_is_terminating(error));
        self.tracker.metrics.pods_created(job, again, succeeded, if failure.is_some() { failed } else { 0 });
        Applied { counts: Counts { active, ..still.counts }, failure, ..still }
    }

    /// Records, releases and counts finished pods, and sets the final condition when the Job is over.
    async fn count(
        &self,
        assessment: &Assessment<'_>,
        applied: &Applied,
        now: Timestamp,
    ) -> Result<(), ReconcileError> {
        let job = assessment.job;
        let mut status = job.status.clone();
        status.start_time = assessment.start_time.map(whole_seconds);
        let suspension = match (applied.managed, &applied.ending) {
            (true, None) => update_suspension(&mut status, job.spec.is_suspended(), now),
            _ => None,
        };
        let account = account(assessment, status, applied.counts, applied.ending.as_ref(), now);
        let mut object = job.object().clone();
        if account.status != job.status {
            object = self.write_status(&object, &account.status).await?;
            self.tracker.records.keep(job.key(), assessment.record.clone());
            self.tracker.metrics.counted(job, &job.status, &account.status);
        }
        self.tracker.metrics.handled_by_policy(&account.handled);
        if let Some((reason, message)) = suspension.map(|change| change.reason_and_message()) {
            self.record(job, EventType::Normal, reason, message);
        }
        self.settle(job, &object, account, applied.ending.as_ref(), now).await
    }

    /// The second half of counting, after the records are written.
    async fn settle(
        &self,
        job: &Cached<Job>,
        object: &Object,
        account: Account<'_>,
        ending: Option<&Ending>,
        now: Timestamp,
    ) -> Result<(), ReconcileError> {
        let Account { status: recorded, release, mut waiting, is_last, .. } = account;
        let failure = self.release(job.key(), &release, &mut waiting).await;
        let mut status = recorded.clone();
        count_released(&mut status, &waiting);
        let finished = match ending {
            Some(ending) if is_last && failure.is_none() => finish(&mut status, ending, now),
            _ => false,
        };
        if status != recorded {
            self.write_status(object, &status).await?;
            self.tracker.metrics.counted(job, &recorded, &status);
        }
        if let (true, Some(ending)) = (finished, ending) {
            self.record_end(job, &status, ending);
            self.tracker.metrics.ended(job, ending);
        }
        match failure {
            Some(error) => {
                Err(error.into_reconcile_error(format!("release counted pods of job {}", job.key())))
            }
            None => Ok(()),
        }
    }

    /// Removes the finalizers of recorded pods, and removes those pods from `waiting`. Returns the first error.
    async fn release(
        &self,
        job: &Key,
        pods: &[&Member],
        waiting: &mut BTreeSet<Box<str>>,
    ) -> Option<ClientError> {
        self.tracker.memory.release(job, pods.iter().map(|member| member.uid().into()));
        let releases = pods.iter().map(|member| async move {
            let released = self.finalizer_removal.release(member.pod.object()).await;
            if released.is_err() {
                self.tracker.memory.release_observed(job, member.uid());
            }
            (member.uid(), released)
        });
        let mut failure = None;
        for (uid, released) in join_all(releases).await {
            match released {
                Ok(()) => _ = waiting.remove(uid),
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        failure
    }

    fn record_end(&self, job: &Cached<Job>, status: &JobStatus, ending: &Ending) {
        if !ending.success {
            return self.record(job, EventType::Warning, &ending.reason, &ending.message);
        }
        if job.spec.completions.is_some_and(|completions| status.succeeded > completions) {
            let message = "Too many succeeded pods running after completion count reached";
            self.record(job, EventType::Warning, "TooManySucceededPods", message);
        }
        self.record(job, EventType::Normal, "Completed", "Job completed");
    }

    async fn write_status(&self, object: &Object, status: &JobStatus) -> Result<Object, ReconcileError> {
        let body = UpdateBody::of(object).set(&["status"], status);
        let written = self.client.update(&self.kind, object.key(), Subresource::Status, &body).await;
        let written = written.attempting(format!("update the status of job {}", object.key()))?;
        self.tracker.memory.record_write(&written);
        Ok(written)
    }

    fn record(&self, job: &Cached<Job>, event_type: EventType, reason: &str, message: &str) {
        self.recorder.event(&self.kind, job.object(), event_type, reason, message);
    }
}

/// Returns the counts after these pods were deleted, and the first error.
fn after_deletion(
    mut counts: Counts,
    deletions: Vec<Result<&Member, ClientError>>,
) -> (Counts, Option<ClientError>) {
    let mut failure = None;
    for deletion in deletions {
        match deletion {
            Ok(member) => {
                counts.active -= 1;
                counts.terminating += 1;
                counts.ready -= i32::from(member.pod.is_ready);
            }
            Err(error) => failure = failure.or(Some(error)),
        }
    }
    (counts, failure)
}

fn number(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}
