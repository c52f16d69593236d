//! Assesses a Job: what has finished, what is left, and whether the Job is over. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use setpoint::Cached;

use super::backoff::Record;
use super::failure_policy::{Verdict, verdict};
use super::indexes::Indexes;
use super::pod::Member;
use super::view::{FAILURE_TARGET, Job, SUCCESS_CRITERIA_MET};
use crate::workload::condition;
use crate::workload::pod::Phase;

/// A Job and the state of its pods.
pub(super) struct Assessment<'a> {
    pub(super) job: &'a Cached<Job>,
    pub(super) pods: &'a [Member],
    pub(super) active: Vec<&'a Member>,
    /// Ready and terminating pods.
    pub(super) ready: i32,
    pub(super) terminating: i32,
    /// Succeeded pods, counted in the status or not.
    pub(super) succeeded: i32,
    /// Failed pods, counted or not, except those the failure policy ignores.
    pub(super) failed: i32,
    /// The state of indexes, for indexed Jobs.
    pub(super) indexed: Option<Indexed<'a>>,
    /// The backoff record, including new failures.
    pub(super) record: Record,
    /// The Job's outcome, if it is over.
    pub(super) ending: Option<Ending>,
    pub(super) start_time: Option<Timestamp>,
    /// The time left until the active deadline, if there is one.
    pub(super) deadline_in: Option<Duration>,
}

/// The state of a Job's indexes.
pub(super) struct Indexed<'a> {
    /// Completed indexes in the status.
    pub(super) recorded: Indexes,
    pub(super) succeeded: Indexes,
    /// Only for Jobs with a backoff limit per index.
    pub(super) failed: Option<Indexes>,
    /// The last failed pod of each index that awaits a replacement, which inherits its failure count.
    pub(super) replaceable: BTreeMap<usize, &'a Member>,
}

/// The outcome of a Job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ending {
    pub(super) success: bool,
    pub(super) reason: String,
    pub(super) message: String,
    /// Whether the status already announces it.
    pub(super) announced: bool,
}

impl Ending {
    fn new(success: bool, reason: &str, message: impl Into<String>) -> Self {
        Self { success, reason: reason.into(), message: message.into(), announced: false }
    }

    fn failure(reason: &str, message: &str) -> Self {
        Self::new(false, reason, message)
    }

    pub(super) fn completions_reached() -> Self {
        Self::new(true, "CompletionsReached", "Reached expected number of succeeded pods")
    }
}

impl<'a> Assessment<'a> {
    pub(super) fn of(job: &'a Cached<Job>, pods: &'a [Member], record: &Record, now: Timestamp) -> Self {
        let active: Vec<_> = pods.iter().filter(|pod| pod.is_active()).collect();
        let (succeeded, failed) = newly_ended(job, pods);
        let uncounted = job.status.uncounted_terminated_pods.clone().unwrap_or_default();
        let start_time = job.status.start_time.or_else(|| (!job.spec.is_suspended()).then_some(now));
        let policy = job.spec.pod_failure_policy.as_ref();
        let counting = failed.iter().filter(|pod| verdict(policy, &pod.pod) != Verdict::Ignore);
        let all_failed = add(job.status.failed, counting.count() + uncounted.failed.len());
        let mut assessment = Self {
            job,
            pods,
            ready: number(active.iter().filter(|pod| pod.pod.is_ready).count()),
            terminating: number(pods.iter().filter(|pod| pod.is_terminating()).count()),
            succeeded: add(job.status.succeeded, succeeded.len() + uncounted.succeeded.len()),
            failed: all_failed,
            active,
            indexed: None,
            record: record.after(&succeeded, &failed),
            ending: None,
            start_time,
            deadline_in: None,
        };
        assessment.ending = assessment.ending_of_all(now);
        if job.spec.is_indexed() {
            assessment.look_at_indexes();
        }
        assessment
    }

