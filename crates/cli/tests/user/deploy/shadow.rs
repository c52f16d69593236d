//! `--shadow`: the real binary beside the controllers of `setpoint up`.

use std::fs;
use std::process::Command;

use serde_json::Value;

use super::manager::{Manager, STRANGER, token};
use super::rights::{Deployed, WORK};
use super::{NAMESPACE, RELEASE, values};
use crate::binary::{Answer, Up, eventually};

/// Whether a line of the audit log is a request of the manager that changes something.
fn is_write(line: &Value) -> bool {
    let reviews = ["tokenreviews", "subjectaccessreviews"];
    let is_own = line["user"]["username"] == format!("system:serviceaccount:{NAMESPACE}:{RELEASE}");
    let is_read = ["get", "list", "watch"].iter().any(|verb| line["verb"] == *verb);
    let is_review = reviews.iter().any(|resource| line["objectRef"]["resource"] == *resource);
    is_own && !is_read && !is_review
}

/// The chart's roles are enough to compare, and only authorized users see the report. Whether the two sides always
/// agree is tested in virtual time (`crates/sim/tests/shadow`): on a busy machine, one of them may skip a status.
#[test]
fn the_shadow_compares_and_writes_nothing() {
    let reader = "metrics.readers[0].name=reader,metrics.readers[0].namespace=default,shadow.window=8s";
    let deployed = Deployed::beside("*", &["--values", &values("shadow"), "--set", reader]);
    let up = &deployed.up;
    let manager = Manager::start(up, &deployed.arguments);
    eventually("the manager is ready", || manager.is_ready());
    up.kubectl(&["create", "serviceaccount", "reader"]);
    up.kubectl_with(&["apply", "-f", "-"], WORK);
    for workload in ["deployment/web", "statefulset/db", "daemonset/agent"] {
        up.kubectl(&["rollout", "status", workload, "--timeout=60s"]);
    }
    up.kubectl(&["wait", "--for=condition=Complete", "job/once", "--timeout=60s"]);
    up.kubectl(&["delete", "deployment/web", "--cascade=foreground", "--timeout=60s"]);
    up.kubectl(&["delete", "namespace/team", "--timeout=60s"]);
    assert!(!manager.get("/shadow", STRANGER).ok, "the report requires authorization");
    let reader = token(up, "reader", "default");
    let report = || -> Value {
        let answer = manager.get("/shadow", &reader);
        assert!(answer.ok, "{}", answer.err);
        serde_json::from_str(&answer.out).expect("JSON")
    };
    eventually("everything is decided", || {
        report()["controllers"].as_object().expect("counts").values().all(|counts| counts["pending"] == 0)
    });
    let report = report();
    assert!(report["controllers"]["replicaset-controller"]["matched"].as_u64() > Some(1), "{report}");
    let metrics = manager.get("/metrics", &reader).out;
    assert!(metrics.contains("setpoint_shadow_intentions_total{"), "intentions are counted");
    assert!(manager.stop(), "exits with 0");
    assert_eq!(deployed.forbidden(), Vec::<String>::new());
    let log = deployed.audit_log();
    let lines = log.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let writes: Vec<_> = lines.filter(is_write).collect();
    assert!(writes.is_empty(), "{writes:#?}");
}

fn shadow(up: &Up, arguments: &[&str]) -> Answer {
    let mut command = Command::new(env!("CARGO_BIN_EXE_setpoint"));
    command.args(["controller-manager", "--shadow", "--secure-port=0", "--kubeconfig"]).arg(up.kubeconfig());
    command.args(arguments).output().expect("the binary starts").into()
}

#[test]
fn the_exit_code_and_the_report_reflect_differences() {
    let up = Up::start(&["--controllers=*,-deployment", "--nodes=0"]);
    let short = ["--shadow-window=2s", "--shadow-duration=6s"];
    let same = shadow(&up, &[&short[..], &["--controllers=*,-deployment", "-o", "json"]].concat());
    assert!(same.ok, "{}{}", same.out, same.err);
    let report: Value = serde_json::from_str(&same.out).expect("JSON");
    assert_eq!(report["differences"], serde_json::json!([]));
    up.kubectl(&["create", "deployment", "web", "--image=nginx"]);
    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = directory.path().join("report.yaml");
    let file_flag = format!("--shadow-report={}", file.display());
    let other = shadow(&up, &[&short[..], &[&file_flag]].concat());
    assert!(!other.ok && other.err.contains("differences"), "{}{}", other.out, other.err);
    let line =
        other.out.lines().find(|line| line.starts_with("deployment-controller create ")).unwrap_or_default();
    assert!(line.contains("replicasets.apps default/web-"), "{}", other.out);
    let written: Value = serde_saphyr::from_str(&fs::read_to_string(file).expect("a report")).expect("YAML");
    assert_eq!(written["differences"][0]["controller"], "deployment-controller");
    assert_eq!(up.kubectl(&["get", "replicasets", "-A", "-o", "name"]), "");
    let refused = shadow(&up, &["--use-service-account-credentials=true"]);
    assert!(refused.err.contains("--use-service-account-credentials"), "{}", refused.err);
    let too_short = shadow(&up, &["--shadow-duration=30s"]);
    assert!(!too_short.ok && too_short.err.contains("--shadow-duration"), "{}", too_short.err);
}
