//! The containers of a pod on a node: init containers in order, then the others.

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::{configuration, images, mounts, probes};
use crate::inquiry::Inquiry;
use crate::model::{Evidence, Node, Source};
use crate::read::Read;
use crate::snapshot::Item;
use crate::text::{clip, duration};

/// A container with its status.
#[derive(Clone, Copy)]
pub(super) struct Container<'a> {
    pub(super) spec: &'a Value,
    pub(super) status: &'a Value,
    role: Role,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Init,
    Sidecar,
    Main,
}

/// Reasons of containers whose image could not be pulled.
const IMAGE: [&str; 7] = [
    "ImagePullBackOff",
    "ErrImagePull",
    "InvalidImageName",
    "ErrImageNeverPull",
    "ImageInspectError",
    "RegistryUnavailable",
    "SignatureValidationFailed",
];

/// An init container that runs longer than this is stuck.
const LONG: i64 = 120;
/// A container that has restarted within this time is still crashing.
const RECENT: i64 = 600;
/// This many restarts count as crashing.
const REPEATED: i64 = 2;

impl<'a> Container<'a> {
    pub(super) fn name(&self) -> &'a str {
        self.spec.text("/name")
    }

    /// Returns `container c`, `init container c` or `sidecar c`.
    pub(super) fn title(&self) -> String {
        let role = match self.role {
            Role::Init => "init container",
            Role::Sidecar => "sidecar",
            Role::Main => "container",
        };
        format!("{role} {}", clip(self.name()))
    }

    pub(super) fn image(&self) -> &'a str {
        self.spec.text("/image")
    }

    fn waiting(&self) -> &'a str {
        self.status.text("/state/waiting/reason")
    }

    fn is_done(&self) -> bool {
        match self.role {
            Role::Init => {
                self.status.number("/state/terminated/exitCode") == Some(0) || self.status.flag("/ready")
            }
            Role::Sidecar => self.status.flag("/started") || self.status.has("/state/terminated"),
            Role::Main => self.status.flag("/ready"),
        }
    }

    /// Whether it has terminated as expected.
    fn has_succeeded(&self, pod: &Item) -> bool {
        let code = self.status.number("/state/terminated/exitCode");
        code == Some(0) && pod.text("/spec/restartPolicy") != "Always"
    }

    fn restarts(&self) -> i64 {
        self.status.number("/restartCount").unwrap_or_default()
    }
}

/// Lists the containers of one kind, with their statuses.
fn containers<'a>(pod: &'a Item, specs: &str, statuses: &str) -> Vec<Container<'a>> {
    let statuses = pod.items(statuses);
    let role = |spec: &Value| match (specs, spec.text("/restartPolicy")) {
        ("/spec/containers", _) => Role::Main,
        (_, "Always") => Role::Sidecar,
        _ => Role::Init,
    };
    let find =
        |name: &str| statuses.iter().find(|status| status.text("/name") == name).unwrap_or(&Value::Null);
    let all = pod.items(specs).iter();
    all.map(|spec| Container { spec, status: find(spec.text("/name")), role: role(spec) }).collect()
}

fn init(pod: &Item) -> Vec<Container<'_>> {
    containers(pod, "/spec/initContainers", "/status/initContainerStatuses")
}

fn main(pod: &Item) -> Vec<Container<'_>> {
    containers(pod, "/spec/containers", "/status/containerStatuses")
}

pub(super) fn explain<'a>(inquiry: &Inquiry<'a>, pod: &'a Item, node: Node) -> Node {
    let (init, main) = (init(pod), main(pod));
    if !pod.has("/status/containerStatuses") && !pod.has("/status/initContainerStatuses") {
        return mounts::explain(inquiry, pod, node);
    }
    // After a restart of its node, a pod that has run before is initialized again.
    let is_initializing = main.iter().any(|one| one.waiting() == "PodInitializing");
    let started =
        main.iter().any(|one| one.status.has("/state/running") || one.status.has("/lastState/terminated"));
    let first_open = init.iter().find(|one| !one.is_done()).filter(|_| is_initializing || !started);
    if let Some(open) = first_open {
        return one(inquiry, pod, node, *open);
    }
    let sidecars = init.iter().filter(|one| one.role == Role::Sidecar && !one.status.flag("/ready"));
    let all: Vec<Container<'a>> = main.iter().filter(|one| !one.is_done()).chain(sidecars).copied().collect();
    let worst = all.iter().max_by_key(|one| severity(pod, one));
    match worst {
        Some(worst) => one(inquiry, pod, node, *worst),
        None => ready(inquiry, pod, node, &main),
    }
}

