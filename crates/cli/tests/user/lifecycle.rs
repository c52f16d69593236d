//! The lifecycle of the binary: start, stop, restart, and failing starts.

use std::net::TcpListener;
use std::process::Command;

use crate::binary::{Answer, Up, eventually, setpoint_up};

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

fn certs(arguments: &[&str]) -> Answer {
    let output = Command::new(env!("CARGO_BIN_EXE_setpoint")).arg("certs").args(arguments).output();
    output.expect("the binary starts").into()
}

#[test]
fn the_admin_keeps_a_certificate_until_it_is_renewed() {
    let data = tempfile::tempdir().expect("a temporary directory");
    let path = data.path().to_str().expect("a readable path");
    let arguments = ["--data-dir", path, "--nodes", "0"];
    let kubeconfig = || {
        let up = Up::start_with(&arguments);
        let text = std::fs::read_to_string(up.kubeconfig()).expect("a kubeconfig");
        assert!(up.stop());
        let config: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        config["users"][0]["user"]["client-certificate-data"].clone()
    };
    let first = kubeconfig();
    assert_eq!(kubeconfig(), first);
    let renewed = certs(&["renew", "--ca", "--data-dir", path]);
    assert!(renewed.ok, "{}", renewed.err);
    assert_ne!(kubeconfig(), first);
    let checked = certs(&["check", "--data-dir", path, "-o", "json"]);
    let checked: serde_json::Value = serde_json::from_str(&checked.out).expect("JSON");
    // The CA, its predecessor, and the CA of the front proxy.
    assert_eq!(checked["certificateAuthorities"].as_array().map(Vec::len), Some(3), "{checked}");
    let missing = certs(&["renew", "--data-dir", "/does/not/exist"]);
    assert!(!missing.ok && missing.err.contains("no CA found in"), "{}", missing.err);
}

#[test]
fn a_given_certificate_is_served_and_reloaded() {
    let data = tempfile::tempdir().expect("a temporary directory");
    let made = |name: &str| {
        let key = rcgen::KeyPair::generate().expect("a key");
        let params = rcgen::CertificateParams::new(vec![name.to_owned()]).expect("a name");
        let certificate = params.self_signed(&key).expect("a certificate");
        (certificate.pem(), key.serialize_pem())
    };
    let (certificate, key) = (data.path().join("tls.crt"), data.path().join("tls.key"));
    let put = |(pem, secret): (String, String)| {
        std::fs::write(&certificate, pem).and_then(|()| std::fs::write(&key, secret)).expect("files");
    };
    put(made("first.example"));
    let files = [certificate.to_str().expect("a path"), key.to_str().expect("a path")];
    let up = Up::start(&["--nodes", "0", "--tls-cert-file", files[0], "--tls-private-key-file", files[1]]);
    let answers_to = |name: &str| {
        let pem = std::fs::read_to_string(&certificate).expect("a certificate");
        let bundle = data.path().join("bundle.crt");
        std::fs::write(&bundle, pem).expect("a file");
        let bundle = bundle.to_str().expect("a path");
        up.try_kubectl(&["--certificate-authority", bundle, "--tls-server-name", name, "version"], "").ok
    };
    assert!(answers_to("first.example"));
    put(made("second.example"));
    eventually("the new certificate is shown", || answers_to("second.example"));
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
fn a_port_in_use_is_reported() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = taken.local_addr().expect("it has an address").port().to_string();
    let answer = refused(&["--in-memory", "--port", &port]);
    assert!(!answer.ok && answer.err.contains("--port"), "{}", answer.err);
}

#[test]
fn errors_of_invalid_values_name_the_flag() {
    let check = |arguments: &[&str], expected: &str| {
        let answer = refused(arguments);
        assert!(!answer.ok && answer.err.contains(expected), "{arguments:?}: {}", answer.err);
    };
    check(&["--in-memory", "--controllers", "nonsense"], "--controllers");
    check(&["--in-memory", "--service-cluster-ip-range", "nonsense"], "nonsense");
    check(&["--in-memory", "--token-auth-file", "/does/not/exist"], "/does/not/exist");
    check(&["--in-memory", "--tls-cert-file", "a.crt"], "--tls-private-key-file");
    check(&["--in-memory", "--tls-cipher-suites", "NONSENSE"], "Cipher suite NONSENSE not supported");
    check(&["--in-memory", "--tls-min-version", "VersionTLS10"], "--tls-min-version");
    check(&["--in-memory", "--client-ca-file", "/does/not/exist"], "--client-ca-file");
    check(&["--nonsense"], "--nonsense");
}

#[test]
fn completions_are_printed_for_a_shell() {
    let output = Command::new(env!("CARGO_BIN_EXE_setpoint")).args(["completion", "bash"]).output();
    let output: Answer = output.expect("the binary starts").into();
    assert!(output.ok && output.out.contains("_setpoint"), "{}", output.err);
}

#[test]
fn every_command_has_a_manual_page() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let pages = directory.path().join("man1");
    let output = Command::new(env!("CARGO_BIN_EXE_setpoint")).arg("man").arg(&pages).output();
    let output: Answer = output.expect("the binary starts").into();
    assert!(output.ok, "{}", output.err);
    let page = |name: &str| std::fs::read_to_string(pages.join(name)).unwrap_or_default();
    assert!(page("setpoint.1").contains("controller\\-manager"), "{}", page("setpoint.1"));
    assert!(page("setpoint-controller-manager.1").contains("leader\\-elect"));
    assert!(page("setpoint-node-fail.1").contains("kubeconfig"));
}
