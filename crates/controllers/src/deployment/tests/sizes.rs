//! Tests of how a plan scales ReplicaSets.

use super::*;

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
        assert_eq!((bounds.max_total(), bounds.min_available()), (10, 10));
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
    fn terminating_pods_are_waited_for() {
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

    /// Checks scaling from `from` to `to`, each `(replicas, surge)`.
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
    fn rounding_remainders_go_to_the_newest_on_scale_up_and_the_oldest_on_scale_down() {
        check((3, 0), (4, 0), &[(9, 1), (2, 1), (1, 1)], &["v9 1 to 2"]);
        check((3, 0), (2, 0), &[(9, 1), (2, 1), (1, 1)], &["v1 1 to 0"]);
        check((4, 0), (5, 0), &[(2, 2), (1, 2)], &["v2 2 to 3"]);
    }

    #[test]
    fn a_size_recorded_on_only_one_set_is_caught_up_with() {
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
    fn the_new_size_is_recorded_on_every_active_set() {
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
