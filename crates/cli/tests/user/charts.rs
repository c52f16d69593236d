//! Helm operators with a real helm: the example of the documentation.

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::binary::{Running, Up, eventually, kubectl, setpoint_up};

fn example() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/examples/helm")
}

pub(crate) fn helm() -> PathBuf {
    std::fs::canonicalize(kubectl().with_file_name("../helm/helm")).expect("helm is beside kubectl")
}

/// Returns a search path with helm on it.
pub(crate) fn path() -> String {
    let directory = helm().parent().expect("it has one").display().to_string();
    format!("{directory}:{}", std::env::var("PATH").unwrap_or_default())
}

fn field(up: &Up, object: &str, path: &str) -> String {
    up.try_kubectl(&["get", object, "-o", &format!("jsonpath={{{path}}}")], "").out
}

fn reason(up: &Up, object: &str, condition: &str) -> String {
    field(up, object, &format!(".status.conditions[?(@.type==\"{condition}\")].reason"))
}

/// Returns the revisions of a release as `revision status`, as helm shows them.
fn history(up: &Up, release: &str) -> Vec<String> {
    let table = up.run(helm(), &["history", release]);
    let row = |line: &str| {
        let cells: Vec<&str> = line.split('\t').map(str::trim).collect();
        format!("{} {}", cells[0], cells[2])
    };
    table.lines().skip(1).map(row).collect()
}

fn apply(up: &Up, kind: &str, name: &str, spec: &str) {
    let object =
        format!("{{apiVersion: example.com/v1, kind: {kind}, metadata: {{name: {name}}}, spec: {spec}}}");
    up.kubectl_with(&["apply", "-f", "-"], &object);
}