/// Ranks containers: the one in the worst state is explained.
fn severity(pod: &Item, container: &Container<'_>) -> usize {
    match container.waiting() {
        "" if container.has_succeeded(pod) => 0,
        "" if container.status.has("/state/terminated") => 3,
        "" => 2,
        "ContainerCreating" | "PodInitializing" => 1,
        _ => 4,
    }
}

/// A pod whose containers are all ready.
fn ready<'a>(inquiry: &Inquiry<'a>, pod: &'a Item, node: Node, main: &[Container<'a>]) -> Node {
    let crashing = main.iter().find(|one| keeps_restarting(inquiry, one));
    if let Some(crashing) = crashing {
        return crashed(inquiry, pod, node, *crashing);
    }
    if super::is_ready(pod) {
        let restarts: i64 = main.iter().map(Container::restarts).sum();
        return node.converged(if restarts == 0 {
            "ready".to_owned()
        } else {
            format!("ready, after {restarts} restarts")
        });
    }
    probes::gates(pod, node)
}

fn keeps_restarting(inquiry: &Inquiry<'_>, container: &Container<'_>) -> bool {
    let last = container.status.time("/lastState/terminated/finishedAt");
    let recent = last.is_some_and(|last| inquiry.now.duration_since(last).as_secs() < RECENT);
    container.restarts() >= REPEATED && recent
}

/// Explains a container that is not ready.
fn one<'a>(inquiry: &Inquiry<'a>, pod: &'a Item, node: Node, container: Container<'a>) -> Node {
    let message = container.status.text("/state/waiting/message");
    match container.waiting() {
        "" if container.status.has("/state/terminated") => terminated(inquiry, pod, node, container),
        "" if container.status.has("/state/running") => running(inquiry, pod, node, container),
        "" | "ContainerCreating" | "PodInitializing" => mounts::explain(inquiry, pod, node),
        reason if IMAGE.contains(&reason) => images::explain(inquiry, pod, node, container),
        "CreateContainerConfigError" => {
            configuration::explain(inquiry, pod, node, &container.title(), message)
        }
        "CrashLoopBackOff" => crashed(inquiry, pod, node, container),
        reason => {
            let text = format!("{} cannot be started ({reason}): {message}", container.title());
            let field = Evidence::field("status.containerStatuses", format!("{reason}: {message}"));
            node.blocked(text, "correct the container as the message says").evidence([field])
        }
    }
}

fn running<'a>(inquiry: &Inquiry<'a>, pod: &'a Item, node: Node, container: Container<'a>) -> Node {
    if container.role != Role::Init {
        return match keeps_restarting(inquiry, &container) {
            true => crashed(inquiry, pod, node, container),
            false => probes::explain(inquiry, pod, node, container),
        };
    }
    let since = container.status.time("/state/running/startedAt");
    let seconds = since.map_or(0, |since| inquiry.now.duration_since(since).as_secs());
    let text = format!("{} has been running for {}", container.title(), duration(seconds));
    if seconds < LONG {
        return node.progressing(text).next("the next container starts when it has succeeded", None);
    }
    let log = log(inquiry, pod, &container, false);
    let fix = "make it succeed: the other containers wait for it";
    node.blocked(format!("{text}, and the other containers wait for it"), fix).evidence(log)
}

/// A terminated container that is not restarted, or not yet.
fn terminated<'a>(inquiry: &Inquiry<'a>, pod: &'a Item, node: Node, container: Container<'a>) -> Node {
    if container.has_succeeded(pod) {
        return node.progressing(format!("{} has succeeded, others still run", container.title()));
    }
    crashed(inquiry, pod, node, container)
}

/// A container that has failed, and may have been restarted.
fn crashed<'a>(inquiry: &Inquiry<'a>, pod: &'a Item, node: Node, container: Container<'a>) -> Node {
    let is_looping = container.waiting() == "CrashLoopBackOff";
    let end = match container.status.at("/state/terminated") {
        Value::Null => container.status.at("/lastState/terminated"),
        end => end,
    };
    if let Some(node) = probes::killed(inquiry, pod, node.clone(), container) {
        return with_backoff(node, &container, end, is_looping);
    }
    let (what, fix) = exit(&container, end);
    let state = if is_looping { " (CrashLoopBackOff)" } else { "" };
    let often = match container.restarts() {
        0 => String::new(),
        1 => ", restarted once".to_owned(),
        times => format!(", restarted {times} times"),
    };
    let log = log(inquiry, pod, &container, container.status.at("/state/terminated").is_null());
    let hint = log.as_ref().map(|line| format!(", last log line: {:?}", line.value)).unwrap_or_default();
    let text = format!("{} {what}{state}{often}{hint}", container.title());
    let node = node.blocked(text, fix).evidence(log).evidence([ended(end)]);
    with_backoff(node, &container, end, is_looping)
}

