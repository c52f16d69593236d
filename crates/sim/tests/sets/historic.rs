//! Bugs that Kubernetes controllers once had, reintroduced on purpose: the simulation detects every one.
//!
//! A scenario is run once without the bug. With the bug, and with no fault or a single one, it must then fail: with
//! another graph, other counts, a violated invariant, or a cluster that never settles.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures::FutureExt;
use futures::future::LocalBoxFuture;
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod, ResourceQuota, Service};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use serde_json::{Value, json};
use setpoint::client::{Delete, Part, Patch, Propagation};
use setpoint::historic::{self, Bug};
use setpoint::{Key, Kind, View};
use setpoint_cluster::Parts;
use setpoint_sim::{History, Scenario, World, search, undisturbed};
use setpoint_store::EventKind;

use super::cronjob::{cron_job, started_once};
use super::job::{counted_once, failed, job, plain};
use super::metrics::{deployment, use_cpu};
use super::place::{Always, Script, anything, count, create, holds, key, parts, patch, until};
use super::scheduling::{account, pod, runs};

/// Checks that the simulation of a scenario fails with the bug, and passes without it.
#[track_caller]
fn is_caught(bug: Bug, parts: Parts, script: Script, always: Always) {
    let scenario = Scenario { name: "historic", parts, script, always };
    let expected = undisturbed(&scenario, 1).unwrap_or_else(|failure| panic!("without the bug: {failure:?}"));
    let found = historic::with(bug, || search(&scenario, 1, &expected, 0));
    assert!(found.is_err(), "{bug:?} goes unnoticed");
}

async fn delete<K: View>(world: &World, name: &str, propagation: Propagation) {
    let delete = Delete { propagation: Some(propagation), ..Delete::default() };
    world.client().delete(&Kind::of::<K>(), &key(name), &delete).await.expect("the user's own call");
}

async fn gone<K: View>(world: &World, name: &str) {
    world.until(&Kind::of::<K>(), &key(name), |object| object.is_none()).await;
}

pub(crate) async fn pods(world: &World) -> Vec<Value> {
    world.list(&Kind::of::<Pod>(), Some("default")).await
}

pub(crate) fn replicas(count: u32, pod: Value) -> Value {
    let labels = json!({"app": "web"});
    json!({"spec": {"replicas": count, "selector": {"matchLabels": &labels},
        "template": {"metadata": {"labels": &labels}, "spec": pod["spec"]}}})
}

pub(crate) fn small() -> Value {
    json!({"spec": {"terminationGracePeriodSeconds": 0, "containers": [{"name": "c", "image": "a"}]}})
}

pub(crate) fn ready(wanted: u64) -> impl Fn(&Value) -> bool {
    move |object| count(object, "readyReplicas") == wanted && count(object, "replicas") == wanted
}

fn is_ready(pod: &Value) -> bool {
    holds(pod, "Ready")
}

/// Iterates over the pods of a history, with the state before each change.
fn each_pod(
    history: &History,
    mut check: impl FnMut(EventKind, &Value) -> Result<(), String>,
) -> Result<(), String> {
    let mut pods = history.changes().filter(|(_, object)| object["kind"] == "Pod");
    pods.try_for_each(|(change, pod)| check(change, &pod))
}

pub(crate) fn scaled(world: &World) -> LocalBoxFuture<'_, ()> {
    async move {
        create::<ReplicaSet>(world, "web", replicas(2, small())).await;
        until::<ReplicaSet>(world, "web", ready(2)).await;
    }
    .boxed_local()
}

#[test]
fn expectations_that_are_ignored() {
    is_caught(Bug::ExpectationsIgnored, parts(&["replicaset"]), scaled, anything);
}

async fn allow_pods(world: &World, most: u32) {
    let patch = json!({"spec": {"hard": {"pods": most.to_string()}}});
    super::place::patch::<ResourceQuota>(world, "few", patch).await;
}

/// A quota that denies a pod is raised. The pod is created soon after.
fn allowed_later(world: &World) -> LocalBoxFuture<'_, ()> {
    async move {
        create::<ResourceQuota>(world, "few", json!({"spec": {"hard": {"pods": "1"}}})).await;
        until::<ResourceQuota>(world, "few", |few| few["status"]["hard"]["pods"] == "1").await;
        create::<ReplicaSet>(world, "web", replicas(2, small())).await;
        until::<ReplicaSet>(world, "web", ready(1)).await;
        world.pass(Duration::from_secs(5)).await;
        allow_pods(world, 5).await;
        let raised = world.clock().now();
        until::<ReplicaSet>(world, "web", ready(2)).await;
        let took = world.clock().now().duration_since(raised);
        assert!(took.as_secs() < 180, "it took {took}");
    }
    .boxed_local()
}

