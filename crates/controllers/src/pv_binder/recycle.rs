//! The pod that empties a volume.

use serde_json::{Value, json};
use setpoint::{Cached, Key};
use setpoint_volume::Volume;

const PREFIX: &str = "recycler-for-";
/// Recyclers run in a namespace that is always there.
const NAMESPACE: &str = "default";
const IMAGE: &str = "registry.k8s.io/build-image/debian-base:bookworm-v1.0.6";
const EMPTY: &str =
    "test -e /scrub && find /scrub -mindepth 1 -delete && test -z \"$(ls -A /scrub)\" || exit 1";
/// How long emptying may take at least, of a host path and of NFS, and per gigabyte.
const HOST_PATH_SECONDS: i64 = 60;
const NFS_SECONDS: i64 = 300;
const SECONDS_PER_GIGABYTE: i64 = 30;
const GIGABYTE: i64 = 1 << 30;

pub(super) fn key(volume: &Key) -> Key {
    Key::namespaced(NAMESPACE, format!("{PREFIX}{}", volume.name()))
}

/// The volume that a pod of this name empties.
pub(super) fn volume_of(pod: &Key) -> Option<Key> {
    let ours = pod.namespace() == Some(NAMESPACE);
    pod.name().strip_prefix(PREFIX).filter(|_| ours).map(Key::cluster)
}

pub(super) fn body(volume: &Cached<Volume>) -> Value {
    let (source, least) = match (&volume.spec.host_path, &volume.spec.nfs) {
        (Some(source), _) => (json!({"name": "vol", "hostPath": {"path": source.path}}), HOST_PATH_SECONDS),
        (None, Some(nfs)) => {
            (json!({"name": "vol", "nfs": {"server": nfs.server, "path": nfs.path}}), NFS_SECONDS)
        }
        (None, None) => (json!({"name": "vol"}), HOST_PATH_SECONDS),
    };
    let size = volume.size().value();
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": key(volume.key()).name(), "namespace": NAMESPACE},
        "spec": {
            "activeDeadlineSeconds": (size / GIGABYTE * SECONDS_PER_GIGABYTE).max(least),
            "restartPolicy": "Never",
            "volumes": [source],
            "containers": [{
                "name": "pv-recycler", "image": IMAGE, "command": ["/bin/sh"], "args": ["-c", EMPTY],
                "volumeMounts": [{"name": "vol", "mountPath": "/scrub"}],
            }],
        },
    })
}
