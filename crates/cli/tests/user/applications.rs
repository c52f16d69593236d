//! Applications with the real binary: the commands of application and platform teams, and the manager beside a cluster.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::binary::{Answer, Running, Up, eventually};

const SHOP: &str = "
apiVersion: core.oam.dev/v1beta1
kind: Application
metadata: {name: shop}
spec:
  components:
    - name: front
      type: webservice
      properties: {image: nginx}
      traits: [{type: scaler, properties: {replicas: 2}}]
";

pub(crate) fn setpoint(kubeconfig: Option<&Path>, arguments: &[&str]) -> Answer {
    let mut command = Command::new(env!("CARGO_BIN_EXE_setpoint"));
    command.args(arguments).env("NO_COLOR", "1").stdin(Stdio::null());
    match kubeconfig {
        Some(path) => command.arg("--kubeconfig").arg(path),
        None => command.env("KUBECONFIG", "/nonexistent"),
    };
    command.output().expect("the binary runs").into()
}

fn file(directory: &tempfile::TempDir, name: &str, text: &str) -> String {
    let path = directory.path().join(name);
    std::fs::write(&path, text).expect("a file can be written");
    path.display().to_string()
}

fn runs(up: &Up, name: &str) -> bool {
    up.kubectl(&["get", "app", name, "-o", "jsonpath={.status.status}"]) == "running"
}

#[test]
fn an_application_is_rendered_compared_applied_and_rolled_back() {
    let up = Up::start(&["--applications", "--nodes=1"]);
    let directory = tempfile::tempdir().expect("a temporary directory");
    let shop = file(&directory, "shop.yaml", SHOP);
    let app = |arguments: &[&str]| setpoint(Some(up.kubeconfig()), &[&["app"], arguments].concat());

    let rendered = setpoint(None, &["app", "dry-run", "-f", &shop]);
    assert!(rendered.ok && rendered.out.contains("kind: Deployment"), "{}{}", rendered.out, rendered.err);
    let new = app(&["diff", "-f", &shop]);
    assert_eq!(new.code, Some(1), "{}{}", new.out, new.err);
    up.kubectl(&["apply", "-f", &shop]);
    eventually("the application runs", || runs(&up, "shop"));
    let same = app(&["diff", "-f", &shop]);
    assert_eq!((same.code, same.out.as_str()), (Some(0), ""), "{}", same.err);

    let status = app(&["status", "shop"]);
    assert!(status.out.contains("front (local/default) healthy"), "{}{}", status.out, status.err);
    assert!(app(&["status", "-A"]).out.contains("shop"));
    assert_eq!(app(&["status", "shop", "-o", "name"]).out, "application.core.oam.dev/shop\n");
    let tree = app(&["tree", "shop"]);
    assert!(
        tree.out.contains("Deployment/front") && tree.out.contains("Pod/front"),
        "{}{}",
        tree.out,
        tree.err
    );

    let other = file(&directory, "other.yaml", &SHOP.replace("replicas: 2", "replicas: 3"));
    let changed = app(&["diff", "-f", &other]);
    assert!(
        changed.out.contains("-  replicas: 2") && changed.out.contains("+  replicas: 3"),
        "{}",
        changed.out
    );
    up.kubectl(&["apply", "-f", &other]);
    let replicas = || up.kubectl(&["get", "deployment", "front", "-o", "jsonpath={.spec.replicas}"]);
    eventually("the change is applied", || replicas() == "3");
    eventually("it runs again", || runs(&up, "shop"));
    assert!(app(&["revisions", "shop"]).out.contains("shop-v2"));
    let back = app(&["rollback", "shop"]);
    assert!(back.ok, "{}", back.err);
    eventually("it is rolled back", || replicas() == "2");

    let missing = app(&["status", "absent"]);
    assert!(!missing.ok && missing.out.is_empty() && missing.err.contains("absent"), "{}", missing.err);
    let warned =
        up.try_kubectl(&["apply", "-f", "-"], &SHOP.replace("image: nginx", "image: nginx, imag: x"));
    assert!(warned.ok && warned.err.contains("unknown property"), "{}", warned.err);
    let refused = up.try_kubectl(&["apply", "-f", "-"], &SHOP.replace("replicas: 2", "replicas: many"));
    assert!(!refused.ok && refused.err.contains("traits[0].properties.replicas"), "{}", refused.err);
}

