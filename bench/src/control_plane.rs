//! A running `setpoint up` as a user runs it: a process with a port, TLS, and its state on this directory's disk.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use http::{Method, Request};
use kube::config::{KubeConfigOptions, Kubeconfig};
use setpoint_clock::Clock;

use crate::process;

/// The token of a user who may do everything, for clients without a certificate.
pub(crate) const TOKEN: &str = "benchmark";

/// The control plane being measured, killed when dropped.
pub(crate) struct ControlPlane {
    process: Child,
    kubeconfig: PathBuf,
    /// The time from the start of the process to its first `ok` on `/readyz`.
    pub(crate) ready_after: Duration,
    directory: tempfile::TempDir,
}

/// The resources that a control plane has used.
#[derive(Clone, Copy)]
pub(crate) struct Usage {
    pub(crate) cpu: Duration,
    pub(crate) mib: u64,
    pub(crate) peak_mib: u64,
}

impl ControlPlane {
    /// Starts a durable control plane with these additional arguments, and waits until it is ready.
    pub(crate) async fn start(arguments: &[&str]) -> Self {
        let directory = tempfile::tempdir_in(".").expect("the working directory can be written");
        let at = |name: &str| directory.path().join(name);
        std::fs::write(at("tokens.csv"), format!("{TOKEN},bench,1,\"system:masters\"\n"))
            .expect("the directory was just made");
        let clock = Clock::system();
        let started = clock.instant();
        let process = Command::new(binary())
            .args(["up", "--port", "0"])
            .arg("--kubeconfig")
            .arg(at("kubeconfig"))
            .arg("--data-dir")
            .arg(at("data"))
            .arg("--token-auth-file")
            .arg(at("tokens.csv"))
            .args(arguments)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("`make bench` builds the binary first");
        let mut plane =
            Self { process, kubeconfig: at("kubeconfig"), ready_after: Duration::ZERO, directory };
        while !plane.is_ready().await {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        plane.ready_after = clock.instant() - started;
        plane
    }

    async fn is_ready(&self) -> bool {
        let Some(config) = self.config().await else { return false };
        let Ok(client) = kube::Client::try_from(config) else { return false };
        let request = Request::get("/readyz").body(Vec::new()).expect("a constant request");
        client.request_text(request).await.is_ok_and(|text| text == "ok")
    }

    /// Loads the kubeconfig. Returns `None` until it is written.
    pub(crate) async fn config(&self) -> Option<kube::Config> {
        let kubeconfig = Kubeconfig::read_from(&self.kubeconfig).ok()?;
        kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.ok()
    }

    /// Creates a client with its own connections.
    pub(crate) async fn client(&self) -> kube::Client {
        let config = self.config().await.expect("a ready control plane has written its kubeconfig");
        kube::Client::try_from(config).expect("the kubeconfig is complete")
    }

    /// `https://127.0.0.1:6443`
    pub(crate) async fn url(&self) -> String {
        let config = self.config().await.expect("a ready control plane has written its kubeconfig");
        config.cluster_url.to_string().trim_end_matches('/').to_owned()
    }

    /// Returns the directory for the files of this run.
    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn usage(&self) -> Usage {
        let process = self.process.id().to_string();
        let mib = |figure: &str| process::memory_of(&process, figure) >> 20;
        Usage { cpu: process::cpu_of(&process), mib: mib("VmRSS:"), peak_mib: mib("VmHWM:") }
    }
}

/// The resources that some work took.
pub(crate) struct Span {
    pub(crate) seconds: f64,
    pub(crate) cpu_seconds: f64,
    pub(crate) after: Usage,
}

impl ControlPlane {
    pub(crate) async fn during<T>(&self, work: impl Future<Output = T>) -> (Span, T) {
        let clock = Clock::system();
        let (before, started) = (self.usage(), clock.instant());
        let made = work.await;
        let (seconds, after) = ((clock.instant() - started).as_secs_f64(), self.usage());
        (Span { seconds, cpu_seconds: (after.cpu - before.cpu).as_secs_f64(), after }, made)
    }
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

pub(crate) fn binary() -> PathBuf {
    let this = std::env::current_exe().expect("this program has a path");
    this.with_file_name("setpoint")
}

/// Sends a request. Panics with the response if it is not successful.
pub(crate) async fn call(client: &kube::Client, method: Method, path: &str, body: String) -> String {
    let request = Request::builder().method(method).uri(path).header("content-type", "application/json");
    let answer = client.request_text(request.body(body.into_bytes()).expect("a well-formed request")).await;
    answer.unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Runs a benchmark on its own runtime.
pub(crate) fn block_on(measurement: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime starts").block_on(measurement);
}
