//! Jobs, CronJobs, and Jobs that expire.

use std::time::Duration;

use futures::FutureExt;
use futures::future::LocalBoxFuture;
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::core::v1::{Pod, ResourceQuota};
use serde_json::{Value, json};
use setpoint::Kind;
use setpoint::client::PropagationPolicy;
use setpoint_cluster::Components;
use setpoint_sim::{History, World};
use setpoint_store::EventKind;

use super::{delete, gone, is_leaving, pods, runs, runs_with, set_status};
use crate::sets::cronjob::{cron_job, set_clocks};
use crate::sets::job::{counted_once, failed, job};
use crate::sets::scenarios::{anything, count, create, holds, parts, patch, tolerates_staleness, until};

/// A Job whose pods run until they are stopped.
fn endless(spec: Value) -> Value {
    let mut endless = job(spec, "0");
    endless["spec"]["template"]["metadata"]["annotations"] = json!({"node.setpoint.dev/run-for": "forever"});
    endless
}

/// A running Job is deleted: its pods are released.
pub(crate) fn deleted_in_background(world: &World) -> LocalBoxFuture<'_, ()> {
    async move {
        create::<Job>(world, "work", endless(json!({}))).await;
        until::<Job>(world, "work", |job| count(job, "ready") == 1).await;
        delete::<Job>(world, "work", PropagationPolicy::Background).await;
        gone::<Job>(world, "work").await;
        world.pass(Duration::from_secs(60)).await;
        assert!(pods(world).await.is_empty(), "they are released");
    }
    .boxed_local()
}

fn failed_twice(world: &World) -> LocalBoxFuture<'_, ()> {
    async move {
        failed(world).await;
        let created = world.counts().0.get("pods").map_or(0, |(created, _)| *created);
        assert_eq!(created, 2, "a first try and, with a backoff limit of 1, one more");
    }
    .boxed_local()
}

#[test]
fn a_job_retries_up_to_its_backoff_limit() {
    runs(&["job"], failed_twice, counted_once);
}

fn overdue(world: &World) -> LocalBoxFuture<'_, ()> {
    async move {
        create::<Job>(world, "work", endless(json!({"activeDeadlineSeconds": 90}))).await;
        until::<Job>(world, "work", |job| count(job, "ready") == 1).await;
        until::<Job>(world, "work", |job| holds(job, "Failed")).await;
    }
    .boxed_local()
}

#[test]
fn a_job_is_ended_at_its_deadline_though_nothing_else_happens() {
    runs(&["job"], overdue, anything);
}

/// Three of four indexes have completed when all but one of them are dropped.
fn scaled_down(world: &World) -> LocalBoxFuture<'_, ()> {
    async move {
        let indexed = json!({"completionMode": "Indexed", "completions": 4, "parallelism": 4});
        create::<Job>(world, "work", endless(indexed)).await;
        until::<Job>(world, "work", |job| count(job, "ready") == 4).await;
        for pod in pods(world).await {
            let labels = &pod["metadata"]["labels"];
            if labels["batch.kubernetes.io/job-completion-index"] != "0" {
                let name = pod["metadata"]["name"].as_str().unwrap_or_default();
                set_status::<Pod>(world, name, json!({"phase": "Succeeded"})).await;
            }
        }
        until::<Job>(world, "work", |job| job["status"]["completedIndexes"] == "1-3").await;
        patch::<Job>(world, "work", json!({"spec": {"completions": 2, "parallelism": 2}})).await;
        until::<Job>(world, "work", |job| job["status"]["completedIndexes"] == "1").await;
    }
    .boxed_local()
}

#[test]
fn an_indexed_job_that_is_scaled_down_drops_the_indexes_beyond() {
    runs(&["job"], scaled_down, anything);
}

/// The pods of a completed Job are removed.
fn cleared(world: &World) -> LocalBoxFuture<'_, ()> {
    async move {
        create::<Job>(world, "work", job(json!({}), "0")).await;
        until::<Job>(world, "work", |job| holds(job, "Complete")).await;
        for pod in pods(world).await {
            let name = pod["metadata"]["name"].as_str().unwrap_or_default();
            delete::<Pod>(world, name, PropagationPolicy::Background).await;
        }
        world.pass(Duration::from_secs(60)).await;
    }
    .boxed_local()
}

fn no_pod_after_the_end(history: &History) -> Result<(), String> {
    let mut complete = false;
    for (change, object) in history.changes() {
        complete |= object["kind"] == "Job" && holds(&object, "Complete");
        if complete && object["kind"] == "Pod" && change == EventKind::Created {
            return Err(format!("{} comes after the end", object["metadata"]["name"]));
        }
    }
    Ok(())
}

#[test]
fn a_complete_job_whose_completion_is_seen_late_creates_no_more_pods() {
    tolerates_staleness(&["job"], cleared, no_pod_after_the_end);
}

