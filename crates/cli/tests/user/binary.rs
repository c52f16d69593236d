//! The real binary, and a real kubectl pointed at it.

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

/// What a command printed, and whether it succeeded.
pub(crate) struct Answer {
    pub(crate) ok: bool,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// How often, and how many times, to look whether something has come true: a minute in all.
const LOOK_EVERY: Duration = Duration::from_millis(100);
const LOOKS: usize = 600;

impl Up {
    /// Starts on a free port, in memory, and waits until it serves.
    pub(crate) fn start(arguments: &[&str]) -> Self {
        Self::start_with(&[&["--in-memory"], arguments].concat())
    }

    /// Starts with just these arguments.
    pub(crate) fn start_with(arguments: &[&str]) -> Self {
        Self::start_command(|kubeconfig| setpoint_up(kubeconfig, arguments))
    }

    /// Starts with just these arguments, and waits until it is alive although it may not be ready.
    pub(crate) fn start_unready(arguments: &[&str]) -> Self {
        Self::start_until("/livez", |kubeconfig| setpoint_up(kubeconfig, arguments))
    }

    /// Starts with a command that writes the kubeconfig to the path it is given.
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

    /// `setpoint controller-manager` against it, killed when dropped.
    pub(crate) fn controller_manager(&self) -> ControllerManager {
        let mut command = Command::new(env!("CARGO_BIN_EXE_setpoint"));
        command.arg("controller-manager").arg("--kubeconfig").arg(&self.kubeconfig);
        ControllerManager(command.stderr(Stdio::null()).spawn().expect("the binary starts"))
    }

    /// Runs kubectl and expects it to succeed; returns what it printed.
    pub(crate) fn kubectl(&self, arguments: &[&str]) -> String {
        self.kubectl_with(arguments, "")
    }

    /// The same with a manifest on its standard input.
    pub(crate) fn kubectl_with(&self, arguments: &[&str], input: &str) -> String {
        let answer = self.try_kubectl(arguments, input);
        assert!(answer.ok, "kubectl {arguments:?} failed:\n{}{}", answer.out, answer.err);
        answer.out
    }

    /// Runs kubectl, whatever comes of it.
    pub(crate) fn try_kubectl(&self, arguments: &[&str], input: &str) -> Answer {
        let mut command = Command::new(kubectl());
        command.arg("--kubeconfig").arg(&self.kubeconfig).args(arguments).env("HOME", self._directory.path());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("kubectl starts");
        // kubectl may end without reading its input.
        _ = child.stdin.take().expect("piped").write_all(input.as_bytes());
        child.wait_with_output().expect("kubectl ends").into()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Where clients find it.
    pub(crate) fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Runs a program that finds this cluster as any client would; what it printed, if it succeeded.
    pub(crate) fn run(&self, program: impl AsRef<OsStr>, arguments: &[&str]) -> String {
        let program = program.as_ref();
        let mut command = Command::new(program);
        command.args(arguments).env("KUBECONFIG", &self.kubeconfig).env("HOME", self._directory.path());
        let answer = Answer::from(command.output().expect("the program starts"));
        assert!(answer.ok, "{program:?} {arguments:?} failed:\n{}{}", answer.out, answer.err);
        answer.out
    }

    /// Kills it at once, in the middle of whatever it does.
    pub(crate) fn kill(&mut self) {
        self.process.kill().expect("it runs");
        self.process.wait().expect("it ends");
    }

    /// Asks it to stop, as an init system would, and waits; true if it ended well.
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

impl Drop for ControllerManager {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

impl From<Output> for Answer {
    fn from(output: Output) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Self { ok: output.status.success(), out: text(&output.stdout), err: text(&output.stderr) }
    }
}

/// `setpoint up` on a free port.
pub(crate) fn setpoint_up(kubeconfig: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_setpoint"));
    command.args(["up", "--port", "0", "--kubeconfig"]).arg(kubeconfig).args(arguments);
    command
}

/// Waits until `holds`, and fails with `claim` if it never does.
pub(crate) fn eventually(claim: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..LOOKS {
        if holds() {
            return;
        }
        thread::sleep(LOOK_EVERY);
    }
    panic!("it never came true that {claim}");
}

/// A real kubectl 1.34: named by `KUBECTL`, or fetched once.
pub(crate) fn kubectl() -> &'static Path {
    static KUBECTL: OnceLock<PathBuf> = OnceLock::new();
    KUBECTL.get_or_init(|| match std::env::var_os("KUBECTL") {
        Some(path) => path.into(),
        None => installed("kubectl", &[]),
    })
}

/// What a set-up script of this project says it has installed, one script at a time.
pub(crate) fn installed(script: &str, arguments: &[&str]) -> PathBuf {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _turn = ONE_AT_A_TIME.lock();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts").join(script);
    let output = Command::new(&script).args(arguments).output().expect("the set-up script runs");
    assert!(output.status.success(), "{}: {}", script.display(), String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().into()
}
