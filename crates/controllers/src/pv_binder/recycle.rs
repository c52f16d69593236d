//! The recycler pod, which scrubs a volume.

use serde_json::{Value, json};
use setpoint::{Cached, Key};
use setpoint_volume::Volume;

const PREFIX: &str = "recycler-for-";
/// The namespace of recycler pods; it always exists.
const NAMESPACE: &str = "default";
const IMAGE: &str = "registry.k8s.io/build-image/debian-base:bookworm-v1.0.6";
const EMPTY: &str =
    "test -e /scrub && find /scrub -mindepth 1 -delete && test -z \"$(ls -A /scrub)\" || exit 1";
const GIGABYTE: i64 = 1 << 30;

/// Timeouts for scrubbing a volume in seconds: minimum, and per gigabyte.
#[derive(Clone, Copy, Debug)]
pub struct Recycling {
    pub host_path_least: i64,
    pub host_path_per_gigabyte: i64,
    pub nfs_least: i64,
    pub nfs_per_gigabyte: i64,
}

impl Default for Recycling {
    fn default() -> Self {
        Self { host_path_least: 60, host_path_per_gigabyte: 30, nfs_least: 300, nfs_per_gigabyte: 30 }
    }
}

impl Recycling {
    fn of_host_path(self) -> (i64, i64) {
        (self.host_path_least, self.host_path_per_gigabyte)
    }
}

pub(super) fn key(volume: &Key) -> Key {
    Key::namespaced(NAMESPACE, format!("{PREFIX}{}", volume.name()))
}

/// Returns the volume of the recycler pod with this name.
pub(super) fn volume_of(pod: &Key) -> Option<Key> {
    let ours = pod.namespace() == Some(NAMESPACE);
    pod.name().strip_prefix(PREFIX).filter(|_| ours).map(Key::cluster)
}

pub(super) fn body(volume: &Cached<Volume>, recycling: Recycling) -> Value {
    let (source, (least, per_gigabyte)) = match (&volume.spec.host_path, &volume.spec.nfs) {
        (Some(source), _) => {
            (json!({"name": "vol", "hostPath": {"path": source.path}}), recycling.of_host_path())
        }
        (None, Some(nfs)) => {
            let source = json!({"name": "vol", "nfs": {"server": nfs.server, "path": nfs.path}});
            (source, (recycling.nfs_least, recycling.nfs_per_gigabyte))
        }
        (None, None) => (json!({"name": "vol"}), recycling.of_host_path()),
    };
    let size = volume.size().value();
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": key(volume.key()).name(), "namespace": NAMESPACE},
        "spec": {
            "activeDeadlineSeconds": (size / GIGABYTE).saturating_mul(per_gigabyte).max(least),
            "restartPolicy": "Never",
            "volumes": [source],
            "containers": [{
                "name": "pv-recycler", "image": IMAGE, "command": ["/bin/sh"], "args": ["-c", EMPTY],
                "volumeMounts": [{"name": "vol", "mountPath": "/scrub"}],
            }],
        },
    })
}
