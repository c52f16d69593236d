//! The built-in definitions, one file each.

use std::sync::OnceLock;

use serde_json::Value;

use super::file::{BadDefinition, definition_object};
use super::model::Definition;
use crate::digest;

const FILES: &[(&str, &str)] = &[
    ("component/cron-task.cue", include_str!("../../definitions/component/cron-task.cue")),
    ("component/daemon.cue", include_str!("../../definitions/component/daemon.cue")),
    ("component/k8s-objects.cue", include_str!("../../definitions/component/k8s-objects.cue")),
    ("component/raw.cue", include_str!("../../definitions/component/raw.cue")),
    ("component/ref-objects.cue", include_str!("../../definitions/component/ref-objects.cue")),
    ("component/statefulset.cue", include_str!("../../definitions/component/statefulset.cue")),
    ("component/task.cue", include_str!("../../definitions/component/task.cue")),
    ("component/webservice.cue", include_str!("../../definitions/component/webservice.cue")),
    ("component/worker.cue", include_str!("../../definitions/component/worker.cue")),
    ("trait/affinity.cue", include_str!("../../definitions/trait/affinity.cue")),
    ("trait/annotations.cue", include_str!("../../definitions/trait/annotations.cue")),
    ("trait/command.cue", include_str!("../../definitions/trait/command.cue")),
    ("trait/configmap.cue", include_str!("../../definitions/trait/configmap.cue")),
    ("trait/container-image.cue", include_str!("../../definitions/trait/container-image.cue")),
    ("trait/container-ports.cue", include_str!("../../definitions/trait/container-ports.cue")),
    ("trait/cpuscaler.cue", include_str!("../../definitions/trait/cpuscaler.cue")),
    ("trait/env.cue", include_str!("../../definitions/trait/env.cue")),
    ("trait/expose.cue", include_str!("../../definitions/trait/expose.cue")),
    ("trait/gateway.cue", include_str!("../../definitions/trait/gateway.cue")),
    ("trait/hostalias.cue", include_str!("../../definitions/trait/hostalias.cue")),
    ("trait/hpa.cue", include_str!("../../definitions/trait/hpa.cue")),
    ("trait/ingress.cue", include_str!("../../definitions/trait/ingress.cue")),
    ("trait/ingress-1-20.cue", include_str!("../../definitions/trait/ingress-1-20.cue")),
    ("trait/init-container.cue", include_str!("../../definitions/trait/init-container.cue")),
    ("trait/json-merge-patch.cue", include_str!("../../definitions/trait/json-merge-patch.cue")),
    ("trait/json-patch.cue", include_str!("../../definitions/trait/json-patch.cue")),
    ("trait/k8s-update-strategy.cue", include_str!("../../definitions/trait/k8s-update-strategy.cue")),
    ("trait/labels.cue", include_str!("../../definitions/trait/labels.cue")),
    ("trait/lifecycle.cue", include_str!("../../definitions/trait/lifecycle.cue")),
    ("trait/nocalhost.cue", include_str!("../../definitions/trait/nocalhost.cue")),
    ("trait/node-affinity.cue", include_str!("../../definitions/trait/node-affinity.cue")),
    ("trait/podsecuritycontext.cue", include_str!("../../definitions/trait/podsecuritycontext.cue")),
    ("trait/pure-ingress.cue", include_str!("../../definitions/trait/pure-ingress.cue")),
    ("trait/pvc.cue", include_str!("../../definitions/trait/pvc.cue")),
    ("trait/resource.cue", include_str!("../../definitions/trait/resource.cue")),
    ("trait/scaler.cue", include_str!("../../definitions/trait/scaler.cue")),
    ("trait/securitycontext.cue", include_str!("../../definitions/trait/securitycontext.cue")),
    ("trait/service-account.cue", include_str!("../../definitions/trait/service-account.cue")),
    ("trait/service-binding.cue", include_str!("../../definitions/trait/service-binding.cue")),
    ("trait/sidecar.cue", include_str!("../../definitions/trait/sidecar.cue")),
    ("trait/startup-probe.cue", include_str!("../../definitions/trait/startup-probe.cue")),
    ("trait/storage.cue", include_str!("../../definitions/trait/storage.cue")),
    (
        "trait/topologyspreadconstraints.cue",
        include_str!("../../definitions/trait/topologyspreadconstraints.cue"),
    ),
    ("trait/volumes.cue", include_str!("../../definitions/trait/volumes.cue")),
    ("policy/apply-once.cue", include_str!("../../definitions/policy/apply-once.cue")),
    ("policy/debug.cue", include_str!("../../definitions/policy/debug.cue")),
    ("policy/garbage-collect.cue", include_str!("../../definitions/policy/garbage-collect.cue")),
    ("policy/override.cue", include_str!("../../definitions/policy/override.cue")),
    ("policy/read-only.cue", include_str!("../../definitions/policy/read-only.cue")),
    ("policy/replication.cue", include_str!("../../definitions/policy/replication.cue")),
    ("policy/resource-update.cue", include_str!("../../definitions/policy/resource-update.cue")),
    ("policy/shared-resource.cue", include_str!("../../definitions/policy/shared-resource.cue")),
    ("policy/take-over.cue", include_str!("../../definitions/policy/take-over.cue")),
    ("policy/topology.cue", include_str!("../../definitions/policy/topology.cue")),
    ("step/apply-application.cue", include_str!("../../definitions/step/apply-application.cue")),
    (
        "step/apply-application-in-parallel.cue",
        include_str!("../../definitions/step/apply-application-in-parallel.cue"),
    ),
    ("step/apply-component.cue", include_str!("../../definitions/step/apply-component.cue")),
    ("step/apply-deployment.cue", include_str!("../../definitions/step/apply-deployment.cue")),
    ("step/apply-object.cue", include_str!("../../definitions/step/apply-object.cue")),
    ("step/apply-remaining.cue", include_str!("../../definitions/step/apply-remaining.cue")),
    ("step/check-metrics.cue", include_str!("../../definitions/step/check-metrics.cue")),
    ("step/clean-jobs.cue", include_str!("../../definitions/step/clean-jobs.cue")),
    (
        "step/collect-service-endpoints.cue",
        include_str!("../../definitions/step/collect-service-endpoints.cue"),
    ),
    ("step/create-config.cue", include_str!("../../definitions/step/create-config.cue")),
    ("step/delete-config.cue", include_str!("../../definitions/step/delete-config.cue")),
    ("step/list-config.cue", include_str!("../../definitions/step/list-config.cue")),
    ("step/read-config.cue", include_str!("../../definitions/step/read-config.cue")),
    ("step/depends-on-app.cue", include_str!("../../definitions/step/depends-on-app.cue")),
    ("step/deploy.cue", include_str!("../../definitions/step/deploy.cue")),
    ("step/export-data.cue", include_str!("../../definitions/step/export-data.cue")),
    ("step/export-service.cue", include_str!("../../definitions/step/export-service.cue")),
    ("step/export2config.cue", include_str!("../../definitions/step/export2config.cue")),
    ("step/export2secret.cue", include_str!("../../definitions/step/export2secret.cue")),
    ("step/notification.cue", include_str!("../../definitions/step/notification.cue")),
    ("step/print-message-in-status.cue", include_str!("../../definitions/step/print-message-in-status.cue")),
    ("step/read-object.cue", include_str!("../../definitions/step/read-object.cue")),
    ("step/request.cue", include_str!("../../definitions/step/request.cue")),
    ("step/step-group.cue", include_str!("../../definitions/step/step-group.cue")),
    ("step/suspend.cue", include_str!("../../definitions/step/suspend.cue")),
    ("step/apply-terraform-config.cue", include_str!("../../definitions/step/apply-terraform-config.cue")),
    (
        "step/apply-terraform-provider.cue",
        include_str!("../../definitions/step/apply-terraform-provider.cue"),
    ),
    ("step/build-push-image.cue", include_str!("../../definitions/step/build-push-image.cue")),
    ("step/deploy-cloud-resource.cue", include_str!("../../definitions/step/deploy-cloud-resource.cue")),
    (
        "step/generate-jdbc-connection.cue",
        include_str!("../../definitions/step/generate-jdbc-connection.cue"),
    ),
    ("step/share-cloud-resource.cue", include_str!("../../definitions/step/share-cloud-resource.cue")),
    ("step/vela-cli.cue", include_str!("../../definitions/step/vela-cli.cue")),
    ("step/webhook.cue", include_str!("../../definitions/step/webhook.cue")),
];

