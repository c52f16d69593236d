//! In-tree volume sources in volumes and pods.

use serde::Deserialize;

/// An in-tree source migrated to CSI. Each kind of source has some of these fields.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct MigratedSource {
    /// Its id at the storage provider.
    #[serde(rename = "volumeID", alias = "diskURI", alias = "pdName", alias = "volumePath")]
    pub(crate) id: Box<str>,
    pub(crate) read_only: bool,
    pub(crate) fs_type: Box<str>,
    pub(crate) partition: i64,
    /// Azure disks only: whether it is managed.
    pub(crate) kind: Option<Box<str>>,
    pub(crate) caching_mode: Option<Box<str>>,
    /// Azure files only.
    pub(crate) share_name: Box<str>,
    pub(crate) secret_name: Box<str>,
    pub(crate) secret_namespace: Option<Box<str>>,
    pub(crate) storage_policy_name: Box<str>,
}

/// An iSCSI disk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Iscsi {
    target_portal: Box<str>,
    iqn: Box<str>,
    lun: i64,
}

/// A Fibre Channel disk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct FibreChannel {
    #[serde(rename = "targetWWNs")]
    targets: Option<Vec<Box<str>>>,
    lun: Option<i64>,
    #[serde(rename = "wwids")]
    ids: Option<Vec<Box<str>>>,
}

impl Iscsi {
    /// The unique volume name.
    pub fn unique_name(&self) -> String {
        format!("kubernetes.io/iscsi/{}:{}:{}", self.target_portal, self.iqn, self.lun)
    }
}

impl FibreChannel {
    /// The unique volume name. `None` if the source is incomplete.
    pub fn unique_name(&self) -> Option<String> {
        let list = |names: &Option<Vec<Box<str>>>| names.as_deref().unwrap_or_default().join(" ");
        match (&self.targets, self.lun, &self.ids) {
            (Some(targets), Some(lun), _) if !targets.is_empty() => {
                Some(format!("kubernetes.io/fc/[{}]:{lun}", list(&self.targets)))
            }
            (.., Some(ids)) if !ids.is_empty() => Some(format!("kubernetes.io/fc/[{}]", list(&self.ids))),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn network_disks_are_named_by_their_location() {
        let iscsi: Iscsi = serde_json::from_value(
            json!({"targetPortal": "10.0.0.1:3260", "iqn": "iqn.2025-01.x", "lun": 3}),
        )
        .expect("a source");
        assert_eq!(iscsi.unique_name(), "kubernetes.io/iscsi/10.0.0.1:3260:iqn.2025-01.x:3");
        let check = |source: Value, expected: Option<&str>| {
            let read: FibreChannel = serde_json::from_value(source.clone()).expect("a source");
            assert_eq!(read.unique_name().as_deref(), expected, "{source}");
        };
        check(json!({"targetWWNs": ["a", "b"], "lun": 2}), Some("kubernetes.io/fc/[a b]:2"));
        check(json!({"wwids": ["c"]}), Some("kubernetes.io/fc/[c]"));
        check(json!({"targetWWNs": ["a"]}), None);
    }
}