/// Returns how a container terminated, and the fix.
fn exit(container: &Container<'_>, end: &Value) -> (String, String) {
    let code = end.number("/exitCode").unwrap_or_default();
    let message = match end.text("/message") {
        "" => String::new(),
        message => format!(": {}", clip(message)),
    };
    if end.text("/reason") == "OOMKilled" {
        let limit = match container.spec.at("/resources/limits/memory") {
            Value::Null => "without a limit of its own".to_owned(),
            limit => format!("limit {}", limit.as_str().unwrap_or_default()),
        };
        let text = format!("was OOMKilled, exit code {code} (memory {limit}){message}");
        return (text, "raise resources.limits.memory, or make it use less".to_owned());
    }
    let (what, fix) = match code {
        0 => ("exits with code 0 although it should keep running", "make it keep running, or use a Job"),
        126 => ("exits with code 126: its command cannot be executed", "correct its command or the image"),
        127 => ("exits with code 127: its command was not found", "correct its command or the image"),
        128 if end.text("/reason") == "StartError" => ("cannot start", "correct its command"),
        137 => (
            "was killed with SIGKILL, exit code 137",
            "find out what killed it: memory of the node, or a probe",
        ),
        139 => ("crashed with a segmentation fault, exit code 139", "fix the program"),
        143 => ("was stopped with SIGTERM, exit code 143", "find out what stopped it"),
        _ => ("", "fix what its log says"),
    };
    let what = if what.is_empty() { format!("exits with code {code}") } else { what.to_owned() };
    (format!("{what}{message}"), fix.to_owned())
}

fn ended(end: &Value) -> Evidence {
    let (code, reason) = (end.number("/exitCode").unwrap_or_default(), end.text("/reason"));
    let value = format!("exit code {code}, reason {reason}");
    Evidence::new(Source::Field, "terminated", &value, end.time("/finishedAt"))
}

/// Adds when the container will be restarted.
fn with_backoff(node: Node, container: &Container<'_>, end: &Value, is_looping: bool) -> Node {
    if !is_looping {
        return node;
    }
    node.next("the container is started again after its backoff", restart_at(container, end))
}

/// The kubelet waits 10 s, 20 s, 40 s, … at most 5 minutes.
fn restart_at(container: &Container<'_>, end: &Value) -> Option<Timestamp> {
    let doublings = (container.restarts() - 1).clamp(0, 5);
    let seconds = (10_i64 << doublings).min(300);
    end.time("/finishedAt")?.checked_add(SignedDuration::from_secs(seconds)).ok()
}

/// Returns the last line of a container's log.
fn log<'a>(
    inquiry: &Inquiry<'a>,
    pod: &'a Item,
    container: &Container<'_>,
    previous: bool,
) -> Option<Evidence> {
    let printed = inquiry.snapshot.log(pod, container.name(), previous)?;
    let last = printed.lines().rev().find(|line| !line.trim().is_empty())?;
    Some(Evidence::new(Source::Log, container.name(), last, None))
}

/// A pod that has failed because its containers have.
pub(super) fn failed<'a>(inquiry: &Inquiry<'a>, pod: &'a Item, node: Node) -> Node {
    let all: Vec<Container<'a>> = init(pod).into_iter().chain(main(pod)).collect();
    let is_failed =
        |one: &&Container<'_>| one.status.number("/state/terminated/exitCode").is_some_and(|code| code != 0);
    let Some(container) = all.iter().find(is_failed) else {
        return node.failed("failed", "delete it, its controller replaces it");
    };
    let end = container.status.at("/state/terminated");
    let (what, fix) = exit(container, end);
    let log = log(inquiry, pod, container, false);
    let hint = log.as_ref().map(|line| format!(", last log line: {:?}", line.value)).unwrap_or_default();
    let text = format!("{} {what}{hint}", container.title());
    node.failed(text, fix).evidence([ended(end)]).evidence(log)
}
