//! Inline disks of pods, without a claim: those migrated to CSI, and network disks.
//!
//! Hardly any pod has one. A search of the encoded pod finds out without decoding it.

use std::sync::{Arc, LazyLock};

use memchr::memmem::Finder;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use setpoint::indexer::IndexFn;
use setpoint::{Informer, Object};

use crate::in_tree::{FibreChannel, Iscsi, MigratedSource};
use crate::migrated::{
    AZURE_DISK, AZURE_FILE, CINDER, EBS, GCE, PORTWORX, TranslationContext, VSPHERE, translated,
};
use crate::volume::Csi;

/// The ends of the relevant field names. Few other fields match.
static MENTIONED: LazyLock<[Finder<'static>; 7]> = LazyLock::new(|| {
    ["BlockStore\"", "Disk\"", "Volume\"", "\"azureFile\"", "\"cinder\"", "\"iscsi\"", "\"fc\""]
        .map(Finder::new)
});

/// Index of pods by the unique names of their inline disks.
pub const PODS_BY_DISK: &str = "disk";

/// An inline disk of a pod.
#[derive(Clone, Debug, PartialEq)]
pub struct Inline {
    /// Its name in the pod.
    pub name: Box<str>,
    pub disk: InlineDisk,
}

#[derive(Clone, Debug, PartialEq)]
pub enum InlineDisk {
    /// Attached by a CSI driver.
    OfDriver(Translated),
    /// A network disk, with its unique name.
    OnNetwork(String),
}

