//! Reconciles the pods bound to the fleet's nodes.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use futures::future::BoxFuture;
use parking_lot::Mutex;
use setpoint::client::{DeleteOptions, Patch, Subresource};
use setpoint::reconcile::ErrorContext;
use setpoint::{
    Cached, Clock, Context, Controller, Event, EventType, Key, Kind, Lister, Outcome, Queue, ReconcileError,
    Reconciler, Runnable,
};
use setpoint_placement::Amount;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::address::{Addresses, Ranges};
use crate::admission::{Host, Needs, Rejection, rejection, shortage};
use crate::fleet::{Fleet, host_ip};
use crate::lifecycle::{Circumstances, Obstacle, PodNow, Step, ended, next, rejected};
use crate::outage::{NodeView, Outages};
use crate::pod_events::{EventLimit, PodEvent, pod_events};
use crate::pressure::{Measure, measure};
use crate::resize::{Resize, Sizes};
use crate::runtime::{Fates, FatesOfPod, Pod, Runtime as ContainerRuntime};
use crate::server::{Kubelets, Server};
use crate::sources::{self, NeededBy, Source, SourceKind, SourceObject};
use crate::status::{EVICTED, PodAddresses, status_patch};
use crate::sub_path;
use crate::view::PodView;

/// The number of simulated nodes and zones, and how many pods are reconciled concurrently.
#[derive(Clone, Debug)]
pub struct FleetOptions {
    pub nodes: usize,
    pub zones: usize,
    /// Whether to record normal events, too.
    pub records_events: bool,
    pub workers: usize,
    /// Patterns of images that cannot be pulled. `*` stands for any text.
    pub missing_images: Vec<String>,
}

/// How soon a pod with missing sources is checked again. Like the kubelet, the interval grows with the waiting time.
const RECHECK_AFTER: Duration = Duration::from_secs(1);
const MAX_RECHECK_AFTER: Duration = Duration::from_secs(122);

/// How soon a pending resize is retried.
const RETRY_RESIZE_AFTER: Duration = Duration::from_secs(10);

/// Returns the runnables that simulate nodes: heartbeats and the pod agent. They read from the informers of `context`;
/// a node's writes use the context that `of_node` returns for its name. The nodes are reached through `kubelets` as long
/// as the runnables exist.
pub fn runnables(
    context: &Context,
    of_node: impl Fn(&str) -> Context,
    options: FleetOptions,
    kubelets: &Kubelets,
) -> Vec<Box<dyn Runnable>> {
    let fleet = Fleet::new(context.runtime.clone(), of_node, &options);
    let addresses = Arc::new(Mutex::new(Addresses::default()));
    let queue = Queue::new("node", &context.runtime);
    let pods = context.informers.of::<PodView>();
    let fates = Fates::default();
    let runtime = ContainerRuntime::new(context.runtime.clock.clone(), context.client.clone());
    let kept = Kept { addresses: addresses.clone(), fates: fates.clone(), runtime: runtime.clone() };
    pods.add_handler(on_pod(queue.clone(), kept));
    let nodes = context.informers.of::<NodeView>();
    nodes.add_handler(on_node(queue.clone(), fleet.outages().clone(), pods.lister()));
    let stop = CancellationToken::new();
    let server = Arc::new(Server {
        clock: context.runtime.clock.clone(),
        pods: pods.lister(),
        nodes: nodes.lister(),
        fleet: fleet.clone(),
        runtime,
        fates: fates.clone(),
        queue: queue.clone(),
        backends: kubelets.backends(),
        interference: kubelets.interference(),
        stop: stop.clone(),
        connections: AtomicUsize::new(0),
    });
    kubelets.set(&server, options.nodes);
    let agent = Agent {
        _server: server,
        _stop: stop.drop_guard(),
        clock: context.runtime.clock.clone(),
        pods: pods.lister(),
        nodes: nodes.lister(),
        fleet: fleet.clone(),
        addresses,
        fates,
        missing_images: options.missing_images,
        event_limit: options.records_events.then(Mutex::default),
    };
    let controller =
        Controller::new("node", queue, agent).workers(options.workers).waits_for(&pods).waits_for(&nodes);
    vec![Box::new(Heartbeats(fleet)), Box::new(controller)]
}

