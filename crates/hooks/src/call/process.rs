//! Hooks as child processes: long-lived programs that read one request per line and write one response per line.
//!
//! ```text
//!  {"id":7,"hook":"sync","path":"/sync","request":{…}}   ─► stdin
//!  {"id":7,"response":{…}}                               ◄─ stdout; or {"error":"…"} or {"retryAfterSeconds":5}
//!  anything                                              ◄─ stderr, to the log
//! ```
//!
//! ```text
//!  not started ─► running ─► ended, or killed: the answer took too long, was too long or made no sense
//!       ▲                      │
//!       └──── after a while ───┘
//! ```
//!
//! Invariants:
//! - A process handles one request at a time. Several processes of a command handle requests concurrently.
//! - A process whose call was cancelled is killed, with all its child processes: its late output would not belong to
//!   any call.
//! - Lines and the backoff between starts are bounded.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::future::BoxFuture;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::value::RawValue;
use setpoint::backoff::Backoff;
use setpoint::{Clock, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;

use super::transport::{HookReply, HookRequest, MAX_ANSWER, Transport};
use crate::program::{Group, pair};

/// A program that is a hook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// Its name: hooks with the URL `exec://NAME/…` call it.
    pub name: String,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Variables in addition to those of this process.
    pub environment: BTreeMap<String, String>,
    /// Its working directory.
    pub directory: PathBuf,
    /// The number of processes that handle calls concurrently, at least one.
    pub processes: usize,
}

/// The commands of this program. Processes start with their first call. Cheap to clone.
#[derive(Clone)]
pub struct Commands {
    clock: Clock,
    known: Arc<Mutex<BTreeMap<String, Arc<Pool>>>>,
}

/// The maximum line length: a response and its envelope.
const MAX_LINE: usize = MAX_ANSWER + 1024;
/// The maximum length of a logged stderr line, and the number of lines per second: 800 KiB per second and process.
const MAX_LOGGED: usize = 8 << 10;
const LINES_PER_SECOND: usize = 100;
/// The backoff before a process is restarted: 0.1, 0.2, 0.4 s and so on.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// How long to wait for the error output of a failed process: a tenth of a second.
const GRACE_CHECKS: usize = 10;
const GRACE_CHECK: Duration = Duration::from_millis(10);
/// The maximum number of processes of a hook.
const MAX_PROCESSES: usize = 64;

impl Commands {
    /// No commands.
    pub fn new(clock: &Clock) -> Self {
        Self { clock: clock.clone(), known: Arc::default() }
    }

    /// Replaces the commands. Ends the processes of changed and removed commands.
    pub fn set(&self, commands: impl IntoIterator<Item = Command>) {
        let mut known = self.known.lock();
        let mut next = BTreeMap::new();
        for command in commands {
            let same = known.remove(&command.name).filter(|pool| pool.command == command);
            let pool = same.unwrap_or_else(|| Arc::new(Pool::new(command.clone(), &self.clock)));
            next.insert(command.name, pool);
        }
        let gone = std::mem::replace(&mut *known, next);
        drop(known);
        gone.values().for_each(|pool| pool.restart());
    }

    /// Ends all idle processes immediately, and the others after their call. The next calls start new ones.
    pub fn restart(&self) {
        self.known.lock().values().for_each(|pool| pool.restart());
    }

    pub(super) fn open(&self, name: &str, path: &str) -> Result<Arc<dyn Transport>, String> {
        if !self.known.lock().contains_key(name) {
            return Err(format!("url exec://{name}: there is no command {name:?} in the operator's file"));
        }
        Ok(Arc::new(Exec { commands: self.clone(), name: name.to_owned(), path: path.to_owned() }))
    }
}

/// Calls one hook of a command.
struct Exec {
    commands: Commands,
    name: String,
    path: String,
}

