//! Table tests of plans, and a property test of convergence.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use proptest::prelude::*;
use serde_json::{Value, json};
use setpoint::Cached;

use super::ReplicaSet;
use super::observe::Observed;
use super::plan::{Action, BURST, Plan, plan};
use super::rank::{age_ratios, pods_to_delete};
use super::status::{Failed, next_check, status};
use crate::workload::condition::Condition;
use crate::workload::fixtures::{DELETION_COST, at, cached};
use crate::workload::pod::{Pod, is_active};

const NOW: i64 = 1_000_000;

/// A pod of the model.
#[derive(Clone, Debug)]
struct Model {
    name: String,
    app: &'static str,
    controller: Option<&'static str>,
    node: &'static str,
    phase: &'static str,
    /// Seconds since it became ready.
    ready_for: Option<i64>,
    age: i64,
    restarts: i32,
    cost: i32,
    being_deleted: bool,
}

impl Model {
    fn named(name: &str) -> Self {
        Self {
            name: name.into(),
            app: "mine",
            controller: Some("me"),
            node: "n1",
            phase: "Running",
            ready_for: Some(100),
            age: 100,
            restarts: 0,
            cost: 0,
            being_deleted: false,
        }
    }

    fn cached(&self) -> Cached<Pod> {
        let owner = |uid| json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": uid, "uid": uid, "controller": true});
        let ready = match self.ready_for {
            Some(seconds) => {
                json!({"type": "Ready", "status": "True", "lastTransitionTime": at(NOW - seconds)})
            }
            None => json!({"type": "Ready", "status": "False"}),
        };
        let deleted = self.being_deleted.then(|| at(NOW));
        cached(json!({
            "metadata": {
                "name": self.name, "namespace": "ns", "uid": self.name, "creationTimestamp": at(NOW - self.age),
                "deletionTimestamp": deleted, "labels": {"app": self.app},
                "annotations": {DELETION_COST: self.cost.to_string()},
                "ownerReferences": self.controller.map(owner).into_iter().collect::<Vec<_>>(),
            },
            "spec": {"nodeName": self.node},
            "status": {
                "phase": self.phase, "conditions": [ready],
                "containerStatuses": [{"name": "c", "restartCount": self.restarts}],
            },
        }))
    }
}

fn set_json(replicas: i32) -> Value {
    json!({
        "metadata": {"name": "me", "namespace": "ns", "uid": "me", "generation": 3},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": "mine"}},
            "template": {"metadata": {"labels": {"app": "mine"}}, "spec": {}},
        },
    })
}

fn set(replicas: i32) -> Cached<ReplicaSet> {
    cached(set_json(replicas))
}

fn observed(pods: &[Model]) -> Observed {
    let mut pods: Vec<_> =
        pods.iter().filter(|pod| pod.controller != Some("other")).map(Model::cached).collect();
    pods.retain(is_active);
    Observed {
        pods,
        sibling_pods_per_node: BTreeMap::new(),
        caught_up: true,
        terminating: None,
        by_cost: true,
    }
}

fn names(pods: &[Cached<Pod>]) -> Vec<String> {
    pods.iter().map(|pod| pod.meta().name.to_string()).collect()
}

/// Formats a plan.
fn words(plan: &Plan) -> Vec<String> {
    let word = |action: &Action| match action {
        Action::Adopt { pod, recheck_owner: true } => format!("recheck, adopt {}", pod.meta().name),
        Action::Adopt { pod, recheck_owner: false } => format!("adopt {}", pod.meta().name),
        Action::Release { pod } => format!("release {}", pod.meta().name),
        Action::Create { count } => format!("create {count}"),
        Action::Delete { pods } => format!("delete {}", names(pods).join(" ")),
    };
    plan.actions.iter().map(word).collect()
}

mod planning {
    use super::*;

    #[track_caller]
    fn check(replicas: i32, pods: &[Model], expected: &[&str]) {
        let plan = plan(&set(replicas), &observed(pods), at(NOW));
        assert_eq!(words(&plan), expected, "{replicas} wanted of {pods:?}");
    }

    fn pods<const N: usize>(names: [&str; N], change: impl Fn(&mut Model)) -> Vec<Model> {
        let mut pods = names.map(Model::named).to_vec();
        pods.iter_mut().for_each(change);
        pods
    }