#[test]
fn expectations_that_are_kept_after_a_failure() {
    is_caught(
        Bug::ExpectationsKeptAfterFailure,
        parts(&["replicaset", "resourcequota"]),
        allowed_later,
        anything,
    );
}

/// A quota that denies every pod gets few create attempts.
pub(crate) fn denied(world: &World) -> LocalBoxFuture<'_, ()> {
    async move {
        create::<ResourceQuota>(world, "few", json!({"spec": {"hard": {"pods": "0"}}})).await;
        until::<ResourceQuota>(world, "few", |few| few["status"]["hard"]["pods"] == "0").await;
        create::<ReplicaSet>(world, "web", replicas(100, small())).await;
        world.pass(Duration::from_secs(10)).await;
        let refused = world.trace().text().lines().filter(|line| line.ends_with("/pods 403")).count();
        assert!(refused < 50, "{refused} doomed creates");
    }
    .boxed_local()
}

#[test]
fn creates_that_are_tried_all_at_once() {
    is_caught(Bug::CreatesAllAtOnce, parts(&["replicaset", "resourcequota"]), denied, anything);
}

pub(crate) fn orphaned(world: &World) -> LocalBoxFuture<'_, ()> {
    async move {
        create::<ReplicaSet>(world, "web", replicas(1, small())).await;
        until::<ReplicaSet>(world, "web", ready(1)).await;
        delete::<ReplicaSet>(world, "web", Propagation::Orphan).await;
        gone::<ReplicaSet>(world, "web").await;
        world.pass(Duration::from_secs(120)).await;
        assert_eq!(pods(world).await.len(), 1, "the orphan stays");
    }
    .boxed_local()
}

/// A set is deleted, and its pod is released.
fn released(world: &World) -> LocalBoxFuture<'_, ()> {
    async move {
        create::<ReplicaSet>(world, "web", replicas(1, small())).await;
        until::<ReplicaSet>(world, "web", ready(1)).await;
        delete::<ReplicaSet>(world, "web", Propagation::Background).await;
        gone::<ReplicaSet>(world, "web").await;
        let name = pods(world).await[0]["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        patch::<Pod>(world, &name, json!({"metadata": {"ownerReferences": null}})).await;
        world.pass(Duration::from_secs(90)).await;
    }
    .boxed_local()
}

#[test]
fn adoption_for_an_owner_that_only_the_cache_knows() {
    is_caught(Bug::AdoptionFromCache, parts(&["replicaset"]), released, anything);
}

#[test]
fn orphans_that_are_forgotten() {
    is_caught(Bug::OrphansForgotten, parts(&["replicaset", "garbagecollector"]), orphaned, anything);
}

/// A finished pod is replaced.
fn replaced(world: &World) -> LocalBoxFuture<'_, ()> {
    async move {
        create::<ReplicaSet>(world, "web", replicas(1, small())).await;
        until::<ReplicaSet>(world, "web", ready(1)).await;
        let name = pods(world).await[0]["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let evicted = Patch::merge(&json!({"status": {"phase": "Failed", "reason": "Evicted"}}));
        let patched = world.client().patch(&Kind::of::<Pod>(), &key(&name), Part::Status, evicted).await;
        patched.expect("the user's own call");
        for _ in 0..60 {
            if pods(world).await.iter().any(runs) {
                return;
            }
            world.pass(Duration::from_secs(5)).await;
        }
        panic!("it is not replaced");
    }
    .boxed_local()
}

#[test]
fn ended_pods_that_count() {
    is_caught(Bug::EndedPodsCounted, parts(&["replicaset"]), replaced, anything);
}

/// One of two pods fits on the node. The other one is deleted.
fn shrunk(world: &World) -> LocalBoxFuture<'_, ()> {
    async move {
        create::<ReplicaSet>(world, "web", replicas(2, pod(20, json!({})))).await;
        until::<ReplicaSet>(world, "web", |web| count(web, "readyReplicas") == 1).await;
        patch::<ReplicaSet>(world, "web", json!({"spec": {"replicas": 1}})).await;
        until::<ReplicaSet>(world, "web", ready(1)).await;
    }
    .boxed_local()
}