impl Transport for Exec {
    fn send(&self, request: HookRequest) -> BoxFuture<'static, Result<HookReply, String>> {
        let pool = self.commands.known.lock().get(&self.name).cloned();
        let (name, path) = (self.name.clone(), self.path.clone());
        Box::pin(async move {
            let pool = pool.ok_or_else(|| format!("there is no command {name:?} any more"))?;
            pool.call(&request, &path).await
        })
    }
}

/// The processes of a command.
struct Pool {
    command: Command,
    clock: Clock,
    /// Idle processes, and free slots for processes.
    idle: Mutex<Vec<Slot>>,
    places: Semaphore,
    /// Processes of an earlier generation end.
    generation: AtomicU64,
    calls: AtomicU64,
}

/// A slot for a process.
#[derive(Default)]
struct Slot {
    process: Option<Process>,
    generation: u64,
    /// Since a call has succeeded.
    failures: u32,
    not_before: Option<Instant>,
}

impl Pool {
    fn new(command: Command, clock: &Clock) -> Self {
        let count = command.processes.clamp(1, MAX_PROCESSES);
        let idle = Mutex::new((0..count).map(|_| Slot::default()).collect());
        let (places, generation, calls) = (Semaphore::new(count), AtomicU64::new(0), AtomicU64::new(0));
        Self { command, clock: clock.clone(), idle, places, generation, calls }
    }

    fn restart(&self) {
        self.generation.fetch_add(1, Ordering::AcqRel);
        // Busy processes are returned later, and then end because of their generation.
        self.idle.lock().iter_mut().for_each(|slot| *slot = Slot::default());
    }

    async fn call(&self, request: &HookRequest, path: &str) -> Result<HookReply, String> {
        let _place = self.places.acquire().await;
        let mut lease = Lease::take(self)?;
        let id = self.calls.fetch_add(1, Ordering::Relaxed);
        let reply = lease.exchange(id, request, path).await;
        match &reply {
            Ok(_) => lease.keep(),
            Err(why) => tracing::warn!(command = self.command.name, error = why, "a hook's process failed"),
        }
        reply
    }
}

impl Slot {
    /// Orders slots: first those with a running process, then those that may start one soonest.
    fn rank(&self, now: Instant) -> (bool, Duration) {
        let pause = self.not_before.map_or(Duration::ZERO, |time| time.saturating_duration_since(now));
        (self.process.is_none(), pause)
    }
}

/// A slot in use. Unless it is kept, its process is killed on drop.
struct Lease<'a> {
    pool: &'a Pool,
    slot: Slot,
    keep: bool,
}

impl<'a> Lease<'a> {
    fn take(pool: &'a Pool) -> Result<Self, String> {
        let mut idle = pool.idle.lock();
        let now = pool.clock.instant();
        let best =
            (0..idle.len()).min_by_key(|nth| idle[*nth].rank(now)).ok_or("there is no free process")?;
        let slot = idle.swap_remove(best);
        drop(idle);
        let mut lease = Self { pool, slot, keep: false };
        let generation = pool.generation.load(Ordering::Acquire);
        if lease.slot.generation != generation {
            lease.slot = Slot { generation, ..Slot::default() };
        }
        Ok(lease)
    }

    /// Calls the process. If it has responded before and has exited since, it is replaced, once.
    async fn exchange(&mut self, id: u64, request: &HookRequest, path: &str) -> Result<HookReply, String> {
        let pool = self.pool;
        loop {
            let process = self.running()?;
            let why = match process.exchange(id, request, path).await {
                Ok(reply) => return Ok(reply),
                Err(why) => why,
            };
            process.wait_for_end(&pool.clock).await;
            if !process.has_answered || !process.has_ended() {
                return Err(process.explain(&why));
            }
            self.slot.process = None;
        }
    }

