//! Table tests of assessments and plans; property tests of counting.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::{Value, json};
use setpoint::Cached;

use super::account::{Counts, account, count_released, finish, update_suspension};
use super::assess::{Assessment, Ending};
use super::backoff::Record;
use super::plan::{Step, plan};
use super::pod::Member;
use super::view::{Job, JobStatus, TRACKING};
use crate::workload::fixtures::{at, cached};

const NOW: i64 = 1_000;

fn job(spec: Value, status: Value) -> Cached<Job> {
    let mut whole = json!({
        "parallelism": 2, "completions": 3, "backoffLimit": 2,
        "selector": {"matchLabels": {"job": "j"}},
        "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c"}]}},
    });
    merge(&mut whole, spec);
    cached(json!({"metadata": {"name": "j", "namespace": "ns", "uid": "j"}, "spec": whole, "status": status}))
}

fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from,
    }
}

/// Parses `name[:index] phase`. The pod finished ten seconds ago. `phase` may be `Going` for a terminating pod or
/// `Failing` for one that failed five seconds ago. A trailing `-` means that the pod is not tracked.
fn pod(text: &str) -> Member {
    let (name, phase) = text.split_once(' ').unwrap();
    let (name, index) = name.split_once(':').map_or((name, None), |(name, index)| (name, Some(index)));
    let (phase, tracked) = phase.strip_suffix('-').map_or((phase, true), |phase| (phase, false));
    let (phase, going) = if phase == "Going" { ("Running", Some(at(NOW - 10))) } else { (phase, None) };
    let (phase, ended) = if phase == "Failing" { ("Failed", NOW - 5) } else { (phase, NOW - 10) };
    let annotations = index.map(|index| json!({"batch.kubernetes.io/job-completion-index": index}));
    let ready = json!({"type": "Ready", "status": "False", "lastTransitionTime": at(ended)});
    Member::of(
        cached(json!({
            "metadata": {
                "name": name, "namespace": "ns", "uid": name, "annotations": annotations,
                "deletionTimestamp": going, "finalizers": if tracked { vec![TRACKING] } else { vec![] },
            },
            "status": {"phase": phase, "conditions": [ready]},
        })),
        false,
    )
}

fn pods(texts: &[&str]) -> Vec<Member> {
    texts.iter().map(|text| pod(text)).collect()
}

fn words(step: &Step<'_>) -> String {
    match step {
        Step::End => "end".into(),
        Step::Hold => "hold".into(),
        Step::Keep => "keep".into(),
        Step::Remove(pods) => {
            let names: Vec<_> = pods.iter().map(|member| member.uid()).collect();
            format!("remove {}", names.join(" "))
        }
        Step::Create { count } => format!("create {count}"),
        Step::CreateIndexes(indexes) => format!("create {indexes:?}"),
        Step::Wait(wait) => format!("wait {}", wait.as_secs()),
    }
}

#[track_caller]
fn check(spec: Value, status: Value, members: &[&str], expected: &str) {
    let (job, members) = (job(spec.clone(), status.clone()), pods(members));
    let assessment = Assessment::of(&job, &members, &Record::default(), at(NOW));
    let ending = assessment.ending.as_ref().map(|ending| format!(" {}", ending.reason));
    let step = words(&plan(&assessment, true, at(NOW)));
    assert_eq!(step + &ending.unwrap_or_default(), expected, "{spec} {status}");
}

mod planning {
    use super::*;

    #[test]
    fn active_pods_follow_parallelism_and_the_remaining_completions() {
        let none = || json!({});
        check(none(), none(), &[], "create 2");
        check(none(), none(), &["a Running"], "create 1");
        check(none(), none(), &["a Running", "b Pending"], "keep");
        check(none(), none(), &["a Succeeded", "b Running"], "create 1");
        check(none(), none(), &["a Succeeded", "b Succeeded", "c Running"], "keep");
        check(none(), json!({"succeeded": 2}), &["c Running"], "keep");
        check(none(), json!({"succeeded": 2}), &["c Running", "d Pending"], "remove d");
        check(none(), json!({"succeeded": 3}), &[], "keep");
        check(json!({"parallelism": 0}), none(), &["a Running"], "remove a");
        check(json!({"parallelism": 1}), none(), &["a Running", "b Pending"], "remove b");
        check(json!({"suspend": true}), none(), &["a Running", "b Pending"], "remove b a");
        check(json!({"suspend": true}), none(), &[], "keep");
    }

    #[test]
    fn without_a_number_of_completions_the_first_success_is_enough() {
        let queue = || json!({"completions": null, "parallelism": 3});
        check(queue(), json!({}), &["a Running"], "create 2");
        check(queue(), json!({}), &["a Running", "b Succeeded"], "keep");
        check(queue(), json!({"succeeded": 1}), &[], "keep");
    }

