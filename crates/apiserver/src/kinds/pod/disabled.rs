//! Drops the fields of features that v1.34 disables.

use std::collections::BTreeSet;

use serde_json::Value;

use super::CONTAINER_LISTS;
use crate::json::{Json, JsonMut};

pub(super) fn drop_fields(spec: &mut Value) {
    spec.unset("hostnameOverride");
    for list in CONTAINER_LISTS {
        for container in spec.list_mut(list) {
            drop_restart_rules(container, list);
            drop_stop_signal(container);
            drop_files(container);
        }
    }
    drop_image_volumes(spec);
    drop_projections(spec);
}

/// Drops restart policies and rules; only sidecars keep their restart policy.
fn drop_restart_rules(container: &mut Value, list: &str) {
    if list != "initContainers" || container.text("restartPolicy") != "Always" {
        container.unset("restartPolicy");
    }
    container.unset("restartPolicyRules");
}

fn drop_stop_signal(container: &mut Value) {
    let Some(lifecycle) = container.at_mut("lifecycle") else { return };
    if lifecycle.unset("stopSignal").is_some() && lifecycle.as_object().is_some_and(serde_json::Map::is_empty)
    {
        container.unset("lifecycle");
    }
}

fn drop_files(container: &mut Value) {
    for variable in container.list_mut("env") {
        if let Some(source) = variable.at_mut("valueFrom") {
            source.unset("fileKeyRef");
        }
    }
}

/// Drops image volumes and their mounts.
fn drop_image_volumes(spec: &mut Value) {
    let is_image = |volume: &Value| volume.has("image");
    if !spec.list("volumes").iter().any(is_image) {
        return;
    }
    let Some(Value::Array(volumes)) = spec.at_mut("volumes") else { return };
    let (dropped, kept): (Vec<Value>, Vec<Value>) = volumes.drain(..).partition(is_image);
    *volumes = kept;
    let dropped: BTreeSet<&str> = dropped.iter().map(|volume| volume.text("name")).collect();
    for list in CONTAINER_LISTS {
        for container in spec.list_mut(list) {
            if let Some(Value::Array(mounts)) = container.at_mut("volumeMounts") {
                mounts.retain(|mount| !dropped.contains(mount.text("name")));
            }
        }
    }
}

fn drop_projections(spec: &mut Value) {
    for volume in spec.list_mut("volumes") {
        let Some(projected) = volume.at_mut("projected") else { continue };
        for source in projected.list_mut("sources") {
            source.unset("clusterTrustBundle");
            source.unset("podCertificate");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(mut spec: Value, expected: Value) {
        drop_fields(&mut spec);
        assert_eq!(spec, expected);
    }

    #[test]
    fn fields_of_features_that_are_off_are_dropped() {
        check(
            json!({"hostnameOverride": "x", "containers": [{"restartPolicy": "Never",
                "lifecycle": {"stopSignal": "SIGTERM"}, "env": [{"name": "A", "valueFrom": {"fileKeyRef": {}}}]}]}),
            json!({"containers": [{"env": [{"name": "A", "valueFrom": {}}]}]}),
        );
    }

    #[test]
    fn image_volumes_are_dropped_with_their_mounts() {
        check(
            json!({"volumes": [{"name": "i", "image": {}}, {"name": "e", "emptyDir": {}}],
                   "containers": [{"volumeMounts": [{"name": "i"}, {"name": "e"}]}]}),
            json!({"volumes": [{"name": "e", "emptyDir": {}}], "containers": [{"volumeMounts": [{"name": "e"}]}]}),
        );
    }

    #[test]
    fn sidecars_keep_their_restart_policy() {
        let spec = json!({"initContainers": [{"restartPolicy": "Always"}]});
        check(spec.clone(), spec);
    }
}
