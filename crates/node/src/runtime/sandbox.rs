//! The containers of one pod, in memory: their files, environments, programs and logs.
//!
//! Everything here can be recomputed from the pod, except for the effects of `exec` and `attach`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::FutureExt;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Container;
use setpoint_placement::Resources;

use super::container_files::{Volumes, root};
use super::environment::{Scope, environment};
use super::fate::{identity, with_usual};
use super::live::LiveRun;
use super::pod::Pod;
use super::program::script;
use super::sources::{Sources, Tokens};
use crate::files::{FileSystem, Quota, Shared};
use crate::log::{Line, Log, LogBuffer, LogScript, LogStream};
use crate::process::{Identity, Invocation, Io, Machine, Output, Pace, Reckoning, Shell, UnknownCommands};
use crate::view::ContainerStatus;

/// The maximum memory for the files of a pod.
const POD_BYTES: usize = 32 << 20;

/// The maximum number of repeated runs, and of steps in each.
const MAX_REPEATED_RUNS: u32 = 16;
const REPEATED_STEPS: u64 = 10_000;

/// The API objects of a pod.
pub(crate) struct Read<'a> {
    pub(crate) pod: &'a Pod,
    pub(crate) sources: &'a Sources,
    pub(crate) tokens: &'a Tokens,
    pub(crate) allocatable: &'a Resources,
    pub(crate) services: &'a BTreeMap<String, String>,
    /// The scripts of logs, by container.
    pub(crate) log_scripts: &'a BTreeMap<String, LogScript>,
}

/// The containers of a pod.
pub(crate) struct Sandbox {
    volumes: Volumes,
    quota: Arc<Quota>,
    containers: BTreeMap<String, ContainerRuns>,
    /// Whether a user has changed something that cannot be recomputed.
    pub(crate) is_changed: Arc<AtomicBool>,
}

/// The current run of a container and the one before.
#[derive(Default)]
struct ContainerRuns {
    current: Option<Run>,
    previous: Option<Run>,
}

/// A run of a container.
struct Run {
    /// How many there were before.
    number: u32,
    since: Timestamp,
    until: Option<Timestamp>,
    environment: BTreeMap<String, String>,
    files: FileSystem,
    /// Keeps the root as long as the run.
    _root: Shared,
    identity: Arc<Identity>,
    program: Option<LiveRun>,
    collected: LogBuffer,
    script: LogScript,
    scripted_until: Option<Timestamp>,
    log: Log,
}

/// A container at the start of a run.
struct Parts {
    environment: BTreeMap<String, String>,
    root: Shared,
    files: FileSystem,
    identity: Arc<Identity>,
}

/// When a run started and ended, from the pod's status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) number: u32,
    pub(crate) since: Timestamp,
    pub(crate) until: Option<Timestamp>,
}

/// Returns the current run of a container and the one before.
pub(crate) fn spans(status: &ContainerStatus) -> (Option<Span>, Option<Span>) {
    let ended = |terminated: &crate::view::Terminated, number: u32| {
        let until = terminated.finished_at?;
        Some(Span { number, since: terminated.started_at.unwrap_or(until), until: Some(until) })
    };
    let (restarts, before) = (status.restart_count, status.restart_count.checked_sub(1));
    let last = status.last_state.terminated.as_deref();
    if let Some(running) = &status.state.running {
        let current = running.started_at.map(|since| Span { number: restarts, since, until: None });
        return (current, last.zip(before).and_then(|(last, number)| ended(last, number)));
    }
    match &status.state.terminated {
        Some(terminated) => {
            (ended(terminated, restarts), last.zip(before).and_then(|(last, number)| ended(last, number)))
        }
        // It is waiting to be restarted: the last run is both.
        None => {
            let last = last.and_then(|last| ended(last, restarts));
            (last, last)
        }
    }
}

impl Sandbox {
    pub(crate) fn new(whole: &Arc<Quota>) -> Self {
        let quota = whole.part(POD_BYTES);
        let (containers, is_changed) = Default::default();
        Self { volumes: Volumes::new(quota.clone()), quota, containers, is_changed }
    }

