//! Pod templates: what Deployments, ReplicaSets and every other kind that makes pods share.

use serde_json::Value;

use super::{defaults, disabled};
use crate::json::{Json, JsonMut};
use crate::kinds::selector;
use crate::table::{Column, joined};

/// Fills in `spec.template` of a workload.
pub fn default(workload_spec: &mut Value) {
    let template = workload_spec.object_mut("template");
    template.object_mut("metadata");
    defaults::default_spec(template.object_mut("spec"));
    defaults::drop_init_container_annotations(template);
}

/// Drops from `spec.template` the fields whose feature is off, unless the old object has them.
pub fn drop_disabled(workload_spec: &mut Value, old_workload_spec: &Value) {
    let old = old_workload_spec.at("template").at("spec");
    if let Some(spec) = workload_spec.at_mut("template").and_then(|template| template.at_mut("spec")) {
        disabled::drop_fields(spec, old);
    }
}

/// The columns that workloads end with.
pub fn columns(selector_description: &'static str) -> [Column; 3] {
    [
        Column::text("Containers", "Names of each container in the template.", |workload, _| {
            joined(containers(workload), "name")
        })
        .wide(),
        Column::text("Images", "Images referenced by each container in the template.", |workload, _| {
            joined(containers(workload), "image")
        })
        .wide(),
        Column::text("Selector", selector_description, |workload, _| {
            selector::shown(workload.at("spec").at("selector")).into()
        })
        .wide(),
    ]
}

fn containers(workload: &Value) -> &[Value] {
    workload.at("spec").at("template").at("spec").list("containers")
}
