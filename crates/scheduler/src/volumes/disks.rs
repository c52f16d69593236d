//! Disks specified inline in pods: a disk that cannot be shared excludes other pods from its node. Pure.

use std::collections::BTreeSet;

use serde::Deserialize;
use setpoint::Object;

use crate::filter::{Check, Obstacle};
use crate::ledger::NodeInfo;
use crate::view::Pod;

/// The field names of inline disks. A pod that mentions none has none.
const MENTIONS: [&str; 4] = ["gcePersistentDisk", "awsElasticBlockStore", "\"iscsi\"", "\"rbd\""];

/// The inline disks of a pod.
#[derive(Clone)]
pub(crate) struct DiskNeeds {
    own: Vec<Volume>,
    /// Pods hypothetically removed from their node.
    away: BTreeSet<Box<str>>,
}

#[derive(Deserialize)]
struct Encoded {
    #[serde(default)]
    spec: Spec,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Spec {
    volumes: Vec<Volume>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Volume {
    gce_persistent_disk: Option<GceDisk>,
    aws_elastic_block_store: Option<EbsDisk>,
    iscsi: Option<Iscsi>,
    rbd: Option<Rbd>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct GceDisk {
    pd_name: Box<str>,
    read_only: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
struct EbsDisk {
    #[serde(rename = "volumeID")]
    volume_id: Box<str>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Iscsi {
    iqn: Box<str>,
    read_only: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Rbd {
    monitors: Vec<Box<str>>,
    pool: Box<str>,
    image: Box<str>,
    read_only: bool,
}

impl DiskNeeds {
    /// Returns the inline disks of a pod. `None` if it has none.
    pub(crate) fn of(pod: &Pod) -> Option<Self> {
        let own = disks_of(pod.object());
        (!own.is_empty()).then(|| Self { own, away: BTreeSet::new() })
    }

    /// Accounts for another pod that was removed from or returned to its node.
    pub(crate) fn count(&mut self, other: &Pod, by: i64) {
        let uid = &other.meta().uid;
        if by < 0 {
            self.away.insert(uid.clone())
        } else {
            self.away.remove(uid)
        };
    }

    pub(crate) fn obstacle(&self, node: &NodeInfo) -> Option<Obstacle> {
        let staying = node.pods.iter().filter(|(uid, _)| !self.away.contains(*uid));
        let mut theirs = staying.flat_map(|(_, pod_info)| disks_of(pod_info.pod.object()));
        let clash = theirs.any(|their| self.own.iter().any(|own| own.clashes_with(&their)));
        clash.then(|| Obstacle::resolvable(Check::VolumeUse, "node(s) had no available disk"))
    }
}

fn disks_of(pod: &Object) -> Vec<Volume> {
    if !MENTIONS.iter().any(|field| pod.contains_text(field)) {
        return Vec::new();
    }
    let mut volumes = pod.decode::<Encoded>().map(|pod| pod.spec.volumes).unwrap_or_default();
    volumes.retain(Volume::is_disk);
    volumes
}

impl Volume {
    fn is_disk(&self) -> bool {
        self.gce_persistent_disk.is_some()
            || self.aws_elastic_block_store.is_some()
            || self.iscsi.is_some()
            || self.rbd.is_some()
    }

    /// Whether both are the same disk and at least one use is not read-only.
    fn clashes_with(&self, other: &Self) -> bool {
        let gce = self.gce_persistent_disk.as_ref().zip(other.gce_persistent_disk.as_ref());
        let ebs = self.aws_elastic_block_store.as_ref().zip(other.aws_elastic_block_store.as_ref());
        let iscsi = self.iscsi.as_ref().zip(other.iscsi.as_ref());
        let rbd = self.rbd.as_ref().zip(other.rbd.as_ref());
        gce.is_some_and(|(a, b)| a.pd_name == b.pd_name && !(a.read_only && b.read_only))
            || ebs.is_some_and(|(a, b)| a == b)
            || iscsi.is_some_and(|(a, b)| a.iqn == b.iqn && !(a.read_only && b.read_only))
            || rbd.is_some_and(|(a, b)| a.is_image_of(b) && !(a.read_only && b.read_only))
    }
}

impl Rbd {
    fn is_image_of(&self, other: &Self) -> bool {
        self.pool == other.pool
            && self.image == other.image
            && self.monitors.iter().any(|monitor| other.monitors.contains(monitor))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_disk_is_shared_only_by_readers() {
        let disks = |volume: Value| {
            let pod = json!({"metadata": {"name": "p"}, "spec": {"volumes": [volume, {"emptyDir": {}}]}});
            disks_of(&Object::from_json(pod.to_string().into()).expect("a pod"))
        };
        let check = |one: Value, other: Value, expected: bool| {
            let (one, other) = (disks(one), disks(other));
            assert_eq!(one[0].clashes_with(&other[0]), expected, "{one:?} {other:?}");
        };
        let gce = |name: &str, ro: bool| json!({"gcePersistentDisk": {"pdName": name, "readOnly": ro}});
        check(gce("a", false), gce("a", true), true);
        check(gce("a", true), gce("a", true), false);
        check(gce("a", false), gce("b", false), false);
        let ebs = |id: &str| json!({"awsElasticBlockStore": {"volumeID": id}});
        check(ebs("a"), ebs("a"), true);
        check(ebs("a"), gce("a", false), false);
        let iscsi = |ro: bool| json!({"iscsi": {"iqn": "q", "readOnly": ro}});
        check(iscsi(false), iscsi(false), true);
        let rbd = |monitors: Value| json!({"rbd": {"monitors": monitors, "pool": "p", "image": "i"}});
        check(rbd(json!(["a", "b"])), rbd(json!(["b"])), true);
        check(rbd(json!(["a"])), rbd(json!(["b"])), false);
        assert!(disks(json!({"configMap": {"name": "c"}})).is_empty());
    }
}