    /// Returns the process, starting it if necessary.
    fn running(&mut self) -> Result<&mut Process, String> {
        let now = self.pool.clock.instant();
        if self.slot.process.as_mut().is_none_or(Process::has_ended) {
            self.slot.process = None;
            if let Some(not_before) = self.slot.not_before.filter(|time| now < *time) {
                self.keep = true;
                let left = not_before.saturating_duration_since(now);
                let times = self.slot.failures;
                return Err(format!(
                    "the process has failed {times} times, and is started again in {left:.1?}"
                ));
            }
            self.slot.process = Some(Process::start(&self.pool.command, &self.pool.clock)?);
        }
        self.slot.process.as_mut().ok_or_else(|| "the process is not running".to_owned())
    }

    fn keep(&mut self) {
        (self.keep, self.slot.failures) = (true, 0);
    }
}

impl Drop for Lease<'_> {
    fn drop(&mut self) {
        let mut slot = std::mem::take(&mut self.slot);
        if !self.keep {
            slot.process = None;
            slot.failures = slot.failures.saturating_add(1);
            let pause = Backoff::doubling(FIRST_PAUSE, LONGEST_PAUSE).delay(slot.failures - 1);
            slot.not_before = Some(self.pool.clock.instant() + pause);
        }
        self.pool.idle.lock().push(slot);
    }
}

/// A running process. Dropping it kills it.
struct Process {
    child: Group,
    stdin: UnixStream,
    stdout: UnixStream,
    read: BytesMut,
    log: AbortHandle,
    /// The last line of stderr.
    last_line: Arc<Mutex<String>>,
    has_answered: bool,
}

impl Process {
    fn start(command: &Command, clock: &Clock) -> Result<Self, String> {
        let (program, arguments) = command.command.split_first().ok_or("command: expected a program")?;
        let started = || -> io::Result<(Group, [UnixStream; 3])> {
            let [(stdin, of_stdin), (stdout, of_stdout), (stderr, of_stderr)] = [pair()?, pair()?, pair()?];
            let mut child = std::process::Command::new(program);
            child.args(arguments).current_dir(&command.directory).envs(&command.environment);
            child.stdin(of_stdin).stdout(of_stdout).stderr(of_stderr);
            Ok((Group::start(&mut child)?, [stdin, stdout, stderr]))
        };
        let (child, [stdin, stdout, stderr]) =
            started().map_err(|error| format!("cannot start {program}: {error}"))?;
        tracing::info!(command = command.name, pid = child.id(), "started a hook's process");
        let last_line = Arc::<Mutex<String>>::default();
        let lines = Lines::new(&command.name, clock, &last_line);
        let log = tokio::spawn(log(stderr, lines)).abort_handle();
        let (read, has_answered) = (BytesMut::new(), false);
        Ok(Self { child, stdin, stdout, read, log, last_line, has_answered })
    }

    fn has_ended(&mut self) -> bool {
        self.child.ended().is_some()
    }

    /// Checks that the process has written nothing since its last response: it would be mistaken for the next one.
    fn check_silent(&mut self) -> Result<(), String> {
        match self.stdout.try_read_buf(&mut self.read) {
            Ok(0) => return Err("it closed its output".to_owned()),
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => {
                return Err(format!("cannot read from it: {error}"));
            }
            _ => {}
        }
        match self.read.is_empty() {
            true => Ok(()),
            false => Err(format!("it wrote without being asked: {}", excerpt(&self.read))),
        }
    }

    async fn exchange(&mut self, id: u64, request: &HookRequest, path: &str) -> Result<HookReply, String> {
        self.check_silent()?;
        let head = serde_json::json!({"id": id, "hook": request.hook, "path": path}).to_string();
        let (head, _) = head.rsplit_once('}').unwrap_or((&head, ""));
        let mut line = Vec::with_capacity(head.len() + request.body.len() + 16);
        line.extend_from_slice(head.as_bytes());
        line.extend_from_slice(b",\"request\":");
        line.extend_from_slice(&request.body);
        line.extend_from_slice(b"}\n");
        let line = {
            let Self { stdin, stdout, read, .. } = self;
            // A process may start to respond before it has read everything.
            let writing = async {
                stdin.write_all(&line).await.map_err(|error| format!("cannot write to it: {error}"))
            };
            futures::future::try_join(writing, read_line(stdout, read)).await?.1
        };
        let reply = understand(id, &line)?;
        self.has_answered = true;
        Ok(reply)
    }

