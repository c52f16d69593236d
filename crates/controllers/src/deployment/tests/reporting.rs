//! Status tests.

use std::time::Duration;

use super::*;
use crate::deployment::members::template_hash;

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

/// A Deployment that was complete with `pods` available pods before this sync.
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
        terminating_replicas: None,
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
fn progress_is_derived_from_status_changes() {
    let nine = unavailable(Model::of(9, 10), 1);
    let moving =
        check_progress(&with(&[], 8), std::slice::from_ref(&nine), Some(("True", "ReplicaSetUpdated")))
            .unwrap();
    assert_eq!(moving.message, "ReplicaSet \"v9\" is progressing.");
    let done = check_progress(&with(&[], 10), &[Model::of(9, 10)], Some(("True", "NewReplicaSetAvailable")))
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
        check_progress(&d, &[unavailable(Model::of(9, 10), 1)], Some(("True", "ReplicaSetUpdated"))).unwrap();
    assert_eq!((moving.last_update_time, moving.last_transition_time), (Some(at(NOW)), Some(at(5))));
    let d = with(&[progressing("False", "ProgressDeadlineExceeded", 5)], 8);
    let moving =
        check_progress(&d, &[unavailable(Model::of(9, 10), 1)], Some(("True", "ReplicaSetUpdated"))).unwrap();
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
fn without_a_deadline_there_is_no_progressing_condition() {
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
fn a_new_set_is_reported() {
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
fn pausing_and_resuming_are_reported() {
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
fn a_failure_to_create_pods_is_copied_from_the_replica_set() {
    let failure =
        |message: &str| json!([Condition::new("ReplicaFailure", "True", "FailedCreate", message, at(3))]);
    let failing = |version: i64, message: &str| {
        let mut json = Model::of(version, 1).json();
        json["status"]["conditions"] = failure(message);
        cached::<ReplicaSet>(json)
    };
    let d = deployment(|_| {});
    let members = Members::of(&d, vec![failing(1, "old"), failing(9, "new")]);
    let summary = status::status(&d, &members, NewSet::Found("v9"), true, at(NOW));
    let found = condition::find(&summary.conditions, "ReplicaFailure").unwrap();
    let expected = Condition::new("ReplicaFailure", "True", "FailedCreate", "new", at(3)).updated(at(3));
    assert_eq!(found, &expected);

    let d = deployment(|d| d["status"]["conditions"] = failure("over"));
    assert_eq!(condition::find(&report(&d, &[Model::of(9, 10)]).conditions, "ReplicaFailure"), None);
}

#[test]
fn the_next_check_is_a_second_after_the_deadline() {
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
    assert_ne!(template_hash(&twice), template_hash(&deployment(|_| {})));
}

#[test]
fn a_failure_to_create_the_set_is_the_only_thing_reported() {
    let d = with(&[progressing("True", "NewReplicaSetAvailable", 5)], 4);
    let summary = status::failed_creation(&d, "Failed to create", at(NOW));
    let expected =
        Condition::new("Progressing", "False", "ReplicaSetCreateError", "Failed to create", at(NOW))
            .updated(at(NOW));
    assert_eq!(summary, DeploymentStatus { conditions: vec![expected], ..d.status.clone() });
}