    #[test]
    fn the_difference_is_created_or_deleted() {
        let three = pods(["a", "b", "c"], |_| {});
        check(3, &three, &[]);
        check(5, &three, &["create 2"]);
        check(0, &three, &["delete a b c"]);
        check(2, &three, &["delete a"]);
        check(0, &[], &[]);
        check(-1, &[], &[]);
    }

    #[test]
    fn finished_and_terminating_pods_do_not_count() {
        check(2, &pods(["a", "b"], |pod| pod.being_deleted = true), &["create 2"]);
        check(2, &pods(["a", "b"], |pod| pod.phase = "Failed"), &["create 2"]);
        check(2, &pods(["a", "b"], |pod| pod.phase = "Succeeded"), &["create 2"]);
        check(2, &pods(["a", "b"], |pod| pod.phase = "Unknown"), &[]);
        check(2, &pods(["a", "b"], |pod| pod.phase = ""), &[]);
    }

    #[test]
    fn orphans_that_match_are_adopted_and_count() {
        let orphans = pods(["a", "b"], |pod| pod.controller = None);
        check(3, &orphans, &["recheck, adopt a", "adopt b", "create 1"]);
        check(1, &orphans, &["recheck, adopt a", "adopt b", "delete a"]);
        check(1, &pods(["a"], |pod| (pod.controller, pod.app) = (None, "theirs")), &["create 1"]);
        let mut ending = orphans;
        ending.iter_mut().for_each(|pod| pod.being_deleted = true);
        check(0, &ending, &[]);
    }

    #[test]
    fn pods_on_crowded_nodes_are_deleted_first() {
        let mut pods = pods(["a", "b", "c"], |pod| pod.controller = None);
        (pods[0].node, pods[1].node, pods[2].node) = ("n2", "n1", "n1");
        check(2, &pods, &["recheck, adopt a", "adopt b", "adopt c", "delete b"]);
        let mut crowded = observed(&pods);
        crowded.sibling_pods_per_node = [("n2".into(), 2)].into();
        let plan = plan(&set(2), &crowded, at(NOW));
        assert_eq!(words(&plan).last().unwrap(), "delete a", "a sibling has two more there");
    }

    #[test]
    fn pods_that_no_longer_match_are_released_and_replaced() {
        check(1, &pods(["a"], |pod| pod.app = "theirs"), &["release a", "create 1"]);
    }

    #[test]
    fn no_more_than_a_burst_is_created_or_deleted_at_once() {
        check(1300, &[], &[&format!("create {BURST}")]);
        let many: Vec<_> = (0..1300).map(|n| Model::named(&format!("p{n:04}"))).collect();
        let plan = plan(&set(0), &observed(&many), at(NOW));
        assert!(matches!(&plan.actions[..], [Action::Delete { pods }] if pods.len() == BURST));
    }

    #[test]
    fn a_cache_that_lags_allows_claims_but_no_creates_or_deletes() {
        let pods =
            [Model { controller: None, ..Model::named("a") }, Model { app: "theirs", ..Model::named("b") }];
        let lagging = Observed { caught_up: false, ..observed(&pods) };
        for replicas in [0, 5] {
            let plan = plan(&set(replicas), &lagging, at(NOW));
            assert_eq!(words(&plan), ["recheck, adopt a", "release b"]);
            assert_eq!(names(&plan.pods), ["a"], "status counts them all the same");
        }
    }

    #[test]
    fn a_set_that_is_being_deleted_does_nothing() {
        let mut json = set_json(5);
        json["metadata"]["deletionTimestamp"] = json!(at(NOW));
        let pods = [
            Model { controller: None, ..Model::named("a") },
            Model { app: "theirs", ..Model::named("b") },
            Model::named("c"),
        ];
        let plan = plan(&cached::<ReplicaSet>(json), &observed(&pods), at(NOW));
        assert_eq!((words(&plan), names(&plan.pods)), (vec![], vec!["c".to_owned()]));
    }
}

mod ranking {
    use super::*;

    fn order(pods: &[Model], pods_per_node: &[(&str, usize)]) -> Vec<String> {
        let cached: Vec<_> = pods.iter().map(Model::cached).collect();
        let pods_per_node = pods_per_node.iter().map(|(node, count)| ((*node).into(), *count)).collect();
        let keep_one = cached.len() - 1;
        names(&pods_to_delete(&cached, keep_one, &pods_per_node, true, at(NOW)))
    }

