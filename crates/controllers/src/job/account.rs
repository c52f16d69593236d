//! Counts a Job's pods, each exactly once. Pure.
//!
//! A finalizer keeps a finished pod until it is counted. First the pod's uid is recorded in the status
//! (`uncountedTerminatedPods`), then the finalizer is removed, then the record becomes a count. A crash between any two
//! steps leaves enough to continue: a record without a finalizer is counted, a finalizer with a record is removed, and
//! a pod with only a finalizer is recorded.

use std::collections::BTreeSet;

use jiff::Timestamp;

use super::assess::{Assessment, Ending};
use super::failure_policy::{Verdict, action, verdict};
use super::pod::Member;
use super::view::{JobStatus, SUSPENDED, Uncounted, announcing_condition_type, final_condition_type};
use crate::workload::condition::{Condition, whole_seconds};

/// The maximum number of pods recorded at once: about 20 KB of uids.
const MAX_RECORDED: usize = 500;

/// Pod counts after this step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) active: i32,
    pub(super) ready: i32,
    pub(super) terminating: i32,
}

/// The status to write before finalizers are removed, and the pods to release.
pub(super) struct Account<'a> {
    pub(super) status: JobStatus,
    /// Pods that are recorded or need no record.
    pub(super) release: Vec<&'a Member>,
    /// Uids of pods that are not counted yet, including those to be released.
    pub(super) waiting: BTreeSet<Box<str>>,
    /// Failure policy actions applied to failed pods among them.
    pub(super) handled: Vec<&'static str>,
    /// Whether the Job can finish once they are released.
    pub(super) is_last: bool,
}

/// A Job was suspended or resumed; reported by an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SuspensionChange {
    Suspended,
    Resumed,
}

impl SuspensionChange {
    /// The event's reason and message.
    pub(super) fn reason_and_message(self) -> (&'static str, &'static str) {
        match self {
            Self::Suspended => ("Suspended", "Job suspended"),
            Self::Resumed => ("Resumed", "Job resumed"),
        }
    }
}

/// Sets the Suspended condition. Returns the change, if any.
pub(super) fn update_suspension(
    status: &mut JobStatus,
    suspended: bool,
    now: Timestamp,
) -> Option<SuspensionChange> {
    let (truth, reason, message, change) = match suspended {
        true => ("True", "JobSuspended", "Job suspended", SuspensionChange::Suspended),
        false => ("False", "JobResumed", "Job resumed", SuspensionChange::Resumed),
    };
    if !status.ensure_condition(Condition::new(SUSPENDED, truth, reason, message, now).probed(now)) {
        return None;
    }
    if change == SuspensionChange::Resumed {
        // The active deadline runs from the resumption.
        status.start_time = Some(whole_seconds(now));
    }
    Some(change)
}

/// Records finished pods. `ending` is the Job's outcome, if it is over and all its pods are terminating.
pub(super) fn account<'a>(
    assessment: &Assessment<'a>,
    mut status: JobStatus,
    counts: Counts,
    ending: Option<&Ending>,
    now: Timestamp,
) -> Account<'a> {
    status.active = counts.active;
    status.ready = Some(counts.ready);
    status.terminating = Some(counts.terminating);
    let waiting: BTreeSet<Box<str>> =
        assessment.pods.iter().filter(|pod| pod.is_uncounted()).map(|pod| pod.uid().into()).collect();
    count_released(&mut status, &waiting);

    let Recorded { release, handled, is_last } = record_finished(assessment, &mut status, ending);
    if let Some(ending) = ending.filter(|ending| !ending.announced) {
        let Ending { success, reason, message, .. } = ending;
        status.conditions.push(
            Condition::new(announcing_condition_type(*success), "True", reason, message, now).probed(now),
        );
    }
    Account { status, release, waiting, handled, is_last }
}

struct Recorded<'a> {
    release: Vec<&'a Member>,
    handled: Vec<&'static str>,
    is_last: bool,
}

