//! Expands `subPathExpr` of volume mounts. Pure.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::EnvVar;

use crate::files::MAX_PATH;
use crate::runtime::environment::expand;
use crate::runtime::{Pod, downward};

/// Pods that do not mention this field need not be decoded.
pub(crate) const FIELD: &str = "\"subPathExpr\":";

/// Returns the containers with invalid mounts, with the kubelet's messages.
pub(crate) fn complaints(pod: &Pod) -> Vec<(Box<str>, String)> {
    let containers = pod.spec.init_containers.iter().chain(&pod.spec.containers);
    let complaints = containers.filter_map(|container| {
        let expressions: Vec<&str> = container
            .volume_mounts
            .iter()
            .flatten()
            .filter_map(|mount| mount.sub_path_expr.as_deref())
            .collect();
        if expressions.is_empty() {
            return None;
        }
        let variables = container.env.as_deref().unwrap_or_default();
        let known: BTreeMap<_, _> = variables.iter().filter_map(|variable| known(pod, variable)).collect();
        let why = expressions.into_iter().find_map(|path| complaint(variables, &known, path))?;
        Some((container.name.as_str().into(), why))
    });
    complaints.collect()
}

/// Returns the value of a variable, if it is known before the pod has started and without reading other objects.
fn known(pod: &Pod, variable: &EnvVar) -> Option<(String, String)> {
    let value = match &variable.value_from {
        None => variable.value.clone().unwrap_or_default(),
        Some(from) => {
            let path = &from.field_ref.as_ref()?.field_path;
            downward::field(pod, path).ok().filter(|_| !path.starts_with("status."))?
        }
    };
    // A longer one is no path.
    let is_known = value.len() <= MAX_PATH && !value.contains("$(");
    is_known.then(|| (variable.name.clone(), value))
}

fn complaint(variables: &[EnvVar], known: &BTreeMap<String, String>, expression: &str) -> Option<String> {
    let is_unknown = |name: &str| !known.contains_key(name) && variables.iter().any(|set| set.name == name);
    let mut missing = BTreeSet::new();
    let mut is_unresolved = false;
    let path = expand(expression, MAX_PATH, |name| {
        is_unresolved |= is_unknown(name);
        let value = known.get(name).map_or("", String::as_str);
        if value.is_empty() {
            missing.insert(name.to_owned());
        }
        Some(value)
    });
    let Some(path) = path else {
        return Some(format!("the expanded SubPath is longer than {MAX_PATH} bytes"));
    };
    if is_unresolved {
        None
    } else if !missing.is_empty() {
        Some(format!("missing value for {}", missing.into_iter().collect::<Vec<_>>().join(", ")))
    } else if path.starts_with('/') {
        Some(format!("error SubPath `{path}` must not be an absolute path"))
    } else if path.split('/').any(|part| part == "..") {
        Some(format!("unable to provision SubPath `{path}`: must not contain '..'"))
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_sub_path_needs_its_variables_and_stays_within_the_volume() {
        let check = |path: &str, env: Value, expected: &str| {
            let mount = json!({"name": "v", "mountPath": "/v", "subPathExpr": path});
            let container = json!({"name": "c", "env": env, "volumeMounts": [mount]});
            let metadata = json!({"name": "p", "annotations": {"dir": "logs"}});
            let pod = json!({"metadata": metadata, "spec": {"containers": [container]}});
            let pod: Pod = serde_json::from_value(pod).expect("a pod");
            let messages: Vec<String> = complaints(&pod).into_iter().map(|(_, why)| why).collect();
            assert_eq!(messages.join(";"), expected, "{path}");
        };
        let from = |path: &str| json!([{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": path}}}]);
        let value = |value: &str| json!([{"name": "A", "value": value}]);
        check("x/$(A)", from("metadata.name"), "");
        check("$(A)", from("metadata.annotations['dir']"), "");
        check("$(A)", from("metadata.annotations['other']"), "missing value for A");
        check("$(A)", from("status.podIP"), "");
        check("$(B)", json!([]), "missing value for B");
        check("$(A)", value("/tmp"), "error SubPath `/tmp` must not be an absolute path");
        check("a/$(A)", value(".."), "unable to provision SubPath `a/..`: must not contain '..'");
        check("$$(A)$", json!([]), "");
        let secret = json!([{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]);
        check("$(A)", secret, "");
    }
}
