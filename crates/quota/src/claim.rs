//! Quota usage of PersistentVolumeClaims.

use std::collections::BTreeMap;

use serde::Deserialize;
use setpoint_quantity::Quantity;

use crate::resources::Resources;
use crate::scope::Scope;

const NUMBER: &str = "persistentvolumeclaims";
const STORAGE: &str = "requests.storage";
const OF_CLASS: &str = ".storageclass.storage.k8s.io/";
/// The deprecated class annotation.
const CLASS_ANNOTATION: &str = "volume.beta.kubernetes.io/storage-class";

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Claim {
    metadata: Metadata,
    spec: Spec,
    status: Status,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
struct Metadata {
    annotations: Option<BTreeMap<String, String>>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    storage_class_name: Option<String>,
    volume_attributes_class_name: Option<String>,
    resources: Requirements,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
struct Requirements {
    requests: Resources,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    allocated_resources: Resources,
    current_volume_attributes_class_name: Option<String>,
    modify_volume_status: Option<ModifyStatus>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ModifyStatus {
    target_volume_attributes_class_name: String,
}

pub(crate) fn counts(resource: &str) -> bool {
    let name = resource.split_once(OF_CLASS).map_or(resource, |(_, name)| name);
    resource == "count/persistentvolumeclaims" || name == NUMBER || name == STORAGE
}

impl Claim {
    pub(crate) fn usage(&self) -> Resources {
        let mut usage = Resources::new();
        usage.set_count("count/persistentvolumeclaims", 1);
        usage.set_count(NUMBER, 1);
        let class = self.class();
        if let Some(class) = class {
            usage.set_count(format!("{class}{OF_CLASS}{NUMBER}"), 1);
        }
        if let Some(storage) = self.storage() {
            usage.set(STORAGE, storage);
            if let Some(class) = class {
                usage.set(format!("{class}{OF_CLASS}{STORAGE}"), storage);
            }
        }
        usage
    }

    fn class(&self) -> Option<&str> {
        let annotated = self.metadata.annotations.as_ref().and_then(|all| all.get(CLASS_ANNOTATION));
        annotated
            .or(self.spec.storage_class_name.as_ref())
            .map(String::as_str)
            .filter(|class| !class.is_empty())
    }

    /// Returns the larger of requested and actual storage, in whole units.
    fn storage(&self) -> Option<Quantity> {
        let asked = whole(self.spec.resources.requests.get("storage")?);
        let got = self.status.allocated_resources.get("storage").map(whole);
        Some(got.filter(|got| *got > asked).unwrap_or(asked))
    }

    pub(crate) fn matches(&self, scope: &Scope) -> bool {
        if scope.scope_name != "VolumeAttributesClass" {
            return false;
        }
        let target = self
            .status
            .modify_volume_status
            .as_ref()
            .map(|status| &status.target_volume_attributes_class_name);
        let named =
            [&self.spec.volume_attributes_class_name, &self.status.current_volume_attributes_class_name];
        let names = named.into_iter().flatten().chain(target).filter(|name| !name.is_empty());
        let mut names = names.map(String::as_str).peekable();
        match names.peek() {
            None => scope.holds(None),
            Some(_) => names.any(|name| scope.holds(Some(name))),
        }
    }
}

fn whole(amount: &Quantity) -> Quantity {
    let rounded = Quantity::new(amount.value(), amount.format());
    if rounded == *amount { *amount } else { rounded }
}
