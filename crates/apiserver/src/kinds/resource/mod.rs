//! The kinds of `resource.k8s.io`: devices and claims.
//!
//! Features that v1.34 disables leave no trace (device taints unless enabled, shared counters, consumable capacity,
//! binding conditions, extended resources): their fields are dropped before any other processing.

use super::Api;

mod claim;
pub mod deviceclass;
pub mod devicetaintrule;
mod naming;
pub mod resourceclaim;
pub mod resourceclaimtemplate;
pub mod resourceslice;
mod selector;
mod status;

const RESOURCE_V1ALPHA3: Api =
    Api { group: "resource.k8s.io", version: "v1alpha3", schemas: "io.k8s.api.resource.v1alpha3" };
const RESOURCE: Api = Api { group: "resource.k8s.io", version: "v1", schemas: "io.k8s.api.resource.v1" };