    #[test]
    fn failures_back_off_until_they_exceed_the_limit() {
        check(json!({}), json!({}), &["a Failed"], "create 2");
        check(json!({"backoffLimit": 0}), json!({}), &["a Failed", "b Running"], "end BackoffLimitExceeded");
        check(json!({}), json!({"failed": 2}), &["a Failed"], "end BackoffLimitExceeded");
        check(json!({}), json!({"failed": 2}), &["a Failed-"], "create 2");
        check(json!({}), json!({"failed": 1}), &["a Failing", "b Running"], "wait 5");
        check(json!({}), json!({"failed": 2}), &["a Going"], "end BackoffLimitExceeded");
    }

    #[test]
    fn a_deadline_ends_a_job_and_an_announced_outcome_stays() {
        let deadline = || json!({"activeDeadlineSeconds": 100});
        check(deadline(), json!({"startTime": at(NOW - 99)}), &[], "create 2");
        check(deadline(), json!({"startTime": at(NOW - 100)}), &["a Running"], "end DeadlineExceeded");
        check(
            json!({"activeDeadlineSeconds": 100, "suspend": true}),
            json!({"startTime": at(0)}),
            &[],
            "keep",
        );
        let announced =
            |r#type: &str| json!({"conditions": [{"type": r#type, "status": "True", "reason": "R"}]});
        check(json!({}), announced("FailureTarget"), &["a Running"], "end R");
        check(json!({}), announced("SuccessCriteriaMet"), &["a Failed"], "end R");
        let job = job(deadline(), json!({"startTime": at(NOW - 99)}));
        let assessment = Assessment::of(&job, &[], &Record::default(), at(NOW));
        assert_eq!(assessment.deadline_in, Some(std::time::Duration::from_secs(1)));
    }

    #[test]
    fn a_terminating_pod_is_replaced_at_once_or_when_it_has_finished() {
        check(json!({"backoffLimit": 6}), json!({}), &["a Running", "b Going-"], "create 1");
        check(json!({"podReplacementPolicy": "Failed"}), json!({}), &["a Running", "b Going"], "keep");
        check(json!({"podReplacementPolicy": "Failed"}), json!({}), &["a Running", "b Failed-"], "create 1");
    }

    #[test]
    fn each_index_has_one_pod() {
        let indexed = |more: Value| {
            let mut spec = json!({"completionMode": "Indexed", "completions": 4});
            merge(&mut spec, more);
            spec
        };
        let none = || json!({});
        check(indexed(none()), none(), &[], "create [0, 1]");
        check(indexed(none()), none(), &["a:1 Running"], "create [0]");
        check(indexed(none()), json!({"completedIndexes": "0-1"}), &[], "create [2, 3]");
        check(
            indexed(none()),
            json!({"completedIndexes": "0-2"}),
            &["a:3 Running", "b:3 Pending"],
            "remove b",
        );
        check(indexed(none()), none(), &["a:0 Running", "b:9 Running"], "remove b");
        check(indexed(none()), none(), &["a:0 Running", "b Running"], "remove b");
        check(indexed(json!({"parallelism": 9})), none(), &["a:0 Succeeded", "b:2 Running"], "create [1, 3]");
    }

    #[test]
    fn indexes_with_their_own_limit_fail_separately() {
        let indexed = |more: Value| {
            let mut spec = json!({"completionMode": "Indexed", "completions": 2, "backoffLimitPerIndex": 0,
                "backoffLimit": i32::MAX});
            merge(&mut spec, more);
            spec
        };
        check(indexed(json!({})), json!({}), &["a:0 Failed"], "create [1]");
        check(indexed(json!({})), json!({}), &["a:0 Failed", "b:1 Running"], "keep");
        check(indexed(json!({})), json!({}), &["a:0 Failed", "b:1 Succeeded"], "end FailedIndexes");
        check(
            indexed(json!({"maxFailedIndexes": 0})),
            json!({}),
            &["a:0 Failed"],
            "end MaxFailedIndexesExceeded",
        );
        check(
            indexed(json!({"backoffLimitPerIndex": 1})),
            json!({}),
            &["a:0 Going", "b:1 Running"],
            "create [0]",
        );
        let policy = json!({"rules": [{"action": "FailIndex", "onPodConditions": [{"type": "Ready", "status": "False"}]}]});
        check(
            indexed(json!({"backoffLimitPerIndex": 5, "podFailurePolicy": policy})),
            json!({}),
            &["a:0 Failed", "b:1 Failed"],
            "end FailedIndexes",
        );
    }

