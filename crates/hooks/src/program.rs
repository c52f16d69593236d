//! Child processes: started in a process group of their own, and killed with everything they started.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as Pair;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use bytes::BytesMut;
use rustix::process::{Pid, Signal, kill_process_group};
use setpoint::Clock;
use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;

/// How long a program that is told to end may take.
const ENDS_WITHIN: Duration = Duration::from_secs(5);
/// How often an ending program is checked.
const CHECK_EVERY: Duration = Duration::from_millis(10);
/// The most that is kept of each output: the end of it.
const MAX_OUTPUT: usize = 64 << 10;

/// A child process. Dropping it kills its process group.
pub(crate) struct Group(Option<Child>);

impl Group {
    /// Starts a program in a process group of its own.
    pub(crate) fn start(command: &mut Command) -> io::Result<Self> {
        Ok(Self(Some(command.process_group(0).spawn()?)))
    }

    pub(crate) fn id(&self) -> Option<u32> {
        self.0.as_ref().map(Child::id)
    }

    /// Returns how it ended, unless it is still running.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.0.as_mut().and_then(|child| child.try_wait().ok().flatten())
    }

    fn signal(&self, signal: Signal) {
        let group = self.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        if let Some(group) = group {
            _ = kill_process_group(group, signal);
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
        let Some(mut child) = self.0.take() else { return };
        // Reaping a killed process is quick, but this thread must not block.
        std::thread::spawn(move || _ = child.wait());
    }
}

/// Returns both ends of a stream, ours first.
pub(crate) fn pair() -> io::Result<(UnixStream, Stdio)> {
    let (ours, theirs) = Pair::pair()?;
    ours.set_nonblocking(true)?;
    Ok((UnixStream::from_std(ours)?, Stdio::from(OwnedFd::from(theirs))))
}

/// A program that runs to its end.
pub(crate) struct Run<'a> {
    pub(crate) program: &'a Path,
    pub(crate) arguments: &'a [String],
    /// All of its environment.
    pub(crate) environment: BTreeMap<String, String>,
    pub(crate) directory: &'a Path,
    /// How long it may take.
    pub(crate) limit: Duration,
}

/// How a program ended, and the end of what it wrote.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Run<'_> {
    /// Runs it. Dropping the future kills it.
    pub(crate) async fn finish(self, clock: &Clock) -> Result<Finished, String> {
        let shown = self.program.display();
        let (ours, of_stdout) = pair().map_err(|error| error.to_string())?;
        let (errors, of_stderr) = pair().map_err(|error| error.to_string())?;
        let mut command = Command::new(self.program);
        command.args(self.arguments).env_clear().envs(&self.environment).current_dir(self.directory);
        command.stdin(Stdio::null()).stdout(of_stdout).stderr(of_stderr);
        let started = Group::start(&mut command);
        // Our copies of its ends of the streams would keep them open.
        drop(command);
        let mut group = started.map_err(|error| format!("cannot start {shown}: {error}"))?;
        let reading = async { tokio::join!(tail(ours), tail(errors)) };
        let ended = async {
            let (stdout, stderr) = reading.await;
            (wait(&mut group, clock).await, stdout, stderr)
        };
        match tokio::time::timeout(self.limit, ended).await {
            Ok((status, stdout, stderr)) => Ok(Finished { status, stdout, stderr }),
            Err(_) => {
                group.signal(Signal::TERM);
                _ = tokio::time::timeout(ENDS_WITHIN, wait(&mut group, clock)).await;
                Err(format!("{shown} did not end within {:?}", self.limit))
            }
        }
    }
}

impl Finished {
    /// Returns why it failed, or `None` if it succeeded.
    pub(crate) fn failure(&self) -> Option<String> {
        let how = match (self.status.code(), self.status.signal()) {
            (Some(0), _) => return None,
            (Some(code), _) => format!("exit code {code}"),
            (None, signal) => format!("signal {}", signal.unwrap_or_default()),
        };
        let output = if self.stderr.trim().is_empty() { &self.stdout } else { &self.stderr };
        let words = output.trim();
        Some(if words.is_empty() { how } else { words.to_owned() })
    }
}

async fn wait(group: &mut Group, clock: &Clock) -> ExitStatus {
    loop {
        if let Some(status) = group.ended() {
            return status;
        }
        clock.sleep(CHECK_EVERY).await;
    }
}

/// Reads a stream to its end. Returns the end of it.
async fn tail(mut stream: UnixStream) -> String {
    let mut read = BytesMut::with_capacity(8 << 10);
    let mut is_cut = false;
    while stream.read_buf(&mut read).await.is_ok_and(|count| count > 0) {
        if read.len() > 2 * MAX_OUTPUT {
            _ = read.split_to(read.len() - MAX_OUTPUT);
            is_cut = true;
        }
    }
    let text = String::from_utf8_lossy(&read).into_owned();
    if is_cut { format!("…{text}") } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn shell(script: &str, limit: Duration) -> Result<Finished, String> {
        let arguments = ["-c".to_owned(), script.to_owned()];
        let environment = [("PATH".to_owned(), std::env::var("PATH").unwrap_or_default())].into();
        let run = Run {
            program: Path::new("sh"),
            arguments: &arguments,
            environment,
            directory: Path::new("."),
            limit,
        };
        run.finish(&Clock::system()).await
    }

    const LONG: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn a_program_ends_with_a_status_and_its_words() {
        let finished = shell("echo out; echo bad >&2; exit 3", LONG).await.expect("it runs");
        assert_eq!((finished.stdout.as_str(), finished.failure()), ("out\n", Some("bad".into())));
        assert_eq!(shell("true", LONG).await.expect("it runs").failure(), None);
        let refused = Run {
            program: Path::new("/nonexistent"),
            arguments: &[],
            environment: BTreeMap::new(),
            directory: Path::new("."),
            limit: LONG,
        };
        assert!(
            refused.finish(&Clock::system()).await.expect_err("no such program").contains("cannot start")
        );
    }

    #[tokio::test]
    async fn only_the_end_of_a_long_output_is_kept() {
        let finished =
            shell("head -c 3000000 /dev/zero | tr '\\0' x; echo end", LONG).await.expect("it runs");
        assert!(finished.stdout.len() < 3 * MAX_OUTPUT && finished.stdout.ends_with("xend\n"));
    }

    #[tokio::test]
    async fn a_program_that_takes_too_long_is_ended_with_what_it_started() {
        let mark = tempfile::tempdir().expect("a directory");
        let file = mark.path().join("alive");
        let script = format!("(trap '' TERM; sleep 0.5; touch {}) & sleep 1000", file.display());
        let error = shell(&script, Duration::from_millis(100)).await.expect_err("too long");
        assert!(error.contains("did not end within"), "{error}");
        tokio::time::sleep(Duration::from_millis(900)).await;
        assert!(!file.exists(), "its child was killed too");
    }
}