/// On a built-in definition: the hash of the spec that was installed.
const INSTALLED: &str = "definition.setpoint.dev/installed";

/// Returns the update of a cluster's copy of a built-in definition. `None` if nothing has to change: it is up to date,
/// or a user has edited it. Deleting an edited one restores the built-in one.
pub(crate) fn update(mut built_in: Value, live: Option<&Value>) -> Option<Value> {
    let hash = digest::hash(&built_in["spec"]);
    if let Some(live) = live {
        let installed = live["metadata"]["annotations"][INSTALLED].as_str();
        let is_edited =
            installed != Some(digest::hash(&live["spec"]).as_str()) && live["spec"] != built_in["spec"];
        if is_edited || installed == Some(hash.as_str()) {
            return None;
        }
    }
    built_in["metadata"]["annotations"][INSTALLED] = hash.into();
    Some(built_in)
}

/// Returns the built-in step that applies components, regardless of the definition in the cluster.
pub(crate) fn apply_component() -> Option<&'static Definition> {
    static STEP: OnceLock<Option<Definition>> = OnceLock::new();
    let find = || {
        let text = include_str!("../../definitions/step/apply-component.cue");
        Definition::of(&definition_object("apply-component.cue", text).ok()?).ok()
    };
    STEP.get_or_init(find).as_ref()
}

