//! Fields of features that v1.34 has off: they are dropped on the way in, unless the old object has them.

use serde_json::Value;

use super::CONTAINER_LISTS;
use crate::json::{Json, JsonMut};

pub(super) fn drop_fields(spec: &mut Value, old: &Value) {
    if !old.has("hostnameOverride") {
        spec.unset("hostnameOverride");
    }
    drop_from_containers(spec, old);
    drop_from_volumes(spec, old);
}

fn drop_from_containers(spec: &mut Value, old: &Value) {
    let keep_rules = uses_restart_rules(old);
    let keep_signals = any_container(old, |container| container.at("lifecycle").has("stopSignal"));
    let keep_files = any_container(old, |container| container.list("env").iter().any(reads_file));
    for list in CONTAINER_LISTS {
        for container in spec.list_mut(list) {
            if !keep_rules {
                drop_restart_rules(container, list);
            }
            if !keep_signals {
                drop_stop_signal(container);
            }
            if !keep_files {
                drop_files(container);
            }
        }
    }
}

fn any_container(spec: &Value, has: fn(&Value) -> bool) -> bool {
    spec.is_object() && CONTAINER_LISTS.iter().any(|list| spec.list(list).iter().any(has))
}

/// Restart rules of containers: only sidecars may say how they are restarted.
fn uses_restart_rules(spec: &Value) -> bool {
    let by_init = |container: &Value| {
        !matches!(container.text("restartPolicy"), "" | "Always")
            || !container.list("restartPolicyRules").is_empty()
    };
    spec.list("initContainers").iter().any(by_init)
        || spec.list("containers").iter().any(|container| container.has("restartPolicy"))
}

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

fn reads_file(variable: &Value) -> bool {
    variable.at("valueFrom").has("fileKeyRef")
}

fn drop_files(container: &mut Value) {
    for variable in container.list_mut("env") {
        if let Some(source) = variable.at_mut("valueFrom") {
            source.unset("fileKeyRef");
        }
    }
}

fn drop_from_volumes(spec: &mut Value, old: &Value) {
    drop_image_volumes(spec, old);
    for source in ["clusterTrustBundle", "podCertificate"] {
        let projects =
            |volume: &Value| volume.at("projected").list("sources").iter().any(|from| from.has(source));
        if old.list("volumes").iter().any(projects) {
            continue;
        }
        for volume in spec.list_mut("volumes") {
            let Some(projected) = volume.at_mut("projected") else { continue };
            for projection in projected.list_mut("sources") {
                projection.unset(source);
            }
        }
    }
}

/// Volumes made of images go, and what mounts them.
fn drop_image_volumes(spec: &mut Value, old: &Value) {
    let is_image = |volume: &Value| volume.has("image");
    if !spec.list("volumes").iter().any(is_image) || old.list("volumes").iter().any(is_image) {
        return;
    }
    let Some(Value::Array(volumes)) = spec.at_mut("volumes") else { return };
    let (dropped, kept): (Vec<Value>, Vec<Value>) = volumes.drain(..).partition(is_image);
    *volumes = kept;
    let gone = |mount: &Value| dropped.iter().any(|volume| volume.text("name") == mount.text("name"));
    for list in CONTAINER_LISTS {
        for container in spec.list_mut(list) {
            if let Some(Value::Array(mounts)) = container.at_mut("volumeMounts") {
                mounts.retain(|mount| !gone(mount));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(mut spec: Value, old: Value, expected: Value) {
        drop_fields(&mut spec, &old);
        assert_eq!(spec, expected);
    }

    #[test]
    fn fields_of_features_that_are_off_are_dropped_unless_in_use() {
        let spec = json!({"hostnameOverride": "x", "containers": [{"restartPolicy": "Never",
            "lifecycle": {"stopSignal": "SIGTERM"}, "env": [{"name": "A", "valueFrom": {"fileKeyRef": {}}}]}]});
        let bare = json!({"containers": [{"env": [{"name": "A", "valueFrom": {}}]}]});
        check(spec.clone(), Value::Null, bare);
        check(spec.clone(), spec.clone(), spec);
    }

    #[test]
    fn image_volumes_go_with_their_mounts() {
        check(
            json!({"volumes": [{"name": "i", "image": {}}, {"name": "e", "emptyDir": {}}],
                   "containers": [{"volumeMounts": [{"name": "i"}, {"name": "e"}]}]}),
            Value::Null,
            json!({"volumes": [{"name": "e", "emptyDir": {}}], "containers": [{"volumeMounts": [{"name": "e"}]}]}),
        );
    }

    #[test]
    fn sidecars_keep_their_restart_policy() {
        let spec = json!({"initContainers": [{"restartPolicy": "Always"}]});
        check(spec.clone(), Value::Null, spec);
    }
}
