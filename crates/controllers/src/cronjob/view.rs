//! Typed view of a CronJob.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use setpoint::{LabelSelector, Labels, Metadata};
use setpoint_cron::{BadSchedule, Schedule, time_zone};

use crate::workload::owners::Owner;

#[derive(Clone, Debug, Deserialize)]
pub(super) struct CronJob {
    pub(super) spec: CronJobSpec,
    #[serde(default)]
    pub(super) status: CronJobStatus,
}

setpoint::view!(CronJob of k8s_openapi::api::batch::v1::CronJob);

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CronJobSpec {
    pub(super) schedule: Box<str>,
    #[serde(default)]
    pub(super) time_zone: Option<Box<str>>,
    #[serde(default)]
    pub(super) starting_deadline_seconds: Option<i64>,
    #[serde(default)]
    pub(super) concurrency_policy: Concurrency,
    #[serde(default)]
    pub(super) suspend: Option<bool>,
    pub(super) job_template: JobTemplate,
    #[serde(default)]
    pub(super) successful_jobs_history_limit: Option<i32>,
    #[serde(default)]
    pub(super) failed_jobs_history_limit: Option<i32>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub(super) enum Concurrency {
    #[default]
    Allow,
    Forbid,
    Replace,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct JobTemplate {
    #[serde(default)]
    pub(super) metadata: JobMetadata,
    pub(super) spec: Box<RawValue>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct JobMetadata {
    pub(super) labels: Labels,
    pub(super) annotations: Labels,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct CronJobStatus {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) active: Vec<JobRef>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) last_schedule_time: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) last_successful_time: Option<Timestamp>,
}

/// A Job that was started and not yet seen finished.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct JobRef {
    pub(super) kind: Box<str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) namespace: Option<Box<str>>,
    pub(super) name: Box<str>,
    pub(super) uid: Box<str>,
    pub(super) api_version: Box<str>,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(super) resource_version: Box<str>,
}

impl JobRef {
    pub(super) fn to(job: &Metadata) -> Self {
        Self {
            kind: "Job".into(),
            namespace: job.namespace.as_deref().map(Into::into),
            name: (&*job.name).into(),
            uid: job.uid.clone(),
            api_version: "batch/v1".into(),
            resource_version: job.resource_version.clone(),
        }
    }
}

/// Jobs are found by owner reference only: a CronJob has no selector.
impl Owner for CronJob {
    fn selector(&self) -> &LabelSelector {
        static NOTHING: std::sync::LazyLock<LabelSelector> = std::sync::LazyLock::new(LabelSelector::default);
        &NOTHING
    }
}

impl CronJobSpec {
    /// Whether the schedule itself contains a time zone, which is unsupported.
    pub(super) fn zone_in_schedule(&self) -> bool {
        self.schedule.contains("TZ")
    }

    /// Returns the time zone, or `None` if it is unknown.
    pub(super) fn zone(&self) -> Option<TimeZone> {
        time_zone(self.time_zone.as_deref().unwrap_or_default())
    }

    /// Parses the schedule in the CronJob's time zone.
    pub(super) fn parse_schedule(&self) -> Result<Schedule, BadSchedule> {
        match &self.time_zone {
            Some(zone) if !self.zone_in_schedule() && self.zone().is_some() => {
                format!("TZ={zone} {}", self.schedule).parse()
            }
            _ => self.schedule.parse(),
        }
    }
}

impl CronJobStatus {
    pub(super) fn has_active(&self, uid: &str) -> bool {
        self.active.iter().any(|job| *job.uid == *uid)
    }

    pub(super) fn remove_active(&mut self, uid: &str) {
        self.active.retain(|job| *job.uid != *uid);
    }
}