/// Returns the objects of all built-in definitions.
pub(crate) fn objects() -> Result<Vec<Value>, BadDefinition> {
    static OBJECTS: OnceLock<Vec<Value>> = OnceLock::new();
    if let Some(known) = OBJECTS.get() {
        return Ok(known.clone());
    }
    let objects: Vec<Value> =
        FILES.iter().map(|(name, text)| definition_object(name, text)).collect::<Result<_, _>>()?;
    Ok(OBJECTS.get_or_init(|| objects).clone())
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use setpoint_cue::Source;

    use super::*;

    #[test]
    fn definitions_that_users_have_edited_stay() {
        let of = |template: &str| json!({"metadata": {"name": "a", "annotations": {}}, "spec": {"template": template}});
        let installed = update(of("1"), None).unwrap();
        assert_eq!(update(of("1"), Some(&installed)), None);
        let newer = update(of("2"), Some(&installed)).unwrap();
        assert_eq!(newer["spec"]["template"], "2");
        let mut edited = installed.clone();
        edited["spec"]["template"] = "mine".into();
        assert_eq!(update(of("2"), Some(&edited)), None);
        assert_eq!(update(of("1"), Some(&edited)), None);
        // A definition that another program has installed is only taken over if it is the same.
        assert!(update(of("1"), Some(&of("1"))).is_some());
        assert_eq!(update(of("1"), Some(&of("0"))), None);
    }

    #[test]
    fn every_file_is_a_definition_named_like_the_file() {
        for (name, text) in FILES {
            let object = definition_object(name, text).unwrap_or_else(|error| panic!("{error}"));
            let stem = name.rsplit('/').next().and_then(|file| file.strip_suffix(".cue")).unwrap();
            assert_eq!(object["metadata"]["name"], stem);
            let template = object["spec"]["schematic"]["cue"]["template"].as_str().unwrap();
            Source::parse(name, template).unwrap_or_else(|error| panic!("{name}: {error}"));
        }
    }
}