    /// Checks that `first` is deleted before `second`, although its uid sorts after.
    #[track_caller]
    fn check(first: Model, second: Model) {
        check_crowded(first, second, &[]);
    }

    #[track_caller]
    fn check_crowded(first: Model, second: Model, pods_per_node: &[(&str, usize)]) {
        let first = Model { name: "z".into(), ..first };
        let second = Model { name: "a".into(), ..second };
        for pods in [[first.clone(), second.clone()], [second.clone(), first.clone()]] {
            assert_eq!(order(&pods, pods_per_node), ["z"], "{first:?} goes before {second:?}");
        }
    }

    fn pod() -> Model {
        Model::named("")
    }

    #[test]
    fn each_rule_decides_before_those_after_it() {
        // Each pair contradicts all later rules.
        let worst = || Model {
            phase: "Pending",
            ready_for: None,
            cost: -9,
            restarts: 9,
            age: 1,
            ..Model { node: "crowded", ..pod() }
        };
        let best = || Model { cost: 9, ready_for: Some(900_000), age: 900_000, ..pod() };
        let pods_per_node = [("crowded", 3), ("n1", 1)];

        check_crowded(Model { node: "", ..best() }, worst(), &pods_per_node);
        check_crowded(
            Model { phase: "Pending", ..best() },
            Model { phase: "Unknown", ..worst() },
            &pods_per_node,
        );
        check_crowded(
            Model { phase: "Unknown", ..best() },
            Model { phase: "Running", ..worst() },
            &pods_per_node,
        );
        let running = || Model { phase: "Running", ..worst() };
        check_crowded(
            Model { ready_for: None, ..best() },
            Model { ready_for: Some(1), ..running() },
            &pods_per_node,
        );
        let ready = || Model { ready_for: Some(1), ..running() };
        check_crowded(Model { cost: -10, ..best() }, ready(), &pods_per_node);
        check_crowded(
            Model { node: "crowded", cost: 0, ..best() },
            Model { node: "n1", cost: 0, ..ready() },
            &pods_per_node,
        );
        check(
            Model { ready_for: Some(1), ..pod() },
            Model { ready_for: Some(1000), restarts: 9, age: 1, ..pod() },
        );
        check(Model { restarts: 2, age: 900_000, ..pod() }, Model { restarts: 1, age: 1, ..pod() });
        check(Model { age: 10, ..pod() }, Model { age: 900_000, ..pod() });
        check(pod(), Model { controller: None, ..pod() });
    }

    #[test]
    fn about_the_same_age_is_left_to_chance() {
        let pods = [("b", 100_000), ("a", 120_000), ("c", 110_000), ("d", 100)].map(|(name, age)| Model {
            age,
            ready_for: Some(age),
            ..Model::named(name)
        });
        assert_eq!(order(&pods, &[]), ["d", "a", "b"]);
    }

    #[test]
    fn age_ratios_are_relative_to_the_youngest_ready_pod() {
        let pods = [(10, Some(1)), (25, Some(1)), (1, None)].map(|(age, ready_for)| {
            let name = format!("p{age}");
            Model { age, ready_for, ..Model::named(&name) }.cached()
        });
        assert_eq!(age_ratios(&pods, &pods[1..], at(NOW)), [2.0]);
        assert_eq!(age_ratios(&pods[2..], &pods, at(NOW)), [0.0; 0]);
    }

    #[test]
    fn a_time_in_the_future_counts_as_youngest_and_a_missing_one_goes_first() {
        check(Model { age: -50, ..pod() }, Model { age: 1, ..pod() });
        let mut unstamped = Model::named("z").cached().object().decode::<Value>().unwrap();
        unstamped["metadata"]["creationTimestamp"] = Value::Null;
        let pods = [Model { age: -50, ..Model::named("a") }.cached(), cached(unstamped)];
        assert_eq!(names(&pods_to_delete(&pods, 1, &BTreeMap::new(), true, at(NOW))), ["z"]);
    }