#[test]
fn a_workflow_is_suspended_resumed_restarted_and_terminated() {
    let up = Up::start(&["--applications", "--nodes=1"]);
    let waiting = SHOP.replace("name: shop", "name: waiting")
        + "  workflow:\n    steps:\n      - {name: wait, type: suspend}\n      - {name: apply, type: apply-component, properties: {component: front}}\n";
    up.kubectl_with(&["apply", "-f", "-"], &waiting);
    let phase = || up.kubectl(&["get", "app", "waiting", "-o", "jsonpath={.status.status}"]);
    let app = |command: &str| setpoint(Some(up.kubeconfig()), &["app", command, "waiting"]);
    eventually("it is suspended", || phase() == "workflowSuspending");
    assert!(app("resume").ok);
    eventually("it runs", || phase() == "running");
    assert!(!app("resume").ok, "nothing is suspended");
    assert!(app("restart").ok);
    eventually("it is suspended again", || phase() == "workflowSuspending");
    assert!(app("terminate").ok);
    eventually("it is terminated", || phase() == "workflowTerminated");

    let run = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/examples/run.yaml");
    up.kubectl(&["apply", "-f", run]);
    let phase = || up.kubectl(&["get", "workflowrun", "prepare", "-o", "jsonpath={.status.status}"]);
    let app = |command: &str| setpoint(Some(up.kubeconfig()), &["app", command, "workflowrun/prepare"]);
    eventually("the run is suspended", || phase() == "suspending");
    assert_eq!(app("resume").out, "workflowrun.core.oam.dev/prepare resumed\n");
    eventually("the run succeeds", || phase() == "succeeded");
    assert!(!app("terminate").ok, "it has ended");
    assert!(app("restart").ok);
    eventually("the run is suspended again", || phase() == "suspending");
    assert!(app("terminate").ok);
    eventually("the run is terminated", || phase() == "terminated");
}

#[test]
fn a_definition_is_checked_applied_and_shown() {
    let up = Up::start(&["--applications", "--nodes=0"]);
    let directory = tempfile::tempdir().expect("a temporary directory");
    let text = "\"note\": {\n\ttype: \"component\"\n\tdescription: \"A note\"\n\tattributes: workload: type: \"autodetects.core.oam.dev\"\n}\n\
                template: {\n\toutput: {apiVersion: \"v1\", kind: \"ConfigMap\", data: words: parameter.words}\n\
                \tparameter: {\n\t\t// +usage=What it says\n\t\twords: string\n\t}\n}\n";
    let note = file(&directory, "note.cue", text);
    let bad = file(&directory, "bad.cue", &text.replace("words: string", "words: strin"));
    assert!(setpoint(None, &["def", "vet", &note]).ok);
    let wrong = setpoint(None, &["def", "vet", &bad]);
    assert!(!wrong.ok && wrong.err.contains("strin"), "{}", wrong.err);
    let def = |arguments: &[&str]| setpoint(Some(up.kubeconfig()), &[&["def"], arguments].concat());
    assert!(def(&["apply", "-f", &note]).out.contains("note created"));
    assert!(def(&["apply", "-f", &note]).out.contains("note unchanged"));
    let shown = def(&["show", "note"]);
    assert!(shown.out.contains("words") && shown.out.contains("What it says"), "{}{}", shown.out, shown.err);
}

/// Writes a kubeconfig with which a program has the rights of the manager's account, and no others.
fn of_the_account(up: &Up, directory: &tempfile::TempDir) -> String {
    let roles = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/applications/rbac.yaml");
    up.kubectl(&["apply", "-f", roles]);
    let token = up.kubectl(&["create", "token", "setpoint-application-manager", "-n", "vela-system"]);
    let text = up.kubectl(&["config", "view", "--raw", "-o", "json"]);
    let mut config: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    config["users"][0]["user"] = serde_json::json!({"token": token.trim()});
    file(directory, "kubeconfig", &config.to_string())
}

/// Starts the manager, with the rights of its role.
fn manager(kubeconfig: &str, flags: &[&str]) -> Running {
    let mut command = Command::new(env!("CARGO_BIN_EXE_setpoint"));
    command.args(["application-manager", "--kubeconfig", kubeconfig]).args(flags);
    Running(command.stderr(Stdio::inherit()).spawn().expect("the binary starts"))
}

