//! API servers that reject requests, lose responses or are behind, and managers that crash anywhere.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures::FutureExt;
use futures::future::LocalBoxFuture;
use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use k8s_openapi::api::apps::v1::{DaemonSet, ReplicaSet, StatefulSet};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node, Pod, ServiceAccount};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use serde_json::{Value, json};
use setpoint::client::{DeleteOptions, Patch, PropagationPolicy, Subresource};
use setpoint::{Key, Kind};
use setpoint_cluster::Components;
use setpoint_sim::{Fault, History, OnCall, OnEvent, World, check_faults};
use setpoint_store::EventKind;

use super::job::job;
use super::regressions::{
    deleted_in_background, denied, orphaned, pods, ready, replicas, rolled, scaled, sliced, small, stateful,
    two_stay_ready,
};
use super::scenarios::{
    Always, Script, anything, create, holds, key, parts, patch, scenario, survives, until,
};

/// Checks that each of these plans ends like the run without faults.
#[track_caller]
fn ends_the_same(
    controllers: &[&str],
    script: Script,
    always: Always,
    plans: impl Iterator<Item = Vec<Fault>>,
) {
    let scenario = scenario("storm", controllers, script, always);
    check_faults(&scenario, 1, plans).unwrap_or_else(|failure| panic!("{failure:?}"));
}

/// Returns the number of writes and steps of a script without faults.
fn measure(controllers: &[&str], script: Script) -> (usize, usize) {
    World::simulate(1, parts(controllers), Vec::new(), async |world| {
        script(world).await;
        (world.faults().seen().0, world.faults().steps())
    })
}

const ROLLOUT: &[&str] = &["deployment", "replicaset"];

/// Returns evenly spaced steps to try, up to a maximum. A long search raises it.
fn places(steps: usize) -> impl Iterator<Item = usize> {
    let most = std::env::var("SETPOINT_SIM_PLACES").ok().and_then(|text| text.parse().ok()).unwrap_or(25);
    (0..steps).step_by((steps / most).max(1))
}

#[test]
fn a_manager_killed_wherever_it_waits_converges() {
    let steps = measure(ROLLOUT, rolled).1;
    let plans = places(steps).map(|step| vec![Fault::Kill { step }]);
    ends_the_same(ROLLOUT, rolled, two_stay_ready, plans);
}

#[test]
fn a_job_whose_manager_is_killed_wherever_it_waits_leaves_no_finalizer() {
    let controllers = &["job", "garbagecollector"];
    let steps = measure(controllers, deleted_in_background).1;
    ends_the_same(
        controllers,
        deleted_in_background,
        anything,
        places(steps).map(|step| vec![Fault::Kill { step }]),
    );
}

#[test]
fn a_committed_write_whose_response_is_lost_makes_no_duplicate() {
    let writes = measure(&["replicaset"], scaled).0;
    let plans = (0..writes).map(|nth| vec![Fault::Call { nth, what: OnCall::DropAfter }]);
    ends_the_same(&["replicaset"], scaled, anything, plans);
}

/// A storm ends.
fn rolled_and_calm(world: &World) -> LocalBoxFuture<'_, ()> {
    async move {
        rolled(world).await;
        world.faults().calm();
        world.pass(Duration::from_secs(60)).await;
    }
    .boxed_local()
}

/// Heartbeats fail too, so a node may be considered lost for a while, and its pods not ready.
#[test]
fn a_rollout_during_which_a_third_of_all_calls_fail_ends_the_same() {
    let plans = (1..=5).map(|seed| vec![Fault::Storm { percent: 30, seed }]);
    ends_the_same(ROLLOUT, rolled_and_calm, anything, plans);
}

#[test]
fn a_cascade_in_the_background_survives_every_crash() {
    survives("background", &["job", "garbagecollector"], deleted_in_background, anything);
}

#[test]
fn orphaned_dependents_survive_every_crash() {
    survives("orphans", &["replicaset", "garbagecollector"], orphaned, anything);
}