fn ready_ones_stay(history: &History) -> Result<(), String> {
    each_pod(history, |_, pod| match is_ready(pod) && pod["metadata"]["deletionTimestamp"].is_string() {
        true => Err(format!("{} was ready", pod["metadata"]["name"])),
        false => Ok(()),
    })
}

#[test]
fn ready_pods_that_go_first() {
    is_caught(Bug::ReadyPodsFirst, parts(&["replicaset"]), shrunk, ready_ones_stay);
}

pub(crate) fn rolled(world: &World) -> LocalBoxFuture<'_, ()> {
    async move {
        let mut slow = replicas(2, small());
        slow["spec"]["template"]["metadata"]["annotations"] = json!({"node.setpoint.dev/ready-after": "20s"});
        create::<Deployment>(world, "web", slow).await;
        until::<Deployment>(world, "web", ready(2)).await;
        let containers = json!([{"name": "c", "image": "b"}]);
        patch::<Deployment>(
            world,
            "web",
            json!({"spec": {"template": {"spec": {"containers": containers}}}}),
        )
        .await;
        let settled = |web: &Value| {
            let observed = web["status"]["observedGeneration"] == web["metadata"]["generation"];
            observed && ready(2)(web) && count(web, "updatedReplicas") == 2
        };
        until::<Deployment>(world, "web", settled).await;
    }
    .boxed_local()
}

pub(crate) fn two_stay_ready(history: &History) -> Result<(), String> {
    let (mut ready, mut complete) = (BTreeSet::new(), false);
    each_pod(history, |change, pod| {
        let name = pod["metadata"]["name"].to_string();
        let leaves = change == EventKind::Deleted || pod["metadata"]["deletionTimestamp"].is_string();
        if is_ready(pod) && !leaves {
            ready.insert(name)
        } else {
            ready.remove(&name)
        };
        complete |= ready.len() == 2;
        if complete && ready.len() < 2 { Err(format!("only {ready:?} are ready")) } else { Ok(()) }
    })
}

#[test]
fn a_rollout_that_trusts_sizes() {
    is_caught(Bug::RolloutTrustsSizes, parts(&["deployment", "replicaset"]), rolled, two_stay_ready);
}

/// A set with the name that the Deployment is going to use already exists.
fn collided(world: &World) -> LocalBoxFuture<'_, ()> {
    async move {
        create::<Deployment>(world, "web", replicas(0, small())).await;
        let observed = |web: &Value| web["status"]["observedGeneration"] == 1;
        until::<Deployment>(world, "web", observed).await;
        let name = |set: &Value| set["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let taken = name(&world.list(&Kind::of::<ReplicaSet>(), Some("default")).await[0]);
        delete::<Deployment>(world, "web", Propagation::Orphan).await;
        gone::<Deployment>(world, "web").await;
        patch::<ReplicaSet>(world, &taken, json!({"metadata": {"labels": {"app": "other"}}})).await;
        create::<Deployment>(world, "web", replicas(1, small())).await;
        until::<Deployment>(world, "web", |web| ready(1)(web) && web["status"]["collisionCount"] == 1).await;
    }
    .boxed_local()
}

#[test]
fn a_collision_of_names_completes_the_rollout_all_the_same() {
    let parts = parts(&["deployment", "replicaset", "garbagecollector"]);
    World::simulate(1, parts.clone(), Vec::new(), async |world| collided(world).await);
    is_caught(Bug::CollisionNotCounted, parts, collided, anything);
}

#[test]
fn pods_of_a_job_that_are_counted_twice() {
    is_caught(Bug::JobPodsCountedTwice, parts(&["job"]), plain, counted_once);
}

/// A running Job is deleted, and its pods are released.
pub(crate) fn let_go(world: &World) -> LocalBoxFuture<'_, ()> {
    async move {
        let mut forever = job(json!({}), "0");
        forever["spec"]["template"]["metadata"]["annotations"] = json!({});
        create::<Job>(world, "work", forever).await;
        until::<Job>(world, "work", |job| count(job, "ready") == 1).await;
        delete::<Job>(world, "work", Propagation::Background).await;
        gone::<Job>(world, "work").await;
        world.pass(Duration::from_secs(60)).await;
        assert!(pods(world).await.is_empty(), "they are let go");
    }
    .boxed_local()
}

#[test]
fn finalizers_that_are_forgotten() {
    is_caught(Bug::JobFinalizersForgotten, parts(&["job", "garbagecollector"]), let_go, anything);
}

