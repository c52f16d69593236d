//! Expands `subPathExpr` of volume mounts. Pure.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use crate::program::{Pod as Fields, Variable};

/// The pod fields needed for that.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Pod {
    spec: Spec,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    containers: Vec<Container>,
    init_containers: Vec<Container>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Container {
    name: Box<str>,
    env: Vec<Variable>,
    volume_mounts: Vec<Mount>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Mount {
    sub_path_expr: Box<str>,
}

/// Pods that do not mention this field need not be decoded.
pub(crate) const FIELD: &str = "\"subPathExpr\":";

impl Pod {
    /// Returns the containers with invalid mounts, with the kubelet's messages.
    pub(crate) fn complaints(&self, fields: Fields<'_>) -> Vec<(Box<str>, String)> {
        let containers = self.spec.init_containers.iter().chain(&self.spec.containers);
        let complaints = containers.filter_map(|container| {
            let why = container.volume_mounts.iter().find_map(|mount| container.complaint(mount, fields))?;
            Some((container.name.clone(), why))
        });
        complaints.collect()
    }
}

impl Container {
    fn complaint(&self, mount: &Mount, fields: Fields<'_>) -> Option<String> {
        let known: BTreeMap<_, _> = self.env.iter().filter_map(|variable| variable.known(fields)).collect();
        let is_unknown =
            |name: &str| !known.contains_key(name) && self.env.iter().any(|set| *set.name == *name);
        let mut missing = BTreeSet::new();
        let mut is_unresolved = false;
        let path = expand(&mount.sub_path_expr, |name| {
            is_unresolved |= is_unknown(name);
            let value = known.get(name).map_or("", String::as_str);
            if value.is_empty() {
                missing.insert(name.to_owned());
            }
            value.to_owned()
        });
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
}

/// Expands each `$(name)` in a text; `$$` is a dollar sign.
fn expand(text: &str, mut value: impl FnMut(&str) -> String) -> String {
    let (mut expanded, mut rest) = (String::new(), text);
    while let Some(at) = rest.find('$') {
        expanded.push_str(&rest[..at]);
        let after = &rest[at + 1..];
        let named = after.strip_prefix('(').and_then(|inside| inside.split_once(')'));
        if let Some((name, left)) = named {
            expanded.push_str(&value(name));
            rest = left;
        } else {
            expanded.push('$');
            rest = after.strip_prefix('$').unwrap_or(after);
        }
    }
    expanded + rest
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_sub_path_needs_its_variables_and_stays_within_the_volume() {
        let check = |path: &str, env: Value, expected: &str| {
            let container = json!({"name": "c", "env": env, "volumeMounts": [{"subPathExpr": path}]});
            let pod: Pod =
                serde_json::from_value(json!({"spec": {"containers": [container]}})).expect("a pod");
            let object = setpoint::Object::from_json(r#"{"metadata":{"name":"p"}}"#.into()).expect("a pod");
            let annotations = [("dir".to_owned(), "logs".to_owned())].into();
            let fields = Fields { meta: object.meta(), annotations: &annotations };
            let messages: Vec<String> = pod.complaints(fields).into_iter().map(|(_, why)| why).collect();
            assert_eq!(messages.join(";"), expected, "{path}");
        };
        let from = |path: &str| json!([{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": path}}}]);
        let value = |value: &str| json!([{"name": "A", "value": value}]);
        check("x/$(A)", from("metadata.name"), "");
        check("$(A)", from("metadata.annotations['dir']"), "");
        check("$(A)", from("metadata.annotations['other']"), "missing value for A");
        check("$(B)", json!([]), "missing value for B");
        check("$(A)", value("/tmp"), "error SubPath `/tmp` must not be an absolute path");
        check("a/$(A)", value(".."), "unable to provision SubPath `a/..`: must not contain '..'");
        check("$$(A)$", json!([]), "");
        let secret = json!([{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]);
        check("$(A)", secret, "");
    }
}
