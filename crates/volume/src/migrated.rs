//! CSI drivers of migrated in-tree plugins. In v1.34 all of these are migrated: their volumes are handled by the
//! driver.

use std::borrow::Cow;

use setpoint::{Cached, Labels};

use crate::in_tree::MigratedSource;
use crate::volume::{Csi, Volume};

/// In-tree plugins and their CSI drivers.
const MIGRATED: [(&str, &str); 7] = [
    (EBS, "ebs.csi.aws.com"),
    (GCE, "pd.csi.storage.gke.io"),
    (CINDER, "cinder.csi.openstack.org"),
    (AZURE_DISK, "disk.csi.azure.com"),
    (AZURE_FILE, "file.csi.azure.com"),
    (VSPHERE, "csi.vsphere.vmware.com"),
    (PORTWORX, "pxd.portworx.com"),
];

pub(crate) const EBS: &str = "kubernetes.io/aws-ebs";
pub(crate) const GCE: &str = "kubernetes.io/gce-pd";
pub(crate) const CINDER: &str = "kubernetes.io/cinder";
pub(crate) const AZURE_DISK: &str = "kubernetes.io/azure-disk";
pub(crate) const AZURE_FILE: &str = "kubernetes.io/azure-file";
pub(crate) const VSPHERE: &str = "kubernetes.io/vsphere-volume";
pub(crate) const PORTWORX: &str = "kubernetes.io/portworx-volume";

/// Volume annotation: the resource group of an Azure file share.
const RESOURCE_GROUP: &str = "kubernetes.io/azure-file-resource-group";

/// Returns the CSI driver of a migrated plugin.
pub fn driver_of(plugin: &str) -> Option<&'static str> {
    MIGRATED.iter().find(|(migrated_source, _)| *migrated_source == plugin).map(|(_, driver)| *driver)
}

/// Returns a volume's CSI source: its own, or the translation of its in-tree source. `None` if there is none.
pub fn csi_source(volume: &Cached<Volume>) -> Option<Cow<'_, Csi>> {
    if let Some(csi) = &volume.spec.csi {
        return Some(Cow::Borrowed(csi));
    }
    let (plugin, source) = volume.migrated_source()?;
    let claim = volume.spec.claim_ref.as_ref();
    let context = TranslationContext {
        zones: zones_of(&volume.meta().labels),
        resource_group: volume.metadata.get(RESOURCE_GROUP).unwrap_or_default(),
        name: volume.key().name(),
        secret_namespace: match &source.secret_namespace {
            Some(namespace) => namespace,
            None => claim.map(|claim| &*claim.namespace).unwrap_or_default(),
        },
    };
    translated(plugin, source, &context).map(Cow::Owned)
}

/// Inputs of a volume handle besides its source.
pub(crate) struct TranslationContext<'a> {
    pub(crate) zones: &'a str,
    pub(crate) resource_group: &'a str,
    pub(crate) name: &'a str,
    pub(crate) secret_namespace: &'a str,
}

/// Translates an in-tree source to CSI.
pub(crate) fn translated(
    plugin: &str,
    source: &MigratedSource,
    context: &TranslationContext<'_>,
) -> Option<Csi> {
    let volume_handle = match plugin {
        EBS => ebs_volume(&source.id)?.into(),
        GCE => gce_disk(&source.id, context.zones)?.into(),
        AZURE_DISK if !is_managed(source) => return None,
        AZURE_FILE => azure_share(source, context)?.into(),
        _ => source.id.clone(),
    };
    Some(Csi { driver: driver_of(plugin)?.into(), volume_handle })
}

/// Parses `aws://zone/vol-1`, or just its last part.
fn ebs_volume(id: &str) -> Option<&str> {
    let Some(place) = id.strip_prefix("aws://") else { return Some(id) };
    let volume = place.split_once('/').map_or("", |(_, path)| path).trim_matches('/');
    (volume.starts_with("vol-") && !volume.contains('/')).then_some(volume)
}

fn zones_of(labels: &Labels) -> &str {
    let mut zones = ["failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone"]
        .into_iter()
        .filter_map(|label| labels.get(label));
    zones.find(|zones| !zones.is_empty()).unwrap_or_default()
}

/// Returns the handle of a disk, by zone or by region for several zones.
fn gce_disk(name: &str, zones: &str) -> Option<String> {
    let all: Vec<&str> = zones.split("__").collect();
    Some(match &all[..] {
        [""] => format!("projects/UNSPECIFIED/zones/UNSPECIFIED/disks/{name}"),
        [zone] => format!("projects/UNSPECIFIED/zones/{zone}/disks/{name}"),
        several => format!("projects/UNSPECIFIED/regions/{}/disks/{name}", region_of(several)?),
    })
}

/// `europe-west1-b` is in `europe-west1`. All zones of a disk are in one region.
fn region_of<'a>(zones: &[&'a str]) -> Option<&'a str> {
    let of_zone = |zone: &&'a str| {
        (zone.split('-').count() == 3).then(|| zone.rsplit_once('-').map(|(region, _)| region)).flatten()
    };
    let regions: Vec<&str> = zones.iter().map(of_zone).collect::<Option<_>>()?;
    let first = *regions.first()?;
    regions.iter().all(|region| *region == first).then_some(first)
}

