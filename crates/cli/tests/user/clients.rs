//! Popular clients, each used as by its users: create, read, watch, patch, apply, delete, and a custom resource. Their
//! programs and the chart are in `programs/`.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;

use crate::binary::{Running, Up, eventually, installed, kubectl};

pub(crate) fn program(name: &str) -> String {
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
fn an_older_kubectl_works() {
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
fn helm_installs_upgrades_tests_rolls_back_and_uninstalls() {
    let up = Up::start(&[]);
    let helm = kubectl().with_file_name("../helm/helm");
    let chart = program("chart");
    up.run(&helm, &["install", "shop", &chart, "--wait", "--wait-for-jobs", "--timeout=60s"]);
    assert_eq!(at(&up, "widget/shop", "{.spec.size}"), "1");
    assert_eq!(at(&up, "jobs", "{.items[*].status.succeeded}"), "1 1", "the hooks have run");
    assert_eq!(up.kubectl(&["logs", "job/shop-announce"]), "revision 1\n");
    up.run(&helm, &["upgrade", "shop", &chart, "--set", "size=2,image=nginx:2", "--wait", "--timeout=60s"]);
    assert_eq!(at(&up, "widget/shop", "{.spec.size}"), "2");
    assert_eq!(at(&up, "deployment/shop", "{.spec.template.spec.containers[0].image}"), "nginx:2");
    assert_eq!(up.kubectl(&["logs", "job/shop-announce"]), "revision 2\n");
    let tested = up.run(&helm, &["test", "shop", "--logs", "--timeout=60s"]);
    assert!(tested.contains("Phase:          Succeeded") && tested.contains("testing shop\n"), "{tested}");
    up.run(&helm, &["rollback", "shop", "1", "--wait", "--timeout=60s"]);
    assert_eq!(at(&up, "widget/shop", "{.spec.size}"), "1");
    assert_eq!(at(&up, "deployment/shop", "{.spec.template.spec.containers[0].image}"), "nginx:1");
    assert!(up.run(&helm, &["history", "shop"]).contains("Rollback to 1"));
    up.run(&helm, &["uninstall", "shop", "--wait", "--timeout=60s"]);
    let left = ["get", "deployment/shop", "service/shop", "widget/shop", "job/shop-clear"];
    assert_eq!(up.kubectl(&[&left[..], &["--ignore-not-found", "-o", "name"]].concat()), "");
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

/// A directory with a certificate, for this machine and for a Service `reviews`, and its key. It is as kopf makes its own
/// ones: self-signed, and marked as a CA.
pub(crate) fn certificates() -> tempfile::TempDir {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let mut params = rcgen::CertificateParams::new(["localhost", "reviews.default.svc"].map(String::from))
        .expect("a name");
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let key = rcgen::KeyPair::generate().expect("a key");
    let certificate = params.self_signed(&key).expect("a certificate");
    fs::write(directory.path().join("key.pem"), key.serialize_pem()).expect("a file");
    fs::write(directory.path().join("certificate.pem"), certificate.pem()).expect("a file");
    directory
}

#[test]
fn an_operator_on_kopf_serves_its_admission_handlers() {
    let up = with_widgets(&["--nodes", "0"]);
    let directory = certificates();
    let mut command = Command::new(installed("python-clients", &[]).with_file_name("kopf"));
    command.args(["run", "--namespace=default", "--quiet", &program("policy_operator.py")]);
    command.env("KUBECONFIG", up.kubeconfig()).env("CERTIFICATES", directory.path()).stderr(Stdio::null());
    let _operator = Running(command.spawn().expect("kopf starts"));
    let widget = |name: &str, size: u32| {
        format!(
            r#"{{"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {{"name": "{name}"}}, "spec": {{"size": {size}}}}}"#
        )
    };
    let apply = |name: &str, size: u32| up.try_kubectl(&["apply", "-f", "-"], &widget(name, size));
    eventually("the webhooks are configured", || {
        at(
            &up,
            "mutatingwebhookconfigurations,validatingwebhookconfigurations",
            "{.items[*].webhooks[*].name}",
        ) == "label.policy.example.com check.policy.example.com keep-status.policy.example.com"
    });
    let accepted = apply("w", 7);
    assert!(accepted.ok, "{}", accepted.err);
    assert_eq!(accepted.err, "Warning: checked for kubernetes-admin, dry run: False\n");
    assert_eq!(at(&up, "widget/w", "{.metadata.labels.tier}"), "large");
    let refused = apply("huge", 11);
    let expected = "admission webhook \"check.policy.example.com\" denied the request: 11 is too large";
    assert!(!refused.ok && refused.err.contains(expected), "{}", refused.err);
    let dry = up.try_kubectl(&["create", "--dry-run=server", "-f", "-"], &widget("dry", 1));
    assert!(dry.ok && dry.err.contains("dry run: True"), "{}", dry.err);
    // The operator's own status passes its own webhook.
    up.kubectl(&["wait", "--for=jsonpath={.status.written}=1", "widget/w", "--timeout=60s"]);
    let status = ["patch", "widget", "w", "--subresource=status", "--type=merge", "-p"];
    let refused = up.try_kubectl(&[&status[..], &[r#"{"status": {"written": -1}}"#]].concat(), "");
    assert!(refused.err.contains("denied the request: written is negative"), "{}", refused.err);
}

#[test]
fn the_javascript_client_does_its_work() {
    let up = with_widgets(&["--nodes", "0"]);
    let modules = installed("javascript-client", &[]);
    let modules = format!("NODE_MODULES={}", modules.display());
    assert_eq!(up.run("env", &[&modules, "node", &program("client.mjs")]), "done\n");
}

#[test]
fn the_javascript_and_python_clients_talk_to_pods() {
    let up = Up::start(&["--nodes", "1"]);
    let modules = format!("NODE_MODULES={}", installed("javascript-client", &[]).display());
    let directory = certificates();
    let certificates = format!("CERTIFICATES={}", directory.path().display());
    let python = installed("python-clients", &[]).display().to_string();
    up.kubectl(&["create", "namespace", "python"]);
    thread::scope(|threads| {
        threads.spawn(|| {
            let python = ["env", &certificates, &python, &program("streams.py")];
            assert_eq!(up.run(python[0], &python[1..]), "done\n");
        });
        let javascript = ["env", &modules, &certificates, "node", &program("streams.mjs")];
        assert_eq!(up.run(javascript[0], &javascript[1..]), "done\n");
    });
}

#[test]
fn a_webhook_in_python_converts_custom_resources() {
    let up = Up::start(&["--nodes", "0"]);
    let directory = certificates();
    let certificates = format!("CERTIFICATES={}", directory.path().display());
    let python = installed("python-clients", &[]).display().to_string();
    assert_eq!(up.run("env", &[&certificates, &python, &program("conversion.py")]), "done\n");
}
