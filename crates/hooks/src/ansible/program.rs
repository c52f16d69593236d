//! `ansible-playbook` as a child process.
//!
//! Each run has a directory of its own: a kubeconfig, an inventory with this machine, the variables, and a callback
//! plugin that reports how the run ended. It sees the environment of the operator, as Ansible is configured by it.
//!
//! Bounds: as many processes as configured, each with a time limit, 128 KiB of output and a report of 1 MiB.

use std::collections::{BTreeMap, VecDeque};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use serde::Deserialize;
use serde_json::json;
use setpoint::Clock;
use tokio::sync::{OnceCell, Semaphore};

use super::Play;
use super::runner::{Ansible, AnsibleCall, PlayResult};
use crate::gateway::{Access, Gateway};
use crate::model::go_duration;
use crate::program::{Run, located};
use crate::scratch::Scratch;

/// The callback plugin.
const PLUGIN: &str = include_str!("setpoint.py");
const MAX_REPORT: u64 = 1 << 20;
/// The most failed tasks that are shown: the last ones.
const MAX_MESSAGES: usize = 16;
/// The longest error that is shown.
const MAX_ERROR: usize = 2048;

/// The settings of the program.
#[derive(Clone, Debug)]
pub struct AnsibleOptions {
    /// The program, by path or by name.
    pub program: PathBuf,
    /// How many processes run at the same time.
    pub processes: usize,
    /// How long one may run.
    pub timeout: Duration,
}

impl Default for AnsibleOptions {
    fn default() -> Self {
        Self { program: "ansible-playbook".into(), processes: 4, timeout: Duration::from_secs(1800) }
    }
}

/// The installed `ansible-playbook`.
pub struct AnsibleProgram(Arc<Inner>);

struct Inner {
    options: AnsibleOptions,
    clock: Clock,
    places: Semaphore,
    gateway: OnceCell<Gateway>,
}

impl AnsibleProgram {
    /// Prepares the program. It is started with the first run.
    pub fn new(mut options: AnsibleOptions, clock: &Clock) -> Self {
        options.program = located(&options.program);
        let places = Semaphore::new(options.processes.clamp(1, 64));
        Self(Arc::new(Inner { options, clock: clock.clone(), places, gateway: OnceCell::new() }))
    }
}

impl Ansible for AnsibleProgram {
    fn run(&self, call: AnsibleCall, access: Arc<Access>) -> BoxFuture<'static, Result<PlayResult, String>> {
        let inner = self.0.clone();
        async move { inner.run(call, access).await }.boxed()
    }
}

/// A line of the report.
#[derive(Deserialize)]
#[serde(tag = "event", rename_all = "lowercase")]
enum Told {
    Failed { task: String, message: String },
    Again { period: String },
    Stats { ok: u64, changed: u64, skipped: u64, failures: u64, unreachable: u64 },
}

impl Inner {
    async fn run(&self, call: AnsibleCall, access: Arc<Access>) -> Result<PlayResult, String> {
        let _place = self.places.acquire().await;
        let starting =
            async { Gateway::start().await.map_err(|error| format!("cannot listen on loopback: {error}")) };
        let entry = self.gateway.get_or_try_init(|| starting).await?.open(access)?;
        let scratch = Scratch::new()?;
        scratch.write("kubeconfig", &entry.kubeconfig(&call.namespace))?;
        scratch.write("hosts", &inventory())?;
        scratch.write("variables.json", &json!(call.vars).to_string())?;
        scratch.write("callbacks/setpoint.py", PLUGIN)?;
        let report = scratch.write("report", "")?;
        let playbook = match &call.play {
            Play::Playbook(path) => path.clone(),
            Play::Role(path) => scratch.write("playbook.yaml", &playbook_of(path))?,
        };
        let run = Run {
            program: &self.options.program,
            arguments: &arguments(scratch.path(), &playbook, call.verbosity),
            environment: environment(scratch.path(), &call.play),
            directory: playbook.parent().unwrap_or(scratch.path()),
            limit: self.options.timeout,
        };
        let finished = run.finish(&self.clock).await?;
        tracing::debug!(play = %playbook.display(), output = finished.stdout, "ran ansible-playbook");
        let text = read(&report)?;
        understand(&text, finished.failure())
    }
}

fn inventory() -> String {
    let python = match std::env::var("VIRTUAL_ENV") {
        Ok(environment) if !environment.is_empty() => format!("{environment}/bin/python3"),
        _ => "{{ ansible_playbook_python }}".to_owned(),
    };
    json!({"all": {"hosts": {"localhost": {"ansible_connection": "local", "ansible_python_interpreter": python}}}}).to_string()
}

fn playbook_of(role: &Path) -> String {
    let is_explicit = std::env::var("ANSIBLE_GATHERING").is_ok_and(|value| value == "explicit");
    json!([{"hosts": "localhost", "gather_facts": !is_explicit, "roles": [{"role": role.to_string_lossy()}]}])
        .to_string()
}

fn arguments(scratch: &Path, playbook: &Path, verbosity: u8) -> Vec<String> {
    let inside = |name: &str| scratch.join(name).to_string_lossy().into_owned();
    // The operator's own inventory wins, as with the Operator SDK.
    let inventory = std::env::var("ANSIBLE_INVENTORY").ok().filter(|path| !path.is_empty());
    let mut arguments = vec![
        playbook.to_string_lossy().into_owned(),
        format!("--inventory={}", inventory.unwrap_or_else(|| inside("hosts"))),
        format!("--extra-vars=@{}", inside("variables.json")),
    ];
    if verbosity > 0 {
        arguments.push(format!("-{}", "v".repeat(verbosity.into())));
    }
    arguments
}

