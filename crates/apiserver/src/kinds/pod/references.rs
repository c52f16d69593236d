//! The objects that a pod refers to by name: its node has to read them.

use serde_json::Value;

use crate::json::Json;

/// Marks a mirror pod, which a node runs independently of the server.
pub(crate) const MIRROR: &str = "kubernetes.io/config.mirror";

/// Returns the secrets that a pod uses to pull images, mounts or reads.
pub(crate) fn secrets(spec: &Value) -> Vec<&str> {
    const FIELDS: [&str; 5] = ["secret", "secretRef", "secretKeyRef", "nodePublishSecretRef", "azureFile"];
    let mut names: Vec<&str> =
        spec.list("imagePullSecrets").iter().map(|secret| secret.text("name")).collect();
    collect(spec, &FIELDS, &mut names);
    names
}

/// Returns the config maps that a pod mounts or reads.
pub(crate) fn config_maps(spec: &Value) -> Vec<&str> {
    let mut names = Vec::new();
    collect(spec, &["configMap", "configMapRef", "configMapKeyRef"], &mut names);
    names
}

/// Returns the claims of a pod's volumes, including generated ones.
pub(crate) fn claims(pod: &Value) -> Vec<String> {
    pod.at("spec").list("volumes").iter().filter_map(|volume| claim(pod, volume)).collect()
}

/// Returns the claim of a pod's volume.
pub(crate) fn claim(pod: &Value, volume: &Value) -> Option<String> {
    let claim = match volume.has("ephemeral") {
        true => format!("{}-{}", pod.at("metadata").text("name"), volume.text("name")),
        false => volume.at("persistentVolumeClaim").text("claimName").to_owned(),
    };
    Some(claim).filter(|claim| !claim.is_empty())
}

/// Returns a pod's resource claims, as far as they have been created.
pub(crate) fn device_claims(pod: &Value) -> Vec<&str> {
    let status = pod.at("status");
    let made = |name: &str| {
        let of_name = |status: &&Value| status.text("name") == name;
        status.list("resourceClaimStatuses").iter().find(of_name).map(|made| made.text("resourceClaimName"))
    };
    let wanted = pod.at("spec").list("resourceClaims").iter();
    let named = wanted.filter_map(|claim| match claim.text("resourceClaimName") {
        "" => made(claim.text("name")),
        name => Some(name),
    });
    let extended = status.at("extendedResourceClaimStatus").text("resourceClaimName");
    named.chain([extended]).filter(|name| !name.is_empty()).collect()
}

/// Collects the names referred to under these fields, at any depth.
fn collect<'v>(value: &'v Value, fields: &[&str], names: &mut Vec<&'v str>) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| collect(item, fields, names)),
        Value::Object(entries) => {
            for (field, value) in entries {
                if fields.contains(&field.as_str()) {
                    let both = [value.text("name"), value.text("secretName")];
                    names.extend(both.into_iter().filter(|name| !name.is_empty()));
                }
                collect(value, fields, names);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn references_include_volumes_and_environment() {
        let spec = json!({
            "imagePullSecrets": [{"name": "registry"}],
            "volumes": [
                {"name": "a", "secret": {"secretName": "s1"}},
                {"name": "b", "projected": {"sources": [{"secret": {"name": "s2"}}, {"configMap": {"name": "c1"}}]}},
                {"name": "c", "persistentVolumeClaim": {"claimName": "v1"}},
                {"name": "d", "ephemeral": {}},
            ],
            "containers": [{
                "env": [{"valueFrom": {"secretKeyRef": {"name": "s3"}}}],
                "envFrom": [{"configMapRef": {"name": "c2"}}],
            }],
            "resourceClaims": [{"name": "x", "resourceClaimName": "r1"}, {"name": "y", "resourceClaimTemplateName": "t"},
                {"name": "z", "resourceClaimTemplateName": "t"}],
        });
        let sorted = |mut names: Vec<&str>| {
            names.sort_unstable();
            names.join(" ")
        };
        assert_eq!(sorted(secrets(&spec)), "registry s1 s2 s3");
        assert_eq!(sorted(config_maps(&spec)), "c1 c2");
        let status = json!({"resourceClaimStatuses": [{"name": "y", "resourceClaimName": "r2"}]});
        let pod = json!({"metadata": {"name": "p"}, "spec": spec, "status": status});
        assert_eq!(claims(&pod), ["v1", "p-d"]);
        assert_eq!(device_claims(&pod), ["r1", "r2"]);
    }
}
