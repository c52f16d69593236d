//! Observe, plan, apply, then status and history.

use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;
use serde_json::value::RawValue;
use setpoint::client::{DeleteOptions, Optional, PropagationPolicy, Subresource};
use setpoint::metrics::Metrics;
use setpoint::owner::controller_ref;
use setpoint::reconcile::ErrorContext;
use setpoint::{
    Cached, Client, ClientError, Clock, EventType, Key, Kind, Labels, Lister, Object, Outcome, OwnerRef,
    ReconcileError, Reconciler, Recorder, UpdateBody,
};

use super::plan::{Never, NotNow, Start, active_jobs, excess, job_name, start};
use super::timing::next_in;
use super::view::{CronJob, CronJobStatus, JobRef};
use crate::job::Job;
use crate::workload::dependents::Dependents;
use crate::workload::pod_control::namespace_is_terminating;
use crate::workload::template::with_label;

/// The annotation with a Job's scheduled time.
const SCHEDULED_TIME: &str = "batch.kubernetes.io/cronjob-scheduled-timestamp";

/// Histogram buckets: 1 s, doubling nine times.
const SKEW_SECONDS: &[f64] = &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0];

pub(super) struct CronJobs {
    pub(super) client: Client,
    pub(super) recorder: Recorder,
    pub(super) clock: Clock,
    pub(super) metrics: Metrics,
    pub(super) kind: Kind,
    pub(super) jobs_kind: Kind,
    pub(super) listed: Lister<CronJob>,
    pub(super) jobs: Dependents<Job>,
}

impl Reconciler for CronJobs {
    type Key = Key;

    async fn reconcile(&self, key: &Key) -> Result<Outcome, ReconcileError> {
        let Some(cron_job) = self.listed.get(key)? else { return Ok(Outcome::Settled) };
        let jobs = self.jobs.controlled_by(&cron_job.meta().uid)?;
        let Some(mut status) = self.sync_active(&cron_job, &jobs).await? else {
            return Ok(Outcome::Requeue);
        };
        let started = self.start(&cron_job, &mut status).await;
        if status != cron_job.status {
            self.write_status(&cron_job, &status).await?;
        }
        // The status was written before, so deleted Jobs are already accounted for.
        self.clear_history(&cron_job, &jobs).await?;
        started
    }
}

impl CronJobs {
    /// Updates the status from its Jobs. `None` if the cache is known to be stale.
    async fn sync_active(
        &self,
        cron_job: &Cached<CronJob>,
        jobs: &[Cached<Job>],
    ) -> Result<Option<CronJobStatus>, ReconcileError> {
        let active_jobs = active_jobs(cron_job, jobs);
        let mut status = active_jobs.status;
        if !active_jobs.unexpected.is_empty() {
            let fresh = self.client.get(&self.kind, cron_job.key()).await;
            let fresh = fresh.attempting(format!("get cronjob {} uncached", cron_job.key()))?;
            let fresh = Cached::<CronJob>::new(fresh)?;
            for job in &active_jobs.unexpected {
                if fresh.status.has_active(&job.meta().uid) {
                    return Ok(None);
                }
                let message =
                    format!("Saw a job that the controller did not create or forgot: {}", job.meta().name);
                self.record(cron_job, EventType::Warning, "UnexpectedJob", message);
            }
        }
        for missing in &active_jobs.missing {
            let key = cron_job.key().sibling(&*missing.name);
            let found = self.client.get(&self.jobs_kind, &key).await.optional();
            if found.attempting(format!("get job {key} uncached"))?.is_none() {
                status.remove_active(&missing.uid);
                let message = format!("Active job went missing: {}", missing.name);
                self.record(cron_job, EventType::Normal, "MissingJob", message);
            }
        }
        for job in &active_jobs.ended {
            let (name, end) = (&job.meta().name, job.finished_as().unwrap_or_default());
            let message = format!("Saw completed job: {name}, condition: {end}");
            self.record(cron_job, EventType::Normal, "SawCompletedJob", message);
        }
        Ok(Some(status))
    }

