//! Plans and statuses as tables, the bounds of a rollout as a property.

use std::time::Duration;

use proptest::prelude::*;
use serde_json::{Value, json};
use setpoint::Cached;

use super::bounds::Bounds;
use super::members::Members;
use super::observe::Observed;
use super::plan::{Plan, Sync, plan};
use super::progress::{NewSet, NextCheck, next_check};
use super::revision::{DESIRED_REPLICAS, MAX_REPLICAS, REVISION, REVISION_HISTORY, ROLLBACK_TO};
use super::rollback::Rollback;
use super::status;
use super::view::{Deployment, DeploymentStatus};
use crate::replicaset::ReplicaSet;
use crate::workload::condition::{self, Condition};
use crate::workload::fixtures::{at, cached};

const NOW: i64 = 1_000;

/// A Deployment of template `v9`, 10 replicas, three more or two fewer at a time.
fn deployment_json() -> Value {
    json!({
        "metadata": {"name": "d", "namespace": "ns", "uid": "d-uid", "generation": 7, "annotations": {REVISION: "9"}},
        "spec": {
            "replicas": 10,
            "selector": {"matchLabels": {"app": "a"}},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 3, "maxUnavailable": 2}},
            "template": {"metadata": {"labels": {"app": "a"}}, "spec": {"version": 9}},
            "progressDeadlineSeconds": 600,
            "revisionHistoryLimit": 10,
        },
        "status": {"observedGeneration": 7},
    })
}

fn deployment(change: impl FnOnce(&mut Value)) -> Cached<Deployment> {
    let mut json = deployment_json();
    change(&mut json);
    cached(json)
}

fn sized(replicas: i32, surge: Value, unavailable: Value) -> Cached<Deployment> {
    deployment(|d| {
        d["spec"]["replicas"] = json!(replicas);
        d["spec"]["strategy"]["rollingUpdate"] = json!({"maxSurge": surge, "maxUnavailable": unavailable});
    })
}

/// A set of template and revision `version`, as old as its version is low.
#[derive(Clone, Debug)]
struct Model {
    version: i64,
    replicas: i32,
    /// What its own controller last said.
    reported: i32,
    available: i32,
    /// The size of the Deployment it was last sized for, and that with its surge.
    sized_for: (i32, i32),
    observed: bool,
}

impl Model {
    /// All pods there and available, sized for a Deployment of 10 and 3 more.
    fn of(version: i64, replicas: i32) -> Self {
        Self {
            version,
            replicas,
            reported: replicas,
            available: replicas,
            sized_for: (10, 13),
            observed: true,
        }
    }

    fn json(&self) -> Value {
        let (desired, max) = self.sized_for;
        json!({
            "metadata": {
                "name": format!("v{}", self.version), "namespace": "ns", "uid": format!("uid-{}", self.version),
                "generation": 2, "creationTimestamp": at(self.version), "labels": {"app": "a"},
                "annotations": {
                    REVISION: self.version.to_string(), DESIRED_REPLICAS: desired.to_string(), MAX_REPLICAS: max.to_string(),
                },
                "ownerReferences": [
                    {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d", "uid": "d-uid", "controller": true},
                ],
            },
            "spec": {
                "replicas": self.replicas,
                "selector": {"matchLabels": {"app": "a"}},
                "template": {
                    "metadata": {"labels": {"app": "a", "pod-template-hash": "x"}}, "spec": {"version": self.version},
                },
            },
            "status": {
                "replicas": self.reported, "readyReplicas": self.available, "availableReplicas": self.available,
                "observedGeneration": if self.observed { 2 } else { 1 },
            },
        })
    }

    fn cached(&self) -> Cached<ReplicaSet> {
        cached(self.json())
    }
}

fn observed(sets: &[Model]) -> Observed {
    Observed { sets: sets.iter().map(Model::cached).collect(), busy: Vec::new() }
}

fn sync(deployment: &Cached<Deployment>, sets: &[Model]) -> Sync {
    match plan(deployment, &observed(sets)) {
        Plan::Sync(sync) => sync,
        _ => panic!("the sets are the Deployment's own"),
    }
}

/// What a sync changes, in words.
fn words(sync: &Sync) -> Vec<String> {
    let mut words = Vec::new();
    for member in sync.members.new.iter().chain(&sync.members.old) {
        match &member.existing {
            None => words.push(format!("create with {}", member.replicas)),
            Some(set) if set.spec.replicas != member.replicas => {
                words.push(format!("{} {} to {}", member.name, set.spec.replicas, member.replicas));
            }
            Some(_) => {}
        }
    }
    words.extend(sync.delete.iter().map(|set| format!("delete {}", set.meta().name)));
    words
}

#[track_caller]
fn check(deployment: &Cached<Deployment>, sets: &[Model], expected: &[&str]) {
    assert_eq!(words(&sync(deployment, sets)), expected, "{sets:?}");
}

fn unavailable(model: Model, count: i32) -> Model {
    Model { available: model.available - count, ..model }
}

mod bounds {
    use super::*;