/// Never more pods than desired.
fn two_at_most(history: &History) -> Result<(), String> {
    let mut there = BTreeSet::new();
    for (change, pod) in history.changes().filter(|(_, object)| object["kind"] == "Pod") {
        let name = pod["metadata"]["name"].to_string();
        if change == EventKind::Deleted {
            there.remove(&name)
        } else {
            there.insert(name)
        };
        if there.len() > 2 {
            return Err(format!("{there:?} are more than two"));
        }
    }
    Ok(())
}

/// Expectations time out after five minutes, possibly before the events they wait for.
#[test]
fn a_cache_that_is_frozen_for_ten_minutes_makes_no_extra_pods() {
    let frozen = Duration::from_secs(600);
    for nth in 0..12 {
        let faults = vec![Fault::Event { nth, what: OnEvent::Delay(frozen) }];
        World::simulate(1, parts(&["replicaset"]), faults, async |world| {
            scaled(world).await;
            world.pass(Duration::from_secs(900)).await;
            two_at_most(&world.history()).unwrap_or_else(|why| panic!("event {nth}: {why}"));
        });
    }
}

#[test]
fn a_recreated_set_gets_its_pods_immediately() {
    World::simulate(1, parts(&["replicaset", "garbagecollector"]), Vec::new(), async |world| {
        scaled(world).await;
        let delete =
            DeleteOptions { propagation: Some(PropagationPolicy::Background), ..DeleteOptions::default() };
        let kind = Kind::of::<ReplicaSet>();
        world.client().delete(&kind, &key("web"), &delete).await.expect("the user's own call");
        create::<ReplicaSet>(world, "web", replicas(2, small())).await;
        let uid = world.get(&kind, &key("web")).await.expect("it is there")["metadata"]["uid"].clone();
        world.pass(Duration::from_secs(1)).await;
        let all = pods(world).await;
        let ours = all.iter().filter(|pod| pod["metadata"]["ownerReferences"][0]["uid"] == uid);
        assert_eq!(ours.count(), 2, "{}", world.trace().text());
    });
}

/// A manager starts with a view of the API server from before a pod was deleted and recreated.
#[test]
fn a_recreated_object_is_not_deleted_from_an_older_view() {
    World::simulate(1, parts(&["statefulset"]), Vec::new(), async |world| {
        create::<StatefulSet>(world, "db", stateful(2, json!({}))).await;
        until::<StatefulSet>(world, "db", ready(2)).await;
        patch::<StatefulSet>(world, "db", json!({"spec": {"replicas": 1}})).await;
        world.remember_view().await;
        until::<StatefulSet>(world, "db", ready(1)).await;
        patch::<StatefulSet>(world, "db", json!({"spec": {"replicas": 2}})).await;
        until::<StatefulSet>(world, "db", ready(2)).await;
        let uid = async || {
            world.get(&Kind::of::<Pod>(), &key("db-1")).await.expect("it runs")["metadata"]["uid"].clone()
        };
        let before = uid().await;
        world.restart_on_remembered_view().await;
        world.pass(Duration::from_secs(120)).await;
        assert_eq!(uid().await, before, "{}", world.trace().text());
    });
}

#[test]
fn a_quota_that_denies_every_pod_gets_few_creates() {
    World::simulate(1, parts(&["replicaset", "resourcequota"]), Vec::new(), async |world| {
        denied(world).await
    });
}

fn slices(listed: &[Value]) -> usize {
    listed.iter().filter(|slice| slice["metadata"]["labels"]["kubernetes.io/service-name"] == "web").count()
}

