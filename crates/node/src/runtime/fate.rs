//! Determines from its command how a run of a container ends. Pure, given the pod's objects.
//!
//! Files on volumes outlive a container: the next run finds the files of the previous one, and the containers of a pod
//! find the files of its init containers. A file that a script checks is assumed absent only if the script creates it
//! itself; other files may be part of the image.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Container;
use parking_lot::Mutex;
use setpoint_placement::Resources;

use super::container_files::{Volumes, root};
use super::environment::{Scope, environment, may_be_of_a_service};
use super::pod::Pod;
use super::program::script;
use super::sources::{Sources, Tokens};
use crate::files::{FileSystem, Mount, Quota, Tree};
use crate::process::{
    Identity, Input, Invocation, Io, Machine, Output, Pace, Reckoning, Shell, Stop, UnknownCommands,
    base_name, is_known,
};
use crate::shell::{List, command};

/// How a run ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Ends(Ending),
    /// It runs until it is stopped.
    Forever,
    /// It does something unknown after this time.
    Unknown {
        after: Duration,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ending {
    pub(crate) after: Duration,
    pub(crate) code: i32,
    /// The termination message.
    pub(crate) message: Box<str>,
}

/// How many runs of a container are simulated for the files they leave on volumes.
const MAX_SIMULATED_RUNS: u32 = 16;

/// The maximum number of simulated steps of a run. A loop of a thousand rounds is within it, and takes milliseconds.
const STEPS: u64 = 10_000;

/// The memory for the files of a run.
const FILE_BYTES: usize = 4 << 20;

/// The maximum size of a message from a file and from a log, as with the kubelet.
const MESSAGE_OF_FILE: usize = 4096;
const MESSAGE_OF_LOG: usize = 2048;

/// The inputs of a run's fate.
pub(crate) struct Inputs<'a> {
    pub(crate) pod: &'a Pod,
    pub(crate) sources: &'a Sources,
    pub(crate) allocatable: &'a Resources,
}

impl Inputs<'_> {
    /// Returns the fate of the run of a container after this many restarts, which started at `since`.
    pub(crate) fn fate(&self, container: &Container, restarts: u32, since: Timestamp) -> Fate {
        let quota = Quota::new(FILE_BYTES);
        let mut volumes = Volumes::new(quota.clone());
        volumes.refresh(self.scope(&BTreeMap::new()), &Tokens::default(), since);
        for init in self.pod.spec.init_containers.iter().take_while(|init| init.name != container.name) {
            _ = self.run(init, &volumes, &quota, since);
        }
        for _ in 0..restarts.min(MAX_SIMULATED_RUNS) {
            match self.run(container, &volumes, &quota, since) {
                Fate::Ends(_) => {}
                other => return other,
            }
        }
        self.run(container, &volumes, &quota, since)
    }

    fn scope<'s>(&'s self, services: &'s BTreeMap<String, String>) -> Scope<'s> {
        Scope { pod: self.pod, sources: self.sources, allocatable: self.allocatable, services }
    }

    fn run(&self, container: &Container, volumes: &Volumes, quota: &Arc<Quota>, since: Timestamp) -> Fate {
        let unknown = Fate::Unknown { after: Duration::ZERO };
        let Ok(environment) = environment(self.scope(&BTreeMap::new()), container) else { return unknown };
        let Some(script) = script(container, &environment) else { return unknown };
        let root = root(self.pod, container, quota.clone(), since);
        let files = volumes.mount(self.pod, container, &environment, &root, since);
        let reckoning = Reckoning::endless(since, STEPS);
        let identity = Arc::new(identity(self.pod, container));
        let mut machine =
            Machine::new(files, Pace::Reckoned(reckoning.clone()), UnknownCommands::Certain, identity);
        machine.only_ends = true;
        let has_links = self.pod.spec.enable_service_links.unwrap_or(true);
        let mut shell = Shell::new(Invocation {
            machine: machine.clone(),
            environment: with_usual(environment, self.pod),
            unknown: Arc::new(move |name| has_links && may_be_of_a_service(name)),
            directory: container.working_dir.clone().unwrap_or_else(|| "/".into()),
        });
        let (output, log) = Output::buffer();
        let stdin = if container.stdin == Some(true) { Input::Silent } else { Input::Empty };
        let io = Io { stdin, stdout: output.clone(), stderr: output, terminal: None };
        let done = shell.run(&script, &io).now_or_never().unwrap_or(Err(Stop::Unknown));
        let after = reckoning.elapsed();
        if let Some(doubt) = machine.first_doubt() {
            let doubted = Duration::try_from(doubt.duration_since(since)).unwrap_or_default();
            return Fate::Unknown { after: after.min(doubted) };
        }
        match done {
            Ok(code) => {
                Fate::Ends(Ending { after, code, message: message(container, code, &machine, &log.lock()) })
            }
            Err(Stop::Forever) => Fate::Forever,
            Err(_) => Fate::Unknown { after },
        }
    }
}