    #[test]
    fn shares_round_in_favour_of_moving_on() {
        let check = |replicas: i32, surge: Value, unavailable: Value, expected: (i32, i32)| {
            let bounds = Bounds::of(&sized(replicas, surge.clone(), unavailable.clone()).spec);
            let actual = (bounds.max_surge, bounds.max_unavailable);
            assert_eq!(actual, expected, "{replicas} with {surge} and {unavailable}");
        };
        check(10, json!("25%"), json!("25%"), (3, 2));
        check(1, json!("25%"), json!("25%"), (1, 0));
        check(2, json!(0), json!("1%"), (0, 1));
        check(1, json!(0), json!("1%"), (0, 1));
        check(2, json!("1%"), json!("25%"), (1, 0));
        check(10, json!("50%"), json!("100%"), (5, 10));
        check(10, json!("200%"), json!(0), (20, 0));
        check(3, json!(2), json!(7), (2, 3));
        check(0, json!("25%"), json!("25%"), (0, 0));
        check(10, json!("many"), json!("25"), (0, 1));
        check(i32::MAX, json!("100%"), json!("100%"), (i32::MAX, i32::MAX));
    }

    #[test]
    fn a_recreate_has_no_room() {
        let bounds = Bounds::of(&deployment(|d| d["spec"]["strategy"] = json!({"type": "Recreate"})).spec);
        assert_eq!((bounds.most(), bounds.fewest_available()), (10, 10));
    }
}

mod rolling {
    use super::*;

    #[test]
    fn a_first_rollout_creates_all_pods_at_once() {
        check(&deployment(|_| {}), &[], &["create with 10"]);
        check(&sized(0, json!(1), json!(1)), &[], &["create with 0"]);
    }

    #[test]
    fn a_new_set_begins_with_what_the_surge_allows_and_old_pods_go_at_once_as_far_as_allowed() {
        check(&deployment(|_| {}), &[Model::of(1, 10)], &["create with 3", "v1 10 to 8"]);
        check(&sized(10, json!(0), json!(2)), &[Model::of(1, 10)], &["create with 0", "v1 10 to 8"]);
        check(&sized(10, json!(2), json!(0)), &[Model::of(1, 10)], &["create with 2"]);
    }

    #[test]
    fn the_new_set_grows_into_the_room_there_is() {
        let surge_2 = sized(10, json!(2), json!(0));
        check(&surge_2, &[Model::of(9, 0), Model::of(1, 10)], &["v9 0 to 2"]);
        check(&surge_2, &[Model::of(9, 0), Model::of(1, 5)], &["v9 0 to 7"]);
        check(&surge_2, &[Model::of(9, 11), Model::of(1, 2)], &["v9 11 to 10"]);
        check(&surge_2, &[unavailable(Model::of(9, 2), 2), Model::of(1, 10)], &[]);
    }

    #[test]
    fn old_pods_go_as_new_ones_become_available() {
        let d = sized(10, json!(0), json!(2));
        check(&d, &[Model::of(9, 0), Model::of(1, 10)], &["v1 10 to 8"]);
        check(&d, &[unavailable(Model::of(9, 2), 2), Model::of(1, 8)], &[]);
        check(&d, &[unavailable(Model::of(9, 2), 1), Model::of(1, 8)], &["v1 8 to 7"]);
        check(&d, &[Model::of(9, 2), Model::of(1, 5), Model::of(2, 3)], &["v1 5 to 3"]);
        check(&d, &[Model::of(9, 8), Model::of(1, 1), Model::of(2, 1)], &["v1 1 to 0", "v2 1 to 0"]);
    }

    #[test]
    fn old_pods_that_are_not_available_go_first() {
        let d = sized(10, json!(0), json!(2));
        check(&d, &[Model::of(9, 0), unavailable(Model::of(1, 10), 2)], &["v1 10 to 8"]);
        check(&d, &[Model::of(9, 0), unavailable(Model::of(1, 10), 1)], &["v1 10 to 8"]);
        check(&d, &[Model::of(9, 0), Model::of(1, 5), unavailable(Model::of(2, 5), 2)], &["v2 5 to 3"]);
        let crashing = unavailable(Model::of(2, 5), 5);
        check(&deployment(|_| {}), &[Model::of(1, 8), crashing], &["create with 0", "v2 5 to 0"]);
    }

    #[test]
    fn new_pods_that_crash_cost_no_old_ones() {
        let crashing = unavailable(Model::of(9, 5), 5);
        check(&deployment(|_| {}), &[crashing.clone(), Model::of(1, 8)], &[]);
        check(&deployment(|_| {}), &[crashing, unavailable(Model::of(1, 8), 1)], &[]);
    }

    #[test]
    fn a_set_that_has_not_caught_up_with_its_size_stops_the_rollout() {
        let lagging = Model { available: 8, ..Model::of(1, 5) };
        check(&deployment(|_| {}), &[Model::of(9, 8), lagging], &[]);
        let gone = Model { available: 5, reported: 5, ..Model::of(1, 0) };
        let d = sized(10, json!(0), json!(2));
        check(&d, &[Model::of(9, 2), gone, Model::of(2, 8)], &["v2 8 to 6"]);
    }