    #[test]
    fn a_pod_that_shares_its_node_is_deleted_before_one_that_does_not() {
        let pods = [("a", "n1"), ("b", "n2"), ("c", "n2"), ("d", "n3")]
            .map(|(name, node)| Model { node, ..Model::named(name) });
        assert_eq!(order(&pods, &[("n1", 1), ("n2", 2), ("n3", 1)]), ["b", "c", "a"]);
    }
}

mod reporting {
    use super::*;

    fn cached_pods(pods: &[Model]) -> Vec<Cached<Pod>> {
        pods.iter().map(Model::cached).collect()
    }

    fn with_min_ready(seconds: i32) -> Cached<ReplicaSet> {
        let mut json = set_json(3);
        json["spec"]["minReadySeconds"] = json!(seconds);
        json["spec"]["template"]["metadata"]["labels"] = json!({"app": "mine", "tier": "web"});
        cached(json)
    }

    #[test]
    fn pods_are_counted_by_what_they_are() {
        let pods = [
            Model { ready_for: None, ..Model::named("a") },
            Model { ready_for: Some(5), ..Model::named("b") },
            Model { ready_for: Some(10), ..Model::named("c") },
        ];
        let pods = cached_pods(&pods);
        let status = status(&with_min_ready(10), &pods, None, at(NOW));
        let expected = json!({
            "replicas": 3, "readyReplicas": 2, "availableReplicas": 1, "observedGeneration": 3,
        });
        assert_eq!(serde_json::to_value(&status).unwrap(), expected, "none has all labels of the template");
        assert_eq!(next_check(&with_min_ready(10), &status, &pods, at(NOW)), Some(Duration::from_secs(5)));
    }

    #[test]
    fn a_set_without_pods_reports_zero() {
        let status = status(&set(0), &[], None, at(NOW));
        assert_eq!(serde_json::to_value(&status).unwrap(), json!({"replicas": 0, "observedGeneration": 3}));
    }

    #[test]
    fn pods_with_more_labels_than_the_template_count_as_fully_labelled() {
        let pods = cached_pods(&[Model::named("a")]);
        assert_eq!(status(&set(1), &pods, None, at(NOW)).fully_labeled_replicas, 1);
    }

    #[test]
    fn the_next_check_is_when_the_next_pod_becomes_available() {
        let check = |min_ready: i32, ready_for: &[Option<i64>], expected: Option<u64>| {
            let pods: Vec<_> = ready_for
                .iter()
                .map(|ready_for| Model { ready_for: *ready_for, ..Model::named("a") }.cached())
                .collect();
            let set = with_min_ready(min_ready);
            let status = status(&set, &pods, None, at(NOW));
            let next = next_check(&set, &status, &pods, at(NOW));
            assert_eq!(next, expected.map(Duration::from_secs), "{min_ready} {ready_for:?}");
        };
        check(0, &[Some(0), None], None);
        check(10, &[None, None], None);
        check(10, &[Some(20), Some(10)], None);
        check(10, &[Some(20), Some(1), Some(3), None], Some(7));
    }

    fn with_failure(since: Timestamp) -> Cached<ReplicaSet> {
        let mut json = set_json(3);
        let failure = Condition::new("ReplicaFailure", "True", "FailedCreate", "at first", since);
        json["status"] = json!({"conditions": [failure]});
        cached(json)
    }

    #[test]
    fn a_failure_is_reported_until_it_is_resolved() {
        let failing = status(&set(3), &[], Some((Failed::Create, "quota")), at(NOW));
        assert_eq!(
            failing.conditions,
            [Condition::new("ReplicaFailure", "True", "FailedCreate", "quota", at(NOW))]
        );
        let deleting = status(&set(3), &[], Some((Failed::Delete, "no")), at(NOW));
        assert_eq!(deleting.conditions[0].reason, "FailedDelete");
        let still = status(&with_failure(at(1)), &[], Some((Failed::Create, "later")), at(NOW));
        assert_eq!(still.conditions, with_failure(at(1)).status.conditions, "as it was when it began");
        assert_eq!(status(&with_failure(at(1)), &[], None, at(NOW)).conditions, []);
    }
}

mod properties {
    use super::*;