    /// Starts a Job if one is due.
    async fn start(
        &self,
        cron_job: &Cached<CronJob>,
        status: &mut CronJobStatus,
    ) -> Result<Outcome, ReconcileError> {
        let now = self.clock.now();
        let decision = start(cron_job, status, now);
        let considered = !matches!(decision, Start::Never(Never::Inactive | Never::UnknownTimeZone(_)));
        if considered && cron_job.spec.zone_in_schedule() {
            let message = format!(
                "CRON_TZ or TZ used in schedule {:?} is not officially supported, see https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details",
                cron_job.spec.schedule
            );
            self.record(cron_job, EventType::Warning, "UnsupportedSchedule", message);
        }
        match decision {
            Start::Never(why) => {
                self.record_never(cron_job, why);
                Ok(Outcome::Settled)
            }
            Start::NotNow { why, next } => {
                self.record_not_now(cron_job, why);
                Ok(Outcome::CheckAfter(next))
            }
            Start::Now { time, too_many_missed, replace } => {
                if too_many_missed {
                    let message = "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew";
                    self.record(cron_job, EventType::Warning, "TooManyMissedTimes", message.into());
                }
                self.replace(cron_job, &replace, status).await?;
                self.start_job(cron_job, time, status).await
            }
        }
    }

    fn record_never(&self, cron_job: &Cached<CronJob>, why: Never) {
        match why {
            Never::Inactive => {}
            Never::UnknownTimeZone(zone) => {
                let message = format!("invalid timeZone: {zone:?}: unknown time zone {zone}");
                self.record(cron_job, EventType::Warning, "UnknownTimeZone", message);
            }
            Never::BadSchedule(reason, message) => self.record(cron_job, EventType::Warning, reason, message),
        }
    }

    fn record_not_now(&self, cron_job: &Cached<CronJob>, why: Option<NotNow>) {
        match why {
            None => {}
            Some(NotNow::TooLate { time }) => {
                let time = time.strftime("%a, %d %b %Y %H:%M:%S +0000");
                let message = format!("Missed scheduled time to start a job: {time}");
                self.record(cron_job, EventType::Warning, "MissSchedule", message);
            }
            Some(NotNow::AlreadyActive) => {
                let message =
                    "Not starting job because prior execution is running and concurrency policy is Forbid";
                self.record(cron_job, EventType::Normal, "JobAlreadyActive", message.into());
            }
        }
    }

    /// Deletes running Jobs (concurrency policy `Replace`).
    async fn replace(
        &self,
        cron_job: &Cached<CronJob>,
        jobs: &[JobRef],
        status: &mut CronJobStatus,
    ) -> Result<(), ReconcileError> {
        for job in jobs {
            let key = cron_job.key().sibling(&*job.name);
            self.delete(cron_job, &key, &job.uid).await.attempting(format!("replace job {key}"))?;
            status.remove_active(&job.uid);
        }
        Ok(())
    }

    async fn start_job(
        &self,
        cron_job: &Cached<CronJob>,
        time: Timestamp,
        status: &mut CronJobStatus,
    ) -> Result<Outcome, ReconcileError> {
        let name = job_name(&cron_job.meta().name, time);
        let owner = controller_ref(&self.kind, cron_job.meta());
        let body = NewJob::of(cron_job, &name, time, owner);
        let job = match self.client.create(&self.jobs_kind, cron_job.key().namespace(), &body).await {
            Ok(job) => {
                self.count_skew(time, &job);
                self.record(cron_job, EventType::Normal, "SuccessfulCreate", format!("Created job {name}"));
                job
            }
            Err(error) if error.is_already_exists() => {
                match self.get_own_job(cron_job, &name).await? {
                    // The name is taken by a Job of another owner.
                    None => return Ok(Outcome::Settled),
                    Some(job) => job,
                }
            }
            Err(error) => {
                if !namespace_is_terminating(&error) {
                    let message = format!("Error creating job: {error}");
                    self.record(cron_job, EventType::Warning, "FailedCreate", message);
                }
                return Err(error.into_reconcile_error(format!("create job {name} for {}", cron_job.key())));
            }
        };
        if !status.has_active(&job.meta().uid) {
            status.active.push(JobRef::to(job.meta()));
        }
        status.last_schedule_time = Some(time);
        Ok(Outcome::CheckAfter(self.next_in(cron_job)))
    }

