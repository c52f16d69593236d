//! A controller manager that runs with the chart's arguments and service account.

use std::fs::{self, File};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command};

use serde_json::{Value, json};

use super::{NAMESPACE, RELEASE};
use crate::binary::{Answer, Up, kubectl};

/// An invalid token. Without any token, kubectl would prompt for a user name.
pub(super) const STRANGER: &str = "stranger";

/// A running manager, killed when dropped.
pub(super) struct Manager {
    process: Child,
    port: u16,
    directory: tempfile::TempDir,
}

impl Manager {
    /// Starts the binary with the arguments of a Deployment's container, as the chart's service account.
    pub(super) fn start(up: &Up, arguments: &[String]) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let kubeconfig = directory.path().join("kubeconfig");
        fs::write(&kubeconfig, as_account(up, RELEASE, NAMESPACE)).expect("a kubeconfig");
        let port = free_port();
        // A pod has its own address and port, which do not apply here.
        let elsewhere = |argument: &&String| {
            !argument.starts_with("--secure-port=") && !argument.starts_with("--bind-address=")
        };
        let process = Command::new(env!("CARGO_BIN_EXE_setpoint"))
            .args(arguments.iter().filter(elsewhere))
            .args([format!("--secure-port={port}"), "--bind-address=127.0.0.1".to_owned()])
            .args(
                ["kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig"]
                    .map(|flag| format!("--{flag}={}", kubeconfig.display())),
            )
            .stderr(File::create(directory.path().join("log")).expect("a log"))
            .spawn();
        Self { process: process.expect("the binary starts"), port, directory }
    }

    /// Returns the address of its secure port.
    pub(super) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Sends a request with this token.
    pub(super) fn get(&self, path: &str, token: &str) -> Answer {
        let mut command = Command::new(kubectl());
        command.args(["--kubeconfig=/dev/null", "--insecure-skip-tls-verify", "get", "--raw", path]);
        command.args([format!("--server=https://{}", self.address()), format!("--token={token}")]);
        command.env("HOME", self.directory.path()).output().expect("kubectl runs").into()
    }

    pub(super) fn is_ready(&self) -> bool {
        self.get("/readyz", STRANGER).ok
    }

    pub(super) fn log(&self) -> String {
        fs::read_to_string(self.log_file()).expect("a log")
    }

    fn log_file(&self) -> PathBuf {
        self.directory.path().join("log")
    }

    /// Sends SIGTERM and waits. Returns true if it exited successfully.
    pub(super) fn stop(mut self) -> bool {
        let pid = self.process.id().to_string();
        Command::new("kill").args(["-TERM", &pid]).status().expect("kill runs");
        self.process.wait().expect("it ends").success()
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        _ = self.process.kill();
        _ = self.process.wait();
    }
}

/// Requests a service account token.
pub(super) fn token(up: &Up, account: &str, namespace: &str) -> String {
    up.kubectl(&["create", "token", account, "--namespace", namespace]).trim().to_owned()
}

/// Creates a kubeconfig for a service account.
fn as_account(up: &Up, account: &str, namespace: &str) -> String {
    let admin = fs::read_to_string(up.kubeconfig()).expect("it was written");
    let mut config: Value = serde_json::from_str(&admin).expect("JSON");
    let user = config["users"][0]["name"].clone();
    config["users"] = json!([{"name": user, "user": {"token": token(up, account, namespace)}}]);
    config.to_string()
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("it has an address").port()
}
