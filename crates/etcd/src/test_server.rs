//! A real etcd for tests.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use setpoint_clock::Clock;

use crate::{EtcdCluster, EtcdConfig};

/// A running etcd with one member. It ends with this value, or with this program.
pub struct EtcdServer {
    url: String,
    _shell: Shell,
    _directory: tempfile::TempDir,
}

/// The shell around etcd. It kills etcd when its input is closed.
struct Shell(Child);

impl Drop for Shell {
    fn drop(&mut self) {
        // This closes its input. An error means that it has ended.
        _ = self.0.wait();
    }
}

/// Returns the directory of etcd's programs: from `ETCD`, or downloaded once.
pub fn programs() -> PathBuf {
    if let Some(path) = std::env::var_os("ETCD") {
        return path.into();
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/etcd");
    let output = Command::new(&script).output().expect("the set-up script runs");
    assert!(output.status.success(), "{}: {}", script.display(), String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().into()
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0")
        .and_then(|listener| listener.local_addr())
        .expect("a port is free")
        .port()
}

impl EtcdServer {
    /// Starts an etcd that does not wait for its disk.
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// Starts an etcd with more arguments.
    pub fn start_with(arguments: &[&str]) -> Self {
        let directory = tempfile::tempdir().expect("there is room for a directory");
        let scheme = if arguments.contains(&"--cert-file") { "https" } else { "http" };
        let url = format!("{scheme}://127.0.0.1:{}", free_port());
        let peer = format!("http://127.0.0.1:{}", free_port());
        let shell = Command::new("sh")
            .args(["-c", r#""$0" "$@" >&2 & read -r _; kill -9 $!"#])
            .arg(programs().join("etcd"))
            .args(["--data-dir".as_ref(), directory.path().as_os_str()])
            .args(["--listen-client-urls", &url, "--advertise-client-urls", &url])
            .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster", &format!("default={peer}")])
            .args(["--unsafe-no-fsync", "--log-level", "error"])
            .args(["--heartbeat-interval", "10", "--election-timeout", "100"])
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("a shell starts");
        Self { url, _shell: Shell(shell), _directory: directory }
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    pub async fn client(&self) -> EtcdCluster {
        let config = EtcdConfig { servers: vec![self.url.clone()], ..EtcdConfig::default() };
        EtcdCluster::connect(&config, &Clock::system()).await.expect("etcd answers")
    }

    /// Runs etcdctl, and returns what it prints.
    pub fn etcdctl(&self, arguments: &[&str]) -> Vec<u8> {
        let etcdctl = programs().join("etcdctl");
        let output = Command::new(etcdctl).args(["--endpoints", &self.url]).args(arguments).output();
        let output = output.expect("etcdctl runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        output.stdout
    }

    /// Ends every lease, as if its time were over.
    pub fn end_leases(&self) {
        let listed = String::from_utf8_lossy(&self.etcdctl(&["lease", "list"])).into_owned();
        // The first line says how many there are.
        for lease in listed.lines().skip(1) {
            self.etcdctl(&["lease", "revoke", lease]);
        }
    }
}