#[test]
fn a_limit_that_is_off_by_one() {
    is_caught(Bug::BackoffLimitOffByOne, parts(&["job"]), failed, counted_once);
}

pub(crate) fn stateful(replicas: u32, strategy: Value) -> Value {
    let labels = json!({"app": "db"});
    let annotations = json!({"node.setpoint.dev/ready-after": "5s"});
    json!({"spec": {
        "replicas": replicas, "serviceName": "db", "selector": {"matchLabels": &labels}, "updateStrategy": strategy,
        "template": {"metadata": {"labels": &labels, "annotations": annotations}, "spec": small()["spec"]},
    }})
}

fn in_order(world: &World) -> LocalBoxFuture<'_, ()> {
    async move {
        create::<StatefulSet>(world, "db", stateful(2, json!({}))).await;
        until::<StatefulSet>(world, "db", ready(2)).await;
    }
    .boxed_local()
}

fn one_after_the_other(history: &History) -> Result<(), String> {
    let mut first_is_ready = false;
    each_pod(history, |change, pod| {
        let second = pod["metadata"]["name"] == "db-1" && change == EventKind::Created;
        first_is_ready |= pod["metadata"]["name"] == "db-0" && is_ready(pod);
        if second && !first_is_ready { Err("the second before the first is ready".into()) } else { Ok(()) }
    })
}

#[test]
fn ordinals_that_come_all_at_once() {
    is_caught(Bug::OrdinalsAllAtOnce, parts(&["statefulset"]), in_order, one_after_the_other);
}

fn partitioned(world: &World) -> LocalBoxFuture<'_, ()> {
    async move {
        let strategy = json!({"type": "RollingUpdate", "rollingUpdate": {"partition": 1}});
        create::<StatefulSet>(world, "db", stateful(2, strategy)).await;
        until::<StatefulSet>(world, "db", ready(2)).await;
        let containers = json!([{"name": "c", "image": "b"}]);
        patch::<StatefulSet>(
            world,
            "db",
            json!({"spec": {"template": {"spec": {"containers": containers}}}}),
        )
        .await;
        until::<StatefulSet>(world, "db", |db| ready(2)(db) && count(db, "updatedReplicas") == 1).await;
        world.pass(Duration::from_secs(60)).await;
    }
    .boxed_local()
}

#[test]
fn a_partition_that_is_ignored() {
    is_caught(Bug::PartitionIgnored, parts(&["statefulset"]), partitioned, anything);
}

fn resumed(world: &World) -> LocalBoxFuture<'_, ()> {
    async move {
        create::<CronJob>(world, "tick", cron_job("* * * * *", json!({"suspend": true}))).await;
        world.pass(Duration::from_secs(3 * 3600 + 30)).await;
        patch::<CronJob>(world, "tick", json!({"spec": {"suspend": false}})).await;
        until::<CronJob>(world, "tick", |tick| tick["status"]["lastSuccessfulTime"].is_string()).await;
        patch::<CronJob>(world, "tick", json!({"spec": {"suspend": true}})).await;
    }
    .boxed_local()
}

#[test]
fn missed_times_after_which_nothing_is_started() {
    is_caught(Bug::MissedTimesRefused, parts(&["cronjob", "job"]), resumed, anything);
}

#[test]
fn jobs_that_are_named_after_when_they_were_made() {
    is_caught(Bug::JobsNamedAfterNow, parts(&["cronjob", "job"]), started_once, anything);
}

fn daemon(world: &World) -> LocalBoxFuture<'_, ()> {
    async move {
        let labels = json!({"app": "agent"});
        let annotations = json!({"node.setpoint.dev/terminate-after": "20s"});
        let template = json!({"metadata": {"labels": &labels, "annotations": annotations},
            "spec": {"containers": [{"name": "c", "image": "a"}]}});
        let body = json!({"spec": {"selector": {"matchLabels": &labels}, "template": template}});
        create::<DaemonSet>(world, "agent", body).await;
        until::<DaemonSet>(world, "agent", |agent| count(agent, "numberReady") == 1).await;
        let containers = json!([{"name": "c", "image": "b"}]);
        patch::<DaemonSet>(
            world,
            "agent",
            json!({"spec": {"template": {"spec": {"containers": containers}}}}),
        )
        .await;
        let settled =
            |agent: &Value| count(agent, "updatedNumberScheduled") == 1 && count(agent, "numberReady") == 1;
        until::<DaemonSet>(world, "agent", settled).await;
    }
    .boxed_local()
}