/// Only managed disks are migrated.
fn is_managed(source: &MigratedSource) -> bool {
    source.kind.as_deref().is_none_or(|kind| kind.eq_ignore_ascii_case("managed"))
}

fn azure_share(source: &MigratedSource, context: &TranslationContext<'_>) -> Option<String> {
    if context.secret_namespace.is_empty() {
        return None;
    }
    let (group, name, namespace) = (context.resource_group, context.name, context.secret_namespace);
    let account = account_of(&source.secret_name);
    Some(format!("{group}#{account}#{}#{name}#{namespace}", source.share_name))
}

/// `azure-storage-account-NAME-secret` is the Secret of account NAME. Any other name is the account itself.
fn account_of(secret: &str) -> &str {
    let account =
        secret.split_once("azure-storage-account-").and_then(|(_, rest)| rest.rsplit_once("-secret"));
    account.map(|(name, _)| name).filter(|name| !name.is_empty()).unwrap_or(secret)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use setpoint::Object;

    use super::*;

    #[track_caller]
    fn check(metadata: Value, spec: Value, expected: Option<(&str, &str)>) {
        let mut text = json!({"metadata": metadata, "spec": spec});
        text["metadata"]["name"] = json!("v");
        let object = Object::from_json(text.to_string().into()).expect("a volume");
        let volume = Cached::<Volume>::new(object).expect("a volume");
        let known = csi_source(&volume).map(|csi| (csi.driver.to_string(), csi.volume_handle.to_string()));
        let expected = expected.map(|(driver, handle)| (driver.to_owned(), handle.to_owned()));
        assert_eq!(known, expected, "{text}");
    }

    fn none() -> Value {
        json!({})
    }

    #[test]
    fn an_in_tree_volume_is_translated_for_its_csi_driver() {
        check(none(), json!({"csi": {"driver": "d", "volumeHandle": "h"}}), Some(("d", "h")));
        check(none(), json!({"hostPath": {"path": "/x"}}), None);
        let aws = |id: &str| json!({"awsElasticBlockStore": {"volumeID": id}});
        check(none(), aws("aws://us-east-1a/vol-1"), Some(("ebs.csi.aws.com", "vol-1")));
        check(none(), aws("aws:///vol-1"), Some(("ebs.csi.aws.com", "vol-1")));
        check(none(), aws("vol-1"), Some(("ebs.csi.aws.com", "vol-1")));
        check(none(), aws("aws://us-east-1a/disk"), None);
        check(none(), json!({"cinder": {"volumeID": "c"}}), Some(("cinder.csi.openstack.org", "c")));
        let vsphere = json!({"vsphereVolume": {"volumePath": "[x] y"}});
        check(none(), vsphere, Some(("csi.vsphere.vmware.com", "[x] y")));
        check(none(), json!({"portworxVolume": {"volumeID": "p"}}), Some(("pxd.portworx.com", "p")));
    }

    #[test]
    fn disks_are_zonal_or_regional() {
        let gce = || json!({"gcePersistentDisk": {"pdName": "d"}});
        let disk = |place: &str| format!("projects/UNSPECIFIED/{place}/disks/d");
        let driver = "pd.csi.storage.gke.io";
        let (new, old) = ("topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone");
        check(none(), gce(), Some((driver, &disk("zones/UNSPECIFIED"))));
        check(json!({"labels": {new: "z-1-a"}}), gce(), Some((driver, &disk("zones/z-1-a"))));
        check(json!({"labels": {new: "z-1-a", old: "z-1-b"}}), gce(), Some((driver, &disk("zones/z-1-b"))));
        check(json!({"labels": {old: "z-1-a__z-1-b"}}), gce(), Some((driver, &disk("regions/z-1"))));
        check(json!({"labels": {old: "z-1-a__z-2-b"}}), gce(), None);
        check(json!({"labels": {old: "z-1-a__z"}}), gce(), None);
    }

    #[test]
    fn azure_disks_and_file_shares_are_translated() {
        let disk = |kind: Value| json!({"azureDisk": {"diskName": "n", "diskURI": "u", "kind": kind}});
        for kind in [Value::Null, json!("Managed"), json!("managed")] {
            check(none(), disk(kind), Some(("disk.csi.azure.com", "u")));
        }
        check(none(), disk(json!("Shared")), None);
        let share = |secret: &str, namespace: Value| json!({"azureFile": {"secretName": secret, "shareName": "s", "secretNamespace": namespace}});
        let of_account = share("azure-storage-account-acc-secret", json!("ns"));
        check(none(), of_account, Some(("file.csi.azure.com", "#acc#s#v#ns")));
        let group = json!({"annotations": {"kubernetes.io/azure-file-resource-group": "rg"}});
        check(group, share("plain", json!("ns")), Some(("file.csi.azure.com", "rg#plain#s#v#ns")));
        check(none(), share("plain", Value::Null), None);
        let mut claimed = share("plain", Value::Null);
        claimed["claimRef"] = json!({"namespace": "team", "name": "c"});
        check(none(), claimed, Some(("file.csi.azure.com", "#plain#s#v#team")));
    }
}