/// Adds the variables that a container runtime sets.
pub(crate) fn with_usual(environment: BTreeMap<String, String>, pod: &Pod) -> BTreeMap<String, String> {
    let mut all = environment;
    all.entry("HOSTNAME".into()).or_insert_with(|| pod.host_name().to_owned());
    all
}

/// The user of a container's processes.
pub(crate) fn identity(pod: &Pod, container: &Container) -> Identity {
    let own = container.security_context.as_ref();
    let of_pod = &pod.spec.security_context;
    Identity {
        host_name: pod.host_name().to_owned(),
        pod_ip: pod.ips().first().copied().unwrap_or_default().to_owned(),
        user: own.and_then(|own| own.run_as_user).or(of_pod.run_as_user).unwrap_or(0),
        group: own.and_then(|own| own.run_as_group).or(of_pod.run_as_group).unwrap_or(0),
    }
}

fn message(container: &Container, code: i32, machine: &Machine, log: &[u8]) -> Box<str> {
    let path = container.termination_message_path.as_deref().unwrap_or_default();
    let is_log_message = container.termination_message_policy.as_deref() == Some("FallbackToLogsOnError");
    let file = machine.files.read(&crate::files::path::normal("/", path)).unwrap_or_default();
    match (file.is_empty(), is_log_message && code != 0) {
        (false, _) => tail(&file, MESSAGE_OF_FILE),
        (true, true) => tail(log, MESSAGE_OF_LOG),
        (true, false) => "".into(),
    }
}

fn tail(text: &[u8], bytes: usize) -> Box<str> {
    let text = String::from_utf8_lossy(text);
    let from = text.len().saturating_sub(bytes);
    let from = (from..=text.len()).find(|at| text.is_char_boundary(*at));
    text[from.unwrap_or(text.len())..].into()
}

/// Returns the duration and exit code of a command without variables and files. `None` if it is not known.
pub(crate) fn outcome(words: &[String]) -> Option<(Duration, i32)> {
    let (name, _) = words.split_first()?;
    if !is_known(base_name(name)) {
        return None;
    }
    outcome_of(&command(words))
}

fn outcome_of(script: &List) -> Option<(Duration, i32)> {
    let since = Timestamp::UNIX_EPOCH;
    let root = Mount::root(Arc::new(Mutex::new(Tree::new(Quota::new(FILE_BYTES)))), false);
    let files = FileSystem::new(root, Vec::new(), since);
    let reckoning = Reckoning::endless(since, STEPS);
    let mut machine =
        Machine::new(files, Pace::Reckoned(reckoning.clone()), UnknownCommands::Certain, Arc::default());
    machine.only_ends = true;
    let environment = BTreeMap::new();
    // Nothing is known about variables.
    let unknown = Arc::new(|_: &str| true);
    let mut shell =
        Shell::new(Invocation { machine: machine.clone(), environment, unknown, directory: "/".into() });
    match shell.run(script, &Io::null()).now_or_never()? {
        Ok(code) if machine.first_doubt().is_none() => Some((reckoning.elapsed(), code)),
        _ => None,
    }
}