/// What is kept about pods until they are deleted.
struct Kept {
    addresses: Arc<Mutex<Addresses>>,
    fates: Fates,
    runtime: ContainerRuntime,
}

fn on_pod(queue: Queue<Key>, kept: Kept) -> impl Fn(&Event) + Send + Sync + 'static {
    move |event| match event {
        Event::Deleted { last, .. } => {
            let uid = &last.meta().uid;
            kept.addresses.lock().release(uid);
            kept.fates.forget(uid);
            kept.runtime.forget(uid);
        }
        _ => queue.add(event.object().key().clone()),
    }
}

/// When a node recovers, its pods are reconciled again.
fn on_node(
    queue: Queue<Key>,
    outages: Outages,
    pods: Lister<PodView>,
) -> impl Fn(&Event) + Send + Sync + 'static {
    move |event| {
        if outages.follow(event) {
            let node = &*event.object().meta().name;
            for pod in pods.list(None).unwrap_or_default().iter().filter(|pod| pod.spec.node_name == node) {
                queue.add(pod.key().clone());
            }
        }
    }
}

struct Heartbeats(Fleet);

impl Runnable for Heartbeats {
    fn name(&self) -> &str {
        "node-heartbeats"
    }

    fn run(self: Box<Self>, stop: CancellationToken) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            stop.run_until_cancelled(self.0.run()).await;
        })
    }
}

struct Agent {
    /// Serves the kubelet API as long as the agent exists.
    _server: Arc<Server>,
    _stop: DropGuard,
    clock: Clock,
    pods: Lister<PodView>,
    nodes: Lister<NodeView>,
    fleet: Fleet,
    addresses: Arc<Mutex<Addresses>>,
    fates: Fates,
    missing_images: Vec<String>,
    /// Rate limit of normal events, if they are recorded.
    event_limit: Option<Mutex<EventLimit>>,
}

impl Reconciler for Agent {
    type Key = Key;

    async fn reconcile(&self, key: &Key) -> Result<Outcome, ReconcileError> {
        let Some(pod) = self.pods.get(key)? else { return Ok(Outcome::Settled) };
        let Some(node) = self.fleet.index(&pod.spec.node_name) else { return Ok(Outcome::Settled) };
        if self.fleet.outages().has(&pod.spec.node_name) {
            return Ok(Outcome::Settled);
        }
        match measure(&self.fleet.outages().pressure_told(&pod.spec.node_name), pod.object(), &pod) {
            Some(_) if pod.meta().is_being_deleted() => {}
            Some(Measure::Evict(message)) => return self.evict(&pod, &message, node).await,
            Some(Measure::Refuse(message)) => {
                return self.reject(&pod, &Rejection { reason: EVICTED.into(), message }, node).await;
            }
            None => {}
        }
        if let Some(rejection) = self.rejection(&pod)? {
            return self.reject(&pod, &rejection, node).await;
        }
        let lacking = self.obstacle(&pod, node).await?;
        let obstacle = lacking.as_ref().map(|(obstacle, _)| obstacle);
        let resize = self.resize(&pod)?;
        let is_refused = matches!(resize, Some((Resize::Refused(_), _)));
        let fates = self.fates(&pod, node).await?;
        let circumstances = Circumstances {
            obstacle,
            resize: resize.as_ref().map(|(resize, _)| resize),
            fates: Some(&fates),
            missing_images: &self.missing_images,
        };
        match next(pod.meta(), &pod, circumstances, self.clock.now()) {
            Step::Rest if is_refused => Ok(Outcome::CheckAfter(RETRY_RESIZE_AFTER)),
            Step::Wait(left) if is_refused => Ok(Outcome::CheckAfter(left.min(RETRY_RESIZE_AFTER))),
            Step::Rest if obstacle.is_some() => Ok(Outcome::CheckAfter(self.patience(&pod))),
            Step::Rest => Ok(Outcome::Settled),
            Step::Wait(left) => Ok(Outcome::CheckAfter(left)),
            Step::Write(next) => {
                for complaint in lacking.iter().flat_map(|(_, complaints)| complaints) {
                    let (reason, message) = complaint;
                    self.event(&pod, node, EventType::Warning, reason, &**message);
                }
                if let Some((Resize::Made { .. }, sizes)) = &resize {
                    self.event(&pod, node, EventType::Normal, "ResizeCompleted", sizes.message());
                }
                self.record(&pod, &next, node);
                self.write(&pod, &next, node).await
            }
            Step::Remove => self.remove(key, &pod.meta().uid, node).await,
        }
    }
}

