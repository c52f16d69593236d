//! AppArmor profiles in annotations, which predate the field.

use serde_json::{Value, json};

use super::CONTAINER_LISTS;
use super::validation::annotations::APPARMOR;
use crate::json::{Json, JsonMut};

/// Converts an annotation to the field's value.
pub(super) fn of_annotation(annotation: &str) -> Option<Value> {
    match annotation {
        "unconfined" => Some(json!({"type": "Unconfined"})),
        "runtime/default" => Some(json!({"type": "RuntimeDefault"})),
        other => {
            let file =
                other.strip_prefix("localhost/").filter(|file| !file.is_empty() && file.trim() == *file)?;
            Some(json!({"type": "Localhost", "localhostProfile": file}))
        }
    }
}

/// Sets the field of containers whose profile is only in an annotation.
pub(super) fn fill_in(pod: &mut Value) {
    let annotations = pod.at("metadata").at("annotations");
    let named = |name: &String| name.starts_with(APPARMOR);
    let any = annotations.as_object().is_some_and(|annotations| annotations.keys().any(named));
    if !any || pod.at("spec").at("os").text("name") == "windows" {
        return;
    }
    let annotations = annotations.clone();
    let spec = pod.object_mut("spec");
    let pod_profile = spec.at("securityContext").at("appArmorProfile").clone();
    for list in CONTAINER_LISTS {
        for container in spec.list_mut(list) {
            let key = format!("{APPARMOR}{}", container.text("name"));
            let profile = of_annotation(annotations.text(&key)).filter(|profile| *profile != pod_profile);
            if let Some(profile) = profile.filter(|_| !container.at("securityContext").has("appArmorProfile"))
            {
                container.object_mut("securityContext").set("appArmorProfile", profile);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn annotations_become_fields() {
        let mut pod = json!({"metadata": {"annotations": {(format!("{APPARMOR}a")): "unconfined"}},
            "spec": {"containers": [{"name": "a"}, {"name": "b"}]}});
        fill_in(&mut pod);
        let containers = &pod["spec"]["containers"];
        assert_eq!(containers[0]["securityContext"]["appArmorProfile"], json!({"type": "Unconfined"}));
        assert!(containers[1].get("securityContext").is_none());
    }
}
