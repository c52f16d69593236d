//! CronJobs.

use std::time::Duration;

use futures::FutureExt;
use futures::future::LocalBoxFuture;
use k8s_openapi::api::batch::v1::{CronJob, Job};
use serde_json::{Value, json};
use setpoint::Kind;
use setpoint_cluster::Parts;
use setpoint_sim::World;

use crate::place::{anything, create, parts, patch, survives, until};

const CONTROLLERS: &[&str] = &["cronjob", "job"];

pub(crate) fn cron_job(schedule: &str, spec: Value) -> Value {
    let pod = json!({
        "metadata": {"annotations": {"node.setpoint.dev/exit-code": "0"}},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]},
    });
    let mut cron_job = json!({"spec": {"schedule": schedule, "jobTemplate": {"spec": {"template": pod}}}});
    for (field, value) in spec.as_object().into_iter().flatten() {
        cron_job["spec"][field] = value.clone();
    }
    cron_job
}

pub(crate) fn started_once(world: &World) -> LocalBoxFuture<'_, ()> {
    async move {
        create::<CronJob>(world, "tick", cron_job("1 * * * *", json!({}))).await;
        let ended = |tick: &Value| {
            tick["status"]["lastSuccessfulTime"].is_string() && tick["status"]["active"].is_null()
        };
        until::<CronJob>(world, "tick", ended).await;
        patch::<CronJob>(world, "tick", json!({"spec": {"suspend": true}})).await;
    }
    .boxed_local()
}

#[test]
fn a_cron_job_starts_its_job_once_whatever_happens() {
    survives("cronjob", CONTROLLERS, started_once, anything);
}

async fn jobs(world: &World) -> Vec<String> {
    let listed = world.client().list(&Kind::of::<Job>(), &Default::default()).await.expect("a list");
    listed.objects.iter().map(|job| job.meta().name.to_string()).collect()
}

#[test]
fn of_more_than_a_hundred_missed_times_one_is_made_up_for() {
    World::simulate(1, parts(CONTROLLERS), Vec::new(), async |world| {
        let body = cron_job("* * * * *", json!({"suspend": true}));
        create::<CronJob>(world, "tick", body).await;
        world.pass(Duration::from_secs(3 * 3600 + 30)).await;
        patch::<CronJob>(world, "tick", json!({"spec": {"suspend": false}})).await;
        world.pass(Duration::from_secs(10)).await;
        // 2025-01-01T03:00:00Z, in minutes.
        assert_eq!(jobs(world).await, ["tick-28928340"]);
        let events = Kind::of::<k8s_openapi::api::core::v1::Event>();
        let events = world.client().list(&events, &Default::default()).await.expect("a list");
        let events: Vec<Value> = events.objects.iter().map(|event| event.decode().expect("JSON")).collect();
        let warnings = events.iter().filter(|event| event["reason"] == "TooManyMissedTimes");
        assert_eq!(warnings.map(|event| event["count"].as_u64().unwrap_or(1)).sum::<u64>(), 1);
    });
}

#[test]
fn a_zone_in_which_clocks_go_forward_has_no_job_in_the_hour_that_is_left_out() {
    // Without nodes, whose heartbeat would take most of two months' time.
    let parts = Parts { scheduler: false, nodes: 0, ..parts(&["cronjob"]) };
    World::simulate(1, parts, Vec::new(), async |world| {
        let zone = json!({"timeZone": "America/New_York", "successfulJobsHistoryLimit": 10});
        create::<CronJob>(world, "tick", cron_job("30 2 8-10 3 *", zone)).await;
        world.pass(Duration::from_secs(75 * 24 * 3600)).await;
        // The 8th and the 10th of March 2025, half past two, in minutes; on the 9th there was no such time.
        assert_eq!(jobs(world).await, ["tick-29023650", "tick-29026470"]);
    });
}