#[test]
fn a_chart_is_installed_upgraded_corrected_rolled_back_and_uninstalled() {
    let directory = example().display().to_string();
    let arguments = ["--in-memory", "--nodes=1", "--operators", &directory];
    let up = Up::start_command(|kubeconfig| {
        let mut command = setpoint_up(kubeconfig, &arguments);
        command.env("PATH", path());
        command
    });
    apply(&up, "Site", "shop", "{replicas: 1}");
    apply(&up, "Topic", "orders", "{partitions: 3}");
    eventually("the site is installed", || reason(&up, "site/shop", "Deployed") == "InstallSuccessful");
    assert!(
        field(&up, "site/shop", ".status.conditions[?(@.type==\"Deployed\")].message")
            .contains("http://shop.default:80")
    );
    assert_eq!(field(&up, "deployment/shop", ".metadata.ownerReferences[0].kind"), "Site");
    eventually("the deployment is ready", || field(&up, "deployment/shop", ".status.readyReplicas") == "1");
    assert!(up.run(helm(), &["list", "--short"]).contains("shop"));

    apply(&up, "Site", "shop", "{replicas: 2, text: Good day!}");
    eventually("the site is upgraded", || field(&up, "configmap/shop", ".data.index\\.html") == "Good day!");
    eventually("the upgrade is shown", || reason(&up, "site/shop", "Deployed") == "UpgradeSuccessful");
    assert_eq!(history(&up, "shop"), ["1 superseded", "2 deployed"]);

    up.kubectl(&["delete", "service/shop"]);
    up.kubectl(&["scale", "deployment/shop", "--replicas=5"]);
    eventually("the service is back", || field(&up, "service/shop", ".spec.ports[0].port") == "80");
    eventually("the deployment is corrected", || field(&up, "deployment/shop", ".spec.replicas") == "2");
    assert_eq!(history(&up, "shop").len(), 2, "helm did not run");

    apply(&up, "Site", "shop", "{replicas: 2, text: Broken!, port: 99999}");
    eventually("the failure is shown", || reason(&up, "site/shop", "ReleaseFailed") == "UpgradeError");
    eventually("it is rolled back", || field(&up, "configmap/shop", ".data.index\\.html") == "Good day!");
    eventually("the revisions show it", || history(&up, "shop").contains(&"4 deployed".to_owned()));
    assert_eq!(history(&up, "shop")[..3], ["1 superseded", "2 superseded", "3 failed"]);
    apply(&up, "Site", "shop", "{replicas: 2, text: Mended!}");
    eventually("it works again", || field(&up, "configmap/shop", ".data.index\\.html") == "Mended!");
    eventually("the failure is over", || reason(&up, "site/shop", "ReleaseFailed").is_empty());

    let wins = format!("{} deployed", history(&up, "shop").len() + 2);
    up.run(helm(), &["rollback", "shop", "1"]);
    eventually("the spec wins over a rollback", || history(&up, "shop").last() == Some(&wins));
    assert_eq!(field(&up, "configmap/shop", ".data.index\\.html"), "Mended!");

    eventually("the topic is installed", || reason(&up, "topic/orders", "Deployed") == "InstallSuccessful");
    assert_eq!(field(&up, "configmap/orders-topic", ".data"), r#"{"partitions":"3","retention":"7d"}"#);
    assert_eq!(history(&up, "orders"), ["1 deployed"], "random values cause no upgrade");
    assert!(!field(&up, "topic/orders", ".status.deployedRelease.manifest").contains("password: \""));

    up.kubectl(&["delete", "site/shop", "topic/orders", "--timeout=60s"]);
    assert_eq!(up.run(helm(), &["list", "--all-namespaces", "--short"]).trim(), "");
    for gone in
        ["deployment/shop", "service/shop", "clusterrole/default-orders-reader", "secret/orders-credentials"]
    {
        eventually(gone, || !up.try_kubectl(&["get", gone], "").ok);
    }
    up.kubectl(&["get", "configmap/orders-offsets"]);
}

#[test]
fn an_upgrade_survives_the_death_of_the_operator() {
    let up = Up::start(&["--nodes=1", "--missing-images=slow"]);
    let directory = tempfile::tempdir().expect("a directory");
    let status = Command::new("cp").arg("-r").arg(example().join(".")).arg(directory.path()).status();
    assert!(status.is_ok_and(|status| status.success()), "the example is copied");
    // Helm waits for a hook whose image does not exist.
    let hook = "{{ if eq .Values.text \"slow\" }}\napiVersion: batch/v1\nkind: Job\nmetadata:\n  name: wait\n  annotations: {helm.sh/hook: pre-upgrade}\n\
        spec:\n  template:\n    spec:\n      restartPolicy: Never\n      containers: [{name: wait, image: slow}]\n{{ end }}\n";
    std::fs::write(directory.path().join("charts/site/templates/hook.yaml"), hook).expect("a hook");
    let shown = directory.path().join(".shown");
    let operate = || {
        let stderr = OpenOptions::new().create(true).append(true).open(&shown).expect("a file");
        let mut command = Command::new(env!("CARGO_BIN_EXE_setpoint"));
        command.args(["operator", "run", "--dev", "--bind-address=", "-f"]).arg(directory.path());
        command
            .arg("--kubeconfig")
            .arg(up.kubeconfig())
            .arg("--helm")
            .arg(helm())
            .stdout(Stdio::null())
            .stderr(stderr);
        Running(command.spawn().expect("the binary starts"))
    };
    let first = operate();
    let served = || up.try_kubectl(&["get", "sites"], "").ok;
    eventually("the kinds are served", served);
    apply(&up, "Site", "shop", "{replicas: 1}");
    eventually("the site is installed", || reason(&up, "site/shop", "Deployed") == "InstallSuccessful");
    apply(&up, "Site", "shop", "{replicas: 2, text: slow}");
    eventually("the upgrade is under way", || {
        history(&up, "shop").last().is_some_and(|last| last == "2 pending-upgrade")
    });
    drop(first);
    apply(&up, "Site", "shop", "{replicas: 2, text: quick}");
    let _second = operate();
    eventually("it is upgraded after all", || field(&up, "configmap/shop", ".data.index\\.html") == "quick");
    eventually("the revisions show it", || {
        history(&up, "shop") == ["1 superseded", "2 failed", "3 deployed"]
    });
    eventually("what has changed is printed", || {
        let shown = std::fs::read_to_string(&shown).expect("it prints");
        let has_line = |start: &str, end: &str| {
            shown.lines().any(|line| line.trim().starts_with(start) && line.ends_with(end))
        };
        shown.contains("helm upgrade") && has_line("+", "index.html: quick") && has_line("-", "replicas: 1")
    });
}
