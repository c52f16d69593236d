//! Applies plans. Disks and nodes have separate queues.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};
use setpoint::client::{DeleteOptions, Optional, Patch, Subresource};
use setpoint::metrics::Metrics;
use setpoint::reconcile::ErrorContext;
use setpoint::{
    Cached, Client, Clock, Context, EventType, Key, Kind, Outcome, Queue, ReconcileError, Reconciler,
    Recorder,
};
use setpoint_volume::PodVolumes;

use super::COMPONENT;
use super::disk::Disk;
use super::memory::Memory;
use super::metrics;
use super::observe::{Caches, Site, Sites, attachment_name, attachments_on};
use super::plan::{blocked_message, plan};
use super::view::{Attachment, Node};
use crate::registry::Options;

pub(super) struct Attacher {
    pub(super) client: Client,
    pub(super) clock: Clock,
    pub(super) recorder: Recorder,
    pub(super) by_node: Queue<Key>,
    pub(super) caches: Arc<Caches>,
    pub(super) metrics: Metrics,
    pub(super) memory: Arc<Mutex<Memory>>,
    /// Whether to force-detach from nodes that time out.
    pub(super) by_force: bool,
}

pub(super) struct Volumes(pub(super) Arc<Attacher>);

pub(super) struct Nodes(pub(super) Arc<Attacher>);

impl Reconciler for Volumes {
    type Key = Key;

    async fn reconcile(&self, key: &Key) -> Result<Outcome, ReconcileError> {
        if let Some(name) = self.0.caches.network_name(key)? {
            self.0.wake_nodes(key, &name)?;
            return Ok(Outcome::Settled);
        }
        match self.0.caches.disk(key)? {
            Some(disk) => self.0.settle(&disk).await,
            None => Ok(Outcome::Settled),
        }
    }
}

impl Reconciler for Nodes {
    type Key = Key;

    async fn reconcile(&self, key: &Key) -> Result<Outcome, ReconcileError> {
        let recheck_after = self.0.report(key).await?;
        Ok(recheck_after.map_or(Outcome::Settled, Outcome::CheckAfter))
    }
}

impl Attacher {
    pub(super) fn new(
        context: &Context,
        options: &Options,
        by_node: Queue<Key>,
        caches: Arc<Caches>,
    ) -> Self {
        Self {
            client: context.client.clone(),
            clock: context.runtime.clock.clone(),
            recorder: context.recorder(COMPONENT),
            by_node,
            caches,
            metrics: context.metrics.clone(),
            memory: Arc::default(),
            by_force: options.force_detach,
        }
    }

    async fn settle(&self, disk: &Disk) -> Result<Outcome, ReconcileError> {
        let sites = self.caches.sites(disk)?;
        let now = self.clock.now();
        let plan = {
            let mut memory = self.memory.lock();
            let since = |node: &str| memory.pending_since(&disk.key, node, now);
            let plan = plan(disk, &sites, since, self.by_force, now);
            memory.keep(&disk.key, &plan.pending_detach, &plan.blocked);
            plan
        };
        for (node, force) in &plan.detach {
            if let Some(attachment) = sites.get(node).and_then(|site| site.attachment.as_ref()) {
                self.detach(disk, attachment, node, *force).await?;
            }
        }
        for node in &plan.attach {
            self.attach(disk, node).await?;
        }
        for node in &plan.blocked {
            self.blocked_events(disk, node, &sites);
        }
        sites.values().for_each(|site| self.failure_events(disk, site));
        Ok(plan.recheck_after.map_or(Outcome::Settled, Outcome::CheckAfter))
    }

    async fn attach(&self, disk: &Disk, node: &str) -> Result<(), ReconcileError> {
        let body = json!({
            "apiVersion": "storage.k8s.io/v1",
            "kind": "VolumeAttachment",
            "metadata": {"name": attachment_name(&disk.csi, node)},
            "spec": {
                "attacher": disk.csi.driver, "nodeName": node, "source": disk.source,
            },
        });
        match self.client.create(&Kind::of::<Attachment>(), None, &body).await {
            // Created earlier, but not in the cache yet.
            Err(error) if error.is_already_exists() => Ok(()),
            created => created.map(drop).attempting(format!("attach volume {} to node {node}", disk.name)),
        }
    }

    /// Removes the volume from `volumesAttached`, then checks that the node no longer uses it (unless forced), then
    /// deletes the attachment.
    async fn detach(
        &self,
        disk: &Disk,
        attachment: &Cached<Attachment>,
        node: &str,
        force: Option<&str>,
    ) -> Result<(), ReconcileError> {
        let key = Key::cluster(node);
        self.memory.lock().detach(attachment.key());
        self.report(&key).await?;
        if force.is_none() && self.still_uses(&disk.csi.unique_name(), &key).await? {
            self.memory.lock().forget(attachment.key());
            self.by_node.add(key);
            return Err(ReconcileError::retry(format!(
                "detach volume {} from node {node}, which still uses it",
                disk.name
            )));
        }
        let delete = DeleteOptions::of_uid(attachment.meta().uid.to_string());
        let deleted =
            self.client.delete(&Kind::of::<Attachment>(), attachment.key(), &delete).await.optional();
        if let Some(reason) = force.filter(|_| deleted.is_ok()) {
            metrics::count_force(&self.metrics, reason);
        }
        deleted.map(drop).attempting(format!("detach volume {} from node {node}", disk.name))
    }

