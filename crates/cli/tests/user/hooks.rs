//! Operators in Python and JavaScript, with real interpreters: the examples of the documentation.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::binary::{Running, Up, eventually};

fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/examples/hooks").join(name)
}

/// Copies an example to a directory of its own, so that a test can change it.
fn copied(name: &str) -> tempfile::TempDir {
    let directory = tempfile::tempdir().expect("a temporary directory");
    for entry in std::fs::read_dir(example(name)).expect("an example").flatten() {
        std::fs::copy(entry.path(), directory.path().join(entry.file_name())).expect("a copy");
    }
    directory
}

fn up(directory: &Path, more: &[&str]) -> Up {
    let directory = directory.display().to_string();
    Up::start(&[&["--operators", &directory], more].concat())
}

fn field(up: &Up, object: &str, path: &str) -> String {
    up.try_kubectl(&["get", object, "-o", &format!("jsonpath={{{path}}}")], "").out
}

const GREETING: &str =
    "{apiVersion: example.com/v1, kind: Greeting, metadata: {name: hello}, spec: {who: setpoint}}";

#[test]
fn a_python_process_is_an_operator_and_is_reloaded() {
    let directory = copied("greeter");
    let up = up(directory.path(), &["--nodes=0"]);
    up.kubectl_with(&["apply", "-f", "-"], GREETING);
    eventually("the greeting is said", || field(&up, "configmap/hello", ".data.text") == "Hello, setpoint!");
    eventually("the status is written", || {
        field(&up, "greeting/hello", ".status.text") == "Hello, setpoint!"
    });
    eventually("the controller is ready", || {
        field(&up, "cctl/greeter", ".status.conditions[?(@.type==\"Ready\")].status") == "True"
    });
    let script = directory.path().join("greeter.py");
    let text = std::fs::read_to_string(&script).expect("the script");
    std::fs::write(&script, text.replace("Hello", "Good day")).expect("the changed script");
    eventually("the new script is used", || {
        field(&up, "configmap/hello", ".data.text") == "Good day, setpoint!"
    });
    std::fs::write(&script, "raise SystemExit('it is broken')").expect("the broken script");
    eventually("the error is shown", || {
        up.kubectl(&["get", "events", "-o", "jsonpath={.items[?(@.reason==\"SyncError\")].message}"])
            .contains("it is broken")
    });
    std::fs::write(&script, text).expect("the first script");
    eventually("the first script is used again", || {
        field(&up, "configmap/hello", ".data.text") == "Hello, setpoint!"
    });
}

#[test]
fn a_javascript_process_moves_a_site_from_blue_to_green() {
    let up = up(&example("blue-green"), &["--nodes=2"]);
    let site = |image: &str| {
        format!(
            "{{apiVersion: example.com/v1, kind: Site, metadata: {{name: shop}}, spec: {{image: {image}}}}}"
        )
    };
    up.kubectl_with(&["apply", "-f", "-"], &site("shop:1"));
    eventually("blue serves", || field(&up, "site/shop", ".status.ready") == "2");
    assert_eq!(field(&up, "service/shop", ".spec.selector.colour"), "blue");
    up.kubectl_with(&["apply", "-f", "-"], &site("shop:2"));
    eventually("green serves", || field(&up, "service/shop", ".spec.selector.colour") == "green");
    assert_eq!(field(&up, "rs/shop-green", ".spec.template.spec.containers[0].image"), "shop:2");
    eventually("blue is idle", || field(&up, "rs/shop-blue", ".spec.replicas") == "0");
}

#[test]
fn pods_are_replaced_one_after_the_other() {
    let up = up(&example("rolling-set"), &["--nodes=1"]);
    let set = |image: &str| {
        format!(
            "{{apiVersion: example.com/v1, kind: RollingSet, metadata: {{name: db}}, spec: {{replicas: 3,
               selector: {{matchLabels: {{app: db}}}}, template: {{metadata: {{labels: {{app: db}}}},
               spec: {{containers: [{{name: db, image: {image}}}]}}}}}}}}"
        )
    };
    up.kubectl_with(&["apply", "-f", "-"], &set("db:1"));
    eventually("all are ready", || field(&up, "rollingset/db", ".status.readyReplicas") == "3");
    up.kubectl_with(&["apply", "-f", "-"], &set("db:2"));
    let images = || {
        up.kubectl(&["get", "pods", "-l", "app=db", "-o", "jsonpath={.items[*].spec.containers[0].image}"])
    };
    eventually("all are replaced", || images() == "db:2 db:2 db:2");
    eventually("the rollout is over", || {
        field(&up, "rollingset/db", ".status.conditions[?(@.type==\"Updated\")].reason") == "OnLatestRevision"
    });
    let revisions = up.kubectl(&["get", "controllerrevisions.metacontroller.k8s.io", "-o", "name"]);
    assert_eq!(revisions.lines().count(), 1, "{revisions}");
}

/// Starts a hook over HTTP, and returns it with its port.
fn server(script: &Path) -> (Running, String) {
    let mut command = Command::new("python3");
    command.arg(script).arg("0").env("PYTHONDONTWRITEBYTECODE", "1").stdout(Stdio::piped());
    let mut child = command.spawn().expect("python3 starts");
    let mut port = String::new();
    let stdout = child.stdout.take().expect("piped");
    BufReader::new(stdout).read_line(&mut port).expect("it says its port");
    (Running(child), port.trim().to_owned())
}

#[test]
fn a_hook_over_http_decorates_objects_of_a_cluster() {
    let up = Up::start(&["--nodes=1"]);
    let directory = example("service-per-pod");
    let (_server, port) = server(&directory.join("service-per-pod.py"));
    let mut operator = Command::new(env!("CARGO_BIN_EXE_setpoint"));
    operator.args(["operator", "run", "-f"]).arg(&directory).arg("--kubeconfig").arg(up.kubeconfig());
    operator.arg(format!("--resolve=service-per-pod.example=127.0.0.1:{port}")).arg("--bind-address=");
    let _operator = Running(operator.spawn().expect("the binary starts"));
    let set = |replicas: u32| {
        format!(
            "{{apiVersion: apps/v1, kind: StatefulSet, metadata: {{name: web, annotations: {{example.com/service-port: \"80\"}}}},
               spec: {{replicas: {replicas}, serviceName: web, selector: {{matchLabels: {{app: web}}}},
               template: {{metadata: {{labels: {{app: web}}}}, spec: {{containers: [{{name: web, image: web}}]}}}}}}}}"
        )
    };
    let services =
        || up.kubectl(&["get", "services", "-l", "app=web", "-o", "jsonpath={.items[*].metadata.name}"]);
    up.kubectl_with(&["apply", "-f", "-"], &set(2));
    eventually("each pod has a Service", || services() == "web-0 web-1");
    up.kubectl_with(&["apply", "-f", "-"], &set(1));
    eventually("the second is gone", || services() == "web-0");
    up.kubectl(&["annotate", "statefulset/web", "example.com/service-port-"]);
    eventually("all are gone", || services().is_empty());
    eventually("the finalizer is gone", || field(&up, "statefulset/web", ".metadata.finalizers").is_empty());
}
