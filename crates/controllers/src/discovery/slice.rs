//! The contents of an EndpointSlice. Pure.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use setpoint::{Cached, Labels, Metadata};

use super::address::Family;
use crate::workload::encoding::{Annotated, null_is_empty};

/// The label with the Service of a slice.
pub(crate) const SERVICE_NAME: &str = "kubernetes.io/service-name";
/// The label with the controller that manages a slice.
pub(crate) const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Slice {
    #[serde(default)]
    pub(crate) metadata: Annotated,
    /// `None` for FQDN slices, which these controllers do not create.
    #[serde(deserialize_with = "family", default)]
    pub(crate) address_type: Option<Family>,
    #[serde(default, deserialize_with = "null_is_empty")]
    pub(crate) endpoints: Vec<Endpoint>,
    #[serde(default)]
    pub(crate) ports: Option<Vec<Port>>,
}

setpoint::view!(Slice of k8s_openapi::api::discovery::v1::EndpointSlice);

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Endpoint {
    #[serde(deserialize_with = "null_is_empty")]
    pub(crate) addresses: Vec<String>,
    pub(crate) conditions: Conditions,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) hostname: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) target_ref: Option<TargetRef>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) node_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) zone: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) hints: Option<Hints>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub(crate) struct Conditions {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ready: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) serving: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) terminating: Option<bool>,
}

/// Topology hints of an endpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Hints {
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_is_empty")]
    pub(crate) for_zones: Vec<Named>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_is_empty")]
    pub(crate) for_nodes: Vec<Named>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub(crate) struct Named {
    pub(crate) name: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct TargetRef {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) kind: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) namespace: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) uid: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) api_version: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) resource_version: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) field_path: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Port {
    pub(crate) name: Option<String>,
    pub(crate) port: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) protocol: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) app_protocol: Option<String>,
}

/// The sorted ports of a slice. Slices with equal ports are filled together.
pub(crate) type PortsKey = Vec<Port>;

/// The identity of an endpoint. Everything else can be updated in place.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct EndpointKey {
    addresses: Vec<String>,
    hostname: Option<String>,
    target: Option<(String, String)>,
}

/// Endpoints of one family with the same ports, without duplicates.
pub(crate) type EndpointSet = BTreeMap<EndpointKey, Endpoint>;

impl Slice {
    pub(crate) fn ports_key(&self) -> PortsKey {
        ports_key(self.ports.clone().unwrap_or_default())
    }
}

pub(crate) fn ports_key(mut ports: Vec<Port>) -> PortsKey {
    ports.sort_unstable();
    ports
}

impl Endpoint {
    pub(crate) fn key(&self) -> EndpointKey {
        let mut addresses = self.addresses.clone();
        addresses.sort_unstable();
        let target = self.target_ref.as_ref();
        EndpointKey {
            addresses,
            hostname: self.hostname.clone().filter(|hostname| !hostname.is_empty()),
            target: target.map(|target| (target.namespace.clone(), target.name.clone())),
        }
    }

    /// Whether two endpoints are equal apart from their identity, hints and the target's resource version, which
    /// changes without the endpoint changing.
    pub(crate) fn same_state(&self, other: &Self) -> bool {
        let target = |endpoint: &Self| {
            let target = endpoint.target_ref.clone();
            target.map(|target| TargetRef { resource_version: String::new(), ..target })
        };
        (&self.node_name, &self.zone, self.conditions) == (&other.node_name, &other.zone, other.conditions)
            && target(self) == target(other)
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.conditions.ready == Some(true)
    }
}

/// Whether a slice is managed by this controller.
pub(crate) fn is_managed_by(labels: &Labels, controller: &str) -> bool {
    labels.get(MANAGED_BY) == Some(controller)
}

/// Whether a Service or Endpoints object owns a slice.
pub(crate) fn is_owned_by(slice: &Cached<Slice>, kind: &str, uid: &str) -> bool {
    let mut owners = slice.meta().owner_references.iter();
    owners.any(|owner| *owner.uid == *uid && *owner.kind == *kind && *owner.api_version == *"v1")
}

fn family<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Family>, D::Error> {
    Ok(Family::named(&String::deserialize(deserializer)?))
}

impl TargetRef {
    pub(crate) fn to_pod(pod: &Metadata) -> Self {
        Self {
            kind: "Pod".to_owned(),
            namespace: pod.namespace.as_deref().unwrap_or_default().to_owned(),
            name: pod.name.to_string(),
            uid: pod.uid.to_string(),
            ..Self::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::workload::fixtures::cached;

    #[test]
    fn lists_that_are_null_are_empty() {
        let slice: Cached<Slice> = cached(json!({
            "metadata": {"name": "s", "annotations": null}, "addressType": "IPv4", "endpoints": null, "ports": null,
        }));
        assert_eq!((slice.endpoints.len(), slice.ports_key().len()), (0, 0));
        let names: Cached<Slice> =
            cached(json!({"metadata": {"name": "s"}, "addressType": "FQDN", "endpoints": []}));
        assert_eq!(names.address_type, None);
    }
}