    /// Records how late a Job was created.
    fn count_skew(&self, scheduled: Timestamp, job: &Object) {
        let Some(created) = job.meta().creation_timestamp else { return };
        let skew = created.duration_since(scheduled).as_secs_f64();
        let name = "cronjob_controller_job_creation_skew_duration_seconds";
        let help = "Seconds from a CronJob's scheduled time to the creation of its Job";
        self.metrics.observe(name, help, SKEW_SECONDS, &[], skew);
    }

    /// Returns the Job with a name if the CronJob controls it: created before a crash, or not in the cache yet.
    async fn get_own_job(
        &self,
        cron_job: &Cached<CronJob>,
        name: &str,
    ) -> Result<Option<Object>, ReconcileError> {
        let key = cron_job.key().sibling(name);
        let job = self.client.get(&self.jobs_kind, &key).await.attempting(format!("get job {key}"))?;
        Ok(Some(job).filter(|job| job.meta().is_controlled_by(&cron_job.meta().uid)))
    }

    fn next_in(&self, cron_job: &Cached<CronJob>) -> Duration {
        let schedule = cron_job.spec.parse_schedule();
        schedule.map_or(Duration::ZERO, |schedule| next_in(cron_job, &schedule, self.clock.now()))
    }

    async fn clear_history(
        &self,
        cron_job: &Cached<CronJob>,
        jobs: &[Cached<Job>],
    ) -> Result<(), ReconcileError> {
        for job in excess(cron_job, jobs).into_iter().filter(|job| !job.meta().is_being_deleted()) {
            let deleted = self.delete(cron_job, job.key(), &job.meta().uid).await;
            deleted.attempting(format!("delete old job {}", job.key()))?;
        }
        Ok(())
    }

    async fn delete(&self, cron_job: &Cached<CronJob>, job: &Key, uid: &str) -> Result<(), ClientError> {
        let delete =
            DeleteOptions { propagation: Some(PropagationPolicy::Background), ..DeleteOptions::of_uid(uid) };
        match self.client.delete(&self.jobs_kind, job, &delete).await {
            Err(error) if error.is_not_found() || error.is_conflict() => Ok(()),
            Err(error) => {
                self.record(cron_job, EventType::Warning, "FailedDelete", format!("Deleted job: {error}"));
                Err(error)
            }
            Ok(()) => {
                self.record(
                    cron_job,
                    EventType::Normal,
                    "SuccessfulDelete",
                    format!("Deleted job {}", job.name()),
                );
                Ok(())
            }
        }
    }

    async fn write_status(
        &self,
        cron_job: &Cached<CronJob>,
        status: &CronJobStatus,
    ) -> Result<(), ReconcileError> {
        let body = UpdateBody::of(cron_job.object()).set(&["status"], status);
        let written = self.client.update(&self.kind, cron_job.key(), Subresource::Status, &body).await;
        written.map(drop).attempting(format!("update the status of cronjob {}", cron_job.key()))
    }

    fn record(&self, cron_job: &Cached<CronJob>, event_type: EventType, reason: &str, message: String) {
        self.recorder.event(&self.kind, cron_job.object(), event_type, reason, message);
    }
}

/// The body of a new Job.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct NewJob<'a> {
    api_version: &'static str,
    kind: &'static str,
    metadata: NewMetadata<'a>,
    spec: &'a RawValue,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct NewMetadata<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "Labels::is_empty")]
    labels: &'a Labels,
    annotations: Labels,
    owner_references: [OwnerRef; 1],
}

impl<'a> NewJob<'a> {
    fn of(cron_job: &'a CronJob, name: &'a str, time: Timestamp, owner: OwnerRef) -> Self {
        let template = &cron_job.spec.job_template;
        let scheduled = match cron_job.spec.zone() {
            Some(zone) if cron_job.spec.time_zone.is_some() => {
                time.to_zoned(zone).strftime("%Y-%m-%dT%H:%M:%S%:z").to_string().replace("+00:00", "Z")
            }
            _ => time.to_string(),
        };
        Self {
            api_version: "batch/v1",
            kind: "Job",
            metadata: NewMetadata {
                name,
                labels: &template.metadata.labels,
                annotations: with_label(&template.metadata.annotations, SCHEDULED_TIME, &scheduled),
                owner_references: [owner],
            },
            spec: &template.spec,
        }
    }
}
