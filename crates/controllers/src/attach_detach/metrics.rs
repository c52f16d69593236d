//! Metrics of attached volumes, with the names Kubernetes uses.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use setpoint::Key;
use setpoint::metrics::{Labels, Metrics};
use setpoint::object::DecodeError;
use setpoint_volume::inline::{InlineDisk, inline_disks, is_on_network};
use setpoint_volume::migrated::csi_source;
use setpoint_volume::{Csi, PodVolumes, Volume, bound_volume, is_terminated};

use super::disk::Disk;
use super::observe::Caches;
use crate::metrics::{self, Counts};

/// Registers the gauges of volumes in use and of volumes to attach.
pub(super) fn register_gauges(metrics: &Metrics, caches: &Arc<Caches>) {
    let (used, all) = (caches.clone(), caches.clone());
    let help = "Attachable volumes that pods use, by node and plugin";
    metrics::register_gauge(metrics, "storage_count_attachable_volumes_in_use", help, move || {
        used.in_use().unwrap_or_default()
    });
    let help = "Volumes by plugin and by whether they should be or are attached";
    metrics::register_gauge(metrics, "attachdetach_controller_total_volumes", help, move || {
        all.totals().unwrap_or_default()
    });
}

/// Counts a forced detach.
pub(super) fn count_force(metrics: &Metrics, reason: &str) {
    let name = "attach_detach_controller_attachdetach_controller_forced_detaches";
    let help = "Volumes detached without waiting for the node to unmount them";
    metrics.count_as(name, help, &[("reason", reason)], 1);
}

/// Histogram buckets of volume operations.
const OPERATION_SECONDS: &[f64] =
    &[0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 25.0, 50.0, 120.0, 300.0, 600.0];

/// Records that a driver attached a disk.
pub(super) fn count_attached(metrics: &Metrics, disk: &Disk, took: Duration) {
    let (plugin, migrated) = (plugin_of(&disk.csi.driver), disk.is_migrated.to_string());
    let labels = [
        ("migrated", migrated.as_str()),
        ("operation_name", "volume_attach"),
        ("status", "success"),
        ("volume_plugin", plugin.as_str()),
    ];
    let (name, help) = ("storage_operation_duration_seconds", "Seconds a storage operation took");
    metrics.observe(name, help, OPERATION_SECONDS, &labels, took.as_secs_f64());
}

/// A disk that a pod uses: its unique name, its plugin and its driver.
struct Used {
    name: String,
    plugin: String,
    driver: Option<Box<str>>,
}

impl Used {
    fn of_driver(csi: &Csi) -> Self {
        Self { name: csi.unique_name(), plugin: plugin_of(&csi.driver), driver: Some(csi.driver.clone()) }
    }

    fn on_network(name: String) -> Self {
        // `kubernetes.io/iscsi/…`
        let plugin = name.splitn(3, '/').take(2).collect::<Vec<_>>().join("/");
        Self { name, plugin, driver: None }
    }

    fn volume(volume: &setpoint::Cached<Volume>) -> Option<Self> {
        match csi_source(volume) {
            Some(csi) => Some(Self::of_driver(&csi)),
            None => volume.network_name().map(Self::on_network),
        }
    }
}

fn plugin_of(driver: &str) -> String {
    format!("kubernetes.io/csi:{driver}")
}

impl Caches {
    /// Lists the disks that a pod uses.
    fn used_by(&self, pod: &setpoint::Cached<PodVolumes>) -> Result<Vec<Used>, DecodeError> {
        let mut used = Vec::new();
        for volume in pod.volumes() {
            let bound = bound_volume(pod, volume, &self.claims, &self.volumes)?;
            used.extend(bound.as_ref().and_then(Used::volume));
        }
        used.extend(inline_disks(pod.object()).into_iter().map(|inline| match inline.disk {
            InlineDisk::OfDriver(disk) => Used::of_driver(&disk.csi),
            InlineDisk::OnNetwork(name) => Used::on_network(name),
        }));
        Ok(used)
    }

    /// Counts the volumes that pods use, by node and plugin.
    fn in_use(&self) -> Result<Counts, DecodeError> {
        let mut counts = Counts::new();
        for pod in self.pods.list(None)? {
            let Some(node) = pod.node() else { continue };
            for used in self.used_by(&pod)? {
                let labels: Labels = vec![("node", node.to_owned()), ("volume_plugin", used.plugin)];
                *counts.entry(labels).or_default() += 1;
            }
        }
        Ok(counts)
    }

    /// Counts desired and actual attachments, by plugin.
    fn totals(&self) -> Result<Counts, DecodeError> {
        let mut wanted = BTreeSet::new();
        for pod in self.pods.list(None)? {
            let node = pod.node().filter(|_| !is_terminated(&pod));
            let Some(node) = node else { continue };
            if !self.nodes.get(&Key::cluster(node))?.is_some_and(|node| node.is_served()) {
                continue;
            }
            for used in self.used_by(&pod)? {
                if self.attaches(used.driver.as_deref())? {
                    wanted.insert((node.to_owned(), used.name, used.plugin));
                }
            }
        }
        let labels = |plugin: String, state: &str| -> Labels {
            vec![("plugin_name", plugin), ("state", state.to_owned())]
        };
        let mut counts =
            metrics::count(wanted.into_iter().map(|(_, _, plugin)| labels(plugin, "desired_state_of_world")));
        let attached = self.attachments.list(None)?;
        let attached = attached.iter().filter(|attachment| attachment.status.attached);
        let attached = attached.map(|one| plugin_of(&one.spec.attacher));
        let nodes = self.nodes.list(None)?;
        let found = nodes.iter().flat_map(|node| &node.attached).filter(|name| is_on_network(name));
        let found = found.map(|name| Used::on_network(name.to_string()).plugin);
        let actual = attached.chain(found).map(|plugin| labels(plugin, "actual_state_of_world"));
        counts.extend(metrics::count(actual));
        Ok(counts)
    }

    /// Whether a driver attaches its volumes. Network disks have no driver, but are reported to nodes as attached.
    fn attaches(&self, driver: Option<&str>) -> Result<bool, DecodeError> {
        let Some(driver) = driver else { return Ok(true) };
        let driver = self.drivers.get(&Key::cluster(driver))?;
        Ok(driver.is_none_or(|driver| driver.attaches()))
    }
}