    #[test]
    fn a_settled_deployment_changes_nothing() {
        let sync = sync(&deployment(|_| {}), &[Model::of(9, 10), Model::of(1, 0)]);
        assert!(sync.members.all().all(|member| !member.differs_from(member.existing.as_ref().unwrap())));
    }
}

mod recreating {
    use super::*;

    fn recreate() -> Cached<Deployment> {
        deployment(|d| d["spec"]["strategy"] = json!({"type": "Recreate"}))
    }

    #[test]
    fn new_pods_come_only_when_all_old_ones_have_ended() {
        check(&recreate(), &[], &["create with 10"]);
        check(&recreate(), &[Model::of(1, 10), Model::of(2, 3)], &["v1 10 to 0", "v2 3 to 0"]);
        let reported = Model { reported: 1, ..Model::of(1, 0) };
        check(&recreate(), &[reported], &[]);
        check(&recreate(), &[Model::of(1, 0)], &["create with 10"]);
        check(&recreate(), &[Model::of(1, 0), Model::of(9, 0)], &["v9 0 to 10"]);
    }

    #[test]
    fn pods_that_take_their_time_to_end_are_waited_for() {
        let waits = |busy: &str| {
            let observed =
                Observed { busy: vec![busy.into()], ..observed(&[Model::of(1, 0), Model::of(9, 0)]) };
            let Plan::Sync(sync) = plan(&recreate(), &observed) else { panic!("a sync") };
            words(&sync).is_empty()
        };
        assert!(waits("uid-1"));
        assert!(!waits("uid-9"), "pods of the new set are not old");
    }
}

mod scaling {
    use super::*;

    /// Scales from `from` to `to` replicas with this surge before and after.
    #[track_caller]
    fn check(from: (i32, i32), to: (i32, i32), sets: &[(i64, i32)], expected: &[&str]) {
        let deployment = sized(to.0, json!(to.1), json!(if to.1 == 0 { 1 } else { 0 }));
        let sized_for = (from.0, from.0 + from.1);
        let sets: Vec<_> = sets
            .iter()
            .map(|(version, replicas)| Model { sized_for, ..Model::of(*version, *replicas) })
            .collect();
        assert_eq!(words(&sync(&deployment, &sets)), expected, "{from:?} to {to:?}: {sets:?}");
    }

    #[test]
    fn one_active_set_takes_the_whole_size() {
        check((10, 0), (12, 0), &[(9, 10)], &["v9 10 to 12"]);
        check((10, 0), (5, 0), &[(9, 10), (1, 0)], &["v9 10 to 5"]);
        check((10, 0), (5, 0), &[(1, 10)], &["v1 10 to 5"]);
    }

    #[test]
    fn several_active_sets_grow_and_shrink_in_proportion() {
        check((5, 0), (10, 0), &[(9, 2), (1, 3)], &["v9 2 to 4", "v1 3 to 6"]);
        check((5, 0), (3, 0), &[(9, 2), (1, 3)], &["v9 2 to 1", "v1 3 to 2"]);
        check((9, 0), (4, 0), &[(9, 8), (1, 1)], &["v9 8 to 4", "v1 1 to 0"]);
        check((7, 0), (10, 0), &[(9, 2), (2, 3), (1, 2)], &["v9 2 to 3", "v1 2 to 3", "v2 3 to 4"]);
        check((13, 0), (8, 0), &[(9, 2), (2, 8), (1, 3)], &["v9 2 to 1", "v1 3 to 2", "v2 8 to 5"]);
        check((6, 0), (0, 0), &[(9, 3), (2, 2), (1, 1)], &["v9 3 to 0", "v1 1 to 0", "v2 2 to 0"]);
        check((10, 2), (20, 2), &[(9, 6), (1, 6)], &["v9 6 to 11", "v1 6 to 11"]);
        check((10, 3), (50, 6), &[(9, 5), (1, 8)], &["v9 5 to 22", "v1 8 to 34"]);
        check((10, 0), (14, 0), &[(2, 7), (1, 3)], &["v1 3 to 4", "v2 7 to 10"]);
    }

    #[test]
    fn what_rounding_leaves_over_goes_to_the_youngest_up_and_from_the_oldest_down() {
        check((3, 0), (4, 0), &[(9, 1), (2, 1), (1, 1)], &["v9 1 to 2"]);
        check((3, 0), (2, 0), &[(9, 1), (2, 1), (1, 1)], &["v1 1 to 0"]);
        check((4, 0), (5, 0), &[(2, 2), (1, 2)], &["v2 2 to 3"]);
    }

    #[test]
    fn a_size_that_was_noted_on_one_set_only_is_caught_up_with() {
        let d = sized(5, json!(0), json!(1));
        let set = |version, replicas, size| Model { sized_for: (size, size), ..Model::of(version, replicas) };
        super::check(&d, &[set(9, 2, 5), set(2, 1, 3), set(1, 1, 5)], &["v2 1 to 2"]);
    }

