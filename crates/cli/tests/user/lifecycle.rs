//! The binary's own life: start, stop, restart, and starts that cannot succeed.

use std::net::TcpListener;
use std::process::Command;

use crate::binary::{Answer, Up, setpoint_up};

fn refused(arguments: &[&str]) -> Answer {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let output =
        setpoint_up(&directory.path().join("kubeconfig"), arguments).output().expect("the binary starts");
    output.into()
}

#[test]
fn a_restart_on_the_same_data_finds_everything_again() {
    let data = tempfile::tempdir().expect("a temporary directory");
    let arguments = ["--data-dir", data.path().to_str().expect("a readable path"), "--nodes", "1"];
    let up = Up::start_with(&arguments);
    let kept =
        r#"{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "kept"}, "data": {"a": "b"}}"#;
    up.kubectl_with(&["apply", "-f", "-"], kept);
    let before = up.kubectl(&["get", "configmap", "kept", "-o", "json"]);
    assert!(up.stop(), "SIGTERM drains and exits 0");
    let up = Up::start_with(&arguments);
    assert_eq!(up.kubectl(&["get", "configmap", "kept", "-o", "json"]), before);
    assert!(up.stop());
}

#[test]
fn a_data_directory_serves_one_process_at_a_time() {
    let data = tempfile::tempdir().expect("a temporary directory");
    let arguments = ["--data-dir", data.path().to_str().expect("a readable path"), "--nodes", "0"];
    let _up = Up::start_with(&arguments);
    let answer = refused(&arguments);
    assert!(!answer.ok && answer.err.contains("in use"), "{}", answer.err);
}

#[test]
fn a_port_in_use_is_said_so() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = taken.local_addr().expect("it has an address").port().to_string();
    let answer = refused(&["--in-memory", "--port", &port]);
    assert!(!answer.ok && answer.err.contains("--port"), "{}", answer.err);
}

#[test]
fn flags_that_make_no_sense_name_the_flag() {
    let check = |arguments: &[&str], expected: &str| {
        let answer = refused(arguments);
        assert!(!answer.ok && answer.err.contains(expected), "{arguments:?}: {}", answer.err);
    };
    check(&["--in-memory", "--controllers", "nonsense"], "--controllers");
    check(&["--in-memory", "--service-cluster-ip-range", "nonsense"], "nonsense");
    check(&["--in-memory", "--token-auth-file", "/does/not/exist"], "/does/not/exist");
    check(&["--nonsense"], "--nonsense");
}

#[test]
fn completions_are_printed_for_a_shell() {
    let output = Command::new(env!("CARGO_BIN_EXE_setpoint")).args(["completion", "bash"]).output();
    let output: Answer = output.expect("the binary starts").into();
    assert!(output.ok && output.out.contains("_setpoint"), "{}", output.err);
}