    /// Waits briefly for a process that is exiting, and for its stderr.
    async fn wait_for_end(&mut self, clock: &Clock) {
        for _ in 0..GRACE_CHECKS {
            if self.has_ended() && self.log.is_finished() {
                return;
            }
            clock.sleep(GRACE_CHECK).await;
        }
    }

    /// Adds the exit status and the last line of stderr to an error.
    fn explain(&mut self, why: &str) -> String {
        let ended = self.child.ended().map(|status| match (status.code(), status.signal()) {
            (Some(code), _) => format!(" (exit code {code})"),
            (None, signal) => format!(" (signal {})", signal.unwrap_or_default()),
        });
        let words = self.last_line.lock().clone();
        let words = if words.is_empty() { words } else { format!("; stderr: {words}") };
        format!("{why}{}{words}", ended.unwrap_or_default())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.log.abort();
    }
}

/// Reads a line. Data after it stays in `read`.
async fn read_line(stream: &mut UnixStream, read: &mut BytesMut) -> Result<Bytes, String> {
    let mut searched = 0;
    loop {
        if let Some(at) = read[searched..].iter().position(|byte| *byte == b'\n') {
            let line = read.split_to(searched + at + 1);
            return Ok(line.freeze());
        }
        searched = read.len();
        if searched > MAX_LINE {
            return Err(format!("the answer is longer than {MAX_ANSWER} bytes"));
        }
        let count = stream.read_buf(read).await.map_err(|error| format!("cannot read from it: {error}"))?;
        if count == 0 {
            return Err("the process ended without an answer".to_owned());
        }
    }
}

/// A response line.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Line<'a> {
    id: Option<u64>,
    #[serde(borrow)]
    response: Option<&'a RawValue>,
    error: Option<String>,
    retry_after_seconds: Option<f64>,
}

fn understand(id: u64, line: &Bytes) -> Result<HookReply, String> {
    let parsed: Line<'_> = serde_json::from_slice(line)
        .map_err(|error| format!("it wrote a line that is no answer: {error}: {}", excerpt(line)))?;
    if let Some(other) = parsed.id.filter(|other| *other != id) {
        return Err(format!("it answered request {other} instead of {id}"));
    }
    match (parsed.response, parsed.error, parsed.retry_after_seconds) {
        (_, Some(error), _) => Ok(HookReply { status: 500, ..HookReply::ok(error) }),
        (_, None, Some(seconds)) => {
            let retry_after = Some(format!("{}", seconds.max(0.0).ceil() as u64));
            Ok(HookReply { status: 429, retry_after, ..HookReply::default() })
        }
        (Some(response), None, None) => Ok(HookReply::ok(response.get().to_owned())),
        (None, None, None) => {
            Err(format!("expected response, error or retryAfterSeconds, found {}", excerpt(line)))
        }
    }
}

fn excerpt(line: &[u8]) -> String {
    String::from_utf8_lossy(&line[..line.len().min(200)]).trim().to_owned()
}

/// Logs the stderr of a process.
async fn log(mut stderr: UnixStream, mut lines: Lines) {
    let mut read = BytesMut::with_capacity(MAX_LOGGED);
    loop {
        let is_open = stderr.read_buf(&mut read).await.is_ok_and(|count| count > 0);
        while let Some(at) = read.iter().position(|byte| *byte == b'\n') {
            lines.log(&read.split_to(at + 1));
        }
        if read.len() >= MAX_LOGGED || !is_open {
            lines.log(&read.split());
        }
        if !is_open {
            return;
        }
    }
}