    prop_compose! {
        fn pod(name: String)(
            app in prop::sample::select(vec!["mine", "mine", "theirs"]),
            controller in prop::sample::select(vec![Some("me"), Some("me"), Some("other"), None]),
            node in prop::sample::select(vec!["", "n1", "n2"]),
            phase in prop::sample::select(vec!["Pending", "Running", "Running", "Failed", "Succeeded"]),
            ready_for in prop::option::of(0..100_000i64),
            age in -10..1_000_000i64,
            restarts in 0..3,
            cost in -1..2,
            being_deleted in prop::bool::weighted(0.1),
        ) -> Model {
            Model { name: name.clone(), app, controller, node, phase, ready_for, age, restarts, cost, being_deleted }
        }
    }

    fn world() -> impl Strategy<Value = Vec<Model>> {
        prop::collection::vec(any::<()>(), 0..12).prop_flat_map(|slots| {
            slots.iter().enumerate().map(|(n, ())| pod(format!("p{n}"))).collect::<Vec<_>>()
        })
    }

    fn find<'a>(world: &'a mut [Model], pod: &Cached<Pod>) -> &'a mut Model {
        world.iter_mut().find(|model| *model.name == *pod.meta().name).expect("a planned pod is there")
    }

    /// Applies the plan to the model.
    fn apply(world: &mut Vec<Model>, plan: &Plan) {
        for action in &plan.actions {
            match action {
                Action::Adopt { pod, .. } => find(world, pod).controller = Some("me"),
                Action::Release { pod } => find(world, pod).controller = None,
                Action::Create { count } => {
                    let base = world.len();
                    world.extend(
                        (base..base + count)
                            .map(|n| Model { phase: "Pending", ..Model::named(&format!("new{n}")) }),
                    );
                }
                Action::Delete { pods } => {
                    pods.iter().for_each(|pod| find(world, pod).being_deleted = true);
                }
            }
        }
    }

    fn is_mine(pod: &Model) -> bool {
        let active = !pod.being_deleted && !matches!(pod.phase, "Failed" | "Succeeded");
        active && pod.controller == Some("me") && pod.app == "mine"
    }

    proptest! {
        #[test]
        fn a_carried_out_plan_leaves_nothing_to_do(mut world in world(), replicas in 0..15) {
            let before: BTreeMap<_, _> = world.iter().map(|pod| (pod.name.clone(), pod.clone())).collect();
            let first = plan(&set(replicas), &observed(&world), at(NOW));
            apply(&mut world, &first);

            let again = plan(&set(replicas), &observed(&world), at(NOW + 1));
            prop_assert_eq!(words(&again), Vec::<String>::new());
            prop_assert_eq!(world.iter().filter(|pod| is_mine(pod)).count(), replicas as usize);
            for pod in world.iter().filter(|pod| pod.controller == Some("other")) {
                prop_assert_eq!(pod.being_deleted, before[&pod.name].being_deleted, "{} is another's", pod.name);
            }
        }

        #[test]
        fn a_plan_creates_or_deletes_and_never_both(world in world(), replicas in 0..15) {
            let plan = plan(&set(replicas), &observed(&world), at(NOW));
            let creates = plan.actions.iter().any(|action| matches!(action, Action::Create { .. }));
            let deletes = plan.actions.iter().any(|action| matches!(action, Action::Delete { .. }));
            prop_assert!(!(creates && deletes));
        }

        #[test]
        fn the_pods_to_delete_do_not_depend_on_the_order_of_the_list(
            world in world(), count in 0..12usize, turn in 0..12usize,
        ) {
            let pods: Vec<_> = world.iter().map(Model::cached).collect();
            let mut turned = pods.clone();
            turned.rotate_left(turn.min(pods.len()));
            turned.reverse();
            let chosen = |pods: &[Cached<Pod>]| {
                let mut names = names(&pods_to_delete(pods, count, &BTreeMap::new(), true, at(NOW)));
                names.sort();
                names
            };
            prop_assert_eq!(chosen(&pods), chosen(&turned));
        }
    }

    #[test]
    fn a_large_set_is_reached_in_bursts() {
        let mut world = Vec::new();
        let rounds = (1..10)
            .find(|_| {
                let plan = plan(&set(1300), &observed(&world), at(NOW));
                apply(&mut world, &plan);
                plan.actions.is_empty()
            })
            .expect("it converges");
        assert_eq!((rounds, world.len()), (4, 1300));
    }
}