/// An in-tree disk translated to CSI: a volume that only exists in pods.
#[derive(Clone, Debug, PartialEq)]
pub struct Translated {
    /// The name used in events.
    pub name: String,
    pub csi: Csi,
    /// The spec that such a volume would have.
    pub spec: Value,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Pod {
    spec: Spec,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Spec {
    volumes: Option<Vec<PodVolume>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PodVolume {
    name: Box<str>,
    aws_elastic_block_store: Option<MigratedSource>,
    gce_persistent_disk: Option<MigratedSource>,
    cinder: Option<MigratedSource>,
    azure_disk: Option<MigratedSource>,
    azure_file: Option<MigratedSource>,
    vsphere_volume: Option<MigratedSource>,
    portworx_volume: Option<MigratedSource>,
    iscsi: Option<Iscsi>,
    fc: Option<FibreChannel>,
}

/// Lists the inline disks of a pod.
pub fn inline_disks(pod: &Object) -> Vec<Inline> {
    if !MENTIONED.iter().any(|field| field.find(pod.raw()).is_some()) {
        return Vec::new();
    }
    let Ok(decoded) = pod.decode::<Pod>() else { return Vec::new() };
    let namespace = pod.key().namespace().unwrap_or_default();
    let volumes = decoded.spec.volumes.unwrap_or_default().into_iter();
    volumes.filter_map(|volume| Some(Inline { disk: volume.disk(namespace)?, name: volume.name })).collect()
}

/// Lists the inline CSI disks of a pod.
pub fn translated_disks(pod: &Object) -> impl Iterator<Item = Translated> + use<> {
    inline_disks(pod).into_iter().filter_map(|inline| match inline.disk {
        InlineDisk::OfDriver(disk) => Some(disk),
        InlineDisk::OnNetwork(_) => None,
    })
}

/// Adds the index of pods by inline disk: [`PODS_BY_DISK`].
pub fn index_by_disk(pods: &Informer) {
    let values: IndexFn =
        Arc::new(|pod| inline_disks(pod).iter().map(|inline| inline.disk.unique_name()).collect());
    pods.add_index(PODS_BY_DISK, values);
}

/// Whether a unique name is that of a network disk.
pub fn is_on_network(name: &str) -> bool {
    ["kubernetes.io/iscsi/", "kubernetes.io/fc/"].iter().any(|plugin| name.starts_with(plugin))
}

impl InlineDisk {
    /// The unique volume name.
    pub fn unique_name(&self) -> String {
        match self {
            Self::OfDriver(disk) => disk.csi.unique_name(),
            Self::OnNetwork(name) => name.clone(),
        }
    }
}

impl PodVolume {
    fn disk(&self, namespace: &str) -> Option<InlineDisk> {
        if let Some(iscsi) = &self.iscsi {
            return Some(InlineDisk::OnNetwork(iscsi.unique_name()));
        }
        if let Some(fibre) = &self.fc {
            return fibre.unique_name().map(InlineDisk::OnNetwork);
        }
        let (plugin, source) = self.migrated_source()?;
        let secret_namespace = if namespace.is_empty() { "default" } else { namespace };
        let context =
            TranslationContext { zones: "", resource_group: "", name: &self.name, secret_namespace };
        let csi = translated(plugin, source, &context)?;
        let name = match plugin {
            AZURE_DISK | AZURE_FILE => csi.volume_handle.to_string(),
            GCE => format!("{}-{}", csi.driver, source.id),
            _ => format!("{}-{}", csi.driver, csi.volume_handle),
        };
        let spec = spec_of(plugin, source, &csi, secret_namespace);
        Some(InlineDisk::OfDriver(Translated { name, csi, spec }))
    }

    fn migrated_source(&self) -> Option<(&'static str, &MigratedSource)> {
        let sources = [
            (EBS, &self.aws_elastic_block_store),
            (GCE, &self.gce_persistent_disk),
            (CINDER, &self.cinder),
            (AZURE_DISK, &self.azure_disk),
            (AZURE_FILE, &self.azure_file),
            (VSPHERE, &self.vsphere_volume),
            (PORTWORX, &self.portworx_volume),
        ];
        sources.into_iter().find_map(|(plugin, source)| Some((plugin, source.as_ref()?)))
    }
}

impl Translated {
    /// Whether several nodes may attach it at once.
    pub fn can_be_shared(&self) -> bool {
        matches!(self.spec["accessModes"][0].as_str(), Some("ReadWriteMany" | "ReadOnlyMany"))
    }
}

/// Builds the spec of a volume with this source.
fn spec_of(plugin: &str, source: &MigratedSource, csi: &Csi, secret_namespace: &str) -> Value {
    let access = match plugin {
        AZURE_FILE => "ReadWriteMany",
        GCE | PORTWORX if source.read_only => "ReadOnlyMany",
        _ => "ReadWriteOnce",
    };
    let mut translated_source = json!({"driver": csi.driver, "volumeHandle": csi.volume_handle});
    // `readOnly` of vSphere and Portworx disks was never passed on.
    if source.read_only && !matches!(plugin, VSPHERE | PORTWORX) {
        translated_source["readOnly"] = json!(true);
    }
    if !source.fs_type.is_empty() && plugin != AZURE_FILE {
        translated_source["fsType"] = json!(source.fs_type);
    }
    let attributes = attributes_of(plugin, source);
    if !attributes.is_empty() {
        translated_source["volumeAttributes"] = Value::Object(attributes);
    }
    if plugin == AZURE_FILE {
        translated_source["nodeStageSecretRef"] =
            json!({"name": source.secret_name, "namespace": secret_namespace});
    }
    json!({"accessModes": [access], "csi": translated_source, "volumeMode": "Filesystem"})
}

/// Returns the volume attributes for the driver.
fn attributes_of(plugin: &str, source: &MigratedSource) -> Map<String, Value> {
    let mut attributes = Map::new();
    let mut put = |name: &str, value: &str| {
        attributes.insert(name.to_owned(), value.into());
    };
    match plugin {
        EBS => put("partition", &source.partition.to_string()),
        GCE if source.partition == 0 => put("partition", ""),
        GCE => put("partition", &source.partition.to_string()),
        AZURE_DISK => {
            put("kind", "Managed");
            source
                .caching_mode
                .iter()
                .filter(|mode| !mode.is_empty())
                .for_each(|mode| put("cachingMode", mode));
            if !source.fs_type.is_empty() {
                put("fsType", &source.fs_type);
            }
        }
        AZURE_FILE => put("shareName", &source.share_name),
        VSPHERE if !source.storage_policy_name.is_empty() => {
            put("storagepolicyname", &source.storage_policy_name);
        }
        _ => {}
    }
    attributes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disks(volume: Value) -> Vec<Inline> {
        let mut named = volume;
        named["name"] = json!("data");
        let pod = json!({"metadata": {"name": "p", "namespace": "ns"},
            "spec": {"volumes": [{"name": "none", "emptyDir": {}}, named]}});
        inline_disks(&Object::from_json(pod.to_string().into()).expect("a pod"))
    }

    #[track_caller]
    fn check(volume: Value, name: &str, csi: Value, access: &str) {
        let found = disks(volume.clone());
        let [Inline { name: called, disk: InlineDisk::OfDriver(disk) }] = &found[..] else {
            panic!("{volume}: {found:?}")
        };
        assert_eq!((&**called, &*disk.name), ("data", name), "{volume}");
        let spec = json!({"accessModes": [access], "csi": csi, "volumeMode": "Filesystem"});
        assert_eq!(disk.spec, spec, "{volume}");
        let known = (json!(disk.csi.driver), json!(disk.csi.volume_handle));
        assert_eq!(known, (csi["driver"].clone(), csi["volumeHandle"].clone()), "{volume}");
    }

    #[test]
    fn in_tree_disks_are_translated_to_csi() {
        let once = "ReadWriteOnce";
        let csi = |driver: &str, handle: &str, more: Value| {
            let mut csi = json!({"driver": driver, "volumeHandle": handle});
            for (field, value) in more.as_object().into_iter().flatten() {
                csi[field] = value.clone();
            }
            csi
        };
        let ebs = json!({"volumeID": "aws://z/vol-1", "fsType": "ext4", "readOnly": true});
        let translated_source =
            json!({"fsType": "ext4", "readOnly": true, "volumeAttributes": {"partition": "0"}});
        let (driver, name) = ("ebs.csi.aws.com", "ebs.csi.aws.com-vol-1");
        check(json!({"awsElasticBlockStore": ebs}), name, csi(driver, "vol-1", translated_source), once);
        let gce = json!({"pdName": "d", "readOnly": true});
        let translated_source = json!({"readOnly": true, "volumeAttributes": {"partition": ""}});
        let (driver, name) = ("pd.csi.storage.gke.io", "pd.csi.storage.gke.io-d");
        let handle = "projects/UNSPECIFIED/zones/UNSPECIFIED/disks/d";
        check(
            json!({"gcePersistentDisk": gce}),
            name,
            csi(driver, handle, translated_source),
            "ReadOnlyMany",
        );
        let (driver, name) = ("cinder.csi.openstack.org", "cinder.csi.openstack.org-c");
        check(json!({"cinder": {"volumeID": "c"}}), name, csi(driver, "c", json!({})), once);
        let disk = json!({"diskURI": "u", "kind": "Managed", "cachingMode": "None", "fsType": "ext4"});
        let attributes = json!({"kind": "Managed", "cachingMode": "None", "fsType": "ext4"});
        let translated_source =
            csi("disk.csi.azure.com", "u", json!({"fsType": "ext4", "volumeAttributes": attributes}));
        check(json!({"azureDisk": disk}), "u", translated_source, once);
        let share = json!({"secretName": "azure-storage-account-acc-secret", "shareName": "s"});
        let secret = json!({"name": "azure-storage-account-acc-secret", "namespace": "ns"});
        let translated_source = json!({"volumeAttributes": {"shareName": "s"}, "nodeStageSecretRef": secret});
        let handle = "#acc#s#data#ns";
        check(
            json!({"azureFile": share}),
            handle,
            csi("file.csi.azure.com", handle, translated_source),
            "ReadWriteMany",
        );
        let vsphere = json!({"volumePath": "[x] y", "fsType": "ext4"});
        let (driver, name) = ("csi.vsphere.vmware.com", "csi.vsphere.vmware.com-[x] y");
        check(json!({"vsphereVolume": vsphere}), name, csi(driver, "[x] y", json!({"fsType": "ext4"})), once);
        let (driver, name) = ("pxd.portworx.com", "pxd.portworx.com-p");
        check(json!({"portworxVolume": {"volumeID": "p"}}), name, csi(driver, "p", json!({})), once);
    }

    #[test]
    fn other_volumes_are_not_disks() {
        assert_eq!(disks(json!({"emptyDir": {}})), []);
        assert_eq!(disks(json!({"azureDisk": {"diskURI": "u", "kind": "Shared"}})), []);
        let iscsi = disks(json!({"iscsi": {"targetPortal": "t", "iqn": "i", "lun": 0}}));
        assert_eq!(iscsi[0].disk, InlineDisk::OnNetwork("kubernetes.io/iscsi/t:i:0".into()));
    }
}
