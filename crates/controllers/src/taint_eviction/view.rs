//! Typed views of node taints and pod tolerations.

use serde::{Deserialize, Deserializer};

use crate::workload::encoding::null_is_empty;
use setpoint_placement::{Taint, Toleration};

/// A node's `NoExecute` taints.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct NodeTaints {
    pub(super) taints: Box<[Taint]>,
}

setpoint::view!(NodeTaints of k8s_openapi::api::core::v1::Node);

/// A pod's node and tolerations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PodTolerations {
    pub(super) node: Box<str>,
    pub(super) tolerations: Box<[Toleration]>,
}

setpoint::view!(PodTolerations of k8s_openapi::api::core::v1::Pod);

impl<'de> Deserialize<'de> for NodeTaints {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize, Default)]
        #[serde(default)]
        struct Encoded {
            spec: Spec,
        }
        #[derive(Deserialize, Default)]
        #[serde(default)]
        struct Spec {
            #[serde(deserialize_with = "null_is_empty")]
            taints: Vec<Taint>,
        }
        let taints = Encoded::deserialize(deserializer)?.spec.taints;
        Ok(Self { taints: taints.into_iter().filter(|taint| *taint.effect == *"NoExecute").collect() })
    }
}

impl<'de> Deserialize<'de> for PodTolerations {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize, Default)]
        #[serde(default)]
        struct Encoded {
            spec: Spec,
        }
        #[derive(Deserialize, Default)]
        #[serde(rename_all = "camelCase", default)]
        struct Spec {
            node_name: Box<str>,
            #[serde(deserialize_with = "null_is_empty")]
            tolerations: Box<[Toleration]>,
        }
        let Spec { node_name, tolerations } = Encoded::deserialize(deserializer)?.spec;
        Ok(Self { node: node_name, tolerations })
    }
}
