//! The few fields of a pod that are needed for grouping, decoded without the rest: there may be ten thousand pods.

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;
use setpoint::Object;

use crate::read::Read;

/// A summary of a pod.
#[derive(Clone, Debug, Default)]
pub(crate) struct Summary {
    pub(crate) is_ready: bool,
    pub(crate) has_ended: bool,
    /// Pods with the same fingerprint are in the same state for the same reason.
    pub(crate) fingerprint: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Light {
    spec: Spec,
    status: Value,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Spec {
    node_name: String,
    scheduling_gates: Vec<IgnoredAny>,
}

impl Summary {
    /// Summarizes a pod. The state of a pod that cannot be decoded is unknown.
    pub(crate) fn of(pod: &Object) -> Self {
        let light: Light = pod.decode().unwrap_or_default();
        let conditions = light.status.items("/conditions");
        let is_ready =
            conditions.iter().any(|one| one.text("/type") == "Ready" && one.text("/status") == "True");
        let phase = light.status.text("/phase");
        Self {
            is_ready,
            has_ended: matches!(phase, "Succeeded" | "Failed"),
            fingerprint: fingerprint(pod, &light),
        }
    }
}

fn fingerprint(pod: &Object, light: &Light) -> String {
    let Light { spec, status } = light;
    let mut parts = vec![status.text("/phase"), status.text("/reason")];
    if pod.meta().is_being_deleted() {
        parts.push("deleted");
    }
    for condition in status.items("/conditions") {
        parts.extend(["/type", "/status", "/reason"].map(|path| condition.text(path)));
        if spec.node_name.is_empty() {
            parts.push(condition.text("/message"));
        }
    }
    for list in ["/initContainerStatuses", "/containerStatuses"] {
        for container in status.items(list) {
            let state = container.at("/state").as_object().into_iter().flatten().next();
            parts.push(state.map_or("", |(name, _)| name.as_str()));
            let reasons =
                ["/state/waiting/reason", "/state/terminated/reason", "/lastState/terminated/reason"];
            parts.extend(reasons.map(|path| container.text(path)));
        }
    }
    let gates = spec.scheduling_gates.len();
    format!("{}|{gates}", parts.join("|"))
}