/// Records as many pods as fit in one status. Returns the pods to release and whether these are all.
fn record_finished<'a>(
    assessment: &Assessment<'a>,
    status: &mut JobStatus,
    ending: Option<&Ending>,
) -> Recorded<'a> {
    let recorded = assessment.job.status.uncounted_terminated_pods.clone().unwrap_or_default();
    let mut pods: Vec<_> = assessment.pods.iter().filter(|pod| pod.is_uncounted()).collect();
    if assessment.indexed.is_some() {
        pods.sort_by_key(|pod| pod.pod.index);
    }
    let policy = assessment.job.spec.pod_failure_policy.as_ref();
    let (mut release, mut handled, mut indexes, mut is_last) = (Vec::new(), Vec::new(), Vec::new(), true);
    for pod in pods.into_iter().filter(|pod| can_be_released(assessment, pod, ending.is_some())) {
        release.push(pod);
        let count_as = count_as(assessment, pod, &recorded, ending);
        if matches!(count_as, CountAs::Failed | CountAs::Ignored) {
            handled.extend(action(policy, &pod.pod));
        }
        match count_as {
            CountAs::Index(index) => indexes.push(index),
            CountAs::Succeeded => status.uncounted().succeeded.push(pod.uid().into()),
            CountAs::Failed => status.uncounted().failed.push(pod.uid().into()),
            CountAs::Ignored | CountAs::Counted => {}
        }
        let Uncounted { succeeded, failed } = status.uncounted();
        if indexes.len() + succeeded.len() + failed.len() >= MAX_RECORDED {
            is_last = false;
            break;
        }
    }
    if let Some(indexed) = &assessment.indexed {
        let succeeded = indexed.succeeded.with(indexes);
        status.succeeded = i32::try_from(succeeded.len()).unwrap_or(i32::MAX);
        status.completed_indexes = succeeded.to_string();
        status.failed_indexes = indexed.failed.as_ref().map(ToString::to_string);
    }
    status.uncounted();
    Recorded { release, handled, is_last }
}

/// Whether a pod's finalizer can be removed: it has finished, or its Job is over or being deleted. The last failed pod
/// of an index is kept until it is replaced.
fn can_be_released(assessment: &Assessment<'_>, pod: &Member, over: bool) -> bool {
    let job = assessment.job;
    if job.meta().is_being_deleted() || over || pod.has_succeeded() {
        return true;
    }
    let awaits_replacement = || {
        let index = pod.pod.index?;
        let last = assessment.indexed.as_ref()?.replaceable.get(&index)?;
        Some(last.uid() == pod.uid())
    };
    pod.has_failed(job.spec.replaces_only_failed()) && awaits_replacement() != Some(true)
}

/// How a released pod is counted.
enum CountAs {
    /// As a completed index, which needs no uid record.
    Index(usize),
    Succeeded,
    Failed,
    /// Not counted: the failure policy ignores it.
    Ignored,
    /// Already recorded, or not to be counted.
    Counted,
}

fn count_as(
    assessment: &Assessment<'_>,
    pod: &Member,
    recorded: &Uncounted,
    ending: Option<&Ending>,
) -> CountAs {
    let is_recorded = |uids: &[Box<str>]| uids.iter().any(|uid| **uid == *pod.uid());
    if pod.has_succeeded() && !is_recorded(&recorded.failed) {
        return match &assessment.indexed {
            Some(indexed) => match pod.pod.index {
                Some(index) if assessment.is_valid(pod) && !indexed.recorded.contains(index) => {
                    CountAs::Index(index)
                }
                _ => CountAs::Counted,
            },
            None if is_recorded(&recorded.succeeded) => CountAs::Counted,
            None => CountAs::Succeeded,
        };
    }
    // When a Job fails, all its unfinished pods fail with it.
    let failed =
        pod.has_failed(assessment.job.spec.replaces_only_failed()) || ending.is_some_and(|end| !end.success);
    let counts = || verdict(assessment.job.spec.pod_failure_policy.as_ref(), &pod.pod) != Verdict::Ignore;
    if !failed || is_recorded(&recorded.failed) || !assessment.is_valid(pod) {
        return CountAs::Counted;
    }
    if counts() { CountAs::Failed } else { CountAs::Ignored }
}

/// Turns the records of released pods into counts.
pub(super) fn count_released(status: &mut JobStatus, waiting: &BTreeSet<Box<str>>) {
    let Uncounted { succeeded, failed } = status.uncounted();
    let count = |uids: &mut Vec<Box<str>>| {
        let before = uids.len();
        uids.retain(|uid| waiting.contains(uid));
        i32::try_from(before - uids.len()).unwrap_or(i32::MAX)
    };
    let (succeeded, failed) = (count(succeeded), count(failed));
    status.succeeded = status.succeeded.saturating_add(succeeded);
    status.failed = status.failed.saturating_add(failed);
}

/// Sets the final condition if all pods have terminated and been counted. Returns whether it did.
pub(super) fn finish(status: &mut JobStatus, ending: &Ending, now: Timestamp) -> bool {
    let Uncounted { succeeded, failed } = status.uncounted();
    if !succeeded.is_empty() || !failed.is_empty() || status.terminating.is_some_and(|left| left > 0) {
        return false;
    }
    let Ending { success, reason, message, .. } = ending;
    let end = Condition::new(final_condition_type(*success), "True", reason, message, now).probed(now);
    if *success {
        status.completion_time = end.last_transition_time;
    }
    status.ensure_condition(end);
    true
}
