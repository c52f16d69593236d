//! CronJobs.

use std::time::Duration;

use futures::FutureExt;
use futures::future::LocalBoxFuture;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::{CronJob, Job};
use serde_json::{Value, json};
use setpoint::Kind;
use setpoint_cluster::Components;
use setpoint_sim::World;

use super::scenarios::{anything, create, parts, patch, survives, until};

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
fn of_more_than_a_hundred_missed_schedules_one_is_started() {
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
fn no_job_is_started_in_the_hour_that_daylight_saving_skips() {
    World::simulate(1, cron_alone(), Vec::new(), async |world| {
        set_clocks(world, "2025-03-07T12:00:00Z");
        let zone = json!({"timeZone": "America/New_York", "successfulJobsHistoryLimit": 10});
        create::<CronJob>(world, "tick", cron_job("30 2 8-10 3 *", zone)).await;
        world.pass(Duration::from_secs(4 * 24 * 3600)).await;
        // March 8 and 10, 2025, 2:30, in minutes. On March 9, that time did not exist.
        assert_eq!(jobs(world).await, ["tick-29023650", "tick-29026470"]);
    });
}

/// Sets the cluster's clocks to a time.
pub(crate) fn set_clocks(world: &World, to: &str) {
    let to: Timestamp = to.parse().expect("a constant time");
    world.clock().set_by(to.duration_since(world.clock().now()));
}

/// Without nodes, whose heartbeats would take most of the time.
fn cron_alone() -> Components {
    Components { scheduler: false, nodes: 0, ..parts(&["cronjob"]) }
}

#[test]
fn when_clocks_go_back_every_schedule_has_one_job() {
    World::simulate(1, cron_alone(), Vec::new(), async |world| {
        set_clocks(world, "2025-10-31T12:00:00Z");
        let zone = json!({"timeZone": "America/New_York", "successfulJobsHistoryLimit": 10});
        create::<CronJob>(world, "daily", cron_job("30 3 * * *", zone.clone())).await;
        create::<CronJob>(world, "hourly", cron_job("30 * 2 11 *", zone)).await;
        world.pass(Duration::from_secs(3 * 24 * 3600)).await;
        let all = jobs(world).await;
        let (daily, hourly): (Vec<_>, Vec<_>) = all.iter().partition(|name| name.starts_with("daily"));
        // On November 2, 2025, half past three is an hour later than on the day before.
        assert_eq!(daily, ["daily-29366370", "daily-29367870", "daily-29369310"]);
        // That day has 25 hours, and 25 half hours: none is repeated or skipped.
        assert_eq!(hourly.len(), 25, "{hourly:?}");
    });
}

/// An hour is skipped or repeated, because the clock is set.
#[test]
fn a_clock_changed_by_an_hour_starts_no_second_and_no_missed_job() {
    let started = |forward: i64| {
        World::simulate(1, cron_alone(), Vec::new(), async |world| {
            create::<CronJob>(world, "tick", cron_job("*/10 * * * *", json!({}))).await;
            world.pass(Duration::from_secs(3 * 3600 + 300)).await;
            let before = jobs(world).await;
            world.clock().set_by(SignedDuration::from_hours(forward));
            world.pass(Duration::from_secs(2 * 3600 + 60)).await;
            let made =
                world.counts().0.iter().filter(|(kind, _)| kind.ends_with("/jobs")).map(|(_, it)| it.0).sum();
            (before, jobs(world).await, made)
        })
    };
    // Nothing finishes without nodes, so all jobs are still there.
    let names = |minutes: std::ops::RangeInclusive<i64>| -> Vec<String> {
        minutes.filter(|minute| minute % 10 == 0).map(|minute| format!("tick-{}", EPOCH + minute)).collect()
    };
    let check = |forward: i64, expected: Vec<String>| {
        let (before, after, made): (_, _, usize) = started(forward);
        assert_eq!(before, names(10..=180));
        assert_eq!(after, expected, "set by {forward} h");
        assert_eq!(made, after.len());
    };
    // From 3:05 to 4:05: the jobs in between are skipped.
    check(1, [names(10..=180), names(250..=360)].concat());
    // From 3:05 to 2:05: the hour is repeated, but its jobs are not.
    check(-1, names(10..=240));
}

/// 2025-01-01T00:00:00Z, in minutes.
const EPOCH: i64 = 28_928_160;
