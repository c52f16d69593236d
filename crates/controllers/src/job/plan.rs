//! Plans which pods to create and delete. Pure.

use std::cmp::Reverse;
use std::time::Duration;

use jiff::Timestamp;
use setpoint::Cached;

use super::assess::{Assessment, Indexed};
use super::backoff::remaining_for_index;
use super::indexes::Indexes;
use super::pod::Member;
use crate::workload::pod::{Pod, Readiness};

/// The maximum number of pods created or deleted in one step.
const MAX_PODS_PER_SYNC: usize = 500;

/// The next step for a Job's pods.
pub(super) enum Step<'a> {
    /// The Job is over: delete running pods, which stay until they are counted.
    End,
    /// Nothing may be created or deleted now.
    Hold,
    /// Delete these pods, without counting them.
    Remove(Vec<&'a Member>),
    /// Create this many pods.
    Create { count: usize },
    /// Create pods for these indexes.
    CreateIndexes(Vec<usize>),
    /// Create more pods after this time.
    Wait(Duration),
    /// Nothing to do.
    Keep,
}

pub(super) fn plan<'a>(assessment: &Assessment<'a>, caught_up: bool, now: Timestamp) -> Step<'a> {
    if assessment.ending.is_some() {
        return Step::End;
    }
    if !caught_up || assessment.job.meta().is_being_deleted() {
        return Step::Hold;
    }
    let active = assessment.active.len();
    if assessment.job.spec.is_suspended() {
        return removal(assessment, active, usize::MAX);
    }
    let wanted = wanted(assessment);
    match removal(assessment, active.saturating_sub(wanted), MAX_PODS_PER_SYNC) {
        Step::Keep => start(assessment, wanted, now),
        removal => removal,
    }
}

/// Returns how many pods should be active.
fn wanted(assessment: &Assessment<'_>) -> usize {
    let spec = &assessment.job.spec;
    let wanted = match spec.completions {
        // Without completions, no more pods start once one has succeeded.
        None if assessment.succeeded > 0 => return assessment.active.len(),
        None => spec.parallelism,
        Some(completions) => completions.saturating_sub(assessment.succeeded).min(spec.parallelism),
    };
    usize::try_from(wanted).unwrap_or(0)
}

/// Removes at least this many pods, and all duplicates of an index.
fn removal<'a>(assessment: &Assessment<'a>, at_least: usize, at_most: usize) -> Step<'a> {
    let (mut removed, mut left) = match assessment.indexed {
        Some(_) => superfluous(assessment),
        None => (Vec::new(), assessment.active.clone()),
    };
    if removed.len() < at_least {
        sort_by_rank(&mut left);
        removed.extend(left.into_iter().take(at_least - removed.len()));
    }
    removed.truncate(at_most);
    if removed.is_empty() { Step::Keep } else { Step::Remove(removed) }
}

/// Splits the active pods of an indexed Job into those with an invalid or duplicate index and the rest.
fn superfluous<'a>(assessment: &Assessment<'a>) -> (Vec<&'a Member>, Vec<&'a Member>) {
    let (mut pods, mut removed): (Vec<_>, Vec<_>) =
        assessment.active.iter().copied().partition(|pod| assessment.is_valid(pod));
    let mut left = Vec::new();
    sort_by_rank(&mut pods);
    pods.sort_by_key(|pod| pod.pod.index);
    for same in pods.chunk_by(|one, other| one.pod.index == other.pod.index) {
        if let [superfluous @ .., last] = same {
            removed.extend(superfluous);
            left.push(*last);
        }
    }
    (removed, left)
}

/// Sorts pods so that those that have made the least progress come first.
fn sort_by_rank(pods: &mut [&Member]) {
    pods.sort_by_cached_key(|member| {
        let meta = member.pod.meta();
        let facts = Cached::<Pod>::new(member.pod.object().clone());
        let facts = facts.as_deref().cloned().unwrap_or_default();
        let ready_since = match facts.readiness {
            Readiness::Ready { since } => since,
            Readiness::NotReady => None,
        };
        (
            (!facts.node.is_empty(), facts.phase, facts.readiness != Readiness::NotReady),
            (ready_since.is_some(), Reverse(ready_since), Reverse(facts.restarts)),
            (Reverse(meta.creation_timestamp), meta.uid.clone()),
        )
    });
}

fn start<'a>(assessment: &Assessment<'a>, wanted: usize, now: Timestamp) -> Step<'a> {
    let spec = &assessment.job.spec;
    let terminating = if spec.replaces_only_failed() { assessment.terminating } else { 0 };
    let terminating = usize::try_from(terminating).unwrap_or(0);
    let missing = wanted.saturating_sub(terminating).saturating_sub(assessment.active.len());
    if missing == 0 {
        return Step::Keep;
    }
    // With a backoff limit per index, each index has its own backoff.
    if spec.backoff_limit_per_index.is_none()
        && let Some(wait) = assessment.record.remaining(now)
    {
        return Step::Wait(wait);
    }
    let count = missing.min(MAX_PODS_PER_SYNC);
    match &assessment.indexed {
        None => Step::Create { count },
        Some(indexed) => start_indexes(indexed, pending(assessment, indexed, count), now),
    }
}

/// Returns the first indexes that have not finished and have no pod.
fn pending(assessment: &Assessment<'_>, indexed: &Indexed<'_>, count: usize) -> Vec<usize> {
    let spec = &assessment.job.spec;
    let occupied = assessment
        .pods
        .iter()
        .filter(|pod| pod.is_active() || (spec.replaces_only_failed() && pod.is_terminating()));
    let occupied: Indexes = occupied.filter_map(|pod| pod.pod.index).collect();
    let mut settled = indexed.succeeded.union(&occupied);
    if let Some(failed) = &indexed.failed {
        settled = settled.union(failed);
    }
    settled.first_missing(count, spec.indexes())
}

fn start_indexes<'a>(indexed: &Indexed<'_>, pending: Vec<usize>, now: Timestamp) -> Step<'a> {
    let wait = |index: &usize| indexed.replaceable.get(index).and_then(|pod| remaining_for_index(pod, now));
    let (due, waiting): (Vec<_>, Vec<_>) = pending.into_iter().partition(|index| wait(index).is_none());
    if !due.is_empty() {
        return Step::CreateIndexes(due);
    }
    waiting.iter().filter_map(wait).min().map_or(Step::Keep, Step::Wait)
}
