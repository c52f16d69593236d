//! The kinds of `resource.k8s.io`: devices, and claims to them.
//!
//! Features that are off in v1.34 (taints of devices, unless somebody turns them on, shared counters, capacity that is consumed, conditions
//! before binding, extended resources) leave no trace: their fields are dropped before anything looks.

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
