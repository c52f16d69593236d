//! The kinds of `flowcontrol.apiserver.k8s.io`.

use super::Api;

pub mod flowschema;
pub mod prioritylevelconfiguration;

const FLOW_CONTROL: Api =
    Api { group: "flowcontrol.apiserver.k8s.io", version: "v1", schemas: "io.k8s.api.flowcontrol.v1" };