    #[test]
    fn a_saturated_new_set_ends_the_old_ones_and_a_broken_one_does_not() {
        let d = deployment(|d| d["spec"]["paused"] = json!(true));
        super::check(&d, &[Model::of(9, 10), Model::of(1, 2)], &["v1 2 to 0"]);
        let sized_for = (2, 3);
        let d = sized(2, json!(1), json!(1));
        let broken = unavailable(Model { sized_for, ..Model::of(9, 2) }, 2);
        super::check(&d, &[broken, Model { sized_for, ..Model::of(1, 1) }], &[]);
    }

    #[test]
    fn a_tampered_annotation_falls_back_on_the_status() {
        let d = deployment(|d| {
            d["spec"]["replicas"] = json!(20);
            d["status"]["replicas"] = json!(13);
        });
        let set = |version, replicas| Model { sized_for: (10, 0), ..Model::of(version, replicas) };
        super::check(&d, &[set(9, 6), set(1, 7)], &["v9 6 to 11", "v1 7 to 12"]);
    }

    #[test]
    fn the_new_size_is_noted_on_every_active_set() {
        let d = sized(11, json!(2), json!(0));
        let sync = sync(&d, &[Model::of(9, 6), Model::of(1, 7), Model::of(2, 0)]);
        let noted: Vec<_> =
            sync.members.all().map(|member| (&*member.name, &*member.annotations[MAX_REPLICAS])).collect();
        assert_eq!(noted, [("v1", "13"), ("v2", "13"), ("v9", "13")]);
        let noted: Vec<_> = sync.members.all().map(|member| &*member.annotations[DESIRED_REPLICAS]).collect();
        assert_eq!(noted, ["11", "10", "11"], "not on the one without pods");
        assert!(!sync.rolls_out, "progress is not estimated");
    }

    #[test]
    fn paused_deployments_scale_but_do_not_roll() {
        let paused = |replicas: i32| {
            deployment(|d| {
                d["spec"]["paused"] = json!(true);
                d["spec"]["replicas"] = json!(replicas);
            })
        };
        super::check(&paused(10), &[], &[]);
        super::check(&paused(10), &[Model::of(1, 10)], &[]);
        super::check(&paused(12), &[Model::of(1, 10)], &["v1 10 to 12"]);
        super::check(&paused(12), &[Model::of(1, 0)], &["v1 0 to 12"]);
    }
}

mod revisions {
    use super::*;

    fn annotations_of_new(deployment: &Cached<Deployment>, sets: &[Model]) -> Value {
        json!(sync(deployment, sets).members.new.unwrap().annotations)
    }

    #[test]
    fn a_new_set_has_the_next_revision_and_the_deployments_annotations() {
        let d = deployment(|d| {
            d["metadata"]["annotations"] = json!({
                "team": "a", REVISION: "3", DESIRED_REPLICAS: "4", "kubectl.kubernetes.io/last-applied-configuration": "{}",
            });
        });
        assert_eq!(
            annotations_of_new(&d, &[Model::of(4, 0)]),
            json!({"team": "a", REVISION: "5", DESIRED_REPLICAS: "10", MAX_REPLICAS: "13"})
        );
    }

    #[test]
    fn a_set_that_is_rolled_back_to_remembers_its_revisions() {
        let d = deployment(|d| d["spec"]["template"]["spec"]["version"] = json!(1));
        let new = annotations_of_new(&d, &[Model::of(1, 0), Model::of(2, 10)]);
        assert_eq!((&new[REVISION], &new[REVISION_HISTORY]), (&json!("3"), &json!("1")));
    }

    #[test]
    fn the_revision_of_a_new_set_never_goes_back() {
        let new = annotations_of_new(&deployment(|_| {}), &[Model::of(9, 10), Model::of(3, 0)]);
        assert_eq!((&new[REVISION], new.get(REVISION_HISTORY)), (&json!("9"), None));
    }

    #[test]
    fn a_history_that_grows_too_long_loses_its_oldest() {
        let mut annotations = [
            (REVISION.to_owned(), "998".to_owned()),
            (REVISION_HISTORY.to_owned(), vec!["500"; 499].join(",")),
        ]
        .into();
        super::super::revision::annotate_new(&mut annotations, &Default::default(), 1000);
        assert_eq!(annotations[REVISION_HISTORY].len(), 1999);
        assert!(annotations[REVISION_HISTORY].ends_with("500,998"));
        super::super::revision::annotate_new(&mut annotations, &Default::default(), 1001);
        assert_eq!(annotations[REVISION_HISTORY].len(), 2000);
        assert!(annotations[REVISION_HISTORY].ends_with("500,998,1000"));
    }

    #[test]
    fn min_ready_seconds_follow_the_deployment() {
        let d = deployment(|d| d["spec"]["minReadySeconds"] = json!(5));
        let sync = sync(&d, &[Model::of(9, 10), Model::of(1, 0)]);
        let seconds: Vec<_> = sync.members.all().map(|member| member.min_ready_seconds).collect();
        assert_eq!(seconds, [0, 5]);
    }