    /// Brings everything up to date: volumes, and the runs that the pod's status shows.
    pub(crate) async fn update(&mut self, read: &Read<'_>, now: Timestamp) {
        let scope = scope(read);
        self.volumes.refresh(scope, read.tokens, now);
        for container in read.pod.all_containers() {
            let Some(status) = read.pod.status_of(&container.name) else { continue };
            let (current, previous) = spans(status);
            let previous = previous.filter(|previous| Some(*previous) != current);
            self.place_runs((current, previous), container, read);
            // Updated in place: a request that is cancelled here loses nothing.
            let runs = self.containers.entry(container.name.clone()).or_default();
            let spans = [(&mut runs.previous, previous), (&mut runs.current, current)];
            for (run, span) in spans {
                if let (Some(run), Some(span)) = (run, span) {
                    run.until = span.until;
                    run.advance(now).await;
                }
            }
        }
    }

    /// Updates the current and the previous run of a container. Starts unknown ones.
    fn place_runs(
        &mut self,
        (current, previous): (Option<Span>, Option<Span>),
        container: &Container,
        read: &Read<'_>,
    ) {
        let known = self.containers.remove(&container.name);
        if let (None, Some(first)) = (&known, previous.or(current)) {
            self.repeat(first.number, container, read, first.since);
        }
        let mut runs = known.unwrap_or_default();
        if let Some(span) = previous {
            let known = [runs.previous.take(), runs.current.take_if(|run| run.number == span.number)];
            let kept = known.into_iter().flatten().find(|run| run.number == span.number);
            runs.previous = Some(kept.unwrap_or_else(|| self.start(span, container, read)));
        }
        if let Some(span) = current {
            let kept = runs.current.take().filter(|run| run.number == span.number);
            runs.current = Some(kept.unwrap_or_else(|| self.start(span, container, read)));
        }
        self.containers.insert(container.name.clone(), runs);
    }

    fn start(&self, span: Span, container: &Container, read: &Read<'_>) -> Run {
        let Span { number, since, until } = span;
        let Parts { environment, root, files, identity } = self.parts(container, read, since);
        let collected = LogBuffer::default();
        let program = script(container, &environment).map(|script| {
            let (pace, reckoning) = LiveRun::pace(since);
            let machine = Machine::new(files.clone(), pace, UnknownCommands::Certain, identity.clone());
            let invocation = invocation(machine, &environment, container);
            LiveRun::start(script, invocation, since, reckoning, &collected, container.stdin == Some(true))
        });
        let script = read.log_scripts.get(&container.name).cloned().unwrap_or_default();
        let (scripted_until, log) = Default::default();
        Run {
            number,
            since,
            until,
            environment,
            files,
            _root: root,
            identity,
            program,
            collected,
            script,
            scripted_until,
            log,
        }
    }

    /// Returns a container at the start of a run.
    fn parts(&self, container: &Container, read: &Read<'_>, since: Timestamp) -> Parts {
        // Objects that are missing now existed when the container started.
        let environment = environment(scope(read), container).unwrap_or_default();
        let root = root(read.pod, container, self.quota.clone(), since);
        let files = self.volumes.mount(read.pod, container, &environment, &root, since);
        let environment = usual(with_usual(environment, read.pod), container);
        Parts { environment, root, files, identity: Arc::new(identity(read.pod, container)) }
    }

    /// Repeats the runs before those in the status, for their files on volumes.
    fn repeat(&self, runs: u32, container: &Container, read: &Read<'_>, since: Timestamp) {
        for _ in 0..runs.min(MAX_REPEATED_RUNS) {
            let parts = self.parts(container, read, since);
            let Some(script) = script(container, &parts.environment) else { return };
            let pace = Pace::Reckoned(Reckoning::endless(since, REPEATED_STEPS));
            let machine = Machine::new(parts.files, pace, UnknownCommands::Certain, parts.identity);
            let mut shell = Shell::new(invocation(machine, &parts.environment, container));
            // A run that does not end has left all the files it could.
            _ = shell.run(&script, &Io::null()).now_or_never();
        }
    }

    fn run(&self, container: &str, is_previous: bool) -> Option<&Run> {
        let runs = self.containers.get(container)?;
        // A container that waits to be restarted has one run, which is both.
        if is_previous { runs.previous.as_ref().or(runs.current.as_ref()) } else { runs.current.as_ref() }
    }

