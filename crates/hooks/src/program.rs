//! Child processes: started in a process group of their own, and killed with everything they started.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as Pair;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use bytes::BytesMut;
use futures::future::{Either, select};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use setpoint::Clock;
use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;

/// How long a program that is told to end may take.
const ENDS_WITHIN: Duration = Duration::from_secs(5);
/// How often an ending program is checked, and one that still has its output open.
const CHECK_EVERY: Duration = Duration::from_millis(10);
const CHECK_OPEN_EVERY: Duration = Duration::from_millis(100);
/// How long the output of a program that has ended is read, if another process keeps it open.
const LAST_WORDS_WITHIN: Duration = Duration::from_millis(200);
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

    fn pid(&self) -> Option<Pid> {
        self.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw)
    }

    /// Returns how it ended, unless it is still running. It is not reaped: until it is dropped, the system gives its id,
    /// which is also that of the group, to no other process.
    pub(crate) fn ended(&self) -> Option<ExitStatus> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let status = waitid(WaitId::Pid(self.pid()?), options).ok().flatten()?;
        let raw = match status.exit_status() {
            Some(code) => code << 8,
            None => status.terminating_signal().unwrap_or_default(),
        };
        Some(ExitStatus::from_raw(raw))
    }

    fn signal(&self, signal: Signal) {
        if let Some(group) = self.pid() {
            _ = kill_process_group(group, signal);
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
        let Some(mut child) = self.0.take() else { return };
        if matches!(child.try_wait(), Ok(Some(_))) {
            return;
        }
        // Reaping a killed process is quick, but this thread must not block. Without a thread, it stays a zombie.
        _ = std::thread::Builder::new().spawn(move || _ = child.wait());
    }
}

/// Returns both ends of a stream, ours first.
pub(crate) fn pair() -> io::Result<(UnixStream, Stdio)> {
    let (ours, theirs) = Pair::pair()?;
    ours.set_nonblocking(true)?;
    Ok((UnixStream::from_std(ours)?, Stdio::from(OwnedFd::from(theirs))))
}

/// Returns a program as it is found from any directory. A name without a directory is looked up in `PATH`.
pub(crate) fn located(program: &Path) -> PathBuf {
    match program.components().count() {
        0 | 1 => program.to_owned(),
        _ => std::path::absolute(program).unwrap_or_else(|_| program.to_owned()),
    }
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
        let group = started.map_err(|error| format!("cannot start {shown}: {error}"))?;
        let (mut stdout, mut stderr) = (Tail::new(ours), Tail::new(errors));
        let ended = end_of(&group, &mut stdout, &mut stderr, clock);
        if let Ok(status) = tokio::time::timeout(self.limit, ended).await {
            return Ok(Finished { status, stdout: stdout.text(), stderr: stderr.text() });
        }
        group.signal(Signal::TERM);
        // It may have something to clean up, and to say.
        _ = tokio::time::timeout(ENDS_WITHIN, end_of(&group, &mut stdout, &mut stderr, clock)).await;
        let words = last_words(&stdout.text(), &stderr.text()).map(|words| format!(": {words}"));
        Err(format!("{shown} did not end within {:?}{}", self.limit, words.unwrap_or_default()))
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
        Some(last_words(&self.stdout, &self.stderr).unwrap_or(how))
    }
}

fn last_words(stdout: &str, stderr: &str) -> Option<String> {
    let words = if stderr.trim().is_empty() { stdout } else { stderr };
    Some(words.trim().to_owned()).filter(|words| !words.is_empty())
}

/// Reads the output of a program until it ends. Something that it has started in the background may keep the output
/// open, which is not waited for.
async fn end_of(group: &Group, stdout: &mut Tail, stderr: &mut Tail, clock: &Clock) -> ExitStatus {
    let reading = pin!(async { tokio::join!(stdout.read(), stderr.read()) });
    let ended = pin!(wait(group, clock, CHECK_OPEN_EVERY));
    match select(reading, ended).await {
        Either::Left(_) => wait(group, clock, CHECK_EVERY).await,
        Either::Right((status, reading)) => {
            _ = tokio::time::timeout(LAST_WORDS_WITHIN, reading).await;
            status
        }
    }
}

async fn wait(group: &Group, clock: &Clock, every: Duration) -> ExitStatus {
    loop {
        if let Some(status) = group.ended() {
            return status;
        }
        clock.sleep(every).await;
    }
}

/// A stream, and the end of what was read from it.
struct Tail {
    stream: UnixStream,
    read: BytesMut,
    is_cut: bool,
}

impl Tail {
    fn new(stream: UnixStream) -> Self {
        Self { stream, read: BytesMut::with_capacity(8 << 10), is_cut: false }
    }

    /// Reads to the end of the stream. It can be dropped and called again.
    async fn read(&mut self) {
        while self.stream.read_buf(&mut self.read).await.is_ok_and(|count| count > 0) {
            if self.read.len() > 2 * MAX_OUTPUT {
                _ = self.read.split_to(self.read.len() - MAX_OUTPUT);
                self.is_cut = true;
            }
        }
    }

    fn text(&self) -> String {
        let text = String::from_utf8_lossy(&self.read).into_owned();
        if self.is_cut { format!("…{text}") } else { text }
    }
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

    #[test]
    fn a_relative_program_is_found_from_any_directory() {
        assert_eq!(located(Path::new("helm")), Path::new("helm"));
        assert_eq!(located(Path::new("/opt/helm")), Path::new("/opt/helm"));
        let here = std::env::current_dir().expect("a directory");
        assert_eq!(located(Path::new("./bin/helm")), here.join("bin/helm"));
    }

    #[tokio::test]
    async fn what_a_program_leaves_running_is_not_waited_for() {
        let finished = shell("echo said; sleep 1000 & exit 3", LONG);
        let finished = tokio::time::timeout(Duration::from_secs(20), finished).await.expect("it ends");
        let finished = finished.expect("it runs");
        assert_eq!((finished.status.code(), finished.stdout.as_str()), (Some(3), "said\n"));
    }

    #[tokio::test]
    async fn a_program_that_is_told_to_end_can_still_say_why() {
        let script = "trap 'echo cleaned up >&2; exit 1' TERM; sleep 1000 & wait";
        let error = shell(script, Duration::from_millis(300)).await.expect_err("too long");
        assert!(error.ends_with("did not end within 300ms: cleaned up"), "{error}");
    }

    #[tokio::test]
    async fn a_program_that_has_ended_keeps_its_id_until_it_is_dropped() {
        let group = Group::start(Command::new("true").stdin(Stdio::null())).expect("it starts");
        let status = wait(&group, &Clock::system(), CHECK_EVERY).await;
        assert!(status.success() && group.ended().is_some_and(|again| again == status));
        let id = group.id().expect("it has one");
        assert!(Path::new(&format!("/proc/{id}")).exists() || !Path::new("/proc/self").exists());
    }

    #[tokio::test]
    async fn a_run_that_is_given_up_leaves_nothing_behind() {
        let scratch = crate::scratch::Scratch::new().expect("a directory");
        let path = scratch.path().to_owned();
        let script =
            format!("cd {}; n=0; while mkdir -p $n/$n && touch $n/a; do n=$((n+1)); done", path.display());
        let given_up = tokio::time::timeout(Duration::from_millis(200), shell(&script, LONG)).await;
        assert!(given_up.is_err() && path.join("0/a").exists(), "it was busy");
        drop(scratch);
        for _ in 0..100 {
            if !path.exists() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("{} is still there", path.display());
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