    #[test]
    fn of_two_sets_with_the_template_the_older_is_the_new_one() {
        let mut twin = Model::of(9, 3).json();
        twin["metadata"]["name"] = json!("twin");
        twin["metadata"]["creationTimestamp"] = json!(at(8));
        let members = Members::of(&deployment(|_| {}), vec![Model::of(9, 7).cached(), cached(twin)]);
        assert_eq!(members.new.unwrap().name, "twin");
        assert_eq!(members.old.len(), 1);
    }

    #[test]
    fn history_beyond_the_limit_is_deleted_once_the_rollout_is_complete() {
        let complete = |limit: i32| {
            deployment(|d| {
                d["spec"]["revisionHistoryLimit"] = json!(limit);
                d["status"] = json!({
                    "observedGeneration": 7, "replicas": 10, "updatedReplicas": 10, "availableReplicas": 10,
                });
            })
        };
        let sets = [Model::of(9, 10), Model::of(3, 0), Model::of(1, 0), Model::of(2, 0)];
        check(&complete(3), &sets, &[]);
        check(&complete(1), &sets, &["delete v1", "delete v2"]);
        check(&complete(0), &sets, &["delete v1", "delete v2", "delete v3"]);
        check(&complete(i32::MAX), &sets, &[]);
        let incomplete = deployment(|d| d["spec"]["revisionHistoryLimit"] = json!(0));
        check(&incomplete, &sets, &[]);

        let running = Model { reported: 1, ..Model::of(1, 0) };
        let unseen = Model { observed: false, ..Model::of(2, 0) };
        check(&complete(0), &[Model::of(9, 10), running, unseen, Model::of(3, 0)], &["delete v3"]);
    }
}

mod rollbacks {
    use super::*;

    fn rolled_back(to: &str, sets: &[Model]) -> (Rollback, Vec<String>) {
        let d = deployment(|d| {
            d["metadata"]["annotations"] = json!({ROLLBACK_TO: to, "team": "now", REVISION: "9"})
        });
        let sync = sync(&d, sets);
        let words = words(&sync);
        (sync.rollback.unwrap(), words)
    }