#[test]
fn a_forbidden_resource_degrades_only_one_controller() {
    let faults = vec![Fault::Deny { path: "/endpointslices", code: 403 }];
    World::simulate(1, parts(&["replicaset", "endpointslice"]), faults, async |world| {
        sliced(world).await;
        let listed = async || world.list(&Kind::of::<EndpointSlice>(), Some("default")).await;
        assert_eq!(slices(&listed().await), 0, "they are forbidden");
        world.faults().calm();
        for _ in 0..200 {
            if slices(&listed().await) == 1 {
                return;
            }
            world.pass(Duration::from_secs(10)).await;
        }
        panic!("there are never any slices");
    });
}

/// The rejections could come from a webhook that is down.
#[test]
fn rejected_pods_are_retried_with_backoff() {
    let faults = vec![Fault::Deny { path: "/namespaces/default/pods", code: 500 }];
    World::simulate(1, parts(&["replicaset"]), faults, async |world| {
        create::<ReplicaSet>(world, "web", replicas(2, small())).await;
        world.pass(Duration::from_secs(600)).await;
        let tries = world.trace().text().lines().filter(|line| line.ends_with("/pods 500")).count();
        assert!((5..40).contains(&tries), "{tries} tries in ten minutes");
        world.faults().calm();
        until::<ReplicaSet>(world, "web", ready(2)).await;
    });
}

/// A policy rejects every pod. There are few attempts, and once it is lifted, all pods are created.
#[test]
fn pods_rejected_by_a_policy_are_retried_with_backoff_until_it_is_lifted() {
    let controllers = &["replicaset", "statefulset", "daemonset", "job"];
    World::simulate(1, parts(controllers), Vec::new(), async |world| {
        let rule = json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]});
        let policy = json!({"metadata": {"name": "closed"}, "spec": {
            "matchConstraints": {"resourceRules": [rule]},
            "validations": [{"expression": "false", "message": "closed"}]}});
        let policies = Kind::of::<ValidatingAdmissionPolicy>();
        let bindings = Kind::of::<ValidatingAdmissionPolicyBinding>();
        world.create(&policies, None, policy).await;
        let binding = json!({"metadata": {"name": "closed"},
            "spec": {"policyName": "closed", "validationActions": ["Deny"]}});
        world.create(&bindings, None, binding).await;
        world.pass(Duration::from_secs(5)).await;
        let template = json!({"metadata": {"labels": {"app": "d"}}, "spec": small()["spec"]});
        let selector = json!({"matchLabels": {"app": "d"}});
        create::<ReplicaSet>(world, "web", replicas(20, small())).await;
        create::<StatefulSet>(world, "db", stateful(2, json!({}))).await;
        create::<DaemonSet>(world, "agent", json!({"spec": {"selector": selector, "template": template}}))
            .await;
        create::<Job>(world, "work", job(json!({"parallelism": 5, "completions": 5}), "0")).await;
        world.pass(Duration::from_secs(60)).await;
        let tries = || {
            let text = world.trace().text();
            text.lines().filter(|line| line.contains("POST /api/v1/namespaces/default/pods")).count()
        };
        for minute in 1..=10 {
            let before = tries();
            world.pass(Duration::from_secs(60)).await;
            let more = tries() - before;
            assert!(more <= 20, "{more} in minute {minute} for four controllers");
        }
        let key = Key::cluster("closed");
        world.client().delete(&bindings, &key, &DeleteOptions::default()).await.expect("the user's own call");
        until::<ReplicaSet>(world, "web", ready(20)).await;
        until::<StatefulSet>(world, "db", ready(2)).await;
        until::<DaemonSet>(world, "agent", |set| set["status"]["numberReady"] == 1).await;
        until::<Job>(world, "work", |job| holds(job, "Complete")).await;
    });
}