    /// Reads a node past the cache.
    pub(super) async fn fresh_node(&self, node: &Key) -> Result<Option<Cached<Node>>, ReconcileError> {
        let fresh = self.client.get(&Kind::of::<Node>(), node).await.optional();
        let fresh = fresh.attempting(format!("read the volumes in use on node {node}"))?;
        Ok(fresh.map(Cached::<Node>::new).transpose()?)
    }

    /// Whether the node, read past the cache, reports the volume in use.
    pub(super) async fn still_uses(&self, name: &str, node: &Key) -> Result<bool, ReconcileError> {
        let fresh = self.fresh_node(node).await?;
        Ok(fresh.is_some_and(|node| node.uses(name)))
    }

    /// Updates a node's `volumesAttached` if it changed. Returns when to check again.
    async fn report(&self, key: &Key) -> Result<Option<Duration>, ReconcileError> {
        let (attachments, now) = (attachments_on(&self.caches.attachments, key.name())?, self.clock.now());
        let Some(node) = self.caches.nodes.get(key)?.filter(|node| node.is_served()) else { return Ok(None) };
        let mut attached: Vec<(String, Disk, Duration)> = Vec::new();
        for attachment in &attachments {
            let stays = attachment.status.attached && !attachment.meta().is_being_deleted();
            if !stays || self.memory.lock().is_detaching(attachment.key()) {
                continue;
            }
            let disk = attachment.disk().map(|disk| self.caches.disk(&disk)).transpose()?;
            let since = attachment.meta().creation_timestamp.unwrap_or(now).duration_until(now);
            let took = Duration::try_from(since).unwrap_or_default();
            attached.extend(disk.flatten().map(|disk| (disk.csi.unique_name(), disk, took)));
        }
        let network = self.network_disks(&node).await?;
        let of_drivers = attached.iter().map(|(name, ..)| &**name);
        let mut names: Vec<&str> = of_drivers.chain(network.names.iter().map(String::as_str)).collect();
        names.sort_unstable();
        // A volume and an inline disk may be the same disk.
        names.dedup();
        let mut written: Vec<&str> = node.attached.iter().map(|name| &**name).collect();
        written.sort_unstable();
        if names == written {
            self.refresh_memory(key, &network.names).await?;
            return Ok(network.recheck_after);
        }
        self.write_attached(&node, &names).await?;
        self.memory.lock().record_attached(key, &network.names);
        for (name, disk, took) in &attached {
            if !written.contains(&&**name) {
                metrics::count_attached(&self.metrics, disk, *took);
                self.attached_events(disk, key.name())?;
            }
        }
        network.forced.iter().for_each(|reason| metrics::count_force(&self.metrics, reason));
        network.new.iter().for_each(|disk| self.network_attached_events(disk));
        Ok(network.recheck_after)
    }

    async fn write_attached(&self, node: &Cached<Node>, names: &[&str]) -> Result<(), ReconcileError> {
        let entries = names.iter().map(|name| json!({"name": name, "devicePath": ""}));
        let list = if names.is_empty() { Value::Null } else { Value::Array(entries.collect()) };
        let body = json!({"metadata": {"uid": node.meta().uid}, "status": {"volumesAttached": list}});
        let patch = Patch::strategic(&body);
        let patched =
            self.client.patch(&Kind::of::<Node>(), node.key(), Subresource::Status, patch).await.optional();
        patched.map(drop).attempting(format!("update volumesAttached of node {}", node.key()))
    }

    fn attached_events(&self, disk: &Disk, node: &str) -> Result<(), ReconcileError> {
        let sites = self.caches.sites(disk)?;
        let message = format!("AttachVolume.Attach succeeded for volume {:?} ", disk.name);
        for pod in sites.get(node).into_iter().flat_map(|site| &site.pods) {
            self.pod_event(pod, EventType::Normal, "SuccessfulAttachVolume", message.clone());
        }
        Ok(())
    }

    fn blocked_events(&self, disk: &Disk, node: &str, sites: &Sites) {
        if !self.memory.lock().is_first_warning(&disk.key, node) {
            return;
        }
        for pod in sites.get(node).into_iter().flat_map(|site| &site.pods) {
            let message = blocked_message(&disk.name, pod, node, sites);
            self.pod_event(pod, EventType::Warning, "FailedAttachVolume", message);
        }
    }

    /// Emits events for attach failures reported by the driver.
    fn failure_events(&self, disk: &Disk, site: &Site) {
        let Some(attachment) = site.attachment.as_ref().filter(|one| !one.status.attached) else { return };
        let Some(error) = &attachment.status.attach_error else { return };
        if !self.memory.lock().is_new_failure(attachment.key(), &error.message) {
            return;
        }
        let name = &disk.name;
        for pod in &site.pods {
            let message = format!("AttachVolume.Attach failed for volume {name:?} : {}", error.message);
            self.pod_event(pod, EventType::Warning, "FailedAttachVolume", message);
        }
    }

    pub(super) fn pod_event(
        &self,
        pod: &Cached<PodVolumes>,
        event_type: EventType,
        reason: &str,
        message: String,
    ) {
        self.recorder.event(&Kind::of::<PodVolumes>(), pod.object(), event_type, reason, message);
    }
}
