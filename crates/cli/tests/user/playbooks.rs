//! Ansible operators: the example of the documentation, with a program that stands in for `ansible-playbook`, and with
//! the real one in `make test-ansible`.

use std::path::{Path, PathBuf};

use crate::binary::{Up, eventually, setpoint_up};

fn here(path: &str) -> PathBuf {
    std::fs::canonicalize(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).expect("it exists")
}

fn field(up: &Up, object: &str, path: &str) -> String {
    up.try_kubectl(&["get", object, "-o", &format!("jsonpath={{{path}}}")], "").out
}

fn condition(up: &Up, kind: &str, of: &str) -> String {
    field(up, "cache/a", &format!(".status.conditions[?(@.type==\"{kind}\")].{of}"))
}

fn apply(up: &Up, size: i32) {
    let object = format!(
        "{{apiVersion: example.com/v1, kind: Cache, metadata: {{name: a}}, spec: {{sizeInMib: {size}}}}}"
    );
    up.kubectl_with(&["apply", "-f", "-"], &object);
}

/// Runs the example with the `ansible-playbook` in a directory.
fn the_role_works(programs: &Path) {
    let directory = here("../../docs/examples/ansible").display().to_string();
    let arguments = ["--in-memory", "--nodes=0", "--operators", &directory];
    let up = Up::start_command(|kubeconfig| {
        let mut command = setpoint_up(kubeconfig, &arguments);
        let path = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{}:{path}", programs.display())).env("PYTHONDONTWRITEBYTECODE", "1");
        command
    });
    apply(&up, 32);
    eventually("the role has run", || field(&up, "configmap/a", ".data.size") == "32Mi");
    eventually("its success is shown", || condition(&up, "Successful", "status") == "True");
    assert_eq!(condition(&up, "Running", "ansibleResult.changed"), "1");
    assert_eq!(field(&up, "configmap/a", ".metadata.ownerReferences[0].kind"), "Cache");
    assert_eq!(field(&up, "cache/a", ".metadata.finalizers[0]"), "example.com/cache");

    up.kubectl(&["patch", "configmap/a", "--type=merge", "-p", "{\"data\": {\"size\": \"1Mi\"}}"]);
    eventually("a change of someone else is undone", || field(&up, "configmap/a", ".data.size") == "32Mi");
    apply(&up, 0);
    eventually("the failure is shown", || condition(&up, "Failure", "status") == "True");
    assert!(condition(&up, "Failure", "message").contains("expected more than 0, found 0"));
    apply(&up, 16);
    eventually("the role has run again", || field(&up, "configmap/a", ".data.size") == "16Mi");
    eventually("the failure is over", || condition(&up, "Failure", "status") == "False");
    up.kubectl(&["delete", "cache/a", "--timeout=60s"]);
    assert!(!up.try_kubectl(&["get", "configmap/a"], "").ok, "the finalizer has removed it");
}

#[test]
fn a_role_makes_what_an_object_wants() {
    the_role_works(&here("tests/user/programs"));
}

#[test]
#[cfg(feature = "ansible-tests")]
fn a_real_role_makes_what_an_object_wants() {
    let ansible = crate::binary::installed("ansible", &[]);
    the_role_works(ansible.parent().expect("it is in a directory"));
}
