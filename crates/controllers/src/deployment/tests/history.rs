//! Adoption, revisions and rollback.

use super::*;
use crate::deployment::revision::annotate_new;

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
    fn a_deployment_that_selects_everything_is_rejected() {
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
        annotate_new(&mut annotations, &Default::default(), 1000);
        assert_eq!(annotations[REVISION_HISTORY].len(), 1999);
        assert!(annotations[REVISION_HISTORY].ends_with("500,998"));
        annotate_new(&mut annotations, &Default::default(), 1001);
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
    fn the_oldest_set_with_the_template_is_the_new_one() {
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
    fn an_impossible_rollback_is_reported() {
        let sets = [Model::of(9, 10), Model::of(4, 0)];
        assert!(matches!(rolled_back("9", &sets).0, Rollback::Unchanged));
        assert!(matches!(rolled_back("7", &sets).0, Rollback::NotFound { asked_for_last: false }));
        assert!(matches!(rolled_back("0", &sets[..1]).0, Rollback::NotFound { asked_for_last: true }));
        let unreadable = deployment(|d| d["metadata"]["annotations"] = json!({ROLLBACK_TO: "soon"}));
        assert!(sync(&unreadable, &sets).rollback.is_none());
    }
}
