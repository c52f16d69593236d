//! The real binary on a real etcd: what it stores, what it reads, and what it says if etcd is not as it should be.

use std::path::Path;

use setpoint_etcd::test_server::EtcdServer;

use crate::binary::{Answer, Up, eventually, setpoint_up};

struct World {
    etcd: EtcdServer,
    directory: tempfile::TempDir,
}

impl World {
    fn new() -> Self {
        Self { etcd: EtcdServer::start(), directory: tempfile::tempdir().expect("a temporary directory") }
    }

    fn arguments(&self, data: &str) -> Vec<String> {
        let data = self.directory.path().join(data).to_str().expect("a readable path").to_owned();
        ["--data-dir", &data, "--etcd-servers", self.etcd.url(), "--nodes", "1"].map(str::to_owned).to_vec()
    }

    fn start(&self, more: &[&str]) -> Up {
        let arguments = self.arguments("data");
        Up::start_with(&[&arguments.iter().map(String::as_str).collect::<Vec<_>>()[..], more].concat())
    }

    fn stored(&self, key: &str) -> Vec<u8> {
        self.etcd.etcdctl(&["get", "--print-value-only", key])
    }

    fn keys(&self) -> Vec<String> {
        let keys = self.etcd.etcdctl(&["get", "--prefix", "--keys-only", "/"]);
        let keys = String::from_utf8_lossy(&keys);
        keys.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect()
    }
}

/// Runs `setpoint up`, which is expected to fail.
fn refused(arguments: &[&str]) -> String {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let kubeconfig = directory.path().join("kubeconfig");
    let data = directory.path().join("data");
    let data = data.to_str().expect("a readable path");
    let output = setpoint_up(&kubeconfig, &[&["--data-dir", data], arguments].concat()).output();
    let answer = Answer::from(output.expect("the binary starts"));
    assert!(!answer.ok, "it started");
    assert!(!kubeconfig.exists(), "nothing is left half-written");
    answer.err
}

const OBJECTS: &str = r#"
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: nginx}]}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{port: 80}]}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: pandas.bears.example}
spec:
  group: bears.example
  names: {plural: pandas, singular: panda, kind: Panda, listKind: PandaList}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
"#;

#[test]
fn a_cluster_on_etcd_survives_its_server() {
    let world = World::new();
    let mut up = world.start(&[]);
    up.kubectl_with(&["apply", "-f", "-"], OBJECTS);
    up.kubectl(&["wait", "--for=condition=established", "crd/pandas.bears.example"]);
    up.kubectl_with(
        &["apply", "-f", "-"],
        "{apiVersion: bears.example/v1, kind: Panda, metadata: {name: po}, spec: {size: 3}}",
    );
    up.kubectl(&["rollout", "status", "deployment/web", "--timeout=60s"]);
    let keys = world.keys();
    for key in [
        "/registry/deployments/default/web",
        "/registry/services/specs/default/web",
        "/registry/bears.example/pandas/default/po",
        "/registry/apiextensions.k8s.io/customresourcedefinitions/pandas.bears.example",
        "/registry/minions/node-0",
        "/registry/namespaces/default",
    ] {
        assert!(keys.iter().any(|stored| stored == key), "{key} is not among {keys:?}");
    }
    assert!(world.stored("/registry/deployments/default/web").starts_with(b"k8s\0"));
    assert!(world.stored("/registry/bears.example/pandas/default/po").starts_with(b"{\"apiVersion\":"));
    let show =
        |up: &Up| up.kubectl(&["get", "deployment,service,panda", "-o", "yaml", "--show-managed-fields"]);
    let before = show(&up);
    // Not even a signal to finish.
    up.kill();
    let up = world.start(&[]);
    assert_eq!(show(&up), before);
    assert!(up.kubectl(&["get", "--raw", "/readyz?verbose"]).contains("[+]etcd ok"));
    up.kubectl(&["scale", "deployment/web", "--replicas=1"]);
    up.kubectl(&["rollout", "status", "deployment/web", "--timeout=60s"]);
    assert!(up.stop());
}

#[test]
fn objects_can_be_stored_as_json_under_another_prefix() {
    let world = World::new();
    let up = world.start(&["--storage-media-type", "application/json", "--etcd-prefix", "/other"]);
    up.kubectl(&["create", "configmap", "a", "--from-literal=b=c"]);
    let stored = world.stored("/other/configmaps/default/a");
    assert!(stored.starts_with(b"{") && stored.ends_with(b"}\n\n"), "{}", String::from_utf8_lossy(&stored));
    assert!(world.keys().iter().all(|key| key.starts_with("/other/")));
}

#[test]
fn a_lost_etcd_makes_it_unready() {
    let world = World::new();
    let up = world.start(&[]);
    let World { etcd, directory } = world;
    drop(etcd);
    eventually("readyz fails", || !up.try_kubectl(&["get", "--raw", "/readyz"], "").ok);
    let write = up.try_kubectl(&["create", "configmap", "a", "--request-timeout=10s"], "");
    assert!(!write.ok);
    drop((up, directory));
}

#[test]
fn an_etcd_that_cannot_be_used_is_explained() {
    let etcd = EtcdServer::start();
    let missing = Path::new("/does/not/exist").to_str().expect("a readable path");
    for (arguments, expected) in [
        (&["--etcd-servers", "127.0.0.1:2379"][..], "is not a URL of etcd"),
        (
            &["--etcd-servers", etcd.url(), "--etcd-prefix", "registry"],
            "--etcd-prefix: \"registry\" is not a path",
        ),
        (
            &["--etcd-servers", etcd.url(), "--etcd-cafile", missing],
            "--etcd-cafile: cannot read /does/not/exist",
        ),
        (
            &["--etcd-servers", etcd.url(), "--etcd-servers-overrides", "/events#http://a:1"],
            "is not supported",
        ),
        (&["--etcd-servers", &etcd.url().replace("http:", "https:")], "etcd at https://127.0.0.1"),
    ] {
        let error = refused(arguments);
        assert!(error.contains(expected), "{arguments:?}: {error}");
    }
}
