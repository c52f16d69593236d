//! A pod as its containers need it: complete specs, and the states of their runs. Decoded when it is needed, not cached
//! with the pod.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Volume};
use serde::Deserialize;

use crate::view::{ContainerStatus, Status};

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Pod {
    pub(crate) metadata: Meta,
    pub(crate) spec: Spec,
    pub(crate) status: PodStatus,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Meta {
    pub(crate) name: String,
    pub(crate) namespace: String,
    pub(crate) uid: String,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) annotations: BTreeMap<String, String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Spec {
    pub(crate) containers: Vec<Container>,
    pub(crate) init_containers: Vec<Container>,
    /// They have the fields of other containers.
    pub(crate) ephemeral_containers: Vec<Container>,
    pub(crate) volumes: Vec<Volume>,
    pub(crate) hostname: Option<String>,
    pub(crate) subdomain: Option<String>,
    pub(crate) host_network: bool,
    pub(crate) node_name: String,
    pub(crate) service_account_name: String,
    pub(crate) enable_service_links: Option<bool>,
    pub(crate) security_context: UserIds,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct UserIds {
    pub(crate) run_as_user: Option<i64>,
    pub(crate) run_as_group: Option<i64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct PodStatus {
    #[serde(rename = "hostIP")]
    pub(crate) host_ip: String,
    #[serde(rename = "podIPs")]
    pub(crate) pod_ips: Vec<PodIp>,
    #[serde(flatten)]
    pub(crate) status: Status,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct PodIp {
    pub(crate) ip: String,
}

impl Pod {
    /// Lists the containers of all kinds, in the order in which they start.
    pub(crate) fn all_containers(&self) -> impl Iterator<Item = &Container> {
        let Spec { init_containers, containers, ephemeral_containers, .. } = &self.spec;
        init_containers.iter().chain(containers).chain(ephemeral_containers)
    }

    pub(crate) fn container(&self, name: &str) -> Option<&Container> {
        self.all_containers().find(|container| container.name == name)
    }

    pub(crate) fn status_of(&self, container: &str) -> Option<&ContainerStatus> {
        let Status { container_statuses, init_container_statuses, ephemeral_container_statuses, .. } =
            &self.status.status;
        let mut all =
            container_statuses.iter().chain(init_container_statuses).chain(ephemeral_container_statuses);
        all.find(|status| status.name == container)
    }

    pub(crate) fn host_name(&self) -> &str {
        match &self.spec.hostname {
            _ if self.spec.host_network => &self.spec.node_name,
            Some(name) if !name.is_empty() => name,
            // Host names have at most 63 characters.
            _ => {
                let name = &self.metadata.name;
                name[..name.len().min(63)].trim_end_matches(['-', '.'])
            }
        }
    }

    pub(crate) fn ips(&self) -> Vec<&str> {
        self.status.pod_ips.iter().map(|ip| ip.ip.as_str()).collect()
    }
}

#[cfg(test)]
pub(crate) fn pod_of(value: serde_json::Value) -> Pod {
    serde_json::from_value(value).expect("a pod")
}