    /// Returns the outcome independent of indexes. An announced outcome stays.
    fn ending_of_all(&mut self, now: Timestamp) -> Option<Ending> {
        let (job, spec) = (self.job, &self.job.spec);
        if let Some(announced) = announced(job) {
            return Some(announced);
        }
        if let Some(message) = self.message_of_policy() {
            return Some(Ending::new(false, "PodFailurePolicy", message));
        }
        if self.failed > spec.backoff_limit || self.restarts_exceed_limit() {
            return Some(Ending::failure(
                "BackoffLimitExceeded",
                "Job has reached the specified backoff limit",
            ));
        }
        let (Some(deadline), Some(start), false) =
            (spec.active_deadline_seconds, self.start_time, spec.is_suspended())
        else {
            return None;
        };
        let left = SignedDuration::from_secs(deadline) - now.duration_since(start);
        match Duration::try_from(left) {
            Ok(left) if !left.is_zero() => {
                self.deadline_in = Some(left);
                None
            }
            _ => Some(Ending::failure("DeadlineExceeded", "Job was active longer than specified deadline")),
        }
    }

    fn message_of_policy(&self) -> Option<String> {
        let policy = self.job.spec.pod_failure_policy.as_ref()?;
        let only_when_ended = self.job.spec.replaces_only_failed();
        let failed = self.pods.iter().filter(|pod| pod.has_failed(only_when_ended));
        failed.into_iter().find_map(|pod| match verdict(Some(policy), &pod.pod) {
            Verdict::FailJob(message) => Some(message),
            _ => None,
        })
    }

    /// Whether containers restarted in place have exceeded the backoff limit.
    fn restarts_exceed_limit(&self) -> bool {
        let limit = self.job.spec.backoff_limit;
        let running = |pod: &&Member| matches!(pod.pod.phase, Phase::Running | Phase::Pending);
        let restarts = self.pods.iter().filter(running).map(|pod| pod.pod.restarts);
        let restarts = restarts.fold(0, i32::saturating_add);
        let too_many = if limit == 0 { restarts > 0 } else { restarts >= limit };
        too_many && self.job.spec.restarts_on_failure()
    }

    fn look_at_indexes(&mut self) {
        let spec = &self.job.spec;
        let indexed = Indexed::of(self.job, self.pods, &self.active);
        self.succeeded = number(indexed.succeeded.len());
        let policy = spec.success_policy.as_ref();
        self.ending =
            self.ending.take().or_else(|| indexed.failure(spec.max_failed_indexes, spec.indexes())).or_else(
                || {
                    let message = policy?.met(&indexed.succeeded, spec.indexes())?;
                    Some(Ending::new(true, "SuccessPolicy", message))
                },
            );
        self.indexed = Some(indexed);
    }

    /// Whether enough pods have succeeded and none is active.
    pub(super) fn is_complete(&self, active: i32) -> bool {
        let enough = match self.job.spec.completions {
            None => self.succeeded > 0,
            Some(completions) => self.succeeded >= completions,
        };
        enough && active == 0
    }

    /// Whether a pod has a valid index. True for all pods of non-indexed Jobs.
    pub(super) fn is_valid(&self, pod: &Member) -> bool {
        is_valid(self.job, pod)
    }
}

impl<'a> Indexed<'a> {
    fn of(job: &Job, pods: &'a [Member], active: &[&Member]) -> Self {
        let (spec, status) = (&job.spec, &job.status);
        let of_pods = |wanted: &dyn Fn(&Member) -> bool| -> Indexes {
            let tracked = pods.iter().filter(|pod| pod.tracked && is_valid(job, pod) && wanted(pod));
            tracked.filter_map(|pod| pod.pod.index).collect()
        };
        let recorded = Indexes::parse(&status.completed_indexes, spec.indexes());
        let succeeded = recorded.union(&of_pods(&|pod| pod.has_succeeded()));
        let failed = spec.backoff_limit_per_index.map(|limit| {
            let before = Indexes::parse(status.failed_indexes.as_deref().unwrap_or_default(), spec.indexes());
            before.union(&of_pods(&|pod| index_has_failed(job, pod, limit)))
        });
        let mut indexed = Self { recorded, succeeded, failed, replaceable: BTreeMap::new() };
        if indexed.failed.is_some() {
            indexed.replaceable = indexed.find_replaceable(job, pods, active);
        }
        indexed
    }

