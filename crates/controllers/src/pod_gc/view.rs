//! Typed view of a node.

use serde::{Deserialize, Deserializer};

/// The taint an administrator sets on a node that is down for good.
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

/// The fields of a node that pod GC uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Node {
    pub(super) ready: bool,
    pub(super) out_of_service: bool,
}

setpoint::view!(Node of k8s_openapi::api::core::v1::Node);

#[derive(Deserialize, Default)]
#[serde(default)]
struct Encoded {
    spec: Spec,
    status: Status,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Spec {
    taints: Vec<Taint>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Taint {
    key: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Status {
    conditions: Vec<Condition>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Condition {
    r#type: String,
    status: String,
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Encoded { spec, status } = Encoded::deserialize(deserializer)?;
        let ready = status.conditions.iter().find(|condition| condition.r#type == "Ready");
        Ok(Self {
            ready: ready.is_some_and(|ready| ready.status == "True"),
            out_of_service: spec.taints.iter().any(|taint| taint.key == OUT_OF_SERVICE),
        })
    }
}
