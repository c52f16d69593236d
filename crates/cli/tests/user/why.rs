//! `setpoint why` with the real binary: exit codes, formats, the plugin of kubectl, and permissions.

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::binary::{Answer, Running, Up, eventually, kubectl};

/// A Deployment whose image cannot be pulled.
const SHOP: &str = "
apiVersion: apps/v1
kind: Deployment
metadata: {name: shop}
spec:
  replicas: 2
  selector: {matchLabels: {app: shop}}
  template:
    metadata: {labels: {app: shop}}
    spec: {containers: [{name: shop, image: 'shop:1'}]}
";

/// A user who may read everything but Secrets, as the role `view` allows, and nodes.
const READER: &str = "
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: reader}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}
subjects: [{kind: ServiceAccount, name: default, namespace: default}]
";

fn why(kubeconfig: &Path, arguments: &[&str]) -> Answer {
    let mut command = Command::new(env!("CARGO_BIN_EXE_setpoint"));
    command.arg("why").args(arguments).arg("--kubeconfig").arg(kubeconfig).stdin(Stdio::null());
    command.output().expect("the binary runs").into()
}

fn stuck() -> Up {
    let up = Up::start(&["--nodes=1", "--missing-images=shop:*"]);
    up.kubectl_with(&["apply", "-f", "-"], SHOP);
    eventually("the pull fails", || {
        let path = "jsonpath={.items[*].status.containerStatuses[*].state.waiting.reason}";
        up.kubectl(&["get", "pods", "-o", path]).contains("ImagePullBackOff")
    });
    up
}

#[test]
fn a_stuck_deployment_is_explained_and_the_exit_code_says_so() {
    let up = stuck();
    let answer = why(up.kubeconfig(), &["deployment/shop"]);
    let first = answer.out.lines().next().unwrap_or_default();
    assert_eq!(answer.code, Some(1), "{}{}", answer.out, answer.err);
    assert!(first.starts_with("Pod default/shop-") && first.contains("shop:1"), "{first}");
    assert!(
        answer.out.contains("ReplicaSet default/shop-") && !answer.out.contains('\u{1b}'),
        "{}",
        answer.out
    );

    let json = why(up.kubeconfig(), &["deploy", "shop", "-o", "json"]);
    let explanation: Value = serde_json::from_str(&json.out).expect("JSON");
    assert_eq!(
        (&explanation["state"], &explanation["cause"]["object"]["kind"]),
        (&"blocked".into(), &"Pod".into())
    );
    assert_eq!(explanation["root"]["object"]["kind"], "Deployment");
    let yaml = why(up.kubeconfig(), &["deployments.v1.apps/shop", "-o", "yaml"]);
    assert!(yaml.out.contains("state: blocked"), "{}{}", yaml.out, yaml.err);

    for wrong in [vec!["deployment/absent"], vec!["nothing/shop"], vec!["shop"]] {
        let answer = why(up.kubeconfig(), &wrong);
        assert_eq!((answer.code, answer.out.as_str()), (Some(2), ""), "{wrong:?}: {}", answer.err);
    }
}

#[test]
fn a_watched_deployment_is_explained_until_it_has_converged() {
    let up = stuck();
    let mut command = Command::new(env!("CARGO_BIN_EXE_setpoint"));
    command.args(["why", "deployment/shop", "--watch", "--kubeconfig"]).arg(up.kubeconfig());
    let mut watching = Running(command.stdout(Stdio::piped()).spawn().expect("the binary runs"));
    std::thread::sleep(std::time::Duration::from_secs(3));
    assert!(watching.is_running());
    up.kubectl(&["set", "image", "deployment/shop", "shop=nginx"]);
    let ended = watching.0.wait().expect("it ends");
    assert!(ended.success(), "{ended}");
}

#[test]
fn kubectl_runs_it_as_a_plugin() {
    let up = stuck();
    let directory = tempfile::tempdir().expect("a temporary directory");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_setpoint"), directory.path().join("kubectl-setpoint"))
        .expect("a link");
    let path = format!("{}:{}", directory.path().display(), std::env::var("PATH").unwrap_or_default());
    let run = |arguments: &[&str]| -> Answer {
        let mut command = Command::new(kubectl());
        command.args(arguments).env("PATH", &path).env("KUBECONFIG", up.kubeconfig());
        command.output().expect("kubectl runs").into()
    };
    let answer = run(&["setpoint", "why", "deploy/shop"]);
    assert!(answer.code == Some(1) && answer.out.contains("shop:1"), "{}{}", answer.out, answer.err);
    assert!(run(&["setpoint", "why", "--help"]).out.contains("kubectl setpoint why"));
}

#[test]
fn a_reader_gets_an_explanation_and_the_missing_permissions() {
    let up = stuck();
    up.kubectl_with(&["apply", "-f", "-"], READER);
    let token = up.kubectl(&["create", "token", "default"]);
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("kubeconfig");
    let mut config: Value =
        serde_json::from_str(&std::fs::read_to_string(up.kubeconfig()).expect("a kubeconfig")).expect("JSON");
    config["users"][0]["user"] = serde_json::json!({"token": token.trim()});
    std::fs::write(&path, config.to_string()).expect("a file can be written");
    let answer = why(&path, &["deployment/shop"]);
    assert_eq!(answer.code, Some(1), "{}{}", answer.out, answer.err);
    assert!(
        answer.out.contains("shop:1") && answer.out.contains("not readable: get nodes"),
        "{}",
        answer.out
    );
}

#[test]
fn the_controllers_say_what_they_are_doing() {
    let up = stuck();
    let all: Value = serde_json::from_str(&up.kubectl(&["get", "--raw", "/debug/setpoint"])).expect("JSON");
    let names: Vec<&str> = all["controllers"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|one| one["controller"].as_str())
        .collect();
    assert!(names.contains(&"deployment-controller") && names.len() > 20, "{names:?}");
    let path = "/debug/setpoint/keys?kind=Deployment&group=apps&namespace=default&name=shop";
    let key: Value = serde_json::from_str(&up.kubectl(&["get", "--raw", path])).expect("JSON");
    let states = key["controllers"].as_array().cloned().unwrap_or_default();
    assert!(
        states
            .iter()
            .any(|state| state["controller"] == "deployment-controller" && state["recent"].is_array()),
        "{key}"
    );
    let missing = up.try_kubectl(&["get", "--raw", "/debug/setpoint/nothing"], "");
    assert!(!missing.ok, "{}", missing.out);
    let denied = up.try_kubectl(&["get", "--raw", "/debug/setpoint", "--as=jane"], "");
    assert!(!denied.ok && denied.err.contains("orbidden"), "{}", denied.err);
}
