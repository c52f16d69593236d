//! The zone and capacity of a node.

use serde::{Deserialize, Deserializer};
use serde_json::Value;
use setpoint::{Event, Metadata, Object};
use setpoint_quantity::Quantity;

const ZONE: &str = "topology.kubernetes.io/zone";
/// Labels of nodes that are excluded from zone capacity.
const NOT_FOR_USERS: [&str; 2] = ["node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master"];

/// Extracted while decoding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Node {
    pub(super) ready: bool,
    /// In millicores.
    pub(super) cpu: i64,
}

setpoint::view!(Node of k8s_openapi::api::core::v1::Node);

/// Returns the node's zone label.
pub(super) fn zone(node: &Metadata) -> Option<&str> {
    node.label(ZONE).filter(|zone| !zone.is_empty())
}

pub(super) fn is_for_users(node: &Metadata) -> bool {
    !NOT_FOR_USERS.iter().any(|label| node.labels.contains_key(label))
}

/// Whether an event may change zone capacities.
pub(super) fn moves_zones(event: &Event) -> bool {
    match event {
        Event::Updated { old, new } => is_ready(old) != is_ready(new) || zone(old.meta()) != zone(new.meta()),
        _ => true,
    }
}

fn is_ready(node: &Object) -> bool {
    node.view::<Node>().is_ok_and(|node| node.ready)
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize, Default)]
        #[serde(default)]
        struct Encoded {
            status: Status,
        }
        #[derive(Deserialize, Default)]
        #[serde(default)]
        struct Status {
            allocatable: Resources,
            conditions: Vec<Condition>,
        }
        #[derive(Deserialize, Default)]
        #[serde(default)]
        struct Resources {
            cpu: Value,
        }
        #[derive(Deserialize, Default)]
        #[serde(default)]
        struct Condition {
            r#type: String,
            status: String,
        }
        let Encoded { status } = Encoded::deserialize(deserializer)?;
        let ready = status.conditions.iter().find(|condition| condition.r#type == "Ready");
        Ok(Self {
            ready: ready.is_some_and(|ready| ready.status == "True"),
            cpu: Quantity::of(&status.allocatable.cpu).map_or(0, |cpu| cpu.milli_value()),
        })
    }
}
