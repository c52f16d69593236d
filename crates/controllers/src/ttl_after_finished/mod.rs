//! TTL after finished: deletes finished Jobs after their TTL.
//!
//! Owns: the deletion of Jobs with `ttlSecondsAfterFinished`.
//! Watches: Jobs.
//! Writes: deletes Jobs (in the foreground, so that their pods are deleted first).
//! Metrics: `ttl_after_finished_controller_job_deletion_duration_seconds`.
//!
//! Invariants: a Job is deleted only if an uncached read confirms that its TTL has expired.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use setpoint::client::{DeleteOptions, Optional, PropagationPolicy};
use setpoint::metrics::Metrics;
use setpoint::reconcile::ErrorContext;
use setpoint::{
    Cached, Client, Clock, Context, Event, Key, Kind, Lister, Outcome, ReconcileError, Reconciler, Runnable,
};

use crate::flags::Flag;
use crate::job::Job;
use crate::registry::{Access, EVENTS, Entry, Options};
use crate::wiring;

pub(crate) const ENTRY: Entry = Entry {
    name: "ttl-after-finished-controller",
    aliases: &["ttl-after-finished"],
    on_by_default: true,
    gates: &[],
    summary: "deletes finished Jobs after their TTL",
    watches: &[Access::watch("batch", "jobs")],
    writes: &[Access::to("batch", "jobs", &["delete"]), EVENTS],
    default_workers: 5,
    build,
};

pub(crate) const FLAGS: &[Flag] = &[Flag::workers("concurrent-ttl-after-finished-syncs", &ENTRY, "5")];

fn build(context: &Context, options: &Options) -> Vec<Box<dyn Runnable>> {
    let jobs = context.informers.of::<Job>();
    let clock = context.runtime.clock.clone();
    let queue = wiring::queue(context, "ttl_jobs_to_delete");
    let wake = queue.clone();
    jobs.add_handler(move |event: &Event| {
        let job = event.object();
        if job.view::<Job>().is_ok_and(|job| expiry(job).is_some()) {
            wake.add(job.key().clone());
        }
    });
    let reconciler = Expiry {
        client: context.client.clone(),
        clock,
        metrics: context.metrics.clone(),
        kind: Kind::of::<Job>(),
        jobs: jobs.lister(),
    };
    let controller = wiring::controller(&ENTRY, options, queue, reconciler, [&jobs]);
    vec![Box::new(controller)]
}

struct Expiry {
    client: Client,
    clock: Clock,
    metrics: Metrics,
    kind: Kind,
    jobs: Lister<Job>,
}

impl Reconciler for Expiry {
    type Key = Key;

    async fn reconcile(&self, key: &Key) -> Result<Outcome, ReconcileError> {
        let Some(job) = self.jobs.get(key)? else { return Ok(Outcome::Settled) };
        if let Some(outcome) = not_yet(&job, self.clock.now()) {
            return Ok(outcome);
        }
        // The cache may not show a changed TTL.
        let fresh = self.client.get(&self.kind, key).await.optional();
        let Some(fresh) = fresh.attempting(format!("get job {key} before its deletion"))? else {
            return Ok(Outcome::Settled);
        };
        let fresh = Cached::<Job>::new(fresh)?;
        if let Some(outcome) = not_yet(&fresh, self.clock.now()) {
            return Ok(outcome);
        }
        let delete = DeleteOptions {
            propagation: Some(PropagationPolicy::Foreground),
            ..DeleteOptions::of_uid(fresh.meta().uid.to_string())
        };
        let deleted = self.client.delete(&self.kind, key, &delete).await.optional();
        deleted.attempting(format!("delete job {key}, whose TTL has expired"))?;
        if let Some(expiry) = expiry(&fresh) {
            self.count(self.clock.now().duration_since(expiry));
        }
        Ok(Outcome::Settled)
    }
}

/// Histogram buckets: 100 ms, doubling.
const LATE_SECONDS: &[f64] =
    &[0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 51.2, 102.4, 204.8, 409.6, 819.2];

impl Expiry {
    fn count(&self, late: SignedDuration) {
        let name = "ttl_after_finished_controller_job_deletion_duration_seconds";
        let help = "The time it took to delete the job since it became eligible for deletion";
        self.metrics.observe(name, help, LATE_SECONDS, &[], late.as_secs_f64());
    }
}

/// Returns the outcome if a Job is not to be deleted now, or `None` if it is.
fn not_yet(job: &Cached<Job>, now: Timestamp) -> Option<Outcome> {
    let Some(expiry) = expiry(job).filter(|_| !job.meta().is_being_deleted()) else {
        return Some(Outcome::Settled);
    };
    let left = Duration::try_from(expiry.duration_since(now)).ok().filter(|left| !left.is_zero());
    left.map(Outcome::CheckAfter)
}

/// Returns when a Job's TTL expires, if it has finished and has one.
fn expiry(job: &Job) -> Option<Timestamp> {
    let ttl = SignedDuration::from_secs(job.ttl_seconds_after_finished()?.into());
    job.finished_at()?.checked_add(ttl).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::workload::fixtures::{at, cached};

    #[test]
    fn a_job_is_deleted_when_its_ttl_expires() {
        let check =
            |ttl: Option<i32>, ended: Option<&str>, deleted: bool, now: i64, expected: Option<Outcome>| {
                let condition = ended
                    .map(|r#type| json!({"type": r#type, "status": "True", "lastTransitionTime": at(10)}));
                let deleted = deleted.then(|| at(1));
                let job: Value = json!({
                    "metadata": {"name": "j", "deletionTimestamp": deleted},
                    "spec": {"selector": {}, "template": {}, "ttlSecondsAfterFinished": ttl},
                    "status": {"conditions": condition.into_iter().collect::<Vec<_>>()},
                });
                assert_eq!(not_yet(&cached(job.clone()), at(now)), expected, "{job} at {now}");
            };
        let settled = Some(Outcome::Settled);
        check(None, Some("Complete"), false, 100, settled);
        check(Some(0), None, false, 100, settled);
        check(Some(0), Some("FailureTarget"), false, 100, settled);
        check(Some(0), Some("Complete"), true, 100, settled);
        check(Some(0), Some("Complete"), false, 10, None);
        check(Some(30), Some("Failed"), false, 15, Some(Outcome::CheckAfter(Duration::from_secs(25))));
        check(Some(30), Some("Failed"), false, 40, None);
    }
}
