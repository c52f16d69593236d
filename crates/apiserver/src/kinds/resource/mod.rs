//! The kinds of `resource.k8s.io`: devices, and claims to them.

use super::Api;

pub mod deviceclass;
pub mod resourceclaim;
pub mod resourceclaimtemplate;
pub mod resourceslice;

const RESOURCE: Api = Api { group: "resource.k8s.io", version: "v1", schemas: "io.k8s.api.resource.v1" };