/// Terminating pods count until they have ended.
fn one_at_a_time(history: &History) -> Result<(), String> {
    let mut there = BTreeSet::new();
    each_pod(history, |change, pod| {
        let name = pod["metadata"]["name"].to_string();
        let over = change == EventKind::Deleted || pod["status"]["phase"] == "Failed";
        if over {
            there.remove(&name)
        } else {
            there.insert(name)
        };
        if there.len() > 1 { Err(format!("{there:?} are there at once")) } else { Ok(()) }
    })
}

#[test]
fn a_daemon_beside_one_that_has_not_left() {
    is_caught(Bug::DaemonBesideLeaving, parts(&["daemonset"]), daemon, one_at_a_time);
}

fn collected(world: &World) -> LocalBoxFuture<'_, ()> {
    async move {
        let mut slow = replicas(1, small());
        slow["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = json!(30);
        slow["spec"]["template"]["metadata"]["annotations"] =
            json!({"node.setpoint.dev/terminate-after": "20s"});
        create::<ReplicaSet>(world, "web", slow).await;
        until::<ReplicaSet>(world, "web", ready(1)).await;
        delete::<ReplicaSet>(world, "web", Propagation::Foreground).await;
        gone::<ReplicaSet>(world, "web").await;
    }
    .boxed_local()
}

fn dependents_go_first(history: &History) -> Result<(), String> {
    let mut pods = BTreeSet::new();
    for (change, object) in history.changes() {
        let name = object["metadata"]["name"].to_string();
        match (object["kind"].as_str(), change) {
            (Some("Pod"), EventKind::Deleted) => _ = pods.remove(&name),
            (Some("Pod"), _) => _ = pods.insert(name),
            (Some("ReplicaSet"), EventKind::Deleted) if !pods.is_empty() => {
                return Err(format!("{name} is gone before {pods:?}"));
            }
            _ => {}
        }
    }
    Ok(())
}

#[test]
fn an_owner_that_does_not_wait_for_its_dependents() {
    let parts = parts(&["replicaset", "garbagecollector"]);
    is_caught(Bug::ForegroundNotAwaited, parts, collected, dependents_go_first);
}

pub(crate) fn sliced(world: &World) -> LocalBoxFuture<'_, ()> {
    async move {
        let service = json!({"spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]}});
        create::<Service>(world, "web", service).await;
        create::<ReplicaSet>(world, "web", replicas(1, small())).await;
        until::<ReplicaSet>(world, "web", ready(1)).await;
        patch::<Service>(world, "web", json!({"metadata": {"labels": {"colour": "red"}}})).await;
        world.pass(Duration::from_secs(90)).await;
    }
    .boxed_local()
}

#[test]
fn slices_that_are_made_again() {
    is_caught(Bug::SlicesCreatedTwice, parts(&["replicaset", "endpointslice"]), sliced, anything);
}

/// A namespace that is being deleted still contains something, so it waits.
fn emptied(world: &World) -> LocalBoxFuture<'_, ()> {
    async move {
        let (namespaces, maps) = (Kind::of::<Namespace>(), Kind::of::<ConfigMap>());
        world.create(&namespaces, None, json!({"metadata": {"name": "team"}})).await;
        let held = json!({"metadata": {"name": "held", "finalizers": ["example.com/hold"]}});
        world.create(&maps, Some("team"), held).await;
        let team = Key::cluster("team");
        world.client().delete(&namespaces, &team, &Delete::default()).await.expect("the user's own call");
        world.pass(Duration::from_secs(60)).await;
        assert!(world.get(&namespaces, &team).await.is_some(), "something is left in it");
        let released = Patch::merge(&json!({"metadata": {"finalizers": null}}));
        let key = Key::namespaced("team", "held");
        world.client().patch(&maps, &key, Part::Main, released).await.expect("the user's own call");
        world.until(&namespaces, &team, |namespace| namespace.is_none()).await;
    }
    .boxed_local()
}

#[test]
fn a_namespace_that_goes_too_early() {
    is_caught(Bug::NamespaceLetGoEarly, parts(&["namespace"]), emptied, anything);
}

async fn evict(world: &World, name: &str) -> bool {
    let body = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}});
    world.client().post(&Kind::of::<Pod>(), &key(name), Part::Eviction, &body).await.is_ok()
}

