//! One manager hands the cluster over to another and gets it back, without affecting pods.

use serde_json::Value;

use super::manager::Manager;
use super::rights::Deployed;
use crate::binary::{Up, eventually};

/// Returns the UID, restarts and start time of every pod of the workload.
fn pods(up: &Up) -> Vec<String> {
    let path = "jsonpath={range .items[*]}{.metadata.uid} {.status.containerStatuses[0].restartCount} \
                {.status.startTime}{\"\\n\"}{end}";
    let mut lines: Vec<String> =
        up.kubectl(&["get", "pods", "-l", "app=web", "-o", path]).lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

fn holder(up: &Up) -> String {
    up.kubectl(&[
        "get",
        "lease",
        "kube-controller-manager",
        "-n",
        "kube-system",
        "-o",
        "jsonpath={.spec.holderIdentity}",
    ])
}

/// Checks that the running managers do the work without touching the existing pods.
fn scales_to(up: &Up, replicas: usize, before: &[String]) {
    up.kubectl(&["scale", "deployment/web", &format!("--replicas={replicas}")]);
    let ready = format!("--for=jsonpath={{.status.readyReplicas}}={replicas}");
    up.kubectl(&["wait", &ready, "deployment/web", "--timeout=60s"]);
    let now = pods(up);
    assert!(before.iter().all(|pod| now.contains(pod)), "{before:?} became {now:?}");
}

#[test]
fn a_manager_takes_over_and_hands_back_without_restarting_a_pod() {
    let deployed = Deployed::new(&[]);
    let (up, arguments) = (&deployed.up, &deployed.arguments);
    let first = Manager::start(up, arguments);
    up.kubectl(&["create", "deployment", "web", "--image=nginx", "--replicas=2"]);
    up.kubectl(&["rollout", "status", "deployment/web", "--timeout=60s"]);
    let before = pods(up);
    let leader = holder(up);

    let second = Manager::start(up, arguments);
    eventually("the second stands by", || second.is_ready());
    assert_eq!(holder(up), leader, "the standby does not acquire the lease");
    assert!(first.stop(), "{}", second.log());
    eventually("the second leads", || !["", &leader].contains(&holder(up).as_str()));
    scales_to(up, 3, &before);

    let before = pods(up);
    let leader = holder(up);
    assert!(second.stop(), "the lease is released");
    let third = Manager::start(up, arguments);
    eventually("the third leads", || !["", &leader].contains(&holder(up).as_str()));
    scales_to(up, 4, &before);
    let changes: Value =
        serde_json::from_str(&up.kubectl(&["get", "replicasets", "-l", "app=web", "-o", "json"]))
            .expect("JSON");
    assert_eq!(changes["items"].as_array().map(Vec::len), Some(1), "no rollout took place");
    assert!(third.stop());
}
