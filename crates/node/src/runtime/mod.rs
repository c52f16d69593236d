//! The simulated container runtime: the behaviour, logs and files of containers.
//!
//! ```text
//!  pod.rs              the pod, decoded with everything that its containers need
//!  program.rs          pure: the program of a container
//!  fate.rs             pure: how a run of it ends
//!  environment.rs      pure: variables, as a kubelet resolves them
//!  downward.rs         pure: fields and resources of a pod
//!  volumes.rs          pure: files of volumes that Kubernetes manages
//!  sources.rs          reads ConfigMaps, Secrets and tokens
//!  container_files.rs  file systems of containers
//!  live.rs             a run, followed as time passes
//!  sandbox.rs          the containers of a pod
//!  fates.rs            the fates of all running containers
//! ```
//!
//! A pod without requests costs nothing here: its sandbox is created by the first request for a log or a command, from
//! the pod and the time. It is kept in memory, and lost when the process ends.

mod container_files;
pub(crate) mod downward;
pub(crate) mod environment;
mod fate;
mod fates;
mod live;
mod pod;
mod program;
mod sandbox;
mod sources;
#[cfg(test)]
mod tests;
mod volumes;

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{ConfigMap, Service};
use parking_lot::Mutex;
use setpoint::source::Selection;
use setpoint::{Client, ClientError, Clock, Key, Kind, Object};
use setpoint_placement::Resources;

pub(crate) use fate::{Ending, Fate, outcome};
#[cfg(test)]
pub(crate) use fates::fates_without_sources;
pub(crate) use fates::{Fates, OfPod as FatesOfPod};
pub(crate) use pod::Pod;
pub(crate) use program::{Entrypoint, script};
pub(crate) use sandbox::{Sandbox, spans};

use crate::behaviour::annotation::{LOG, LOG_FROM};
use crate::files::Quota;
use crate::log::LogScript;
use sandbox::Read;
use sources::{References, Sources, Tokens};

/// The memory for the files of all pods.
const FILE_BYTES: usize = 256 << 20;

/// How many sandboxes are kept. Each has some 10 KiB, a log of up to 256 KiB for each run of a container, and its files.
const SANDBOXES: usize = 256;

/// How many are kept if users have changed all of them. Above that, no further pods can be entered.
const CHANGED_SANDBOXES: usize = 2048;

/// The key of a ConfigMap with a script, if none is named.
const USUAL_KEY: &str = "log";

/// The containers of all pods. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Runtime {
    clock: Clock,
    /// The client for reads that nodes are not permitted.
    simulator: Client,
    quota: Arc<Quota>,
    kept: Arc<Mutex<Kept>>,
}

#[derive(Default)]
struct Kept {
    /// By the pod's UID.
    sandboxes: BTreeMap<Box<str>, Slot>,
    /// Counts uses, to find the sandbox that was not used for the longest time.
    uses: u64,
}

#[derive(Clone)]
struct Slot {
    sandbox: Arc<tokio::sync::Mutex<SandboxState>>,
    is_changed: Arc<std::sync::atomic::AtomicBool>,
    used: u64,
}

/// A sandbox and its related state.
pub(crate) struct SandboxState {
    pub(crate) sandbox: Sandbox,
    tokens: Tokens,
}

/// Why a pod cannot be entered.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EnterError {
    #[error("cannot read what the pod refers to")]
    Read(#[source] ClientError),
    #[error("the pod cannot be decoded")]
    Decode(#[from] setpoint::object::DecodeError),
    #[error("too many simulated pods are in use")]
    TooMany,
}

/// Who enters a pod, and where it runs.
pub(crate) struct Entrance<'a> {
    /// The client of the pod's node.
    pub(crate) client: &'a Client,
    pub(crate) allocatable: &'a Resources,
}

/// A pod with its sandbox.
pub(crate) struct Entered {
    pub(crate) pod: Pod,
    pub(crate) state: Arc<tokio::sync::Mutex<SandboxState>>,
}

impl Runtime {
    pub(crate) fn new(clock: Clock, simulator: Client) -> Self {
        Self { clock, simulator, quota: Quota::new(FILE_BYTES), kept: Arc::default() }
    }

    /// Forgets a deleted pod.
    pub(crate) fn forget(&self, uid: &str) {
        let mut kept = self.kept.lock();
        if !kept.sandboxes.is_empty() {
            kept.sandboxes.remove(uid);
        }
    }

    /// Returns a pod with the current state of its containers, and their API objects.
    pub(crate) async fn enter(&self, object: &Object, entrance: Entrance<'_>) -> Result<Entered, EnterError> {
        let pod: Pod = object.decode()?;
        let state = self.slot(&pod.metadata.uid)?;
        let sources = Sources::read(entrance.client, &pod.metadata.namespace, &References::of(&pod)).await;
        let sources = sources.map_err(EnterError::Read)?;
        let services = services(entrance.client, &pod).await.map_err(EnterError::Read)?;
        let log_scripts = self.log_scripts(&pod).await.map_err(EnterError::Read)?;
        let now = self.clock.now();
        let mut locked = state.lock().await;
        locked.tokens.renew(entrance.client, &pod, now).await;
        let SandboxState { sandbox, tokens } = &mut *locked;
        let read = Read {
            pod: &pod,
            sources: &sources,
            tokens,
            allocatable: entrance.allocatable,
            services: &services,
            log_scripts: &log_scripts,
        };
        sandbox.update(&read, now).await;
        drop(locked);
        Ok(Entered { pod, state })
    }

