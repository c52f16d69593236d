//! The drivers that have taken over from plugins that were once built in. In v1.34 all of these have moved
//! out: whoever asks for a plugin of old gets its driver.

use std::borrow::Cow;

use setpoint::Cached;

use crate::volume::{Csi, Volume};

/// Plugins and their drivers.
const MOVED: [(&str, &str); 7] = [
    ("kubernetes.io/aws-ebs", "ebs.csi.aws.com"),
    ("kubernetes.io/gce-pd", "pd.csi.storage.gke.io"),
    ("kubernetes.io/cinder", "cinder.csi.openstack.org"),
    ("kubernetes.io/azure-disk", "disk.csi.azure.com"),
    ("kubernetes.io/azure-file", "file.csi.azure.com"),
    ("kubernetes.io/vsphere-volume", "csi.vsphere.vmware.com"),
    ("kubernetes.io/portworx-volume", "pxd.portworx.com"),
];

/// The driver that does what a plugin did, if it has moved out.
pub fn driver_of(plugin: &str) -> Option<&'static str> {
    MOVED.iter().find(|(moved, _)| *moved == plugin).map(|(_, driver)| *driver)
}

/// What a driver knows a volume by: the volume's own word, or what became of the word of a plugin of old.
pub fn behind_driver(volume: &Cached<Volume>) -> Option<Cow<'_, Csi>> {
    if let Some(csi) = &volume.spec.csi {
        return Some(Cow::Borrowed(csi));
    }
    let driver = driver_of(volume.moved_plugin()?)?;
    let spec = &volume.spec;
    let handle: Box<str> = if let Some(moved) = &spec.aws_elastic_block_store {
        // `aws://zone/vol-1`
        moved.id.rsplit('/').next()?.into()
    } else if let Some(moved) = &spec.gce_persistent_disk {
        disk_of(volume, &moved.id).into()
    } else {
        let others = [&spec.cinder, &spec.azure_disk, &spec.vsphere_volume, &spec.portworx_volume];
        others.into_iter().flatten().next()?.id.clone()
    };
    Some(Cow::Owned(Csi { driver: driver.into(), volume_handle: handle }))
}

/// A disk by the zone that labels name, or by the region of several zones.
fn disk_of(volume: &Cached<Volume>, name: &str) -> String {
    let labels = &volume.meta().labels;
    let zones = ["topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"];
    let zones = zones.into_iter().find_map(|label| labels.get(label)).unwrap_or_default();
    let mut all = zones.split("__").filter(|zone| !zone.is_empty());
    match (all.next(), all.next()) {
        (Some(zone), None) => format!("projects/UNSPECIFIED/zones/{zone}/disks/{name}"),
        // `europe-west1-b` is in `europe-west1`.
        (Some(zone), Some(_)) => {
            let region = zone.rsplit_once('-').map_or(zone, |(region, _)| region);
            format!("projects/UNSPECIFIED/regions/{region}/disks/{name}")
        }
        (None, _) => format!("projects/UNSPECIFIED/zones/UNSPECIFIED/disks/{name}"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use setpoint::Object;

    use super::*;

    #[test]
    fn a_volume_of_old_is_known_to_the_driver_that_took_over() {
        let check = |labels: Value, spec: Value, expected: Option<(&str, &str)>| {
            let text = json!({"metadata": {"name": "v", "labels": labels}, "spec": spec});
            let object = Object::from_json(text.to_string().into()).expect("a volume");
            let volume = Cached::<Volume>::new(object).expect("a volume");
            let known =
                behind_driver(&volume).map(|csi| (csi.driver.to_string(), csi.volume_handle.to_string()));
            let expected = expected.map(|(driver, handle)| (driver.to_owned(), handle.to_owned()));
            assert_eq!(known, expected, "{text}");
        };
        let none = || json!({});
        check(none(), json!({"csi": {"driver": "d", "volumeHandle": "h"}}), Some(("d", "h")));
        check(none(), json!({"hostPath": {"path": "/x"}}), None);
        let aws = json!({"awsElasticBlockStore": {"volumeID": "aws://us-east-1a/vol-1"}});
        check(none(), aws, Some(("ebs.csi.aws.com", "vol-1")));
        check(none(), json!({"cinder": {"volumeID": "c"}}), Some(("cinder.csi.openstack.org", "c")));
        check(
            none(),
            json!({"azureDisk": {"diskName": "n", "diskURI": "u"}}),
            Some(("disk.csi.azure.com", "u")),
        );
        check(
            none(),
            json!({"vsphereVolume": {"volumePath": "[x] y"}}),
            Some(("csi.vsphere.vmware.com", "[x] y")),
        );
        check(none(), json!({"portworxVolume": {"volumeID": "p"}}), Some(("pxd.portworx.com", "p")));
        let gce = || json!({"gcePersistentDisk": {"pdName": "d"}});
        let disk = |place: &str| format!("projects/UNSPECIFIED/{place}/disks/d");
        let driver = "pd.csi.storage.gke.io";
        check(none(), gce(), Some((driver, &disk("zones/UNSPECIFIED"))));
        check(json!({"topology.kubernetes.io/zone": "z-1-a"}), gce(), Some((driver, &disk("zones/z-1-a"))));
        let two = json!({"failure-domain.beta.kubernetes.io/zone": "z-1-a__z-1-b"});
        check(two, gce(), Some((driver, &disk("regions/z-1"))));
    }
}