/// The stderr lines of a process, rate limited so that they cannot flood the log.
struct Lines {
    command: String,
    clock: Clock,
    last_line: Arc<Mutex<String>>,
    /// The start of the current second, and the lines since then.
    second: Instant,
    count: usize,
}

impl Lines {
    fn new(command: &str, clock: &Clock, last_line: &Arc<Mutex<String>>) -> Self {
        let (command, last_line) = (command.to_owned(), last_line.clone());
        Self { command, clock: clock.clone(), last_line, second: clock.instant(), count: 0 }
    }

    fn log(&mut self, line: &[u8]) {
        let text = String::from_utf8_lossy(line).trim_end().to_owned();
        if text.is_empty() {
            return;
        }
        if self.may_log() {
            tracing::info!(command = self.command, "{text}");
        }
        *self.last_line.lock() = text.chars().take(200).collect();
    }

    /// Counts a line. Returns whether there is room for it in the log.
    fn may_log(&mut self) -> bool {
        let now = self.clock.instant();
        if now.saturating_duration_since(self.second) >= Duration::from_secs(1) {
            let dropped = self.count.saturating_sub(LINES_PER_SECOND);
            if dropped > 0 {
                tracing::warn!(command = self.command, dropped, "a hook writes too much to stderr");
            }
            (self.second, self.count) = (now, 0);
        }
        self.count += 1;
        self.count <= LINES_PER_SECOND
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::HookTarget;
    use crate::Transports;
    use setpoint_webhook::Tcp;

    fn shell(script: &str, processes: usize) -> Arc<dyn Transport> {
        let clock = Clock::system();
        let commands = Commands::new(&clock);
        commands.set([Command {
            name: "hook".into(),
            command: vec!["sh".into(), "-c".into(), script.into()],
            environment: BTreeMap::new(),
            directory: ".".into(),
            processes,
        }]);
        let target = HookTarget { url: "exec://hook/sync".into(), ..HookTarget::default() };
        crate::Network::new(Arc::new(Tcp), commands).open(&target).expect("a command")
    }

    async fn call(hook: &Arc<dyn Transport>) -> Result<String, String> {
        call_with(hook, r#"{"a":1}"#).await
    }

    async fn call_with(hook: &Arc<dyn Transport>, body: &str) -> Result<String, String> {
        let request = HookRequest { hook: "sync", body: body.to_owned().into(), etag: None };
        let reply = hook.send(request).await?;
        Ok(format!("{} {}", reply.status, String::from_utf8_lossy(&reply.body)))
    }

    #[tokio::test]
    async fn one_process_answers_call_after_call() {
        let hook =
            shell(r#"n=0; while read -r line; do n=$((n+1)); echo "{\"response\":{\"n\":$n}}"; done"#, 1);
        assert_eq!(call(&hook).await, Ok(r#"200 {"n":1}"#.into()));
        assert_eq!(call(&hook).await, Ok(r#"200 {"n":2}"#.into()));
    }

    #[tokio::test]
    async fn a_request_has_an_id_a_hook_and_a_path() {
        let hook = shell(r#"read -r line; printf '{"id":0,"response":%s}\n' "$line""#, 1);
        let expected = r#"200 {"hook":"sync","id":0,"path":"/sync","request":{"a":1}}"#;
        assert_eq!(call(&hook).await, Ok(expected.into()));
    }

    #[tokio::test]
    async fn errors_and_pauses_are_answers() {
        let hook = shell(r#"while read -r l; do echo '{"error":"no"}'; done"#, 1);
        assert_eq!(call(&hook).await, Ok("500 no".into()));
        let hook = shell(r#"while read -r l; do echo '{"retryAfterSeconds":1.5}'; done"#, 1);
        assert_eq!(call(&hook).await, Ok("429 ".into()));
    }

    #[tokio::test]
    async fn an_exited_process_is_restarted_with_backoff() {
        let hook = shell("echo broken >&2; exit 3", 1);
        let error = call(&hook).await.expect_err("it ends");
        assert!(error.contains("ended without an answer") || error.contains("cannot write"), "{error}");
        let error = call(&hook).await.expect_err("it is not started yet");
        assert!(error.contains("has failed 1 times"), "{error}");
    }

    #[tokio::test]
    async fn a_process_that_ends_after_its_answer_is_replaced_at_once() {
        let hook = shell(r#"read -r line; echo "{\"response\":$$}""#, 1);
        let first = call(&hook).await.expect("an answer");
        let second = call(&hook).await.expect("another process answers");
        assert_ne!(first, second);
    }

    #[tokio::test]
    async fn a_crash_of_one_process_leaves_the_others_serving() {
        let hook = shell(
            r#"while read -r l; do case "$l" in *crash*) exit 1;; esac; echo '{"response":1}'; done"#,
            2,
        );
        assert!(call_with(&hook, r#""crash""#).await.is_err());
        for _ in 0..3 {
            assert_eq!(call(&hook).await, Ok("200 1".into()), "the second process is free");
        }
    }

    #[tokio::test]
    async fn a_second_answer_is_not_taken_for_that_to_the_next_call() {
        let mark = std::env::temp_dir().join(format!("setpoint-hook-{}", std::process::id()));
        let twice = r#"echo '{"response":1}'; sleep 0.05; echo '{"response":2}'"#;
        let hook = shell(&format!("while read -r l; do {twice}; touch {}; done", mark.display()), 1);
        assert_eq!(call(&hook).await, Ok("200 1".into()));
        while !mark.exists() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        std::fs::remove_file(mark).expect("the mark");
        assert!(call(&hook).await.expect_err("it wrote twice").contains("without being asked"));
    }

    #[tokio::test(start_paused = true)]
    async fn endless_lines_on_stderr_do_not_flood_the_log() {
        let mut lines = Lines::new("hook", &Clock::system(), &Arc::default());
        assert_eq!((0..10_000).filter(|_| lines.may_log()).count(), LINES_PER_SECOND);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(lines.may_log());
    }

    #[tokio::test]
    async fn invalid_and_endless_lines_are_rejected() {
        let hook = shell("read -r l; echo nonsense", 1);
        assert!(call(&hook).await.expect_err("no JSON").contains("no answer"));
        let hook = shell(r#"read -r l; echo '{"id":9,"response":{}}'"#, 1);
        assert!(call(&hook).await.expect_err("another id").contains("request 9 instead of 0"));
        let hook = shell("read -r l; head -c 12000000 /dev/zero | tr '\\0' x", 1);
        assert!(call(&hook).await.expect_err("too long").contains("longer than"));
        let hook = shell("/nonexistent/program", 1);
        assert!(call(&hook).await.is_err());
    }

    #[tokio::test]
    async fn a_call_that_is_given_up_kills_its_process() {
        let hook = shell("while read -r l; do sleep 1000; done", 1);
        let given_up = futures::future::select(Box::pin(call(&hook)), Box::pin(tokio::task::yield_now()));
        drop(given_up.await);
        let error = call(&hook).await.expect_err("it was killed");
        assert!(error.contains("started again in"), "{error}");
    }

    #[test]
    fn a_command_that_is_not_known_is_an_error() {
        let network = crate::Network::new(Arc::new(Tcp), Commands::new(&Clock::system()));
        let open = |url: &str| network.open(&HookTarget { url: url.into(), ..HookTarget::default() });
        let error = |url: &str| open(url).err().unwrap_or_default();
        assert!(
            error("exec://nobody/sync").contains("no command \"nobody\""),
            "{}",
            error("exec://nobody/sync")
        );
        assert!(error("ftp://host/").contains("expected http://"));
        assert!(error("nonsense").contains("expected http://"));
    }
}