    /// Returns the log of a run.
    pub(crate) fn log(&self, container: &str, is_previous: bool) -> Option<&Log> {
        self.run(container, is_previous).map(|run| &run.log)
    }

    /// Returns when the log of the current run is known to change next.
    pub(crate) fn next_line(&self, container: &str, now: Timestamp) -> Option<Timestamp> {
        let run = self.run(container, false)?;
        let scripted = run.script.next(run.since, now);
        let printed = run.program.as_ref().and_then(LiveRun::wakes_at);
        scripted.into_iter().chain(printed).min()
    }

    /// Whether the runs in a status are known.
    pub(crate) fn has_runs_of(&self, status: &ContainerStatus) -> bool {
        let (current, previous) = spans(status);
        let runs = self.containers.get(&status.name);
        let has = |span: Option<Span>, run: Option<&Run>| {
            span.is_none_or(|span| run.is_some_and(|run| run.number == span.number))
        };
        let is_both = previous == current;
        has(current, runs.and_then(|runs| runs.current.as_ref()))
            && (is_both || has(previous, runs.and_then(|runs| runs.previous.as_ref())))
    }

    /// Simulates the known runs up to now.
    pub(crate) async fn advance(&mut self, statuses: impl Iterator<Item = &ContainerStatus>, now: Timestamp) {
        for status in statuses {
            let (current, _) = spans(status);
            let Some(run) = self.containers.get_mut(&status.name).and_then(|runs| runs.current.as_mut())
            else {
                continue;
            };
            match current {
                Some(span) if span.number == run.number => run.until = span.until,
                // The next one has started: this one has ended by then.
                _ => {}
            }
            run.advance(now).await;
        }
    }

    /// Returns what starts a process in a running container, in real time.
    pub(crate) fn invocation(&self, container: &Container, clock: &setpoint::Clock) -> Option<Invocation> {
        let run = self.run(&container.name, false)?;
        let pace = Pace::Real(clock.clone());
        let files = run.files.noting(&self.is_changed);
        let mut machine = Machine::new(files, pace, UnknownCommands::Interactive, run.identity.clone());
        machine.main = Some(Arc::new(run.outputs()));
        Some(invocation(machine, &run.environment, container))
    }

    /// Returns the streams of the container's main process.
    pub(crate) fn outputs(&self, container: &str) -> Option<(Output, Output)> {
        self.run(container, false).map(Run::outputs)
    }

    /// Records that a user has changed something.
    pub(crate) fn note_change(&self) {
        self.is_changed.store(true, Ordering::Relaxed);
    }
}

impl Run {
    fn outputs(&self) -> (Output, Output) {
        let writer = |stream| Output::Log(self.collected.writer(stream));
        (writer(LogStream::Stdout), writer(LogStream::Stderr))
    }

    async fn advance(&mut self, now: Timestamp) {
        let until = self.until.map_or(now, |until| until.min(now));
        if let Some(program) = &mut self.program {
            program.advance(until).await;
        }
        if let Some(end) = self.until.filter(|end| *end <= now) {
            self.collected.finish(end);
        }
        let mut lines: Vec<Line> = self.collected.take();
        lines.extend(self.script.between(self.since, self.scripted_until, until));
        self.scripted_until = Some(until);
        lines.sort_by_key(|line| line.at);
        self.log.extend(lines);
    }
}

fn scope<'a>(read: &Read<'a>) -> Scope<'a> {
    Scope { pod: read.pod, sources: read.sources, allocatable: read.allocatable, services: read.services }
}

fn invocation(machine: Machine, environment: &BTreeMap<String, String>, container: &Container) -> Invocation {
    let directory = container.working_dir.clone().filter(|path| !path.is_empty());
    Invocation {
        machine,
        environment: environment.clone(),
        unknown: Arc::new(|_| false),
        directory: directory.unwrap_or_else(|| "/".into()),
    }
}

/// Adds the variables that most images set.
fn usual(environment: BTreeMap<String, String>, container: &Container) -> BTreeMap<String, String> {
    let mut all = environment;
    let path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    all.entry("PATH".into()).or_insert_with(|| path.to_owned());
    all.entry("HOME".into()).or_insert_with(|| "/root".to_owned());
    if container.tty == Some(true) {
        all.entry("TERM".into()).or_insert_with(|| "xterm".to_owned());
    }
    all
}
