//! The real binary, and a real kubectl that uses it.

use std::ffi::OsStr;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, OnceLock};
use std::thread;
use std::time::Duration;

/// A running `setpoint up`, killed when dropped.
pub(crate) struct Up {
    process: Child,
    kubeconfig: PathBuf,
    _directory: tempfile::TempDir,
}

/// A running `setpoint controller-manager`.
pub(crate) struct ControllerManager(Child);

/// A program that runs until the test is over.
pub(crate) struct Running(pub(crate) Child);

/// The output of a command, and whether it succeeded.
pub(crate) struct Answer {
    pub(crate) ok: bool,
    /// The exit code, unless a signal ended it.
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// How often, and how many times, to poll for a condition: a minute in total.
const LOOK_EVERY: Duration = Duration::from_millis(100);
const LOOKS: usize = 600;

impl Up {
    /// Starts on a free port, in memory, and waits until it is ready.
    pub(crate) fn start(arguments: &[&str]) -> Self {
        Self::start_with(&[&["--in-memory"], arguments].concat())
    }

    /// Starts with exactly these arguments.
    pub(crate) fn start_with(arguments: &[&str]) -> Self {
        Self::start_command(|kubeconfig| setpoint_up(kubeconfig, arguments))
    }

    /// Starts with exactly these arguments, and waits until it is live, even if it is not ready.
    pub(crate) fn start_unready(arguments: &[&str]) -> Self {
        Self::start_until("/livez", |kubeconfig| setpoint_up(kubeconfig, arguments))
    }

    /// Starts a command that writes the kubeconfig to the given path.
    pub(crate) fn start_command(command: impl FnOnce(&Path) -> Command) -> Self {
        Self::start_until("/readyz", command)
    }

    fn start_until(path: &str, command: impl FnOnce(&Path) -> Command) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let kubeconfig = directory.path().join("kubeconfig");
        let process = command(&kubeconfig).stderr(Stdio::inherit()).spawn().expect("the binary starts");
        let up = Self { process, kubeconfig, _directory: directory };
        eventually("the API server answers", || up.try_kubectl(&["get", "--raw", path], "").ok);
        up
    }

    /// Starts `setpoint controller-manager` against it, killed when dropped.
    pub(crate) fn controller_manager(&self) -> ControllerManager {
        let mut command = Command::new(env!("CARGO_BIN_EXE_setpoint"));
        command.arg("controller-manager").arg("--kubeconfig").arg(&self.kubeconfig);
        ControllerManager(command.stderr(Stdio::null()).spawn().expect("the binary starts"))
    }

    /// Runs kubectl and expects it to succeed. Returns its output.
    pub(crate) fn kubectl(&self, arguments: &[&str]) -> String {
        self.kubectl_with(arguments, "")
    }

    /// Like [`kubectl`](Self::kubectl), with a manifest on standard input.
    pub(crate) fn kubectl_with(&self, arguments: &[&str], input: &str) -> String {
        let answer = self.try_kubectl(arguments, input);
        assert!(answer.ok, "kubectl {arguments:?} failed:\n{}{}", answer.out, answer.err);
        answer.out
    }

    /// Runs kubectl, whether or not it succeeds.
    pub(crate) fn try_kubectl(&self, arguments: &[&str], input: &str) -> Answer {
        let mut command = Command::new(kubectl());
        command.arg("--kubeconfig").arg(&self.kubeconfig).args(arguments).env("HOME", self._directory.path());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("kubectl starts");
        // kubectl may exit without reading its input.
        _ = child.stdin.take().expect("piped").write_all(input.as_bytes());
        child.wait_with_output().expect("kubectl ends").into()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Returns the path of the kubeconfig.
    pub(crate) fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Runs a program that uses this cluster like any client, and expects it to succeed. Returns its output.
    pub(crate) fn run(&self, program: impl AsRef<OsStr>, arguments: &[&str]) -> String {
        let program = program.as_ref();
        let mut command = Command::new(program);
        command.args(arguments).env("KUBECONFIG", &self.kubeconfig).env("HOME", self._directory.path());
        // Nothing is written beside the programs.
        command.env("PYTHONDONTWRITEBYTECODE", "1");
        let answer = Answer::from(command.output().expect("the program starts"));
        assert!(answer.ok, "{program:?} {arguments:?} failed:\n{}{}", answer.out, answer.err);
        answer.out
    }

    /// Kills it immediately.
    pub(crate) fn kill(&mut self) {
        self.process.kill().expect("it runs");
        self.process.wait().expect("it ends");
    }

    /// Sends SIGTERM, as an init system would, and waits. Returns true if it exited successfully.
    pub(crate) fn stop(mut self) -> bool {
        let pid = self.process.id().to_string();
        Command::new("kill").args(["-TERM", &pid]).status().expect("kill runs");
        self.process.wait().expect("it ends").success()
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        _ = self.process.kill();
        _ = self.process.wait();
    }
}

impl Running {
    pub(crate) fn is_running(&mut self) -> bool {
        self.0.try_wait().is_ok_and(|ended| ended.is_none())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

impl Drop for ControllerManager {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

impl From<Output> for Answer {
    fn from(output: Output) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Self {
            ok: output.status.success(),
            code: output.status.code(),
            out: text(&output.stdout),
            err: text(&output.stderr),
        }
    }
}

/// `setpoint up` on a free port.
pub(crate) fn setpoint_up(kubeconfig: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_setpoint"));
    command.args(["up", "--port", "0", "--kubeconfig"]).arg(kubeconfig).args(arguments);
    command
}

/// Waits until `holds`. Fails with `claim` if that does not happen.
pub(crate) fn eventually(claim: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..LOOKS {
        if holds() {
            return;
        }
        thread::sleep(LOOK_EVERY);
    }
    panic!("timed out waiting until {claim}");
}

/// Returns a real kubectl 1.34: from `KUBECTL`, or downloaded once.
pub(crate) fn kubectl() -> &'static Path {
    static KUBECTL: OnceLock<PathBuf> = OnceLock::new();
    KUBECTL.get_or_init(|| match std::env::var_os("KUBECTL") {
        Some(path) => path.into(),
        None => installed("kubectl", &[]),
    })
}

/// Runs a setup script of this project and returns the path it installed to. One script runs at a time.
pub(crate) fn installed(script: &str, arguments: &[&str]) -> PathBuf {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _turn = ONE_AT_A_TIME.lock();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts").join(script);
    let output = Command::new(&script).args(arguments).output().expect("the set-up script runs");
    assert!(output.status.success(), "{}: {}", script.display(), String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().into()
}