    #[test]
    fn policies_end_a_job() {
        let on_ready = |action: &str| {
            json!({"podFailurePolicy": {"rules": [
                {"action": action, "onPodConditions": [{"type": "Ready", "status": "False"}]}]}})
        };
        check(on_ready("FailJob"), json!({}), &["a Failed", "b Running"], "end PodFailurePolicy");
        check(on_ready("Ignore"), json!({"failed": 2}), &["a Failed", "b Running"], "create 1");
        let success =
            json!({"completionMode": "Indexed", "successPolicy": {"rules": [{"succeededCount": 1}]}});
        check(success, json!({}), &["a:0 Succeeded", "b:1 Running"], "end SuccessPolicy");
    }

    #[test]
    fn nothing_is_done_while_the_cache_lags() {
        let (job, members) = (job(json!({}), json!({})), pods(&["a Running"]));
        let assessment = Assessment::of(&job, &members, &Record::default(), at(NOW));
        assert_eq!(words(&plan(&assessment, false, at(NOW))), "hold");
    }
}

mod counting {
    use super::*;

    #[test]
    fn a_job_finishes_when_all_pods_are_counted_and_none_is_terminating() {
        let ending = Ending::completions_reached();
        let mut status = JobStatus { terminating: Some(1), ..JobStatus::default() };
        assert!(!finish(&mut status, &ending, at(NOW)), "one is about to end");
        status.terminating = Some(0);
        status.uncounted().failed.push("a".into());
        assert!(!finish(&mut status, &ending, at(NOW)), "one is not counted");
        status.uncounted().failed.clear();
        assert!(finish(&mut status, &ending, at(NOW)));
        assert_eq!((status.completion_time, status.has_true_condition("Complete")), (Some(at(NOW)), true));
    }

    #[test]
    fn suspension_changes_are_reported_and_resuming_restarts_the_deadline() {
        let mut status = JobStatus { start_time: Some(at(1)), ..JobStatus::default() };
        assert_eq!(update_suspension(&mut status, false, at(NOW)), None, "never suspended");
        assert!(
            update_suspension(&mut status, true, at(NOW)).is_some()
                && update_suspension(&mut status, true, at(NOW)).is_none()
        );
        assert_eq!(status.start_time, Some(at(1)));
        assert!(update_suspension(&mut status, false, at(NOW)).is_some());
        assert_eq!((status.start_time, status.conditions.len()), (Some(at(NOW)), 1));
    }

    /// A model in which pods finish and are counted, with crashes between any two writes.
    #[derive(Debug)]
    struct Model {
        /// Name, phase, and whether it has the finalizer.
        pods: BTreeMap<String, (&'static str, bool)>,
        status: Value,
        ever: usize,
    }

    impl Model {
        /// One counting pass that crashes after this many writes.
        fn count(&mut self, mut writes: usize) {
            let job =
                job(json!({"completions": 100, "parallelism": 9, "backoffLimit": 99}), self.status.clone());
            let described: Vec<String> = self
                .pods
                .iter()
                .map(|(name, (phase, tracked))| format!("{name} {phase}{}", if *tracked { "" } else { "-" }))
                .collect();
            let members: Vec<_> = described.iter().map(|text| pod(text)).collect();
            let assessment = Assessment::of(&job, &members, &Record::default(), at(NOW));
            let account = account(&assessment, job.status.clone(), Counts::default(), None, at(NOW));
            let mut write = |model: &mut Self, status: &JobStatus| {
                writes = writes.checked_sub(1)?;
                model.status = serde_json::to_value(status).unwrap();
                Some(())
            };
            let mut pass = || {
                write(self, &account.status)?;
                let mut waiting = account.waiting.clone();
                for member in &account.release {
                    self.pods.get_mut(member.uid()).unwrap().1 = false;
                    waiting.remove(member.uid());
                }
                let mut status = account.status.clone();
                count_released(&mut status, &waiting);
                write(self, &status)
            };
            pass();
        }

        fn counted(&self) -> (i64, i64) {
            let number = |field: &str| self.status[field].as_i64().unwrap_or(0);
            (number("succeeded"), number("failed"))
        }
    }

    proptest! {
        #[test]
        fn every_finished_pod_is_counted_once_whatever_crashes(
            steps in prop::collection::vec((0usize..4, any::<bool>(), 0usize..3, any::<bool>()), 1..12)
        ) {
            let mut model = Model { pods: BTreeMap::new(), status: json!({}), ever: 0 };
            let mut expected = (0, 0);
            for (new, succeed, writes, collect) in steps {
                for _ in 0..new {
                    let phase = if succeed { expected.0 += 1; "Succeeded" } else { expected.1 += 1; "Failed" };
                    model.pods.insert(format!("p{}", model.ever), (phase, true));
                    model.ever += 1;
                }
                model.count(writes);
                if collect {
                    // Pods without a finalizer may be deleted at any time.
                    model.pods.retain(|_, (_, tracked)| *tracked);
                }
            }
            model.count(2);
            model.count(2);
            prop_assert_eq!(model.counted(), expected);
        }
    }
}