fn free_address() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("bound").to_string()
}

/// Reads a page over plain HTTP. Empty if there is no response.
fn page(address: &str, path: &str) -> String {
    let mut text = String::new();
    if let Ok(mut stream) = TcpStream::connect(address) {
        let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
        _ = stream.write_all(request.as_bytes());
        _ = stream.read_to_string(&mut text);
    }
    text
}

#[test]
fn the_manager_checks_properties_and_reports_its_health_and_metrics() {
    let up = Up::start(&["--nodes=1"]);
    let directory = tempfile::tempdir().expect("a temporary directory");
    let kubeconfig = of_the_account(&up, &directory);
    let (health, webhook) = (free_address(), free_address());
    let flags = [
        format!("--bind-address={health}"),
        format!("--webhook-address={webhook}"),
        format!("--webhook-url=https://{webhook}"),
    ];
    let _manager = manager(&kubeconfig, &flags.each_ref().map(String::as_str));
    eventually("it is ready", || page(&health, "/readyz").starts_with("HTTP/1.1 200"));
    let bad = SHOP.replace("replicas: 2", "replicas: many");
    eventually("the webhook checks", || {
        let refused = up.try_kubectl(&["apply", "-f", "-"], &bad);
        !refused.ok && refused.err.contains("traits[0].properties.replicas")
    });
    let warned =
        up.try_kubectl(&["apply", "-f", "-"], &SHOP.replace("image: nginx", "image: nginx, imag: x"));
    assert!(warned.ok && warned.err.contains("unknown property"), "{}", warned.err);
    eventually("it runs", || runs(&up, "shop"));
    let metrics = page(&health, "/metrics");
    for name in ["application-controller", "workflow-run-controller", "cluster-probe"] {
        let line = format!("running_managed_controllers{{manager=\"setpoint\",name=\"{name}\"}} 1");
        assert!(metrics.contains(&line), "{line} is not in {metrics}");
    }
    assert!(page(&health, "/healthz").starts_with("HTTP/1.1 200"));
}

#[test]
fn a_standby_manager_takes_over_and_shards_share_the_work() {
    let up = Up::start(&["--nodes=1"]);
    let directory = tempfile::tempdir().expect("a temporary directory");
    let kubeconfig = of_the_account(&up, &directory);
    let quick = [
        "--bind-address=",
        "--leader-elect-lease-duration=3s",
        "--leader-elect-renew-deadline=2s",
        "--leader-elect-retry-period=500ms",
    ];
    let first = manager(&kubeconfig, &quick);
    let lease = ["get", "lease", "setpoint-application-manager", "-n", "vela-system", "-o"];
    let holder = || up.try_kubectl(&[&lease[..], &["jsonpath={.spec.holderIdentity}"]].concat(), "").out;
    eventually("it leads", || !holder().is_empty());
    let leader = holder();
    let second = manager(&kubeconfig, &quick);
    drop(first);
    up.kubectl_with(&["apply", "-f", "-"], SHOP);
    eventually("the other one runs it", || runs(&up, "shop"));
    assert_ne!(holder(), leader);
    drop(second);

    let sharded = [&quick[..], &["--shards=4"]].concat();
    let _replicas = [manager(&kubeconfig, &sharded), manager(&kubeconfig, &sharded)];
    for name in ["a", "b", "c", "d"] {
        up.kubectl_with(
            &["apply", "-f", "-"],
            &SHOP.replace("shop", name).replace("front", &format!("front-{name}")),
        );
    }
    eventually("all of them run", || ["a", "b", "c", "d"].iter().all(|name| runs(&up, name)));
}

#[test]
fn the_manager_runs_applications_of_another_cluster_with_the_rights_of_its_role() {
    let up = Up::start(&["--nodes=1"]);
    let directory = tempfile::tempdir().expect("a temporary directory");
    let kubeconfig = of_the_account(&up, &directory);
    let mut manager = manager(&kubeconfig, &["--bind-address=127.0.0.1:0"]);
    eventually("the kinds are installed", || up.try_kubectl(&["get", "applications"], "").ok);
    eventually("an application is accepted", || up.try_kubectl(&["apply", "-f", "-"], SHOP).ok);
    eventually("it runs", || runs(&up, "shop"));
    assert!(manager.is_running());
}