    /// Like [`enter`](Self::enter), but reads nothing from the API if the runs of the pod are known. For logs.
    pub(crate) async fn look(&self, object: &Object, entrance: Entrance<'_>) -> Result<Entered, EnterError> {
        let pod: Pod = object.decode()?;
        let known = self.kept.lock().sandboxes.get(&*pod.metadata.uid).map(|slot| slot.sandbox.clone());
        if let Some(state) = known {
            let mut locked = state.lock().await;
            let statuses = || pod.status.status.all_containers();
            if statuses().all(|status| locked.sandbox.has_runs_of(status)) {
                locked.sandbox.advance(statuses(), self.clock.now()).await;
                drop(locked);
                return Ok(Entered { pod, state });
            }
        }
        self.enter(object, entrance).await
    }

    /// Returns the sandbox of a pod, or makes room for a new one.
    fn slot(&self, uid: &str) -> Result<Arc<tokio::sync::Mutex<SandboxState>>, EnterError> {
        let mut kept = self.kept.lock();
        kept.uses += 1;
        let used = kept.uses;
        if let Some(slot) = kept.sandboxes.get_mut(uid) {
            slot.used = used;
            return Ok(slot.sandbox.clone());
        }
        kept.make_room()?;
        let sandbox = Sandbox::new(&self.quota);
        let is_changed = sandbox.is_changed.clone();
        let state = SandboxState { sandbox, tokens: Tokens::default() };
        let sandbox = Arc::new(tokio::sync::Mutex::new(state));
        kept.sandboxes.insert(uid.into(), Slot { sandbox: sandbox.clone(), is_changed, used });
        Ok(sandbox)
    }

    /// Returns the scripts of the logs of a pod's containers, from annotations and ConfigMaps.
    async fn log_scripts(&self, pod: &Pod) -> Result<BTreeMap<String, LogScript>, ClientError> {
        let mut scripts = BTreeMap::new();
        for container in pod.all_containers() {
            let name = &container.name;
            let annotation = |annotation: &str| {
                let own = pod.metadata.annotations.get(&format!("{annotation}.{name}"));
                let is_main = pod.spec.containers.iter().any(|main| main.name == *name);
                own.or_else(|| pod.metadata.annotations.get(annotation).filter(|_| is_main))
            };
            let mut text = annotation(LOG).cloned().unwrap_or_default();
            if let Some(reference) = annotation(LOG_FROM) {
                text.push('\n');
                text.push_str(&self.log_of_config_map(&pod.metadata.namespace, reference).await?);
            }
            let script = LogScript::parse(&text);
            if !script.is_empty() {
                scripts.insert(name.clone(), script);
            }
        }
        Ok(scripts)
    }

    /// Reads a script from `NAME` or `NAME/KEY`. A ConfigMap or key that does not exist has no lines.
    async fn log_of_config_map(&self, namespace: &str, reference: &str) -> Result<String, ClientError> {
        let (name, key) = reference.split_once('/').unwrap_or((reference, USUAL_KEY));
        if name.is_empty() {
            return Ok(String::new());
        }
        match self.simulator.get(&Kind::of::<ConfigMap>(), &Key::namespaced(namespace, name)).await {
            Err(error) if error.is_not_found() => Ok(String::new()),
            read => {
                let map: ConfigMap = read?.decode().unwrap_or_default();
                Ok(map.data.and_then(|mut data| data.remove(key)).unwrap_or_default())
            }
        }
    }
}

impl Kept {
    /// Drops the sandbox that was not used for the longest time, unless users have changed it or still use it.
    fn make_room(&mut self) -> Result<(), EnterError> {
        if self.sandboxes.len() < SANDBOXES {
            return Ok(());
        }
        let is_changed = |slot: &Slot| slot.is_changed.load(std::sync::atomic::Ordering::Relaxed);
        // A session or a request holds the sandbox that it uses.
        let is_used = |slot: &Slot| Arc::strong_count(&slot.sandbox) > 1;
        let unchanged = self.sandboxes.iter().filter(|(_, slot)| !is_changed(slot) && !is_used(slot));
        let oldest = unchanged.min_by_key(|(_, slot)| slot.used).map(|(uid, _)| uid.clone());
        match oldest {
            Some(uid) => _ = self.sandboxes.remove(&uid),
            None if self.sandboxes.len() >= CHANGED_SANDBOXES => return Err(EnterError::TooMany),
            None => {}
        }
        Ok(())
    }
}

/// Returns the variables of the Services that a pod sees.
async fn services(client: &Client, pod: &Pod) -> Result<BTreeMap<String, String>, ClientError> {
    let kind = Kind::of::<Service>();
    let selection = Selection { namespace: Some(pod.metadata.namespace.clone()), ..Selection::default() };
    let listed = client.list(&kind, &selection).await?;
    let mut services: Vec<Service> =
        listed.objects.iter().filter_map(|object| object.decode().ok()).collect();
    if pod.metadata.namespace != "default" {
        match client.get(&kind, &Key::namespaced("default", "kubernetes")).await {
            Err(error) if error.is_not_found() => {}
            read => services.extend(read?.decode().ok()),
        }
    }
    Ok(environment::of_services(pod, &services))
}
