//! Three control planes on this machine: applications of one of them run in the others.

use std::net::TcpListener;
use std::path::Path;
use std::process::Command;

use crate::applications::setpoint;
use crate::binary::{Up, eventually};

fn app(value: &str) -> String {
    format!(
        "
apiVersion: core.oam.dev/v1beta1
kind: Application
metadata: {{name: spread}}
spec:
  components:
    - name: note
      type: k8s-objects
      properties:
        objects: [{{apiVersion: v1, kind: ConfigMap, metadata: {{name: note}}, data: {{value: \"{value}\"}}}}]
  policies:
    - {{name: both, type: topology, properties: {{clusters: [east, west]}}}}
"
    )
}

/// A control plane that keeps its port and its data.
fn start_again(port: u16, data: &Path) -> Up {
    Up::start_command(|kubeconfig| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_setpoint"));
        command.args(["up", "--nodes=0", "--port", &port.to_string(), "--kubeconfig"]).arg(kubeconfig);
        command.arg("--data-dir").arg(data);
        command
    })
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("bound").port()
}

fn value(up: &Up) -> String {
    up.try_kubectl(&["get", "configmap", "note", "-o", "jsonpath={.data.value}"], "").out
}

#[test]
fn an_application_is_deployed_to_other_clusters_which_come_and_go() {
    let hub = Up::start(&["--applications", "--nodes=0"]);
    let (data, port) = (tempfile::tempdir().expect("a temporary directory"), free_port());
    let (mut east, west) = (start_again(port, data.path()), Up::start(&["--nodes=0"]));
    let on_hub = |arguments: &[&str]| setpoint(Some(hub.kubeconfig()), arguments);
    for (name, up) in [("east", &east), ("west", &west)] {
        let file = up.kubeconfig().to_str().expect("a readable path");
        let label = format!("side={name}");
        let joined = on_hub(&["cluster", "join", file, "--name", name, "--labels", &label]);
        assert_eq!(joined.out, format!("cluster/{name} joined\n"), "{}", joined.err);
        assert!(!on_hub(&["cluster", "join", file, "--name", name]).ok, "it is registered");
    }
    let listed = on_hub(&["cluster", "list"]).out;
    assert!(listed.contains("east") && listed.contains("X509Certificate"), "{listed}");
    assert!(listed.contains("side=west") && listed.contains("local"), "{listed}");

    hub.kubectl_with(&["apply", "-f", "-"], &app("1"));
    let phase = || hub.kubectl(&["get", "app", "spread", "-o", "jsonpath={.status.status}"]);
    eventually("it runs", || phase() == "running");
    assert_eq!((value(&east).as_str(), value(&west).as_str()), ("1", "1"));
    let status = || on_hub(&["app", "status", "spread"]).out;
    assert!(status().contains("note (east/default) healthy"), "{}", status());
    let tree = on_hub(&["app", "tree", "spread"]);
    assert!(tree.out.contains("ConfigMap/note (west/default, component note)\n"), "{}{}", tree.out, tree.err);
    west.kubectl(&["delete", "configmap", "note"]);
    eventually("what others delete comes back", || value(&west) == "1");

    east.kill();
    eventually("it reports the cluster", || status().contains("cluster east is unreachable"));
    hub.kubectl_with(&["apply", "-f", "-"], &app("2"));
    eventually("the other cluster follows", || value(&west) == "2");
    assert!(on_hub(&["app", "tree", "spread"]).out.contains("the cluster is unreachable"));
    let east = start_again(port, data.path());
    assert_eq!(value(&east), "1");
    eventually("the cluster catches up", || value(&east) == "2");
    eventually("it runs again", || phase() == "running");

    let renamed = on_hub(&["cluster", "rename", "west", "north"]);
    assert!(!renamed.ok && renamed.err.contains("in use"), "{}", renamed.err);
    let detached = on_hub(&["cluster", "detach", "west"]);
    assert_eq!(detached.out, "cluster/west detached\n", "{}", detached.err);
    hub.kubectl(&["delete", "app", "spread"]);
    assert_eq!((value(&east).as_str(), value(&west).as_str()), ("", "2"), "a detached cluster is left alone");
    let renamed = on_hub(&["cluster", "rename", "east", "south"]);
    assert_eq!(renamed.out, "cluster/east renamed to south\n", "{}", renamed.err);
}