/// A node rejects every pod, so each one fails immediately.
#[test]
fn pods_rejected_by_their_node_are_recreated_with_backoff() {
    let parts = Components { nodes: 0, ..parts(&["daemonset", "job"]) };
    World::simulate(1, parts, Vec::new(), async |world| {
        create::<ServiceAccount>(world, "robot", json!({})).await;
        world.create(&Kind::of::<Node>(), None, json!({"metadata": {"name": "full"}})).await;
        let template = json!({"metadata": {"labels": {"app": "d"}}, "spec": small()["spec"]});
        let selector = json!({"matchLabels": {"app": "d"}});
        create::<DaemonSet>(world, "agent", json!({"spec": {"selector": selector, "template": template}}))
            .await;
        let mut work = job(json!({"backoffLimit": 6}), "1");
        work["spec"]["template"]["spec"]["nodeName"] = json!("full");
        create::<Job>(world, "work", work).await;
        let mut made = Vec::new();
        for _ in 0..1800 {
            reject_all(world).await;
            world.pass(Duration::from_secs(1)).await;
            made.push(world.counts().0.get("pods").copied().unwrap_or_default().0);
        }
        // The delays of a daemon pod double from one second: eleven pods in half an hour. A Job gives up after seven.
        let last = *made.last().expect("it was watched");
        assert!((8..=24).contains(&last), "{last} pods in half an hour");
        assert!(
            made[1799] - made[1499] <= 2,
            "hardly any in the last five minutes: {}",
            made[1799] - made[1499]
        );
        until::<Job>(world, "work", |job| holds(job, "Failed")).await;
    });
}

/// Rejects pods like a kubelet without room.
async fn reject_all(world: &World) {
    for pod in pods(world).await {
        if pod["status"]["phase"] != "Failed" && pod["metadata"]["deletionTimestamp"].is_null() {
            let name = pod["metadata"]["name"].as_str().unwrap_or_default();
            let status = json!({"status": {"phase": "Failed", "reason": "OutOfpods", "message": "no room"}});
            let patch = Patch::merge(&status);
            // The controller may have deleted the pod in the meantime.
            let _ = world.client().patch(&Kind::of::<Pod>(), &key(name), Subresource::Status, patch).await;
        }
    }
}

#[test]
fn a_namespace_whose_content_cannot_be_deleted_reports_it_and_is_deleted_later() {
    let faults = vec![Fault::Deny { path: "/namespaces/team/configmaps", code: 503 }];
    World::simulate(1, parts(&["namespace"]), faults, async |world| {
        let (namespaces, team) = (Kind::of::<Namespace>(), Key::cluster("team"));
        world.create(&namespaces, None, json!({"metadata": {"name": "team"}})).await;
        world.create(&Kind::of::<ConfigMap>(), Some("team"), json!({"metadata": {"name": "a"}})).await;
        world
            .client()
            .delete(&namespaces, &team, &DeleteOptions::default())
            .await
            .expect("the user's own call");
        let reported =
            |team: Option<&Value>| team.is_some_and(|team| holds(team, "NamespaceDeletionContentFailure"));
        world.until(&namespaces, &team, reported).await;
        world.faults().calm();
        world.until(&namespaces, &team, |team| team.is_none()).await;
    });
}

/// Two sets select the same pods. Each pod has one controller, and the sets do not fight.
#[test]
fn sets_with_one_selector_share_no_pod() {
    World::simulate(1, parts(&["replicaset"]), Vec::new(), async |world| {
        for name in ["one", "two"] {
            create::<ReplicaSet>(world, name, replicas(2, small())).await;
        }
        for name in ["one", "two"] {
            until::<ReplicaSet>(world, name, ready(2)).await;
        }
        let mut owners: BTreeMap<String, usize> = BTreeMap::new();
        for pod in pods(world).await {
            let references = pod["metadata"]["ownerReferences"].as_array().cloned().unwrap_or_default();
            assert_eq!(references.len(), 1, "{pod}");
            *owners.entry(references[0]["name"].to_string()).or_default() += 1;
        }
        assert_eq!(owners.values().copied().collect::<Vec<_>>(), [2, 2]);
        let made = |world: &World| world.counts().0.get("pods").copied().unwrap_or_default();
        let counts = made(world);
        world.pass(Duration::from_secs(600)).await;
        assert_eq!(made(world), counts);
    });
}
