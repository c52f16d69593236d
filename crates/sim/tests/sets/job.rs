//! Jobs and their cleanup.

use std::collections::BTreeSet;

use futures::FutureExt;
use futures::future::LocalBoxFuture;
use k8s_openapi::api::batch::v1::Job;
use serde_json::{Value, json};
use setpoint::client::DeleteOptions;
use setpoint::{Kind, View};
use setpoint_sim::{History, World};

use super::scenarios::{anything, count, create, holds, key, parts, survives, tolerates_staleness, until};

const CONTROLLERS: &[&str] = &["job"];

pub(crate) fn job(spec: Value, exit_code: &str) -> Value {
    let mut job = json!({"spec": {"template": {
        "metadata": {"annotations": {"node.setpoint.dev/exit-code": exit_code}},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]},
    }}});
    for (field, value) in spec.as_object().into_iter().flatten() {
        job["spec"][field] = value.clone();
    }
    job
}

fn completed(world: &World) -> LocalBoxFuture<'_, ()> {
    async move {
        let spec = json!({"completions": 3, "parallelism": 2, "completionMode": "Indexed"});
        create::<Job>(world, "work", job(spec, "0")).await;
        until::<Job>(world, "work", |job| holds(job, "Complete")).await;
    }
    .boxed_local()
}

pub(crate) fn plain(world: &World) -> LocalBoxFuture<'_, ()> {
    async move {
        create::<Job>(world, "work", job(json!({"completions": 2, "parallelism": 2}), "0")).await;
        until::<Job>(world, "work", |job| holds(job, "Complete")).await;
    }
    .boxed_local()
}

pub(crate) fn failed(world: &World) -> LocalBoxFuture<'_, ()> {
    async move {
        create::<Job>(world, "work", job(json!({"backoffLimit": 1}), "1")).await;
        until::<Job>(world, "work", |job| holds(job, "Failed")).await;
    }
    .boxed_local()
}

fn expired(world: &World) -> LocalBoxFuture<'_, ()> {
    async move {
        create::<Job>(world, "work", job(json!({"ttlSecondsAfterFinished": 20}), "0")).await;
        until::<Job>(world, "work", |job| holds(job, "Complete")).await;
        // Without a garbage collector, it stays with a deletion timestamp.
        until::<Job>(world, "work", |job| job["metadata"]["deletionTimestamp"].is_string()).await;
    }
    .boxed_local()
}

/// A Job never counts more pods than there were, and has counted all of them once it is finished.
pub(crate) fn counted_once(history: &History) -> Result<(), String> {
    let mut pods = BTreeSet::new();
    for (_, object) in history.changes() {
        if object["kind"] == "Pod" {
            pods.insert(object["metadata"]["uid"].to_string());
        }
        if object["kind"] != "Job" {
            continue;
        }
        let counted = count(&object, "succeeded") + count(&object, "failed");
        let over = holds(&object, "Complete") || holds(&object, "Failed");
        let all = pods.len() as u64;
        if counted > all || (over && counted != all) {
            return Err(format!("{counted} counted of {all} pods: {}", object["status"]));
        }
    }
    Ok(())
}

#[test]
fn a_job_killed_in_the_middle_of_accounting_counts_every_pod_once() {
    survives("job", CONTROLLERS, plain, counted_once);
}

#[test]
fn a_failing_job_fails_once_whatever_happens() {
    survives("failing job", CONTROLLERS, failed, counted_once);
}

#[test]
fn a_job_is_deleted_once_after_its_ttl() {
    survives("expiring job", &["job", "ttl-after-finished"], expired, anything);
}

#[test]
fn a_job_update_seen_before_the_pod_update_is_counted_once() {
    tolerates_staleness(CONTROLLERS, plain, counted_once);
}

#[test]
fn an_indexed_job_whose_events_are_late_runs_every_index_once() {
    tolerates_staleness(CONTROLLERS, completed, counted_once);
}

#[test]
fn the_pods_of_a_deleted_job_are_released() {
    World::simulate(1, parts(&["job", "garbagecollector"]), Vec::new(), async |world| {
        let mut forever = job(json!({"parallelism": 2}), "0");
        forever["spec"]["template"]["metadata"]["annotations"] =
            json!({"node.setpoint.dev/run-for": "forever"});
        create::<Job>(world, "work", forever).await;
        until::<Job>(world, "work", |job| count(job, "ready") == 2).await;
        let delete = DeleteOptions {
            propagation: Some(setpoint::client::PropagationPolicy::Background),
            ..DeleteOptions::default()
        };
        world.client().delete(&Kind::of::<Job>(), &key("work"), &delete).await.expect("the user's own call");
        world.pass(std::time::Duration::from_secs(60)).await;
        let pods = <k8s_openapi::api::core::v1::Pod as View>::kind();
        let left = world.client().list(&pods, &Default::default()).await.expect("a list");
        assert!(left.objects.is_empty(), "{:?} are left", left.objects);
    });
}

#[test]
fn a_restart_with_finished_and_running_jobs_writes_nothing() {
    World::simulate(1, parts(CONTROLLERS), Vec::new(), async |world| {
        plain(world).await;
        let mut forever = job(json!({}), "0");
        forever["spec"]["template"]["metadata"]["annotations"] =
            json!({"node.setpoint.dev/run-for": "forever"});
        create::<Job>(world, "forever", forever).await;
        until::<Job>(world, "forever", |job| count(job, "ready") == 1).await;
        world.pass(std::time::Duration::from_secs(5)).await;
        let before = writes(world);
        world.restart().await;
        world.pass(std::time::Duration::from_secs(600)).await;
        assert_eq!(writes(world), before, "{}", world.trace().text());
    });
}

/// Returns how often Jobs and pods have been written.
fn writes(world: &World) -> usize {
    let kinds = ["Job", "Pod"];
    world
        .history()
        .changes()
        .filter(|(_, object)| kinds.contains(&object["kind"].as_str().unwrap_or("")))
        .count()
}