/// Of three pods, one may be evicted. Further requests within the next minute are rejected.
fn evicted(world: &World) -> LocalBoxFuture<'_, ()> {
    async move {
        account(world).await;
        let budget = json!({"spec": {"minAvailable": 2, "selector": {"matchLabels": {"app": "w"}}}});
        create::<PodDisruptionBudget>(world, "budget", budget).await;
        for name in ["p", "q", "r"] {
            let mut body = small();
            body["metadata"]["labels"] = json!({"app": "w"});
            create::<Pod>(world, name, body).await;
            until::<Pod>(world, name, runs).await;
        }
        let allowed = |budget: &Value| budget["status"]["disruptionsAllowed"] == 1;
        until::<PodDisruptionBudget>(world, "budget", allowed).await;
        assert!(evict(world, "p").await, "one may go");
        for _ in 0..50 {
            assert!(!evict(world, "q").await, "two must stay");
            world.pass(Duration::from_millis(200)).await;
        }
    }
    .boxed_local()
}

#[test]
fn granted_evictions_that_are_forgotten() {
    is_caught(Bug::GrantedEvictionsForgotten, parts(&["disruption"]), evicted, anything);
}

/// The TTL of a finished Job is extended just before it expires.
fn prolonged(world: &World) -> LocalBoxFuture<'_, ()> {
    async move {
        create::<Job>(world, "work", job(json!({"ttlSecondsAfterFinished": 20}), "0")).await;
        until::<Job>(world, "work", |job| holds(job, "Complete")).await;
        patch::<Job>(world, "work", json!({"spec": {"ttlSecondsAfterFinished": 36000}})).await;
        world.pass(Duration::from_secs(90)).await;
    }
    .boxed_local()
}

#[test]
fn a_job_that_goes_because_the_cache_is_old() {
    is_caught(Bug::ExpiryFromCache, parts(&["job", "ttl-after-finished"]), prolonged, anything);
}

/// Pods with less load stay for five minutes.
fn less_to_do(world: &World) -> LocalBoxFuture<'_, ()> {
    async move {
        create::<Deployment>(world, "web", deployment(2)).await;
        until::<Deployment>(world, "web", ready(2)).await;
        use_cpu(world, "600m").await;
        let resource = json!({"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 60}});
        let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
        let spec = json!({"scaleTargetRef": target, "maxReplicas": 5,
            "metrics": [{"type": "Resource", "resource": resource}]});
        create::<HorizontalPodAutoscaler>(world, "web", json!({"spec": spec})).await;
        until::<HorizontalPodAutoscaler>(world, "web", |hpa| holds(hpa, "ScalingActive")).await;
        world.pass(Duration::from_secs(30)).await;
        use_cpu(world, "100m").await;
        world.pass(Duration::from_secs(60)).await;
        until::<Deployment>(world, "web", |web| web["spec"]["replicas"] == 2).await;
    }
    .boxed_local()
}

#[test]
fn an_autoscaler_that_gives_up_pods_at_once() {
    let parts = parts(&["deployment", "replicaset", "horizontalpodautoscaling"]);
    is_caught(Bug::ScaleDownAtOnce, parts, less_to_do, anything);
}

/// The node has room for one of them.
fn two_for_one(world: &World) -> LocalBoxFuture<'_, ()> {
    async move {
        create::<ReplicaSet>(world, "web", replicas(2, pod(20, json!({})))).await;
        until::<ReplicaSet>(world, "web", |web| count(web, "readyReplicas") == 1).await;
        world.pass(Duration::from_secs(30)).await;
    }
    .boxed_local()
}

fn one_fits(history: &History) -> Result<(), String> {
    let mut placed: BTreeMap<String, bool> = BTreeMap::new();
    each_pod(history, |change, pod| {
        let there = change != EventKind::Deleted && pod["spec"]["nodeName"].is_string();
        placed.insert(pod["metadata"]["name"].to_string(), there);
        match placed.values().filter(|there| **there).count() {
            0 | 1 => Ok(()),
            more => Err(format!("{more} of 20 cpus on a node of 32")),
        }
    })
}

#[test]
fn room_that_is_given_away_twice() {
    is_caught(Bug::RoomNotAssumed, parts(&["replicaset"]), two_for_one, one_fits);
}

#[test]
fn pods_that_make_room_for_their_equals() {
    is_caught(Bug::EqualsPreempted, parts(&["replicaset"]), two_for_one, anything);
}
