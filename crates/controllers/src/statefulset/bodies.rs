//! Pod bodies. Pure.

use serde_json::{Map, Value, json};
use setpoint::{Cached, Labels};

use super::view::{StatefulSet, claim_name, pod_name};
use crate::workload::history::REVISION_LABEL;
use crate::workload::template::{PodTemplate, with_label};

pub(super) const POD_NAME_LABEL: &str = "statefulset.kubernetes.io/pod-name";
const POD_INDEX_LABEL: &str = "apps.kubernetes.io/pod-index";

/// Returns the pod template of an ordinal, based on a revision's template.
pub(super) fn pod_template(
    set: &Cached<StatefulSet>,
    template: &PodTemplate,
    revision: &str,
    ordinal: usize,
) -> PodTemplate {
    let mut pod = template.clone();
    let labels = identity(set, &template.metadata.labels, ordinal);
    pod.metadata.labels = with_label(&labels, REVISION_LABEL, revision);
    let mut spec: Map<String, Value> = serde_json::from_str(template.spec.get()).unwrap_or_default();
    spec.insert("hostname".into(), pod_name(set.meta(), ordinal).into());
    if !set.spec.service_name.is_empty() {
        spec.insert("subdomain".into(), (*set.spec.service_name).into());
    }
    if !set.spec.volume_claim_templates.is_empty() {
        let volumes = volumes(set, ordinal, spec.get("volumes"));
        spec.insert("volumes".into(), volumes);
    }
    if let Ok(spec) = serde_json::value::to_raw_value(&spec) {
        pod.spec = spec;
    }
    pod
}

/// Adds the labels for the pod's name and ordinal.
pub(super) fn identity(set: &Cached<StatefulSet>, labels: &Labels, ordinal: usize) -> Labels {
    let labels = with_label(labels, POD_NAME_LABEL, &pod_name(set.meta(), ordinal));
    with_label(&labels, POD_INDEX_LABEL, &ordinal.to_string())
}

/// Returns the volumes of a pod's claims, and its own volumes with other names.
pub(super) fn volumes(set: &Cached<StatefulSet>, ordinal: usize, own: Option<&Value>) -> Value {
    let templates = &set.spec.volume_claim_templates;
    let claimed = templates.iter().map(|template| {
        let claim = json!({"claimName": claim_name(set, template, ordinal)});
        json!({"name": template.name, "persistentVolumeClaim": claim})
    });
    let own = own.and_then(Value::as_array).into_iter().flatten();
    let own = own.filter(|volume| templates.iter().all(|template| volume["name"] != *template.name));
    claimed.chain(own.cloned()).collect()
}