    #[test]
    fn the_template_and_annotations_of_an_earlier_revision_come_back() {
        let sets = [Model::of(9, 10), Model::of(1, 0), Model::of(4, 0)];
        for (asked, expected) in [("1", 1), ("0", 4)] {
            let (Rollback::To { revision, template, annotations }, _) = rolled_back(asked, &sets) else {
                panic!("revision {expected} is there")
            };
            assert_eq!((revision, template.spec.get()), (expected, &*format!(r#"{{"version":{expected}}}"#)));
            assert_eq!(template.metadata.labels.get("pod-template-hash"), None);
            assert_eq!(json!(annotations), json!({REVISION: "9"}), "the set had none to bring back");
        }
    }

    #[test]
    fn what_cannot_be_rolled_back_to_is_told() {
        let sets = [Model::of(9, 10), Model::of(4, 0)];
        assert!(matches!(rolled_back("9", &sets).0, Rollback::Unchanged));
        assert!(matches!(rolled_back("7", &sets).0, Rollback::NotFound { asked_for_last: false }));
        assert!(matches!(rolled_back("0", &sets[..1]).0, Rollback::NotFound { asked_for_last: true }));
        let unreadable = deployment(|d| d["metadata"]["annotations"] = json!({ROLLBACK_TO: "soon"}));
        assert!(sync(&unreadable, &sets).rollback.is_none());
    }
}

mod claims {
    use super::*;

    #[test]
    fn claims_come_before_everything_else() {
        let mut orphan = Model::of(1, 5).json();
        orphan["metadata"]["ownerReferences"] = json!([]);
        let mut strayed = Model::of(2, 5).json();
        strayed["metadata"]["labels"] = json!({"app": "b"});
        let observed = Observed { sets: vec![cached(orphan), cached(strayed)], busy: Vec::new() };
        let Plan::Claim { adopt, release } = plan(&deployment(|_| {}), &observed) else { panic!("claims") };
        assert_eq!((&*adopt[0].meta().name, &*release[0].meta().name), ("v1", "v2"));
    }

    #[test]
    fn a_deployment_that_selects_everything_is_refused() {
        let d = deployment(|d| d["spec"]["selector"] = json!({}));
        assert!(matches!(plan(&d, &observed(&[])), Plan::SelectsEverything));
        let unseen = deployment(|d| {
            d["spec"]["selector"] = json!({});
            d["status"] = json!({"observedGeneration": 3});
        });
        assert_eq!(status::refused(&unseen).observed_generation, 7);
    }

    #[test]
    fn a_deployment_that_is_being_deleted_only_reports() {
        let d = deployment(|d| d["metadata"]["deletionTimestamp"] = json!(at(1)));
        check(&d, &[], &[]);
        check(&d, &[Model::of(1, 5)], &[]);
    }
}

mod reporting {
    use super::*;

    fn report(deployment: &Cached<Deployment>, sets: &[Model]) -> DeploymentStatus {
        let sync = sync(deployment, sets);
        let new = match &sync.members.new {
            None => NewSet::None,
            Some(new) if new.existing.is_none() => NewSet::Created("created"),
            Some(_) => NewSet::Found("v9"),
        };
        status::status(deployment, &sync.members, new, sync.rolls_out, at(NOW))
    }

    fn progressing(status: &str, reason: &str, updated: i64) -> Condition {
        Condition::new("Progressing", status, reason, "m", at(updated)).updated(at(updated))
    }

    /// Complete with `pods` pods, all of them available, before this sync.
    fn with(conditions: &[Condition], pods: i32) -> Cached<Deployment> {
        deployment(|d| {
            d["status"] = json!({
                "observedGeneration": 7, "replicas": pods, "updatedReplicas": pods, "readyReplicas": pods,
                "availableReplicas": pods, "conditions": conditions,
            });
        })
    }

    #[track_caller]
    fn check_progress(
        deployment: &Cached<Deployment>,
        sets: &[Model],
        expected: Option<(&str, &str)>,
    ) -> Option<Condition> {
        let status = report(deployment, sets);
        let found = condition::find(&status.conditions, "Progressing").cloned();
        assert_eq!(found.as_ref().map(|found| (&*found.status, &*found.reason)), expected, "{sets:?}");
        found
    }

    #[test]
    fn the_sets_are_summed_up() {
        let status = report(&deployment(|_| {}), &[unavailable(Model::of(9, 5), 2), Model::of(1, 6)]);
        let conditions = status.conditions.clone();
        let expected = DeploymentStatus {
            observed_generation: 7,
            replicas: 11,
            updated_replicas: 5,
            ready_replicas: 9,
            available_replicas: 9,
            unavailable_replicas: 4,
            conditions,
            collision_count: None,
        };
        assert_eq!(status, expected, "v9 grows to 7, so 13 are wanted and 9 are available");
        let available = condition::find(&status.conditions, "Available").unwrap();
        assert_eq!((&*available.status, &*available.reason), ("True", "MinimumReplicasAvailable"));

        let status = report(&deployment(|_| {}), &[unavailable(Model::of(9, 10), 3)]);
        let available = condition::find(&status.conditions, "Available").unwrap();
        assert_eq!(available.message, "Deployment does not have minimum availability.");
        assert_eq!((&*available.status, &*available.reason), ("False", "MinimumReplicasUnavailable"));
    }

    #[test]
    fn progress_is_told_from_what_changed() {
        let nine = unavailable(Model::of(9, 10), 1);
        let moving =
            check_progress(&with(&[], 8), std::slice::from_ref(&nine), Some(("True", "ReplicaSetUpdated")))
                .unwrap();
        assert_eq!(moving.message, "ReplicaSet \"v9\" is progressing.");
        let done =
            check_progress(&with(&[], 10), &[Model::of(9, 10)], Some(("True", "NewReplicaSetAvailable")))
                .unwrap();
        assert_eq!(done.message, "ReplicaSet \"v9\" has successfully progressed.");
        check_progress(
            &with(&[progressing("True", "ReplicaSetUpdated", NOW - 10)], 10),
            &[nine],
            Some(("True", "ReplicaSetUpdated")),
        );
    }

    #[test]
    fn moving_on_restarts_the_deadline_but_is_no_transition() {
        let d = with(&[progressing("True", "ReplicaSetUpdated", 5)], 8);
        let moving =
            check_progress(&d, &[unavailable(Model::of(9, 10), 1)], Some(("True", "ReplicaSetUpdated")))
                .unwrap();
        assert_eq!((moving.last_update_time, moving.last_transition_time), (Some(at(NOW)), Some(at(5))));
        let d = with(&[progressing("False", "ProgressDeadlineExceeded", 5)], 8);
        let moving =
            check_progress(&d, &[unavailable(Model::of(9, 10), 1)], Some(("True", "ReplicaSetUpdated")))
                .unwrap();
        assert_eq!((moving.last_update_time, moving.last_transition_time), (Some(at(NOW)), Some(at(NOW))));
    }

    #[test]
    fn a_rollout_that_does_not_move_times_out() {
        let stuck = [unavailable(Model::of(9, 10), 2)];
        let since = |updated: i64, reason: &str| with(&[progressing("True", reason, updated)], 10);
        let timed_out = Some(("False", "ProgressDeadlineExceeded"));
        let out = check_progress(&since(NOW - 601, "ReplicaSetUpdated"), &stuck, timed_out).unwrap();
        assert_eq!(out.message, "ReplicaSet \"v9\" has timed out progressing.");
        check_progress(&since(NOW - 601, "NewReplicaSetCreated"), &stuck, timed_out);
        check_progress(&since(NOW - 600, "ReplicaSetUpdated"), &stuck, Some(("True", "ReplicaSetUpdated")));
        let over = since(0, "NewReplicaSetAvailable");
        check_progress(&over, &stuck, Some(("True", "NewReplicaSetAvailable")));
        let before = progressing("False", "ProgressDeadlineExceeded", 5);
        let still = check_progress(&with(std::slice::from_ref(&before), 10), &stuck, timed_out).unwrap();
        assert_eq!(still, before, "and says so once");
    }

    #[test]
    fn without_a_deadline_nothing_is_said_about_progress() {
        for deadline in [json!(null), json!(i32::MAX)] {
            let d = deployment(|d| {
                d["spec"]["progressDeadlineSeconds"] = deadline;
                d["status"]["conditions"] = json!([progressing("True", "ReplicaSetUpdated", 5)]);
            });
            check_progress(&d, &[Model::of(9, 10)], None);
            check_progress(&d, &[], None);
        }
    }

    #[test]
    fn a_new_set_is_noted() {
        let created = check_progress(&with(&[], 0), &[], Some(("True", "NewReplicaSetCreated"))).unwrap();
        assert_eq!(created.message, "Created new replica set \"created\"");
        let d = with(&[progressing("True", "NewReplicaSetAvailable", 5)], 10);
        check_progress(&d, &[Model::of(1, 10)], Some(("True", "NewReplicaSetCreated")));
        let found = check_progress(
            &with(&[], 10),
            &[unavailable(Model::of(9, 10), 2)],
            Some(("True", "FoundNewReplicaSet")),
        )
        .unwrap();
        assert_eq!(found.message, "Found new replica set \"v9\"");
    }

    #[test]
    fn pausing_and_resuming_are_noted() {
        let pause = |paused: bool, reason: &str| {
            deployment(|d| {
                d["spec"]["paused"] = json!(paused);
                d["status"]["conditions"] = json!([progressing("True", reason, 5)]);
            })
        };
        let stuck = [unavailable(Model::of(9, 10), 10)];
        check_progress(&pause(true, "ReplicaSetUpdated"), &stuck, Some(("Unknown", "DeploymentPaused")));
        let timed_out = pause(true, "ProgressDeadlineExceeded");
        check_progress(&timed_out, &stuck, Some(("True", "ProgressDeadlineExceeded")));
        let resumed = deployment(|d| {
            d["status"] = json!({"replicas": 10, "updatedReplicas": 10, "conditions": [progressing("Unknown", "DeploymentPaused", 5)]});
        });
        let found = check_progress(&resumed, &stuck, Some(("Unknown", "DeploymentResumed"))).unwrap();
        assert_eq!(found.message, "Deployment is resumed");
    }

    #[test]
    fn a_failure_to_create_pods_is_passed_on() {
        let failure =
            |message: &str| json!([Condition::new("ReplicaFailure", "True", "FailedCreate", message, at(3))]);
        let failing = |version: i64, message: &str| {
            let mut json = Model::of(version, 1).json();
            json["status"]["conditions"] = failure(message);
            cached::<ReplicaSet>(json)
        };
        let d = deployment(|_| {});
        let members = Members::of(&d, vec![failing(1, "old"), failing(9, "new")]);
        let told = status::status(&d, &members, NewSet::Found("v9"), true, at(NOW));
        let found = condition::find(&told.conditions, "ReplicaFailure").unwrap();
        let expected = Condition::new("ReplicaFailure", "True", "FailedCreate", "new", at(3)).updated(at(3));
        assert_eq!(found, &expected);

        let d = deployment(|d| d["status"]["conditions"] = failure("over"));
        assert_eq!(condition::find(&report(&d, &[Model::of(9, 10)]).conditions, "ReplicaFailure"), None);
    }

    #[test]
    fn the_next_look_is_a_second_after_the_deadline() {
        let check = |conditions: &[Condition], pods: i32, expected: NextCheck| {
            let d = with(conditions, pods);
            assert_eq!(next_check(&d, &d.status, at(NOW)), expected, "{conditions:?}");
        };
        let since = |updated: i64| [progressing("True", "ReplicaSetUpdated", updated)];
        check(&[], 3, NextCheck::Never);
        check(&since(NOW), 10, NextCheck::Never);
        check(&[progressing("False", "ProgressDeadlineExceeded", 0)], 3, NextCheck::Never);
        check(&since(NOW - 30), 3, NextCheck::After(Duration::from_secs(571)));
        check(&since(NOW - 599), 3, NextCheck::After(Duration::from_secs(2)));
        check(&since(NOW - 600), 3, NextCheck::Soon);
        check(&since(NOW - 900), 3, NextCheck::Soon);
    }

    #[test]
    fn a_collision_of_hashes_is_counted() {
        assert_eq!(status::collided(&deployment(|_| {})).collision_count, Some(1));
        let twice = deployment(|d| d["status"]["collisionCount"] = json!(1));
        assert_eq!(status::collided(&twice).collision_count, Some(2));
        assert_ne!(
            super::super::members::template_hash(&twice),
            super::super::members::template_hash(&deployment(|_| {}))
        );
    }

    #[test]
    fn a_failure_to_create_the_set_is_told_and_nothing_else() {
        let d = with(&[progressing("True", "NewReplicaSetAvailable", 5)], 4);
        let told = status::failed_creation(&d, "Failed to create", at(NOW));
        let expected =
            Condition::new("Progressing", "False", "ReplicaSetCreateError", "Failed to create", at(NOW))
                .updated(at(NOW));
        assert_eq!(told, DeploymentStatus { conditions: vec![expected], ..d.status.clone() });
    }
}

/// Rollouts in a model world, in which sets follow their sizes and pods become available in any
/// order and with any delay.
mod properties {
    use super::*;

    #[derive(Clone, Debug)]
    enum Turn {
        /// The Deployment's controller looks.
        Deployment,
        /// A set's controller looks: pods are created, deleted, and counted.
        Set(usize),
        /// Some pods of a set become available.
        Available(usize, i32),
    }

    fn turn() -> impl Strategy<Value = Turn> {
        prop_oneof![
            2 => Just(Turn::Deployment),
            2 => (0..4usize).prop_map(Turn::Set),
            2 => (0..4usize, 1..8i32).prop_map(|(set, pods)| Turn::Available(set, pods)),
        ]
    }

    fn take(world: &mut Vec<Model>, deployment: &Cached<Deployment>, turn: &Turn) {
        let count = world.len().max(1);
        match *turn {
            Turn::Deployment => apply(world, &sync(deployment, world)),
            Turn::Set(at) => {
                if let Some(set) = world.get_mut(at % count) {
                    set.reported = set.replicas;
                    set.available = set.available.min(set.replicas);
                }
            }
            Turn::Available(at, pods) => {
                if let Some(set) = world.get_mut(at % count) {
                    set.available = (set.available + pods).min(set.reported);
                }
            }
        }
    }

    fn apply(world: &mut Vec<Model>, sync: &Sync) {
        for member in sync.members.all() {
            let size = |key: &str| member.annotations[key].parse().unwrap();
            let sized_for = (size(DESIRED_REPLICAS), size(MAX_REPLICAS));
            match world.iter_mut().find(|set| format!("v{}", set.version) == member.name) {
                Some(set) => (set.replicas, set.sized_for) = (member.replicas, sized_for),
                None => world.push(Model {
                    replicas: member.replicas,
                    reported: 0,
                    available: 0,
                    sized_for,
                    ..Model::of(9, 0)
                }),
            }
        }
    }

    /// Lets everything happen in turn, until a sync changes nothing.
    fn settle(world: &mut Vec<Model>, deployment: &Cached<Deployment>) -> bool {
        (0..200).any(|_| {
            let settled = words(&sync(deployment, world)).is_empty()
                && world.iter().all(|set| set.available == set.replicas);
            take(world, deployment, &Turn::Deployment);
            for at in 0..world.len() {
                take(world, deployment, &Turn::Set(at));
                take(world, deployment, &Turn::Available(at, 1));
            }
            settled
        })
    }

    fn total(world: &[Model], number: impl Fn(&Model) -> i32) -> i32 {
        world.iter().map(number).sum()
    }

    proptest! {
        #[test]
        fn a_rollout_stays_within_its_bounds_and_ends(
            replicas in 1..20i32, surge in 0..6i32, unavailable in 0..6i32,
            turns in prop::collection::vec(turn(), 0..60),
        ) {
            let deployment = sized(replicas, json!(surge), json!(unavailable));
            let bounds = Bounds::of(&deployment.spec);
            let sized_for = (replicas, bounds.most());
            let mut world = vec![Model { sized_for, ..Model::of(1, replicas) }];
            for turn in &turns {
                take(&mut world, &deployment, turn);
                prop_assert!(total(&world, |set| set.replicas) <= bounds.most(), "{world:?}");
                // Available pods that no size change has marked for deletion yet.
                let kept = total(&world, |set| set.available.min(set.replicas));
                prop_assert!(kept >= bounds.fewest_available(), "{world:?}");
            }
            prop_assert!(settle(&mut world, &deployment), "does not end: {world:?}");
            let (new, old): (Vec<_>, Vec<_>) = world.iter().partition(|set| set.version == 9);
            prop_assert_eq!((new[0].replicas, old[0].replicas), (replicas, 0));
        }

        #[test]
        fn scaling_in_the_middle_of_a_rollout_reaches_the_allowed_size_exactly(
            to in 0..40i32, surge in 0..6i32, fewer in 0..3i32,
            new in 1..10i32, old in prop::collection::vec(1..10i32, 1..3),
        ) {
            let size = new + old.iter().sum::<i32>();
            let sized_for = (size + fewer - surge.min(size - 1), size + fewer);
            // Another size, and not one that the new set has reached alone: that ends the old ones.
            prop_assume!(sized_for.0 != to && new != to);
            let mut world = vec![Model { sized_for, ..Model::of(9, new) }];
            world.extend((1..).zip(&old).map(|(version, replicas)| Model { sized_for, ..Model::of(version, *replicas) }));
            let deployment = sized(to, json!(surge), json!(1));
            let sync = sync(&deployment, &world);
            let allowed = if to == 0 { 0 } else { Bounds::of(&deployment.spec).most() };
            prop_assert_eq!(sync.members.size(), allowed);
            prop_assert!(sync.members.all().all(|member| member.replicas >= 0));
        }
    }
}
