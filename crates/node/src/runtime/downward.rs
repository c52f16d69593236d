//! The downward API: fields and resources of a pod as text. Pure.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, ResourceFieldSelector};
use serde_json::Value;
use setpoint_placement::Resources;
use setpoint_quantity::Quantity;

use super::pod::Pod;

/// Returns a field of a pod. An error names a field that is not supported.
pub(crate) fn field(pod: &Pod, path: &str) -> Result<String, String> {
    let subscript = path.strip_suffix("']").and_then(|path| path.split_once("['"));
    let of = |map: &BTreeMap<String, String>, key: &str| map.get(key).cloned().unwrap_or_default();
    Ok(match (path, subscript) {
        (_, Some(("metadata.annotations", key))) => of(&pod.metadata.annotations, key),
        (_, Some(("metadata.labels", key))) => of(&pod.metadata.labels, key),
        ("metadata.annotations", _) => lines(&pod.metadata.annotations),
        ("metadata.labels", _) => lines(&pod.metadata.labels),
        ("metadata.name", _) => pod.metadata.name.clone(),
        ("metadata.namespace", _) => pod.metadata.namespace.clone(),
        ("metadata.uid", _) => pod.metadata.uid.clone(),
        ("spec.nodeName", _) => pod.spec.node_name.clone(),
        ("spec.serviceAccountName", _) => pod.spec.service_account_name.clone(),
        ("status.hostIP" | "status.hostIPs", _) => pod.status.host_ip.clone(),
        ("status.podIP", _) => pod.ips().first().copied().unwrap_or_default().to_owned(),
        ("status.podIPs", _) => pod.ips().join(","),
        _ => return Err(format!("unsupported fieldPath: {path}")),
    })
}

/// Formats a map as v1.34 does: sorted lines of `key="value"`.
fn lines(map: &BTreeMap<String, String>) -> String {
    let lines = map.iter().map(|(key, value)| format!("{key}={}", Value::from(value.as_str())));
    lines.collect::<Vec<_>>().join("\n")
}

/// Returns a request or limit of a container. A limit that is not set is what the node has.
pub(crate) fn resource(
    pod: &Pod,
    container: Option<&Container>,
    selector: &ResourceFieldSelector,
    allocatable: &Resources,
) -> Result<String, String> {
    let named = selector.container_name.as_deref().filter(|name| !name.is_empty());
    let container = match named {
        Some(name) => pod.container(name),
        None => container,
    };
    let container = container.ok_or_else(|| format!("container {} not found", named.unwrap_or_default()))?;
    let path = &selector.resource;
    let unsupported = || format!("unsupported container resource : {path}");
    let (kind, name) = path.split_once('.').ok_or_else(unsupported)?;
    let is_known = matches!(name, "cpu" | "memory" | "ephemeral-storage") || name.starts_with("hugepages-");
    if !is_known || !matches!(kind, "limits" | "requests") {
        return Err(unsupported());
    }
    let resources = container.resources.as_ref();
    let declared = match kind {
        "limits" => resources.and_then(|resources| resources.limits.as_ref()),
        _ => resources.and_then(|resources| resources.requests.as_ref()),
    };
    let declared = declared.and_then(|all| all.get(name)).and_then(|amount| Quantity::parse(&amount.0).ok());
    let of_node = || allocatable.get(name).and_then(|amount| Quantity::of(amount).ok());
    let amount = match kind {
        "limits" => declared.filter(|amount| !amount.is_zero()).or_else(of_node),
        _ => declared,
    };
    let divisor = selector.divisor.as_ref().and_then(|divisor| Quantity::parse(&divisor.0).ok());
    let units = if name == "cpu" { Quantity::milli_value } else { Quantity::value };
    let divisor = divisor
        .filter(|divisor| !divisor.is_zero())
        .map_or(if name == "cpu" { 1000 } else { 1 }, |d| units(&d));
    let amount = amount.map_or(0, |amount| units(&amount));
    Ok(((amount as f64 / divisor as f64).ceil() as i64).to_string())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::runtime::pod::pod_of;

    fn pod() -> Pod {
        pod_of(json!({
            "metadata": {"name": "p", "namespace": "ns", "uid": "u", "labels": {"b": "2", "a": "\"1\""}, "annotations": {"x/y": "z"}},
            "spec": {"nodeName": "node-0", "serviceAccountName": "sa", "containers": [
                {"name": "c", "resources": {"limits": {"cpu": "1500m"}, "requests": {"memory": "64Mi"}}}]},
            "status": {"hostIP": "1.1.1.1", "podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}]},
        }))
    }

    #[test]
    fn fields_are_text() {
        let check = |path: &str, expected: Result<&str, &str>| {
            let found = field(&pod(), path);
            assert_eq!(found.as_deref().map_err(String::as_str), expected, "{path}");
        };
        check("metadata.labels", Ok("a=\"\\\"1\\\"\"\nb=\"2\""));
        check("metadata.labels['b']", Ok("2"));
        check("metadata.annotations['x/y']", Ok("z"));
        check("metadata.annotations['none']", Ok(""));
        check("status.podIP", Ok("10.0.0.1"));
        check("status.podIPs", Ok("10.0.0.1,fd00::1"));
        check("spec.nodeName", Ok("node-0"));
        check("spec.restartPolicy", Err("unsupported fieldPath: spec.restartPolicy"));
    }

    #[test]
    fn resources_are_divided_and_rounded_up() {
        let pod = pod();
        let check = |resource: &str, divisor: &str, expected: Result<&str, &str>| {
            let selector: ResourceFieldSelector =
                serde_json::from_value(json!({"resource": resource, "divisor": divisor}))
                    .expect("a selector");
            let allocatable =
                serde_json::from_value(json!({"cpu": "32", "memory": "1Gi"})).expect("resources");
            let found = super::resource(&pod, pod.container("c"), &selector, &allocatable);
            assert_eq!(found.as_deref().map_err(String::as_str), expected, "{resource}");
        };
        check("limits.cpu", "0", Ok("2"));
        check("limits.cpu", "1m", Ok("1500"));
        check("requests.cpu", "1m", Ok("0"));
        check("requests.memory", "1Mi", Ok("64"));
        check("limits.memory", "1Gi", Ok("1"));
        check("limits.gpu", "1", Err("unsupported container resource : limits.gpu"));
    }
}