fn environment(scratch: &Path, play: &Play) -> BTreeMap<String, String> {
    let mut environment: BTreeMap<String, String> = std::env::vars().collect();
    let inside = |name: &str| scratch.join(name).to_string_lossy().into_owned();
    let mut before = |name: &str, value: String, separator: &str| {
        let known = environment.remove(name).filter(|known| !known.is_empty());
        let value = known.map_or(value.clone(), |known| format!("{value}{separator}{known}"));
        environment.insert(name.to_owned(), value);
    };
    before("ANSIBLE_CALLBACK_PLUGINS", inside("callbacks"), ":");
    before("ANSIBLE_CALLBACKS_ENABLED", "setpoint".to_owned(), ",");
    before("NO_PROXY", "127.0.0.1".to_owned(), ",");
    if let Play::Role(path) = play
        && let Some(parent) = path.parent()
    {
        before("ANSIBLE_ROLES_PATH", parent.to_string_lossy().into_owned(), ":");
    }
    let own = [
        ("KUBECONFIG", inside("kubeconfig")),
        ("K8S_AUTH_KUBECONFIG", inside("kubeconfig")),
        ("SETPOINT_REPORT", inside("report")),
        ("ANSIBLE_LOCAL_TEMP", inside("local")),
        ("ANSIBLE_REMOTE_TEMP", inside("remote")),
        ("ANSIBLE_RETRY_FILES_ENABLED", "false".to_owned()),
        ("ANSIBLE_NOCOLOR", "true".to_owned()),
    ];
    environment.extend(own.map(|(name, value)| (name.to_owned(), value)));
    environment
}

fn read(path: &Path) -> Result<String, String> {
    let mut text = String::new();
    let read = std::fs::File::open(path).and_then(|file| file.take(MAX_REPORT).read_to_string(&mut text));
    read.map(|_| text).map_err(|error| format!("cannot read the report of the run: {error}"))
}

/// Returns the result in a report. The program itself says whether it succeeded: a failed task may have been rescued.
fn understand(report: &str, failure: Option<String>) -> Result<PlayResult, String> {
    let (mut result, mut messages, mut has_stats) = (PlayResult::default(), VecDeque::new(), false);
    for line in report.lines() {
        match serde_json::from_str(line) {
            // Earlier ones may have been rescued.
            Ok(Told::Failed { task, message }) => {
                messages.push_back(format!("{task}: {message}"));
                if messages.len() > MAX_MESSAGES {
                    messages.pop_front();
                }
            }
            Ok(Told::Again { period }) => result.again = go_duration(&period),
            Ok(Told::Stats { ok, changed, skipped, failures, unreachable }) => {
                has_stats = true;
                (result.ok, result.changed, result.skipped) = (ok, changed, skipped);
                result.failures = failures + unreachable;
            }
            _ => {}
        }
    }
    let Some(why) = failure else {
        return if has_stats { Ok(result) } else { Err("the run did not report its end".to_owned()) };
    };
    if !has_stats {
        // It did not even start, for example because of a mistake in the playbook.
        let skipped = why.chars().count().saturating_sub(MAX_ERROR);
        return Err(why.chars().skip(skipped).collect());
    }
    if messages.is_empty() {
        messages.push_back("the play failed".to_owned());
    }
    result.messages = messages.into();
    Ok(result)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_understood_with_the_exit_code() {
        let stats = |failures: u64| json!({"event": "stats", "ok": 2, "changed": 1, "skipped": 0, "failures": failures, "unreachable": 0});
        let failed = json!({"event": "failed", "task": "create", "message": "no"});
        let again = json!({"event": "again", "period": "5s"});
        let result = understand(&format!("{again}\n{failed}\n{}\n", stats(0)), None).expect("it succeeded");
        assert_eq!((result.ok, result.changed, result.again), (2, 1, Some(Duration::from_secs(5))));
        assert_eq!(result.messages, Vec::<String>::new(), "the failed task was rescued");
        let result =
            understand(&format!("{failed}\n{}\n", stats(1)), Some("exit code 2".into())).expect("a result");
        assert_eq!((result.failures, result.messages), (1, vec!["create: no".to_owned()]));
        let many: String = (0..20)
            .map(|nth| format!("{}\n", json!({"event": "failed", "task": nth.to_string(), "message": ""})))
            .collect();
        let result =
            understand(&format!("{many}{}\n", stats(1)), Some("exit code 2".into())).expect("a result");
        assert_eq!((result.messages.len(), result.messages[15].as_str()), (16, "19: "), "the last ones");
        assert_eq!(understand("", Some("ERROR! no such file".into())), Err("ERROR! no such file".into()));
        assert!(understand("nonsense", None).is_err());
    }

    #[test]
    fn a_role_is_a_playbook_of_one_play() {
        let playbook: serde_json::Value =
            serde_json::from_str(&playbook_of(Path::new("/roles/a"))).expect("JSON");
        assert_eq!(playbook[0]["roles"][0]["role"], "/roles/a");
        let arguments = arguments(Path::new("/s"), Path::new("/p.yaml"), 2);
        assert_eq!(
            (arguments[0].as_str(), arguments[2].as_str(), arguments[3].as_str()),
            ("/p.yaml", "--extra-vars=@/s/variables.json", "-vv")
        );
        let environment = environment(Path::new("/s"), &Play::Role("/roles/a".into()));
        assert_eq!(environment["KUBECONFIG"], "/s/kubeconfig");
        assert!(environment["ANSIBLE_ROLES_PATH"].starts_with("/roles"));
    }
}