/// An event about an obstacle: reason and message.
type Complaint = (&'static str, String);

impl Agent {
    /// Returns when a pod with missing sources is checked again.
    fn patience(&self, pod: &PodView) -> Duration {
        let waited = pod.status.start_time.map(|accepted| self.clock.now().duration_since(accepted));
        let waited = waited.and_then(|waited| Duration::try_from(waited).ok()).unwrap_or_default();
        (waited / 2).clamp(RECHECK_AFTER, MAX_RECHECK_AFTER)
    }

    /// Returns how the runs of a pod's containers end, as far as their commands show.
    async fn fates(&self, pod: &Cached<PodView>, node: usize) -> Result<FatesOfPod, ReconcileError> {
        let is_over = matches!(pod.status.phase.as_str(), "Succeeded" | "Failed");
        if is_over || pod.meta().is_being_deleted() {
            self.fates.forget(&pod.meta().uid);
            return Ok(FatesOfPod::new());
        }
        let found = self.nodes.get(&Key::cluster(&*pod.spec.node_name))?;
        let allocatable = found.map(|node| node.status.allocatable.clone()).unwrap_or_default();
        let client = &self.fleet.kubelet(node).client;
        let fates = self.fates.of(pod, client, &allocatable).await;
        fates.attempting(format!("read what pod {} refers to", pod.key()))
    }

    /// Returns why the node rejects the pod. A scheduled pod fits beside others, but someone may have bound a pod that
    /// fits on no node at all.
    fn rejection(&self, pod: &Cached<PodView>) -> Result<Option<Rejection>, ReconcileError> {
        let is_new = pod.status.start_time.is_none() && matches!(pod.status.phase.as_str(), "" | "Pending");
        let is_bound = pod.is_true("PodScheduled");
        if !is_new
            || pod.meta().is_being_deleted()
            || is_bound && !pod.object().contains_text("\"requests\":{")
        {
            return Ok(None);
        }
        let Some(node) = self.nodes.get(&Key::cluster(&*pod.spec.node_name))? else { return Ok(None) };
        let needs = pod.object().decode::<Needs>()?;
        Ok(match is_bound {
            true => shortage(&needs, &host(pod, &node, Vec::new())),
            false => rejection(&needs, &host(pod, &node, self.other_pods_on_node(pod)?)),
        })
    }

    /// Lists the other pods on a pod's node.
    fn other_pods_on_node(&self, pod: &Cached<PodView>) -> Result<Vec<Needs>, ReconcileError> {
        let is_on_node = |other: &&Cached<PodView>| {
            let ended = matches!(other.status.phase.as_str(), "Succeeded" | "Failed");
            let itself = other.meta().uid == pod.meta().uid;
            other.spec.node_name == pod.spec.node_name
                && !ended
                && !itself
                && other.status.start_time.is_some()
        };
        let all = self.pods.list(None)?;
        let others = all.iter().filter(is_on_node).map(|other| other.object().decode::<Needs>());
        Ok(others.collect::<Result<_, _>>()?)
    }

    /// Returns the outcome of a resize of a running pod. A pod whose spec never changed needs none.
    fn resize(&self, pod: &Cached<PodView>) -> Result<Option<(Resize, Sizes)>, ReconcileError> {
        let runs = pod.status.phase == "Running" && !pod.meta().is_being_deleted();
        if !runs || pod.meta().generation <= 1 {
            return Ok(None);
        }
        let Some(sizes) = Sizes::of(pod.object()).filter(Sizes::differ) else { return Ok(None) };
        let Some(node) = self.nodes.get(&Key::cluster(&*pod.spec.node_name))? else { return Ok(None) };
        let resize =
            sizes.resize(&pod.object().decode::<Needs>()?, &host(pod, &node, self.other_pods_on_node(pod)?));
        Ok(resize.map(|resize| (resize, sizes)))
    }

    async fn reject(
        &self,
        pod: &Cached<PodView>,
        rejection: &Rejection,
        node: usize,
    ) -> Result<Outcome, ReconcileError> {
        let Rejection { reason, message } = rejection;
        self.event(pod, node, EventType::Warning, reason, &**message);
        let now = rejected(reason, &format!("Pod was rejected: {message}"));
        self.write(pod, &now, node).await
    }

    async fn evict(
        &self,
        pod: &Cached<PodView>,
        message: &str,
        node: usize,
    ) -> Result<Outcome, ReconcileError> {
        self.event(pod, node, EventType::Warning, EVICTED, message);
        let now = ended(pod, Some((EVICTED, message)), self.clock.now());
        self.record(pod, &now, node);
        self.write(pod, &now, node).await
    }

    /// Returns what keeps a pod's containers from being created, with events.
    async fn obstacle(
        &self,
        pod: &Cached<PodView>,
        node: usize,
    ) -> Result<Option<(Obstacle, Vec<Complaint>)>, ReconcileError> {
        let statuses = pod.status.init_container_statuses.iter().chain(&pod.status.container_statuses);
        let has_begun = |status: &crate::view::ContainerStatus| {
            status.state.running.is_some() || status.state.terminated.is_some() || status.restart_count > 0
        };
        let stays =
            !pod.meta().is_being_deleted() && !matches!(pod.status.phase.as_str(), "Succeeded" | "Failed");
        let has_expressions = pod.object().contains_text(sub_path::FIELD);
        let needs_nothing = !has_expressions && !sources::are_mentioned(pod.object());
        if !stays || statuses.clone().any(has_begun) || needs_nothing {
            return Ok(None);
        }
        let sources = pod.object().decode::<sources::Pod>()?.sources(pod.key().name());
        let (mut volumes, mut config) = (Vec::new(), Vec::new());
        if has_expressions {
            config = sub_path::complaints(&pod.object().decode::<Pod>()?);
        }
        for source in &sources {
            let Some(complaint) = self.complaint(pod, source, node).await? else { continue };
            match &source.needed_by {
                NeededBy::Volume(_) => volumes.push(("FailedMount", complaint)),
                NeededBy::Container(name) => config.push((name.clone(), complaint)),
            }
        }
        if !volumes.is_empty() {
            return Ok(Some((Obstacle::Volumes, volumes)));
        }
        let events = config.iter().map(|(_, why)| ("Failed", format!("Error: {why}"))).collect();
        let config: Vec<_> = config.into_iter().map(|(name, why)| (name, why.into())).collect();
        Ok((!config.is_empty()).then_some((Obstacle::Config(config), events)))
    }

    /// Returns what is wrong with a source that a pod needs.
    async fn complaint(
        &self,
        pod: &Cached<PodView>,
        source: &Source,
        node: usize,
    ) -> Result<Option<String>, ReconcileError> {
        let (kind, key) = (source_kind(source.kind), pod.key().sibling(&*source.name));
        let found = match self.fleet.kubelet(node).client.get(&kind, &key).await {
            Err(error) if error.is_not_found() => None,
            read => {
                Some(read.attempting(format!("read {key} for pod {}", pod.key()))?.decode::<SourceObject>()?)
            }
        };
        Ok(source.complaint(pod.key().namespace().unwrap_or_default(), found.as_ref()))
    }

    /// Records events about containers. Warnings are not rate-limited.
    fn record(&self, pod: &Cached<PodView>, next: &PodNow, node: usize) {
        for PodEvent { event_type, reason, message } in pod_events(pod, next) {
            let has_room =
                |event_limit: &Mutex<EventLimit>| event_limit.lock().has_room(self.clock.instant());
            if event_type == EventType::Warning || self.event_limit.as_ref().is_some_and(has_room) {
                self.event(pod, node, event_type, reason, message);
            }
        }
    }

    /// Records an event of the node about one of its pods.
    fn event(
        &self,
        pod: &Cached<PodView>,
        node: usize,
        event_type: EventType,
        reason: &str,
        message: impl Into<String>,
    ) {
        let recorder = &self.fleet.kubelet(node).recorder;
        recorder.event(&pod_kind(), pod.object(), event_type, reason, message);
    }

    /// Writes the pod's status. The resulting event requeues the pod.
    async fn write(
        &self,
        pod: &Cached<PodView>,
        next: &PodNow,
        node: usize,
    ) -> Result<Outcome, ReconcileError> {
        let host_ip = host_ip(node);
        let pod_ips = match (next.has_network, pod.spec.host_network) {
            (false, _) => Vec::new(),
            (true, true) => vec![host_ip.clone()],
            (true, false) => {
                let node = self.nodes.get(&Key::cluster(&*pod.spec.node_name))?;
                let ranges = node.map(|node| Ranges::of(&node.spec.pod_cidrs)).unwrap_or_default();
                self.addresses.lock().of(&pod.meta().uid, pod.status.pod_ip.as_deref(), ranges)
            }
        };
        let place = PodAddresses { host_ip: &host_ip, pod_ips: &pod_ips };
        let patch = status_patch(pod, next, &place, self.clock.now());
        let (key, patch) = (pod.key(), Patch::Strategic(patch.to_string().into()));
        match self
            .fleet
            .kubelet(node)
            .client
            .patch_ignoring_response(&pod_kind(), key, Subresource::Status, patch)
            .await
        {
            Err(error) if error.is_not_found() => Ok(Outcome::Settled),
            // Someone else wrote to the pod. Reconcile the new version shortly.
            Err(error) if error.is_conflict() => Ok(Outcome::Requeue),
            written => {
                written.attempting(format!("write the status of pod {key}")).map(|()| Outcome::Settled)
            }
        }
    }

    async fn remove(&self, key: &Key, uid: &str, node: usize) -> Result<Outcome, ReconcileError> {
        let delete = DeleteOptions {
            uid: Some(uid.into()),
            grace_period_seconds: Some(0),
            ..DeleteOptions::default()
        };
        match self.fleet.kubelet(node).client.delete(&pod_kind(), key, &delete).await {
            Err(error) if error.is_not_found() => Ok(Outcome::Settled),
            Err(error) if error.is_conflict() => Ok(Outcome::Requeue),
            removed => removed.attempting(format!("remove pod {key}")).map(|()| Outcome::Settled),
        }
    }
}

/// Returns a pod's node and other pods on it.
fn host<'a>(pod: &'a Cached<PodView>, node: &'a Cached<NodeView>, others: Vec<Needs>) -> Host<'a> {
    Host {
        name: &pod.spec.node_name,
        labels: &node.meta().labels,
        taints: &node.spec.taints,
        allocatable: Amount::of(&node.status.allocatable),
        others,
    }
}

fn pod_kind() -> Kind {
    Kind::of::<PodView>()
}

fn source_kind(kind: SourceKind) -> Kind {
    use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Secret};
    match kind {
        SourceKind::ConfigMap => Kind::of::<ConfigMap>(),
        SourceKind::Secret => Kind::of::<Secret>(),
        SourceKind::Claim => Kind::of::<PersistentVolumeClaim>(),
    }
}
