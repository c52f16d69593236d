//! Popular clients, each used as by its users: create, read, watch, patch, apply, delete, and a custom resource. Their
//! programs and the chart are in `programs/`.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use crate::binary::{Up, eventually, installed, kubectl};

fn program(name: &str) -> String {
    let programs = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/user/programs");
    programs.join(name).to_str().expect("a readable path").to_owned()
}

/// Starts a cluster with the Widget CRD.
fn with_widgets(arguments: &[&str]) -> Up {
    let up = Up::start(arguments);
    up.kubectl(&["apply", "-f", &program("chart/crds/widgets.yaml")]);
    up.kubectl(&["wait", "--for=condition=Established", "crd/widgets.example.com", "--timeout=30s"]);
    up
}

fn at(up: &Up, resource: &str, path: &str) -> String {
    up.kubectl(&["get", resource, "-o", &format!("jsonpath={path}")])
}

#[test]
fn an_older_kubectl_does_not_notice() {
    let up = with_widgets(&["--nodes", "1"]);
    let older = installed("kubectl", &["32"]);
    let kubectl = |arguments: &[&str]| up.run(&older, arguments);
    kubectl(&["create", "deployment", "web", "--image=nginx", "--replicas=2"]);
    kubectl(&["rollout", "status", "deployment/web", "--timeout=60s"]);
    kubectl(&["set", "image", "deployment/web", "nginx=nginx:2"]);
    kubectl(&["rollout", "status", "deployment/web", "--timeout=60s"]);
    kubectl(&["label", "deployment/web", "tier=front"]);
    assert!(kubectl(&["get", "deployments", "-l", "tier=front"]).contains("2/2"));
    assert!(kubectl(&["describe", "deployment", "web"]).contains("Scaled up replica set web-"));
    assert!(kubectl(&["explain", "widgets.spec"]).contains("size"));
    let manifest = program("widget.yaml");
    assert_eq!(kubectl(&["apply", "-f", &manifest]), "widget.example.com/w created\n");
    kubectl(&["patch", "widget", "w", "--type=merge", "-p", r#"{"spec": {"size": 4}}"#]);
    assert_eq!(kubectl(&["get", "widget", "w", "-o", "jsonpath={.spec.size}"]), "4");
    kubectl(&["apply", "--server-side", "--force-conflicts", "-f", &manifest]);
    assert_eq!(kubectl(&["get", "widget", "w", "-o", "jsonpath={.spec.size}"]), "3");
    kubectl(&["wait", "--for=jsonpath={.spec.size}=3", "widget/w", "--timeout=30s"]);
    kubectl(&["delete", "-f", &manifest]);
    kubectl(&["delete", "deployment", "web", "--cascade=foreground", "--timeout=60s"]);
}

#[test]
fn kubectl_works_with_custom_resources() {
    let up = with_widgets(&["--nodes", "0"]);
    let widget = r#"{"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": {"size": 3}}"#;
    assert_eq!(up.kubectl_with(&["apply", "-f", "-"], widget), "widget.example.com/w created\n");
    assert_eq!(up.kubectl_with(&["apply", "-f", "-"], widget), "widget.example.com/w unchanged\n");
    let table = up.kubectl(&["get", "wd"]);
    assert!(table.contains("SIZE") && table.contains('3'), "{table}");
    up.kubectl(&["patch", "widget", "w", "--type=merge", "-p", r#"{"spec": {"size": 4}}"#]);
    assert_eq!(at(&up, "widget/w", "{.spec.size} {.metadata.generation}"), "4 2");
    let refused =
        up.try_kubectl(&["patch", "widget", "w", "--type=merge", "-p", r#"{"spec": {"size": -1}}"#], "");
    assert!(refused.err.contains("spec.size: Invalid value: -1"), "{}", refused.err);
    let applied = ["apply", "--server-side", "--field-manager=other", "-f", "-"];
    let conflict = up.try_kubectl(&applied, widget);
    assert!(conflict.err.contains("conflict"), "{}", conflict.err);
    up.kubectl(&["delete", "widget", "w"]);
    up.kubectl(&["delete", "crd", "widgets.example.com", "--timeout=30s"]);
    let gone = up.try_kubectl(&["get", "widgets"], "");
    assert!(gone.err.contains("could not find the requested resource"), "{}", gone.err);
}

#[test]
fn helm_installs_upgrades_rolls_back_and_uninstalls() {
    let up = Up::start(&[]);
    let helm = kubectl().with_file_name("../helm/helm");
    let chart = program("chart");
    up.run(&helm, &["install", "shop", &chart, "--wait", "--timeout=60s"]);
    assert_eq!(at(&up, "widget/shop", "{.spec.size}"), "1");
    up.run(&helm, &["upgrade", "shop", &chart, "--set", "size=2,image=nginx:2", "--wait", "--timeout=60s"]);
    assert_eq!(at(&up, "widget/shop", "{.spec.size}"), "2");
    assert_eq!(at(&up, "deployment/shop", "{.spec.template.spec.containers[0].image}"), "nginx:2");
    up.run(&helm, &["rollback", "shop", "1", "--wait", "--timeout=60s"]);
    assert_eq!(at(&up, "widget/shop", "{.spec.size}"), "1");
    assert_eq!(at(&up, "deployment/shop", "{.spec.template.spec.containers[0].image}"), "nginx:1");
    assert!(up.run(&helm, &["history", "shop"]).contains("Rollback to 1"));
    up.run(&helm, &["uninstall", "shop", "--wait", "--timeout=60s"]);
    let left = ["get", "deployment/shop", "service/shop", "widget/shop", "--ignore-not-found", "-o", "name"];
    assert_eq!(up.kubectl(&left), "");
}

#[test]
fn the_python_client_does_its_work() {
    let up = with_widgets(&["--nodes", "0"]);
    assert_eq!(up.run(installed("python-clients", &[]), &[&program("client.py")]), "done\n");
}

#[test]
fn an_operator_on_kopf_looks_after_its_resources() {
    let up = with_widgets(&["--nodes", "0"]);
    let python = installed("python-clients", &[]);
    let mut command = Command::new(python.with_file_name("kopf"));
    command.args(["run", "--namespace=default", "--quiet", &program("widget_operator.py")]);
    let _operator = Running(
        command.env("KUBECONFIG", up.kubeconfig()).stderr(Stdio::null()).spawn().expect("kopf starts"),
    );
    let widget = r#"{"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": {"size": 3}}"#;
    up.kubectl_with(&["apply", "-f", "-"], widget);
    up.kubectl(&["wait", "--for=jsonpath={.status.written}=3", "widget/w", "--timeout=60s"]);
    assert_eq!(at(&up, "configmap/w", "{.data.size}"), "3");
    up.kubectl(&["patch", "widget", "w", "--type=merge", "-p", r#"{"spec": {"size": 4}}"#]);
    up.kubectl(&["wait", "--for=jsonpath={.status.written}=4", "widget/w", "--timeout=60s"]);
    up.kubectl(&["delete", "widget", "w", "--timeout=60s"]);
    up.kubectl(&["get", "configmap", "w-is-gone"]);
    eventually("what the widget owned is collected", || !up.try_kubectl(&["get", "configmap", "w"], "").ok);
}

#[test]
fn the_javascript_client_does_its_work() {
    let up = with_widgets(&["--nodes", "0"]);
    let modules = installed("javascript-client", &[]);
    let modules = format!("NODE_MODULES={}", modules.display());
    assert_eq!(up.run("env", &[&modules, "node", &program("client.mjs")]), "done\n");
}

/// A program that runs until the test is over.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}
