//! The kinds of `storage.k8s.io`.

use super::Api;

pub mod csidriver;
pub mod csinode;
pub mod csistoragecapacity;
pub mod storageclass;
pub mod volumeattachment;
pub mod volumeattributesclass;

const STORAGE: Api = Api { group: "storage.k8s.io", version: "v1", schemas: "io.k8s.api.storage.v1" };