    fn find_replaceable(
        &self,
        job: &Job,
        pods: &'a [Member],
        active: &[&Member],
    ) -> BTreeMap<usize, &'a Member> {
        let active: BTreeSet<_> = active.iter().filter_map(|pod| pod.pod.index).collect();
        let only_when_ended = job.spec.replaces_only_failed();
        let mut last: BTreeMap<usize, &Member> = BTreeMap::new();
        for pod in pods
            .iter()
            .filter(|pod| pod.is_uncounted() && is_valid(job, pod) && pod.has_failed(only_when_ended))
        {
            let Some(index) = pod.pod.index else { continue };
            let settled = self.succeeded.contains(index) || self.has_failed(index) || active.contains(&index);
            let later = |known: &&Member| {
                (known.all_index_failures() <= pod.all_index_failures())
                    && known.finished_at() <= pod.finished_at()
            };
            if !settled && last.get(&index).is_none_or(later) {
                last.insert(index, pod);
            }
        }
        last
    }

    pub(super) fn has_failed(&self, index: usize) -> bool {
        self.failed.as_ref().is_some_and(|failed| failed.contains(index))
    }

    /// Returns the outcome due to failed indexes, if any.
    fn failure(&self, most: Option<i32>, all: usize) -> Option<Ending> {
        let failed = self.failed.as_ref()?.len();
        if most.is_some_and(|most| number(failed) > most) {
            let message = "Job has exceeded the specified maximal number of failed indexes";
            return Some(Ending::failure("MaxFailedIndexesExceeded", message));
        }
        let over = failed > 0 && failed + self.succeeded.len() >= all;
        over.then(|| Ending::failure("FailedIndexes", "Job has failed indexes"))
    }
}

/// Returns the outcome announced in the status.
fn announced(job: &Job) -> Option<Ending> {
    let ending = |r#type: &str, success: bool| {
        let condition = condition::find(&job.status.conditions, r#type).filter(|one| one.is_true())?;
        let Ending { reason, message, .. } =
            Ending::new(success, &condition.reason, condition.message.clone());
        Some(Ending { success, reason, message, announced: true })
    };
    ending(SUCCESS_CRITERIA_MET, true).or_else(|| ending(FAILURE_TARGET, false))
}

/// Returns the finished pods that are not counted yet: succeeded and failed.
fn newly_ended<'a>(job: &Job, pods: &'a [Member]) -> (Vec<&'a Member>, Vec<&'a Member>) {
    let uncounted = job.status.uncounted_terminated_pods.clone().unwrap_or_default();
    let (succeeded, failed): (BTreeSet<_>, BTreeSet<_>) =
        (uncounted.succeeded.into_iter().collect(), uncounted.failed.into_iter().collect());
    let only_when_ended = job.spec.replaces_only_failed();
    let new = |known: &BTreeSet<Box<str>>, ended: &dyn Fn(&Member) -> bool| {
        let new =
            pods.iter().filter(|pod| pod.is_uncounted() && !known.contains(pod.uid()) && is_valid(job, pod));
        new.filter(|pod| ended(pod)).collect()
    };
    (new(&succeeded, &|pod| pod.has_succeeded()), new(&failed, &|pod| pod.has_failed(only_when_ended)))
}

fn is_valid(job: &Job, pod: &Member) -> bool {
    !job.spec.is_indexed() || pod.pod.index.is_some_and(|index| index < job.spec.indexes())
}

fn index_has_failed(job: &Job, pod: &Member, limit: i32) -> bool {
    pod.has_failed(job.spec.replaces_only_failed())
        && match verdict(job.spec.pod_failure_policy.as_ref(), &pod.pod) {
            Verdict::FailIndex => true,
            Verdict::Ignore => false,
            Verdict::Count | Verdict::FailJob(_) => pod.pod.index_failures >= limit,
        }
}

fn number(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

fn add(to: i32, count: usize) -> i32 {
    to.saturating_add(number(count))
}