/// The template gets other labels while a Job runs.
fn relabelled(world: &World) -> LocalBoxFuture<'_, ()> {
    async move {
        let mut slow = cron_job("* * * * *", json!({"concurrencyPolicy": "Forbid"}));
        slow["spec"]["jobTemplate"]["spec"]["template"]["metadata"]["annotations"]
            ["node.setpoint.dev/run-for"] = json!("90s");
        create::<CronJob>(world, "tick", slow).await;
        until::<CronJob>(world, "tick", |tick| tick["status"]["active"].is_array()).await;
        let labels = json!({"metadata": {"labels": {"colour": "red"}}});
        patch::<CronJob>(world, "tick", json!({"spec": {"jobTemplate": labels}})).await;
        until::<CronJob>(world, "tick", |tick| tick["status"]["lastSuccessfulTime"].is_string()).await;
        world.pass(Duration::from_secs(120)).await;
        let jobs = world.list(&Kind::of::<Job>(), Some("default")).await;
        assert!(jobs.len() > 1, "the next Job is never started");
        patch::<CronJob>(world, "tick", json!({"spec": {"suspend": true}})).await;
    }
    .boxed_local()
}

#[test]
fn a_cron_job_whose_template_gets_other_labels_keeps_track_of_its_jobs() {
    runs(&["cronjob", "job"], relabelled, anything);
}

/// Returns how many Jobs have been created.
fn jobs_ever(world: &World) -> usize {
    world
        .counts()
        .0
        .iter()
        .filter(|(kind, _)| kind.ends_with("/jobs"))
        .map(|(_, (created, _))| *created)
        .sum()
}

/// A quota has no room for another Job until the history is cleaned up.
fn full(world: &World) -> LocalBoxFuture<'_, ()> {
    async move {
        create::<ResourceQuota>(world, "few", json!({"spec": {"hard": {"count/jobs.batch": "2"}}})).await;
        until::<ResourceQuota>(world, "few", |few| few["status"]["hard"]["count/jobs.batch"] == "2").await;
        let keeping = |most: u32| json!({"successfulJobsHistoryLimit": most});
        create::<CronJob>(world, "tick", cron_job("* * * * *", keeping(2))).await;
        world.pass(Duration::from_secs(300)).await;
        assert_eq!(jobs_ever(world), 2, "there is room for two");
        patch::<CronJob>(world, "tick", json!({"spec": keeping(1)})).await;
        world.pass(Duration::from_secs(300)).await;
        assert!(jobs_ever(world) > 2, "history is never cleared");
        patch::<CronJob>(world, "tick", json!({"spec": {"suspend": true}})).await;
    }
    .boxed_local()
}

#[test]
fn a_cron_job_clears_its_history_also_where_a_quota_denies_the_next_job() {
    runs(&["cronjob", "job", "resourcequota"], full, anything);
}

/// All scheduled times of a Friday are missed, and the weekend follows.
fn missed_on_friday(world: &World) -> LocalBoxFuture<'_, ()> {
    async move {
        set_clocks(world, "2025-01-03T06:00:00Z");
        let body = cron_job("30 6-16/4 * * 1-5", json!({"suspend": true}));
        create::<CronJob>(world, "tick", body).await;
        world.pass(Duration::from_secs(14 * 3600)).await;
        patch::<CronJob>(world, "tick", json!({"spec": {"suspend": false}})).await;
        world.pass(Duration::from_secs(60)).await;
        let jobs = world.list(&Kind::of::<Job>(), Some("default")).await;
        let name = |job: &Value| job["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        // That day at half past six, ten and two, in minutes.
        let due = ["tick-28931430", "tick-28931670", "tick-28931910"];
        assert!(
            jobs.iter().all(|job| due.contains(&&*name(job))),
            "{:?}",
            jobs.iter().map(name).collect::<Vec<_>>()
        );
    }
    .boxed_local()
}

#[test]
fn no_job_is_started_for_a_time_that_an_irregular_schedule_does_not_name() {
    let parts = Components { scheduler: false, nodes: 0, ..parts(&["cronjob"]) };
    runs_with(parts, missed_on_friday, anything);
}

/// The TTL of a finished Job is extended just before it expires.
fn prolonged(world: &World) -> LocalBoxFuture<'_, ()> {
    async move {
        create::<Job>(world, "work", job(json!({"ttlSecondsAfterFinished": 10}), "0")).await;
        until::<Job>(world, "work", |job| holds(job, "Complete")).await;
        patch::<Job>(world, "work", json!({"spec": {"ttlSecondsAfterFinished": 36000}})).await;
        world.pass(Duration::from_secs(90)).await;
        until::<Job>(world, "work", |job| !is_leaving(job)).await;
    }
    .boxed_local()
}

#[test]
fn a_job_whose_time_to_live_was_prolonged_unseen_stays() {
    tolerates_staleness(&["job", "ttl-after-finished"], prolonged, anything);
}
