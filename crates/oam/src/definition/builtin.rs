//! The definitions that come with this program, one file each.

use serde_json::Value;

use super::file::{BadDefinition, definition_object};

const FILES: &[(&str, &str)] = &[
    ("component/cron-task.cue", include_str!("../../definitions/component/cron-task.cue")),
    ("component/daemon.cue", include_str!("../../definitions/component/daemon.cue")),
    ("component/k8s-objects.cue", include_str!("../../definitions/component/k8s-objects.cue")),
    ("component/raw.cue", include_str!("../../definitions/component/raw.cue")),
    ("component/statefulset.cue", include_str!("../../definitions/component/statefulset.cue")),
    ("component/task.cue", include_str!("../../definitions/component/task.cue")),
    ("component/webservice.cue", include_str!("../../definitions/component/webservice.cue")),
    ("component/worker.cue", include_str!("../../definitions/component/worker.cue")),
    ("trait/affinity.cue", include_str!("../../definitions/trait/affinity.cue")),
    ("trait/annotations.cue", include_str!("../../definitions/trait/annotations.cue")),
    ("trait/command.cue", include_str!("../../definitions/trait/command.cue")),
    ("trait/container-image.cue", include_str!("../../definitions/trait/container-image.cue")),
    ("trait/container-ports.cue", include_str!("../../definitions/trait/container-ports.cue")),
    ("trait/cpuscaler.cue", include_str!("../../definitions/trait/cpuscaler.cue")),
    ("trait/env.cue", include_str!("../../definitions/trait/env.cue")),
    ("trait/expose.cue", include_str!("../../definitions/trait/expose.cue")),
    ("trait/gateway.cue", include_str!("../../definitions/trait/gateway.cue")),
    ("trait/hostalias.cue", include_str!("../../definitions/trait/hostalias.cue")),
    ("trait/hpa.cue", include_str!("../../definitions/trait/hpa.cue")),
    ("trait/ingress-1-20.cue", include_str!("../../definitions/trait/ingress-1-20.cue")),
    ("trait/init-container.cue", include_str!("../../definitions/trait/init-container.cue")),
    ("trait/json-merge-patch.cue", include_str!("../../definitions/trait/json-merge-patch.cue")),
    ("trait/json-patch.cue", include_str!("../../definitions/trait/json-patch.cue")),
    ("trait/k8s-update-strategy.cue", include_str!("../../definitions/trait/k8s-update-strategy.cue")),
    ("trait/labels.cue", include_str!("../../definitions/trait/labels.cue")),
    ("trait/lifecycle.cue", include_str!("../../definitions/trait/lifecycle.cue")),
    ("trait/nocalhost.cue", include_str!("../../definitions/trait/nocalhost.cue")),
    ("trait/podsecuritycontext.cue", include_str!("../../definitions/trait/podsecuritycontext.cue")),
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
    ("step/apply-component.cue", include_str!("../../definitions/step/apply-component.cue")),
    ("step/apply-deployment.cue", include_str!("../../definitions/step/apply-deployment.cue")),
    ("step/apply-object.cue", include_str!("../../definitions/step/apply-object.cue")),
    ("step/apply-remaining.cue", include_str!("../../definitions/step/apply-remaining.cue")),
    ("step/clean-jobs.cue", include_str!("../../definitions/step/clean-jobs.cue")),
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
    ("step/webhook.cue", include_str!("../../definitions/step/webhook.cue")),
];

/// Returns the objects of all built-in definitions.
pub(crate) fn objects() -> Result<Vec<Value>, BadDefinition> {
    FILES.iter().map(|(name, text)| definition_object(name, text)).collect()
}

#[cfg(test)]
mod tests {
    use setpoint_cue::Source;

    use super::*;

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
